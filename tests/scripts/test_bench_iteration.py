"""The benchmark of an iteration: its chains are those of a run, by the database."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from mmsbgen.cli import main
from tests.devices import PROCESSOR

DATA = Path(__file__).parents[1] / "data"
SMALL = ["-k", "8", "-m", "16", "-n", "4", "--roof-mib", "16"]


@pytest.mark.opencl
@pytest.mark.usefixtures("processor")
def test_chains_have_what_the_database_says(scripts: Path, tmp_path: Path) -> None:
    database, graph = str(tmp_path / "tuning.sqlite3"), str(DATA / "CA-GrQc.txt.gz")
    tune = ["tune", "--device", PROCESSOR, "--quiet", "--database", database]
    tune += ["--kernel", "theta_partial", "--kernel", "update_phi", "--roof-mib", "16", "--budget-trials", "2"]
    settings = {"K": 8, "m": 16, "n": 4, "N": 5242, "partners": "uniform", "step": "split", "noise": "on"}
    for name, value in settings.items():
        tune += ["-p", f"{name}={value}"]
    assert CliRunner().invoke(main, tune).exit_code == 0
    command = [sys.executable, str(scripts / "bench" / "bench_iteration.py"), "--device", PROCESSOR, "--graph", graph]
    command += SMALL
    command += ["--step", "split", "--count", "4", "--repetitions", "2", "--database", database]
    subprocess.run([*command, "--output", str(tmp_path)], capture_output=True, check=True, timeout=240)
    rows = json.loads((tmp_path / "iteration.json").read_text())["results"]
    assert [row["kind"] for row in rows] == ["random-node-non-link", "random-node-link", "random-node"]
    for row in rows:
        assert {"theta_partial", "update_phi"} <= set(row["records"]["exact"])
        assert "update_pi" not in row["records"]["exact"]
    assert "configurations are exact: " in (tmp_path / "iteration.md").read_text()


@pytest.mark.opencl
@pytest.mark.usefixtures("processor")
def test_sweeps_of_blocks_are_timed_whole(scripts: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(scripts / "bench" / "bench_iteration.py"), "--device", PROCESSOR]
    command += ["--graph", str(DATA / "CA-GrQc.txt.gz"), "--mini-batch", "block", "-k", "8", "-m", "2048", "-n", "64"]
    command += ["--count", "1", "--repetitions", "2", "--roof-mib", "16", "--output", str(tmp_path)]
    command += ["--database", str(tmp_path / "none.sqlite3")]
    subprocess.run(command, capture_output=True, check=True, timeout=240)
    rows = json.loads((tmp_path / "blocks.json").read_text())["results"]
    assert [(row["products"], row["noise"], row["blocks"]) for row in rows] == [
        ("single", True, 3),
        ("single", False, 3),
    ]
    for row in rows:
        assert len(row["time"]["times_s"]) == 2
        assert {"block_links", "shared_partners"} <= set(row["kernels"]) <= set(row["configs"])
        assert sum(row["stages"].values()) > 0
    assert "A sweep of block mini-batches" in (tmp_path / "blocks.md").read_text()
