"""Local moving: sums and contractions against counting, modularity against Leiden's, and the same for any threads."""

from __future__ import annotations

import networkit  # noqa: F401 - an import of its own would count as time of a test
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmsbgen.graph.graph import Adjacency
from mmsbgen.sampler.starts import local_moving
from mmsbgen.sampler.starts.leiden import leiden, modularity, network
from mmsbgen.sampler.starts.local_moving import Weighted, coarsened, corrected, moved


def random_links(n: int, degree: float, groups: int, seed: int) -> np.ndarray:
    """Links ``[E, 2]`` of ``n`` vertices, four in five within one of ``groups``, distinct and in order."""
    rng = np.random.default_rng(seed)
    count = int(n * degree / 2)
    first = rng.integers(n, size=count)
    within = (first + groups * rng.integers(max(1, n // groups), size=count)) % n
    second = np.where(rng.random(count) < 0.8, within, rng.integers(n, size=count))
    pairs = np.sort(np.stack([first, second], axis=1), axis=1)
    return np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0)


def weighted(links: np.ndarray, n: int) -> Weighted:
    return Weighted.of(Adjacency.from_pairs(links, n))


@given(st.integers(0, 1000), st.integers(2, 40), st.integers(1, 9))
@settings(deadline=None, max_examples=40)
def test_contractions_count_links(seed, n, communities):
    """Twice over, so that the second has weights."""
    rng = np.random.default_rng(seed)
    links = random_links(n, 6, 3, seed)
    matrix = np.zeros((n, n), np.int64)
    matrix[links[:, 0], links[:, 1]] = matrix[links[:, 1], links[:, 0]] = 1
    graph, volumes = weighted(links, n), matrix.sum(axis=1)
    for count in (communities, 2):
        labels = np.unique(rng.integers(count, size=len(matrix)), return_inverse=True)[1]
        graph, own = graph.contracted(labels), np.eye(labels.max() + 1, dtype=np.int64)[labels]
        matrix, volumes = own.T @ matrix @ own, own.T @ volumes
        np.fill_diagonal(matrix, 0)
        found = np.zeros_like(matrix)
        found[np.repeat(np.arange(len(matrix)), np.diff(graph.offsets)), graph.ends] = graph.weights
        assert np.array_equal(found, matrix)
        assert np.array_equal(graph.volumes, volumes)


def test_the_strongest_links_stay_at_both_ends():
    rng, n = np.random.default_rng(4), 60
    graph = weighted(random_links(600, 40, 3, 4), 600).contracted(np.arange(600) % n)
    kept = graph.strongest(5)
    whole, found = np.zeros((n, n)), np.zeros((n, n))
    for matrix, one in ((whole, graph), (found, kept)):
        matrix[np.repeat(np.arange(n), np.diff(one.offsets)), one.ends] = one.weights
    strengths = whole / np.outer(graph.volumes, graph.volumes)
    for a, b in rng.integers(n, size=(200, 2)):
        among = [np.count_nonzero(strengths[one] > strengths[a, b]) < 5 for one in (a, b)]
        weaker = [np.count_nonzero(strengths[one] >= strengths[a, b]) > 5 for one in (a, b)]
        if whole[a, b] and (any(among) or all(weaker)) and not (any(among) and any(weaker)):
            assert found[a, b] == (whole[a, b] if any(among) else 0)
    assert np.array_equal(found, found.T)
    assert np.array_equal(kept.volumes, graph.volumes)
    assert np.count_nonzero(found) < np.count_nonzero(whole)
    assert graph.strongest(n) is graph


def test_two_cliques_by_hand():
    """Two cliques of four, joined by a link, and a vertex without links."""
    clique = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    links = np.array(sorted([*clique, *((a + 4, b + 4) for a, b in clique), (3, 4)]))
    labels = moved(weighted(links, 9), 1 / 26, np.random.default_rng(0))
    assert labels.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2]


@pytest.mark.parametrize("links", [[(0, 1)], [(0, 1), (1, 2)]])
def test_few_vertices_do_not_swap(links):
    n = len(links) + 1
    for seed in range(20):
        labels = moved(weighted(np.array(links), n), 1 / (2 * len(links)), np.random.default_rng(seed))
        assert labels.tolist() == [0] * n


def test_what_is_finished_does_not_end_contractions():
    """Communities of two sparse halves beside 2000 triangles, which the first contraction finishes."""
    rng, n, size = np.random.default_rng(1), 1200, 150
    first, whole = rng.integers(n, size=5 * n), rng.integers(n, size=n)
    within = np.stack([first, first // size * size + rng.integers(size, size=first.size)], axis=1)
    across = np.stack([whole, whole // (2 * size) * 2 * size + rng.integers(2 * size, size=n)], axis=1)
    triangles = (n + 3 * np.arange(2000)[:, None, None] + [(0, 1), (0, 2), (1, 2)]).reshape(-1, 2)
    pairs = np.sort(np.concatenate([within, across, triangles]), axis=1)
    graph = weighted(np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0), n + 6000)
    labels, smaller = coarsened(graph, 1.0 / graph.ends.size, 1)
    assert np.array_equal(np.unique(labels[n:], return_counts=True)[1], np.full(2000, 3))
    assert np.unique(labels[:n]).size == 4
    assert smaller.linked == 0


def test_corrections_leave_small_communities_of_others():
    """Two cliques, of which one has a vertex of the other."""
    clique = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    graph = weighted(np.array(sorted([*clique, *((a + 4, b + 4) for a, b in clique), (3, 4)])), 8)
    assert corrected(graph, np.array([0, 0, 0, 5, 5, 5, 5, 5]), 1 / 26, 0).tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("resolution", [1.0, 20.0])
def test_modularity_is_that_of_leiden(resolution):
    links = random_links(1000, 12, 50, 1)
    labels, graph = coarsened(weighted(links, 1000), resolution / (2 * len(links)), 1)
    right = leiden(network(1000, links), resolution, 1)
    assert graph.volumes.size == labels.max() + 1
    assert modularity(links, labels, resolution) >= 0.98 * modularity(links, right, resolution)


def test_equal_seeds_give_equal_communities_with_any_threads(monkeypatch, set_cores):
    """And however the arcs are divided among them."""
    graph, found = weighted(random_links(300, 10, 20, 2), 300), []
    for threads, arcs in ((1, 1 << 15), (3, 100), (2, 1)):
        monkeypatch.setattr(local_moving, "cores", lambda threads=threads: threads)
        monkeypatch.setattr(local_moving, "_ARCS", arcs)
        set_cores(threads)
        found.append(coarsened(graph, 10.0 / graph.ends.size, 5)[0])
    assert all(np.array_equal(found[0], other) for other in found[1:])
    assert not np.array_equal(found[0], coarsened(graph, 10.0 / graph.ends.size, 6)[0])


def test_it_ends_where_it_should():
    graph = weighted(random_links(2000, 10, 40, 2), 2000)
    one, fifty = (resolution / graph.ends.size for resolution in (1.0, 50.0))
    assert coarsened(graph, one, 0, most=2000)[1].linked < 1000
    first, last = (coarsened(graph, fifty, 0, least)[1].linked for least in (10**6, 0))
    assert last < first < 2000
    assert coarsened(graph, fifty, 0, first)[1].linked == first
    nothing = weighted(np.zeros((0, 2), np.int64), 3)
    assert coarsened(nothing, 1.0, 0)[0].tolist() == [0, 1, 2]


def test_keys_without_room_take_vertices_one_by_one(monkeypatch):
    """With 12 bits for keys of 11-bit labels, a part has at most two vertices."""
    graph = weighted(random_links(1200, 6, 40, 3), 1200)
    right = moved(graph, 1e-4, np.random.default_rng(0))
    monkeypatch.setattr(local_moving, "_BITS", 12)
    assert max(map(len, graph.parts(np.arange(1200), graph.left(11)))) == 2
    assert np.array_equal(moved(graph, 1e-4, np.random.default_rng(0)), right)
