"""CUDA's errors as ours.  Whatever waits for the stream next tells that a kernel failed, so launches are remembered."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from mmsbgen.backends.base import Device

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from mmsbgen.backends.base import LaunchName
    from mmsbgen.base.errors import MmsbgenError

__all__ = ["Active", "ContextDevice", "after", "recent_launches"]

#: Launches that a device remembers: those of an iteration and more.
_MOST = 16


def recent_launches() -> deque[LaunchName]:
    """Where a device puts its launches, and which it clears once it has waited for them."""
    return deque(maxlen=_MOST)


def after(launches: Iterable[LaunchName]) -> str:
    """The kernels of ``launches``, each once and the last one last, for messages: ", after kernels 'a' (x=1), 'b'"."""
    seen = dict.fromkeys((launch.kernel, launch.configuration) for launch in reversed(list(launches)))
    names = [f"{kernel!r} ({config})" if config else repr(kernel) for kernel, config in reversed(seen)]
    return f", after kernel{'s' if len(names) > 1 else ''} {', '.join(names)}" if names else ""


class ContextDevice(Device):
    """A device with a CUDA context and one stream; ``recent`` are the launches since the stream was last waited for."""

    driver: Any
    context: Any
    stream: Any
    recent: deque[LaunchName]

    def active(self, kind: type[MmsbgenError], what: object, happened: str = "") -> Active:
        """Make the context current within a block and turn CUDA's errors there into ``kind``."""
        return Active(self, kind, what, happened)


class Active:
    """Makes a device's context current within a block and turns CUDA's errors there into ``kind``.

    The message begins with ``what`` and ``happened``; where the stream's work has failed it names the kernels that
    were launched last.  A class, as a generator costs more than the launch's own check.
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
        launched = after(device.recent)
        if launched:
            # What is refused at once, such as too large a block, is not the fault of the kernels before.
            try:
                device.stream.is_done()
                launched = ""
            except device.driver.Error:
                pass
        return self._kind(f"{self._what}{self._happened}{launched}: {error}")
