"""uvicorn's HTTP protocol with limits that uvicorn has no options for: of request headers and of connections."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS = 15.0
"""A connection is closed if its client has not sent its headers by then."""

CROWDED = "mmsbgen.crowded"
"""Key of a request's scope: whether there are more connections than the limit."""


def bounded(head: int, connections: int, address: int) -> type[HttpToolsProtocol]:
    """A protocol class that limits request headers and marks requests over the limit of connections.

    Args:
        head: Most bytes of request line and headers; the connection is closed if there are more, or after
            :data:`HEAD_SECONDS`.
        connections: Most connections at once; above it, requests are marked :data:`CROWDED`.
        address: Most connections of one client address; further ones are closed.
    """

    class Bounded(HttpToolsProtocol):
        """Counts the bytes of a request until its headers are complete."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._in_head = True
            self._head = 0
            self._deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._watch()
            addresses = [(getattr(one, "client", None) or ("",))[0] for one in self.connections]
            if self.client and addresses.count(self.client[0]) > address:
                self._refuse(b"503 Service Unavailable")

        def connection_lost(self, exc: Exception | None) -> None:
            self._unwatch()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self._in_head:
                self._head += len(data)
            super().data_received(data)
            if self._in_head and self._head > head and not self.transport.is_closing():
                self._refuse(b"431 Request Header Fields Too Large")

        def on_message_begin(self) -> None:
            self._in_head = True
            if self._deadline is None:
                self._watch()
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._in_head = False
            self._unwatch()
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > head:
                self._refuse(b"431 Request Header Fields Too Large")
                raise ValueError("headers too large")
            # uvicorn's own limit answers in plain text.
            self.scope[CROWDED] = len(self.connections) > connections  # type: ignore[literal-required]
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            super().on_message_complete()
            self._in_head, self._head = True, 0

        def send_400_response(self, msg: str) -> None:
            if not self.transport.is_closing():
                super().send_400_response(msg)

        def _watch(self) -> None:
            self._deadline = self.loop.call_later(HEAD_SECONDS, self._late)

        def _unwatch(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _late(self) -> None:
            if not self.transport.is_closing():
                self._refuse(b"408 Request Timeout")

        def _refuse(self, status: bytes) -> None:
            self.transport.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            self.transport.close()

    return Bounded
