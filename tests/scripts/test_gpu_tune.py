from __future__ import annotations

import importlib
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mmsbgen.backends import DeviceInfo
from mmsbgen.backends._binary_cache import BinaryCache
from mmsbgen.backends.cuda_compile import compile_cuda
from mmsbgen.build import compiler_options, traits_of
from mmsbgen.db import exchange
from mmsbgen.db.records import TrialRecord
from mmsbgen.db_keys import key_of
from mmsbgen.families import family
from mmsbgen.render import render
from mmsbgen.tuner.report import KernelReport
from mmsbgen.tuner.search import BudgetSpentError, candidates, search

GPU = DeviceInfo(
    backend="cuda",
    index=0,
    name="NVIDIA H200",
    vendor="NVIDIA",
    platform="CUDA",
    architecture="sm_90",
    driver="580",
    kind="gpu",
    compiler="none 1",
    compute_units=132,
    global_memory=2**37,
    max_allocation=2**37,
    local_memory=2**17,
    max_block_size=1024,
    sub_group_sizes=(32,),
)
PROBLEM = family().problem(K=100, m=7)
PHI = family().kernel("update_phi")


@pytest.fixture(scope="module")
def ahead() -> ModuleType:
    return importlib.import_module("_compile_ahead")


class Compiler:
    """Compiles nothing, and counts how often."""

    version = "none 1"

    def __init__(self) -> None:
        self.calls = 0

    def compile(self, source: str, options: Sequence[str]) -> tuple[bytes, str]:
        self.calls += 1
        return b"cubin", ""


def _report(budget: int | None = 40) -> KernelReport:
    space = candidates(PHI, PROBLEM, traits_of(GPU))
    return KernelReport("update_phi", key_of(GPU, PHI, PROBLEM), space, "", budget, None)


def _trial(report: KernelReport, config: Any, seconds: float) -> TrialRecord:
    trial = TrialRecord(run="0" * 32, key=report.key, config=dict(config), status="ok", times=(seconds,))
    report.trials.append(trial)
    return trial


def test_it_begins_with_what_the_strategy_tries_first(ahead: ModuleType) -> None:
    """The real search measures other times, and begins with the same sample all the same."""
    report, rng, tried = _report(), random.Random(5), []

    def measure(configs: Sequence[Any]) -> list[float]:
        if len(tried) >= 40:
            raise BudgetSpentError
        tried.extend(configs)
        return [rng.random() for _ in configs]

    search("default", report.space, measure, budget=40, seed=3)
    first = ahead.beginning("default", report.space, 40, 3)
    assert len(first) == 8
    assert tried[: len(first)] == first


def test_the_device_finds_what_was_compiled_ahead(ahead: ModuleType, tmp_path: Path) -> None:
    compiler, cache, report = Compiler(), BinaryCache(tmp_path), _report()
    first = ahead.beginning("default", report.space, 40, 0)
    with ahead.CompileAhead(GPU, family(), PROBLEM, 2, compiler=compiler, cache=cache) as progress:
        progress.kernel(report)
        distinct = {str(config) for config in first}
        _until(lambda: progress.compiled == len(distinct))
        best = first[0]
        progress.trial(report, _trial(report, best, 1e-3))
        near = ahead.neighbours(report.space.configs, best)
        _until(lambda: progress.compiled == len(distinct | {str(config) for config in near}))
        progress.trial(report, _trial(report, first[1], 2e-3))
        time.sleep(0.05)
        made = compiler.calls
    assert made == progress.compiled, "a slower one asks for nothing"
    for config in [first[0], first[-1], near[0], near[-1]]:
        text = render(PHI, PROBLEM, config, traits_of(GPU)).text
        compile_cuda(text, "sm_90", compiler_options(traits_of(GPU)), compiler=compiler, cache=cache)
    assert compiler.calls == made


def _until(done: Any) -> None:
    end = time.monotonic() + 30
    while not done():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_nothing_is_compiled_ahead_of_the_end_or_for_another_backend(ahead: ModuleType, tmp_path: Path) -> None:
    compiler, report = Compiler(), _report(budget=4)
    report.deadline = time.monotonic() + 1
    with ahead.CompileAhead(GPU, family(), PROBLEM, 1, compiler=compiler, cache=BinaryCache(tmp_path)) as progress:
        progress.trial(report, _trial(report, report.space.default, 1e-3))
    assert compiler.calls == 0, "the time is almost up"
    info = GPU.__class__(**{**{name: getattr(GPU, name) for name in GPU.__slots__}, "backend": "opencl"})
    with ahead.CompileAhead(info, family(), PROBLEM, 1, compiler=compiler, cache=BinaryCache(tmp_path)) as progress:
        progress.kernel(report)
    assert compiler.calls == 0


def test_neighbours_differ_in_one_axis(ahead: ModuleType) -> None:
    report = _report()
    near = ahead.neighbours(report.space.configs, report.space.default)
    assert near
    assert all(len(set(config.items()) - set(report.space.default.items())) == 1 for config in near)


def test_parts_begin_with_update_phi() -> None:
    script = importlib.import_module("gpu_tune")
    blocks = {"m": 16384, "n": 1024, "products": "half"}
    found = script.parts((128, 256), {"m": 4096, "n": 32, "N": 317080}, 60.0, 15.0, blocks)
    assert [(p.kernels[0], p.problem["K"], p.problem["step"], p.problem["noise"]) for p in found[:4]] == [
        ("update_phi", 128, "split", "on"),
        ("update_phi", 256, "split", "on"),
        ("update_phi", 128, "reflected", "off"),
        ("update_phi", 256, "reflected", "off"),
    ]
    stars, blocked = found[4:6], found[6:]
    assert {p.seconds / len(p.kernels) for p in found[4:]} == {15.0}
    for p in stars:
        assert "theta_partial" in p.kernels
        assert not any(name.startswith("block_") for name in p.kernels)
    for p in blocked:
        assert {"block_scales", "block_sums", "block_links", "shared_partners", "theta_end"} <= set(p.kernels)
        assert "block_shared" not in p.kernels
        assert (p.problem["m"], p.problem["n"], p.problem["noise"]) == (16384, 1024, "off")
    assert set(stars[0].kernels) | set(blocked[0].kernels) | {"update_phi", "block_shared"} == set(family().tuned)
    assert len(script.parts((128,), {}, 60.0, 0.0, {})) == 2
    assert script.slug(GPU) == "nvidia-h200"


def test_a_sweep_has_every_placement_that_is_valid() -> None:
    script = importlib.import_module("gpu_tune")
    found = script.sweep(GPU, (128, 2048, 900), {"n": 32}, 5.0)
    assert {part.problem["K"] for part in found} == {900}
    assert {part.strategy for part in found} == {"exhaustive"}
    (placements,) = (axis.values for axis in PHI.space.axes if axis.name == "placement")
    assert [part.fixed["placement"] for part in found] == [*placements, *placements]
    assert {(part.fixed["vector_width"], part.fixed["rows_in_flight"]) for part in found} == {(4, 2)}
    few = script.sweep(GPU, (2**18,), {"n": 32}, 5.0)
    assert {"GLOBAL"} <= {part.fixed["placement"] for part in few} < set(placements), "rows too long for the others"


@pytest.mark.opencl
@pytest.mark.usefixtures("pocl_device")
def test_the_script_tunes_exports_and_goes_on(scripts: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(scripts / "gpu_tune.py"), "--device", "pocl", "--output", str(tmp_path)]
    command += ["-k", "16", "-N", "2000", "-m", "64", "-n", "4", "--roof-mib", "16", "--seconds", "20", "--trials", "2"]

    def run() -> Any:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
        assert done.returncode == 0, done.stderr
        (file,) = tmp_path.glob("portable-*.jsonl")
        return exchange.read(file)

    bundle = run()
    assert {trial.key.kernel.name for trial in bundle.trials} == {"update_phi"}
    steps = {(trial.key.problem.params["step"], trial.key.problem.params["noise"]) for trial in bundle.trials}
    assert steps == {("split", "on"), ("reflected", "off")}
    assert {roof.kind for roof in bundle.roofs} == {"copy", "gather"}
    again = run()
    assert [trial.uid for trial in again.trials if trial.round == 0] == [t.uid for t in bundle.trials if t.round == 0]


def test_rows_of_16_bits_are_tuned_where_they_are_read() -> None:
    script = importlib.import_module("gpu_tune")
    found = script.parts((128,), {"storage": "bfloat16"}, 60.0, 15.0, {})
    assert {part.problem["storage"] for part in found} == {"bfloat16"}
    assert found[-1].kernels == ["theta_partial", "perplexity_pairs", "init_pi", "gather_rows"]
    assert "rows in bfloat16" in str(found[0])
