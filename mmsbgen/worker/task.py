"""What a worker hands to the child process that does a job, and how the child tells what becomes of it."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from mmsbgen.base.errors import InputError

__all__ = ["JobOutcome", "JobReporter", "StoppedError", "Task", "Throttle", "known_keys", "plain"]


@dataclass(frozen=True)
class Task:
    """A job for a child process: its files lie in ``folder``, which is this attempt's alone."""

    kind: str
    """A kind of job, or 'device' to tell which device this is."""
    payload: Mapping[str, Any] = field(default_factory=dict)
    folder: Path = Path()
    inputs: Mapping[str, Path] = field(default_factory=dict)
    resume: Path | None = None
    """A checkpoint of an attempt before this one."""
    device: str | None = None
    hardware: str = ""
    """See :attr:`mmsbgen.backends.base.Device.hardware`."""
    database: str = ""
    checkpoint_seconds: float = 60.0


@dataclass(frozen=True)
class JobOutcome:
    """What came of a job: a small result for its row, and files."""

    result: dict[str, Any]
    outputs: dict[str, Path] = field(default_factory=dict)


class StoppedError(Exception):
    """The child was asked to stop before the job was done."""


class JobReporter(Protocol):
    """How work tells about itself."""

    def progress(self, data: Mapping[str, Any]) -> None:
        """How far it is, in values that JSON has."""

    def message(self, text: str) -> None:
        """A line for a reader."""

    def checkpoint(self, path: Path) -> None:
        """A file from which another attempt can go on was written."""


class Throttle:
    """Lets through what comes at growing intervals: a run of hours tells some hundred times, not millions."""

    def __init__(self, least_s: float = 0.5, share: float = 1 / 200) -> None:
        self.least_s, self.share = least_s, share
        self._began = time.monotonic()
        self._next = 0.0

    def ready(self) -> bool:
        """Whether it is time to tell again."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + max(self.least_s, (now - self._began) * self.share)
        return True


def known_keys(payload: Mapping[str, Any], names: set[str], kind: str) -> None:
    """Raise :class:`InputError` for a key of the payload that jobs of this kind do not have."""
    unknown = sorted(set(payload) - names)
    if unknown:
        raise InputError(f"a job of kind {kind} has no {unknown[0]!r}; it has {', '.join(sorted(names))}")


def plain(value: Any) -> Any:
    """``value`` in the types of JSON; numbers that are not finite become None."""
    item = getattr(value, "item", None)
    if callable(item):
        value = item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value if isinstance(value, str | int | bool) or value is None else str(value)
