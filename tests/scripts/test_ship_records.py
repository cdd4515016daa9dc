"""``scripts/ship_records.py``: what is slower within a chain is not shipped."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mmsbgen.db.exchange import jsonl
from mmsbgen.db.exchange.jsonl import Bundle
from mmsbgen.db.records.tuning_records import ProblemRecord, TrialRecord
from mmsbgen.families import family
from mmsbgen.kernels.record_key import program_digest
from tests.db.test_best_records import GPU, KERNEL, KEY, RUNS, SPEC, _trial


def shipped(folder: Path, trials: Sequence[TrialRecord], *reports: Path) -> Result:
    """What the script says of these trials; what it ships is in ``shipped.jsonl``."""
    jsonl.write(Bundle(runs=RUNS, trials=[*trials]), folder / "all.jsonl")
    words = [folder / "all.jsonl", folder / "shipped.jsonl", *(word for one in reports for word in ("--chain", one))]
    return CliRunner().invoke(importlib.import_module("ship_records").main, list(map(str, words)))


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
    done = shipped(folder, trials, *reports)
    assert done.exit_code == 0, done.output
    found: dict[int, list[int]] = {64: [], 128: []}
    for trial in sorted(jsonl.read(folder / "shipped.jsonl").trials, key=lambda trial: trial.times):
        found[trial.key.problem.params["K"]].append(trial.config["block_size"])
    return found


def test_what_is_ahead_by_itself_only_is_not_shipped(tmp_path: Path) -> None:
    """64 is slower in the chain, 128 was not measured there, 256 is the fastest; another problem stays as it is."""
    report = _report(tmp_path / "chain.json", (64, 1.05e-2, 1e-5), (256, 1e-2, 1e-5), (512, 1.1e-2, 1e-5))
    every = [64, 128, 256, 512]
    assert _shipped(tmp_path) == {64: every, 128: every}
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
    done = shipped(tmp_path, [_trial(64, 1e-6)], report)
    assert done.exit_code == 1
    assert re.search(message, " ".join(done.output.split()))
    assert not (tmp_path / "shipped.jsonl").exists()
