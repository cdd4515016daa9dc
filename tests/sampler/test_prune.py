"""Pruning of communities that held-out pairs do not need."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from mmsbgen.families.mmsb.numbers.sparse_rows import NONE
from mmsbgen.graph import split
from mmsbgen.graph.building import build_graph
from mmsbgen.graph.graph import Adjacency
from mmsbgen.sampler.diagnostics.evaluation import evaluate
from mmsbgen.sampler.diagnostics.explained_links import link_probabilities
from mmsbgen.sampler.run import prune as pruning
from mmsbgen.sampler.run.prune import log_likelihoods, members_by_links, needless, prune
from mmsbgen.sampler.starts.start_methods import of_sets

GROUPS, SIZE = 6, 20
N = GROUPS * SIZE


@pytest.fixture(scope="module")
def parts():
    """Disjoint groups with chance links across them."""
    rng = np.random.default_rng(4)
    a, b = np.triu_indices(N, 1)
    linked = rng.random(a.size) < np.where(a // SIZE == b // SIZE, 0.5, 0.03)
    graph = build_graph(a[linked], b[linked], np.arange(N), name="planted", directed=False)
    return split(graph, validation=0.1, seed=2)


def degrees_of(links, n):
    return np.bincount(links.ravel(), minlength=n)


def evidence(links, best, degrees, k):
    """As `prune.evidence`, of the members by links."""
    ordered = links[np.lexsort(links.T[::-1])]
    sets = members_by_links(links, best, degrees, k)
    return pruning.evidence(sets, Adjacency.from_pairs(ordered, degrees.size))


def test_evidence_by_hand():
    """A clique of 4 and 2 more links of 8 vertices; no vertex has two links in the second community."""
    links = np.array([[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3], [4, 5], [6, 7]])
    best = np.array([0, 0, 0, 0, 0, 0, 1, 1])
    chance = 8 / 28 * 6
    expected = (6 * math.log(6 / chance) - 6 + chance) / math.log(math.comb(8, 4))
    assert evidence(links, best, degrees_of(links, 8), 3) == pytest.approx([expected, 0.0, 0.0])


def test_a_part_of_a_community_has_no_evidence_of_its_own():
    """Of 30 vertices, all 10 of a clique are a community; so are 4 of them that explain 6 of its links.

    The others are in pairs.
    """
    a, b = np.triu_indices(10, 1)
    links = np.concatenate([np.stack([a, b], axis=1), np.arange(10, 30).reshape(-1, 2)])
    best = np.concatenate([np.where(b < 4, 1, 0), np.full(10, 2)])
    found = evidence(links, best, degrees_of(links, 30), 3)
    assert found[0] > 1.0
    assert found[1] == 0.0


def test_a_member_has_more_links_there_than_by_chance():
    """Vertex 0 of a triangle has 2 of 9 links there, less than chance, and is no member; with 2 of 3 it is one.

    Vertices without links do not count.
    """

    def ratio(inside: int, size: int, n_links: int, n: int) -> float:
        chance = n_links / math.comb(n, 2) * math.comb(size, 2)
        return (inside * math.log(inside / chance) - inside + chance) / math.log(math.comb(n, size))

    links = np.array([[0, 1], [0, 2], [1, 2], *([0, 3 + i] for i in range(7))])
    best = np.array([0, 0, 0] + [1] * 7)
    assert evidence(links, best, degrees_of(links, 10), 2)[0] == pytest.approx(ratio(1, 2, 10, 10))
    assert evidence(links[:4], best[:4], degrees_of(links[:4], 10), 2)[0] == pytest.approx(ratio(3, 3, 4, 4))


def test_members_of_many_communities_count():
    """Vertices in six communities each, with a sixth of their links in each: labels by chance have less evidence."""
    rng = np.random.default_rng(7)
    n, k = 480, 120
    own = np.argsort(rng.random((n, k)), axis=1)[:, :6]
    members = [np.flatnonzero((own == c).any(axis=1)) for c in range(k)]
    drawn = [(a, b, c) for c in range(k) for a in members[c] for b in members[c] if a < b and rng.random() < 0.4]
    _, first = np.unique(np.array(drawn)[:, :2], axis=0, return_index=True)
    links, best = np.array(drawn)[first, :2], np.array(drawn)[first, 2]
    degrees, counts = np.bincount(links.ravel()), np.zeros((n, k))
    np.add.at(counts, (links, best[:, None]), 1)
    assert np.median(counts.max(axis=1) / degrees) < 0.25
    found, chance = evidence(links, best, degrees, k), evidence(links, rng.permutation(best), degrees, k)
    assert found.min() > 0.15
    assert chance.max() < 0.05


def test_log_likelihoods_are_those_of_the_rows_without_the_first_communities():
    rng = np.random.default_rng(0)
    rows, beta = rng.dirichlet(np.ones(5), 6), rng.uniform(0.1, 0.9, 5)
    pairs, links = np.array([[0, 1], [2, 3], [4, 5]]), np.array([True, False, True])
    found = log_likelihoods(rows[pairs[:, 0]], rows[pairs[:, 1]], beta, 1e-3, links)
    for count in range(5):
        left = rows[:, count:] / rows[:, count:].sum(axis=1, keepdims=True)
        p = link_probabilities(pairs, lambda at, left=left: left[at], beta[count:], 1e-3)
        assert found[:, count] == pytest.approx(np.where(links, np.log(p), np.log1p(-p)))


@pytest.mark.slow
def test_chance_communities_are_emptied_and_true_ones_stay(chain, processor, parts):
    sampler = chain(processor, parts, n_communities=3 * GROUPS, mini_batch="block", noise=None, n_partners=N)
    rng = np.random.default_rng(1)
    groups = [np.arange(SIZE) + SIZE * i for i in range(GROUPS)]
    chance = [rng.choice(N, 8, replace=False) for _ in range(2 * GROUPS)]
    sampler.initialise(of_sets("both", groups + chance))
    for _ in range(40):
        sampler.step()
    removed = needless(sampler)
    assert removed.size >= GROUPS
    assert removed.min() >= GROUPS, "none of the planted groups"
    before, _ = evaluate(sampler, burnt_in=False)
    assert prune(sampler) == removed.size
    rows = sampler.rows(0, N)[0]
    assert rows[:, removed].sum(axis=1).max() <= 0.01 + 1e-6
    assert rows.sum(axis=1) == pytest.approx(1.0, abs=1e-5)
    assert (rows >= 0).all()
    for _ in range(20):
        sampler.step()
    after, _ = evaluate(sampler, burnt_in=False)
    pairs = len(parts.validation.pairs)
    error = before.sample_log_likelihood / math.sqrt(pairs)
    assert after.sample_log_likelihood > before.sample_log_likelihood - 2 * abs(error)
    assert set(sampler.rows(0, N)[0].argmax(axis=1)) == set(range(GROUPS)), "what was emptied stays empty"


def test_nothing_is_removed_without_held_out_pairs(chain, processor, parts):
    blind = split(parts.graph, validation=0.0, seed=2)
    sampler = chain(processor, blind, n_communities=4, mini_batch="block", noise=None)
    sampler.initialise()
    assert prune(sampler) == 0


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_losses_by_entries_are_those_of_the_definition(monkeypatch, set_cores, seed, linked):
    """Without the first c communities: left_a = 1 - sum_removed pi_a, s = sum_left pi_a pi_b / (left_a left_b), and
    p = sum_left beta pi_a pi_b / (left_a left_b) + delta (1 - s), each as it was after the last removal of a kept
    entry; of communities that neither row keeps the products are left out.  With any threads, to the last bit."""
    rng, k, kept, floor, delta, n = np.random.default_rng(seed), 12, 4, 1e-3, 0.01, 30
    beta, order = rng.uniform(0.2, 0.9, k), rng.permutation(k)
    entries = np.array([rng.permutation(k)[:kept] for _ in range(n)]).astype(np.int64)
    values = floor + rng.dirichlet(np.ones(kept), n) * (1 - k * floor)
    short = rng.random(n) < 0.3  # rows that keep fewer
    values[short, 0] += values[short, -1] - floor
    values[short, -1], entries[short, -1] = 0.0, NONE
    rows = np.full((n, k), floor)
    for row, places, kept_values in zip(rows, entries, values, strict=True):
        row[places[places != NONE]] = kept_values[places != NONE]
    np.testing.assert_allclose(rows.sum(axis=1), 1.0)
    pairs = rng.integers(0, n, (50, 2))
    total, squares = np.zeros(k), np.zeros(k)
    for a, b in pairs:
        known = (set(entries[a]) | set(entries[b])) - {NONE}
        begin = lost = 0.0
        for c in range(k):
            if c == 0 or order[c - 1] in known:
                left = np.array([community for community in order[c:] if community in known], int)
                size = (1 - rows[a, order[:c]].sum()) * (1 - rows[b, order[:c]].sum())
                both = rows[a, left] * rows[b, left] / size
                p = (both * beta[left]).sum() + delta * (1 - both.sum())
                log = np.log(p) if linked else np.log1p(-p)
                begin = log if c == 0 else begin
                lost = begin - log
            total[c] += lost
            squares[c] += lost**2
    fake = SimpleNamespace(entries=lambda vertices: (entries[vertices], values[vertices]))
    monkeypatch.setattr(pruning, "SparseRows", lambda sampler: fake)
    sampler = SimpleNamespace(
        shape=SimpleNamespace(k=k, floor=floor),
        state=SimpleNamespace(beta=lambda: beta),
        options=SimpleNamespace(crossing=delta),
    )
    found = pruning._sparse_losses(sampler, pairs, linked, order)
    np.testing.assert_allclose(found[0], total, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found[1], squares, rtol=1e-9, atol=1e-9)
    monkeypatch.setattr(pruning, "_PAIRS", 3)
    one, three = ([set_cores(cores), pruning._sparse_losses(sampler, pairs, linked, order)][1] for cores in (1, 3))
    np.testing.assert_allclose(one, found, rtol=1e-9, atol=1e-9)
    assert np.array_equal(one, three)
