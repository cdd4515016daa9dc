"""A device for tests: it has buffers in NumPy arrays, records launches and computes nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.backends.base import Argument, Buffer, Device, DeviceInfo, Event, Kernel, Program
from mmsbgen.base.errors import CompileError, DeviceMemoryError, InputError

_INFO = DeviceInfo(
    backend="fake",
    index=0,
    name="fake device",
    vendor="mmsbgen",
    platform="fake",
    architecture="fake",
    driver="1",
    kind="cpu",
    compiler="none",
    compute_units=1,
    global_memory=2**34,
    max_allocation=2**34,
    local_memory=48 * 1024,
    max_block_size=1024,
    sub_group_sizes=(32,),
)
#: Duration of every launch by the device's clock; equal, so that no launch is stopped early as too slow.
_LAUNCH_S = 5e-6


@dataclasses.dataclass(frozen=True, slots=True)
class FakeLaunch:
    """One recorded launch."""

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: tuple[Argument, ...]
    shared: int


class FakeBuffer(Buffer):
    """An array on the host, its handle."""

    def _free(self, handle: Any) -> None:
        return None


class FakeEvent(Event):
    """An interval of the device's simulated time, in seconds since it was opened."""

    def __init__(self, begin: float, end: float) -> None:
        self.begin = begin
        self.end = end

    def wait(self) -> None:
        return None

    def seconds_since(self, first: Event) -> float:
        if not isinstance(first, FakeEvent):
            raise InputError(f"cannot compare the times of a fake event and of {first!r}")
        return self.end - first.begin


class FakeKernel(Kernel):
    """A named kernel; a launch is checked and recorded in ``FakeDevice.launches``."""

    device: FakeDevice

    def launch(
        self, grid: Sequence[int], block: Sequence[int], args: Sequence[Argument] = (), shared: int = 0
    ) -> FakeEvent:
        name = self._check(grid, block, args, shared)
        self.device.launches.append(FakeLaunch(name.kernel, name.grid, name.block, tuple(args), shared))
        return self.device.spend(_LAUNCH_S)

    def resources(self) -> dict[str, int]:
        return {"max_block_size": self.device.info.max_block_size, "shared_bytes": 0}


class FakeDevice(Device):
    """A device with a simulated clock that only launches advance, so tuning it is reproducible on every host.

    Attributes:
        launches: every launch in order.
        sources: every source text given to ``compile`` in order.
    """

    def __init__(self, info: DeviceInfo = _INFO) -> None:
        super().__init__(info)
        self.launches: list[FakeLaunch] = []
        self.sources: list[str] = []
        self._clock = 0.0

    def _alloc(self, shape: tuple[int, ...], dtype: np.dtype[Any], size: int, what: str) -> FakeBuffer:
        if size + self.allocated > self.info.global_memory:
            raise DeviceMemoryError(
                f"{what}: it has {self.info.global_memory:,} bytes, of which {self.allocated:,} are in use here"
            )
        return FakeBuffer(shape, dtype, np.empty(shape, dtype))

    def _clear(self, buffer: Buffer) -> None:
        _data(buffer)[...] = 0

    def _write(self, buffer: Buffer, array: NDArray[Any], offset_bytes: int) -> None:
        start = offset_bytes // buffer.dtype.itemsize
        _data(buffer).reshape(-1)[start : start + array.size] = array.reshape(-1)

    def _read(self, buffer: Buffer, array: NDArray[Any], offset_bytes: int) -> None:
        start = offset_bytes // buffer.dtype.itemsize
        array[...] = _data(buffer).reshape(-1)[start : start + array.size].reshape(array.shape)

    def _copy(self, dst: Buffer, src: Buffer) -> None:
        _data(dst).reshape(-1).view(np.uint8)[:] = _data(src).reshape(-1).view(np.uint8)

    def compile(self, source: str, kernel_names: Sequence[str], options: Sequence[str] = ()) -> Program:
        if missing := [name for name in kernel_names if name not in source]:
            raise CompileError(f"kernels {', '.join(missing)} on {self.info.name}: not in the source")
        self.sources.append(source)
        return Program({name: FakeKernel(self, name) for name in kernel_names})

    def mark(self) -> FakeEvent:
        return self.spend(0.0)

    def spend(self, seconds: float) -> FakeEvent:
        """Advance the device's clock; return the interval."""
        begin = self._clock
        self._clock += seconds
        return FakeEvent(begin, self._clock)

    def synchronize(self) -> None:
        return None

    def _close(self) -> None:
        return None


def _data(buffer: Buffer) -> NDArray[Any]:
    if not isinstance(buffer, FakeBuffer):
        raise InputError(f"{buffer!r} is no buffer of a fake device")
    if buffer.released:
        raise InputError(f"{buffer!r} can no longer be used")
    array: NDArray[Any] = buffer.handle
    return array
