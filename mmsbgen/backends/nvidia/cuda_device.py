"""The CUDA backend, by PyCUDA, which is imported only when devices are listed or opened."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from mmsbgen.backends.base import (
    Argument,
    Buffer,
    DeviceInfo,
    Event,
    Kernel,
    LaunchName,
    Program,
    as_shape,
    checked_offset,
)
from mmsbgen.backends.binary_cache import BinaryCache
from mmsbgen.backends.nvidia import held_launches, pinned_memory
from mmsbgen.backends.nvidia.cuda_compile import (
    Compiled,
    KernelResources,
    compile_cuda,
    compile_side_by_side,
    find_compiler,
)
from mmsbgen.backends.nvidia.cooperative import CooperativeFunction
from mmsbgen.backends.nvidia.kernel_arguments import CudaBuffer, Layout, address_of
from mmsbgen.backends.nvidia.launch_errors import ContextDevice, recent_launches
from mmsbgen.backends.nvidia.occupancy import Multiprocessor, resident_blocks
from mmsbgen.base.errors import (
    CompileError,
    DeviceMemoryError,
    InputError,
    LaunchError,
    MissingDependencyError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike, NDArray

__all__ = ["CudaDevice", "discover"]

_NO_PYCUDA = "CUDA: PyCUDA is not installed; for NVIDIA GPUs get it with: pip install 'mmsbgen[cuda]'"
_NO_GPU = "CUDA: no NVIDIA GPU or driver was found"
# Larger dynamic shared memory must be requested explicitly.
_DEFAULT_SHARED = 48 * 1024
_MANY_READS = 32


def discover() -> tuple[list[DeviceInfo], list[str]]:
    """List the CUDA devices, and hints on what is missing.  Never raises."""
    try:
        driver = _driver()
    except MissingDependencyError as error:
        return [], [str(error)]
    try:
        compiler, hints = find_compiler().version, []
    except MissingDependencyError as error:
        compiler, hints = "", [str(error)]
    with contextlib.suppress(driver.Error):
        return [_describe(driver, index, compiler) for index in range(driver.Device.count())], hints
    return [], [_NO_GPU]


#: Launch shapes that a kernel remembers as checked.
_MOST_SHAPES = 256


class CudaEvent(Event):
    """The end of a launch, and its beginning if the device is profiling.

    Without profiling a launch has no CUDA event, as recording one takes as long as the launch itself.  Waiting for it
    then waits for the whole queue.
    """

    def __init__(self, device: CudaDevice, begin: Any, end: Any, name: LaunchName | str) -> None:
        self._device = device
        self._begin = begin
        self._end = end
        self._name = name

    def wait(self) -> None:
        if self._end is not None:
            with self._device.active(LaunchError, self._name, " failed while running"):
                self._end.synchronize()
        else:
            # The error may come from a later launch in the queue.
            with self._device.active(LaunchError, self._name, " or a launch after it failed while running"):
                self._device.wait()

    def seconds_since(self, first: Event) -> float:
        if not isinstance(first, CudaEvent):
            raise InputError(f"cannot compare the times of a CUDA event and of {first!r}")
        for one, at in ((first, first._begin), (self, self._end)):
            if at is None:
                raise InputError(f"{one._name} was launched while profiling was off, so its time is not known")
        self.wait()
        with self._device.active(LaunchError, self._name, " failed while running"):
            return float(self._end.time_since(first._begin)) * 1e-3


class CudaKernel(Kernel):
    """A ``CUfunction``."""

    device: CudaDevice

    def __init__(
        self, device: CudaDevice, name: str, function: Any, compiled: KernelResources | None, cubin: bytes = b""
    ) -> None:
        super().__init__(device, name)
        self._function = function
        self._cubin = cubin
        self._cooperative: CooperativeFunction | None = None
        self._dynamic_shared = 0
        self._shapes: dict[Any, LaunchName] = {}
        self._layout: Layout | None = None
        self._resources = {
            "registers": int(function.num_regs),
            "shared_bytes": int(function.shared_size_bytes),
            "private_bytes": int(function.local_size_bytes),
            "max_block_size": int(function.max_threads_per_block),
        }
        if compiled is not None:
            self._resources["spill_bytes"] = compiled.spill_stores

    def launch(
        self, grid: Sequence[int], block: Sequence[int], args: Sequence[Argument] = (), shared: int = 0
    ) -> CudaEvent:
        device = self.device
        name, packed = self._packed(grid, block, args, shared)
        with device.active(LaunchError, name):
            if shared > self._dynamic_shared and shared + self._resources["shared_bytes"] > _DEFAULT_SHARED:
                attribute = device.driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
                self._function.set_attribute(attribute, shared)
                self._dynamic_shared = shared
            timed = device.profiling
            begin = device.record() if timed else None
            # PyCUDA's public launch methods set a deprecated block shape and pack the arguments again.
            self._function._launch_kernel(name.grid, name.block, packed, int(shared), device.stream)
            device.recent.append(name)
            return CudaEvent(device, begin, device.record() if timed else None, name)

    def launch_cooperative(self, grid: Sequence[int], block: Sequence[int], args: Sequence[Argument] = ()) -> CudaEvent:
        device = self.device
        name, packed = self._packed(grid, block, args, 0)
        assert self._layout is not None
        with device.active(LaunchError, name):
            if self._cooperative is None:
                self._cooperative = CooperativeFunction(self._cubin, self.name)
            timed = device.profiling
            begin = device.record() if timed else None
            self._cooperative.launch(name.grid, name.block, packed, self._layout.offsets, device.stream.handle)
            device.recent.append(name)
            return CudaEvent(device, begin, device.record() if timed else None, name)

    def _packed(
        self, grid: Sequence[int], block: Sequence[int], args: Sequence[Argument], shared: int
    ) -> tuple[LaunchName, bytes]:
        """The checked name of a launch and its packed arguments."""
        shape = tuple(grid), tuple(block), shared
        name = self._shapes.get(shape)
        packed = self._layout.pack(args) if name is not None and self._layout is not None else None
        if name is None or packed is None:
            name = self._check(grid, block, args, shared)
            self._layout = Layout(args, name)
            packed = self._layout.pack(args)
            assert packed is not None
            if len(self._shapes) >= _MOST_SHAPES:
                self._shapes.clear()
            self._shapes[shape] = name
        return name, packed

    def resources(self) -> dict[str, int]:
        return dict(self._resources)

    def resident_blocks(self, block: int) -> int:
        driver, info = self.device.driver, self.device.info
        what = f"kernel {self.name!r}: how many blocks of {block} {info.name} holds at once is not known"
        with self.device.active(LaunchError, what):
            device, attribute = driver.Device(info.index), driver.device_attribute
            multiprocessor = Multiprocessor(
                device.get_attribute(attribute.MAX_THREADS_PER_MULTIPROCESSOR),
                device.get_attribute(attribute.MAX_REGISTERS_PER_MULTIPROCESSOR),
                device.get_attribute(attribute.MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
            )
        needs = self._resources["registers"], self._resources["shared_bytes"]
        return resident_blocks(block, *needs, multiprocessor) * info.compute_units


class CudaProgram(Program):
    """A loaded module."""

    def __init__(self, device: CudaDevice, module: Any, names: Sequence[str], compiled: Compiled) -> None:
        self._module = module
        self._log = compiled.log
        with device.active(CompileError, f"kernels {', '.join(names)} on {device.info.name}"):
            self._kernels = {
                name: CudaKernel(
                    device, name, module.get_function(name), compiled.resources.get(name), compiled.cubin
                )
                for name in names
            }

    @property
    def log(self) -> str:
        return self._log

    def kernel(self, name: str) -> CudaKernel:
        if name not in self._kernels:
            raise InputError(f"no kernel {name!r} in this program; it was compiled with {', '.join(self._kernels)}")
        return self._kernels[name]


class CudaDevice(ContextDevice):
    """A GPU with its primary context and one stream.  Only one thread at a time may use it.

    The context is current only within a call, so that several devices and other CUDA libraries can be used side
    by side.
    """

    side_by_side = True
    holds = True

    def __init__(self, info: DeviceInfo) -> None:
        super().__init__(info)
        self.driver = _driver()
        self._compiler = find_compiler()
        self._cache = BinaryCache()
        self.recent = recent_launches()
        try:
            self.context = self.driver.Device(info.index).retain_primary_context()
        except self.driver.Error as error:
            raise LaunchError(f"cannot open {info.spec}: {error}") from error
        with self.active(LaunchError, f"cannot open {info.spec}"):
            self.stream = self.driver.Stream()
            self._staging = pinned_memory.Pinned(self.driver, self.stream)
        self._hold = held_launches.CudaHold(self)

    def pci_address(self) -> str | None:
        with self.active(LaunchError, f"where {self.info.spec} is on the PCI bus is not known"):
            return str(self.driver.Device(self.info.index).pci_bus_id())

    def wait(self) -> None:
        """Wait for the stream; the context must be current."""
        self.stream.synchronize()
        self.recent.clear()

    def record(self) -> Any:
        """Queue and return a CUDA event; the context must be current."""
        event = self.driver.Event()
        event.record(self.stream)
        return event

    def alloc(self, shape: int | Sequence[int], dtype: DTypeLike) -> CudaBuffer:
        shape, dtype = as_shape(shape), np.dtype(dtype)
        size = CudaBuffer(shape, dtype, None).nbytes
        what = f"cannot allocate {size:,} bytes for {shape} {dtype} on {self.info.name}"
        with self.active(DeviceMemoryError, what):
            free, total = self.driver.mem_get_info()
            if size > free:
                raise DeviceMemoryError(
                    f"{what}: {free:,} of its {total:,} bytes are free, {self.allocated:,} are in use here"
                )
            buffer = CudaBuffer(shape, dtype, self.driver.mem_alloc(max(size, 1)))
        self._buffers.add(buffer)
        return buffer

    def zeros(self, shape: int | Sequence[int], dtype: DTypeLike) -> CudaBuffer:
        buffer = self.alloc(shape, dtype)
        if buffer.nbytes:
            try:
                with self.active(LaunchError, f"cannot fill {buffer!r} with zeros"):
                    self.driver.memset_d8_async(buffer.address, 0, buffer.nbytes, self.stream)
            except BaseException:
                buffer.release()
                raise
        return buffer

    def write(self, buffer: Buffer, array: NDArray[Any], offset: int = 0) -> None:
        start = checked_offset(buffer, array, offset)
        if array.size:
            array = np.ascontiguousarray(array)
            with self.active(LaunchError, f"cannot write to {buffer!r}"):
                if array.nbytes <= pinned_memory.LARGEST:
                    self._staging.queue(address_of(buffer) + start, array)
                else:
                    # A copy without a stream waits for this device's stream, which is a blocking one.
                    self.driver.memcpy_htod(address_of(buffer) + start, array)

    def _read(self, buffer: Buffer, array: NDArray[Any], offset_bytes: int) -> None:
        if array.size:
            with self.active(LaunchError, f"cannot read from {buffer!r}"):
                self.driver.memcpy_dtoh(array, address_of(buffer) + offset_bytes)
                self.recent.clear()

    def _read_parts(self, buffer: Buffer, arrays: Sequence[NDArray[Any]], offsets: Sequence[int]) -> None:
        if len(arrays) < _MANY_READS:
            super()._read_parts(buffer, arrays, offsets)
            return
        # Copies to page-locked memory are queued without waiting for each.
        with self.active(LaunchError, f"cannot read from {buffer!r}"):
            staged = self.driver.pagelocked_empty(sum(array.nbytes for array in arrays), np.uint8)
            ends = itertools.accumulate(array.nbytes for array in arrays)
            parts = [staged[end - array.nbytes : end] for array, end in zip(arrays, ends, strict=True)]
            for part, offset in zip(parts, offsets, strict=True):
                self.driver.memcpy_dtoh_async(part, address_of(buffer) + offset, self.stream)
            self.stream.synchronize()
            self.recent.clear()
        for array, part in zip(arrays, parts, strict=True):
            array.reshape(-1).view(np.uint8)[:] = part

    def copy(self, dst: Buffer, src: Buffer) -> None:
        if dst.nbytes != src.nbytes:
            raise InputError(f"cannot copy {src!r} to {dst!r}: they differ in size")
        if src.nbytes:
            with self.active(LaunchError, f"cannot copy {src!r} to {dst!r}"):
                self.driver.memcpy_dtod_async(address_of(dst), address_of(src), src.nbytes, self.stream)

    def compile_ahead(self, sources: Sequence[str], options: Sequence[str] = ()) -> None:
        compile_side_by_side(sources, self.info.architecture, options, compiler=self._compiler, cache=self._cache)

    def compile(self, source: str, kernel_names: Sequence[str], options: Sequence[str] = ()) -> CudaProgram:
        what = f"kernels {', '.join(kernel_names)} on {self.info.name}"
        compiled = self._compiled(what, source, options)
        try:
            return self._program(what, compiled, kernel_names)
        except CompileError:
            if not compiled.cached:
                raise
        # The cached file may be damaged.
        return self._program(what, self._compiled(what, source, options, anew=True), kernel_names)

    def _compiled(self, what: str, source: str, options: Sequence[str], anew: bool = False) -> Compiled:
        arch, compiler, cache = self.info.architecture, self._compiler, self._cache
        try:
            return compile_cuda(source, arch, options, compiler=compiler, cache=cache, anew=anew)
        except CompileError as error:
            raise CompileError(f"{what} did not compile: {error}") from None

    def _program(self, what: str, compiled: Compiled, names: Sequence[str]) -> CudaProgram:
        with self.active(CompileError, f"{what}: the compiled code does not load"):
            module = self.driver.module_from_buffer(compiled.cubin)
        return CudaProgram(self, module, names, compiled)

    def mark(self) -> CudaEvent:
        with self.active(LaunchError, "cannot queue a marker"):
            event = self.record()
        return CudaEvent(self, event, event, "marker")

    def held(self) -> contextlib.AbstractContextManager[None]:
        return self._hold()

    def synchronize(self) -> None:
        with self.active(LaunchError, f"queued work on {self.info.name} failed"):
            self.wait()

    def _close(self) -> None:
        # PyCUDA releases the primary context once nothing refers to it.
        with contextlib.suppress(LaunchError), self.active(LaunchError, "cannot end"):
            self._staging.clear()
            self.stream.synchronize()
            self._hold.clear()


def _driver() -> Any:
    """Return ``pycuda.driver``, initialised; raise MissingDependencyError without PyCUDA, driver or GPU."""
    try:
        import pycuda.driver as driver
    except ImportError as error:
        absent = isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("pycuda")
        message = _NO_PYCUDA if absent else f"CUDA: PyCUDA does not load, is the NVIDIA driver installed? ({error})"
        raise MissingDependencyError(message) from None
    try:
        driver.init()
    except driver.Error as error:
        raise MissingDependencyError(f"{_NO_GPU} ({error})") from None
    return driver


def _describe(driver: Any, index: int, compiler: str) -> DeviceInfo:
    device = driver.Device(index)
    attribute = driver.device_attribute
    major, minor = device.compute_capability()
    total = int(device.total_memory())
    return DeviceInfo(
        backend="cuda",
        index=index,
        name=device.name(),
        vendor="NVIDIA",
        platform="CUDA",
        architecture=f"sm_{major}{minor}",
        driver=_driver_version(driver.get_driver_version()),
        kind="gpu",
        compiler=compiler,
        compute_units=int(device.get_attribute(attribute.MULTIPROCESSOR_COUNT)),
        global_memory=total,
        max_allocation=total,
        local_memory=int(device.get_attribute(attribute.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)),
        max_block_size=int(device.get_attribute(attribute.MAX_THREADS_PER_BLOCK)),
        sub_group_sizes=(int(device.get_attribute(attribute.WARP_SIZE)),),
        vector_width_float=4,
        vector_width_double=2,
    )


def _driver_version(api: int) -> str:
    """Return the version of driver and CUDA, for example "580.159.03 (CUDA 13.0)"."""
    cuda = f"CUDA {api // 1000}.{api % 1000 // 10}"
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL("libnvidia-ml.so.1")
        text = ctypes.create_string_buffer(96)
        if library.nvmlInit_v2() == 0:
            try:
                if library.nvmlSystemGetDriverVersion(text, len(text)) == 0:
                    return f"{text.value.decode()} ({cuda})"
            finally:
                library.nvmlShutdown()
    return cuda
