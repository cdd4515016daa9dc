"""Errors of the queue."""

from __future__ import annotations

from mmsbgen.base.errors import InputError, MmsbgenError


class UnknownJobError(InputError):
    """There is no job of that id, or it has no file of that name."""


class RequestKeyError(InputError):
    """The request key belongs to a job with another kind, payload or input."""


class LeaseLostError(MmsbgenError):
    """The lease is no longer valid: it ran out, or the job has ended."""
