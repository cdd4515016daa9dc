"""Routes of results: files and the result of a detection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from anyio.to_thread import run_sync
from fastapi import APIRouter, HTTPException, Path, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from mmsbgen.service.detections import DetectionView
from mmsbgen.service.http.problem_details import documented
from mmsbgen.service.models.job_models import DetectionResult, FileName, MemberPage, Vertex
from mmsbgen.service.models.kernel_models import Text
from mmsbgen.service.routes.job_routes import Id, found
from mmsbgen.service.service_context import Core

router = APIRouter(prefix="/api/v1/jobs", tags=["results"], responses=documented(401, 404, 421, 422, 429, 503))

_TYPES = {"txt": "text/plain; charset=utf-8", "json": "application/json"}


async def _read(core: Core, job: str, work: Callable[[DetectionView], BaseModel]) -> Response:
    """Answer with what ``work`` makes of a result, in one of few threads, as results may be large."""

    def reading() -> str:
        return work(core.detections.get(found(core.queue, job))).model_dump_json()

    return Response(await run_sync(reading, limiter=core.reading), media_type="application/json")


@router.get("/{job}/result", response_model=DetectionResult)
async def result(core: Core, job: Id) -> Response:
    """The summary of a detection: sizes and strengths of communities, their overlap, and the trace of the run."""
    return await _read(core, job, lambda view: view.result)


@router.get("/{job}/communities/{number}", response_model=MemberPage)
async def members(
    core: Core,
    job: Id,
    number: Annotated[int, Path(ge=0, le=2**31, description="0 for the largest.")],
    offset: Annotated[int, Query(ge=0, le=2**31)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000, description="Most of a page.")] = 100,
) -> Response:
    """Members of a community."""
    return await _read(core, job, lambda view: view.page(number, offset, limit))


@router.get("/{job}/vertices", response_model=Vertex)
async def vertex(
    core: Core, job: Id, id: Annotated[Text, Query(description="The vertex, as the graph has it.")]
) -> Response:
    """The memberships of a vertex."""

    def shown(view: DetectionView) -> Vertex:
        if (seen := view.vertex(id)) is None:
            raise HTTPException(404, f"there is no vertex {id!r} in the graph of the job {job}")
        return seen

    return await _read(core, job, shown)


@router.get(
    "/{job}/files/{name}",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
)
def file(core: Core, job: Id, name: Annotated[FileName, Path(description="As the job lists it.")]) -> StreamingResponse:
    """A file of the result, to download."""
    if (told := found(core.queue, job).outputs.get(name)) is None:
        raise HTTPException(404, f"the job {job} has no file {name!r}")
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Content-Length": str(told["bytes"])}
    kind = _TYPES.get(name.rpartition(".")[2], "application/octet-stream")
    return StreamingResponse(core.queue.read(job, "output", name), media_type=kind, headers=headers)
