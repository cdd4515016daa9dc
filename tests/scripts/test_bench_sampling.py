"""The report on samples: every graph has its line, with the numbers of its run."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest

from tests.devices import PROCESSOR


@pytest.fixture
def bench(scripts: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(scripts / "bench"))
    return importlib.import_module("bench_sampling")


def test_the_report_has_the_runs(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "GRAPHS", {"fb_3980": 4})
    words = ["--device", PROCESSOR, "--sweeps", "40", "--chains", "2", "--output", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["bench_sampling.py", *words])
    bench.main()
    told = capsys.readouterr().out
    assert told == (tmp_path / "sampling.md").read_text() + "\n"
    (row,) = json.loads((tmp_path / "sampling.json").read_text())["runs"]
    links = row["sampling"]["link_probabilities"]
    assert f"| fb_3980 | 4 | 2 | 17 | {links['r_hat_median']:.3f} |" in told
    assert f"| fb_3980 | 2 | {row['alone']['links']:.3f} |" in told
    assert 0.5 < row["alone"]["non_links"] <= 1
    assert 0 < row["posterior_seconds"] < row["seconds"]
