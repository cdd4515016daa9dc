"""The search for K communities on a contracted graph."""

from __future__ import annotations

import numpy as np
import pytest

from mmsbgen.graph import split
from mmsbgen.graph.building import build_graph
from mmsbgen.graph.graph import Adjacency
from mmsbgen.sampler.starts import contraction, start_methods
from mmsbgen.sampler.starts.contraction import between, labels_for, merged_to
from mmsbgen.sampler.starts.leiden import leiden, network


def clustered(n_clusters: int, size: int, seed: int) -> np.ndarray:
    """Links ``[E, 2]``: half of the pairs within clusters, a few between them."""
    rng = np.random.default_rng(seed)
    a, b = np.triu_indices(n_clusters * size, 1)
    linked = rng.random(a.size) < np.where(a // size == b // size, 0.5, 0.5 / n_clusters / size)
    return np.stack([a[linked], b[linked]], axis=1)


def nmi(labels: np.ndarray, others: np.ndarray) -> float:
    """Normalised mutual information of two partitions: 1 if they are equal."""
    joint = np.zeros((labels.max() + 1, others.max() + 1))
    np.add.at(joint, (labels, others), 1 / labels.size)
    one, other, both = (-(p[p > 0] * np.log(p[p > 0])).sum() for p in (joint.sum(axis=1), joint.sum(axis=0), joint))
    return float(2 * (one + other - both) / (one + other))


@pytest.mark.parametrize("seed", [0, 1])
def test_large_communities_of_a_large_graph_are_those_of_leiden(monkeypatch, seed):
    """Ten of 400 vertices with 12 links each within, beside 8 at random: contractions alone agree with them by .73."""
    n, size, rng = 4000, 400, np.random.default_rng(seed)
    first = rng.integers(n, size=6 * n)
    within = np.stack([first, first // size * size + rng.integers(size, size=first.size)], axis=1)
    links = np.concatenate([within, rng.integers(n, size=(4 * n, 2))])
    graph = build_graph(*links[links[:, 0] != links[:, 1]].T, np.arange(n), name="planted", directed=False)
    given = split(graph, validation=0.0, seed=0)
    monkeypatch.setattr(start_methods, "MANY", 0)
    start = start_methods.communities(given, 10, seed)
    right = leiden(network(n, given.training_links), 1.0, seed)
    truth = np.arange(n) // size
    assert nmi(right, truth) > 0.95
    assert start.vertices.tolist() == list(range(n))
    assert nmi(start.communities, truth) > 0.95


@pytest.mark.parametrize(("clusters", "size"), [(20, 12), (60, 6)])
def test_clusters_are_found_by_local_moving_and_merges(clusters, size):
    links, told = clustered(clusters, size, 1), []
    labels = labels_for(Adjacency.from_pairs(links, clusters * size), clusters, size / 2, 0, told.append)
    assert told == list(range(1, len(told) + 1))
    assert len(told) <= 3
    sizes = np.bincount(labels)
    assert abs(np.count_nonzero(sizes >= size / 2) - clusters) <= max(1, 0.05 * clusters)
    # Most pairs of a cluster are in one community.
    cluster = np.arange(clusters * size) // size
    a, b = np.triu_indices(clusters * size, 1)
    assert np.mean(labels[a][cluster[a] == cluster[b]] == labels[b][cluster[a] == cluster[b]]) > 0.8


@pytest.mark.parametrize(
    ("least", "slope", "most"), [(40, 40.0, 1e9), (300, 900.0, 1e9), (1, 20.0, 1e9), (5, 50.0, 60)]
)
def test_the_search_needs_few_runs(least, slope, most):
    """Of a number that is linear in the resolution, whatever is left at 0; where K is out of reach, the nearest."""

    asked: list[float] = []

    def merged(resolution: float) -> np.ndarray:
        asked.append(resolution)
        return np.arange(20000) % int(min(most, max(1, round(least + slope * resolution))))

    labels, resolution = merged_to(merged, np.ones(20000), 1000, 1.0, 256.0)
    assert np.array_equal(labels, merged(resolution))
    asked.pop()
    count = int(labels.max()) + 1
    assert len(asked) <= contraction._RUNS
    assert all(0 < resolution <= 256 for resolution in asked)
    if most > 1000:
        assert abs(count - 1000) <= 20
        assert len(asked) <= 5
    else:
        assert count == 60


def test_the_line_through_the_two_nearest():
    assert between([(1.0, 50)], 100) == 2.0
    assert between([(1.0, 50), (2.0, 90)], 100) == pytest.approx(2.25)
    assert between([(1.0, 90), (2.0, 90)], 100) == pytest.approx(100 / 90)
    assert between([(9.0, 10), (1.0, 50), (2.0, 90)], 100) == pytest.approx(2.25)
    assert between([(1.0, 0)], 10) == 10.0
