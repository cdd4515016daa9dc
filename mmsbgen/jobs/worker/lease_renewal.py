"""Renews a job's lease."""

from __future__ import annotations

import time
from collections.abc import Callable

from mmsbgen.db.records.job_records import Lease, LeaseLostError
from mmsbgen.db.store.store_errors import StoreError
from mmsbgen.jobs.queue import Queue

_LOOK_S = 1.0
"""Most seconds between checks for a request to end the job."""


class LeaseRenewal:
    """The heartbeats of a lease since the job was claimed; ``failing`` is called with the text of database errors."""

    def __init__(self, queue: Queue, lease: Lease, failing: Callable[[str], None]) -> None:
        self.lease = lease
        self.cancel = False
        """Whether the job was asked to end."""
        self._queue, self._failing = queue, failing
        self._beat_at = time.monotonic()
        self._looked_at = 0.0

    def kept(self) -> None:
        """Record that another write has just renewed the lease."""
        self._beat_at = time.monotonic()

    def look(self) -> bool:
        """Send a heartbeat if one is due; returns whether the job was asked to end.

        Call it many times per lease; most calls do nothing.  Raises :class:`LeaseLostError`, also when the database
        could not be reached for the length of the lease.
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
