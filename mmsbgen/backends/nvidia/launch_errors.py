"""Conversion of CUDA errors.

A failed kernel is reported by the next call that waits for the stream, so recent launches are remembered for messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from mmsbgen.backends.base import Device, LaunchName
from mmsbgen.base.errors import MmsbgenError

#: Launches that a device remembers; an iteration has fewer.
_MOST = 16


def recent_launches() -> deque[LaunchName]:
    """A queue for a device's most recent launches, which it clears after waiting for them."""
    return deque(maxlen=_MOST)


def after(launches: Iterable[LaunchName]) -> str:
    """The kernels of ``launches``, each once and the last one last, for messages: ", after kernels 'a' (x=1), 'b'"."""
    seen = dict.fromkeys((launch.kernel, launch.configuration) for launch in reversed(list(launches)))
    names = [f"{kernel!r} ({config})" if config else repr(kernel) for kernel, config in reversed(seen)]
    return f", after kernel{'s' if len(names) > 1 else ''} {', '.join(names)}" if names else ""


class ContextDevice(Device):
    """A device with a CUDA context and one stream; ``recent`` has the latest launches not yet waited for."""

    driver: Any
    context: Any
    stream: Any
    recent: deque[LaunchName]

    def wait(self) -> None:
        """Wait for the stream; the context must be current."""
        self.stream.synchronize()
        self.recent.clear()

    def record(self) -> Any:
        """Queue and return a CUDA event; the context must be current."""
        event = self.driver.Event()
        event.record(self.stream)
        return event

    def active(self, kind: type[MmsbgenError], what: object, happened: str = "") -> Active:
        """A context manager that makes the CUDA context current and converts CUDA's errors into ``kind``."""
        return Active(self, kind, what, happened)


class Active:
    """Makes a device's CUDA context current within a block and converts CUDA's errors there into ``kind``.

    The message begins with ``what`` and ``happened``.  If the stream's work has failed, it names the kernels launched
    last.  This is a class because a generator would cost more than the check of a launch.
    """

    __slots__ = ("_device", "_happened", "_kind", "_what")

    def __init__(self, device: ContextDevice, kind: type[MmsbgenError], what: object, happened: str = "") -> None:
        self._device = device
        self._kind = kind
        self._what = what
        self._happened = happened

    def __enter__(self) -> None:
        try:
            self._device.context.push()
        except self._device.driver.Error as error:
            raise self._told(error) from error

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            if isinstance(error, self._device.driver.Error):
                raise self._told(error) from error
        finally:
            self._device.context.pop()

    def _told(self, error: Exception) -> MmsbgenError:
        device = self._device
        if launched := after(device.recent):
            # A launch that is refused at once, such as for too large a block, is not due to earlier kernels.
            try:
                device.stream.is_done()
                launched = ""
            except device.driver.Error:
                pass
        return self._kind(f"{self._what}{self._happened}{launched}: {error}")
