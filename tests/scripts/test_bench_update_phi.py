"""The benchmark of update_phi: types of rows, their gathers and configurations in one run."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from mmsbgen.cli import main
from tests.devices import PROCESSOR


@pytest.mark.opencl
@pytest.mark.usefixtures("processor")
def test_types_of_rows_are_timed_in_turns(scripts: Path, tmp_path: Path) -> None:
    database = str(tmp_path / "tuning.sqlite3")
    sizes = ["-p", "K=16", "-p", "N=2000", "-p", "m=64", "-p", "n=4", "-p", "step=split", "-p", "noise=on"]
    tune = ["tune", "--device", PROCESSOR, "--quiet", "--database", database, *sizes]
    tune += ["--kernel", "update_phi", "--roof-mib", "16", "--budget-trials", "2"]
    assert CliRunner().invoke(main, tune).exit_code == 0
    command = [sys.executable, str(scripts / "bench" / "bench_update_phi.py"), "--device", PROCESSOR, "-k", "16"]
    command += ["-N", "2000", "-m", "64", "-n", "4", "--storage", "bfloat16", "--step", "split", "--roof-mib", "16"]
    command += ["--repetitions", "3", "--output", str(tmp_path), "--name", "found", "--database", database]
    subprocess.run(command, capture_output=True, check=True, timeout=240)
    results = json.loads((tmp_path / "found.json").read_text())["results"]
    assert [(row["noise"], row["storage"]) for row in results] == [
        ("on", "float32"),
        ("on", "bfloat16"),
        ("off", "float32"),
        ("off", "bfloat16"),
    ]
    assert [row["tier"] == "exact" for row in results] == [True, False, False, False]
    assert [set(row["times"]) == {"gather", "tuned", "default", "worst"} for row in results[:2]] == [True, False]
    page = (tmp_path / "found.md").read_text()
    for one, other in (results[:2], results[2:]):
        assert {len(row["times"][name]["times_s"]) for row in (one, other) for name in ("gather", "tuned")} == {3}
        pairs = zip(one["times"]["tuned"]["times_s"], other["times"]["tuned"]["times_s"], strict=True)
        ratio = statistics.median(a / b for a, b in pairs)
        line = next(x for x in page.splitlines() if x.startswith(f"| split, noise {one['noise']} | bfloat16 |"))
        assert line.split(" | ")[-1].startswith(f"{ratio:.4g} ± ")
