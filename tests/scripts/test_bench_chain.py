"""The benchmark of a chain by configurations of one kernel: which are tried, and what its report has."""

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


@pytest.mark.opencl
@pytest.mark.usefixtures("processor")
def test_a_chain_is_timed_with_what_is_best_by_itself(scripts: Path, tmp_path: Path) -> None:
    """Of theta_partial as tuned for the chain's very problem; of update_phi there are no trials but another K's."""
    database = str(tmp_path / "tuning.sqlite3")
    tune = ["tune", "--device", PROCESSOR, "--quiet", "--database", database]
    tune += ["--kernel", "theta_partial", "--roof-mib", "16", "--budget-trials", "4"]
    settings = {"K": 8, "m": 16, "n": 4, "N": 5242, "partners": "uniform", "step": "split", "noise": "on"}
    for name, value in settings.items():
        tune += ["-p", f"{name}={value}"]
    assert CliRunner().invoke(main, tune).exit_code == 0
    command = [sys.executable, str(scripts / "bench" / "bench_chain.py"), "--device", PROCESSOR, "--source", database]
    command += ["--graph", str(DATA / "CA-GrQc.txt.gz"), "-k", "8", "-m", "16", "-n", "4", "--partners", "uniform"]
    command += ["--mini-batch", "random-node", "--count", "2", "--repetitions", "3", "--most", "2"]
    command += ["--database", str(tmp_path / "none.sqlite3"), "--output", str(tmp_path)]
    subprocess.run(
        [*command, "--kernel", "theta_partial", "--kernel", "update_phi"], capture_output=True, check=True, timeout=240
    )
    theta, phi = json.loads((tmp_path / "chain.json").read_text())["results"]
    assert (theta["kernel"], theta["problem"]["K"], phi["kernel"]) == ("theta_partial", 8, "update_phi")
    assert 2 <= len(theta["configs"]) <= 3
    assert sum(one["alone_s"] is not None for one in theta["configs"]) >= 2
    assert [one["in_use"] for one in theta["configs"]].count(True) == 1
    assert [(one["in_use"], one["alone_s"]) for one in phi["configs"]] == [(True, None)]
    assert all(len(one["times_s"]) == 3 for one in theta["configs"])
    assert "An iteration by configurations of one kernel" in (tmp_path / "chain.md").read_text()
    exported = tmp_path / "trials.jsonl.gz"
    assert CliRunner().invoke(main, ["db", "--database", database, "export", str(exported)]).exit_code == 0
    command[command.index(database)] = str(exported)
    subprocess.run([*command, "--kernel", "theta_partial"], capture_output=True, check=True, timeout=240)
    (again,) = json.loads((tmp_path / "chain.json").read_text())["results"]
    assert {one["alone_s"] for one in again["configs"]} == {one["alone_s"] for one in theta["configs"]}
    refused = subprocess.run([*command, "--kernel", "block_sums"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "--kernel block_sums: this chain has add_moments, draw_stars, " in refused.stderr


@pytest.mark.opencl
@pytest.mark.usefixtures("processor")
def test_blocks_are_timed_by_whole_sweeps(scripts: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(scripts / "bench" / "bench_chain.py"),
        "--device",
        PROCESSOR,
        "--kernel",
        "block_links",
    ]
    command += ["--graph", str(DATA / "CA-GrQc.txt.gz"), "-k", "8", "-m", "1024", "-n", "64", "--no-noise"]
    command += ["--count", "1", "--repetitions", "2", "--database", str(tmp_path / "none.sqlite3"), "--name", "blocks"]
    subprocess.run([*command, "--output", str(tmp_path)], capture_output=True, check=True, timeout=240)
    (found,) = json.loads((tmp_path / "chain-blocks.json").read_text())["results"]
    assert (found["kernel"], found["problem"]["m"], found["problem"]["noise"]) == ("block_links", 1024, "off")
    assert "A sweep by configurations of one kernel" in (tmp_path / "chain-blocks.md").read_text()
