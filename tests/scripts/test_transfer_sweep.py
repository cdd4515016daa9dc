"""The sweep that leave-one-out reads, at sizes that a processor does in seconds."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from click.testing import CliRunner

from mmsbgen.db.exchange import jsonl


@pytest.mark.opencl
@pytest.mark.slow
def test_it_measures_the_same_configurations_at_each_k(tmp_path: Path) -> None:
    sweep, file = importlib.import_module("transfer_sweep"), tmp_path / "sweep.jsonl"
    arguments = [
        "--device",
        "pocl",
        "--output",
        str(file),
        "-k",
        "16",
        "-m",
        "8",
        "-n",
        "4",
        "-N",
        "100",
        "--jobs",
        "0",
    ]
    done = CliRunner().invoke(sweep.main, [*arguments, "--total-seconds", "2"])
    assert done.exit_code == 0, done.output
    bundle = jsonl.read(file)
    assert bundle.roofs == []
    worked = [trial for trial in bundle.trials if trial.status == "ok"]
    assert {trial.config["placement"] for trial in worked} >= {"RRR"}
    assert {trial.config["vector_width"] for trial in worked} == {4}
    assert {trial.roof_gbps for trial in bundle.trials} == {None}
