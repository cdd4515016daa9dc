"""The benchmark of hidden links: which pairs are ranked, what scores are, and the page."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import networkx
import numpy as np
import pytest
from scipy.stats import chisquare

from mmsbgen.sampler.diagnostics.held_out import auc
from tests.devices import PROCESSOR

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture(autouse=True)
def _on_the_path(scripts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(scripts / "bench"))


@pytest.fixture
def scores() -> ModuleType:
    return importlib.import_module("_link_scores")


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = importlib.import_module("bench_links")
    monkeypatch.setattr(module, "BUILD", tmp_path / "build")
    return module


def graph_and_links(n: int = 300) -> tuple[networkx.Graph, np.ndarray]:
    graph = networkx.powerlaw_cluster_graph(n, 3, 0.3, seed=1)
    return graph, np.sort(np.array(graph.edges, np.int64), axis=1)


def test_pairs_are_hidden_links_and_two_kinds_of_non_links(scores: ModuleType) -> None:
    _, links = graph_and_links()
    rng = np.random.default_rng(0)
    shown, hidden = scores.hide(links, 0.1, rng)
    assert len(hidden) == round(0.1 * len(links))
    assert sorted([*shown.tolist(), *hidden.tolist()]) == sorted(links.tolist())
    known = set(map(tuple, links.tolist()))
    left = networkx.empty_graph(300)
    left.add_edges_from(shown.tolist())
    for near, pairs in (
        (False, scores.any_non_links(300, links, 200, rng)),
        (True, scores.near_non_links(300, links, shown, 200, rng)),
    ):
        found = set(map(tuple, pairs.tolist()))
        assert len(found) == 200
        assert not found & known
        assert all(u < v for u, v in found)
        if near:
            assert {networkx.shortest_path_length(left, u, v) for u, v in found} == {2, 3}


def test_near_non_links_are_equally_likely(scores: ModuleType) -> None:
    """A star with a tail: a vertex at first, then one of those near it, would take pairs of the tail too often."""
    graph = networkx.star_graph(4)
    graph.add_edges_from([(4, 5), (5, 6), (6, 7)])
    links = np.sort(np.array(graph.edges, np.int64), axis=1)
    lengths = dict(networkx.all_pairs_shortest_path_length(graph))
    wanted = [(u, v) for u in range(8) for v in range(u + 1, 8) if lengths[u][v] in (2, 3)]
    rng, times = np.random.default_rng(2), 3000
    counts = Counter(tuple(scores.near_non_links(8, links, links, 1, rng)[0].tolist()) for _ in range(times))
    assert set(counts) == set(wanted)
    assert chisquare([counts[pair] for pair in wanted]).pvalue > 1e-4
    with pytest.raises(ValueError, match="no 20 non-links"):
        scores.near_non_links(8, links, links, 20, rng)


def test_scores_are_those_of_networkx(scores: ModuleType) -> None:
    graph, links = graph_and_links()
    pairs = np.random.default_rng(1).integers(0, 300, (500, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    expected = {
        "common-neighbours": [len(list(networkx.common_neighbors(graph, u, v))) for u, v in pairs.tolist()],
        "adamic-adar": [score for _, _, score in networkx.adamic_adar_index(graph, pairs.tolist())],
        "resource-allocation": [score for _, _, score in networkx.resource_allocation_index(graph, pairs.tolist())],
        "preferential-attachment": [score for *_, score in networkx.preferential_attachment(graph, pairs.tolist())],
    }
    assert set(scores.NEIGHBOURS) == set(expected)
    for name, score in scores.NEIGHBOURS.items():
        np.testing.assert_allclose(score(scores.adjacency(300, links), pairs), expected[name], rtol=1e-12, err_msg=name)


def test_a_factorisation_ranks_links_of_blocks_and_chooses_its_size(scores: ModuleType) -> None:
    """Four blocks, whose links have the probability .5 and are most of all: the best AUC is that of the blocks."""
    graph = networkx.planted_partition_graph(4, 40, 0.5, 0.02, seed=3)
    links, rng = np.sort(np.array(graph.edges, np.int64), axis=1), np.random.default_rng(0)
    shown, hidden = scores.hide(links, 0.1, rng)
    pairs = np.concatenate([hidden, scores.any_non_links(160, links, len(hidden), rng)])
    labels = np.arange(len(pairs)) < len(hidden)
    given = scores.best_factors(160, shown, rng)
    assert given[0] in scores.SIZES
    assert given[1] in scores.ALPHAS
    rows, best = scores.adjacency(160, shown), auc((pairs[:, 0] // 40 == pairs[:, 1] // 40).astype(float), labels)
    found = scores.factors(rows, *given)(pairs)
    assert auc(found, labels) > best - 0.08
    np.testing.assert_allclose(scores.factors(rows, *given)(pairs[:, ::-1]), found, rtol=1e-5)


def call(bench: ModuleType, monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str) -> dict[str, Any]:
    places = ["--page", str(folder / "links.md"), "--report", str(folder / "links.json")]
    monkeypatch.setattr(sys, "argv", ["bench_links.py", *words, *places])
    bench.main()
    report: dict[str, Any] = json.loads((folder / "links.json").read_text())
    return report


@pytest.mark.opencl
@pytest.mark.usefixtures("processor")
def test_from_a_graph_to_a_page(bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--data", str(DATA), "--graphs", "fb_348", "--device", PROCESSOR, "--limit", "200"]
    report = call(bench, monkeypatch, tmp_path, *words, "--methods", "mmsbgen,adamic-adar,als")
    assert [(one["method"], one["status"]) for one in report["runs"]] == [
        ("mmsbgen", "ok"),
        ("adamic-adar", "ok"),
        ("als", "ok"),
    ], report["runs"]
    assert report["graphs"]["fb_348"]["hidden"] == 319
    page = (tmp_path / "links.md").read_text()
    for one in report["runs"]:
        assert min(one["auc"]) > 0.75, one
        assert f"{one['auc'][1]:.3f} ± {one['error'][1]:.3f}" in page
    assert "| fb_348 | 227 | 3192 | 319 |" in page
    assert f"| {report['runs'][0]['k']} |" in page
    picture = (tmp_path / "links.svg").read_text()
    for text in ("fb_348", "non-links: distance 2 or 3", "mmsbgen --chains 4", "Adamic-Adar"):
        assert text in picture
    monkeypatch.setattr(bench, "found", None)  # nothing is run again
    assert call(bench, monkeypatch, tmp_path)["runs"] == report["runs"]


def test_mmsbgen_sees_no_hidden_link_and_all_vertices(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def late(command: list[str], limit: float, folder: Path) -> None:
        case = bench.LinkCase("netscience", DATA / "netscience.txt.gz")
        shown, hidden, *_ = case.parts
        np.testing.assert_array_equal(np.loadtxt(folder / "graph.txt", int), shown)
        assert not set(map(tuple, shown.tolist())) & set(map(tuple, hidden.tolist()))
        np.testing.assert_array_equal(np.loadtxt(folder / "vertices.txt", int), np.arange(1461))
        seen.append(" ".join(command[1:]))
        raise subprocess.TimeoutExpired(command, limit)

    monkeypatch.setattr(bench, "run_limited", late)
    words = ["--data", str(DATA), "--graphs", "netscience", "--methods", ",".join(bench.OWN), "--limit", "9"]
    report = call(bench, monkeypatch, tmp_path, *words)
    assert [one["status"] for one in report["runs"]] == ["timeout"] * 3, report["runs"]
    begin = "detect graph.txt --vertices vertices.txt"
    assert seen == [
        f"{begin} --seed 0 -o out",
        f"{begin} --chains 4 --seed 0 -o out",
        f"{begin} -k 50 --chains 4 --seed 0 -o out",
    ]
    assert "| netscience | any pair | too slow | too slow | too slow | - |" in (tmp_path / "links.md").read_text()


def test_a_graph_that_is_not_there_is_told(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        call(bench, monkeypatch, tmp_path, "--data", str(DATA), "--graphs", "nothing")
    assert stopped.value.code == 2
    assert "nothing.txt.gz is not there" in capsys.readouterr().err


def test_the_page_in_the_repository_is_that_of_its_report(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scripts: Path
) -> None:
    reports = scripts.parent / "docs" / "reports"
    shutil.copy(reports / "links.json", tmp_path / "links.json")
    call(bench, monkeypatch, tmp_path)
    assert (tmp_path / "links.md").read_text() == (reports / "links.md").read_text()
