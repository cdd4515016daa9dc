"""Belief propagation against enumeration, and groups of the blockmodel against those that were planted."""

from __future__ import annotations

import itertools
import math
from typing import Any

import networkx as nx
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from mmsbgen.algorithms import belief_propagation, blockmodel, most_probable_states
from mmsbgen.backends import Device
from mmsbgen.base.errors import InputError

Array = NDArray[Any]


def enumerated(graph: nx.Graph, priors: Array, coupling: Array) -> tuple[Array, float, float]:
    """The marginals ``[N, Q]``, and the logarithms of the partition function and of the largest weight."""
    marginals, most = np.zeros_like(priors), 0.0
    every = np.arange(len(priors))
    for states in itertools.product(range(priors.shape[1]), repeat=len(priors)):
        weight = priors[every, states].prod() * math.prod(coupling[states[u], states[v]] for u, v in graph.edges)
        marginals[every, states] += weight
        most = max(most, weight)
    total = marginals[0].sum()
    return marginals / total, float(np.log(total)), float(np.log(most))


def planted(n: int, groups: int, degree: float, strength: float, seed: int) -> tuple[nx.Graph, Array]:
    """A graph of equal groups, and the group of each vertex; ``strength`` is lambda of Decelle and others.

    (c_in - c_out) / (q c), c the mean degree; groups can be found above ``1 / sqrt(c)``.
    """
    inside, between = degree * (1 + (groups - 1) * strength) / n, degree * (1 - strength) / n
    made = nx.planted_partition_graph(groups, n // groups, inside, between, seed=seed)
    return made, np.repeat(np.arange(groups), n // groups)


def overlap(known: Array, labels: Array) -> float:
    """The share of vertices in the right group beyond chance, for the best matching of groups: 0 to 1."""
    q = int(known.max()) + 1
    met = np.zeros((q, q))
    np.add.at(met, (known, labels), 1)
    return float((met[linear_sum_assignment(-met)].sum() / known.size - 1 / q) / (1 - 1 / q))


@pytest.mark.parametrize("states", [2, 3])
def test_trees_are_exact(states: int, opencl_device: Device) -> None:
    """Also with states that are impossible, and with a vertex alone beside the tree."""
    for seed in range(6):
        rng = np.random.default_rng((states, seed))
        tree = nx.random_labeled_tree(int(rng.integers(1, 9)), seed=seed)
        tree.add_node("alone")
        priors = np.exp(rng.normal(0, 3, (len(tree), states)))
        coupling = np.exp(rng.normal(0, 3, (states, states)))
        coupling *= coupling.T
        if seed % 2:
            coupling[0, 0], priors[0, 0] = 0, 0
        marginals, log_total, log_most = enumerated(nx.convert_node_labels_to_integers(tree), priors, coupling)
        found = belief_propagation(
            tree, priors, coupling, damping=0.3 if seed == 2 else 0.0, tolerance=1e-9, device=opencl_device.info.spec
        )
        assert found.converged
        assert found.marginals == pytest.approx(marginals, abs=1e-8)
        assert found.log_partition == pytest.approx(log_total, abs=1e-7)
        assert found.rounds <= nx.diameter(tree.subgraph(range(len(tree) - 1))) + 2 or seed == 2
        best = most_probable_states(tree, priors, coupling, device=opencl_device.info.spec)
        assert best.converged
        assert best.log_weight == pytest.approx(log_most, abs=1e-9)


def test_most_probable_states_where_many_are_alike(opencl_device: Device) -> None:
    """The two sides of a tree differ though no vertex prefers a state; loops are followed, and the verdict is told."""
    for graph in (nx.star_graph(300), nx.path_graph(50), nx.balanced_tree(2, 5), nx.empty_graph(3)):
        found = most_probable_states(graph, np.ones((len(graph), 3)), 1 - np.eye(3), device=opencl_device.info.spec)
        assert (found.log_weight, found.converged) == (0, True)
        assert all(found.states[u] != found.states[v] for u, v in graph.edges)
    odd = most_probable_states(nx.cycle_graph(5), np.ones((5, 2)), 1 - np.eye(2), device=opencl_device.info.spec)
    assert odd.log_weight == -np.inf
    grid, rng = nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 3)), np.random.default_rng(0)
    priors, coupling = np.exp(rng.normal(0, 1, (9, 2))), np.array([[1.2, 1], [1, 1.2]])
    best = most_probable_states(grid, priors, coupling, device=opencl_device.info.spec)
    assert best.converged
    assert best.log_weight == pytest.approx(enumerated(grid, priors, coupling)[2], abs=1e-9)


def test_a_hub_of_2000_neighbours_is_exact(processor: Device) -> None:
    """Products of so many numbers are 0 or infinite in any type; sums of logarithms are not."""
    rng = np.random.default_rng(1)
    star = nx.star_graph(2000)
    priors, coupling = rng.uniform(0.01, 1, (2001, 4)), rng.uniform(0.1, 1, (4, 4))
    coupling += coupling.T
    from_leaves = np.log(priors[1:] @ coupling).sum(axis=0) + np.log(priors[0])
    log_total = np.logaddexp.reduce(from_leaves)
    found = belief_propagation(star, priors, coupling, device=processor.info.spec)
    assert found.marginals[0] == pytest.approx(np.exp(from_leaves - log_total), abs=1e-9)
    assert found.log_partition == pytest.approx(log_total, rel=1e-9)
    single = belief_propagation(star, priors, coupling, tolerance=1e-2, device=processor.info.spec)
    assert single.marginals.dtype == np.float32
    assert single.marginals[0] == pytest.approx(found.marginals[0], abs=1e-3)


def test_what_is_impossible_stays_so_whatever_2000_neighbours_prefer(processor: Device) -> None:
    """The leaves give state 1 a weight of 2^2000, which is more than the smallest number makes up for."""
    priors, coupling, on = np.array([[1, 0], *[[1, 3]] * 2000]), np.array([[2, 1], [1, 2]]), processor.info.spec
    best = most_probable_states(nx.star_graph(2000), priors, coupling, device=on)
    assert best.states.tolist() == [0, *[1] * 2000]
    assert best.log_weight == pytest.approx(2000 * np.log(3), rel=1e-12)
    single, found = (
        belief_propagation(nx.star_graph(2000), priors, coupling, tolerance=each, device=on) for each in (1e-2, 1e-6)
    )
    assert single.marginals[0].tolist() == found.marginals[0].tolist() == [1, 0]
    assert found.marginals[1] == pytest.approx([0.4, 0.6], abs=1e-9)
    assert found.log_partition == pytest.approx(2000 * np.log(5), rel=1e-9)


def test_damping_and_the_verdict(processor: Device) -> None:
    """Where all neighbours are to differ, rounds swing to and fro for ever, and damped ones come to rest."""
    clique, coupling = nx.complete_graph(7), np.array([[0.4, 1], [1, 0.4]])
    priors = np.array([[0.6, 0.4]] * 7)
    wild = belief_propagation(clique, priors, coupling, max_rounds=200, device=processor.info.spec)
    assert (wild.converged, wild.rounds) == (False, 200)
    assert wild.residual > 0.1
    found = belief_propagation(clique, priors, coupling, damping=0.5, device=processor.info.spec)
    assert found.converged
    assert found.residual <= 1e-6
    # By symmetry all messages are one: the ratio of its two numbers is where its equation says.
    ratio = (found.marginals[0, 0] / found.marginals[0, 1] / 1.5) ** (1 / 6)
    cavity = 1.5 * ratio**5
    assert (0.4 * cavity + 1) / (cavity + 0.4) == pytest.approx(ratio, abs=1e-5)


def test_what_is_no_model_is_refused(processor: Device) -> None:
    path, even = nx.path_graph(3), np.ones((3, 2))
    cases: list[tuple[Any, Any, Any, dict[str, Any], str]] = [
        (nx.DiGraph(path), even, np.eye(2), {}, "is directed, and messages go both ways"),
        (path, even, [[1, 2], [3, 1]], {}, "coupling is not symmetric"),
        (path, even[:2], np.eye(2), {}, r"priors has shape \[2, 2\]: give \[3, 2\]"),
        (path, even * [[1], [0], [1]], np.eye(2), {}, "vertex 1 has no state of positive weight"),
        (path, -even, np.eye(2), {}, "negative or not finite"),
        (path, even, np.zeros((2, 2)), {}, "coupling is 0 for all states"),
        (path, np.ones((3, 65)), np.eye(65), {}, "65 states: give at most 64"),
        (path, even, np.eye(2), {"damping": 1.0}, "damping=1.0: give a number of 0 or more and below 1"),
        (path, even, np.eye(2), {"max_rounds": 0}, "max_rounds=0"),
        (path, even, np.eye(2), {"tolerance": -1.0}, "tolerance=-1.0"),
    ]
    for graph, priors, coupling, how, told in cases:
        for function in (belief_propagation, most_probable_states):
            with pytest.raises(InputError, match=told):
                function(graph, priors, coupling, device=processor.info.spec, **how)
    for k in (0, 4, 2.0, True):
        with pytest.raises(InputError, match=f"k={k} groups .* 3 vertices: give a whole number from 1 to 3"):
            blockmodel(path, k, device=processor.info.spec)
    for how, told in (({"starts": 0}, "starts=0"), ({"seed": -1}, "seed=-1: give a whole number of 0 or more")):
        with pytest.raises(InputError, match=told):
            blockmodel(path, 2, device=processor.info.spec, **how)
    assert belief_propagation(nx.empty_graph(0), np.zeros((0, 2)), np.eye(2)).log_partition == 0
    assert most_probable_states(nx.empty_graph(0), np.zeros((0, 2)), np.eye(2)).log_weight == 0
    assert blockmodel(nx.empty_graph(0), 1).marginals.shape == (0, 1)


@pytest.mark.parametrize(("strength", "least", "most"), [(0.6, 0.92, 0.99), (0.45, 0.72, 0.90), (0.2, 0.0, 0.15)])
def test_planted_groups_are_found_above_the_threshold_alone(
    strength: float, least: float, most: float, processor: Device
) -> None:
    """At degree 10 the threshold is .316; the best possible overlaps are .96, .82 and 0 (N = 20000).

    With 1500 vertices that of a graph deviates by sqrt(p (1 - p) / 1500) / (3 / 4), .013 at .82 if errors were
    independent, and three times that as neighbours err together (six graphs: .78 to .88).  Of 0 the best of 24
    matchings by chance is below .1.
    """
    graph, known = planted(1500, 4, 10, strength, seed=1)
    found = blockmodel(graph, 4, starts=1, max_rounds=198, device=processor.info.spec)
    right = overlap(known, found.labels)
    assert least <= right <= most
    assert found.converged == (strength > 0.3)
    one = blockmodel(graph, 1, device=processor.info.spec)
    assert (found.description < one.description) == (strength > 0.3)
    assert found.converged == (found.rounds < 198)
    if found.converged:
        # Probabilities mean what they say: that of the labels is how many are right.
        assert found.marginals.max(axis=1).mean() == pytest.approx((1 + 3 * right) / 4, abs=0.04)
        assert found.shares == pytest.approx(np.full(4, 0.25), abs=0.04)


def test_the_planted_number_of_groups_has_the_least_free_energy(processor: Device) -> None:
    """With what parameters cost; the same seed gives the same bits, and one group is a random graph."""
    graph, known = planted(600, 4, 14, 0.7, seed=2)
    on = {"starts": 1, "max_rounds": 100, "device": processor.info.spec}
    every = [blockmodel(graph, k, **on) for k in range(1, 7)]
    assert np.argmin([one.description for one in every]) == 3
    free = [one.free_energy for one in every]
    # Up to the right number each group helps, and then no more than noise does.
    assert np.all(np.diff(free[:4]) < -0.3)
    assert abs(free[3] - min(free)) < 0.05
    degree = 2 * graph.number_of_edges() / 600
    assert free[0] == pytest.approx(degree / 2 * (1 - np.log(degree)), rel=1e-5)
    found, again = every[3], blockmodel(graph, 4, **on)
    assert np.array_equal(found.marginals, again.marginals)
    assert found.free_energy == again.free_energy
    assert overlap(known, found.labels) > 0.97
    inside, between = np.diag(found.affinities), found.affinities[~np.eye(4, dtype=bool)]
    assert inside == pytest.approx(14 * (1 + 3 * 0.7), rel=0.15)
    assert between == pytest.approx(14 * 0.3, rel=0.4)
    assert blockmodel(graph, 4, **on | {"starts": 2}).free_energy <= found.free_energy


@pytest.mark.parametrize(
    "graph", [nx.empty_graph(4), nx.star_graph(2000), nx.path_graph(9), nx.complete_graph(8)], ids=str
)
def test_any_shape_has_groups(graph: nx.Graph, processor: Device) -> None:
    found = blockmodel(graph, 2, device=processor.info.spec)
    assert found.marginals.sum(axis=1) == pytest.approx(1, abs=1e-5)
    assert np.isfinite(found.free_energy)
    assert np.all(np.diff(found.shares) <= 0)
    if len(graph) == 2001:
        assert np.bincount(found.labels).tolist() == [2000, 1]


def test_two_sides_of_a_bipartite_graph_are_groups(processor: Device) -> None:
    graph, known = planted(600, 2, 6, -0.9, seed=3)
    found = blockmodel(graph, 2, device=processor.info.spec)
    assert overlap(known, found.labels) > 0.93
    assert found.affinities[0, 1] > 5 * found.affinities[0, 0]
