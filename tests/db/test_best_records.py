"""``mmsbgen db export --best``: what the package ships of a device's records."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mmsbgen.cli.db.commands import db
from mmsbgen.db.exchange import formats, jsonl
from mmsbgen.db.exchange.best_records import best_records
from mmsbgen.db.exchange.jsonl import Bundle
from mmsbgen.db.records.ranking import candidate, ranked
from mmsbgen.db.records.tuning_records import (
    PROGRAM,
    DeviceRecord,
    KernelRecord,
    Key,
    ProblemRecord,
    RunRecord,
    ToolchainRecord,
    TrialRecord,
)
from mmsbgen.db.selection.index import SHIPPED, Index
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.families import family
from mmsbgen.kernels.record_key import program_digest

SPEC = family().kernel("update_beta")
KERNEL = KernelRecord("mmsb", SPEC.name, PROGRAM)
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
    config = {"block_size": block}
    made = {"extra": {"program": program_digest(family(), key, config)}} | changes
    return replace(TrialRecord(run=RUNS[run].uuid, key=key, config=config, status="ok", times=(seconds,)), **made)


def exported(folder: Path, bundle: Bundle, *arguments: object) -> Result:
    """What ``mmsbgen db export`` says of a database with these records; the file is ``shipped/nvidia-h200.jsonl``."""
    (folder / "shipped").mkdir(exist_ok=True)
    database = folder / "tuning.sqlite3"
    with open_store(database) as store:
        store.add_bundle(bundle)
    words = ["--database", database, "export", folder / "shipped" / "nvidia-h200.jsonl", *arguments]
    return CliRunner().invoke(db, [str(word) for word in words])


def test_the_best_of_each_problem_are_shipped(tmp_path: Path) -> None:
    other = replace(KEY, problem=ProblemRecord("mmsb", {"K": 128, "dtype": "float32"}))
    gone = replace(KEY, kernel=KernelRecord("mmsb", "no_such_kernel", "x"))
    trials = [_trial(block, block * 1e-6) for block in (64, 128, 256)]
    trials += [_trial(64, 2e-4, round=1), _trial(128, 3e-4, round=1)]
    trials += [
        _trial(1, 1e-9, status="wrong_result"),
        _trial(32, 1e-9, extra={"program": "of another state"}),
        _trial(16, 1e-9, key=replace(KEY, kernel=replace(KERNEL, template_digest="old")), extra={}),
    ]
    trials += [_trial(8, 1e-9, key=gone, run=1), _trial(512, 1e-3, key=other)]
    done = exported(tmp_path, Bundle(runs=RUNS, trials=trials), "--best", 2)
    assert done.exit_code == 0, done.output
    found = jsonl.read(tmp_path / "shipped" / "nvidia-h200.jsonl")
    assert {(t.key.problem.params["K"], t.config["block_size"], t.round) for t in found.trials} == {
        (64, 64, 1),
        (64, 128, 1),
        (128, 512, 0),
    }
    assert [(run.uuid, run.host, run.extra) for run in found.runs] == [(RUNS[0].uuid, "", {})]
    for file in SHIPPED.glob("*.jsonl"):
        bundle = jsonl.read(file)
        assert formats.anonymous(bundle) == bundle
    chosen = Index(shipped=tmp_path / "shipped").select(KEY, valid=lambda config: True, default={})
    assert (chosen.config, chosen.tier) == ({"block_size": 64}, "exact")


def test_what_is_shipped_ranks_as_the_whole() -> None:
    """A run that was ended before its finals, the one that went on, and what was slower than its finalists."""
    trials = [_trial(64, 0.95e-3), _trial(128, 0.97e-3), _trial(256, 0.99e-3), _trial(512, 2e-3)]
    trials += [_trial(128, 1.0e-3, run=1, round=2), _trial(64, 1.1e-3, run=1, round=1)]
    shipped = best_records(Bundle(runs=RUNS, trials=trials), 3).trials
    whole, part = ([c.config_digest for c in ranked(map(candidate, some))] for some in (trials, shipped))
    assert part == whole[:3]
    assert {t.config["block_size"] for t in shipped} == {64, 128, 256}


def test_an_export_without_a_present_kernel_is_refused(tmp_path: Path) -> None:
    done = exported(tmp_path, Bundle(runs=RUNS), "--best", 5)
    assert done.exit_code == 2
    assert "no record was made with the kernels of this version: tune" in done.output


def _report(path: Path, *medians: tuple[int, float, float], **changes: object) -> Path:
    configs = [
        {"config": config, "program": program_digest(family(), KEY, config), "median_s": m, "iqr_s": iqr}
        for config, m, iqr in [({"block_size": block}, m, iqr) for block, m, iqr in medians]
    ]
    result = {"device": list(GPU.identity), "kernel": SPEC.name, "template_digest": KERNEL.template_digest}
    result |= {"problem": {"K": 64, "dtype": "float32"}, "configs": configs} | changes
    path.write_text(json.dumps({"results": [result]}))
    return path


def _shipped(folder: Path, *reports: Path) -> dict[int, list[int]]:
    """Block sizes by K in the order of a look-up, of 64 to 512 by themselves in this order."""
    other = replace(KEY, problem=ProblemRecord("mmsb", {"K": 128, "dtype": "float32"}))
    trials = [_trial(block, block * 1e-6, key=key) for key in (KEY, other) for block in (64, 128, 256, 512)]
    words = [word for report in reports for word in ("--chain", report)]
    done = exported(folder, Bundle(runs=RUNS, trials=trials), "--best", 5, *words)
    assert done.exit_code == 0, done.output
    found: dict[int, list[int]] = {64: [], 128: []}
    for trial in sorted(jsonl.read(folder / "shipped" / "nvidia-h200.jsonl").trials, key=lambda trial: trial.times):
        found[trial.key.problem.params["K"]].append(trial.config["block_size"])
    return found


def test_what_is_ahead_by_itself_only_is_not_shipped(tmp_path: Path) -> None:
    """64 is slower in the chain, 128 was not measured there, 256 is the fastest; another problem stays as it is."""
    report = _report(tmp_path / "chain.json", (64, 1.05e-2, 1e-5), (256, 1e-2, 1e-5), (512, 1.1e-2, 1e-5))
    every = [64, 128, 256, 512]
    assert _shipped(tmp_path) == {64: every, 128: every}
    (tmp_path / "tuning.sqlite3").unlink()
    assert _shipped(tmp_path, report) == {64: [256, 512], 128: every}


@pytest.mark.parametrize(("slower", "iqr", "kept"), [(1.009, 1e-6, 64), (1.011, 1e-6, 256), (1.05, 6e-4, 64)])
def test_what_noise_hides_changes_no_order(tmp_path: Path, slower: float, iqr: float, kept: int) -> None:
    report = _report(tmp_path / "chain.json", (64, slower * 1e-2, iqr), (256, 1e-2, 1e-6))
    assert _shipped(tmp_path, report)[64][0] == kept


def test_a_chain_whose_fastest_was_never_tuned_changes_nothing(tmp_path: Path) -> None:
    report = _report(tmp_path / "chain.json", (64, 2e-2, 1e-6), (1024, 1e-2, 1e-6))
    assert _shipped(tmp_path, report)[64] == [64, 128, 256, 512]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"template_digest": "old"}, "no trial of update_beta.* with the programs of the chain"),
        ({"device": [*GPU.identity[:3], "NVIDIA H100", *GPU.identity[4:]]}, "no trial of update_beta.* on NVIDIA H100"),
        (
            {"configs": [{"config": {"block_size": 64}, "program": "another", "median_s": 1e-2, "iqr_s": 0.0}]},
            "no trial of update_beta.* with the programs of the chain",
        ),
        ({"configs": "none"}, "is not a report of bench_chain.py"),
        ({"configs": []}, "is not a report of bench_chain.py.*a result without a configuration"),
    ],
)
def test_reports_of_something_else_are_refused(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    report = _report(tmp_path / "chain.json", (64, 1e-2, 0.0), **changes)
    done = exported(tmp_path, Bundle(runs=RUNS, trials=[_trial(64, 1e-6)]), "--best", 5, "--chain", report)
    assert done.exit_code == 2
    assert re.search(message, " ".join(done.output.split()))
    assert not list((tmp_path / "shipped").iterdir())


def test_a_chain_needs_a_number_of_best(tmp_path: Path) -> None:
    report = _report(tmp_path / "chain.json", (64, 1e-2, 0.0))
    done = exported(tmp_path, Bundle(runs=RUNS, trials=[_trial(64, 1e-6)]), "--chain", report)
    assert (done.exit_code, "--chain needs --best" in done.output) == (2, True)


def test_an_older_program_of_a_configuration_is_not_shipped() -> None:
    old = _trial(64, 1e-6, round=1, extra={"program": "old"}, created_at="2025-01-01T00:00:00Z")
    new = [_trial(64, 2e-3, run=1), _trial(128, 1e-3, run=1)]
    shipped = best_records(Bundle(runs=RUNS, trials=[old, *new]), 2).trials
    assert {trial.uid for trial in shipped} == {trial.uid for trial in new}
