"""Routes of the service itself, and the upload of records."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from mmsbgen.base.version import __version__
from mmsbgen.db.store.schema import REVISION
from mmsbgen.service.http.problem_details import documented
from mmsbgen.service.models import kernel_models
from mmsbgen.service.service_context import Core

router = APIRouter(tags=["service"], responses=documented(421, 429))

_LINES = '{"format":"mmsbgen-tuning","roofs":0,"runs":0,"trials":0,"version":1}\n'
UPLOAD: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "text/plain": {"schema": {"type": "string", "format": "binary"}, "example": _LINES},
            "application/gzip": {"schema": {"type": "string", "format": "binary"}},
        },
    },
    "security": [{"token": []}],
}


@router.get("/health")
async def health() -> kernel_models.Health:
    """Liveness: answers as long as the process runs."""
    return kernel_models.Health(status="ok", version=__version__)


@router.get("/ready", responses={503: {"model": kernel_models.Ready}})
def ready(core: Core, response: Response) -> kernel_models.Ready:
    """Readiness: whether the database works and has the right schema, and a worker beside the service lives."""
    trouble, alive = core.trouble(), sum(worker.alive for worker in core.workers)
    works = not trouble and (alive > 0 or not core.workers)
    core.metrics.ready.set(1 if works else 0)
    if not works:
        response.status_code = 503
    return kernel_models.Ready(
        status="ready" if works else "not ready",
        database=trouble or "ok",
        schema_revision=None if trouble else REVISION,
        workers=alive,
        workers_wanted=len(core.workers),
        version=__version__,
    )


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def metrics(core: Core) -> Response:
    """Metrics in Prometheus' text format."""
    return Response(core.metrics.text(core.jobs()), media_type=CONTENT_TYPE_LATEST)


@router.post(
    "/api/v1/records",
    tags=["tuning"],
    responses=documented(401, 413, 422, 503),
    openapi_extra=UPLOAD,
)
async def add_records(
    request: Request, core: Core, dry_run: Annotated[bool, Query(description="Check only, add nothing.")] = False
) -> kernel_models.Added:
    """Add the records that the database lacks, from JSON lines of ``mmsbgen db export``, plain or gzip.

    Every line is checked first; either all records are added or none.
    """
    try:
        async with core.intake.unpacked(request.stream(), core.settings.limits.records) as path:
            added = await core.intake.records(path, core.settings.database, dry_run)
    except Exception:
        core.metrics.uploads.labels("records", "refused").inc()
        raise
    core.metrics.uploads.labels("records", "taken").inc()
    return kernel_models.Added(**added)
