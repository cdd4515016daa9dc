"""``mmsbgen db export --best``: what the package ships of a device's records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner, Result

from mmsbgen.cli.db.commands import db
from mmsbgen.db.exchange import jsonl
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
        assert jsonl.anonymous(bundle) == bundle
    chosen = Index(shipped=tmp_path / "shipped").select(KEY, valid=lambda config: True, default={})
    assert (chosen.config, chosen.tier) == ({"block_size": 64}, "exact")


def test_what_is_shipped_ranks_as_the_whole() -> None:
    """A run that was ended before its finals, the one that went on, and what was slower than its finalists."""
    trials = [_trial(64, 0.95e-3), _trial(128, 0.97e-3), _trial(256, 0.99e-3), _trial(512, 2e-3)]
    trials += [_trial(128, 1.0e-3, run=1, round=2), _trial(64, 1.1e-3, run=1, round=1)]
    shipped = jsonl.best(Bundle(runs=RUNS, trials=trials), 3).trials
    whole, part = ([c.config_digest for c in ranked(map(candidate, some))] for some in (trials, shipped))
    assert part == whole[:3]
    assert {t.config["block_size"] for t in shipped} == {64, 128, 256}


def test_an_export_without_a_present_kernel_is_refused(tmp_path: Path) -> None:
    done = exported(tmp_path, Bundle(runs=RUNS), "--best", 5)
    assert done.exit_code == 2
    assert "no record was made with the kernels of this version: tune" in done.output


def test_an_older_program_of_a_configuration_is_not_shipped() -> None:
    old = _trial(64, 1e-6, round=1, extra={"program": "old"}, created_at="2025-01-01T00:00:00Z")
    new = [_trial(64, 2e-3, run=1), _trial(128, 1e-3, run=1)]
    shipped = jsonl.best(Bundle(runs=RUNS, trials=[old, *new]), 2).trials
    assert {trial.uid for trial in shipped} == {trial.uid for trial in new}
