"""Kernels really run on every OpenCL platform that is here."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mmsbgen.backends import Device
from mmsbgen.backends.binary_cache import BinaryCache
from mmsbgen.backends.discovery import opened
from mmsbgen.backends.opencl import programs
from mmsbgen.backends.opencl.opencl_device import OpenCLDevice, OpenCLKernel
from mmsbgen.base.errors import CompileError, DeviceMemoryError, InputError, LaunchError, LaunchLimitError

SCALE = "kernel void scale(global float* a, float s) { a[get_global_id(0)] *= s; }"
REVERSE = """
kernel void reverse(global float* a, local float* t) {
    size_t i = get_local_id(0);
    t[i] = a[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    a[get_global_id(0)] = t[get_local_size(0) - 1 - i];
}
"""


def test_describes_itself(opencl_device: Device) -> None:
    info = opencl_device.info
    assert info.backend == "opencl"
    assert info.kind == "cpu"
    assert info.compute_units >= 1
    assert 0 < info.max_allocation <= info.global_memory
    assert info.local_memory > 0
    assert info.has_fp64
    assert all((info.name, info.vendor, info.platform, info.architecture, info.driver, info.compiler))


def test_devices_of_a_process_share_programs_but_no_arguments(
    opencl_device: Device, private_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each source is built once, and closing one device leaves the other its program.  A useless binary is replaced."""
    built: list[str] = []
    real = programs._build
    monkeypatch.setattr(programs, "_build", lambda *asked: built.append(asked[1]) or real(*asked))
    source = f"{SCALE} // {private_cache}"
    first = opencl_device.compile(source, ["scale"]).kernel("scale")
    with opencl_device.upload(np.ones(4, np.float32)) as a:
        with opened(opencl_device.info) as other:
            second = other.compile(source, ["scale"]).kernel("scale")
            with other.upload(np.full(4, 2, np.float32)) as b:
                first.launch((4,), (1,), (a, np.float32(3)))
                second.launch((4,), (1,), (b, np.float32(5)))
                assert other.download(b).tolist() == [10] * 4
        first.launch((4,), (1,), (a, np.float32(7)))
        assert opencl_device.download(a).tolist() == [21] * 4
    assert built == [source]
    for binary in private_cache.glob("mmsbgen/kernels/*.bin"):
        BinaryCache().store(binary.stem, b"no program", "")
    programs.built.cache_clear()
    assert opencl_device.compile(source, ["scale"]).kernel("scale")
    assert built == [source, source]


def test_round_trip(opencl_device: Device) -> None:
    array = np.arange(30, dtype=np.float64).reshape(10, 3)
    with opencl_device.upload(array) as buffer:
        assert buffer.nbytes == array.nbytes
        np.testing.assert_array_equal(opencl_device.download(buffer), array)
        np.testing.assert_array_equal(opencl_device.download_range(buffer, 4, 7), array[4:7])
        opencl_device.write(buffer, np.full((2, 3), 9.0), offset=8)
        np.testing.assert_array_equal(opencl_device.download(buffer)[7:], [array[7], [9] * 3, [9] * 3])


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_rows_of_any_order_and_shape(opencl_device: Device, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mapped, as on processors, and read one after the other."""
    monkeypatch.setattr(opencl_device, "info", dataclasses.replace(opencl_device.info, kind=kind))
    array = np.arange(300, dtype=np.float32).reshape(100, 3)
    with opencl_device.upload(array) as buffer:
        for rows in ([7], [99, 0, 50, 51, 0], range(20, 60), [[1, 2], [98, 1]], []):
            at = np.array(rows, np.int64)
            np.testing.assert_array_equal(opencl_device.download_rows(buffer, at), array[at])
        opencl_device.write(buffer, np.zeros((1, 3), np.float32), 7)
        assert not opencl_device.download_rows(buffer, np.array([7])).any()


@pytest.mark.parametrize("shape", [(), (0,), (0, 5), (1,), (7, 3)])
def test_shapes_at_the_limits(opencl_device: Device, shape: tuple[int, ...]) -> None:
    with opencl_device.upload(np.ones(shape, np.int16)) as ones, opencl_device.zeros(shape, np.int16) as zeros:
        assert opencl_device.download(ones).shape == shape
        assert opencl_device.download(ones).sum() == math.prod(shape)
        assert not opencl_device.download(zeros).any()
        opencl_device.copy(zeros, ones)
        np.testing.assert_array_equal(opencl_device.download(zeros), np.ones(shape))


@pytest.mark.parametrize("block", [1, 32, 96, 1024])
def test_grid_counts_blocks(opencl_device: Device, block: int) -> None:
    kernel = opencl_device.compile(REVERSE, ["reverse"]).kernel("reverse")
    array = np.arange(3 * block, dtype=np.float32)
    with opencl_device.upload(array) as buffer:
        event = kernel.launch((3,), (block,), (buffer,), shared=4 * block)
        expected = array.reshape(3, block)[:, ::-1].ravel()
        np.testing.assert_array_equal(opencl_device.download(buffer), expected)
        assert event.seconds() > 0


def test_a_block_that_nvidia_compiled_a_kernel_for_is_one_that_it_can_have(opencl_device: Device) -> None:
    """The driver is not here: what it answers, and that it refuses a launch, are as it was seen to do."""
    assert isinstance(opencl_device, OpenCLDevice)
    cl = opencl_device.cl
    info = cl.kernel_work_group_info

    def answer(what: int, device: object) -> int | list[int]:
        return {info.WORK_GROUP_SIZE: 256, info.COMPILE_WORK_GROUP_SIZE: [512, 1, 1]}.get(what, 0)

    def refuse(*given: object) -> None:
        raise cl.LogicError("clEnqueueNDRangeKernel failed: OUT_OF_RESOURCES")

    handle = SimpleNamespace(num_args=0, get_work_group_info=answer)
    facts = SimpleNamespace(platform="NVIDIA CUDA", name="GPU", max_block_size=1024, local_memory=49152)
    language = SimpleNamespace(kernel_work_group_info=info, Error=cl.Error, enqueue_nd_range_kernel=refuse)
    nvidia: Any = SimpleNamespace(cl=language, info=facts, handle=None, queue=None)
    kernel = OpenCLKernel(nvidia, "k", handle)
    assert kernel.resources()["max_block_size"] == 512
    with pytest.raises(LaunchLimitError, match="OUT_OF_RESOURCES"):
        kernel.launch((1,), (512,))
    with pytest.raises(LaunchLimitError, match="a block of 1024 is above the 512"):
        kernel.launch((1,), (1024,))
    assert OpenCLKernel(opencl_device, "k", handle).resources()["max_block_size"] == 256, "others mean what they say"


def test_launches_run_in_order(opencl_device: Device) -> None:
    kernel = opencl_device.compile(SCALE, ["scale"]).kernel("scale")
    with opencl_device.upload(np.ones(64, np.float32)) as buffer:
        first = opencl_device.mark()
        for _ in range(10):
            kernel.launch((2,), (32,), (buffer, np.float32(2)))
        last = opencl_device.mark()
        opencl_device.synchronize()
        assert opencl_device.download(buffer)[0] == 1024
        assert last.seconds_since(first) > 0


def test_float64(opencl_device: Device) -> None:
    source = "kernel void third(global double* a) { a[get_global_id(0)] /= 3; }"
    with opencl_device.upload(np.ones(4)) as buffer:
        opencl_device.compile(source, ["third"]).kernel("third").launch((1,), (4,), (buffer,)).wait()
        np.testing.assert_array_equal(opencl_device.download(buffer), np.ones(4) / 3)


def test_compile_error_has_the_log(opencl_device: Device) -> None:
    with pytest.raises(CompileError, match="undeclared_name"):
        opencl_device.compile("kernel void broken(global int* a) { a[0] = undeclared_name; }", ["broken"])
    with pytest.raises(CompileError, match="other"):
        opencl_device.compile(SCALE, ["other"])


def test_warnings_of_the_compiler_are_kept(opencl_device: Device) -> None:
    program = opencl_device.compile('#warning "look here"\n' + SCALE, ["scale"])
    assert "look here" in program.log


def test_options_reach_the_compiler(opencl_device: Device) -> None:
    source = "kernel void put(global int* a) { a[0] = VALUE; }"
    with opencl_device.zeros(1, np.int32) as buffer:
        kernel = opencl_device.compile(source, ["put"], ["-DVALUE=42"]).kernel("put")
        kernel.launch((1,), (1,), (buffer,)).wait()
        assert opencl_device.download(buffer)[0] == 42


def test_wrong_arguments(opencl_device: Device) -> None:
    kernel = opencl_device.compile(SCALE, ["scale"]).kernel("scale")
    with opencl_device.zeros(64, np.float32) as buffer:
        with pytest.raises(LaunchError, match=r"'scale'.*takes 2 arguments, 1 were given"):
            kernel.launch((1,), (64,), (buffer,))
        with pytest.raises(LaunchError, match=r"'scale'.*argument 1: .*ARG_SIZE"):
            kernel.launch((1,), (64,), (buffer, np.float64(2)))
        with pytest.raises(LaunchError, match="argument 1 is a float"):
            kernel.launch((1,), (64,), (buffer, 2.0))  # type: ignore[arg-type]
        with pytest.raises(LaunchError, match="block of .* is above"):
            kernel.launch((1,), (10**6,), (buffer, np.float32(2)))
        with pytest.raises(LaunchError, match="at least 1"):
            kernel.launch((0,), (64,), (buffer, np.float32(2)))
    with pytest.raises(LaunchError, match="already released"):
        kernel.launch((1,), (64,), (buffer, np.float32(2)))


def test_too_much_local_memory_is_an_error(opencl_device: Device) -> None:
    """PoCL would abort the process."""
    limit = opencl_device.info.local_memory
    source = f"""kernel void big(global float* a) {{
        local float t[{limit // 4 + 256}];
        size_t i = get_local_id(0);
        t[i] = a[i];
        barrier(CLK_LOCAL_MEM_FENCE);
        a[i] = t[(i * 7919) % ({limit // 4 + 256})];
    }}"""
    with opencl_device.zeros(64, np.float32) as buffer:
        try:
            kernel = opencl_device.compile(source, ["big"]).kernel("big")
        except CompileError:
            pass
        else:
            with pytest.raises(LaunchError, match="bytes of shared memory"):
                kernel.launch((1,), (64,), (buffer,))
        reverse = opencl_device.compile(REVERSE, ["reverse"]).kernel("reverse")
        with pytest.raises(LaunchError, match="bytes of shared memory"):
            reverse.launch((1,), (64,), (buffer,), shared=limit + 1)


def test_buffers_that_do_not_fit(opencl_device: Device) -> None:
    limit = opencl_device.info.max_allocation
    with pytest.raises(DeviceMemoryError, match=f"at most {limit:,} bytes"):
        opencl_device.alloc(limit + 1, np.uint8)
    with pytest.raises(InputError, match="negative"):
        opencl_device.alloc((3, -1), np.uint8)


def test_rows_outside_are_refused(opencl_device: Device) -> None:
    with opencl_device.zeros((4, 2), np.float32) as buffer:
        with pytest.raises(InputError, match=r"rows 3\.\.5"):
            opencl_device.write(buffer, np.ones((2, 2), np.float32), offset=3)
        with pytest.raises(InputError, match="convert the array to float32"):
            opencl_device.write(buffer, np.ones((2, 2)))
        with pytest.raises(InputError, match=r"rows 2\.\.5"):
            opencl_device.download_range(buffer, 2, 5)
        for rows in ([-1, 2], [3, 4]):
            with pytest.raises(InputError, match=rf"rows {rows[0]}\.\.{rows[1]} are not within"):
                opencl_device.download_rows(buffer, np.array(rows))


def test_close_releases_buffers(opencl_device: Device) -> None:
    with OpenCLDevice(opencl_device.info) as device:
        buffer = device.zeros(1000, np.float32)
        assert device.allocated == 4000
    assert buffer.released
    assert device.allocated == 0


@pytest.mark.slow
def test_more_than_4_gib_in_one_buffer(opencl_device: Device) -> None:
    size = 2**32 + 2**20
    if opencl_device.info.max_allocation < size:
        pytest.skip(f"{opencl_device.info.platform} allows {opencl_device.info.max_allocation:,} bytes here")
    with opencl_device.alloc((size // 1024, 1024), np.uint8) as buffer:
        last = np.full((1, 1024), 7, np.uint8)
        opencl_device.write(buffer, last, offset=buffer.shape[0] - 1)
        source = "kernel void inc(global uchar* a, ulong i) { a[i] += 1; }"
        kernel = opencl_device.compile(source, ["inc"]).kernel("inc")
        kernel.launch((1,), (1,), (buffer, np.uint64(size - 1)))
        row = opencl_device.download_range(buffer, buffer.shape[0] - 1, buffer.shape[0])
        assert row[0, 0] == 7
        assert row[0, -1] == 8


def test_a_child_process_sees_the_same_device(opencl_device: Device) -> None:
    """Measurements run in processes of their own."""
    spec = "pocl" if "Portable" in opencl_device.info.platform else "intel"
    code = f"from mmsbgen.backends import open_device\nprint(open_device({spec!r}).info.platform)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == opencl_device.info.platform


@pytest.mark.parametrize(("extensions", "sizes"), [((), ()), (("cl_khr_fp64", "cl_khr_subgroups"), (32,))])
def test_warps_are_sub_groups_only_where_the_language_has_them(
    extensions: tuple[str, ...], sizes: tuple[int, ...]
) -> None:
    """NVIDIA's OpenCL tells the size of a warp but has no sub-group functions."""
    from mmsbgen.backends.opencl.opencl_device import _sub_group_sizes

    assert _sub_group_sizes(SimpleNamespace(warp_size_nv=32), extensions) == sizes
