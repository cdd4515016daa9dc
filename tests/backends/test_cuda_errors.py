"""What the CUDA backend makes of the driver's errors, by a driver on the host and the real compiler."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mmsbgen.backends.base import Buffer, LaunchName
from mmsbgen.backends.binary_cache import BinaryCache
from mmsbgen.backends.nvidia import cuda_device
from mmsbgen.backends.nvidia.cuda_compile import CudaCompiler, find_compiler
from mmsbgen.backends.nvidia.cuda_device import CudaDevice
from mmsbgen.backends.nvidia.launch_errors import after, recent_launches
from mmsbgen.base.errors import CompileError, DeviceMemoryError, LaunchError
from tests.backends.cuda_driver import ILLEGAL, Driver

SOURCE = """
extern "C" __global__ void scale(float* a, float s) { a[threadIdx.x] *= s; }
extern "C" __global__ void shift(float* a) { a[threadIdx.x] += 1; }
extern "C" __global__ void outside(float* a) { a[1ull << 40] = 1; }
"""
NAMES = ["scale", "shift", "outside"]


class Counting:
    """A compiler that counts what it compiles."""

    def __init__(self, compiler: CudaCompiler) -> None:
        self.compiler, self.version, self.calls = compiler, compiler.version, 0

    def compile(self, source: str, options: Sequence[str]) -> tuple[bytes, str]:
        self.calls += 1
        return self.compiler.compile(source, options)


@pytest.fixture(scope="module")
def cubin() -> tuple[bytes, str]:
    """SOURCE for the driver's GPU, and the compiler's log."""
    return find_compiler().compile(SOURCE, ["--gpu-architecture=sm_80", "--ptxas-options=-v"])


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def compiler() -> Counting:
    return Counting(find_compiler())


@pytest.fixture
def device(
    driver: Driver, compiler: Counting, private_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CudaDevice]:
    monkeypatch.setattr(cuda_device, "_driver", lambda: driver)
    monkeypatch.setattr(cuda_device, "find_compiler", lambda: compiler)
    (info,), hints = cuda_device.discover()
    assert (info.architecture, hints) == ("sm_80", [])
    with CudaDevice(info) as opened:
        yield opened
    assert driver.pushed == 0


@pytest.mark.parametrize(
    ("works", "version"), [(True, "580.159.03 (CUDA 13.0)"), (False, "CUDA 13.0"), (None, "CUDA 13.0")]
)
def test_the_driver_is_told_by_nvml_where_it_is_there(
    driver: Driver, compiler: Counting, monkeypatch: pytest.MonkeyPatch, works: bool | None, version: str
) -> None:
    """None: there is no such library."""

    def version_into(text: Any, size: int) -> int:
        assert size == len(text)
        text.value = b"580.159.03"
        return 0

    def load(name: str) -> SimpleNamespace:
        if works is None:
            raise OSError(f"{name}: cannot open shared object file")
        return SimpleNamespace(
            nvmlInit_v2=lambda: 0 if works else 9,
            nvmlSystemGetDriverVersion=version_into,
            nvmlShutdown=lambda: 0,
        )

    library = SimpleNamespace(CDLL=load, create_string_buffer=ctypes.create_string_buffer)
    monkeypatch.setattr(cuda_device, "_driver", lambda: driver)
    monkeypatch.setattr(cuda_device, "find_compiler", lambda: compiler)
    monkeypatch.setattr(driver, "get_driver_version", lambda: 13000)
    monkeypatch.setattr(cuda_device, "ctypes", library)
    # None in the place of a module is one that is not installed.
    monkeypatch.setitem(sys.modules, "pynvml", None)
    (info,), _ = cuda_device.discover()
    assert info.driver == version


class TestFailedKernels:
    """Two kernels run well and are waited for; then one fails, and one is launched after it."""

    @pytest.fixture
    def buffer(self, device: CudaDevice, cubin: tuple[bytes, str], monkeypatch: pytest.MonkeyPatch) -> Buffer:
        monkeypatch.setattr(Counting, "compile", lambda *_: cubin)
        program = device.compile(SOURCE, NAMES)
        self.scale, self.shift, self.outside = (program.kernel(name) for name in NAMES)
        self.scale.configuration = "block_size=64"
        self.outside.configuration = "block_size=32 placement=RRS"
        return device.zeros(32, np.float32)

    def fail(self, device: CudaDevice, buffer: Buffer) -> None:
        self.shift.launch((1,), (1,), (buffer,))
        self.scale.launch((1,), (1,), (buffer, np.float32(2)))
        device.synchronize()
        for number in range(20):
            self.outside.launch((1 + number,), (1,), (buffer,))
        self.scale.launch((1,), (1,), (buffer, np.float32(2)))

    NAMED = r", after kernels 'outside' \(block_size=32 placement=RRS\), 'scale' \(block_size=64\): .*" + ILLEGAL

    def test_are_named_by_a_read(self, device: CudaDevice, buffer: Buffer) -> None:
        self.fail(device, buffer)
        with pytest.raises(LaunchError, match="cannot read from CudaBuffer.*" + self.NAMED):
            device.download(buffer)

    def test_are_named_by_a_write(self, device: CudaDevice, buffer: Buffer) -> None:
        with device.alloc(2**21, np.float32) as large:
            self.fail(device, buffer)
            with pytest.raises(LaunchError, match="cannot write to CudaBuffer.*" + self.NAMED):
                device.write(large, np.zeros(2**21, np.float32))

    def test_are_named_by_who_synchronizes(self, device: CudaDevice, buffer: Buffer) -> None:
        self.fail(device, buffer)
        for _ in range(2):
            with pytest.raises(LaunchError, match="queued work on NVIDIA A100 failed" + self.NAMED):
                device.synchronize()

    @pytest.mark.parametrize("profiling", [True, False])
    def test_are_named_by_who_waits_for_an_event(self, device: CudaDevice, buffer: Buffer, profiling: bool) -> None:
        device.profiling = profiling
        self.fail(device, buffer)
        event = self.shift.launch((3,), (4,), (buffer,))
        meanwhile = "" if profiling else " or a launch after it"
        named = self.NAMED.replace(": .*", ", 'shift': .*")
        of = rf"kernel 'shift', grid \(3,\), block \(4,\){meanwhile} failed while running"
        with pytest.raises(LaunchError, match=of + named):
            event.wait()

    def test_are_named_by_what_is_refused_from_then_on(self, device: CudaDevice, buffer: Buffer) -> None:
        self.fail(device, buffer)
        with pytest.raises(LaunchError):
            device.synchronize()
        refused: list[tuple[type[Exception], Callable[[], object]]] = [
            (LaunchError, lambda: self.shift.launch((1,), (1,), (buffer,))),
            (LaunchError, lambda: device.write(buffer, np.zeros(32, np.float32))),
            (LaunchError, lambda: device.copy(buffer, buffer)),
            (LaunchError, device.mark),
            (DeviceMemoryError, lambda: device.alloc(1, np.uint8)),
            (CompileError, lambda: device.compile(SOURCE, NAMES)),
        ]
        for kind, call in refused:
            with pytest.raises(kind, match=self.NAMED):
                call()

    def test_a_launch_that_is_refused_leaves_those_before_out(self, device: CudaDevice, buffer: Buffer) -> None:
        self.shift.launch((1,), (1,), (buffer,))
        with pytest.raises(LaunchError, match=r"kernel 'shift', grid \(2147483648,\), block \(1,\): .*invalid value"):
            self.shift.launch((1 << 31,), (1,), (buffer,))
        assert device.download(buffer).sum() == 0

    def test_what_was_waited_for_is_forgotten(self, device: CudaDevice, buffer: Buffer) -> None:
        device.profiling = False
        for number in range(3):
            event = self.shift.launch((1,), (1,), (buffer,))
            assert [launch.kernel for launch in device.recent] == ["shift"]
            (device.synchronize, lambda: device.download(buffer), event.wait)[number]()
            assert not device.recent


def test_each_kernel_is_told_once_and_the_last_one_last() -> None:
    launches = recent_launches()
    assert after(launches) == ""
    launches += [LaunchName("old", (1,), (1,))]
    launches += [LaunchName(name, (size,), (1,), "x=1" if name == "b" else "") for size in range(8) for name in "ba"]
    assert after(launches) == ", after kernels 'b' (x=1), 'a'", "the oldest are forgotten"
    launches.append(LaunchName("b", (1,), (1,), "x=1"))
    assert after(launches) == ", after kernels 'a', 'b' (x=1)"
    launches.append(LaunchName("b", (1,), (1,), "x=2"))
    assert after(launches) == ", after kernels 'a', 'b' (x=1), 'b' (x=2)"
    assert after(list(launches)[-1:]) == ", after kernel 'b' (x=2)"


def test_questions_about_the_device_are_named(device: CudaDevice, driver: Driver) -> None:
    assert device.pci_address() == "0000:17:00.0"
    driver.detached = True
    with pytest.raises(LaunchError, match="where cuda:0 is on the PCI bus is not known: .*no device"):
        device.pci_address()


class TestCompiledBefore:
    """Files of the cache that cannot be used."""

    @staticmethod
    def file(private_cache: Path) -> Path:
        (found,) = private_cache.glob("mmsbgen/kernels/*.bin")
        return found

    @pytest.mark.slow
    @pytest.mark.parametrize("left", [0, 20, 1000, -1])
    def test_one_that_was_cut_off_never_reaches_the_driver(
        self, device: CudaDevice, driver: Driver, compiler: Counting, private_cache: Path, left: int
    ) -> None:
        device.compile(SOURCE, NAMES)
        file = self.file(private_cache)
        cubin, _ = BinaryCache().load(file.stem) or (b"", "")
        file.write_bytes(file.read_bytes()[:left])
        device.compile(SOURCE, NAMES)
        device.compile(SOURCE, NAMES)
        assert (compiler.calls, len(driver.loaded), len(set(driver.loaded))) == (2, 3, 1)
        again, _ = BinaryCache().load(file.stem) or (b"", "")
        assert again == cubin != b""

    @pytest.mark.slow
    def test_one_that_does_not_load_is_compiled_anew(
        self, device: CudaDevice, driver: Driver, compiler: Counting, private_cache: Path
    ) -> None:
        device.compile(SOURCE, NAMES)
        cache, file = BinaryCache(), self.file(private_cache)
        cubin, log = cache.load(file.stem) or (b"", "")
        cache.store(file.stem, cubin[: len(cubin) // 2], log)
        program = device.compile(SOURCE, NAMES)
        assert program.kernel("scale").resources()["spill_bytes"] == 0
        assert [len(code) for code in driver.loaded] == [len(cubin), len(cubin) // 2, len(cubin)]
        assert (cache.load(file.stem) or (b"",))[0] == cubin
        device.compile(SOURCE, NAMES)
        assert compiler.calls == 2

    @pytest.mark.slow
    def test_the_second_failure_is_the_error(
        self, device: CudaDevice, driver: Driver, compiler: Counting, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        compile_, half = compiler.compiler.compile, []

        def broken(source: str, options: Sequence[str]) -> tuple[bytes, str]:
            cubin, log = compile_(source, options)
            half.append(len(cubin) // 2)
            return cubin[: half[-1]], log

        monkeypatch.setattr(compiler.compiler, "compile", broken)
        for tries, compiled in ((1, 1), (3, 2)):
            with pytest.raises(CompileError, match="kernels scale, shift, outside on .*: .*not load: .*invalid"):
                device.compile(SOURCE, NAMES)
            assert (len(driver.loaded), compiler.calls) == (tries, compiled), "just compiled ones are not tried again"
