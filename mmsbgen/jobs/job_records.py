"""The kinds of jobs, leases, and errors of the queue."""

from __future__ import annotations

from dataclasses import dataclass

from mmsbgen.base.errors import InputError, MmsbgenError
from mmsbgen.db.records.job_records import Job

KINDS = ("tune", "detect")
AREAS = ("input", "checkpoint", "output")
"""Where the files of a job belong."""


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
