"""The benchmark of an iteration: its chains are those of a run, by the database."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

DATA = Path(__file__).parents[1] / "data"
SMALL = ["-k", "8", "-m", "16", "-n", "4", "--roof-mib", "16"]


@pytest.mark.opencl
@pytest.mark.usefixtures("pocl_device")
def test_chains_have_what_the_database_says(scripts: Path, tmp_path: Path) -> None:
    database, graph = str(tmp_path / "tuning.sqlite3"), str(DATA / "CA-GrQc.txt.gz")
    tune = [sys.executable, "-m", "mmsbgen", "tune", "--device", "pocl", "--quiet", "--database", database]
    tune += ["--kernel", "theta_partial", "--kernel", "update_phi", "--roof-mib", "16", "--budget-trials", "2"]
    settings = {"K": 8, "m": 16, "n": 4, "N": 5242, "partners": "uniform", "step": "split", "noise": "on"}
    for name, value in settings.items():
        tune += ["-p", f"{name}={value}"]
    subprocess.run(tune, capture_output=True, check=True, timeout=240)
    command = [sys.executable, str(scripts / "bench" / "bench_iteration.py"), "--device", "pocl", "--graph", graph]
    command += SMALL
    command += ["--step", "split", "--count", "4", "--repetitions", "2", "--database", database]
    subprocess.run([*command, "--output", str(tmp_path)], capture_output=True, check=True, timeout=240)
    rows = json.loads((tmp_path / "iteration.json").read_text())["results"]
    assert [row["kind"] for row in rows] == ["random-node-non-link", "random-node-link", "random-node"]
    for row in rows:
        assert {"theta_partial", "update_phi"} <= set(row["records"]["exact"])
        assert "update_pi" not in row["records"]["exact"]
        assert row["alone"]["median_s"] > 0
    assert "configurations are exact: " in (tmp_path / "iteration.md").read_text()
