"""Jobs and their events as plain frozen values; timestamps are ISO 8601 in UTC, as the database keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

STATES = ("queued", "running", "done", "failed", "cancelled")
ENDED = frozenset({"done", "failed", "cancelled"})
"""States that a job never leaves."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job as it stood when it was read.

    ``inputs``, ``outputs`` and ``checkpoint`` tell of its files: ``{name: {"bytes": size, "sha256": digest}}``.
    """

    id: str
    """32 hexadecimal digits, random."""
    request_key: str | None
    kind: str
    """One of :data:`mmsbgen.jobs.KINDS`."""
    state: str
    """One of :data:`STATES`."""
    payload: dict[str, Any]
    inputs: dict[str, dict[str, Any]]
    device: str | None
    """Only a worker whose device this matches takes the job; see
    :meth:`mmsbgen.db.records.tuning_records.DeviceRecord.matches`."""
    attempt: int
    """How often a worker has taken it; the present or last attempt's fencing token."""
    losses: int
    """How many attempts were lost: the lease ran out, or the process that did the work died."""
    max_losses: int
    """After so many attempts whose process died it fails; see :mod:`mmsbgen.jobs.queue` for those whose worker did."""
    worker: str | None
    """Who has it, or had it last."""
    lease_until: str | None
    cancel_at: str | None
    """When it was asked to end."""
    checkpoint: dict[str, dict[str, Any]] | None
    """The files that its next attempt goes on from."""
    progress: dict[str, Any] | None
    """The last progress that it told."""
    result: dict[str, Any] | None
    outputs: dict[str, dict[str, Any]]
    """The files of the one attempt that finished."""
    error: str | None
    created_at: str
    started_at: str | None
    """When its present or last attempt began."""
    finished_at: str | None

    @property
    def ended(self) -> bool:
        """Whether it is done, failed or cancelled."""
        return self.state in ENDED


@dataclass(frozen=True)
class JobEvent:
    """An event of a job.  ``kind`` is 'state', 'progress' or 'message'; ids grow within a job."""

    id: int
    job: str
    attempt: int
    kind: str
    data: dict[str, Any]
    created_at: str
