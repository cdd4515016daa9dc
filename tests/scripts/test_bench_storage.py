"""The benchmark of rows of 16 bits: both kinds in one run."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.opencl
@pytest.mark.usefixtures("pocl_device")
def test_both_kinds_of_rows_are_timed_in_one_run(scripts: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(scripts / "bench" / "bench_storage.py"), "--device", "pocl", "-k", "16"]
    command += ["-N", "2000", "-m", "64", "-n", "4", "--step", "split", "--rounds", "3", "--output", str(tmp_path)]
    command += ["--roof-mib", "16"]
    subprocess.run(
        [*command, "--database", str(tmp_path / "none.sqlite3")], capture_output=True, check=True, timeout=240
    )
    results = json.loads((tmp_path / "storage.json").read_text())["results"]
    assert [(row["step"], row["noise"]) for row in results] == [("split", "on"), ("split", "off")]
    page = (tmp_path / "storage.md").read_text()
    for row in results:
        assert set(row["times"]) == {"float32", "bfloat16", "gather float32", "gather bfloat16"}
        assert {len(sample["times_s"]) for sample in row["times"].values()} == {3}
        pairs = zip(row["times"]["float32"]["times_s"], row["times"]["bfloat16"]["times_s"], strict=True)
        ratio = statistics.median(one / other for one, other in pairs)
        line = next(x for x in page.splitlines() if x.startswith(f"| split, noise {row['noise']} | bfloat16 |"))
        assert line.split(" | ")[-1].startswith(f"{ratio:.4g} ± ")
