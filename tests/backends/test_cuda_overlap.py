"""Launches with attributes: what the driver is called with, by a library in C that writes it down; on a GPU, order."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from baseline import _library

from mmsbgen.backends import Device, open_device
from mmsbgen.backends.nvidia.overlapping_launches import Library, Module, find
from mmsbgen.base.errors import LaunchError, MissingDependencyError

#: The driver's calls and structs as cuda.h has them; a launch is written down, and fails for blocks of 1024.
DRIVER = r"""
#include <stddef.h>
#include <string.h>
typedef struct { int id; char pad[8 - sizeof(int)]; union { char pad[64]; int value; } value; } attribute;
typedef struct {
    unsigned int grid_x, grid_y, grid_z, block_x, block_y, block_z, shared; void* stream; attribute* attrs;
    unsigned int n_attrs;
} config;
int launches, unloaded, shared_allowed;
unsigned int shape[7];
int attribute_id, attribute_value, n_attributes;
void* stream_seen;
void* function_seen;
char parameters[256];
size_t parameters_size;

int cuModuleLoadData(void** module, const void* image) {
    if (memcmp(image, "cubin\0bytes", 11)) return 200;
    *module = (void*)0x1000; return 0;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
    if (module != (void*)0x1000 || strcmp(name, "known")) return 500;
    *function = (void*)0x2000; return 0;
}
int cuModuleUnload(void* module) { unloaded += module == (void*)0x1000; return 0; }
int cuFuncGetAttribute(int* value, int which, void* function) {
    *value = function == (void*)0x2000 ? 100 + which : -1; return 0;
}
int cuFuncSetAttribute(void* function, int which, int value) {
    if (function != (void*)0x2000 || which != 8) return 1;
    shared_allowed = value; return 0;
}
int cuLaunchKernelEx(const config* c, void* function, void** params, void** extra) {
    if (c->block_x == 1024) return 701;
    memcpy(shape, c, sizeof shape);
    stream_seen = c->stream; function_seen = function;
    n_attributes = (int)c->n_attrs; attribute_id = c->attrs->id; attribute_value = c->attrs->value.value;
    if (params || extra[0] != (void*)1 || extra[2] != (void*)2 || extra[4]) return 1;
    parameters_size = *(size_t*)extra[3];
    memcpy(parameters, extra[1], parameters_size);
    ++launches; return 0;
}
int cuGetErrorName(int code, const char** text) { *text = code == 999 ? NULL : "CUDA_ERROR_NAME"; return code == 999; }
int cuGetErrorString(int code, const char** text) { *text = code == 999 ? NULL : "what it means"; return code == 999; }
"""


class DriverError(Exception):
    """In the place of PyCUDA's."""


class Stream:
    handle = 0x7FFF00001234


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library's file."""
    try:
        compiler = _library.compiler()
    except MissingDependencyError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("driver")
    (folder / "driver.c").write_text(DRIVER)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", "driver.so", "driver.c"], cwd=folder, check=True)
    return folder / "driver.so"


@pytest.fixture
def library(path: Path) -> Library:
    found = find("sm_90", 12000, DriverError, str(path))
    assert found is not None
    for name in ("launches", "unloaded", "shared_allowed"):
        value(found, name).value = 0
    return found


def value(library: Library, name: str, kind: Any = ctypes.c_int) -> Any:
    return kind.in_dll(library.library, name)


@contextlib.contextmanager
def active() -> Iterator[None]:
    yield


def module_of(library: Library) -> Module:
    return Module(library, b"cubin\0bytes", active)


def test_only_newer_gpus_and_drivers_overlap(path: Path, tmp_path: Path) -> None:
    assert find("sm_80", 13000, DriverError, str(path)) is None
    assert find("sm_89", 13000, DriverError, str(path)) is None
    assert find("sm_90", 11080, DriverError, str(path)) is None
    assert find("sm_120", 13000, DriverError, str(path)) is not None
    assert find("sm_90", 12000, DriverError, str(tmp_path / "absent.so")) is None
    (tmp_path / "old.c").write_text(DRIVER.replace("cuLaunchKernelEx", "cuLaunchKernel"))
    command = [_library.compiler(), "-shared", "-fPIC", "-o", "old.so", "old.c"]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert find("sm_90", 12000, DriverError, str(tmp_path / "old.so")) is None


def test_a_launch_says_that_it_may_begin_early(library: Library) -> None:
    function = module_of(library).get_function("known")
    shapes = [((7,), (64,), 0), ((2, 3), (8, 4), 100), ((7,), (64,), 0), ((1, 2, 3), (4, 5, 6), 50000)]
    stream = Stream()
    for number, (grid, block, shared) in enumerate(shapes):
        packed = bytes(range(number, number + 8 * (1 + number // 2)))
        function._launch_kernel(grid, block, packed, shared, stream)
        assert tuple(value(library, "shape", ctypes.c_uint * 7)) == (*(*grid, 1, 1)[:3], *(*block, 1, 1)[:3], shared)
        assert value(library, "parameters_size", ctypes.c_size_t).value == len(packed)
        assert value(library, "parameters", ctypes.c_char * 256).raw[: len(packed)] == packed
        assert value(library, "n_attributes").value == value(library, "attribute_value").value == 1
        assert value(library, "attribute_id").value == 6, "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION"
        assert value(library, "stream_seen", ctypes.c_void_p).value == Stream.handle
        assert value(library, "function_seen", ctypes.c_void_p).value == 0x2000
    function._launch_kernel((1,), (1,), b"", 0, stream)
    assert value(library, "launches").value == len(shapes) + 1


def test_a_function_has_what_the_backend_asks_of_pycudas(library: Library) -> None:
    function = module_of(library).get_function("known")
    found = (function.max_threads_per_block, function.shared_size_bytes, function.local_size_bytes, function.num_regs)
    assert found == (100, 101, 103, 104)
    function.set_attribute(8, 60000)
    assert value(library, "shared_allowed").value == 60000


def test_failures_are_named_as_the_driver_does(library: Library) -> None:
    with pytest.raises(DriverError, match="cuModuleLoadData failed: CUDA_ERROR_NAME - what it means"):
        Module(library, b"something else", active)
    module = module_of(library)
    with pytest.raises(DriverError, match="cuModuleGetFunction failed"):
        module.get_function("unknown")
    function = module.get_function("known")
    with pytest.raises(DriverError, match="cuLaunchKernelEx failed: CUDA_ERROR_NAME"):
        function._launch_kernel((1,), (1024,), b"", 0, Stream())
    with pytest.raises(DriverError, match="cuFuncSetAttribute failed"):
        function.set_attribute(9, 1)
    with pytest.raises(DriverError, match="call failed: error 999"):
        library.check(999, "call")


@pytest.mark.slow
def test_modules_are_unloaded_once(library: Library) -> None:
    module = module_of(library)
    function = module.get_function("known")
    module.unload()
    module.unload()
    assert value(library, "unloaded").value == 1
    with pytest.raises(DriverError, match="unloaded as its device was closed"):
        function._launch_kernel((1,), (1,), b"", 0, Stream())
    del module, function
    gc.collect()
    assert value(library, "unloaded").value == 1
    function = module_of(library).get_function("known")
    gc.collect()
    assert value(library, "unloaded").value == 1, "a function keeps its module"
    del function
    gc.collect()
    assert value(library, "unloaded").value == 2


def test_a_context_that_cannot_be_used_any_more_is_left_alone(library: Library) -> None:
    @contextlib.contextmanager
    def ruined() -> Iterator[None]:
        raise LaunchError("an illegal address was met")
        yield

    Module(library, b"cubin\0bytes", ruined).unload()
    assert value(library, "unloaded").value == 0


SOURCE = """
extern "C" __global__ void next(const unsigned* from, unsigned* to, unsigned n, unsigned spin) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    extern __shared__ unsigned row[];
    row[threadIdx.x] = from[(i + 12345u) % n];
    for (unsigned turn = 0; turn < (blockIdx.x % 7u) * spin; ++turn) __nanosleep(100);
    to[i] = row[threadIdx.x] * 3u + 1u;
}
"""


@pytest.mark.cuda
class TestOnDevice:
    @pytest.fixture
    def device(self, cuda_device: Device) -> Device:
        if not cuda_device.overlaps:
            pytest.skip(f"launches do not overlap on {cuda_device.info.name}")
        return cuda_device

    @pytest.mark.parametrize("profiling", [True, False])
    @pytest.mark.parametrize("n", [1 << 18, 1 << 22])
    def test_every_launch_sees_what_those_before_it_wrote(self, device: Device, profiling: bool, n: int) -> None:
        """Each reads what other blocks of the one before wrote last, some of them late; copies and writes between."""
        kernel = device.compile(SOURCE, ["next"], overlap=True).kernel("next")
        block = 256
        expected = np.arange(n, dtype=np.uint32)
        device.profiling = profiling
        try:
            with device.upload(expected) as one, device.zeros(n, np.uint32) as other:
                pairs = itertools.islice(itertools.cycle([(one, other), (other, one)]), 200)
                for number, (source, to) in enumerate(pairs):
                    args = (source, to, np.uint32(n), np.uint32(number % 3))
                    kernel.launch((n // block,), (block,), args, shared=(4 if number % 5 else 256) * block)
                    expected = np.roll(expected, -12345) * np.uint32(3) + np.uint32(1)
                    if number % 50 == 49:
                        device.copy(source, to)
                    if number % 10 == 3:
                        # Over what the launch before has written and the next one reads: by page-locked memory, or by a
                        # copy without a stream where it is large.
                        expected[: n // 2] = np.arange(number, number + n // 2, dtype=np.uint32)
                        device.write(to, expected[: n // 2])
                np.testing.assert_array_equal(device.download(to), expected)
        finally:
            device.profiling = True

    def test_it_is_described_and_refused_as_a_plain_one(self, device: Device) -> None:
        plain, overlapping = (device.compile(SOURCE, ["next"], overlap=way).kernel("next") for way in (False, True))
        assert overlapping.resources() == plain.resources()
        assert overlapping.resident_blocks(256) == plain.resident_blocks(256)
        with device.zeros(256, np.uint32) as buffer:
            args = (buffer, buffer, np.uint32(256), np.uint32(0))
            event = overlapping.launch((1,), (256,), args, shared=device.info.local_memory)
            assert event.seconds() > 0
            with pytest.raises(LaunchError, match="'next'"):
                overlapping.launch((1 << 31,), (256,), args, shared=1024)

    def test_a_closed_device_has_unloaded_its_kernels(self, device: Device) -> None:
        with open_device(device.info.spec) as other:
            kernel = other.compile(SOURCE, ["next"], overlap=True).kernel("next")
            buffer = other.zeros(256, np.uint32)
            args = (buffer, buffer, np.uint32(256), np.uint32(0))
            kernel.launch((1,), (256,), args, shared=1024).wait()
        with device.zeros(256, np.uint32) as ours, pytest.raises(LaunchError, match="its device was closed"):
            kernel.launch((1,), (256,), (ours, ours, np.uint32(256), np.uint32(0)), shared=1024)
