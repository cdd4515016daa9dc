"""Jobs, their events and leases as plain frozen values, and the errors of their queue.

Timestamps are ISO 8601 in UTC, as the database keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mmsbgen.base.errors import InputError, MmsbgenError

KINDS = ("tune", "detect")
AREAS = ("input", "checkpoint", "output")
"""Where the files of a job belong."""
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
    """One of :data:`KINDS`."""
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


@dataclass(frozen=True)
class Lease:
    """The right to write to a job until its lease runs out.  ``attempt`` is the fencing token."""

    job: Job
    attempt: int
    worker: str
    seconds: float
    """How long the job is this worker's after each heartbeat."""


class UnknownJobError(InputError):
    """There is no job of that id, or it has no file of that name."""


class RequestKeyError(InputError):
    """The request key belongs to a job with another kind, payload or input."""


class LeaseLostError(MmsbgenError):
    """The lease is no longer valid: it ran out, or the job has ended."""
