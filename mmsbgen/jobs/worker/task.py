"""Settings of a worker, and what it and the child process of a job exchange: task, outcome and reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mmsbgen.base.declared_options import check_options, option
from mmsbgen.base.errors import InputError
from mmsbgen.db.records.job_records import KINDS


@dataclass(frozen=True)
class WorkerSettings:
    """Settings of a worker, some of which are options of ``mmsbgen worker``."""

    data: Path
    """Folder for the files of running jobs."""
    device: str | None = None
    kinds: Sequence[str] = KINDS
    lease: float = option(
        60, "Seconds without a word of this worker after which its job goes to another.", "everybody", least=1
    )
    checkpoint_seconds: float = option(60, "Seconds between the checkpoints of a detection.", "everybody", least=0)
    checkpoint_mib: int = option(
        256, "Larger checkpoints stay in --data, where only workers that share it find them.", "everybody", least=0
    )
    max_hours: float | None = option(
        None, "Hours that an attempt at a job may take, after which the job fails.", "everybody", above=0
    )
    grace_s: float = 20.0
    """Seconds that a job has for a last checkpoint when asked to stop."""

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True)
class Task:
    """A job for a child process; ``folder`` holds its files and belongs to this attempt alone."""

    kind: str
    """A kind of job, or 'device' to describe the device."""
    payload: Mapping[str, Any] = field(default_factory=dict)
    folder: Path = Path()
    inputs: Mapping[str, Path] = field(default_factory=dict)
    resume: Path | None = None
    """Checkpoint of an earlier attempt."""
    device: str | None = None
    hardware: str = ""
    """See :attr:`mmsbgen.backends.base.Device.hardware`."""
    database: str = ""
    checkpoint_seconds: float = 60.0


@dataclass(frozen=True)
class JobOutcome:
    """Outcome of a job: a small result for its row in the queue, and files."""

    result: dict[str, Any]
    outputs: dict[str, Path] = field(default_factory=dict)


class StoppedError(Exception):
    """The child was asked to stop before the job was done."""


class JobReporter:
    """Sends the reports of a running job to the worker."""

    def __init__(self, send: Callable[[tuple[Any, ...]], None]) -> None:
        self._send = send

    def progress(self, data: Mapping[str, Any]) -> None:
        """Report progress, in values that JSON has."""
        self._send(("progress", dict(data)))

    def message(self, text: str) -> None:
        """Report a line of text for a reader."""
        self._send(("message", text))

    def checkpoint(self, path: Path) -> None:
        """Report that a checkpoint was written from which another attempt can resume."""
        self._send(("checkpoint", path))


#: Least seconds between two reports, and as a share of the time so far.
_LEAST_S, _SHARE = 0.5, 1 / 200


class Throttle:
    """Limits reports to growing intervals: a run of hours sends about a thousand, not millions."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._next = 0.0

    def ready(self) -> bool:
        """Whether the next report is due."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + max(_LEAST_S, (now - self._began) * _SHARE)
        return True


def known_keys(payload: Mapping[str, Any], names: set[str], kind: str) -> None:
    """Raise :class:`InputError` for a key of the payload that jobs of this kind do not have."""
    if unknown := sorted(set(payload) - names):
        raise InputError(f"a job of kind {kind} has no {unknown[0]!r}; it has {', '.join(sorted(names))}")
