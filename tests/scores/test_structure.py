"""Scores of a cover by the graph alone, against networkx and the definitions."""

from __future__ import annotations

import tracemalloc
from typing import Any

import networkx as nx
import numpy as np
import pytest

from mmsbgen.base.errors import InputError
from mmsbgen.graph import as_graph
from mmsbgen.scores import structure


def extended_modularity(graph: nx.Graph, cover: list[list[Any]]) -> float:
    """EQ of Shen et al., pair by pair."""
    ends = 2 * graph.number_of_edges()
    of = {v: sum(v in one for one in cover) for v in graph}
    found = 0.0
    for one in cover:
        for a in one:
            for b in one:
                found += (graph.has_edge(a, b) - graph.degree[a] * graph.degree[b] / ends) / (of[a] * of[b])
    return found / ends


@pytest.mark.parametrize("seed", range(5))
def test_a_partition_has_the_scores_of_networkx(seed: int) -> None:
    graph = nx.planted_partition_graph(4, 12, 0.5, 0.1, seed=seed)
    parts = [list(range(12 * c, 12 * c + 12)) for c in range(4)]
    found = structure(parts, graph.edges)
    assert found.modularity == pytest.approx(nx.community.modularity(graph, parts))
    assert found.conductance == pytest.approx(np.mean([nx.conductance(graph, part) for part in parts]))
    assert found.coverage_of_links == pytest.approx(nx.community.partition_quality(graph, parts)[0])
    assert found.internal_density == pytest.approx(np.mean([nx.density(graph.subgraph(part)) for part in parts]))
    assert (found.communities, found.coverage, found.memberships) == (4, 1.0, 1.0)


@pytest.mark.parametrize("seed", range(5))
def test_an_overlapping_cover_has_the_scores_of_the_definitions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = nx.relabel_nodes(nx.gnp_random_graph(30, 0.2, seed=seed), {n: f"v{n}" for n in range(30)})
    names = list(graph)
    cover = [[names[n] for n in rng.choice(30, size, replace=False)] for size in (1, 2, 8, 12, 20)]
    source = as_graph(graph)
    found = structure(cover, source.ids[source.links], source.ids)
    assert found.modularity == pytest.approx(extended_modularity(graph, cover))
    shared = [any(a in one and b in one for one in cover) for a, b in graph.edges]
    assert found.coverage_of_links == pytest.approx(np.mean(shared))
    assert found.internal_density == pytest.approx(np.mean([nx.density(graph.subgraph(one)) for one in cover[1:]]))
    linked = [one for one in cover if nx.volume(graph, one)]
    assert found.conductance == pytest.approx(np.mean([nx.conductance(graph, one) for one in linked]))


def test_memory_grows_with_links_and_members_not_with_their_product() -> None:
    links = np.arange(40_000).reshape(-1, 2)
    tracemalloc.start()
    try:
        found = structure([range(40_000)], links)
        assert tracemalloc.get_traced_memory()[1] < 100e6, "a mask of links by members has 800 MB"
    finally:
        tracemalloc.stop()
    assert found.coverage_of_links == 1.0


def test_limiting_cases() -> None:
    links = [(0, 1), (1, 2), (2, 0)]
    everything = structure([[0, 1, 2]], links)
    assert (everything.modularity, everything.conductance, everything.coverage_of_links) == (0.0, 0.0, 1.0)
    alone = structure([[3]], links, vertices=range(4))
    assert (alone.conductance, alone.internal_density, alone.coverage_of_links) == (None, None, 0.0)
    assert alone.coverage == 0.25
    twice = structure([[0, 1, 2]] * 2, links)
    assert twice.modularity == pytest.approx(2 * (1 - 1) / 4), "each link counts a quarter in each"
    for cover, more, message in (
        ([[0, 9]], links, "has the id '9', which is no vertex of the graph"),
        ([[0, 1]], [], "the graph has no links"),
        ([], links, "the cover has no community"),
    ):
        with pytest.raises(InputError, match=message):
            structure(cover, more)
