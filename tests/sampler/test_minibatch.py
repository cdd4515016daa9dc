"""Every strategy is unbiased: the expectation of weight times indicator is one for every eligible pair."""

from __future__ import annotations

import numpy as np
import pytest

from mmsbgen.graph import EdgeSet, Split
from mmsbgen.sampler.minibatch import strategies
from mmsbgen.sampler.minibatch.strategies import STARS, Sources, most_pairs
from mmsbgen.sampler.options.options import Options
from tests.sampler import host_batches
from tests.sampler.host_batches import MiniBatch, host_batch

#: A block's pairs are those of its vertices with all their links and shared partners: tests/statistics/test_weights.py.
ALL = [*STARS, "block"]


def sources(parts: Split, size: int, mini_batch: str = "random-node", **options: object) -> Sources:
    chosen = Options(n_communities=3, seed=17, mini_batch=mini_batch, mini_batch_size=size, **options).sized_for(
        parts.graph.n_vertices
    )
    return Sources(parts, EdgeSet.build(parts.training_links), EdgeSet.build(parts.held_out_pairs), chosen)


def matrix(batch: MiniBatch, n: int) -> np.ndarray:
    """Signed weights of a batch by unordered pair, [N, N] above the diagonal."""
    weights = np.zeros((n, n))
    np.add.at(
        weights, (np.minimum(batch.pairs_a, batch.pairs_b), np.maximum(batch.pairs_a, batch.pairs_b)), batch.weights
    )
    return weights


def truth(parts: Split, links: bool = True, non_links: bool = True) -> np.ndarray:
    n = parts.graph.n_vertices
    right = -np.triu(np.ones((n, n)), 1) * non_links
    right[tuple(parts.training_links.T)] = float(links)
    right[tuple(parts.held_out_pairs.T)] = 0.0
    return right


def enumerated(parts: Split, name: str, monkeypatch: pytest.MonkeyPatch, size: int, **options: object) -> np.ndarray:
    """The exact mean over vertex and coin, in place of the draws that choose them."""
    s = sources(parts, size, name, **options)
    n, total = s.n_vertices, 0.0
    for vertex in range(n):
        for coin in (0, 1):
            monkeypatch.setattr(strategies, "_draw", lambda _s, _i, number, _b, c=(vertex, coin): np.array([c[number]]))
            total = total + matrix(host_batch(s, 1), n) / (2 * n)
    monkeypatch.undo()
    return total


@pytest.mark.parametrize(
    ("name", "links", "non_links"),
    [("random-node", True, True), ("random-node-link", True, False), ("random-node-non-link", False, True)],
)
def test_star_weights_are_exact_where_m_is_clamped(awkward, monkeypatch, name, links, non_links):
    found = enumerated(awkward, name, monkeypatch, size=1000)
    np.testing.assert_allclose(found, truth(awkward, links, non_links), rtol=1e-12, atol=1e-12)


def test_balanced_weights_give_both_strata_the_same_total(awkward, monkeypatch):
    found = enumerated(awkward, "random-node", monkeypatch, size=1000, nonlink_weight="balanced")
    assert found[found > 0].sum() == pytest.approx(-found[found < 0].sum(), rel=1e-12)
    assert np.allclose(found[found > 0], 1.0)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_non_links_of_a_vertex_are_clamped_and_so_is_their_weight(awkward, monkeypatch, size):
    s = sources(awkward, size)
    n = s.n_vertices
    held = {frozenset(p) for p in awkward.held_out_pairs.tolist()}
    for vertex in range(n):
        near = set(awkward.training_adjacency.row(vertex).tolist())
        eligible = [v for v in range(n) if v != vertex and v not in near and frozenset((v, vertex)) not in held]
        assert host_batches.eligible(s, vertex) == len(eligible)
        with monkeypatch.context() as patch:
            patch.setattr(strategies, "_draw", lambda _s, _i, number, _b, v=vertex: np.array([(v, 0)[number]]))
            batch = host_batch(s, 5)
        assert batch.pairs_b.size == min(size, len(eligible)) == np.unique(batch.pairs_b).size
        assert set(batch.pairs_b.tolist()) <= set(eligible)
        if eligible:
            assert np.allclose(batch.weights, -n * len(eligible) / batch.pairs_b.size)


@pytest.mark.slow
@pytest.mark.parametrize("name", STARS)
@pytest.mark.parametrize("size", [2, 5])
def test_means_over_draws_are_one(awkward, name, size):
    s = sources(awkward, size, name)
    n, rounds = s.n_vertices, 1500
    total, squares = np.zeros((n, n)), np.zeros((n, n))
    first, second = np.array(np.triu_indices(n, 1))
    for iteration in range(1, rounds + 1):
        w = matrix(host_batch(s, iteration), n)
        total += w
        squares += w * w
    right = truth(awkward, name != "random-node-non-link", name != "random-node-link")[first, second]
    mean = (total / rounds)[first, second]
    error = np.sqrt(np.maximum((squares / rounds)[first, second] - mean**2, 0) / rounds)
    assert np.all(mean[right == 0] == 0)
    off = np.abs(mean - right) - 5 * error
    assert np.all(off[right != 0] <= 1e-9), (mean[off > 0], right[off > 0])
    assert np.all(error[right != 0] < 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_batches_fit_what_is_allocated(awkward, name):
    for size in (1, 4, 13, 500):
        s = sources(awkward, size, name)
        for iteration in range(1, 60):
            batch = host_batch(s, iteration)
            assert (
                batch.vertices.size
                == np.unique(batch.vertices).size
                <= (min(size, 14) if name == "block" else 1 + most_pairs(s))
            )
            assert batch.pairs_a.size == batch.pairs_b.size == batch.weights.size <= most_pairs(s)
            used = batch.weights != 0
            assert not np.any(s.held.contains(batch.pairs_a[used], batch.pairs_b[used]))
            assert not np.any(batch.pairs_a[used] == batch.pairs_b[used])
            if name != "block":
                assert set(batch.pairs_a.tolist()) | set(batch.pairs_b.tolist()) == set(batch.vertices.tolist())


@pytest.mark.parametrize("size", [1, 5, 7, 14, 100])
def test_a_sweep_of_blocks_updates_every_vertex_with_links_once(awkward, size):
    s = sources(awkward, size, mini_batch="block")
    per_sweep = host_batches.sweeps_of(s).per_sweep
    orders = []
    for sweep in range(2):
        batches = [host_batch(s, sweep * per_sweep + part + 1) for part in range(per_sweep)]
        seen = np.concatenate([batch.vertices for batch in batches])
        orders.append(seen.tolist())
        degrees = awkward.training_adjacency.degrees
        assert sorted(seen.tolist()) == np.flatnonzero(degrees).tolist()
        assert all(np.all(np.diff(degrees[batch.vertices].astype(int)) <= 0) for batch in batches)
        assert {batch.vertices.size for batch in batches} <= {seen.size // per_sweep, -(-seen.size // per_sweep)}
    assert size >= 14 or orders[0] != orders[1]


@pytest.mark.parametrize("name", ALL)
def test_draws_depend_on_seed_and_iteration_alone(awkward, name):
    s = sources(awkward, 5, name)
    there = host_batch(s, 9)
    host_batch(s, 1)
    again = host_batch(s, 9)
    assert all(np.array_equal(getattr(there, f), getattr(again, f)) for f in ("vertices", "pairs_a", "weights"))


@pytest.mark.slow
def test_distinct_non_links_are_uniform(middling):
    """Few of many: every eligible vertex comes up equally often."""
    s = sources(middling, 6)
    vertex, rounds = 2, 2000
    counts = np.zeros(s.n_vertices)
    for iteration in range(rounds):
        found = host_batches.distinct_non_links(s, vertex, iteration)
        assert found.size == 6 == np.unique(found).size
        counts[found] += 1
    p = 6 / host_batches.eligible(s, vertex)
    eligible = counts > 0
    assert eligible.sum() == host_batches.eligible(s, vertex)
    assert np.all(np.abs(counts[eligible] - rounds * p) < 5 * np.sqrt(rounds * p * (1 - p)))
