"""What the CUDA backend asks of PyCUDA's driver, on the host: memory, a stream, modules, and kernels that may fail.

Modules are those of the compiler; launches are checked for their module and write nothing.  As on a GPU a kernel that
fails is not told of when it is launched: the first call that waits tells it, and so does every call from then on.
"""

from __future__ import annotations

import ctypes
import struct
from types import SimpleNamespace
from typing import Any

import numpy as np

ILLEGAL = "an illegal memory access was encountered"


class DriverError(Exception):
    """In the place of PyCUDA's."""


class Driver:
    """In the place of ``pycuda.driver``; kernels called ``failing`` fail while they run."""

    Error = DriverError
    device_attribute = SimpleNamespace(
        MULTIPROCESSOR_COUNT=4,
        MAX_SHARED_MEMORY_PER_BLOCK_OPTIN=163840,
        MAX_THREADS_PER_BLOCK=1024,
        WARP_SIZE=32,
    )

    def __init__(self, failing: str = "outside") -> None:
        self.failing = failing
        self.failed = self.lost = self.detached = False
        self.pushed = 0
        self.loaded: list[bytes] = []
        self.Device = type("Device", (_Device,), {"driver": self, "count": staticmethod(lambda: 1)})
        self.Stream, self.Event = (lambda: _Stream(self)), (lambda: _Event(self))

    def get_driver_version(self) -> int:
        return 12080

    def called(self, name: str, waits: bool = False) -> None:
        """Raise what the call ``name`` would."""
        if not self.pushed:
            raise DriverError(f"{name} failed: invalid device context")
        self.lost = self.lost or (waits and self.failed)
        if self.lost:
            raise DriverError(f"{name} failed: {ILLEGAL}")

    def mem_get_info(self) -> tuple[int, int]:
        self.called("cuMemGetInfo")
        return 2**30, 2**30

    def mem_alloc(self, size: int) -> _Memory:
        self.called("cuMemAlloc")
        return _Memory.of(size)

    def memset_d8_async(self, address: int, value: int, size: int, stream: object) -> None:
        self.called("cuMemsetD8Async")
        ctypes.memset(address, value, size)

    def memcpy_htod_async(self, address: int, array: Any, stream: object) -> None:
        self.called("cuMemcpyHtoDAsync")
        ctypes.memmove(address, array.ctypes.data, array.nbytes)

    def memcpy_htod(self, address: int, array: Any) -> None:
        self.called("cuMemcpyHtoD", waits=True)
        ctypes.memmove(address, array.ctypes.data, array.nbytes)

    def memcpy_dtoh(self, array: Any, address: int) -> None:
        self.called("cuMemcpyDtoH", waits=True)
        ctypes.memmove(array.ctypes.data, address, array.nbytes)

    def memcpy_dtod_async(self, to: int, address: int, size: int, stream: object) -> None:
        self.called("cuMemcpyDtoDAsync")
        ctypes.memmove(to, address, size)

    def pagelocked_empty(self, size: int, dtype: Any) -> Any:
        self.called("cuMemHostAlloc")
        return np.empty(size, dtype)

    def module_from_buffer(self, cubin: bytes) -> _Module:
        self.loaded.append(cubin)
        self.called("cuModuleLoadDataEx")
        return _Module(self, cubin)


class _Device:
    driver: Driver

    def __init__(self, index: int) -> None:
        self.index = index

    def name(self) -> str:
        return "NVIDIA A100"

    def compute_capability(self) -> tuple[int, int]:
        return 8, 0

    def total_memory(self) -> int:
        return 2**30

    def get_attribute(self, attribute: int) -> int:
        if self.driver.detached:
            raise DriverError("cuDeviceGetAttribute failed: no device")
        return attribute

    def pci_bus_id(self) -> str:
        if self.driver.detached:
            raise DriverError("cuDeviceGetPCIBusId failed: no device")
        return "0000:17:00.0"

    def retain_primary_context(self) -> _Context:
        return _Context(self.driver)


class _Context:
    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    def push(self) -> None:
        if self.driver.detached:
            raise DriverError("cuCtxPushCurrent failed: no device")
        self.driver.pushed += 1

    def pop(self) -> None:
        self.driver.pushed -= 1


class _Stream:
    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    def synchronize(self) -> None:
        self.driver.called("cuStreamSynchronize", waits=True)

    def is_done(self) -> bool:
        self.driver.called("cuStreamQuery")
        return True


class _Event(_Stream):
    def record(self, stream: object) -> None:
        self.driver.called("cuEventRecord")

    def synchronize(self) -> None:
        self.driver.called("cuEventSynchronize", waits=True)

    def query(self) -> bool:
        self.driver.called("cuEventQuery")
        return True

    def time_since(self, first: object) -> float:
        self.driver.called("cuEventElapsedTime")
        return 1.0


class _Memory(int):
    memory: Any

    @classmethod
    def of(cls, size: int) -> _Memory:
        memory = ctypes.create_string_buffer(size)
        made = cls(ctypes.addressof(memory))
        made.memory = memory
        return made

    def free(self) -> None:
        self.memory = None


class _Module:
    """An ELF file, all of whose headers are there."""

    def __init__(self, driver: Driver, cubin: bytes) -> None:
        self.driver, self.cubin = driver, cubin
        if cubin[:4] != b"\x7fELF" or len(cubin) < 64:
            raise DriverError("cuModuleLoadDataEx failed: device kernel image is invalid")
        programs, sections = struct.unpack_from("<QQ", cubin, 32)
        program_size, n_programs, section_size, n_sections = struct.unpack_from("<4H", cubin, 54)
        if len(cubin) < max(programs + program_size * n_programs, sections + section_size * n_sections):
            raise DriverError("cuModuleLoadDataEx failed: device kernel image is invalid")

    def get_function(self, name: str) -> _Function:
        self.driver.called("cuModuleGetFunction")
        if f"\0.text.{name}\0".encode() not in self.cubin:
            raise DriverError("cuModuleGetFunction failed: named symbol not found")
        return _Function(self.driver, name)


class _Function:
    num_regs, shared_size_bytes, local_size_bytes, max_threads_per_block = 32, 0, 0, 1024

    def __init__(self, driver: Driver, name: str) -> None:
        self.driver, self.name = driver, name

    def _launch_kernel(self, grid: Any, block: Any, packed: bytes, shared: int, stream: object) -> None:
        self.driver.called("cuLaunchKernel")
        if grid[0] >= 1 << 31:
            raise DriverError("cuLaunchKernel failed: invalid value")
        self.driver.failed = self.driver.failed or self.name == self.driver.failing
