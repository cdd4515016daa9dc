"""Progress reporting for long tasks."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Stage:
    """One task and its progress: ``done`` of ``total``, in ``unit``; ``total`` is None if unknown.

    ``alone`` marks a long task in which no other thread of this process can run, as in some libraries.  It is shown as
    soon as it begins.  ``early`` marks one that may end before its total.  ``note`` is shown beside the progress.
    """

    name: str
    total: float | None = None
    unit: str = ""
    done: float = 0.0
    alone: bool = False
    early: bool = False
    note: str = ""
    began: float = field(default_factory=time.monotonic)

    def tell(self, done: float, total: float | None = None) -> None:
        """Set the amount done, and the total if it has become known."""
        if total is not None:
            self.total = total
        self.done = done

    def rename(self, name: str) -> None:
        """Begin the next part of the task, of another name."""
        if name != self.name:
            log.info("%s: %.2f s", self.name, self.seconds)
            self.name, self.began, self.done = name, time.monotonic(), 0.0

    @property
    def seconds(self) -> float:
        """Seconds since the task began."""
        return time.monotonic() - self.began

    @property
    def rate(self) -> float | None:
        """Units a second so far, or None before the first one is done."""
        return self.done / self.seconds if self.done and self.seconds > 0 else None

    @property
    def left(self) -> float | None:
        """Estimated remaining seconds at the rate so far, or None if unknown."""
        return None if self.rate is None or self.total is None else max(0.0, (self.total - self.done) / self.rate)


class Listener(Protocol):
    """Receives the beginning and end of stages; stages may be nested."""

    def begin(self, stage: Stage) -> None:
        """A stage begins; its fields show its progress."""

    def end(self, stage: Stage) -> None:
        """A stage has ended, with or without an error."""


_listener: ContextVar[Listener | None] = ContextVar("mmsbgen_listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Make ``listener`` the listener of this context, instead of the previous one, until the block ends."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def stage(name: str, total: float | None = None, unit: str = "", *, alone: bool = False) -> Iterator[Stage]:
    """A task that may take seconds; yields a :class:`Stage` whose ``tell`` reports progress."""
    heard, one = _listener.get(), Stage(name, total, unit, alone=alone)
    if heard is not None:
        heard.begin(one)
    try:
        yield one
    finally:
        if heard is not None:
            heard.end(one)
    log.info("%s: %.2f s", one.name, one.seconds)
