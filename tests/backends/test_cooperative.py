"""Cooperative launches, by a library on the host that reads what it is given."""

from __future__ import annotations

import ctypes
import struct
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mmsbgen.backends.nvidia import cuda_kernel
from mmsbgen.backends.nvidia.cuda_kernel import CooperativeFunction, CudaBuffer, CudaKernel, Layout
from mmsbgen.base.errors import LaunchError, LaunchLimitError


class Library:
    """Takes launches of a kernel with the parameters (pointer, u32, double)."""

    def __init__(self) -> None:
        self.launches: list[tuple[Any, ...]] = []
        self.codes = {"load": 0, "launch": 0, "attribute": 0, "occupancy": 0}
        self.resident = 8
        self.attributes: list[tuple[int, int]] = []

    def cuModuleLoadData(self, module: Any, cubin: bytes) -> int:  # noqa: N802
        module._obj.value = len(cubin)
        return self.codes["load"]

    def cuModuleGetFunction(self, function: Any, module: Any, name: bytes) -> int:  # noqa: N802
        function._obj.value = 7
        return 0 if name == b"rounds" else 500

    def cuFuncSetAttribute(self, function: Any, attribute: int, value: int) -> int:  # noqa: N802
        self.attributes.append((attribute, value))
        return self.codes["attribute"]

    def cuLaunchCooperativeKernel(self, function: Any, *sizes: Any) -> int:  # noqa: N802
        *shape, shared, stream, places = sizes
        kinds = (ctypes.c_uint64, ctypes.c_uint32, ctypes.c_double)
        values = [kind.from_address(place).value for kind, place in zip(kinds, places, strict=True)]
        self.launches.append((function.value, tuple(shape), shared, stream.value, values))
        return self.codes["launch"]

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(  # noqa: N802
        self, found: Any, function: Any, block: int, shared: Any
    ) -> int:
        found._obj.value = self.resident if (function.value, block, shared.value) == (7, 256, 50_000) else 99
        return self.codes["occupancy"]

    def cuGetErrorString(self, code: int, text: Any) -> int:  # noqa: N802
        text._obj.value = f"error {code}".encode()
        return 0


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    found = Library()
    monkeypatch.setattr(cuda_kernel, "_library", lambda: found)
    return found


def test_parameters_are_found_where_the_layout_has_them(library: Library) -> None:
    class Memory:
        def __int__(self) -> int:
            return 4096

    args = [CudaBuffer((1,), np.dtype(np.uint32), Memory()), np.uint32(3), np.float64(0.5)]
    layout = Layout(args, "rounds")
    assert layout.offsets == [0, 8, 16]
    packed = layout.pack(args)
    assert packed == struct.pack("PId", 4096, 3, 0.5)
    CooperativeFunction(b"cubin", "rounds").launch((132,), (256,), packed, layout.offsets, 99)
    assert library.launches == [(7, (132, 1, 1, 256, 1, 1), 0, 99, [4096, 3, 0.5])]


def test_shared_memory_is_asked_for_once(library: Library) -> None:
    function, packed = CooperativeFunction(b"cubin", "rounds"), struct.pack("PId", 1, 2, 3)
    for shared in (1024, 106496, 106496, 0):
        function.launch((132,), (1024,), packed, [0, 8, 16], 1, shared)
    assert library.attributes == [(8, 1024), (8, 106496)]
    assert [launch[2] for launch in library.launches] == [1024, 106496, 106496, 0]
    library.codes["attribute"] = 1
    with pytest.raises(LaunchError, match="kernel 'rounds' cannot have 999999 bytes of shared memory: error 1"):
        function.launch((132,), (1024,), packed, [0, 8, 16], 1, 999999)


@pytest.mark.parametrize(("resident", "counted"), [(0, 0), (8, 8), (24, 16)])
def test_the_driver_tells_how_many_blocks_are_resident(library: Library, resident: int, counted: int) -> None:
    """Of its count no more than every architecture holds: grids, on which results may depend, are then the same."""
    library.resident = resident
    device = SimpleNamespace(active=lambda *_: nullcontext(), info=SimpleNamespace(compute_units=3))
    function = SimpleNamespace(num_regs=9, shared_size_bytes=0, local_size_bytes=0, max_threads_per_block=1024)
    kernel: Any = CudaKernel(device, "rounds", function, None, b"cubin")  # type: ignore[arg-type]
    assert kernel.resident_blocks(256, 50_000) == 3 * counted
    assert library.attributes == [(8, 50_000)], "or the driver would count none with so much"
    library.codes["occupancy"] = 719
    with pytest.raises(LaunchError, match="kernel 'rounds' cannot be resident in blocks of 256: error 719"):
        kernel.resident_blocks(256, 50_000)


def test_errors_name_the_kernel(library: Library) -> None:
    with pytest.raises(LaunchError, match="kernel 'other' is not in its module: error 500"):
        CooperativeFunction(b"cubin", "other")
    function = CooperativeFunction(b"cubin", "rounds")
    offsets, packed = [0, 8, 16], struct.pack("PId", 1, 2, 3)
    library.codes["launch"] = 720
    with pytest.raises(LaunchLimitError, match="cannot be launched with grid .9999,., block .256,.: error 720"):
        function.launch((9999,), (256,), packed, offsets, 1)
    library.codes["launch"] = 719
    with pytest.raises(LaunchError, match="error 719"):
        function.launch((1,), (256,), packed, offsets, 1)
    library.codes["load"] = 209
    with pytest.raises(LaunchError, match="kernel 'rounds' does not load: error 209"):
        CooperativeFunction(b"cubin", "rounds")
