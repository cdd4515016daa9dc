"""Error responses as problem details (RFC 9457)."""

from __future__ import annotations

import errno
import logging
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from mmsbgen.base.errors import InputError, MissingDependencyError, MmsbgenError
from mmsbgen.db.store.store_errors import StoreError

MEDIA_TYPE = "application/problem+json"
log = logging.getLogger("mmsbgen.service")
_FIELD = 2
"""Parts of the place of a field: the query, path or body, and its name."""
_TYPE = re.compile(r"(constrained-)?(bool|float|int|str)|literal\[.*\]")
"""What pydantic appends to the place of a field of several types."""
_SHOWN = 80
_SAID = {
    "extra_forbidden": "no such field: leave it out; /api/v1/openapi.json has all",
    "json_invalid": "the body is no JSON: mend it",
    "missing": "it is missing: give it",
}


class WrongValue(BaseModel):
    """An invalid value of a request."""

    where: str = Field(description="Its place in the request.", examples=["query.limit"])
    what: str = Field(description="What is wrong with it.", examples=["501 should be less than or equal to 500"])


class ErrorBody(BaseModel):
    """An error response (RFC 9457)."""

    type: str = Field(default="about:blank", description="Always about:blank: status and detail say it all.")
    title: str = Field(description="The status in words.", examples=["Not Found"])
    status: int = Field(description="The HTTP status.", examples=[404])
    detail: str = Field(description="Value, cause and remedy.", examples=["mmsb has no kernel 'x'; it has update_phi"])
    errors: list[WrongValue] = Field(default_factory=list, description="Each wrong value of a malformed request.")


def answer(
    status: int, detail: str, *, errors: list[WrongValue] | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """An error response with problem details."""
    body = ErrorBody(title=HTTPStatus(status).phrase, status=status, detail=_plain(detail), errors=errors or [])
    return JSONResponse(body.model_dump(), status, headers=headers, media_type=MEDIA_TYPE)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error responses of a route for the schema."""
    return {status: {"model": ErrorBody, "description": HTTPStatus(status).phrase} for status in sorted(statuses)}


def install(app: FastAPI) -> None:
    """Answer every error of ``app`` with problem details."""

    @app.exception_handler(RequestValidationError)
    async def malformed(_request: Request, error: RequestValidationError) -> JSONResponse:
        wrong = _wrong_values(error.errors()[:20])
        return answer(422, "; ".join(f"{one.where}: {one.what}" for one in wrong), errors=wrong)

    @app.exception_handler(HTTPException)
    async def refused(_request: Request, error: HTTPException) -> JSONResponse:
        return answer(error.status_code, str(error.detail), headers=error.headers)

    @app.exception_handler(ClientDisconnect)
    async def gone(_request: Request, _error: ClientDisconnect) -> JSONResponse:
        # For the log and the metrics; the client is gone.
        return answer(400, "the connection ended before the body was whole")

    @app.exception_handler(MmsbgenError)
    async def expected(_request: Request, error: MmsbgenError) -> JSONResponse:
        return answer(status_of(error), str(error), headers={"Retry-After": "5"} if status_of(error) == 503 else None)

    @app.exception_handler(OSError)
    async def full(_request: Request, error: OSError) -> JSONResponse:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise error
        return answer(507, "the disk of the service is full: try again later", headers={"Retry-After": "60"})

    @app.exception_handler(Exception)
    async def bug(request: Request, error: Exception) -> JSONResponse:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return answer(500, f"an error of the service itself ({type(error).__name__}); its log has more")


def status_of(error: MmsbgenError) -> int:
    """The HTTP status of an error: 422 for input, 503 for the database or a missing package, else 500."""
    if isinstance(error, StoreError | MissingDependencyError):
        return 503
    return 422 if isinstance(error, InputError) else 500


def _wrong_values(errors: Sequence[Mapping[str, Any]]) -> list[WrongValue]:
    """The errors of pydantic by field, with the value, and with what each type that it may have asks for."""
    found: dict[str, tuple[str, list[str]]] = {}
    for error in errors:
        place = list(map(str, error["loc"]))
        if len(place) > _FIELD and _TYPE.fullmatch(place[-1]):
            place.pop()
        subject, should, asked = str(error["msg"]).partition(" should ")
        if error.get("type") in _SAID:
            subject, asked = _SAID[error["type"]], ""
        elif should:
            value = repr(error.get("input"))
            # Others may be large.
            short = isinstance(error.get("input"), str | int | float) and len(value) <= _SHOWN
            subject, asked = value if short else "it", asked.partition(", unable to")[0]
        found.setdefault(".".join(place), (subject, []))[1].append(asked)
    told = {where: f"{of} should {', or '.join(asked)}" if any(asked) else of for where, (of, asked) in found.items()}
    return [WrongValue(where=_plain(where)[:200], what=_plain(what)[:500]) for where, what in told.items()]


def _plain(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
