"""CUDA C compiles to machine code on machines without a GPU."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import psutil
import pytest

from mmsbgen.backends.binary_cache import BinaryCache
from mmsbgen.backends.nvidia import cuda_compile, cuda_device, held_launches
from mmsbgen.backends.nvidia.cuda_compile import (
    CudaCompiler,
    Nvcc,
    compile_cuda,
    compile_side_by_side,
    find_compiler,
    parse_resources,
)
from mmsbgen.backends.nvidia.nvrtc import Nvrtc, NvrtcProcesses
from mmsbgen.base.errors import CompileError, InputError, MissingDependencyError

SOURCE = """
extern "C" __global__ void axpy(float* y, const float* x, float a) {
    __shared__ float s[128];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] += a * s[127 - threadIdx.x];
}
extern "C" __global__ void __launch_bounds__(1024, 2) spills(float* y, int n) {
    float v[200];
    #pragma unroll
    for (int i = 0; i < 200; ++i) v[i] = y[i * n + threadIdx.x];
    #pragma unroll
    for (int i = 0; i < 200; ++i) y[i * n] = v[199 - i] * v[i];
}
"""


@pytest.fixture(params=["nvcc", "nvrtc"])
def compiler(request: pytest.FixtureRequest) -> CudaCompiler:
    name: Literal["nvcc", "nvrtc"] = request.param
    try:
        return find_compiler(name)
    except MissingDependencyError as error:
        if name == "nvrtc":
            pytest.fail(f"NVRTC belongs to the development install: {error}")
        pytest.skip("no nvcc on this machine")


@pytest.mark.slow
def test_the_kernel_that_holds_a_stream_compiles(compiler: CudaCompiler) -> None:
    assert compile_cuda(held_launches.SPIN, compiler=compiler).resources["hold"].spill_stores == 0


@pytest.mark.slow
def test_the_kernels_that_gather_rows_compile(compiler: CudaCompiler) -> None:
    found = compile_cuda(cuda_device.GATHER, "sm_90", compiler=compiler)
    assert set(found.resources) == {"gather_words", "gather_bytes"}


@pytest.mark.slow
def test_reports_resources(compiler: CudaCompiler) -> None:
    compiled = compile_cuda(SOURCE, compiler=compiler)
    assert compiled.cubin.startswith(b"\x7fELF")
    assert set(compiled.resources) == {"axpy", "spills"}
    axpy, spills = compiled.resources["axpy"], compiled.resources["spills"]
    assert axpy.shared_bytes == 512
    assert 0 < axpy.registers < 64
    assert axpy.spill_stores == 0
    assert spills.registers == 32
    assert spills.spill_stores > 0


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120"])
def test_other_architectures(compiler: CudaCompiler, arch: str) -> None:
    assert compile_cuda(SOURCE, arch, compiler=compiler).resources["axpy"].shared_bytes == 512


@pytest.mark.slow
def test_headers_of_cuda_are_found(compiler: CudaCompiler) -> None:
    source = '#include <cuda_bf16.h>\nextern "C" __global__ void up(float* a, __nv_bfloat16* b) { *a = float(*b); }'
    assert "up" in compile_cuda(source, compiler=compiler).resources


def test_errors_have_the_log(compiler: CudaCompiler) -> None:
    with pytest.raises(CompileError, match="undeclared_name"):
        compile_cuda('extern "C" __global__ void k(int* a) { *a = undeclared_name; }', compiler=compiler)


def test_unknown_architecture() -> None:
    with pytest.raises(InputError, match="'hopper'"):
        compile_cuda(SOURCE, "hopper")


class Counting:
    version = "counting 1"

    def __init__(self) -> None:
        self.calls = 0
        self.options: list[str] = []

    def compile(self, source: str, options: Sequence[str]) -> tuple[bytes, str]:
        self.calls += 1
        self.options = list(options)
        return source.encode(), "log"


def test_cache_knows_source_options_compiler_and_architecture(tmp_path: Path) -> None:
    compiler, cache = Counting(), BinaryCache(tmp_path)
    for _ in range(2):
        assert compile_cuda("a", compiler=compiler, cache=cache).cubin == b"a"
    assert compiler.calls == 1
    compile_cuda("b", compiler=compiler, cache=cache)
    compile_cuda("a", options=["-DX"], compiler=compiler, cache=cache)
    compile_cuda("a", "sm_80", compiler=compiler, cache=cache)
    compiler.version = "counting 2"
    compile_cuda("a", compiler=compiler, cache=cache)
    assert compiler.calls == 5


@pytest.mark.parametrize(
    ("arch", "source", "target"),
    [("sm_90", "wgmma.fence", "sm_90a"), ("sm_90", "mma.sync", "sm_90"), ("sm_100", "wgmma.fence", "sm_100")],
)
def test_what_one_architecture_alone_has_is_compiled_for_it(arch: str, source: str, target: str) -> None:
    compiler = Counting()
    compile_cuda(source, arch, compiler=compiler)
    assert f"--gpu-architecture={target}" in compiler.options


def test_side_by_side_all_but_what_is_refused_gets_into_the_cache(tmp_path: Path) -> None:
    class Meeting(Counting):
        def compile(self, source: str, options: object) -> tuple[bytes, str]:
            if source == "wrong":
                raise CompileError("no")
            meeting.wait()
            return super().compile(source, options)

    cores = len(os.sched_getaffinity(0))
    meeting = threading.Barrier(min(2, cores), timeout=20)
    compiler, cache = Meeting(), BinaryCache(tmp_path)
    compile_side_by_side(["a", "wrong", "b"], "sm_90", ["-DX"], compiler=compiler, cache=cache)
    assert compiler.calls == 2
    for source in ("a", "b"):
        assert compile_cuda(source, "sm_90", ["-DX"], compiler=compiler, cache=cache).cubin == source.encode()
    assert compiler.calls == 2


def test_says_how_to_get_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_compile, "nvcc_path", lambda: None)
    monkeypatch.setattr(cuda_compile, "has_nvrtc", lambda: False)
    with pytest.raises(MissingDependencyError, match=r"pip install 'mmsbgen\[nvrtc\]'"):
        find_compiler()


@pytest.mark.parametrize(("fits", "chosen"), [(True, Nvrtc), (False, Nvcc)])
def test_nvrtc_is_used_where_the_driver_loads_what_it_compiles(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fits: bool, chosen: type
) -> None:
    monkeypatch.setattr(Nvrtc, "fits_driver", lambda self: fits)
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\necho release 13.0, V13.0.88\n")
    nvcc.chmod(0o755)
    monkeypatch.setattr(cuda_compile, "nvcc_path", lambda: str(nvcc))
    assert isinstance(find_compiler(), chosen)
    assert isinstance(find_compiler("nvcc"), Nvcc)
    assert isinstance(find_compiler("nvrtc"), Nvrtc)


@pytest.mark.slow
def test_several_processes_compile_side_by_side() -> None:
    compiler = NvrtcProcesses(2)
    target = ["--gpu-architecture=sm_90"]
    with ThreadPoolExecutor(3) as pool:
        found = [pool.submit(compiler.compile, source, target) for source in (SOURCE, "wrong", "", SOURCE)]
    assert found[0].result()[0] == found[3].result()[0] == Nvrtc().compile(SOURCE, target)[0]
    assert found[2].exception() is None
    with pytest.raises(CompileError, match=r"refused the source(.|\n)*wrong"):
        found[1].result()
    children = [child.pid for child in compiler._started]
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    with ThreadPoolExecutor(2) as pool:
        ends = [pool.submit(compiler.compile, SOURCE, target).exception() for _ in children]
    assert {str(end) for end in ends if end} == {f"{compiler.version}: the process died: SIGKILL"}
    assert compiler.compile(SOURCE, target)[0] == found[0].result()[0], "another process took its place"
    assert len(compiler._started) <= 2
    compiler.cancel()
    with pytest.raises(CompileError, match="cancelled"):
        compiler.compile(SOURCE, target)
    assert not any(psutil.pid_exists(pid) for pid in children)


def test_a_log_without_kernels() -> None:
    assert parse_resources("ptxas info    : 0 bytes gmem") == {}
