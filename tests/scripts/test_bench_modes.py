"""The comparison of modes: its verdicts, what it refuses, and a small run."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy import stats

from mmsbgen.backends import Device
from mmsbgen.base.errors import InputError
from mmsbgen.sampler.options.options import Options
from tests.conftest import open_or_skip
from tests.devices import H200


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
    assert far.off == pytest.approx(1.01)
    assert modes.compared([1.0, 1.0], [2.0, 2.0]).off == -np.inf
    assert modes.compared([1.0, 1.0], [1.0, 1.0]).off == 0.0


def test_p_are_corrected_for_their_number(modes: ModuleType) -> None:
    """Holm's own procedure rejects the least ones one after another, each against what is left of the level."""
    assert modes.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert modes.holm([0.9, 0.8]) == [1.0, 1.0]
    rng = np.random.default_rng(2)
    for _ in range(50):
        values = (rng.random(12) ** 3).tolist()
        corrected = modes.holm(values)
        for level in (0.01, 0.05, 0.3):
            rejected: set[int] = set()
            for rank, i in enumerate(sorted(range(12), key=values.__getitem__)):
                if values[i] > level / (12 - rank):
                    break
                rejected.add(i)
            assert {i for i, p in enumerate(corrected) if p <= level} == rejected


def test_how_many_lie_outside_by_chance(modes: ModuleType) -> None:
    draws = np.random.default_rng(3).normal(size=(2, 4000, 5))
    outside = [not modes.compared(*pair).within for pair in zip(*draws.tolist(), strict=True)]
    assert np.mean(outside) == pytest.approx(modes.outside_by_chance(5), abs=0.02)


def _row(mode: str, off: float, p: float, **at: Any) -> dict[str, Any]:
    return {"mode": mode, "against": "float32 uniform", "seeds": 10, "off": off, "p": p, "within": abs(off) <= 1} | at


def test_a_verdict_is_of_all_comparisons(modes: ModuleType) -> None:
    at = {"graph": "CA-GrQc (K = 50)", "metric": "auc", "iteration": 200}
    rows = [_row("shared", 0.3, 0.6, **at), _row("shared", -1.6, 0.004, **at | {"iteration": 400})]
    rows += [_row("shared", 1.5, 0.009, **at | {"metric": "perplexity"}), _row("other", 9.0, 0.0, **at)]
    found = modes.verdict(rows, "shared")
    assert (found["within"], found["comparisons"], found["told_apart"]) == (1, 3, 0)
    assert found["least_corrected_p"] == pytest.approx(0.012)
    text = modes.said(found)
    assert (
        "1 of 3 means lie within the spread between seeds of float32 uniform (of modes that do not differ 0.1" in text
    )
    assert "deviation is -1.60 spreads, AUC of CA-GrQc (K = 50) at iteration 400" in text
    assert "tell 0 apart at 1%: the least p is 0.004, 0.012 when corrected" in text


def _asked(*names: str, mini_batch: str = "random-node") -> Namespace:
    return Namespace(
        mode=list(names) or None, mini_batch=mini_batch, partners=None, m=None, n=None, iterations=100, looks=5
    )


HALF = ("shared, half products", "shared-uniform, half products")
PRODUCTS = ("half products of shared", "half products of shared-uniform")


def test_modes_that_the_device_lacks_are_refused_when_asked_for(modes: ModuleType) -> None:
    cpu = replace(H200, backend="opencl", architecture="cpu-znver5", name="EPYC")
    assert modes.chosen_modes(_asked(*HALF), H200) == list(HALF)
    assert modes.chosen_modes(_asked(), H200) == ["bfloat16", "float16", "shared", "shared-uniform", *HALF, *PRODUCTS]
    assert modes.chosen_modes(_asked(), cpu) == ["bfloat16", "float16", "shared", "shared-uniform"]
    assert modes.chosen_modes(_asked(mini_batch="block"), H200) == ["half products"]
    for name in HALF + PRODUCTS:
        with pytest.raises(InputError, match=rf"--mode '{name}': .*tensor cores of CUDA GPUs.*EPYC \(cpu-znver5\)"):
            modes.chosen_modes(_asked(name), cpu)
    with pytest.raises(InputError, match="EPYC has no mode of block mini-batches but the plain one"):
        modes.chosen_modes(_asked(mini_batch="block"), cpu)
    with pytest.raises(
        InputError, match="--mode 'shared' is of stars, not of --mini-batch block: take .*half products"
    ):
        modes.chosen_modes(_asked("shared", mini_batch="block"), H200)


def test_modes_differ_from_the_plain_one_in_what_they_are_named_for(modes: ModuleType) -> None:
    for mode in modes.MODES.values():
        batch = "block" if mode.blocks else "random-node"
        plain = Options(4, mini_batch=batch, **modes.PLAIN | {"partners": mode.own or "stratified"})
        other = replace(plain, **mode.options)
        assert plain.shares == (mode.blocks or "shared" in (mode.own or ""))
        assert mode.shares == (other.shares and not mode.blocks)
        differ = {name for name, value in plain.as_dict().items() if other.as_dict()[name] != value}
        assert differ == set(mode.options)


def test_graphs_are_named_with_their_communities(modes: ModuleType, tmp_path: Path) -> None:
    assert modes.graph_of("CA-GrQc=50")[1] == 50
    (tmp_path / "a=b.txt").write_text("0 1\n")
    assert modes.graph_of(f"{tmp_path}/a=b.txt=3") == (tmp_path / "a=b.txt", 3)
    for wrong in ("CA-GrQc", "nowhere=3", "CA-GrQc=many"):
        with pytest.raises(InputError, match=wrong):
            modes.graph_of(wrong)


@pytest.mark.opencl
def test_a_small_comparison(scripts: Path, tmp_path: Path) -> None:
    """All modes from two seeds, as there is no time for a third: what the report has, and what is refused at once."""
    open_or_skip("pocl").close()
    command = [sys.executable, str(scripts / "bench" / "bench_modes.py"), "--device", "pocl"]
    command += ["--seeds", "3", "--minutes", "0", "--graph", "lfr-n1000-k28=5"]
    command += ["--output", str(tmp_path), "--looks", "2"]
    refused = subprocess.run([*command, "--iterations", "41"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "--iterations 41" in refused.stderr
    command += ["--iterations", "40"]
    without = os.environ | {"GIT_DIR": str(tmp_path / "none")}
    refused = subprocess.run(command, capture_output=True, text=True, check=False, env=without)
    assert refused.returncode == 2
    assert "--revision: these sources have no git history" in refused.stderr
    assert not list(tmp_path.iterdir())
    subprocess.run([*command, "--revision", "0123abc"], capture_output=True, check=True, env=without)
    data = json.loads((tmp_path / "modes.json").read_text())
    assert data["environment"]["revision"] == "0123abc"
    assert data["options"]["n_partners"] == 256, "as many in all modes"
    assert [(found["mode"], found["against"], found["comparisons"]) for found in data["verdicts"]] == [
        ("bfloat16", "float32 stratified", 6),
        ("float16", "float32 stratified", 6),
        ("shared", "float32 stratified", 6),
        ("shared-uniform", "float32 uniform", 6),
    ]
    (graph,) = data["graphs"]
    assert {(row["iteration"], row["mode"]) for row in graph["rows"]} == {
        (iteration, mode)
        for iteration in (20, 40)
        for mode in ("float32 stratified", "float32 uniform", "bfloat16", "float16", "shared", "shared-uniform")
    }
    first = [row for row in graph["rows"] if row["metric"] == "auc" and row["iteration"] == 20]
    values = {row["mode"]: row["values"] for row in first}
    assert len(values["float32 stratified"]) == 2
    assert values["float32 stratified"] != values["bfloat16"] != values["float16"]
    assert values["float32 stratified"] != values["float32 uniform"]
    assert first[0]["p"] == 1.0
    page = (tmp_path / "modes.md").read_text()
    assert "revision 0123abc" in page
    assert "## All graphs, 2 seeds" in page
    assert "### AUC, against float32 uniform" in page
    assert "## lfr-n1000-k28" in page


def test_a_report_has_no_number_that_json_lacks(modes: ModuleType, tmp_path: Path) -> None:
    report = modes.Report("Modes", "none")
    report.data |= {"off": [modes.compared([1.0, 1.0], [2.0, 2.0]).as_dict()], "nothing": float("nan")}
    report.write("modes", folder=tmp_path)
    found = json.loads((tmp_path / "modes.json").read_text(), parse_constant=pytest.fail)
    assert (found["off"][0]["off"], found["off"][0]["p"], found["nothing"]) == (None, 0.0, None)


@pytest.mark.cuda
def test_products_of_stars_on_tensor_cores_are_compared(cuda_device: Device, scripts: Path, tmp_path: Path) -> None:
    """Each against as many partners of a vertex's own, drawn as theirs are, and against single precision."""
    command = [sys.executable, str(scripts / "bench" / "bench_modes.py"), "--device", cuda_device.info.spec]
    for name in HALF + PRODUCTS:
        command += ["--mode", name]
    command += ["--graph", "lfr-n1000-k28=28", "--seeds", "2", "--iterations", "40", "--looks", "2"]
    subprocess.run([*command, "--revision", "0123abc", "--output", str(tmp_path)], capture_output=True, check=True)
    data = json.loads((tmp_path / "modes.json").read_text())
    assert data["options"]["n_partners"] == 256
    against = {found["mode"]: found["against"] for found in data["verdicts"]}
    plain = ("stratified", "uniform", "shared", "shared-uniform")
    assert against == {name: f"float32 {partners}" for name, partners in zip(HALF + PRODUCTS, plain, strict=True)}
    for row in data["graphs"][0]["rows"]:
        assert np.isfinite(row["values"]).all()


def test_reports_have_their_numbers_and_revision_beside_them(modes: ModuleType) -> None:
    """But for two of before, whose machine had no history of the sources."""
    for path in set(modes.REPORTS.glob("modes*.md")) - {modes.REPORTS / f"modes{n}-h200.md" for n in ("", "-blocks")}:
        facts = json.loads(path.with_suffix(".json").read_text())["environment"]
        assert facts["revision"] != "unknown", path.name
        assert f"revision {facts['revision']}" in path.read_text()
