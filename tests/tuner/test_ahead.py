"""What is compiled ahead is what the measuring process would compile, and it finds it."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mmsbgen.backends import Device, DeviceInfo
from mmsbgen.backends._binary_cache import BinaryCache
from mmsbgen.backends.cuda_compile import compile_cuda
from mmsbgen.build import compiler_options, traits_of
from mmsbgen.db.canonical import digest
from mmsbgen.db.store import Store
from mmsbgen.families import family
from mmsbgen.host import available_host_memory
from mmsbgen.rendering import render
from mmsbgen.tuner.ahead import CompileAhead, default_jobs
from mmsbgen.tuner.measure import Limits, Measurer
from mmsbgen.tuner.search import candidates
from mmsbgen.tuner.timing import Patience
from mmsbgen.tuner.tune import tune
from tests.devices import H200

PROBLEM = family().problem(K=32, m=16, n=8, N=100)
PHI = family().kernel("update_phi")
HASTY = Patience(repetitions=3, enough_s=0.0)
FIXED = {"placement": ("THREAD", "GLOBAL"), "team": "item", "vector_width": (4, 16), "block_size": (1, 16)}


class Compiler:
    """Compiles nothing, and counts how often it began to; while the gate is shut it does not come to an end."""

    version = "none 1"

    def __init__(self, shut: bool = False) -> None:
        self.began: list[str] = []
        self.gate = threading.Event()
        if not shut:
            self.gate.set()

    @property
    def calls(self) -> int:
        return len(self.began)

    def compile(self, source: str, options: Sequence[str]) -> tuple[bytes, str]:
        self.began.append(source)
        assert self.gate.wait(200)
        return b"cubin", ""

    def await_calls(self, count: int) -> None:
        deadline = time.monotonic() + 200
        while self.calls < count:
            assert time.monotonic() < deadline, f"only {self.calls} began"
            time.sleep(0.01)


def configs_of(info: DeviceInfo, count: int) -> list[dict[str, Any]]:
    return candidates(PHI, PROBLEM, traits_of(info)).configs[:count]


def test_cuda_sources_are_compiled_without_a_device_and_found_in_the_cache(tmp_path: Path) -> None:
    compiler, cache, configs = Compiler(), BinaryCache(tmp_path), configs_of(H200, 9)
    with CompileAhead(H200, "mmsb", PROBLEM, 3, compiler=compiler, cache=cache) as ahead:
        ahead.begin("update_phi")
        assert not ahead.before
        ahead.ask(configs)
        ahead.wait()
        assert set(ahead.seconds) == {digest(config) for config in configs}
    assert compiler.calls == 9
    for config in configs:
        text = render(PHI, PROBLEM, config, traits_of(H200)).text
        compile_cuda(text, "sm_90", compiler_options(traits_of(H200)), compiler=compiler, cache=cache)
    assert compiler.calls == 9


def test_what_is_asked_for_later_goes_first_and_nothing_is_compiled_twice(tmp_path: Path) -> None:
    compiler, cache, configs = Compiler(shut=True), BinaryCache(tmp_path), configs_of(H200, 12)
    with CompileAhead(H200, "mmsb", PROBLEM, 2, compiler=compiler, cache=cache) as ahead:
        ahead.begin("update_phi")
        ahead.ask(configs[:10])
        compiler.await_calls(2)
        ahead.ask(configs[9:])
        compiler.gate.set()
        ahead.wait()
        wanted = {digest(config) for config in (*configs[:2], *configs[9:])}
        assert set(ahead.seconds) == wanted, "two had begun when the others were forgotten"
        ahead.ask(configs[9:])
        ahead.wait()
    assert compiler.calls == len(set(compiler.began)) == 5


def test_the_end_of_the_time_is_kept(tmp_path: Path) -> None:
    compiler, cache, configs = Compiler(shut=True), BinaryCache(tmp_path), configs_of(H200, 20)
    asked = []

    def stop() -> bool:
        asked.append("stop")
        if len(asked) > 1:  # the others were forgotten when this was asked first
            compiler.gate.set()
        return True

    with CompileAhead(H200, "mmsb", PROBLEM, 2, compiler=compiler, cache=cache) as ahead:
        ahead.begin("update_phi")
        ahead.ask(configs)
        compiler.await_calls(2)
        ahead.wait(stop)
    assert compiler.calls == 2


def test_a_core_is_left_to_what_measures_beside() -> None:
    cores = len(os.sched_getaffinity(0))
    assert default_jobs(H200) == min(16, cores - 1)


@pytest.mark.alone
def test_compilers_share_the_memory_that_there_is() -> None:
    available = available_host_memory()[0]
    with CompileAhead(H200, "mmsb", PROBLEM, 16) as ahead:
        limits = [child.limits.memory_bytes for child in ahead._children]
    assert len(limits) == 16
    assert 0.4 * available < sum(limit or math.inf for limit in limits) < 0.99 * available, "which moves meanwhile"
    with CompileAhead(H200, "mmsb", PROBLEM, 16, limits=Limits(memory_bytes=1 << 30)) as ahead:
        assert {child.limits.memory_bytes for child in ahead._children} == {1 << 30}


@pytest.mark.opencl
def test_a_later_process_compiles_nothing_anew(
    opencl_device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same block size: PoCL finishes a kernel at its first launch, for the size of a block."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path / "pocl"))
    info = opencl_device.info
    configs = configs_of(info, 4)
    with CompileAhead(info, "mmsb", PROBLEM, 2) as ahead:
        ahead.begin("update_phi")
        assert ahead.before
        ahead.ask(configs)
        ahead.wait()
        assert set(ahead.seconds) == {digest(config) for config in configs}
    made = compiled(tmp_path)
    assert len(made) >= 4
    with Measurer(info.spec, "mmsb") as measurer:
        measurer.load("update_phi", PROBLEM)
        outcomes = [measurer.measure(config, patience=HASTY) for config in configs]
    assert [outcome.status for outcome in outcomes] == ["ok"] * 4
    assert compiled(tmp_path) == made


def compiled(folder: Path) -> set[Path]:
    """Compiled kernels of the package's cache and of PoCL's."""
    return {path for path in folder.rglob("*") if path.suffix in (".bin", ".so")}


@pytest.mark.opencl
def test_a_tune_compiles_ahead_and_finds_the_same(opencl_device: Device, store: Store) -> None:
    report = tune(
        opencl_device.info.spec,
        "mmsb",
        ["update_phi"],
        PROBLEM,
        store=store,
        budget_trials=8,
        fixed=FIXED,
        patience=HASTY,
        roof_bytes=1 << 20,
        compilers=2,
    )
    (kernel,) = report.kernels
    assert [trial.status for trial in kernel.trials] == ["ok"] * 8
    assert sum("ahead_s" in trial.extra for trial in kernel.trials) >= 6
    assert all(trial.extra.get("ahead_s", 1) > 0 for trial in kernel.trials)
