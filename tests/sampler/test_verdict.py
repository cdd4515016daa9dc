"""The tests behind the verdict: swapped links, ranks, eigenvalues of rewired graphs, and what they decide."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, replace
from itertools import islice

import networkx
import numpy as np
import pytest
from bench_verdict import of_degrees, planted, power_law, simple, uniform

from mmsbgen.graph import Graph, as_graph, split
from mmsbgen.sampler.diagnostics.rewired_graphs import Rewired, Statistic, rewired, second_eigenpair
from mmsbgen.sampler.diagnostics.verdict import (
    Ranks,
    _barred,
    decided,
    degree_excess,
    mean_ranks,
    of_record,
    ranks,
    swapped,
)


def beside(graph: Graph, labels: np.ndarray) -> Rewired:
    found = rewired(graph, labels, 0)
    assert found is not None
    return found


def none_barred(n: int) -> np.ndarray:
    return np.eye(n, dtype=bool)


def one_hot(labels: np.ndarray, k: int) -> np.ndarray:
    return np.eye(k, dtype=np.float32)[labels]


# Swaps --------------------------------------------------------------------------------------------------------


def test_links_known_pairs_and_loops_are_barred():
    parts = split(as_graph(planted(200, 4, 20, 1.0, np.random.default_rng(0))), validation=0.1, seed=0)
    vertices = np.sort(np.random.default_rng(0).choice(200, 60, replace=False))
    right = np.eye(200, dtype=bool)
    for pairs in (parts.training_links, parts.validation.pairs):
        right[tuple(pairs.T)] = right[tuple(pairs.T[::-1])] = True
    found = _barred(vertices, parts.training_adjacency, [parts.validation.pairs, np.zeros((0, 2), np.int64)])
    assert np.array_equal(found, right[np.ix_(vertices, vertices)])


def test_swaps_keep_degrees_and_make_no_pair_that_is_barred():
    rng = np.random.default_rng(0)
    links = as_graph(uniform(40, 120, rng)).links
    held_out, known = links[::3], np.delete(links, np.s_[::3], axis=0)
    barred = none_barred(40)
    barred[known[:, 0], known[:, 1]] = barred[known[:, 1], known[:, 0]] = True
    seen = set()
    for drawn in islice(swapped(held_out, barred, rng), 100):
        np.testing.assert_array_equal(
            np.bincount(drawn.ravel(), minlength=40), np.bincount(held_out.ravel(), minlength=40)
        )
        assert not barred[drawn[:, 0], drawn[:, 1]].any()
        pairs = frozenset(map(frozenset, drawn.tolist()))
        assert len(pairs) == len(drawn), "no double link"
        seen.add(pairs)
    assert len(seen) > 90


@pytest.mark.slow
def test_every_set_of_links_is_drawn_as_often():
    """Six vertices of one link each: 12 of the 15 matchings do not link 0 and 1. Chi-squared, 11 degrees of freedom."""
    barred = none_barred(6)
    barred[0, 1] = barred[1, 0] = True
    count, every = 2400, 4
    walk = swapped(np.array([[0, 2], [1, 3], [4, 5]]), barred, np.random.default_rng(1))
    drawn = Counter(frozenset(map(frozenset, links.tolist())) for links in islice(walk, 0, count * every, every))
    assert len(drawn) == 12
    chi_squared = sum((n - count / 12) ** 2 / (count / 12) for n in drawn.values())
    # Successive sets are not quite independent, which the factor is for: 4 rounds leave a correlation below .3.
    assert chi_squared < (1.3 / 0.7) * (11 + 5 * math.sqrt(22))


def test_ranks_are_one_half_on_average():
    rng = np.random.default_rng(2)
    scores = rng.random((30, 30))
    links = as_graph(uniform(30, 20, rng)).links
    means = mean_ranks(links, scores + scores.T, none_barred(30), rng)
    assert means.shape == (200,)
    assert means.mean() == pytest.approx(0.5)
    np.testing.assert_allclose(mean_ranks(links, np.ones((30, 30)), none_barred(30), rng), 0.5)


# Ranks --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_communities_that_follow_degrees_only_are_not_significant():
    """Hubs share a community, so that links rank above non-links by far; over 40 graphs deviations are N(0, 1)."""
    deviations = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        graph = as_graph(of_degrees(power_law(400, 5.0, rng), rng))
        labels = np.where(graph.degrees() > 8, 0, rng.integers(1, 4, graph.n_vertices))
        parts = split(graph, validation=0.1, seed=seed)
        found = ranks(parts, one_hot(labels, 4).__getitem__, np.array([0.9, 0.1, 0.1, 0.1]), seed)
        assert found is not None
        deviations.append(found.deviations)
    assert abs(np.mean(deviations)) < 4 / math.sqrt(40)
    assert np.var(deviations, ddof=1) == pytest.approx(1, abs=4 * math.sqrt(2 / 40))


def test_planted_communities_rank_as_their_links_say():
    """Of labels that are right: with a share s of links inside and half of the pairs, AUC = 1/2 + (s - 1/2) / 2."""
    rng, n = np.random.default_rng(3), 600
    first = rng.integers(0, n, 3000)
    second = (first + 2 * rng.integers(1, n // 2, 3000) + (rng.random(3000) < 0.2)) % n
    graph = as_graph(simple(np.stack([first, second], axis=1)))
    parts = split(graph, validation=0.1, seed=0)
    labels = graph.ids % 2
    links = parts.validation.pairs[parts.validation.labels]
    inside = np.mean(labels[links[:, 0]] == labels[links[:, 1]])
    found = ranks(parts, one_hot(labels, 2).__getitem__, np.array([0.1, 0.1]), 0)
    assert found is not None
    assert found.links == len(links)
    assert found.auc == pytest.approx(0.5 + (inside - 0.5) / 2, abs=4 * found.error)
    assert found.significant


def test_without_two_held_out_links_there_are_no_ranks():
    graph = as_graph(np.array([[0, 1], [1, 2], [2, 3]]))
    assert ranks(split(graph, validation=0.3, seed=0), np.ones((4, 1)).__getitem__, np.ones(1), 0) is None
    assert ranks(split(graph, validation=0.0, seed=0), np.ones((4, 1)).__getitem__, np.ones(1), 0) is None


def test_a_complete_graph_has_nothing_to_swap():
    graph = as_graph(networkx.complete_graph(20))
    found = ranks(split(graph, validation=0.1, seed=0), np.ones((20, 1)).__getitem__, np.ones(1), 0)
    assert found is not None
    assert (found.auc, found.error, found.deviations) == (0.5, 0.0, 0.0)
    assert not beside(graph, np.arange(20) % 2).stands_out


# Eigenvalues --------------------------------------------------------------------------------------------------


def cliques(size: int, count: int) -> Graph:
    return as_graph(networkx.disjoint_union_all([networkx.complete_graph(size)] * count))


def test_the_eigenvalue_of_cliques_stands_out_and_they_explain_its_vector():
    """A clique of n vertices has the eigenvalue (n - 1) / (n - 1 + c), c = n - 1."""
    halves = np.arange(20) // 10
    both = beside(cliques(10, 2), halves)
    found = both.eigenvalue
    assert (found.found, both.modularity.found) == pytest.approx((0.5, 0.5))
    assert both.modularity.stands_out
    assert both.agreement == pytest.approx(1.0)
    assert found.stands_out
    assert both.agrees
    assert both == beside(cliques(10, 2), halves), "the same for the same seed"
    others = beside(cliques(10, 2), np.arange(20) % 2)
    assert others.eigenvalue.stands_out
    assert not others.agrees


@pytest.mark.parametrize("n", [250, 400])
def test_the_second_eigenpair_is_that_of_the_matrix(n):
    """By all eigenvalues of the matrix as it is defined, in graphs small and large; an isolated vertex does no harm."""
    links = as_graph(planted(n - 1, 3, 8.0, 3.0, np.random.default_rng(6))).links
    value, vector, weights = second_eigenpair(links, n)
    matrix = np.full((n, n), 2 * len(links) / n / n)
    for a, b in (links.T, links[:, ::-1].T):
        matrix[a, b] += 1.0
    matrix /= np.sqrt(np.outer(matrix.sum(axis=1), matrix.sum(axis=1)))
    right = np.linalg.eigvalsh(matrix)
    assert right[-1] == pytest.approx(1.0)
    assert value == pytest.approx(right[-2], rel=1e-4)
    one = vector * np.sqrt(weights)
    assert np.linalg.norm(matrix @ one - value * one) < 0.01 * value * np.linalg.norm(one)


@pytest.mark.slow
def test_communities_that_mean_nothing_explain_nothing():
    """The share is corrected for the number of communities: that of random ones is no agreement."""
    graph = as_graph(planted(200, 3, 10.0, 3.0, np.random.default_rng(2)))
    rng = np.random.default_rng(3)
    shares = [beside(graph, rng.integers(0, 60, graph.n_vertices)).agreement for _ in range(10)]
    assert abs(np.mean(shares)) < 0.05
    assert max(shares) < 0.2


@pytest.mark.parametrize(
    "graph",
    [
        networkx.disjoint_union_all([networkx.complete_graph(3)] * 40),
        networkx.connected_caveman_graph(20, 4),
        networkx.windmill_graph(20, 4),
    ],
    ids=["triangles", "caveman", "windmill"],
)
def test_many_small_communities_stand_out_by_modularity(graph):
    """Rewired graphs have small components too, and a hub holds all together: the second eigenvalue may not tell."""
    found = beside(as_graph(networkx.Graph(graph.edges)), np.zeros(graph.number_of_nodes(), int))
    assert found.modularity.stands_out
    assert found.modularity.found > found.modularity.rewired + 8 * found.modularity.deviation


@pytest.mark.parametrize("kind", ["uniform", "power law", "bipartite", "regular"])
def test_neither_statistic_of_random_graphs_stands_out(kind):
    rng = np.random.default_rng(4)
    links = {
        "uniform": lambda: uniform(200, 700, rng),
        "power law": lambda: of_degrees(power_law(200, 6.0, rng), rng),
        "bipartite": lambda: uniform(200, 700, rng, 100),
        "regular": lambda: np.array(networkx.random_regular_graph(6, 200, seed=1).edges),
    }[kind]()
    graph = as_graph(links)
    assert not beside(graph, np.arange(graph.n_vertices) % 2).stands_out


# Degrees ------------------------------------------------------------------------------------------------------


def test_the_excess_of_degrees_is_that_of_a_normal_number_in_random_graphs():
    rng = np.random.default_rng(5)
    values = [degree_excess(as_graph(uniform(300, 1500, rng)).degrees()) for _ in range(100)]
    # Pairs are drawn without repetition and vertices without a link left out: the mean may be below 0 by a little.
    assert abs(np.mean(values)) < 0.2 + 4 / math.sqrt(100)
    assert np.std(values) == pytest.approx(1, abs=4 / math.sqrt(200))
    assert degree_excess(as_graph(networkx.star_graph(50)).degrees()) > 50
    assert degree_excess(as_graph(networkx.cycle_graph(50)).degrees()) < -4
    assert degree_excess(np.array([1])) == 0


# Decisions ----------------------------------------------------------------------------------------------------

CLEAR, SLIGHT = Ranks(300, 0.7, 0.02, 10.0), Ranks(2000, 0.53, 0.006, 5.0)
CHANCE, FEW = Ranks(300, 0.51, 0.02, 0.5), Ranks(4, 0.75, 0.1, 3.5)
NEAR, FAR = Statistic(0.31, 0.30, 0.01), Statistic(0.42, 0.30, 0.01)
OUTSTANDING, USUAL = Rewired(FAR, NEAR, 0.6), Rewired(NEAR, NEAR, 0.6)
OTHER, PARTS = Rewired(FAR, NEAR, 0.1), Rewired(NEAR, FAR, 0.6)


@pytest.mark.parametrize(
    ("ranked", "compared", "excess", "kind"),
    [
        (CLEAR, None, 0.0, "found"),
        (SLIGHT, None, 0.0, "weak"),
        (Ranks(2000, 0.515, 0.004, 3.6), None, 0.0, "none"),
        (CHANCE, USUAL, 0.0, "none"),
        (CHANCE, USUAL, 9.0, "degrees"),
        (CHANCE, OUTSTANDING, 9.0, "weak"),
        (Ranks(300, 0.52, 0.02, 1.0), OUTSTANDING, 9.0, "found"),
        (FEW, USUAL, 0.0, "none"),
        (FEW, OUTSTANDING, 0.0, "found"),
        (FEW, OTHER, 0.0, "weak"),
        (None, OUTSTANDING, 0.0, "found"),
        (None, OTHER, 0.0, "weak"),
        (Ranks(4, 0.9, 0.2, 2.0), PARTS, 0.0, "found"),
        (CHANCE, PARTS, 0.0, "weak"),
        (None, PARTS, 0.0, "weak"),
        (Ranks(2, 0.5, 0.0, 0.0), OUTSTANDING, 0.0, "found"),
        (Ranks(4, 0.25, 0.2, -1.2), OUTSTANDING, 0.0, "weak"),
        (None, USUAL, 0.0, "none"),
        (None, None, 50.0, "unknown"),
    ],
)
def test_what_the_tests_decide(ranked, compared, excess, kind):
    verdict = decided(ranked, compared, excess)
    assert verdict.kind == kind
    assert verdict.sentence.count(".") >= 1
    assert len(verdict.sentence.split()) < 30
    assert verdict.auc == (None if ranked is None else ranked.auc)
    assert verdict.eigenvalue == (None if compared is None else compared.eigenvalue.found)
    assert verdict.modularity == (None if compared is None else compared.modularity.found)
    assert of_record({"verdict": asdict(verdict)}) == verdict


def test_a_sentence_names_what_shows_the_structure():
    clear = decided(CLEAR, None, 0.0).sentence
    assert ": held-out links outscore links of random graphs with the same degrees in 70% of pairs (chance" in clear
    assert "in 70.0% of pairs (chance: 50% ± 0.4%)" in decided(replace(CLEAR, error=0.004), None, 0.0).sentence
    assert "40 held-out links outscore" in decided(replace(CLEAR, links=40), None, 0.0).sentence
    assert "in 51% of pairs (chance: 50% ± 2%). Do not use" in decided(CHANCE, None, 0.0).sentence
    assert "too few links are held out to show any" in decided(Ranks(1, 1.0, 0.29, 1.7), None, 0.0).sentence
    assert decided(CHANCE, None, 9.0).sentence.startswith("No structure found beyond degrees: held-out links")
    assert "second eigenvalue 0.42, there 0.30" in decided(FEW, OUTSTANDING, 0.0).sentence
    assert "these communities hardly show it" in decided(FEW, OTHER, 0.0).sentence
    assert "modularity 0.42, there 0.30" in decided(CHANCE, PARTS, 0.0).sentence
    assert of_record({}).kind == "unknown"
