"""The calibration of the verdict: its graphs are what they are said to be, and the report counts them."""

from __future__ import annotations

import importlib
import json
import math
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.devices import PROCESSOR


@pytest.fixture
def bench(scripts: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(scripts / "bench"))
    return importlib.import_module("bench_verdict")


def test_planted_graphs_have_the_signal_that_is_asked_for(bench: ModuleType) -> None:
    """(c_in - c_out)^2 / (K^2 c) from counted links; the share of links inside has the error of a share."""
    n, k, degree, signal = 4000, 4, 20.0, 2.0
    links = bench.planted(n, k, degree, signal, np.random.default_rng(0))
    inside = np.mean(links[:, 0] % k == links[:, 1] % k)
    error = math.sqrt(inside * (1 - inside) / len(links))
    # c_in is K times the degree inside, c_out that outside over K - 1 of K.
    wanted = (1 + (k - 1) * math.sqrt(signal / degree)) / k
    assert inside == pytest.approx(wanted, abs=5 * error)
    assert len(links) == pytest.approx(n * degree / 2, rel=0.02)


def test_degrees_of_stubs_are_those_asked_for_but_for_loops_and_repetitions(bench: ModuleType) -> None:
    rng = np.random.default_rng(1)
    degrees = bench.power_law(3000, 8.0, rng)
    found = np.bincount(bench.of_degrees(degrees, rng).ravel(), minlength=3000)
    assert (found <= degrees).all()
    assert found.sum() > 0.9 * degrees.sum()
    links = bench.uniform(100, 300, rng, split=40)
    assert (links[:, 0] < 40).all()
    assert (links[:, 1] >= 40).all()


def test_the_report_counts_verdicts(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "PLANTED", ((100, 2, 10.0),))
    monkeypatch.setattr(bench, "SIGNALS", (6.0,))
    monkeypatch.setattr(bench, "SIZES", {100: 100})
    words = ["--device", PROCESSOR, "--random", "1", "--repetitions", "1", "--output", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["bench_verdict.py", *words])
    bench.main()
    told = capsys.readouterr().out
    assert told == (tmp_path / "verdict.md").read_text() + "\n"
    runs = json.loads((tmp_path / "verdict.json").read_text())["runs"]
    assert [(row["kind"], row["verdict"]["kind"]) for row in runs] == [("G(n, p)", "none"), ("planted", "found")]
    assert "| G(n, p) | N up to 1000 | 1 | 0 | 0 | 0 | 1 |" in told
    assert "| N = 100, K = 2, mean degree 10 | 6 | 1 | 1 | 0 | 0 | 0 |" in told
