"""What takes long tells how far it is, to whoever listens: a display, a log, or nobody."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol

__all__ = ["Listener", "Stage", "listening", "stage"]

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Stage:
    """A piece of work: ``done`` of ``total`` so far, in ``unit``; ``total`` is None where nobody knows it.

    ``alone`` says that it is long, and that nothing else of this process runs meanwhile, as some libraries have it: so
    it is told as it begins.
    """

    name: str
    total: float | None = None
    unit: str = ""
    done: float = 0.0
    alone: bool = False
    began: float = field(default_factory=time.monotonic)

    def tell(self, done: float, total: float | None = None) -> None:
        """So much is done, of so much where that is known only now."""
        if total is not None:
            self.total = total
        self.done = done

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self.began

    @property
    def rate(self) -> float | None:
        """Units a second so far, None before any is done."""
        return self.done / self.seconds if self.done and self.seconds > 0 else None

    @property
    def left(self) -> float | None:
        """Seconds that it will take yet at the rate so far, None where that is not known."""
        return None if self.rate is None or self.total is None else max(0.0, (self.total - self.done) / self.rate)


class Listener(Protocol):
    """Hears of stages; they may be within each other, and the last that began ends first."""

    def begin(self, stage: Stage) -> None:
        """A stage begins; what is done of it shows in its fields."""

    def end(self, stage: Stage) -> None:
        """It has ended, whether it worked or not."""


_listener: ContextVar[Listener | None] = ContextVar("mmsbgen_listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Let ``listener`` hear of all stages that begin in this context, instead of the one that did so far."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def stage(name: str, total: float | None = None, unit: str = "", *, alone: bool = False) -> Iterator[Stage]:
    """A piece of work that may take seconds; ``tell`` of what is yielded says how much is done."""
    heard, one = _listener.get(), Stage(name, total, unit, alone=alone)
    if heard is not None:
        heard.begin(one)
    try:
        yield one
    finally:
        if heard is not None:
            heard.end(one)
    log.info("%s: %.2f s", name, one.seconds)
