"""Abstract interface of all backends: devices, buffers, programs, kernels, events.

A backend copies arrays, compiles source text and launches kernels by name; it does not depend on any family of
kernels.  Each device has one in-order queue (stream).  Calls wait for it only where their documentation says so.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from mmsbgen.backends.buffers import Buffer as Buffer
from mmsbgen.backends.buffers import as_shape, check_rows, checked_offset
from mmsbgen.base.errors import InputError, LaunchError, LaunchLimitError


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceInfo:
    """Properties of a device that are known without running anything on it.

    Sizes are in bytes; 0 or "" means unknown.

    Attributes:
        index: Number of the device among those of its backend, over all platforms.
        architecture: The name under which similar devices share results: "sm_90" for CUDA; for OpenCL a stable text
            such as the processor's model.
        compiler: Name and version of the compiler.
        platform_version: The full version text of the platform, for example with the LLVM version of PoCL.
        sub_group_sizes: Sub-group sizes, the preferred one first; empty for a device without sub-groups.
    """

    backend: Literal["opencl", "cuda", "fake"]
    index: int
    name: str
    vendor: str
    platform: str
    architecture: str
    driver: str
    kind: Literal["cpu", "gpu"]
    compiler: str
    compute_units: int
    global_memory: int
    max_allocation: int
    local_memory: int
    max_block_size: int
    sub_group_sizes: tuple[int, ...] = ()
    has_fp64: bool = True
    vector_width_float: int = 1
    vector_width_double: int = 1
    extensions: tuple[str, ...] = ()
    platform_version: str = ""

    @property
    def spec(self) -> str:
        """The text by which ``open_device`` opens exactly this device, for example "opencl:0"."""
        return f"{self.backend}:{self.index}"

    def as_dict(self) -> dict[str, Any]:
        """Return all fields and ``spec`` as values that JSON can hold."""
        lists = {"sub_group_sizes": list(self.sub_group_sizes), "extensions": list(self.extensions)}
        return {"spec": self.spec, **dataclasses.asdict(self), **lists}


_COPY_BYTES = 1 << 16
"""Bytes that are read in the time of beginning another copy."""

Argument = Buffer | np.generic
"""A kernel argument: a buffer, or a NumPy scalar of exactly the declared type (not a plain Python number)."""


class Event(ABC):
    """The end of a launch in the device's queue, with the times at which the launch began and ended."""

    @abstractmethod
    def wait(self) -> None:
        """Block until the device has reached this event; raise LaunchError when the work before it failed."""

    @abstractmethod
    def seconds_since(self, first: Event) -> float:
        """Seconds on the device's clock from the beginning of ``first`` to the end of this event.  Waits for both."""

    def seconds(self) -> float:
        """Seconds that this launch took on the device's clock.  Waits for it."""
        return self.seconds_since(self)


class LaunchName(NamedTuple):
    """The name of a launch in messages; the text is formatted only when a message needs it."""

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    configuration: str = ""

    def __str__(self) -> str:
        return f"kernel {self.kernel!r}, grid {self.grid}, block {self.block}"


class Kernel(ABC):
    """One compiled kernel; ``configuration``, set before the first launch, is part of messages about failed work."""

    def __init__(self, device: Device, name: str) -> None:
        self.device = device
        self.name = name
        self.configuration = ""
        self._limits: tuple[int, int, int] | None = None

    @abstractmethod
    def launch(
        self, grid: Sequence[int], block: Sequence[int], args: Sequence[Argument] = (), shared: int = 0
    ) -> Event:
        """Queue the kernel and return at once.

        Args:
            grid: number of blocks (work-groups) in one to three dimensions, as in CUDA.
            block: threads (work-items) of a block, as many dimensions as ``grid``.
            args: buffers and NumPy scalars in the order of the kernel's parameters.
            shared: bytes of dynamic shared memory.  In CUDA C the kernel reaches them as ``extern __shared__``;
                in OpenCL C they are one more parameter, a ``__local`` pointer behind those of ``args``.

        Raises:
            LaunchError: the launch was refused; the message names kernel, grid and block.
            LaunchLimitError: it was refused because the block exceeds the limits of this kernel.
        """

    @abstractmethod
    def resources(self) -> dict[str, int]:
        """Return the resources that the compiled kernel uses.

        Keys: ``registers`` (32-bit, a thread), ``spill_bytes`` (a thread), ``private_bytes`` (thread-local memory,
        spills included), ``shared_bytes`` (static, a block), ``max_block_size``.  Unknown values are left out.
        """

    def resident_blocks(self, block: int, shared: int = 0) -> int:
        """Number of blocks of ``block`` threads resident at once, which may wait for each other; 0 if unknown."""
        return 0

    def launch_cooperative(
        self, grid: Sequence[int], block: Sequence[int], args: Sequence[Argument] = (), shared: int = 0
    ) -> Event:
        """As :meth:`launch`; blocks may wait for each other.  :class:`LaunchLimitError` unless all fit at once."""
        most = max(1, self.resident_blocks(math.prod(block), shared))
        if math.prod(grid) > most:
            name, device = self._check(grid, block, args, shared), self.device.info.name
            raise LaunchLimitError(f"{name}: {device} lets {most} of these blocks wait for each other; give fewer")
        return self.launch(grid, block, args, shared)

    def _check(self, grid: Sequence[int], block: Sequence[int], args: Sequence[Argument], shared: int) -> LaunchName:
        """Return the launch's name; raise LaunchError when its shape or an argument's type cannot be right."""
        name = LaunchName(self.name, tuple(map(int, grid)), tuple(map(int, block)), self.configuration)
        if not 1 <= len(name.grid) == len(name.block) <= 3:
            raise LaunchError(f"{name}: grid and block need one to three dimensions each, and equally many")
        if min(*name.grid, *name.block) < 1:
            raise LaunchError(f"{name}: every dimension must be at least 1")
        if self._limits is None:
            used, info = self.resources(), self.device.info
            block_size = used.get("max_block_size", info.max_block_size)
            self._limits = block_size, used.get("shared_bytes", 0), info.local_memory
        largest, static_shared, local_memory = self._limits
        size, needed = math.prod(name.block), static_shared + shared
        if size > largest:
            raise LaunchLimitError(f"{name}: a block of {size} is above the {largest} that this kernel can have")
        if needed > local_memory > 0:
            has = f"{self.device.info.name} has {local_memory}"
            raise LaunchLimitError(f"{name}: needs {needed} bytes of shared memory a block, {has}")
        for position, arg in enumerate(tuple[object, ...](args)):
            if isinstance(arg, Buffer):
                if arg.released:
                    raise LaunchError(f"{name}: argument {position} is a buffer that was already released")
            elif not isinstance(arg, np.generic):
                kind = type(arg).__name__
                raise LaunchError(f"{name}: argument {position} is a {kind}; pass a Buffer or a NumPy scalar")
        return name


class Program:
    """A compiled source text: its ``kernels`` by name, and the compiler's output ``log``, "" if it printed nothing."""

    def __init__(self, kernels: Mapping[str, Kernel], log: str = "") -> None:
        self._kernels = kernels
        self.log = log

    def kernel(self, name: str) -> Kernel:
        """Return a kernel by name; raise InputError when the program was not compiled with it."""
        if name not in self._kernels:
            raise InputError(f"no kernel {name!r} in this program; it was compiled with {', '.join(self._kernels)}")
        return self._kernels[name]


class Device(ABC):
    """An open device with one in-order queue.  Closing it releases all its buffers; it is a context manager."""

    profiling: bool = True
    """Whether launches record times.  Switching it off saves a few microseconds a launch on some backends."""
    side_by_side: bool = False
    """Whether :meth:`compile_ahead` does anything."""
    holds: bool = False
    """Whether :meth:`held` does anything."""

    def __init__(self, info: DeviceInfo) -> None:
        self.info = info
        self._buffers: weakref.WeakSet[Buffer] = weakref.WeakSet()

    def pci_address(self) -> str | None:
        """The device's address on the PCI bus, such as "0000:17:00.0"; None if unknown."""
        return None

    @property
    def hardware(self) -> str:
        """Name of the physical device, on which only one process at a time should measure.

        It is the same for all backends and platforms that share the device; every processor device is "processor".
        """
        if self.info.kind == "cpu":
            return "processor"
        return f"pci {self.pci_address() or f'{self.info.platform} {self.info.name} {self.info.index}'}".lower()

    @property
    def allocated(self) -> int:
        """Bytes of device memory in buffers that are not released."""
        return sum(buffer.nbytes for buffer in self._buffers if not buffer.released)

    def alloc(self, shape: int | Sequence[int], dtype: DTypeLike) -> Buffer:
        """Allocate an array with undefined content; raise DeviceMemoryError with the numbers if it does not fit."""
        shape, dtype = as_shape(shape), np.dtype(dtype)
        size = math.prod(shape) * dtype.itemsize
        what = f"cannot allocate {size:,} bytes for {shape} {dtype} on {self.info.name}"
        buffer = self._alloc(shape, dtype, size, what)
        self._buffers.add(buffer)
        return buffer

    @abstractmethod
    def _alloc(self, shape: tuple[int, ...], dtype: np.dtype[Any], size: int, what: str) -> Buffer:
        """Allocate ``size`` bytes; error messages begin with ``what``."""

    def zeros(self, shape: int | Sequence[int], dtype: DTypeLike) -> Buffer:
        """Allocate an array of zeros, filled on the device."""
        return self._filled(shape, dtype, lambda buffer: self._clear(buffer) if buffer.nbytes else None)

    @abstractmethod
    def _clear(self, buffer: Buffer) -> None:
        """Queue zeros for a buffer that is not empty."""

    def upload(self, array: NDArray[Any]) -> Buffer:
        """Copy a host array into a new buffer of the same shape and type."""
        array = np.asarray(array)
        return self._filled(array.shape, array.dtype, lambda buffer: self.write(buffer, array))

    def _filled(self, shape: int | Sequence[int], dtype: DTypeLike, fill: Callable[[Buffer], None]) -> Buffer:
        """A new buffer after ``fill``, released if that fails."""
        buffer = self.alloc(shape, dtype)
        try:
            fill(buffer)
        except BaseException:
            buffer.release()
            raise
        return buffer

    def write(self, buffer: Buffer, array: NDArray[Any], offset: int = 0) -> None:
        """Copy a host array over the rows ``[offset, offset + len(array))`` of a buffer of the same type.

        ``offset`` counts entries of the first axis.  The array may be changed as soon as this returns.
        """
        start = checked_offset(buffer, array, offset)
        if array.size:
            self._write(buffer, np.ascontiguousarray(array), start)

    @abstractmethod
    def _write(self, buffer: Buffer, array: NDArray[Any], offset_bytes: int) -> None:
        """Copy a contiguous host array to the buffer's bytes at ``offset_bytes`` on."""

    def download(self, buffer: Buffer) -> NDArray[Any]:
        """Copy a whole buffer to the host.  Waits for everything queued before."""
        array: NDArray[Any] = np.empty(buffer.shape, buffer.dtype)
        self._read(buffer, array, 0)
        return array

    def download_range(self, buffer: Buffer, start_row: int, stop_row: int) -> NDArray[Any]:
        """Copy the rows ``[start_row, stop_row)`` of a buffer to the host.  Waits for everything queued before."""
        if not buffer.shape or not 0 <= start_row <= stop_row <= buffer.shape[0]:
            raise InputError(f"rows {start_row}..{stop_row} are not within {buffer!r}")
        array: NDArray[Any] = np.empty((stop_row - start_row, *buffer.shape[1:]), buffer.dtype)
        self._read(buffer, array, start_row * math.prod(buffer.shape[1:]) * buffer.dtype.itemsize)
        return array

    def download_rows(self, buffer: Buffer, rows: NDArray[np.integer[Any]]) -> NDArray[Any]:
        """Copy the rows at ``rows``, of any shape and order, to the host.  Waits for everything queued before."""
        if not rows.size:
            return np.empty((*rows.shape, *buffer.shape[1:]), buffer.dtype)
        wanted, back = np.unique(rows.astype(np.int64), return_inverse=True)
        check_rows(buffer, wanted)
        # Neighbours are read together, and all together with what lies between them if that takes less than the copies.
        starts = np.flatnonzero(np.diff(wanted, prepend=-2) != 1).tolist()
        row_bytes = math.prod(buffer.shape[1:]) * buffer.dtype.itemsize
        if (int(wanted[-1] - wanted[0]) + 1 - wanted.size) * row_bytes < _COPY_BYTES * (len(starts) - 1):
            found = self.download_range(buffer, int(wanted[0]), int(wanted[-1]) + 1)[wanted - wanted[0]]
        else:
            found = np.empty((wanted.size, *buffer.shape[1:]), buffer.dtype)
            for start, stop in itertools.pairwise([*starts, wanted.size]):
                self._read(buffer, found[start:stop], int(wanted[start]) * row_bytes)
        return np.asarray(found[back.reshape(rows.shape)])

    @abstractmethod
    def _read(self, buffer: Buffer, array: NDArray[Any], offset_bytes: int) -> None:
        """Fill a contiguous host array from the buffer's bytes at ``offset_bytes`` on."""

    def copy(self, dst: Buffer, src: Buffer) -> None:
        """Queue a copy between two buffers of equal size in bytes on this device."""
        if dst.nbytes != src.nbytes:
            raise InputError(f"cannot copy {src!r} to {dst!r}: they differ in size")
        if src.nbytes:
            self._copy(dst, src)

    @abstractmethod
    def _copy(self, dst: Buffer, src: Buffer) -> None:
        """Queue a copy between two buffers that are not empty."""

    def compile_ahead(self, sources: Sequence[str], options: Sequence[str] = ()) -> None:
        """Compile sources in parallel into the cache of :meth:`compile`, which raises errors; most do nothing here."""
        return

    @abstractmethod
    def compile(self, source: str, kernel_names: Sequence[str], options: Sequence[str] = ()) -> Program:
        """Compile source text of the backend's dialect.

        Args:
            source: OpenCL C or CUDA C; kernels have C linkage (``extern "C"``).
            kernel_names: the kernels to load from it.
            options: options of the backend's compiler.

        Raises:
            CompileError: the compiler refused; the message holds its log.
        """

    def loader(self, source: str, kernel_names: Sequence[str], options: Sequence[str] = ()) -> Callable[[], Program]:
        """As :meth:`compile`, but the returned function does what uses the device: loading, or here all of it."""
        return lambda: self.compile(source, kernel_names, options)

    @abstractmethod
    def mark(self) -> Event:
        """Queue a marker and return its event; ``b.seconds_since(a)`` is the time between two markers."""

    def held(self) -> AbstractContextManager[None]:
        """A context in which launches are queued but do not start; after it they run back to back.

        Code in the context must not wait for the queue, which holds some hundred launches.  Has an effect only if
        :attr:`holds`.
        """
        return contextlib.nullcontext()

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until the queue is empty; raise LaunchError when queued work failed."""

    @abstractmethod
    def _close(self) -> None:
        """Release the backend's resources other than buffers."""

    def close(self) -> None:
        """Release all buffers and the queue.  Closing twice does nothing."""
        for buffer in list(self._buffers):
            buffer.release()
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.info.spec}: {self.info.name}, {self.info.platform})"
