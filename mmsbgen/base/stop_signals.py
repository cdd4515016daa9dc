"""Signals that ask this process to stop."""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

__all__ = ["StopRequest", "handling"]


@contextlib.contextmanager
def handling(
    handler: Callable[[int, FrameType | None], Any], numbers: Sequence[int] = (signal.SIGINT, signal.SIGTERM)
) -> Iterator[None]:
    """Handle signals while the block runs; does nothing in threads other than the main one, which get none."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


class StopRequest:
    """Counts the signals that ask to stop; true once there was one.

    A handler runs between any two steps of the main thread, in the midst of itself too.  So it takes no lock, as
    :class:`threading.Event` does; a :class:`queue.SimpleQueue` may be put to from anywhere.

    Args:
        told: Called at the first signal.
        once_within_s: Signals within so many seconds of one that counted are the same request.
        interrupts: Whether the second request raises KeyboardInterrupt.
    """

    def __init__(
        self, told: Callable[[], None] = lambda: None, *, once_within_s: float = 0.0, interrupts: bool = True
    ) -> None:
        self.count = 0
        """How often it was asked."""
        self.last: int | None = None
        """The number of the last signal that counted."""
        self._told, self._once_within_s, self._interrupts = told, once_within_s, interrupts
        self._asked_at = 0.0
        self._woken: queue.SimpleQueue[None] = queue.SimpleQueue()

    def __bool__(self) -> bool:
        return self.count > 0

    @contextlib.contextmanager
    def listening(self, numbers: Sequence[int] = (signal.SIGINT, signal.SIGTERM)) -> Iterator[StopRequest]:
        """Take signals as requests while the block runs; see :func:`handling`."""
        with handling(self._on, numbers):
            yield self

    def wait(self, seconds: float) -> None:
        """Wait so long, or until a signal comes."""
        if not self.count:
            with contextlib.suppress(queue.Empty):
                self._woken.get(timeout=seconds)

    def _on(self, number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.count and now - self._asked_at < self._once_within_s:
            return
        self._asked_at, self.last = now, number
        self.count += 1
        self._woken.put(None)
        if self.count == 1:
            self._told()
        elif self._interrupts:
            raise KeyboardInterrupt
