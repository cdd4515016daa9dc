"""What can go wrong with a job besides its work."""

from __future__ import annotations

from mmsbgen.base.errors import InputError, MmsbgenError


class UnknownJobError(InputError):
    """There is no job of that id, or it has no file of that name."""


class RequestKeyError(InputError):
    """A request key was used before, for a job with another kind, payload or input."""


class LeaseLostError(MmsbgenError):
    """The job is no longer this attempt's: its lease ran out and another worker may have it, or it has ended."""
