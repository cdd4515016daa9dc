"""The comparison of modes: its verdicts, what it refuses, and a small run."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy import stats

from mmsbgen.errors import InputError
from tests.conftest import open_or_skip


@pytest.fixture(scope="module")
def modes(scripts: Path) -> ModuleType:
    sys.path.insert(0, str(scripts / "bench"))
    return importlib.import_module("bench_modes")


def test_a_difference_is_held_against_the_spread_of_both(modes: ModuleType) -> None:
    rng = np.random.default_rng(1)
    plain, other = rng.normal(5.0, 1.0, 6), rng.normal(5.0, 3.0, 6)
    found = modes.compared(other.tolist(), plain.tolist())
    assert found.spread == pytest.approx(np.sqrt((plain.var(ddof=1) + other.var(ddof=1)) / 2))
    assert found.p == pytest.approx(stats.ttest_ind(other, plain, equal_var=False).pvalue)
    assert found.within == (abs(other.mean() - plain.mean()) <= found.spread)
    far = modes.compared((plain + 1.01 * plain.std(ddof=1)).tolist(), plain.tolist())
    near = modes.compared((plain + 0.99 * plain.std(ddof=1)).tolist(), plain.tolist())
    assert (far.within, near.within) == (False, True)
    assert modes.compared([1.0, 1.0], [1.0, 1.0]).p == 1.0
    assert modes.compared([1.0, 1.0], [2.0, 2.0]).p == 0.0


def test_graphs_are_named_with_their_communities(modes: ModuleType, tmp_path: Path) -> None:
    assert modes.graph_of("CA-GrQc=50")[1] == 50
    (tmp_path / "a=b.txt").write_text("0 1\n")
    assert modes.graph_of(f"{tmp_path}/a=b.txt=3") == (tmp_path / "a=b.txt", 3)
    for wrong in ("CA-GrQc", "nowhere=3", "CA-GrQc=many"):
        with pytest.raises(InputError, match=wrong):
            modes.graph_of(wrong)


@pytest.mark.opencl
def test_a_small_comparison(scripts: Path, tmp_path: Path) -> None:
    """All modes from two seeds: what the report has, and that an option that does not fit stops it at once."""
    open_or_skip("pocl").close()
    command = [sys.executable, str(scripts / "bench" / "bench_modes.py"), "--device", "pocl", "--seeds", "2"]
    command += ["--graph", "lfr-n1000-k28=5", "--output", str(tmp_path), "--looks", "2"]
    refused = subprocess.run([*command, "--iterations", "41"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "--iterations 41" in refused.stderr
    assert not list(tmp_path.iterdir())
    subprocess.run([*command, "--iterations", "40"], capture_output=True, check=True)
    data = json.loads((tmp_path / "modes.json").read_text())
    (graph,) = data["graphs"]
    assert {(row["iteration"], row["mode"]) for row in graph["rows"]} == {
        (iteration, mode)
        for iteration in (20, 40)
        for mode in ("float32", "bfloat16", "float16", "shared", "shared-uniform")
    }
    first = [row for row in graph["rows"] if row["metric"] == "auc" and row["iteration"] == 20]
    values = {row["mode"]: row["values"] for row in first}
    assert len(values["float32"]) == 2
    assert values["float32"] != values["bfloat16"] != values["float16"]
    assert first[0]["p"] == 1.0
    assert "## lfr-n1000-k28" in (tmp_path / "modes.md").read_text()
