"""Kernels of loaded CUDA modules, their arguments, and the events of launches."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np

from mmsbgen.backends.base import Argument, Buffer, Event, Kernel, LaunchName, Program
from mmsbgen.backends.nvidia.cuda_compile import Compiled, KernelResources
from mmsbgen.backends.nvidia.launch_errors import ContextDevice
from mmsbgen.base.errors import CompileError, InputError, LaunchError, LaunchLimitError


class CudaBuffer(Buffer):
    """A linear allocation of device memory."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], handle: Any) -> None:
        super().__init__(shape, dtype, handle)
        self.address = int(handle)

    def _free(self, handle: Any) -> None:
        self.address = 0
        handle.free()


def address_of(buffer: Buffer) -> int:
    """The device address of a buffer; raises :class:`InputError` for one that is released or of another backend."""
    if not isinstance(buffer, CudaBuffer) or buffer.released:
        raise InputError(f"{buffer!r} is no buffer that this device can use")
    return buffer.address


class Layout:
    """The C struct layout of a kernel's parameters, from the argument types of a launch.

    ``name`` names the launch in messages.  Raises :class:`LaunchError` for an unsupported scalar type, and
    :class:`InputError` for a buffer that is released or of another backend.
    """

    def __init__(self, args: Sequence[Argument], name: object) -> None:
        codes = ""
        for position, arg in enumerate(args):
            if isinstance(arg, Buffer):
                address_of(arg)
                codes += "P"
            elif arg.dtype.char in "?bBhHiIlLqQefd":
                codes += arg.dtype.char
            else:
                raise LaunchError(f"{name}: argument {position} is a NumPy {arg.dtype}, which no kernel takes")
        self._types, self._buffers = [type(arg) for arg in args], [code == "P" for code in codes]
        self._struct = struct.Struct(codes)
        #: Where each parameter begins, in bytes.
        self.offsets = [struct.calcsize(codes[: at + 1]) - struct.calcsize(code) for at, code in enumerate(codes)]

    def pack(self, args: Sequence[Any]) -> bytes | None:
        """The packed arguments of a launch; None if their types differ or a buffer was released."""
        if [type(arg) for arg in args] != self._types:
            return None
        values = []
        for arg, is_buffer in zip(args, self._buffers, strict=True):
            value = arg.address if is_buffer else arg.item()
            if is_buffer and not value:
                return None
            values.append(value)
        return self._struct.pack(*values)


#: CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, and CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES.
_TOO_LARGE, _MOST_SHARED = 720, 8


@cache
def _library() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def _message(code: int) -> str:
    text = ctypes.c_char_p()
    _library().cuGetErrorString(code, ctypes.byref(text))
    return text.value.decode() if text.value else f"CUDA error {code}"


class CooperativeFunction:
    """A kernel of a compiled module, for what PyCUDA lacks; the context must be current in every call.

    Raises :class:`LaunchError` if the module does not load.
    """

    def __init__(self, cubin: bytes, name: str) -> None:
        self._name = name
        self._shared = 0
        module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        self._checked(_library().cuModuleLoadData(ctypes.byref(module), cubin), "does not load")
        self._checked(
            _library().cuModuleGetFunction(ctypes.byref(self._function), module, name.encode()), "is not in its module"
        )

    def launch(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        packed: bytes,
        offsets: Sequence[int],
        stream: int,
        shared: int = 0,
    ) -> None:
        """Queue the kernel.

        Args:
            grid: blocks in one to three dimensions.
            block: threads of a block, likewise.
            packed: the parameters in the layout of a C struct.
            offsets: where each of them begins, in bytes.
            stream: the handle of a stream.
            shared: dynamic shared memory of a block in bytes.

        Raises:
            LaunchLimitError: more blocks than are resident at once.
            LaunchError: the launch was refused for another reason.
        """
        self._allow(shared)
        data = ctypes.create_string_buffer(packed, len(packed))
        begin = ctypes.addressof(data)
        places = (ctypes.c_void_p * len(offsets))(*(begin + offset for offset in offsets))
        sizes = [*grid, *[1] * (3 - len(grid)), *block, *[1] * (3 - len(block))]
        code = _library().cuLaunchCooperativeKernel(self._function, *sizes, shared, ctypes.c_void_p(stream), places)
        self._checked(code, f"cannot be launched with grid {tuple(grid)}, block {tuple(block)}")

    def resident_blocks(self, block: int, shared: int = 0) -> int:
        """How many blocks of ``block`` threads a multiprocessor holds at once; ``shared`` as of :meth:`launch`.

        Raises :class:`LaunchError` if the driver does not tell.
        """
        self._allow(shared)
        found = ctypes.c_int()
        code = _library().cuOccupancyMaxActiveBlocksPerMultiprocessor(
            ctypes.byref(found), self._function, block, ctypes.c_size_t(shared)
        )
        self._checked(code, f"cannot be resident in blocks of {block}")
        return found.value

    def _allow(self, shared: int) -> None:
        if shared > self._shared:
            code = _library().cuFuncSetAttribute(self._function, _MOST_SHARED, shared)
            self._checked(code, f"cannot have {shared} bytes of shared memory")
            self._shared = shared

    def _checked(self, code: int, what: str) -> None:
        if code:
            kind = LaunchLimitError if code == _TOO_LARGE else LaunchError
            raise kind(f"kernel {self._name!r} {what}: {_message(code)}")


# Larger dynamic shared memory must be requested explicitly.
_DEFAULT_SHARED = 48 * 1024
#: Blocks of a multiprocessor, of which all architectures since Maxwell hold as many: some results depend on the grid.
_MOST_RESIDENT = 16
#: Launch shapes that a kernel remembers as checked.
_MOST_SHAPES = 256


class CudaEvent(Event):
    """The end of a launch, and its beginning if the device is profiling.

    Without profiling a launch has no CUDA event, as recording one takes as long as the launch itself.  Waiting for it
    then waits for the whole queue.
    """

    def __init__(self, device: ContextDevice, begin: Any, end: Any, name: LaunchName | str) -> None:
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

    device: ContextDevice

    def __init__(
        self, device: ContextDevice, name: str, function: Any, compiled: KernelResources | None, cubin: bytes = b""
    ) -> None:
        super().__init__(device, name)
        self._function = function
        self._cubin = cubin
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

    def launch_cooperative(
        self, grid: Sequence[int], block: Sequence[int], args: Sequence[Argument] = (), shared: int = 0
    ) -> CudaEvent:
        device = self.device
        name, packed = self._packed(grid, block, args, shared)
        assert self._layout is not None
        with device.active(LaunchError, name):
            timed = device.profiling
            begin = device.record() if timed else None
            self._cooperative.launch(name.grid, name.block, packed, self._layout.offsets, device.stream.handle, shared)
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

    @cached_property
    def _cooperative(self) -> CooperativeFunction:
        return CooperativeFunction(self._cubin, self.name)

    def resources(self) -> dict[str, int]:
        return dict(self._resources)

    def resident_blocks(self, block: int, shared: int = 0) -> int:
        with self.device.active(LaunchError, f"kernel {self.name!r}: the blocks that are resident are not known"):
            each = self._cooperative.resident_blocks(block, shared)
        return min(each, _MOST_RESIDENT) * self.device.info.compute_units


class CudaProgram(Program):
    """A loaded module."""

    def __init__(self, device: ContextDevice, module: Any, names: Sequence[str], compiled: Compiled) -> None:
        self._module = module
        with device.active(CompileError, f"kernels {', '.join(names)} on {device.info.name}"):
            kernels = {
                name: CudaKernel(device, name, module.get_function(name), compiled.resources.get(name), compiled.cubin)
                for name in names
            }
        super().__init__(kernels, compiled.log)
