"""Routes of results: files and the result of a detection."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Query, Request
from fastapi.responses import StreamingResponse

from mmsbgen.service.detections import DetectionView
from mmsbgen.service.http.problem_details import documented
from mmsbgen.service.models.job_models import DetectionResult, FileName, MemberPage, Vertex
from mmsbgen.service.models.kernel_models import Text
from mmsbgen.service.routes.job_routes import Id, found
from mmsbgen.service.service_context import context_of

router = APIRouter(prefix="/api/v1/jobs", tags=["results"], responses=documented(401, 404, 421, 422, 429, 503))

_TYPES = {"txt": "text/plain; charset=utf-8", "json": "application/json"}


def _detection(request: Request, job: str) -> DetectionView:
    core = context_of(request)
    return core.detections.get(found(core.queue, job))


@router.get("/{job}/result", response_model=DetectionResult)
def result(request: Request, job: Id) -> DetectionResult:
    """The summary of a detection: sizes and strengths of communities, their overlap, and the trace of the run."""
    return _detection(request, job).result


@router.get("/{job}/communities/{number}", response_model=MemberPage)
def members(
    request: Request,
    job: Id,
    number: Annotated[int, Path(ge=0, le=2**31, description="0 for the largest.")],
    offset: Annotated[int, Query(ge=0, le=2**31)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000, description="Most of a page.")] = 100,
) -> MemberPage:
    """Members of a community."""
    return _detection(request, job).page(number, offset, limit)


@router.get("/{job}/vertices", response_model=Vertex)
def vertex(
    request: Request, job: Id, id: Annotated[Text, Query(description="The vertex, as the graph has it.")]
) -> Vertex:
    """The memberships of a vertex."""
    seen = _detection(request, job).vertex(id)
    if seen is None:
        raise HTTPException(404, f"there is no vertex {id!r} in the graph of the job {job}")
    return seen


@router.get(
    "/{job}/files/{name}",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
)
def file(
    request: Request, job: Id, name: Annotated[FileName, Path(description="As the job lists it.")]
) -> StreamingResponse:
    """A file of the result, to download."""
    core = context_of(request)
    told = found(core.queue, job).outputs.get(name)
    if told is None:
        raise HTTPException(404, f"the job {job} has no file {name!r}")
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Content-Length": str(told["bytes"])}
    kind = _TYPES.get(name.rpartition(".")[2], "application/octet-stream")
    return StreamingResponse(core.queue.read(job, "output", name), media_type=kind, headers=headers)
