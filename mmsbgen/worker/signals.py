"""Signals that ask a worker to end, taken up without a lock."""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
import time
from collections.abc import Iterator

__all__ = ["Signals"]

_ONE_ASKING_S = 2.0
"""Signals within so long are one asking: systemd and the service may both send theirs, and Linux tells a child of the
death of its parent's threads one by one."""


class Signals:
    """SIGTERM and Ctrl-C: the first asks to end, the second to do so at once.

    A handler runs between any two steps of the main thread, in the midst of itself too.  So it must not take a lock,
    as :class:`threading.Event` does; a :class:`queue.SimpleQueue` may be put to from anywhere.
    """

    def __init__(self) -> None:
        self.count = 0
        """How often it was asked."""
        self.last: int | None = None
        self._asked_at = 0.0
        self._woken: queue.SimpleQueue[None] = queue.SimpleQueue()

    def __bool__(self) -> bool:
        return self.count > 0

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """Count signals while the block runs; does nothing in other threads than the main one, which gets none."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._on) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def wait(self, seconds: float) -> None:
        """Wait so long, or until a signal comes."""
        if not self.count:
            with contextlib.suppress(queue.Empty):
                self._woken.get(timeout=seconds)

    def _on(self, number: int, _frame: object) -> None:
        now = time.monotonic()
        if self.count and now - self._asked_at < _ONE_ASKING_S:
            return
        self._asked_at = now
        self.last = number
        self.count += 1
        self._woken.put(None)
