"""Runs the application and the workers for its jobs."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from types import FrameType

import uvicorn

from mmsbgen.base.errors import InputError
from mmsbgen.base.stop_signals import handling
from mmsbgen.service.app import create_app
from mmsbgen.service.http.service_settings import ServiceSettings
from mmsbgen.service.local_workers import beside
from mmsbgen.service.service_context import ServiceContext

_SHUTDOWN_SECONDS = 10
PROXIES = ["127.0.0.0/8", "::1", "::ffff:127.0.0.0/104"]
"""Addresses of this machine, as sockets of either family give them: X-Forwarded-For and -Proto count from these."""


class _Server(uvicorn.Server):
    """Ends event streams as soon as it is stopped, so that shutdown does not wait for them."""

    def __init__(self, config: uvicorn.Config, core: ServiceContext) -> None:
        super().__init__(config)
        self._core = core

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._core.stopping.set()
        super().handle_exit(sig, frame)


def listening(host: str, port: int) -> socket.socket:
    """A listening socket on an address.  Raises :class:`InputError` if that fails."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.socket(family)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((host, port))
        opened.listen(1024)
    except OSError as error:
        opened.close()
        raise InputError(
            f"cannot listen on {host} port {port}: {error.strerror or error}; choose another by --host and --port"
        ) from error
    return opened


def serve(settings: ServiceSettings, opened: socket.socket, workers: int = 0, devices: Sequence[str] = ()) -> None:
    """Serve on a socket, with ``workers`` worker processes for ``devices``, until SIGINT, SIGTERM or SIGHUP."""
    app, core = create_app(settings)
    limits = settings.limits
    config = uvicorn.Config(
        app,
        http="h11",  # the other, httptools, does not limit headers
        h11_max_incomplete_event_size=limits.head,
        limit_concurrency=limits.connections,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=True,
        forwarded_allow_ips=PROXIES,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    # Threads switch more often than by default, so that computing ones delay answers less.
    sys.setswitchinterval(0.001)
    server = _Server(config, core)
    hours = ("--max-hours", str(limits.max_hours))
    # Signals end only the server, so that the workers are ended in order afterwards.
    with (
        handling(server.handle_exit),
        beside(workers, settings.database, settings.data, devices, *hours) as core.workers,
    ):
        server.run(sockets=[opened])
