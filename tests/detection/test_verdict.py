"""What a run says about structure, in its record, to callers, in the summary and in the report."""

from __future__ import annotations

import json

import networkx
import numpy as np
import pytest
from bench_verdict import of_degrees, planted, power_law, uniform

import mmsbgen
from mmsbgen.report.run.run_page import run_page
from tests.detection.detections import cli
from tests.devices import PROCESSOR

CAVES = networkx.connected_caveman_graph(20, 4)
CLIQUES = networkx.disjoint_union(networkx.complete_graph(20), networkx.complete_graph(20))


def verdict(links: np.ndarray, k: int, seed: int) -> mmsbgen.Detection:
    return mmsbgen.detect(links, k, random_state=seed, device=PROCESSOR)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_random_graphs_have_no_structure(seed):
    """By chance fewer than 3 in 1000 runs call such a graph found, or weak."""
    rng = np.random.default_rng(seed)
    assert verdict(uniform(1000, 5000, rng), 10, seed).verdict.kind == "none"
    assert verdict(uniform(1000, 5000, rng, 500), 10, seed).verdict.kind == "none"
    degrees = verdict(of_degrees(power_law(1000, 10.0, rng), rng), 10, seed)
    assert degrees.verdict.kind == "degrees"
    assert degrees.record["held_out"]["validation"]["auc"] > 0.6, "degrees predict links"


@pytest.mark.slow
@pytest.mark.parametrize(("n", "k", "signal"), [(100, 2, 3.0), (300, 3, 3.0), (1000, 4, 3.0)])
def test_planted_communities_are_found(n, k, signal):
    links = planted(n, k, 10.0, signal, np.random.default_rng(7))
    assert verdict(links, k, 0).verdict.kind == "found"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("graph", "k"), [(networkx.disjoint_union_all([networkx.complete_graph(3)] * 40), 40), (CAVES, 20)]
)
def test_many_small_communities_are_found(graph, k):
    assert verdict(np.array(graph.edges), k, 0).verdict.kind == "found"


@pytest.mark.slow
@pytest.mark.parametrize("k", [2, 5])
def test_two_cliques_are_found_and_converge(tmp_path, k):
    path = tmp_path / "cliques.txt"
    path.write_text("".join(f"{a} {b}\n" for a, b in CLIQUES.edges))
    done = cli(path, "-k", k, "-o", tmp_path / "out")
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert record["verdict"]["kind"] == "found"
    assert record["convergence"]["text"].startswith("Converged")
    assert done.stdout.startswith(record["verdict"]["sentence"])
    notices = run_page(tmp_path / "out").notices
    assert [(one.kind, one.text) for one in notices[:2]] == [
        ("good", record["verdict"]["sentence"]),
        ("good", record["convergence"]["text"]),
    ]


@pytest.mark.slow  # it draws, and imports what draws
def test_a_report_is_green_only_where_structure_was_found(ring, tmp_path):
    cli(ring, "-k", 3, "-n", 4, "-o", tmp_path)
    record = json.loads((tmp_path / "run.json").read_text())
    record["convergence"]["text"] = "Converged: at the end."
    for kind, colours in (("found", ["good", "good"]), ("weak", ["warning", "note"]), ("none", ["warning", "note"])):
        record["verdict"] |= {"kind": kind, "sentence": "A sentence."}
        (tmp_path / "run.json").write_text(json.dumps(record))
        assert [one.kind for one in run_page(tmp_path).notices[:2]] == colours
    del record["verdict"]
    (tmp_path / "run.json").write_text(json.dumps(record))
    assert [one.kind for one in run_page(tmp_path).notices[:2]] == ["note", "note"], "an older version's"


def test_the_verdict_is_a_fitted_attribute_that_a_file_keeps(ring, tmp_path):
    model = mmsbgen.MMSB(3, device=PROCESSOR, iterations=4).fit(ring)
    assert model.verdict_ == model.detection_.verdict
    assert model.verdict_.links == 3
    assert mmsbgen.MMSB.load(model.save(tmp_path / "model")).verdict_ == model.verdict_


def test_a_run_without_held_out_links_on_a_large_graph_does_not_know(ring, monkeypatch):
    monkeypatch.setattr("mmsbgen.sampler.diagnostics.verdict._SMALL", 10)
    found = mmsbgen.detect(ring, 3, device=PROCESSOR, iterations=4, validation=0.0)
    assert found.verdict.kind == "unknown"
    assert "--validation" in found.verdict.sentence
