"""The ASGI application: routes, OpenAPI schema and web page, behind the request checks."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from mmsbgen.base.version import __version__
from mmsbgen.service.http import problem_details
from mmsbgen.service.http.middleware import RequestGate
from mmsbgen.service.http.service_settings import ServiceSettings
from mmsbgen.service.routes import job_routes, kernel_routes, result_routes, service_routes, tuning_routes
from mmsbgen.service.service_context import ServiceContext

STATIC = Path(__file__).parent / "static"
"""Files served at /; they load nothing from other hosts."""
_DESCRIPTION = (
    "The tuning database, the kernels and the jobs of mmsbgen. Requests that change something need the header "
    "`Authorization: Bearer TOKEN`. Errors are problem details (RFC 9457)."
)


def create_app(settings: ServiceSettings) -> tuple[ASGIApp, ServiceContext]:
    """The ASGI application and the context of its routes, which opens and closes with it."""
    core = ServiceContext(settings)

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with core.open():
            yield

    app = FastAPI(
        title="mmsbgen",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        dependencies=[Depends(_refuse_unknown)],
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # these pages load scripts from other hosts
        redoc_url=None,
        separate_input_output_schemas=False,
    )
    app.state.core = core
    problem_details.install(app)
    for module in (tuning_routes, kernel_routes, job_routes, result_routes, service_routes):
        app.include_router(module.router)
    app.openapi = lambda: _schema(app)  # type: ignore[method-assign]
    app.mount("/", StaticFiles(directory=STATIC, html=True), name="page")
    return RequestGate(app, settings, core.metrics), core


async def _refuse_unknown(request: Request) -> None:
    """Refuse parameters of reading requests that the route does not have; the models of others refuse theirs."""
    operation = request.app.openapi()["paths"].get(request.scope["route"].path_format, {}).get("get")
    if request.method not in ("GET", "HEAD") or operation is None:
        return
    known = [given["name"] for given in operation.get("parameters", []) if given["in"] == "query"]
    told = f"no such parameter; there are {', '.join(known)}" if known else "this route takes no parameters"
    if wrong := [{"loc": ("query", name), "msg": told} for name in request.query_params if name not in known]:
        raise RequestValidationError(wrong)


def _schema(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, description=_DESCRIPTION, routes=app.routes)
        components = schema.setdefault("components", {})
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path in schema["paths"].values():
            for operation in path.values():
                _as_problems(operation)
        for unused in ("HTTPValidationError", "ValidationError"):
            components["schemas"].pop(unused, None)
        app.openapi_schema = schema
    return app.openapi_schema


def _as_problems(operation: dict[str, Any]) -> None:
    """Document error responses with the media type of problem details."""
    for response in operation["responses"].values():
        content = response.get("content", {})
        if "ErrorBody" in str(content.get("application/json", "")):
            content[problem_details.MEDIA_TYPE] = content.pop("application/json")
