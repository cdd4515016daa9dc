"""What uvicorn has no options for: a deadline for request headers, and a limit of connections of one address."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 15.0
"""A connection is closed if its client has not sent its headers by then."""


def bounded(address: int) -> type[H11Protocol]:
    """uvicorn's protocol of a connection; closes those of one client address beyond the first ``address``."""

    class Bounded(H11Protocol):
        """Closes itself if headers do not come."""

        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._watch()
            clients = [one.client[0] for one in self.connections if isinstance(one, H11Protocol) and one.client]
            if self.client and clients.count(self.client[0]) > address:
                transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            self._unwatch()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:
                self._unwatch()
            elif self._deadline is None:
                self._watch()

        def _watch(self) -> None:
            self._deadline = self.loop.call_later(HEAD_SECONDS, self.timeout_keep_alive_handler)

        def _unwatch(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

    return Bounded
