"""The benchmark of LFR graphs: what is run on which graphs, means, going on where it stopped, and the page."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mmsbgen.graph import load_edge_list
from mmsbgen.scores import evaluate, read_cover


@pytest.fixture
def bench(scripts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(scripts / "bench"))
    module = importlib.import_module("bench_lfr")
    monkeypatch.setattr(module, "BUILD", tmp_path / "build")
    return module


def call(bench: ModuleType, monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str) -> list[dict[str, Any]]:
    places = ["--page", str(folder / "lfr.md"), "--report", str(folder / "lfr.json")]
    monkeypatch.setattr(sys, "argv", ["bench_lfr.py", *words, *places])
    bench.main()
    runs: list[dict[str, Any]] = json.loads((folder / "lfr.json").read_text())["runs"]
    return runs


def small(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs of 200 vertices, of which half are in one or two communities."""
    monkeypatch.setattr(bench, "FAMILIES", {"n200": bench.Family("N = 200", 200, 30, (15, 30), 0.5)})
    monkeypatch.setattr(bench, "MIXINGS", (0.1,))
    monkeypatch.setattr(bench, "MEMBERSHIPS", (1, 2))


def test_from_graphs_to_a_page_and_on_where_it_stopped(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(bench, monkeypatch)
    runs = call(bench, monkeypatch, tmp_path, "--methods", "leiden", "--limit", "120")
    names = [f"n200-mu0.1-m{memberships}-{number}" for memberships in (1, 2) for number in (0, 1)]
    assert [(one["graph"], one["method"], one["status"]) for one in runs] == [(name, "leiden", "ok") for name in names]
    assert len({one["digest"] for one in runs}) == 4, "graphs of a kind are not the same"
    # Leiden's communities are disjoint: nearly right where the planted ones are, and not where these overlap.
    onmi = [one["scores"]["onmi"] for one in runs]
    assert min(onmi[:2]) > 0.9
    assert max(onmi[2:]) < 0.7
    graphs = tmp_path / "build" / "graphs"
    truth, graph = read_cover(graphs / f"{names[2]}.cmty.txt.gz"), load_edge_list(graphs / f"{names[2]}.txt.gz")
    assert evaluate(truth, truth, graph.ids.tolist()).onmi == 1
    assert sum(map(len, truth)) == 300

    page, mean = (tmp_path / "lfr.md").read_text(), sum(onmi[2:]) / 2
    assert f"| 2 | 0.1 | - | - | **{mean:.3f}** | - |" in page
    spread = (((onmi[0] - onmi[1]) ** 2 + (onmi[2] - onmi[3]) ** 2) / 4) ** 0.5
    assert f"| Leiden | {sum(onmi) / 4:.3f} | {spread:.3f} | - |" in page
    picture = (tmp_path / "lfr.svg").read_text()
    for text in ("N = 200, mixing 0.1", "BigCLAM, K given", "communities of an overlapping vertex", "ONMI (max)"):
        assert text in picture

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(bench, "run", never)
    shutil.rmtree(tmp_path / "build")
    assert call(bench, monkeypatch, tmp_path, "--methods", "leiden") == runs
    (tmp_path / "lfr.md").unlink()
    assert call(bench, monkeypatch, tmp_path, "--families") == runs
    assert (tmp_path / "lfr.md").read_text().count("command: ") == page.count("command: ") + 1


def test_mmsbgen_runs_without_options_and_with_k(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(bench, monkeypatch)
    commands: list[str] = []

    def late(command: list[str], limit: float, folder: Path) -> None:
        commands.append(" ".join([Path(command[2]).name, *command[3:]]))
        raise subprocess.TimeoutExpired(command, limit)

    monkeypatch.setattr(importlib.import_module("bench_quality"), "run_limited", late)
    runs = call(bench, monkeypatch, tmp_path, "--methods", "mmsbgen,mmsbgen-auto", "--graphs", "1", "--limit", "7")
    known = len(read_cover(tmp_path / "build" / "graphs" / "n200-mu0.1-m1-0.cmty.txt.gz"))
    assert commands[:2] == [
        f"n200-mu0.1-m1-0.txt.gz -k {known} --seed 0 -o out",
        "n200-mu0.1-m1-0.txt.gz --seed 0 -o out",
    ]
    assert [one["status"] for one in runs] == ["timeout"] * 4
    page = (tmp_path / "lfr.md").read_text()
    assert "| mmsbgen | - | - | 2 |" in page
    assert "limit of a run: 7 s" in page


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--methods", "svinet"], "no method 'svinet'"), (["--families", "n7"], "invalid choice: 'n7'")],
)
def test_bad_options_are_told(
    words: list[str],
    message: str,
    bench: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as stopped:
        call(bench, monkeypatch, tmp_path, *words)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "lfr.md").exists()


def test_the_page_in_the_repository_is_that_of_its_report(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scripts: Path
) -> None:
    reports = scripts.parent / "docs" / "reports"
    shutil.copy(reports / "lfr.json", tmp_path / "lfr.json")
    call(bench, monkeypatch, tmp_path, "--families")
    assert (tmp_path / "lfr.md").read_text() == (reports / "lfr.md").read_text()
