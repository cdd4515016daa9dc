"""The CUDA backend on a real GPU; without one only its errors can be tried."""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmsbgen.backends import Device, discover, open_device
from mmsbgen.backends.nvidia import cuda_device
from mmsbgen.backends.nvidia.cuda_kernel import CudaBuffer, Layout
from mmsbgen.base.errors import CompileError, DeviceMemoryError, InputError, LaunchError, MissingDependencyError

SOURCE = """
extern "C" __global__ void scale(float* a, float s) { a[blockIdx.x * blockDim.x + threadIdx.x] *= s; }
extern "C" __global__ void reverse(float* a) {
    extern __shared__ float t[];
    float* row = a + (size_t)blockIdx.x * blockDim.x;
    t[threadIdx.x] = row[threadIdx.x];
    __syncthreads();
    row[threadIdx.x] = t[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void mixed(double* out, unsigned char a, double b, int c, unsigned long long d, float* e) {
    *out = a + b + c + (double)d + *e;
}
extern "C" __global__ void outside(float* a) { a[1ull << 40] = 1; }
"""


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    found = [info for info in discover()[0] if info.backend == "cuda"]
    if not found:
        pytest.skip("no CUDA device here")
    with open_device(found[0].spec) as opened:
        yield opened


def test_without_a_gpu_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycuda", None)
    monkeypatch.delitem(sys.modules, "pycuda.driver", raising=False)
    with pytest.raises(MissingDependencyError, match=r"pip install 'mmsbgen\[cuda\]'"):
        cuda_device._driver()
    assert cuda_device.discover()[0] == []


def test_arguments_are_laid_out_as_in_c() -> None:
    args: list[Any] = [np.uint8(1), np.float64(2), np.int32(3), np.uint64(4)]
    packed = Layout(args, "kernel 'k'").pack(args)
    assert packed is not None
    assert len(packed) == 32
    assert np.frombuffer(packed[8:16])[0] == 2
    with pytest.raises(LaunchError, match="argument 0 is a NumPy complex64"):
        Layout([np.complex64(1)], "kernel 'k'")


def test_a_layout_serves_launches_with_arguments_of_the_same_types() -> None:
    class Memory(int):
        def free(self) -> None: ...

    buffers = [CudaBuffer((4,), np.dtype(np.float32), Memory(address)) for address in (4096, 8192)]
    layout = Layout([buffers[0], np.float32(1)], "kernel 'k'")
    assert layout.pack([buffers[1], np.float32(2)]) == struct.pack("Pf", 8192, 2.0)
    for other in ([buffers[1], np.float64(2)], [buffers[1]], [np.uint64(8192), np.float32(2)]):
        assert layout.pack(other) is None
    buffers[1].release()
    assert layout.pack([buffers[1], np.float32(2)]) is None


@pytest.mark.cuda
class TestOnDevice:
    def test_describes_itself(self, device: Device) -> None:
        info = device.info
        assert info.kind == "gpu"
        assert info.architecture.startswith("sm_")
        assert info.local_memory > 48 * 1024
        assert info.sub_group_sizes == (32,)
        assert all((info.name, info.driver, info.compiler))

    def test_round_trip(self, device: Device) -> None:
        array = np.arange(30, dtype=np.float64).reshape(10, 3)
        with device.upload(array) as buffer, device.zeros((10, 3), np.float64) as other:
            assert not device.download(other).any()
            device.copy(other, buffer)
            device.write(other, np.full((2, 3), 9.0), offset=8)
            np.testing.assert_array_equal(device.download_range(other, 7, 10), [array[7], [9] * 3, [9] * 3])
        with device.upload(np.ones((0, 4))) as empty:
            assert device.download(empty).shape == (0, 4)

    @pytest.mark.parametrize("count", [1, 1000, 3 << 20])
    def test_arrays_may_change_once_they_are_written(self, device: Device, count: int) -> None:
        """Small ones wait for their turn in page-locked memory, after the launches before and before those after."""
        kernel = device.compile(SOURCE, ["scale"]).kernel("scale")
        array = np.ones(count, np.float32)
        with device.zeros((20, count), np.float32) as kept, device.upload(array) as buffer:
            for value in range(20):
                array[:] = value
                device.write(buffer, array)
                array[:] = -1.0
                kernel.launch((1,), (1,), (buffer, np.float32(2)))
                device.write(kept, device.download(buffer)[None] if value % 2 else array[None], offset=value)
            found = device.download(kept)
        np.testing.assert_array_equal(found[1::2, 0], 2.0 * np.arange(1, 20, 2))
        np.testing.assert_array_equal(found[::2], -1.0)

    def test_arrays_on_their_way_are_not_written_over(self, device: Device) -> None:
        """More writes than there are buffers, behind work that keeps the queue busy meanwhile."""
        kernel = device.compile(SOURCE, ["scale"]).kernel("scale")
        with device.zeros(1 << 26, np.float32) as large, device.zeros((100, 1024), np.float32) as kept:
            for _ in range(50):
                kernel.launch((1 << 16,), (1024,), (large, np.float32(2)))
            for value in range(100):
                device.write(kept, np.full((1, 1024), value, np.float32), offset=value)
            np.testing.assert_array_equal(device.download(kept), np.repeat(np.arange(100.0), 1024).reshape(100, 1024))

    @pytest.mark.parametrize("block", [1, 96, 1024])
    def test_launches_in_order(self, device: Device, block: int) -> None:
        program = device.compile(SOURCE, ["scale", "reverse"])
        array = np.arange(3 * block, dtype=np.float32)
        with device.upload(array) as buffer:
            begin = device.mark()
            for _ in range(5):
                program.kernel("scale").launch((3,), (block,), (buffer, np.float32(2)))
            event = program.kernel("reverse").launch((3,), (block,), (buffer,), shared=4 * block)
            assert event.seconds() > 0
            assert event.seconds_since(begin) > event.seconds()
            np.testing.assert_array_equal(device.download(buffer), 32 * array.reshape(3, block)[:, ::-1].ravel())

    def test_much_dynamic_shared_memory(self, device: Device) -> None:
        kernel = device.compile(SOURCE, ["reverse"]).kernel("reverse")
        with device.upload(np.arange(64, dtype=np.float32)) as buffer:
            kernel.launch((1,), (64,), (buffer,), shared=device.info.local_memory)
            assert device.download(buffer)[0] == 63
            with pytest.raises(LaunchError, match="bytes of shared memory"):
                kernel.launch((1,), (64,), (buffer,), shared=device.info.local_memory + 1)

    def test_arguments_of_every_size(self, device: Device) -> None:
        kernel = device.compile(SOURCE, ["mixed"]).kernel("mixed")
        with device.zeros((), np.float64) as out, device.upload(np.ones(1, np.float32)) as one:
            kernel.launch((1,), (1,), (out, np.uint8(2), np.float64(0.5), np.int32(-7), np.uint64(2**40), one)).wait()
            assert device.download(out) == 2 + 0.5 - 7 + 2**40 + 1

    def test_resources(self, device: Device) -> None:
        resources = device.compile(SOURCE, ["scale"]).kernel("scale").resources()
        assert resources["registers"] > 0
        assert resources["spill_bytes"] == 0
        assert resources["max_block_size"] >= 256

    def test_without_profiling(self, device: Device) -> None:
        kernel = device.compile(SOURCE, ["scale"]).kernel("scale")
        device.profiling = False
        try:
            with device.zeros(32, np.float32) as buffer:
                event = kernel.launch((1,), (32,), (buffer, np.float32(1)))
                event.wait()
                with pytest.raises(InputError, match="profiling was off"):
                    event.seconds()
        finally:
            device.profiling = True

    def test_held_launches_begin_when_all_are_queued(self, device: Device) -> None:
        kernel = device.compile(SOURCE, ["scale"]).kernel("scale")
        with device.upload(np.ones(32, np.float32)) as buffer:
            for scale in (2, 4):
                with device.held():
                    begin = device.mark()
                    events = [kernel.launch((1,), (32,), (buffer, np.float32(2))) for _ in range(2)]
                    time.sleep(0.05)
                    end = device.mark()
                assert device.download(buffer)[0] == scale**2
                assert end.seconds_since(begin) < 0.01, "the host's sleep is no part of it"
                assert all(event.seconds() > 0 for event in events)

    def test_errors(self, device: Device) -> None:
        with pytest.raises(CompileError, match="undeclared_name"):
            device.compile('extern "C" __global__ void k(int* a) { *a = undeclared_name; }', ["k"])
        with pytest.raises(CompileError, match="absent"):
            device.compile(SOURCE, ["absent"])
        with pytest.raises(DeviceMemoryError, match="are free"):
            device.alloc(2**45, np.uint8)
        kernel = device.compile(SOURCE, ["scale"]).kernel("scale")
        with device.zeros(32, np.float32) as buffer, pytest.raises(LaunchError, match="'scale'"):
            kernel.launch((1,), (4096,), (buffer, np.float32(1)))

    def test_compiled_kernels_are_kept(self, device: Device, private_cache: Path) -> None:
        for _ in range(2):
            with open_device(device.info.spec) as other:
                other.compile(SOURCE, ["scale"])
            assert len(list(private_cache.glob("mmsbgen/kernels/*.bin"))) == 1

    def test_more_than_4_gib_in_one_buffer(self, device: Device) -> None:
        size = 2**32 + 2**20
        with device.zeros((size // 1024, 1024), np.uint8) as buffer:
            device.write(buffer, np.full((1, 1024), 7, np.uint8), offset=buffer.shape[0] - 1)
            assert device.download_range(buffer, buffer.shape[0] - 2, buffer.shape[0])[:, -1].tolist() == [0, 7]

    def test_two_devices_open_at_once(self, device: Device) -> None:
        with (
            open_device(device.info.spec) as other,
            other.upload(np.ones(3)) as theirs,
            device.upload(np.ones(4)) as ours,
        ):
            assert other.download(theirs).sum() == 3
            assert device.download(ours).sum() == 4


@pytest.mark.cuda
@pytest.mark.parametrize("kind", ["float32", "uint16"])
def test_rows_of_any_order_and_shape(device: Device, kind: str) -> None:
    """Few are copied one after the other, many gathered by a kernel."""
    array = np.arange(30_000, dtype=kind).reshape(10_000, 3)
    with device.upload(array) as buffer:
        many = np.random.default_rng(0).integers(0, 10_000, (50, 4))
        for rows in ([7], [9999, 0, 50, 51, 0], range(20, 60), [[1, 2], [98, 1]], [], range(0, 10_000, 7), many):
            at = np.array(rows, np.int64)
            np.testing.assert_array_equal(device.download_rows(buffer, at), array[at])
        with pytest.raises(InputError, match=r"rows 3\.\.10000 are not within"):
            device.download_rows(buffer, np.array([3, 10_000]))


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("wait", "of"),
    [
        ("event.wait()", "kernel 'scale', grid (1,), block (32,) failed while running"),
        ("device.download(buffer)", "cannot read from CudaBuffer"),
        ("device.write(large, np.zeros(large.shape, np.float32))", "cannot write to CudaBuffer"),
        ("device.synchronize()", "queued work on"),
        ("time.sleep(1), scale.launch((1,), (32,), args)", "kernel 'scale', grid (1,), block (32,)"),
    ],
)
def test_a_failed_kernel_is_named(device: Device, wait: str, of: str) -> None:
    """By whoever waits next, or launches once it has failed; in a process of its own, as the device is lost."""
    code = f"""
import time
import numpy as np
from mmsbgen.backends import open_device
from mmsbgen.base.errors import LaunchError
with open_device({device.info.spec!r}) as device:
    program = device.compile({SOURCE!r}, ["scale", "outside"])
    scale, outside = program.kernel("scale"), program.kernel("outside")
    outside.configuration = "block_size=1 placement=RRS"
    buffer, large = device.zeros(32, np.float32), device.zeros(1 << 21, np.float32)
    args = (buffer, np.float32(2))
    scale.launch((1,), (32,), args)
    device.synchronize()
    with device.held():  # or it may have failed before the next one is launched
        outside.launch((1,), (1,), (buffer,))
        event = scale.launch((1,), (32,), args)
    try:
        {wait}
    except LaunchError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert of in done.stdout, done.stdout + done.stderr
    assert ", after kernels 'hold', 'outside' (block_size=1 placement=RRS), 'scale':" in done.stdout
