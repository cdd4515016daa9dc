"""State shared by the routes of a service."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Annotated

from anyio import CapacityLimiter
from anyio.to_thread import current_default_thread_limiter
from fastapi import Depends, Request

from mmsbgen.base.errors import MmsbgenError
from mmsbgen.db.store.migrate import revision
from mmsbgen.db.store.schema import REVISION
from mmsbgen.db.store.tuning_store import Store, open_store
from mmsbgen.jobs.queue import Queue
from mmsbgen.service.detections import DetectionViews
from mmsbgen.service.device_list import Devices
from mmsbgen.service.http.service_metrics import ServiceMetrics
from mmsbgen.service.http.service_settings import ServiceSettings
from mmsbgen.service.http.uploads import Uploads
from mmsbgen.service.local_workers import LocalWorker
from mmsbgen.service.lookups import LookUps

_THREADS = 12
"""Threads that may use the database at once; it has at most 15 connections."""
_READERS = 2
_EXPIRE_SECONDS = 5.0


class ServiceContext:
    """The tuning store, job queue, look-ups and uploads of a service; open while it runs."""

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings
        self.metrics = ServiceMetrics()
        self.devices = Devices()
        self.store: Store
        self.look_ups: LookUps
        self.intake: Uploads
        self.reading = CapacityLimiter(_READERS)
        """Threads that read results of detections; the others remain for short answers."""
        self.queue: Queue
        self.detections: DetectionViews
        self.submitting = asyncio.Lock()
        self.workers: Sequence[LocalWorker] = ()
        self.followers = 0
        self.discovered = asyncio.Event()
        self.stopping = asyncio.Event()
        """Set when the service is to end, so that event streams end."""

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[ServiceContext]:
        """Open the database and start the background tasks.  Raises :class:`MmsbgenError` if that fails."""
        current_default_thread_limiter().total_tokens = _THREADS
        settings = self.settings
        with open_store(settings.database) as store:
            self.store = store
            self.queue = Queue(store)
            await asyncio.to_thread(self.queue.sweep)
            self.detections = DetectionViews(self.queue)
            self.intake = Uploads(settings)
            self.look_ups = await asyncio.to_thread(LookUps, store, self.devices)
            beside = [asyncio.create_task(work()) for work in (self._discover, self._expire)]
            try:
                yield self
            finally:
                for task in beside:
                    task.cancel()
                await asyncio.gather(*beside, return_exceptions=True)
                self.intake.close()

    def follow(self, change: int) -> None:
        """Count followers of jobs: 1 for one that comes, -1 for one that has left."""
        self.followers += change
        self.metrics.streams.set(self.followers)

    def jobs(self) -> dict[str, int]:
        """How many jobs are in each state; nothing if the database fails."""
        try:
            return self.queue.counts()
        except MmsbgenError:  # readiness says so
            return {}

    def trouble(self) -> str:
        """An error message about the database; empty if it works."""
        try:
            found = revision(self.store.database)
        except MmsbgenError as error:
            return str(error)
        if found != REVISION:
            return f"the schema is {found}, {REVISION} is needed: restart the service"
        return ""

    async def _expire(self) -> None:
        """Expire the jobs of dead workers; otherwise a cancelled one would end only when another worker comes."""
        while True:
            await asyncio.sleep(_EXPIRE_SECONDS)
            with contextlib.suppress(MmsbgenError):  # readiness says so
                await asyncio.to_thread(self.queue.expire)

    async def _discover(self) -> None:
        try:
            await self.devices.discover()
        finally:
            self.discovered.set()


async def _context_of(request: Request) -> ServiceContext:
    core: ServiceContext = request.app.state.core
    return core


Core = Annotated[ServiceContext, Depends(_context_of)]
"""The context of the service that handles a request, as a parameter of routes."""
