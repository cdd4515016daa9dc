"""The launches of a kernel whose work takes several: a loop over a frontier, passes of a schedule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.backends.base import Buffer, Device, Event, Kernel
from mmsbgen.base.errors import InputError
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config, Traits

Dims = int | tuple[int, ...]


class Launches:
    """What a host program (:attr:`mmsbgen.kernels.family.KernelSpec.program`) does on the device in one call.

    Attributes:
        problem: The problem that the kernel was built for.
        config: Its configuration.
        traits: The properties of its device.
        count: The work units of the call, as in :attr:`mmsbgen.kernels.family.Workload.count`.
        launched: Launches so far.
        barriers: Barriers of all blocks inside them; the program adds them up.
    """

    def __init__(
        self,
        device: Device,
        kernels: Mapping[str, Kernel],
        entries: Mapping[str, Iterable[str]],
        values: MutableMapping[str, Any],
        count: int,
        built_for: tuple[Problem, Config, Traits],
    ) -> None:
        self.problem, self.config, self.traits = built_for
        self.count = count
        self.launched = self.barriers = 0
        self._device, self._kernels, self._entries, self._values = device, kernels, entries, values
        self._first: Event | None = None
        self._last: Event | None = None

    def launch(self, entry: str, grid: Dims, block: Dims, shared: int = 0, /, **scalars: np.generic) -> None:
        """Queue an entry point with the shape of :class:`mmsbgen.kernels.family.Launch`.

        ``scalars`` replace arguments of the call with the same names.
        """
        blocks, items = ((size,) if isinstance(size, int) else size for size in (grid, block))
        args = [(scalars if name in scalars else self._values)[name] for name in self._entries[entry]]
        self._queued(self._kernels[entry].launch(blocks, items, args, shared))

    def resident_blocks(self, entry: str, block: int, shared: int = 0) -> int:
        """How many blocks of an entry point the device holds at once, so that they may wait for each other."""
        return self._kernels[entry].resident_blocks(block, shared)

    def launch_cooperative(self, entry: str, grid: int, block: int, shared: int = 0, /, **scalars: np.generic) -> None:
        """Queue an entry point whose blocks may wait for each other, as :meth:`launch`.

        Raises :class:`mmsbgen.base.errors.LaunchLimitError` if the device does not hold all blocks at once.
        """
        args = [(scalars if name in scalars else self._values)[name] for name in self._entries[entry]]
        self._queued(self._kernels[entry].launch_cooperative((grid,), (block,), args, shared))

    def _queued(self, event: Event) -> None:
        self._first, self._last = self._first or event, event
        self.launched += 1

    def read(self, name: str, rows: int | None = None) -> NDArray[Any]:
        """An argument's array, or its first ``rows``, as the launches so far leave it.  Waits for them."""
        array = self._values[name]
        return self._device.download(array) if rows is None else self._device.download_range(array, 0, rows)

    def scalar(self, name: str) -> np.generic:
        """An argument that is a number."""
        found: np.generic = self._values[name]
        return found

    def write(self, name: str, array: NDArray[Any]) -> None:
        """Overwrite the first rows of an argument's array."""
        self._device.write(self._values[name], array)

    def room(self, name: str, rows: int, dtype: Any) -> None:
        """Make sure that there is an array ``name`` of at least so many rows, of any content.

        It stays with the caller's arguments for the next call.
        """
        array = self._values.get(name)
        if array is None or array.shape[0] < rows:
            self._values[name] = self._device.alloc(rows, dtype)

    def swap(self, one: str, other: str) -> None:
        """Exchange the arrays of two arguments, for launches that follow and for the caller.

        Raises :class:`InputError` if their shapes or types differ.
        """
        values = self._values
        a, b = values[one], values[other]
        if not isinstance(a, Buffer) or not isinstance(b, Buffer) or (a.shape, a.dtype) != (b.shape, b.dtype):
            raise InputError(f"{one} and {other} cannot be exchanged: {a!r}, {b!r}")
        values[one], values[other] = b, a

    def ended(self) -> Event:
        """The event of the whole call; its time goes from the first launch's begin to the last one's end."""
        if self._first is None or self._last is None:
            return self._device.mark()
        return self._last if self._first is self._last else Span(self._first, self._last)


class Span(Event):
    """Several launches, or markers, from the begin of the first to the end of the last, timed as one launch."""

    def __init__(self, first: Event, last: Event) -> None:
        self._first, self._last = first, last

    def wait(self) -> None:
        """As :meth:`mmsbgen.backends.base.Event.wait`."""
        self._last.wait()

    def seconds_since(self, first: Event) -> float:
        """As :meth:`mmsbgen.backends.base.Event.seconds_since`."""
        return self._last.seconds_since(first._first if isinstance(first, Span) else first)
