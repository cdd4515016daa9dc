"""Signals that ask this process to stop."""

from __future__ import annotations

import contextlib
import math
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a request to end, and a terminal that was closed."""
_SOON_S = 1e-3


@contextlib.contextmanager
def handling(handler: Callable[[int, FrameType | None], Any], numbers: Sequence[int] = _STOPS) -> Iterator[None]:
    """Handle signals while the block runs; does nothing outside the main thread, which alone receives signals.

    SIGHUP stays ignored where ``nohup`` started this process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    before = {n: signal.signal(n, handler) for n in numbers if not (nohup and n == signal.SIGHUP)}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextlib.contextmanager
def deferring(numbers: Sequence[int] = (signal.SIGINT, signal.SIGALRM)) -> Iterator[None]:
    """Handle signals that come while the block runs at its end: they cannot interrupt it.  See :func:`handling`."""
    came: list[int] = []
    try:
        with handling(lambda number, _frame: came.append(number), numbers):
            yield
    finally:
        for number in came:
            signal.raise_signal(number)


class TimeUpError(KeyboardInterrupt):
    """The moment of :func:`ending_at` has come."""


@contextlib.contextmanager
def ending_at(moment: float) -> Iterator[None]:
    """Raise :class:`TimeUpError` in the block at ``moment`` (of :func:`time.monotonic`), wherever it is then.

    Does nothing outside the main thread, and where there are no timers.
    """
    here = threading.current_thread() is threading.main_thread()
    if not here or moment == math.inf or not hasattr(signal, "setitimer"):
        yield
        return

    def over(_number: int, _frame: FrameType | None) -> None:
        raise TimeUpError

    begin, earlier = time.monotonic(), 0.0
    try:
        with handling(over, [signal.SIGALRM]):
            earlier, _ = signal.setitimer(signal.ITIMER_REAL, max(_SOON_S, moment - begin))
            try:
                yield
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        if earlier:  # only now its own handler is back
            signal.setitimer(signal.ITIMER_REAL, max(_SOON_S, earlier - (time.monotonic() - begin)))


class StopRequest:
    """Counts signals that request a stop; true after the first one.

    A handler may interrupt the main thread anywhere, even the handler itself.  So it must not take a lock, which rules
    out :class:`threading.Event`; ``put`` of :class:`queue.SimpleQueue` is reentrant.

    Args:
        told: Called at the first signal.
        once_within_s: Signals within this many seconds after a counted one belong to the same request.
        interrupts: Whether the second request raises KeyboardInterrupt.
    """

    def __init__(
        self, told: Callable[[], None] = lambda: None, *, once_within_s: float = 0.0, interrupts: bool = True
    ) -> None:
        self.count = 0
        """Number of requests."""
        self.last: int | None = None
        """The number of the last counted signal."""
        self._told, self._once_within_s, self._interrupts = told, once_within_s, interrupts
        self._asked_at = 0.0
        self._woken: queue.SimpleQueue[None] = queue.SimpleQueue()

    def __bool__(self) -> bool:
        return self.count > 0

    @contextlib.contextmanager
    def listening(self, numbers: Sequence[int] = _STOPS) -> Iterator[StopRequest]:
        """Count signals as requests while the block runs; see :func:`handling`."""
        with handling(self._on, numbers):
            yield self

    def wait(self, seconds: float) -> None:
        """Wait for ``seconds`` or until the first request."""
        if not self.count:
            with contextlib.suppress(queue.Empty):
                self._woken.get(timeout=seconds)

    def _on(self, number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        # A closed terminal sends SIGHUP more than once, and is no request to hurry.
        if self.count and (number == signal.SIGHUP or now - self._asked_at < self._once_within_s):
            return
        self._asked_at, self.last = now, number
        self.count += 1
        self._woken.put(None)
        if self.count == 1:
            self._told()
        elif self._interrupts:
            raise KeyboardInterrupt
