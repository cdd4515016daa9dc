from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from mmsbgen.db import exchange, formats
from mmsbgen.db.exchange import Bundle
from mmsbgen.db.ranking import candidate, ranked
from mmsbgen.db.records import DeviceRecord, KernelRecord, Key, ProblemRecord, RunRecord, ToolchainRecord, TrialRecord
from mmsbgen.db.selection import SHIPPED, Index
from mmsbgen.families import family
from mmsbgen.rendering import template_digest

SPEC = family().kernel("update_beta")
KERNEL = KernelRecord("mmsb", SPEC.name, template_digest(SPEC.template, "cuda"))
GPU = DeviceRecord(
    backend="cuda",
    platform="CUDA",
    vendor="NVIDIA",
    name="NVIDIA H200",
    architecture="sm_90",
    driver="580",
    kind="gpu",
    compute_units=132,
    memory_bytes=2**37,
)
RUNS = [RunRecord(strategy="default", host="private", extra={"process": {"pid": 1}}) for _ in range(2)]
KEY = Key(GPU, ToolchainRecord("nvcc", "13"), KERNEL, ProblemRecord("mmsb", {"K": 64, "dtype": "float32"}))


def _trial(block: int, seconds: float, *, key: Key = KEY, run: int = 0, **changes: object) -> TrialRecord:
    trial = TrialRecord(run=RUNS[run].uuid, key=key, config={"block_size": block}, status="ok", times=(seconds,))
    return replace(trial, **changes)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return importlib.import_module("ship_records")


def test_the_best_of_each_problem_are_shipped(script: ModuleType, tmp_path: Path) -> None:
    other = replace(KEY, problem=ProblemRecord("mmsb", {"K": 128, "dtype": "float32"}))
    gone = replace(KEY, kernel=KernelRecord("mmsb", "no_such_kernel", "x"))
    trials = [_trial(block, block * 1e-6) for block in (64, 128, 256)]
    trials += [_trial(64, 2e-4, round=1), _trial(128, 3e-4, round=1)]
    trials += [
        _trial(1, 1e-9, status="wrong_result"),
        _trial(2, 1e-9, key=replace(KEY, kernel=replace(KERNEL, template_digest="old"))),
    ]
    trials += [_trial(4, 1e-9, key=replace(KEY, device=replace(GPU, kind="cpu")), run=1), _trial(8, 1e-9, key=gone)]
    trials += [_trial(512, 1e-3, key=other)]
    exchange.write(Bundle(runs=RUNS, trials=trials), tmp_path / "nvidia-h200.jsonl")
    (tmp_path / "shipped").mkdir()
    arguments = [str(tmp_path / "nvidia-h200.jsonl"), "--most", "2", "--output", str(tmp_path / "shipped")]
    done = CliRunner().invoke(script.main, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found = exchange.read(tmp_path / "shipped" / "nvidia-h200.jsonl")
    assert {(t.key.problem.params["K"], t.config["block_size"], t.round) for t in found.trials} == {
        (64, 64, 1),
        (64, 128, 1),
        (128, 512, 0),
    }
    assert [(run.uuid, run.host, run.extra) for run in found.runs] == [(RUNS[0].uuid, "", {})]
    for file in SHIPPED.glob("*.jsonl"):
        bundle = exchange.read(file)
        assert formats.anonymous(bundle) == bundle
    chosen = Index(shipped=tmp_path / "shipped").select(KEY, valid=lambda config: True, default={})
    assert (chosen.config, chosen.tier) == ({"block_size": 64}, "exact")


def test_what_is_shipped_ranks_as_the_whole(script: ModuleType) -> None:
    """A run that was ended before its finals, the one that went on, and what was slower than its finalists."""
    trials = [_trial(64, 0.95e-3), _trial(128, 0.97e-3), _trial(256, 0.99e-3), _trial(512, 2e-3)]
    trials += [_trial(128, 1.0e-3, run=1, round=2), _trial(64, 1.1e-3, run=1, round=1)]
    shipped = script.best_of(Bundle(runs=RUNS, trials=trials), 3).trials
    whole, part = ([c.config_digest for c in ranked(map(candidate, some))] for some in (trials, shipped))
    assert part == whole[:3]
    assert {t.config["block_size"] for t in shipped} == {64, 128, 256}


def test_an_export_without_a_gpu_is_refused(script: ModuleType, tmp_path: Path) -> None:
    exchange.write(Bundle(runs=RUNS), tmp_path / "empty.jsonl")
    done = CliRunner().invoke(script.main, [str(tmp_path / "empty.jsonl"), "--output", str(tmp_path / "none")])
    assert done.exit_code == 1
    assert "no usable record of a GPU" in done.output
