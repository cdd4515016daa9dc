"""The CUDA backend, by PyCUDA, which is imported only when devices are listed or opened."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.backends.base import Buffer, DeviceInfo
from mmsbgen.backends.binary_cache import BinaryCache
from mmsbgen.backends.buffers import check_rows
from mmsbgen.backends.nvidia import held_launches, pinned_memory
from mmsbgen.backends.nvidia.cuda_compile import Compiled, compile_cuda, compile_side_by_side, find_compiler
from mmsbgen.backends.nvidia.cuda_kernel import CudaBuffer, CudaEvent, CudaProgram, address_of
from mmsbgen.backends.nvidia.launch_errors import ContextDevice, recent_launches
from mmsbgen.base.errors import CompileError, DeviceMemoryError, LaunchError, MissingDependencyError

_NO_PYCUDA = "CUDA: PyCUDA is not installed; for NVIDIA GPUs get it with: pip install 'mmsbgen[cuda]'"
_NO_GPU = "CUDA: no NVIDIA GPU or driver was found"
_MANY_READS = 32
GATHER = """
#define GATHER(name, word)                                                                               \\
    extern "C" __global__ void name(const word* from, const unsigned long long* rows, word* to,          \\
                                    unsigned long long length, unsigned long long count)                 \\
    {                                                                                                    \\
        const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;                      \\
        for (unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; i < count; i += step) \\
            to[i] = from[rows[i / length] * length + i % length];                                        \\
    }
GATHER(gather_words, unsigned int)
GATHER(gather_bytes, unsigned char)
"""
"""Copies the rows at many places of a buffer, each of ``length`` words, into one of ``count`` words."""


def discover() -> tuple[list[DeviceInfo], list[str]]:
    """List the CUDA devices, and hints on what is missing.  Never raises."""
    try:
        driver = _driver()
    except MissingDependencyError as error:
        return [], [str(error)]
    try:
        compiler, hints = find_compiler().version, []
    except (CompileError, MissingDependencyError) as error:
        compiler, hints = "", [str(error)]
    with contextlib.suppress(driver.Error):
        return [_describe(driver, index, compiler) for index in range(driver.Device.count())], hints
    return [], [_NO_GPU]


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

    def _alloc(self, shape: tuple[int, ...], dtype: np.dtype[Any], size: int, what: str) -> CudaBuffer:
        with self.active(DeviceMemoryError, what):
            free, total = self.driver.mem_get_info()
            if size > free:
                raise DeviceMemoryError(
                    f"{what}: {free:,} of its {total:,} bytes are free, {self.allocated:,} are in use here"
                )
            return CudaBuffer(shape, dtype, self.driver.mem_alloc(max(size, 1)))

    def _clear(self, buffer: Buffer) -> None:
        with self.active(LaunchError, f"cannot fill {buffer!r} with zeros"):
            self.driver.memset_d8_async(address_of(buffer), 0, buffer.nbytes, self.stream)

    def _write(self, buffer: Buffer, array: NDArray[Any], offset_bytes: int) -> None:
        with self.active(LaunchError, f"cannot write to {buffer!r}"):
            if array.nbytes <= pinned_memory.LARGEST:
                self._staging.queue(address_of(buffer) + offset_bytes, array)
            else:
                # A copy without a stream waits for this device's stream, which is a blocking one.
                self.driver.memcpy_htod(address_of(buffer) + offset_bytes, array)

    def _read(self, buffer: Buffer, array: NDArray[Any], offset_bytes: int) -> None:
        if array.size:
            with self.active(LaunchError, f"cannot read from {buffer!r}"):
                self.driver.memcpy_dtoh(array, address_of(buffer) + offset_bytes)
                self.recent.clear()

    def download_rows(self, buffer: Buffer, rows: NDArray[np.integer[Any]]) -> NDArray[Any]:
        found: NDArray[Any] = np.empty((*rows.shape, *buffer.shape[1:]), buffer.dtype)
        # The host takes 10 us for each copy.
        if np.count_nonzero(np.diff(rows.ravel()) != 1) < _MANY_READS or not found.nbytes:
            return super().download_rows(buffer, rows)
        check_rows(buffer, rows)
        words = found.nbytes // rows.size, found.nbytes
        name, size = ("gather_words", 4) if words[0] % 4 == 0 else ("gather_bytes", 1)
        try:
            with self.upload(rows.astype(np.uint64)) as places, self.alloc(found.shape, found.dtype) as gathered:
                counts = [np.uint64(count // size) for count in words]
                kernel = self._gather.kernel(name)
                kernel.launch((self.info.compute_units,), (1024,), [buffer, places, gathered, *counts])
                self._read(gathered, found, 0)
        except DeviceMemoryError:
            return super().download_rows(buffer, rows)
        return found

    @functools.cached_property
    def _gather(self) -> CudaProgram:
        return self.compile(GATHER, ("gather_words", "gather_bytes"))

    def _copy(self, dst: Buffer, src: Buffer) -> None:
        with self.active(LaunchError, f"cannot copy {src!r} to {dst!r}"):
            self.driver.memcpy_dtod_async(address_of(dst), address_of(src), src.nbytes, self.stream)

    def compile_ahead(self, sources: Sequence[str], options: Sequence[str] = ()) -> None:
        compile_side_by_side(sources, self.info.architecture, options, compiler=self._compiler, cache=self._cache)

    def compile(self, source: str, kernel_names: Sequence[str], options: Sequence[str] = ()) -> CudaProgram:
        return self.loader(source, kernel_names, options)()

    def loader(
        self, source: str, kernel_names: Sequence[str], options: Sequence[str] = ()
    ) -> Callable[[], CudaProgram]:
        what = f"kernels {', '.join(kernel_names)} on {self.info.name}"
        compiled = self._compiled(what, source, options)

        def load() -> CudaProgram:
            try:
                return self._program(what, compiled, kernel_names)
            except CompileError:
                if not compiled.cached:
                    raise
            # The cached file may be damaged.
            return self._program(what, self._compiled(what, source, options, anew=True), kernel_names)

        return load

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
            self.__dict__.pop("_gather", None)  # its module keeps the context
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
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libcuda.so.1").cuInit(0)  # other threads go on meanwhile, which PyCUDA's call does not let them
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
