"""Checks of every request (host name, rate, size, token), and headers of every response."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import time
from typing import Any

from fastapi import HTTPException
from limits import RateLimitItem, parse
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mmsbgen.service.http.problem_details import answer
from mmsbgen.service.http.service_metrics import ServiceMetrics
from mmsbgen.service.http.service_settings import LOOPBACK_NAMES, MIB, ServiceSettings, is_loopback

API = "/api/"
UPLOADS = frozenset({"/api/v1/records", "/api/v1/jobs/detect"})
"""Routes whose bodies may be large."""
COSTLY = frozenset({"/api/v1/source"})
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_OF_PROXIES = (b"x-forwarded-", b"forwarded", b"x-real-ip", b"via")
"""What the names of headers that proxies add begin with."""
_LINGER_BYTES, _LINGER_SECONDS = 16 << 20, 3.0
"""How much of a refused body is still read, so that the client can read the answer."""

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SECURITY = [
    (b"content-security-policy", PAGE_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
]


class RequestGate:
    """The outermost ASGI application: refuses requests that break a limit, and counts all of them."""

    def __init__(self, app: ASGIApp, settings: ServiceSettings, metrics: ServiceMetrics) -> None:
        self.app = app
        self.settings = settings
        self.metrics = metrics
        self._names = _names(settings)
        self._token = settings.token.encode()
        self._limiter = FixedWindowRateLimiter(MemoryStorage())
        limits = settings.limits
        self._rate, self._write_rate, self._costly_rate, self._refused_rate = (
            parse(text) for text in (limits.rate, limits.write_rate, limits.costly_rate, limits.refused_rate)
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check and serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *_SECURITY]
                # The page's files belong together: a browser revalidates its copies.
                kept = b"no-store" if scope["path"].startswith(API) else b"no-cache"
                message["headers"].append((b"cache-control", kept))
            await send(message)

        try:
            try:
                receiving = self._checked(scope, receive)
            except HTTPException as refused:
                await self._refuse(refused, scope, receive, sending)
            else:
                await self.app(scope, receiving, sending)
        finally:
            self.metrics.request(scope, status, time.perf_counter() - began)

    def _checked(self, scope: Scope, receive: Receive) -> Receive:
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            if name in headers and name in (b"host", b"authorization", b"content-length"):
                raise HTTPException(400, f"the header {name.decode()} came twice")
            headers[name] = value
        head = len(scope["raw_path"]) + len(scope["query_string"]) + sum(len(n) + len(v) for n, v in scope["headers"])
        if head > self.settings.limits.head:  # uvicorn limits what comes in several parts
            raise HTTPException(431, f"the request line and headers have {head} bytes", {"Connection": "close"})
        called = self._checked_host(headers.get(b"host", b""))
        client, path, method = (scope["client"] or ("?",))[0], scope["path"], scope["method"]
        self._hit(self._rate, client, "requests")
        writes = method not in _READS
        # What a proxy on this machine passes on comes from a loopback address too.
        passed_on = any(name.startswith(_OF_PROXIES) for name in headers)
        local = self.settings.loopback and is_loopback(called) and is_loopback(client) and not passed_on
        if writes or (not local and path.startswith((API, "/metrics"))):
            self._check_token(headers.get(b"authorization", b""), client)
        if writes:
            self._hit(self._write_rate, client, "requests that change something")
        if path in COSTLY:
            self._hit(self._costly_rate, client, "requests for sources")
        limits = self.settings.limits
        most = limits.max_upload * MIB if path in UPLOADS and method == "POST" else limits.body
        length = headers.get(b"content-length", b"0")
        if not length.isdigit():
            raise HTTPException(400, "Content-Length must be a whole number")
        if not writes and (length.strip(b"0") or b"transfer-encoding" in headers):
            # Answers do not wait for it, so that its sender could hold the connection for as long as it likes.
            raise HTTPException(400, f"a {method} request has no body here")
        if len(length) > 18 or int(length) > most:
            raise HTTPException(413, f"the body has {length[:18].decode()} bytes; at most {most} are taken here")
        return _bounded(receive, most)

    def _checked_host(self, raw: bytes) -> str:
        host = raw.decode("latin-1").lower()
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        if name in self._names:
            return name
        with contextlib.suppress(ValueError):
            address = ipaddress.ip_address(name)
            # Against DNS rebinding: another site can make a name point here, but not an address.
            if address.is_loopback or not self.settings.loopback:
                return name
        raise HTTPException(
            421, f"this service is not called {name[:99]!r}: use its address, or start it with --allow-host {name[:99]}"
        )

    def _check_token(self, header: bytes, client: str) -> None:
        scheme, _, token = header.partition(b" ")
        if scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token):
            return
        if header:
            self._hit(self._refused_rate, f"token {client}", "requests with a wrong token")
        raise HTTPException(
            401,
            "this request needs the token of the service, as the header 'Authorization: Bearer TOKEN'",
            {"WWW-Authenticate": 'Bearer realm="mmsbgen"'},
        )

    def _hit(self, rate: RateLimitItem, client: str, what: str) -> None:
        if self._limiter.hit(rate, what, client):
            return
        reset = self._limiter.get_window_stats(rate, what, client).reset_time
        wait = max(1, round(reset - time.time()))
        raise HTTPException(429, f"more than {rate} {what}: wait {wait} s", {"Retry-After": str(wait)})

    async def _refuse(self, refused: HTTPException, scope: Scope, receive: Receive, send: Send) -> None:
        headers, more = dict(scope["headers"]), dict(refused.headers or {})
        if b"content-length" in headers or b"transfer-encoding" in headers:
            if b"expect" not in headers:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(_linger(receive), _LINGER_SECONDS)
            more["Connection"] = "close"
        await answer(refused.status_code, refused.detail, headers=more)(scope, receive, send)


def _names(settings: ServiceSettings) -> frozenset[str]:
    named = {name.lower() for name in settings.hosts}
    return frozenset(named | (LOOPBACK_NAMES if settings.loopback else {settings.host.lower()} | LOOPBACK_NAMES))


def _bounded(receive: Receive, most: int) -> Receive:
    """``receive`` that raises ``HTTPException`` 413 for a body above ``most`` bytes."""
    got = 0

    async def receiving() -> Message:
        nonlocal got
        message = await receive()
        if message["type"] == "http.request":
            got += len(message.get("body", b""))
            if got > most:
                raise HTTPException(413, f"the body has more than the {most} bytes that are taken here")
        return message

    return receiving


async def _linger(receive: Receive) -> None:
    left = _LINGER_BYTES
    while left > 0:
        message: Any = await receive()
        if message["type"] != "http.request" or not message.get("more_body"):
            return
        left -= len(message.get("body", b""))
