"""Keeps a job for the worker that has it."""

from __future__ import annotations

import time
from collections.abc import Callable

from mmsbgen.db.store.store_errors import StoreError
from mmsbgen.jobs import Lease, LeaseLostError, Queue

__all__ = ["LeaseRenewal"]

_LOOK_S = 1.0
"""How often a worker looks whether its job is to end."""


class LeaseRenewal:
    """The heartbeats of a lease from the moment that the job was claimed; ``failing`` is told what goes wrong."""

    def __init__(self, queue: Queue, lease: Lease, failing: Callable[[str], None]) -> None:
        self.lease = lease
        self.cancel = False
        """Whether the job was asked to end."""
        self._queue, self._failing = queue, failing
        self._beat_at = time.monotonic()
        self._looked_at = 0.0

    def kept(self) -> None:
        """Take note that the job was kept by another write just now."""
        self._beat_at = time.monotonic()

    def look(self) -> bool:
        """Write a heartbeat where it is due; True when the job was asked to end.

        To be called many times a lease; most calls do nothing.  Raises :class:`LeaseLostError`, also when the database
        could not be reached for as long as the lease lasts.
        """
        now, lease = time.monotonic(), self.lease
        if now - self._looked_at < min(_LOOK_S, lease.seconds / 4):
            return self.cancel
        self._looked_at = now
        try:
            if now - self._beat_at >= lease.seconds / 4:
                self.cancel = self._queue.heartbeat(lease)
                self.kept()
            else:
                self.cancel = self._queue.look(lease)
        except StoreError as error:
            self._failing(str(error))
            if time.monotonic() - self._beat_at > lease.seconds:
                raise LeaseLostError(f"the job {lease.job.id} could not be kept: {error}") from error
        return self.cancel
