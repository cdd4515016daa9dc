"""The benchmark of quality: what methods get and return, limits, going on where it stopped, and the page."""

from __future__ import annotations

import importlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import networkx
import numpy as np
import pytest

from mmsbgen.graph import Graph, as_graph, split
from mmsbgen.sampler.diagnostics.held_out import auc
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.starts.start_methods import STARTS

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture(scope="module", autouse=True)
def _on_the_path(scripts: Path) -> None:
    sys.path.insert(0, str(scripts / "bench"))


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = importlib.import_module("bench_quality")
    monkeypatch.setattr(module, "BUILD", tmp_path / "build")
    return module


@pytest.fixture
def methods() -> ModuleType:
    return importlib.import_module("_quality_methods")


@pytest.fixture
def page() -> ModuleType:
    return importlib.import_module("_quality_page")


def cliques() -> tuple[Graph, set[frozenset[int]]]:
    """Six cliques of five in a ring and two isolated vertices; names and lines in no order."""
    ring = networkx.ring_of_cliques(6, 5)
    names = random.Random(3).sample(range(100, 140), 30)
    links = [(names[u], names[v]) for u, v in ring.edges]
    random.Random(4).shuffle(links)
    graph = as_graph(np.array([*links, *((name, name) for name in (1, 999))]))
    return graph, {frozenset(names[5 * i + j] for j in range(5)) for i in range(6)}


@pytest.mark.parametrize("method", ["leiden", "lfm"])
def test_communities_come_back_under_the_names_of_the_vertices(method: str, methods: ModuleType) -> None:
    graph, expected = cliques()
    found, seconds = methods.run_method(method, graph, 6, seed=0)
    assert {frozenset(int(graph.ids[vertex]) for vertex in one) for one in found} == expected
    assert seconds >= 0


def test_cdlib_gets_its_vertices_in_order_and_what_was_asked_for(
    methods: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, expected = cliques()
    seen: list[Any] = []

    def big_clam(given: networkx.Graph, **arguments: Any) -> SimpleNamespace:
        seen.append((list(given.nodes), arguments))
        return SimpleNamespace(communities=[*networkx.find_cliques(given), [0], [0]])

    monkeypatch.setitem(sys.modules, "cdlib", SimpleNamespace(algorithms=SimpleNamespace(big_clam=big_clam)))
    found, _ = methods.run_method("bigclam", graph, 6, seed=0)
    assert seen == [(list(range(30)), {"dimensions": 6, "affiliation_method": "threshold"})]
    named = {frozenset(int(graph.ids[vertex]) for vertex in one) for one in found}
    assert expected <= named
    assert all(len(one) > 1 for one in named)


def test_repeated_and_single_communities_are_left_out(methods: ModuleType) -> None:
    assert methods.tidy_cover([(3, 1), [1, 3], [2], [1, 2, 3]]) == [[1, 3], [1, 2, 3]]


@pytest.mark.parametrize("name", ["common-neighbours", "adamic-adar"])
def test_neighbours_rank_the_pairs_that_a_run_holds_out(name: str, methods: ModuleType) -> None:
    graph = as_graph(np.array(networkx.watts_strogatz_graph(400, 6, 0.2, seed=1).edges))
    parts = split(graph, validation=0.2, test=0.01, seed=5)
    training = networkx.empty_graph(400)
    training.add_edges_from(parts.training_links.tolist())
    expected = []
    for held in (parts.validation, parts.test):
        pairs = held.pairs.tolist()
        if name == "adamic-adar":
            scores = [score for _, _, score in networkx.adamic_adar_index(training, pairs)]
        else:
            scores = [len(list(networkx.common_neighbors(training, u, v))) for u, v in pairs]
        expected.append(auc(np.array(scores, float), held.labels))
    assert methods.neighbour_auc(name, graph, (0.2, 0.01), 5) == pytest.approx(expected, abs=1e-12)


def test_a_run_that_takes_too_long_is_ended_with_its_children(methods: ModuleType, tmp_path: Path) -> None:
    script = "sleep 60 & echo $! > child; wait"
    with pytest.raises(subprocess.TimeoutExpired):
        methods.run_limited(["sh", "-c", script], 3.0, tmp_path)
    state = Path(f"/proc/{int((tmp_path / 'child').read_text())}/stat")

    def alive() -> bool:
        try:
            # Where nobody reaps orphans it stays as a zombie.
            return state.read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    deadline = time.monotonic() + 30  # half of what the child would sleep
    while alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive()


def call(bench: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *words: str) -> dict[str, Any]:
    places = ["--page", str(tmp_path / "quality.md"), "--report", str(tmp_path / "quality.json")]
    monkeypatch.setattr(sys, "argv", ["bench_quality.py", *words, *places])
    bench.main()
    report: dict[str, Any] = json.loads((tmp_path / "quality.json").read_text())
    return report


def test_from_graphs_to_a_page_and_on_where_it_stopped(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--data", str(DATA), "--graphs", "fb_348", "--seeds", "2", "--limit", "60"]
    report = call(bench, monkeypatch, tmp_path, *words, "--methods", "lfm,one")
    runs = {(run["method"], run["seed"]): run for run in report["runs"]}
    assert set(runs) == {("lfm", 0), ("lfm", 1), ("one", 0)}
    assert {run["status"] for run in runs.values()} == {"ok"}, runs
    assert 0 < runs["lfm", 0]["scores"]["onmi"] < 0.5
    assert runs["one", 0]["scores"]["average_f1"] == pytest.approx(0.595, abs=5e-4)
    text = " ".join((tmp_path / "quality.md").read_text().split())
    assert "(MIT) | 227 | 3192 | 14 / - | 0.97 / - | 2.58 / - |" in text
    onmi, f1, omega = (text.index(f"## {name}") for name in ("ONMI max", "Average F1", "Omega"))
    assert "| one community with every vertex | 0.000 | - |" in text[onmi:f1], "it takes no time"
    assert "| one community with every vertex | 0.595 |" in text[f1:omega]
    assert "| one community with every vertex | 0.000 |" in text[omega:]
    assert "mmsbgen's own rows are yet to be run" in text
    assert "| fb_348 | not run |" in text

    made: list[tuple[str, int]] = []

    def counted(method: str, case: Any, seed: int, args: Any) -> dict[str, Any]:
        made.append((method, seed))
        return runs[method, 0] | {"seed": seed, "note": "again"}

    monkeypatch.setattr(bench, "run", counted)
    again = call(bench, monkeypatch, tmp_path, *words, "--methods", "lfm,one")
    assert made == []
    assert again["runs"] == report["runs"]
    renewed = call(bench, monkeypatch, tmp_path, *words, "--only", "lfm")
    assert made == [("lfm", 0), ("lfm", 1)]
    assert {run["method"]: run.get("note") for run in renewed["runs"]} == {"lfm": "again", "one": None}
    # Without what is kept under build/ the report's own runs stand in, and without --data the page can be made anew.
    shutil.rmtree(tmp_path / "build")
    made.clear()
    (tmp_path / "quality.md").unlink()
    assert call(bench, monkeypatch, tmp_path)["runs"] == renewed["runs"]
    assert "| method | fb_348 |" in (tmp_path / "quality.md").read_text()
    assert call(bench, monkeypatch, tmp_path, *words, "--methods", "one")["runs"] == renewed["runs"]
    assert made == []


def test_after_a_run_that_took_too_long_no_other_seed_is_tried(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--data", str(DATA), "--graphs", "fb_348", "--methods", "lfm", "--limit", "0.01"]
    report = call(bench, monkeypatch, tmp_path, *words)
    assert [(run["seed"], run["status"]) for run in report["runs"]] == [(0, "timeout")]
    text = (tmp_path / "quality.md").read_text()
    assert text.count("| LFM with LFMLocal(0.8), networkit | none in 0.01 s |") == 3, "a row of each measure"


def test_mmsbgen_runs_with_its_defaults(bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def faked(command: list[str], limit: float, folder: Path) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        out = folder / "out"
        out.mkdir()
        record = {
            "mmsbgen": "9.9",
            "device": {"name": "d"},
            "start": "ego",
            "starts": [{"start": "ego", "own_auc": 0.5, "own_log_likelihood": -2.0}],
            "trace": [{"auc": 0.9, "log_likelihood": -1.0}],
            "held_out": {"test": {"auc": 0.8}},
        }
        (out / "run.json").write_text(json.dumps(record))
        (out / "communities.txt").write_text("0\t1\n")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(bench, "run_limited", faked)
    words = ["--data", str(DATA), "--graphs", "fb_348,CA-GrQc", "--methods", "mmsbgen", "--seeds", "2"]
    report = call(bench, monkeypatch, tmp_path, *words)
    assert {run["status"] for run in report["runs"]} == {"ok"}, report["runs"]
    options = [" ".join(command[1:]).replace(str(DATA.resolve()) + os.sep, "") for command in commands]
    assert options == [
        "detect fb_348.txt.gz -k 14 --seed 0 -o out",
        "detect fb_348.txt.gz -k 14 --seed 1 -o out",
        "detect CA-GrQc.txt.gz -k 50 --seed 0 -o out --validation 0.09 --test 0.01",
        "detect CA-GrQc.txt.gz -k 50 --seed 1 -o out --validation 0.09 --test 0.01",
    ]
    assert [run["start"] for run in report["runs"]] == ["ego"] * 4
    text = (tmp_path / "quality.md").read_text()
    assert "- versions: mmsbgen 9.9\n" in text
    assert "| **mmsbgen** | 2 | 0.900 ± 0.000 | 0.800 ± 0.000 |" in text
    assert "| CA-GrQc | - | 0.500 | 0.900 ± 0.000 | - | -2 | -1 | ego 2 |" in text
    commands.clear()
    call(bench, monkeypatch, tmp_path, *words[:2], "--graphs", "fb_348", "--methods", "mmsbgen-random", "--seeds", "1")
    assert " ".join(commands[0]).endswith("-k 14 --start random --seed 0 -o out")


def test_covers_of_starts_are_those_of_a_run(
    bench: ModuleType, methods: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the training links of the run's own split, before any sweep; they have a table of their own."""
    words = ["--data", str(DATA), "--graphs", "fb_348", "--seeds", "2", "--methods", "start-communities,start-ego"]
    report = call(bench, monkeypatch, tmp_path, *words)
    runs = {(run["method"], run["seed"]): run["scores"]["onmi"] for run in report["runs"]}
    assert len(runs) == 4
    graph = as_graph(DATA / "fb_348.txt.gz")
    options = Options(14, seed=1)
    parts = split(graph, validation=options.held_out_share(3192), test=options.test_share(3192), seed=1)
    for name, start in methods.START_COVERS.items():
        sets = STARTS[start](parts, 14, 1)
        cover = [sets.vertices[sets.communities == label].tolist() for label in range(14)]
        assert methods.start_cover(start, graph, 14, 1) == [one for one in cover if len(one) > 1]
        assert 0.1 < runs[name, 1] < 0.5
    text = (tmp_path / "quality.md").read_text()
    own = [f"{sum(runs[name, seed] for seed in (0, 1)) / 2:.3f}" for name in methods.START_COVERS]
    assert f"| fb_348 | {own[0]} | {own[1]} | - | - | - | - |" in text
    assert "before any sweep |" not in text, "no method to compare with"


def scored(method: str, onmi: float, seed: int = 0, **more: Any) -> dict[str, Any]:
    scores = dict.fromkeys(("communities", "coverage", "memberships", "onmi_lfk", "average_f1", "omega"), 1.0)
    run = {"graph": "g", "method": method, "seed": seed, "status": "ok", "seconds": 2.0, "limit": 120.0}
    return run | {"scores": scores | {"onmi": onmi}} | more


def rows_of(page: ModuleType, runs: dict[str, list[dict[str, Any]]], name: str = "onmi") -> list[list[str]]:
    return [line.strip("| ").split(" | ") for line in page.score_table(runs, name)[2:]]


def test_a_table_has_good_and_bad_alike(page: ModuleType) -> None:
    runs = [scored("mmsbgen", 0.2), scored("mmsbgen", 0.4, 1), scored("leiden", 0.5), scored("slpa", 0.1)]
    runs += [scored("coach", 0.0, status="failed", message="a | b"), scored("slpa", 0.3, 1, status="timeout")]
    runs[0]["seconds"], other = 3.0, scored("slpa", 0.45, seconds=40.4)
    # The sample deviation of 0.2 and 0.4 is 0.2 / sqrt(2).
    assert rows_of(page, {"g": runs, "h": [other]}) == [
        ["SLPA, cdlib", "0.100 (1 of 2 runs)", "0.450", "2 to 40"],
        ["Leiden (disjoint), igraph", "0.500", "-", "2"],
        ["**mmsbgen, defaults, K given**", "0.300 ± 0.141", "-", "2.5"],
        ["COACH, cdlib", "failed: a / b", "-", "-"],
    ]
    assert rows_of(page, {"g": runs}, "omega")[0] == ["Leiden (disjoint), igraph", "1.000"]
    assert page.standing("g", runs) == ["g", "0.300", "2 of 3", "0.500, Leiden (disjoint), igraph"]


def test_quoted_rows_stand_beside_measured_ones(page: ModuleType) -> None:
    ours = {"fb_348": [scored("mmsbgen", 0.25)]}
    assert rows_of(page, ours) == [
        ["svinet, pi > 0.1, K given †", "0.272 ± 0.025", "(6.7)"],
        ["**mmsbgen, defaults, K given**", "0.250", "2"],
        ["svinet communities.txt, K given †", "0.230 ± 0.015", "(6.7)"],
    ]
    assert page.standing("fb_348", ours["fb_348"])[2] == "2 of 3"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--methods", "magic"], "no method 'magic'"),
        (["--data", str(DATA), "--graphs", "fb_9999"], "fb_9999.txt.gz is not there"),
    ],
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
    assert not (tmp_path / "quality.md").exists()


def test_the_page_in_the_repository_is_that_of_its_report(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scripts: Path
) -> None:
    docs = scripts.parent / "docs"
    shutil.copy(docs / "reports" / "quality.json", tmp_path / "quality.json")
    call(bench, monkeypatch, tmp_path)
    assert (tmp_path / "quality.md").read_text() == (docs / "quality.md").read_text()
