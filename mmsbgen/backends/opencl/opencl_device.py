"""The OpenCL backend, by PyOpenCL, which is imported only when devices are listed or opened."""

from __future__ import annotations

import contextlib
import ctypes
import math
import operator
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mmsbgen.backends.base import Argument, Buffer, Device, DeviceInfo, Event, Kernel, LaunchName, Program
from mmsbgen.backends.buffers import check_rows
from mmsbgen.backends.opencl import compiler_caches, intel_runtime, programs
from mmsbgen.backends.opencl.programs import POCL, built
from mmsbgen.base.errors import (
    CompileError,
    DeviceMemoryError,
    InputError,
    LaunchError,
    LaunchLimitError,
    MissingDependencyError,
    MmsbgenError,
)

_NO_PYOPENCL = "OpenCL: PyOpenCL is not installed; get it with: pip install pyopencl"
_NO_PLATFORM = (
    "OpenCL: no platform is installed; get one for the processor with: "
    f"{intel_runtime.ADVICE} (x86-64 Linux, no root needed), or: apt install pocl-opencl-icd"
)
_NO_INTEL = (
    f"OpenCL: Intel's CPU runtime (also for AMD processors, usually the fastest) is missing: {intel_runtime.ADVICE}"
)
# PoCL aligns each local array and aborts the process when the padded sum overflows.
_POCL_LOCAL_RESERVE = 4096
_SUB_GROUP_SIZES_INTEL = 0x4108


def discover() -> tuple[list[DeviceInfo], list[str]]:
    """List the OpenCL devices that are processors or GPUs, and hints on what is missing.  Never raises."""
    try:
        devices, hints = _devices()
    except MissingDependencyError as error:
        return [], [str(error)]
    if not (infos := [_describe(device, index) for index, device in enumerate(devices)]):
        hints.append(_NO_PLATFORM)
    elif not hints and all(info.kind == "cpu" and "Intel" not in info.platform for info in infos):
        hints.append(_NO_INTEL)
    return infos, hints


class OpenCLBuffer(Buffer):
    """A ``cl_mem``."""

    def _free(self, handle: Any) -> None:
        handle.release()


class OpenCLEvent(Event):
    """A ``cl_event`` of a queue with profiling."""

    def __init__(self, handle: Any, name: LaunchName | str) -> None:
        self.handle = handle
        self.name = name

    def wait(self) -> None:
        with _errors(LaunchError, f"{self.name} failed while running"):
            self.handle.wait()

    def seconds_since(self, first: Event) -> float:
        if not isinstance(first, OpenCLEvent):
            raise InputError(f"cannot compare the times of an OpenCL event and of {first!r}")
        first.wait()
        self.wait()
        return float(self.handle.profile.end - first.handle.profile.start) * 1e-9


class OpenCLKernel(Kernel):
    """A ``cl_kernel``.  It stores its arguments, so only one thread at a time may launch it."""

    device: OpenCLDevice

    def __init__(self, device: OpenCLDevice, name: str, handle: Any) -> None:
        super().__init__(device, name)
        self._handle = handle
        self._arguments = int(handle.num_args)
        info = device.cl.kernel_work_group_info
        local = handle.get_work_group_info(info.LOCAL_MEM_SIZE, device.handle)
        private = handle.get_work_group_info(info.PRIVATE_MEM_SIZE, device.handle)
        limit = handle.get_work_group_info(info.WORK_GROUP_SIZE, device.handle)
        self._reported = int(limit)
        if "NVIDIA" in device.info.platform:
            # This driver reports 256 for every kernel, even for one that was compiled for larger blocks.
            limit = max(limit, math.prod(handle.get_work_group_info(info.COMPILE_WORK_GROUP_SIZE, device.handle)))
        self._resources = {"shared_bytes": int(local), "private_bytes": int(private), "max_block_size": int(limit)}

    def launch(
        self, grid: Sequence[int], block: Sequence[int], args: Sequence[Argument] = (), shared: int = 0
    ) -> OpenCLEvent:
        name = self._check(grid, block, args, shared)
        given = len(args) + (shared > 0)
        if given != self._arguments:
            raise LaunchError(f"{name}: takes {self._arguments} arguments, {given} were given")
        cl = self.device.cl
        position = 0
        try:
            for arg in args:
                self._handle.set_arg(position, arg.handle if isinstance(arg, OpenCLBuffer) else arg)
                position += 1
            if shared:
                self._handle.set_arg(position, cl.LocalMemory(shared))
                position += 1
            total = tuple(map(operator.mul, name.grid, name.block))
            event = cl.enqueue_nd_range_kernel(self.device.queue, self._handle, total, name.block)
        except (cl.Error, TypeError, ValueError) as error:
            where = f"argument {position}: " if position < given else ""
            limited = math.prod(name.block) > self._reported
            raise (LaunchLimitError if limited else LaunchError)(f"{name}: {where}{error}") from error
        return OpenCLEvent(event, name)

    def resources(self) -> dict[str, int]:
        return dict(self._resources)


class OpenCLDevice(Device):
    """An OpenCL device with its own context and in-order queue."""

    def __init__(self, info: DeviceInfo) -> None:
        super().__init__(info)
        devices, _ = _devices()
        self.handle = devices[info.index]
        import pyopencl

        self.cl: Any = pyopencl
        self.context = programs.opened(self.handle)
        self._closed = False
        profiling = pyopencl.command_queue_properties.PROFILING_ENABLE
        self.queue = pyopencl.CommandQueue(self.context, self.handle, properties=profiling)

    def pci_address(self) -> str | None:
        with contextlib.suppress(Exception):  # an NVIDIA extension; without it PyOpenCL raises various errors
            bus, slot = int(self.handle.pci_bus_id_nv), int(self.handle.pci_slot_id_nv)
            domain = int(getattr(self.handle, "pci_domain_id_nv", 0))
            return f"{domain:04x}:{bus:02x}:{slot >> 3:02x}.0"
        return None

    def _alloc(self, shape: tuple[int, ...], dtype: np.dtype[Any], size: int, what: str) -> OpenCLBuffer:
        info, what = self.info, f"{what} ({self.info.platform})"
        if size > info.max_allocation:
            raise DeviceMemoryError(f"{what}: one buffer may have at most {info.max_allocation:,} bytes there")
        if size + self.allocated > info.global_memory:
            raise DeviceMemoryError(
                f"{what}: it has {info.global_memory:,} bytes, of which {self.allocated:,} are in use here"
            )
        with _errors(DeviceMemoryError, what):
            handle = self.cl.Buffer(self.context, self.cl.mem_flags.READ_WRITE, max(size, 1))
        return OpenCLBuffer(shape, dtype, handle)

    def _clear(self, buffer: Buffer) -> None:
        width = next(width for width in (16, 8, 4, 2, 1) if buffer.nbytes % width == 0)
        with _errors(DeviceMemoryError, f"cannot fill {buffer!r} with zeros"):
            self.cl.enqueue_fill_buffer(self.queue, _handle(buffer), np.zeros(width, np.uint8), 0, buffer.nbytes)

    def _write(self, buffer: Buffer, array: NDArray[Any], offset_bytes: int) -> None:
        with _errors(LaunchError, f"cannot write to {buffer!r}"):
            self.cl.enqueue_copy(self.queue, _handle(buffer), array, dst_offset=offset_bytes)

    def _read(self, buffer: Buffer, array: NDArray[Any], offset_bytes: int) -> None:
        if array.size:
            with _errors(LaunchError, f"cannot read from {buffer!r}"):
                self.cl.enqueue_copy(self.queue, array, _handle(buffer), src_offset=offset_bytes)

    def download_rows(self, buffer: Buffer, rows: NDArray[np.integer[Any]]) -> NDArray[Any]:
        if self.info.kind != "cpu" or not rows.size:
            return super().download_rows(buffer, rows)
        check_rows(buffer, rows)
        # A processor's buffers lie in the host's memory, so that mapping one copies nothing.
        with _errors(LaunchError, f"cannot read from {buffer!r}"):
            flags = self.cl.map_flags.READ
            array, _ = self.cl.enqueue_map_buffer(self.queue, _handle(buffer), flags, 0, buffer.shape, buffer.dtype)
            try:
                found: NDArray[Any] = array[rows]
            finally:
                array.base.release(self.queue)
        return found

    def _copy(self, dst: Buffer, src: Buffer) -> None:
        with _errors(LaunchError, f"cannot copy {src!r} to {dst!r}"):
            self.cl.enqueue_copy(self.queue, _handle(dst), _handle(src), byte_count=src.nbytes)

    def compile(self, source: str, kernel_names: Sequence[str], options: Sequence[str] = ()) -> Program:
        handle, log = built(self.info, self.handle, source, tuple(options), tuple(kernel_names))
        with _errors(CompileError, f"kernels {', '.join(kernel_names)} on {self.info.name}"):
            kernels = {name: OpenCLKernel(self, name, self.cl.Kernel(handle, name)) for name in kernel_names}
        return Program(kernels, log)

    def mark(self) -> OpenCLEvent:
        with _errors(LaunchError, "cannot queue a marker"):
            return OpenCLEvent(self.cl.enqueue_marker(self.queue), "marker")

    def synchronize(self) -> None:
        with _errors(LaunchError, f"queued work on {self.info.name} failed"):
            self.queue.finish()

    def _close(self) -> None:
        with contextlib.suppress(self.cl.Error):
            self.queue.finish()
        if not self._closed:
            self._closed = True
            programs.closed()


def _handle(buffer: Buffer) -> Any:
    if not isinstance(buffer, OpenCLBuffer) or buffer.released:
        raise InputError(f"{buffer!r} is no buffer that this device can use")
    return buffer.handle


def _devices() -> tuple[list[Any], list[str]]:
    """Return the ``pyopencl.Device`` objects in the order of their index, and hints."""
    hints = [*compiler_caches.prepare(), *intel_runtime.prepare()]
    try:
        import pyopencl as cl
    except ImportError as error:
        absent = isinstance(error, ModuleNotFoundError) and error.name == "pyopencl"
        raise MissingDependencyError(_NO_PYOPENCL if absent else f"OpenCL: PyOpenCL does not load: {error}") from None
    kinds = cl.device_type.CPU | cl.device_type.GPU
    devices = []
    with contextlib.suppress(cl.Error):
        for platform in cl.get_platforms():
            with contextlib.suppress(cl.Error):
                devices += [device for device in platform.get_devices() if device.type & kinds]
    return devices, hints


def _describe(device: Any, index: int) -> DeviceInfo:
    platform = device.platform.name.strip()
    pocl = platform == POCL
    kind: Literal["cpu", "gpu"] = "gpu" if device.type & 4 else "cpu"
    extensions = tuple(sorted(device.extensions.split()))
    return DeviceInfo(
        backend="opencl",
        index=index,
        name=device.name.strip(),
        vendor=device.vendor.strip(),
        platform=platform,
        architecture=_architecture(device, kind),
        driver=device.driver_version.strip(),
        kind=kind,
        compiler=f"{platform} {device.driver_version.strip()}",
        compute_units=int(device.max_compute_units),
        global_memory=int(device.global_mem_size),
        max_allocation=int(device.max_mem_alloc_size),
        local_memory=int(device.local_mem_size) - (_POCL_LOCAL_RESERVE if pocl else 0),
        max_block_size=int(device.max_work_group_size),
        sub_group_sizes=_sub_group_sizes(device, extensions),
        has_fp64="cl_khr_fp64" in extensions,
        vector_width_float=int(device.native_vector_width_float),
        vector_width_double=int(device.native_vector_width_double),
        extensions=extensions,
        platform_version=device.platform.version.strip(),
    )


def _architecture(device: Any, kind: str) -> str:
    """Return "sm_90" or the like for NVIDIA GPUs, the model for processors, else the device's name."""
    with contextlib.suppress(Exception):
        return f"sm_{device.compute_capability_major_nv}{device.compute_capability_minor_nv}"
    name: str = device.name.strip()
    if kind == "cpu":
        with contextlib.suppress(OSError):
            first = Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0]
            words = dict(re.findall(r"^(model name|cpu family|model)\s*:\s*(.*?)\s*$", first, re.MULTILINE))
            if "model name" in words:
                return f"{words['model name']} (family {words.get('cpu family')}, model {words.get('model')})"
    return name


def _sub_group_sizes(device: Any, extensions: Sequence[str]) -> tuple[int, ...]:
    """Return the sub-group sizes, the preferred one first.

    Intel's sizes are queried by ctypes, as PyOpenCL lacks the query.  The result is empty without the OpenCL sub-group
    functions, as in NVIDIA's OpenCL, even though the device has warps.
    """
    if not {"cl_khr_subgroups", "cl_intel_subgroups"} & set(extensions):
        return ()
    for attribute in ("warp_size_nv", "wavefront_width_amd"):
        with contextlib.suppress(Exception):
            return (int(getattr(device, attribute)),)
    from pyopencl import _cl

    sizes = (ctypes.c_size_t * 32)()
    used = ctypes.c_size_t()
    with contextlib.suppress(OSError, AttributeError):
        query = ctypes.CDLL(_cl.__file__).clGetDeviceInfo
        device_id = ctypes.c_void_p(device.int_ptr)
        if query(device_id, _SUB_GROUP_SIZES_INTEL, ctypes.sizeof(sizes), sizes, ctypes.byref(used)) == 0:
            found = sizes[: used.value // ctypes.sizeof(ctypes.c_size_t)]
            return tuple(sorted(found, key=lambda size: (size != device.native_vector_width_float, size)))
    return ()


@contextlib.contextmanager
def _errors(kind: type[MmsbgenError], what: object) -> Iterator[None]:
    """Convert PyOpenCL's errors into ``kind``."""
    import pyopencl as cl

    try:
        yield
    except cl.Error as error:
        raise kind(f"{what}: {error}") from error
