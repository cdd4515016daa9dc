"""The benchmark of calibration: its sample stands for all pairs, and its report has the errors."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.devices import PROCESSOR


@pytest.fixture
def bench(scripts: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(scripts / "bench"))
    return importlib.import_module("bench_calibration")


def test_the_sample_stands_for_all_pairs_of_a_graph_like_the_given_one(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights of links add up to the given links, those of non-links to all other pairs, wherever they lie."""
    rng = np.random.default_rng(0)
    n = 60
    pairs = np.stack(np.triu_indices(n, 1), axis=1)
    order = rng.permutation(len(pairs))
    given, hidden = pairs[np.sort(order[:90])], pairs[np.sort(order[90:100])]
    near = {
        tuple(sorted((int(a), int(b))))
        for v in range(n)
        for a in given[(given == v).any(axis=1)].sum(axis=1) - v
        for b in given[(given == v).any(axis=1)].sum(axis=1) - v
        if a != b
    } - {tuple(one) for one in np.concatenate([given, hidden]).tolist()}
    for most in (1000, 30):
        monkeypatch.setattr(bench, "MOST", most)
        seen = bench.sample(n, given, hidden, rng)
        assert seen.weights[seen.links].sum() == pytest.approx(len(given))
        assert seen.weights.sum() == pytest.approx(len(pairs))
        at = [tuple(one) in near for one in seen.pairs.tolist()]
        assert seen.weights[at].sum() == pytest.approx(len(near))
        assert not {tuple(one) for one in seen.pairs.tolist()} & {tuple(one) for one in given.tolist()}


def test_the_report_has_the_errors_before_and_after(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "LFR", {"tiny": (300, 20.0, 40, (20, 50), 0.2, 0.5, 2)})
    words = ["--device", PROCESSOR, "--repetitions", "1", "--output", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["bench_calibration.py", *words])
    bench.main()
    told = capsys.readouterr().out
    assert told == (tmp_path / "calibration.md").read_text() + "\n"
    (row,) = json.loads((tmp_path / "calibration.json").read_text())["runs"]
    assert row["calibration"]["calibrated"] is True
    assert f"| tiny | {row['k']} | {row['before']['ece']:.3f} | {row['after']['ece']:.3f} |" in told
    assert row["log_likelihood_after"] > row["log_likelihood_before"]
    picture = (tmp_path / "calibration.svg").read_text()
    for text in ("tiny", "before", "after", "share of linked pairs"):
        assert text in picture
