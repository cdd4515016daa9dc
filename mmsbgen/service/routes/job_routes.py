"""Routes of jobs: submit, list, follow, cancel."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import APIRouter, Header, HTTPException, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.datastructures import UploadFile
from starlette.types import Receive, Scope, Send

from mmsbgen.base.errors import InputError
from mmsbgen.db.records.job_records import ENDED, Job, RequestKeyError, UnknownJobError
from mmsbgen.jobs.queue import Queue
from mmsbgen.jobs.worker import detection_job as detect_work
from mmsbgen.jobs.worker import tuning_job as tune_work
from mmsbgen.service.detections import GRAPH
from mmsbgen.service.http.problem_details import documented
from mmsbgen.service.http.service_settings import MIB
from mmsbgen.service.models.job_models import (
    DetectOptions,
    JobId,
    JobModel,
    JobPage,
    Kind,
    RequestKey,
    State,
    Submitted,
    SubmittedDetection,
    TuneRequest,
)
from mmsbgen.service.models.kernel_models import Text, values_of
from mmsbgen.service.service_context import Core, ServiceContext

router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"], responses=documented(401, 421, 422, 429, 503))

_POLL_SECONDS = 0.4
_PING_SECONDS = 15.0
_SECURED: dict[str, Any] = {"security": [{"token": []}]}
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_EDGES = "# an edge list: two ids a line\n1 2\n2 3\n1 3\n"
_UPLOAD: dict[str, Any] = {
    **_SECURED,
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {"type": "object", "required": [GRAPH], "properties": {GRAPH: _BINARY["schema"]}}
            },
            "text/plain": {**_BINARY, "example": _EDGES},
            "application/gzip": _BINARY,
            "application/octet-stream": _BINARY,
        },
    },
}
Id = Annotated[JobId, Path(description="The job.")]
Key = Annotated[
    RequestKey | None,
    Header(alias="Idempotency-Key", description="The same key again makes no second job, it gives the first one's id."),
]


def found(queue: Queue, job: str) -> Job:
    """A job by its id.  Raises ``HTTPException`` 404."""
    try:
        return queue.get(job)
    except UnknownJobError as error:
        raise HTTPException(404, str(error)) from None


@router.post("/tune", status_code=202, responses=documented(409, 413, 507), openapi_extra=_SECURED)
async def submit_tune(core: Core, wanted: TuneRequest, key: Key = None) -> Submitted:
    """Submit a job: tune kernels for a problem on a worker's device."""
    most = core.settings.limits.max_hours * 3600
    if wanted.budget_seconds is not None and wanted.budget_seconds > most:
        raise HTTPException(422, f"budget_seconds={wanted.budget_seconds:g}: at most {most:g} are given to a job here")
    given = wanted.model_dump(exclude_none=True, exclude={"device"}, exclude_defaults=True)

    def work() -> str:
        tune_work.checked(given)
        return _submit(core, "tune", given, {}, wanted.device, key)

    return _submitted(await _in_turn(core, work))


@router.post(
    "/detect",
    status_code=202,
    responses=documented(400, 409, 413, 507),
    openapi_extra=_UPLOAD,
)
async def submit_detect(
    request: Request, core: Core, options: Annotated[DetectOptions, Query()], key: Key = None
) -> SubmittedDetection:
    """Submit a job: find the communities of a graph.

    The body is an edge list, two ids a line, plain or gzip, or a form with the edge list as the part 'graph'.
    """
    limits = core.settings.limits
    given = options.model_dump(exclude_none=True, exclude={"device"})
    if isinstance(options.n_communities, int) and options.n_communities > limits.max_communities:
        raise HTTPException(
            422, f"n_communities={options.n_communities}: at most {limits.max_communities} are taken here"
        )
    await asyncio.to_thread(detect_work.checked, given)
    await asyncio.to_thread(_check_room, core, key)
    try:
        async with core.intake.unpacked(_graph_chunks(request), limits.max_graph * MIB) as path:
            facts = await core.intake.graph(path, options.columns, options.weights)
            packed = path.with_suffix(".gz")
            await asyncio.to_thread(_pack, path, packed)
            sources = {GRAPH: packed}
            made = await _in_turn(core, lambda: _submit(core, "detect", given, sources, options.device, key))
    except Exception:
        core.metrics.uploads.labels("graph", "refused").inc()
        raise
    core.metrics.uploads.labels("graph", "taken").inc()
    return SubmittedDetection(
        **_submitted(made).model_dump(), vertices=facts.vertices, links=facts.links, warnings=list(facts.warnings)
    )


@router.get("")
def jobs(
    core: Core,
    kind: Annotated[Kind | None, Query()] = None,
    state: Annotated[State | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=200, description="Most of a page.")] = 50,
    before: Annotated[JobId | None, Query(description="The 'next' of the page before.")] = None,
) -> JobPage:
    """Jobs, newest first."""
    page = core.queue.list(kind=kind, state=state, limit=limit + 1, before=before)
    last = page[limit - 1].id if len(page) > limit else None
    counts: Any = core.queue.counts()
    return JobPage(jobs=[shown(job) for job in page[:limit]], next=last, counts=counts)


@router.get("/{job}", responses=documented(404))
def one_job(core: Core, job: Id) -> JobModel:
    """One job."""
    return shown(found(core.queue, job))


@router.post("/{job}/cancel", responses=documented(404), openapi_extra=_SECURED)
def cancel(core: Core, job: Id) -> JobModel:
    """Cancel a job.  A queued job ends at once, a running one within seconds; a job that has ended is unchanged."""
    found(core.queue, job)
    return shown(core.queue.cancel(job))


@router.delete("/{job}", status_code=204, responses=documented(404, 409), openapi_extra=_SECURED)
def forget(core: Core, job: Id) -> None:
    """Delete a job that has ended, with its files."""
    if not found(core.queue, job).ended:
        raise HTTPException(409, f"the job {job} has not ended: cancel it first")
    core.queue.remove(job)


@router.get(
    "/{job}/events",
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}, 204: {}, **documented(404)},
    response_class=StreamingResponse,
)
async def events(
    core: Core,
    job: Id,
    after: Annotated[int, Query(ge=0, le=2**62, description="Only events with higher numbers.")] = 0,
    last: Annotated[Text | None, Header(alias="Last-Event-ID", description="The same, as browsers give it.")] = None,
) -> Response:
    """Follow a job as server-sent events: past events first, then new ones as they come.

    An event's name is 'state', 'progress' or 'message'; its data is JSON with 'attempt', 'at' and further values of the
    event.  The last event is 'end'.  With Last-Event-ID, the status is 204 if the job has ended and no event follows.
    """
    if last is not None:
        if not (last.isascii() and last.isdigit() and len(last) < 19):
            raise InputError(f"Last-Event-ID {last!r}: it is the number of an event")
        after = int(last)
    now = await asyncio.to_thread(found, core.queue, job)
    if now.ended and last is not None and not await asyncio.to_thread(core.queue.events, job, after, limit=1):
        return Response(status_code=204)
    if core.followers >= core.settings.limits.streams:
        raise HTTPException(429, f"{core.followers} jobs are followed already, the most at once", {"Retry-After": "10"})
    core.follow(1)  # before anything is awaited, so that others that come now are counted after it
    return _Followed(core, _told(core, job, after))


class _Followed(StreamingResponse):
    """An event stream that is counted until it ends."""

    def __init__(self, core: ServiceContext, events: AsyncIterator[str]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        self._core = core

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._core.follow(-1)


async def _told(core: ServiceContext, job: str, after: int) -> AsyncIterator[str]:
    silent = 0.0
    try:
        yield "retry: 2000\n\n"
        while not core.stopping.is_set():
            # The state first: otherwise events between the two queries could be missed at the end.
            state = (await asyncio.to_thread(core.queue.get, job)).state
            new = await asyncio.to_thread(core.queue.events, job, after, limit=500)
            for event in new:
                after = event.id
                data = {"attempt": event.attempt, "at": event.created_at, **event.data}
                yield f"id: {event.id}\nevent: {event.kind}\ndata: {json.dumps(data, allow_nan=False)}\n\n"
            if not new:
                if state in ENDED:
                    yield f"id: {after}\nevent: end\ndata: {json.dumps({'state': state})}\n\n"
                    return
                silent += _POLL_SECONDS
                if silent >= _PING_SECONDS:
                    yield ": still here\n\n"
                    silent = 0.0
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(core.stopping.wait(), _POLL_SECONDS)
    except UnknownJobError:  # it was removed
        return


def shown(job: Job) -> JobModel:
    """The API's model of a job."""
    return JobModel(**values_of(job, JobModel), cancelling=job.cancel_at is not None and not job.ended)


async def _graph_chunks(request: Request) -> AsyncIterator[bytes]:
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        async for chunk in request.stream():
            yield chunk
        return
    async with request.form(max_files=1, max_fields=8, max_part_size=4096) as form:
        part = form.get(GRAPH)
        if not isinstance(part, UploadFile):
            raise HTTPException(422, f"the form has no file {GRAPH!r}: send the edge list as that part")
        while chunk := await part.read(1 << 16):
            yield chunk


def _pack(path: FilePath, packed: FilePath) -> None:
    # Without name and time, so that the same graph gives the same bytes.
    with path.open("rb") as file, packed.open("wb") as out, gzip.GzipFile("", "wb", 3, out, mtime=0) as zipped:
        shutil.copyfileobj(file, zipped, 1 << 20)


async def _in_turn(core: ServiceContext, work: Any) -> str:
    """Run one submission at a time, so that the limit of jobs holds."""
    async with core.submitting:
        made: str = await asyncio.to_thread(work)
        return made


def _submit(
    core: ServiceContext,
    kind: str,
    payload: dict[str, Any],
    inputs: dict[str, FilePath],
    device: str | None,
    key: str | None,
) -> str:
    _check_room(core, key)
    try:
        return core.queue.submit(kind, payload, inputs=inputs, device=device, request_key=key)
    except RequestKeyError as error:
        raise HTTPException(409, str(error)) from None


def _check_room(core: ServiceContext, key: str | None) -> None:
    if key is not None and core.queue.requested(key):  # a repeated request makes no new job
        return
    stored = core.settings.limits.max_stored
    if core.queue.stored() >= stored * MIB:
        raise HTTPException(507, f"of the files of all jobs at most {stored} MiB are kept: delete jobs that have ended")
    counts, most = core.queue.counts(), core.settings.limits.max_jobs
    if counts["queued"] + counts["running"] >= most:
        raise HTTPException(
            429,
            f"{most} jobs wait or run, the most at once: cancel one or wait until one has ended",
            {"Retry-After": "60"},
        )


def _submitted(job: str) -> Submitted:
    return Submitted(id=job, job=f"/api/v1/jobs/{job}", events=f"/api/v1/jobs/{job}/events")
