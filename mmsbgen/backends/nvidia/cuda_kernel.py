"""Kernels of loaded CUDA modules, and the events of their launches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mmsbgen.backends.base import Argument, Event, Kernel, LaunchName, Program
from mmsbgen.backends.nvidia.cooperative import CooperativeFunction
from mmsbgen.backends.nvidia.cuda_compile import Compiled, KernelResources
from mmsbgen.backends.nvidia.kernel_arguments import Layout
from mmsbgen.backends.nvidia.launch_errors import ContextDevice
from mmsbgen.backends.nvidia.occupancy import Multiprocessor, resident_blocks
from mmsbgen.base.errors import CompileError, InputError, LaunchError

# Larger dynamic shared memory must be requested explicitly.
_DEFAULT_SHARED = 48 * 1024
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

    def launch_cooperative(
        self, grid: Sequence[int], block: Sequence[int], args: Sequence[Argument] = (), shared: int = 0
    ) -> CudaEvent:
        device = self.device
        name, packed = self._packed(grid, block, args, shared)
        assert self._layout is not None
        with device.active(LaunchError, name):
            if self._cooperative is None:
                self._cooperative = CooperativeFunction(self._cubin, self.name)
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

    def resources(self) -> dict[str, int]:
        return dict(self._resources)

    def resident_blocks(self, block: int, shared: int = 0) -> int:
        driver, info = self.device.driver, self.device.info
        what = f"kernel {self.name!r}: how many blocks of {block} {info.name} holds at once is not known"
        with self.device.active(LaunchError, what):
            device, attribute = driver.Device(info.index), driver.device_attribute
            multiprocessor = Multiprocessor(
                device.get_attribute(attribute.MAX_THREADS_PER_MULTIPROCESSOR),
                device.get_attribute(attribute.MAX_REGISTERS_PER_MULTIPROCESSOR),
                device.get_attribute(attribute.MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
            )
        needs = self._resources["registers"], self._resources["shared_bytes"] + shared
        return resident_blocks(block, *needs, multiprocessor) * info.compute_units


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
