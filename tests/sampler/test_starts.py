"""Starts: Leiden's communities and ego nets against what one finds by hand, and the theta to begin with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmsbgen.base.declared_options import options_of
from mmsbgen.graph import HeldOut, Split, split
from mmsbgen.graph.building import build_graph
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.starts import start_methods
from mmsbgen.sampler.starts.leiden import leiden
from mmsbgen.sampler.starts.start_methods import Start
from mmsbgen.sampler.state import device_state


def split_of(n: int, links, validation: float = 0.0, seed: int = 0) -> Split:
    pairs = np.array(sorted(links), np.int64).reshape(-1, 2)
    return split(
        build_graph(pairs[:, 0], pairs[:, 1], np.arange(n), name="small", directed=False),
        validation=validation,
        seed=seed,
    )


def clique(first: int, size: int) -> list[tuple[int, int]]:
    return [(a, b) for b in range(first, first + size) for a in range(first, b)]


def ring_of_cliques(cliques: int, size: int, validation: float = 0.0) -> Split:
    """Each clique has one link to the next: its last vertex to the next one's first."""
    links = [link for at in range(cliques) for link in clique(at * size, size)]
    links += [(at * size - 1, at * size) for at in range(1, cliques)] + [(0, cliques * size - 1)]
    return split_of(cliques * size, links, validation)


def sets_of(start: Start) -> list[list[int]]:
    return [
        start.vertices[start.communities == at].tolist() for at in range(int(start.communities.max(initial=-1)) + 1)
    ]


def same(one: Start, other: Start) -> bool:
    return np.array_equal(one.vertices, other.vertices) and np.array_equal(one.communities, other.communities)


def unlinked(n: int) -> Split:
    """A split whose links are all held out."""
    parts = split_of(n, clique(0, n))
    return replace(parts, test=HeldOut(parts.training_links.astype(np.int64), np.ones(parts.n_training_links, bool)))


@st.composite
def graphs(draw) -> Split:
    """Graphs of up to 12 vertices, from one link to all, often with isolated vertices and leaves."""
    n = draw(st.integers(2, 12))
    pairs = clique(0, n)
    return split_of(n, draw(st.sets(st.sampled_from(pairs), min_size=1, max_size=len(pairs))))


def conductance_of(members: set[int], links: list[list[int]]) -> float:
    """By going through all links; 1 for a set with nothing on its other side."""
    cut = sum((a in members) != (b in members) for a, b in links)
    volume = sum((a in members) + (b in members) for a, b in links)
    smaller = min(volume, 2 * len(links) - volume)
    return cut / smaller if smaller else 1.0


def nets_of(parts: Split) -> list[set[int]]:
    return [{v, *parts.training_adjacency.row(v).tolist()} for v in range(parts.graph.n_vertices)]


# Leiden's communities -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cliques", "size"), [(5, 6), (12, 4), (30, 5)])
def test_leiden_gives_the_cliques_of_a_ring(cliques, size):
    """Of 30 cliques modularity at resolution 1 would join neighbours: the resolution has to be found."""
    parts = ring_of_cliques(cliques, size)
    found = start_methods.communities(parts, cliques, seed=4)
    assert found.name == "communities"
    assert sorted(sets_of(found)) == [list(range(at * size, (at + 1) * size)) for at in range(cliques)]
    if cliques == 30:
        assert leiden(start_methods.training_graph(parts), 1.0, 4).max() + 1 < 30


@pytest.mark.parametrize("k", [1, 2, 5, 11, 100])
def test_at_most_k_communities_largest_first(middling, k):
    sets = sets_of(start_methods.communities(middling, k, seed=1))
    sizes = [len(members) for members in sets]
    assert 1 <= len(sets) <= k
    assert sizes == sorted(sizes, reverse=True)
    assert min(sizes) > 1


def test_of_parts_that_nothing_joins_the_largest_are_kept():
    """No resolution makes fewer sets of six cliques without links between them."""
    sizes = [3, 7, 4, 6, 5, 8]
    first = np.cumsum([0, *sizes])
    parts = split_of(33, [link for at, size in zip(first, sizes, strict=False) for link in clique(int(at), size)])
    assert [len(members) for members in sets_of(start_methods.communities(parts, 3, seed=0))] == [8, 7, 6]


def test_small_parts_do_not_count_towards_the_number():
    """A ring of 6 cliques and 20 pairs apart: a resolution at which all sets are 6 leaves the ring in one piece."""
    ring = ring_of_cliques(6, 30)
    apart = [(180 + 2 * at, 181 + 2 * at) for at in range(20)]
    parts = split_of(220, [*map(tuple, ring.training_links.tolist()), *apart])
    sets = sets_of(start_methods.communities(parts, 6, seed=0))
    assert sorted(sets) == [list(range(30 * at, 30 * at + 30)) for at in range(6)]


@pytest.mark.parametrize("name", start_methods.STARTS)
def test_the_same_seed_gives_the_same_start(middling, name):
    assert same(*(start_methods.STARTS[name](middling, 7, 12) for _ in range(2)))


def test_the_seed_reaches_leiden(middling):
    """Random links have no clear communities: other seeds cut them otherwise."""
    found = [start_methods.communities(middling, 7, seed) for seed in range(8)]
    assert not all(same(found[0], other) for other in found[1:])


@pytest.mark.parametrize(("cliques", "size"), [(5, 6), (12, 4), (30, 5)])
def test_large_graphs_are_searched_by_contraction(monkeypatch, cliques, size):
    """The cliques of a ring again, by local moving."""
    monkeypatch.setattr(start_methods, "MANY", 1)
    monkeypatch.setattr(start_methods, "leiden", lambda *_: pytest.fail("the whole graph is not to be searched"))
    found = start_methods.communities(ring_of_cliques(cliques, size), cliques, seed=4)
    assert found.name == "communities"
    assert sorted(sets_of(found)) == [list(range(at * size, (at + 1) * size)) for at in range(cliques)]


def test_the_graph_of_the_training_links_is_made_once(middling):
    graph = start_methods.training_graph(middling)
    start_methods.communities(middling, 5, 0)
    assert start_methods.training_graph(middling) is graph
    start_methods.forget(middling)
    assert start_methods.training_graph(middling) is not graph


# Ego nets -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(graphs())
@settings(deadline=None, max_examples=150)
def test_conductance_is_that_of_counting(parts):
    """Exactly so: both are quotients of the same whole numbers, so that ties are ties."""
    links, degrees = parts.training_links.tolist(), parts.training_adjacency.degrees
    right = [
        conductance_of(net, links) if degree >= 2 else np.inf
        for net, degree in zip(nets_of(parts), degrees, strict=True)
    ]
    assert start_methods._ego_conductance(parts).tolist() == right


def test_conductance_of_larger_graphs():
    for seed, share in enumerate((0.02, 0.1, 0.5)):
        rng = np.random.default_rng(seed)
        parts = split_of(80, [pair for pair in clique(0, 80) if rng.random() < share])
        links, degrees = parts.training_links.tolist(), parts.training_adjacency.degrees
        found = start_methods._ego_conductance(parts)
        for v, net in enumerate(nets_of(parts)):
            assert found[v] == (conductance_of(net, links) if degrees[v] >= 2 else np.inf)


def test_conductance_by_hand():
    whole = start_methods._ego_conductance(split_of(5, clique(0, 5)))
    assert whole.tolist() == [1.0] * 5, "a clique that is the whole graph has no other side"
    star = start_methods._ego_conductance(split_of(6, [(0, v) for v in range(1, 5)]))
    assert star.tolist() == [1.0] + [np.inf] * 5, "leaves and isolated vertices have no net"
    # A triangle with one link out, to a vertex of a square: 6 of its 7 ends stay.
    tailed = split_of(8, [*clique(0, 3), (2, 3), (3, 4), (4, 5), (5, 6), (3, 6)])
    assert start_methods._ego_conductance(tailed)[0] == 1 / 7
    cliques = start_methods._ego_conductance(split_of(8, [*clique(0, 4), *clique(4, 4)]))
    assert cliques.tolist() == [0.0] * 8


def greedy(parts: Split, k: int) -> list[list[int]]:
    """What the docstring says, in plain words of Python."""
    links, nets, degrees = parts.training_links.tolist(), nets_of(parts), parts.training_adjacency.degrees
    score = [conductance_of(net, links) if degrees[v] >= 2 else np.inf for v, net in enumerate(nets)]
    minimal = [v for v, net in enumerate(nets) if degrees[v] >= 2 and all(score[v] <= score[u] for u in net)]
    others = [v for v in range(len(nets)) if degrees[v] >= 2]
    taken: set[int] = set()
    found = []
    for pool in (minimal, others):
        for v in sorted(pool, key=lambda v: score[v]):
            if len(found) < k and v not in taken and len(nets[v] & taken) <= len(nets[v]) / 2:
                found.append(sorted(nets[v]))
                taken |= nets[v]
    return found


@pytest.mark.slow
@given(graphs(), st.integers(1, 6))
@settings(deadline=None, max_examples=150)
def test_ego_nets_are_chosen_as_by_hand(parts, k):
    found = start_methods.ego_nets(parts, k, seed=0)
    assert found.name == "ego"
    assert sets_of(found) == greedy(parts, k)


@pytest.mark.parametrize("seed", range(12))
def test_ego_nets_of_larger_graphs_are_chosen_as_by_hand(seed):
    """With clusters, so that nets overlap by all shares and the order of the two passes matters."""
    rng = np.random.default_rng(seed)
    links = [(a, b) for a, b in clique(0, 50) if rng.random() < (0.5 if a // 8 == b // 8 else 0.04)]
    parts = split_of(50, links)
    for k in (4, 50):
        assert sets_of(start_methods.ego_nets(parts, k, seed=0)) == greedy(parts, k)


def test_ego_nets_overlap_with_earlier_ones_by_half_at_most(middling):
    sets, nets = sets_of(start_methods.ego_nets(middling, 60, seed=0)), nets_of(middling)
    assert len(sets) > 3
    taken: set[int] = set()
    overlaps = []
    for members in map(set, sets):
        assert members in nets
        overlaps.append(len(members & taken) / len(members))
        taken |= members
    assert max(overlaps) <= 0.5
    assert max(overlaps) > 0


def test_ego_nets_of_a_ring_of_cliques_are_the_cliques():
    sets = sets_of(start_methods.ego_nets(ring_of_cliques(6, 5), 6, seed=0))
    assert sorted(sets) == [list(range(at * 5, at * 5 + 5)) for at in range(6)]


# What all starts have in common -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", start_methods.STARTS)
def test_held_out_links_do_not_count(name):
    """A graph that lacks them gives the same start; one that has them for training does not."""
    held = ring_of_cliques(6, 6, validation=0.25)
    lacking = split_of(36, held.training_links.tolist())
    make = start_methods.STARTS[name]
    assert same(make(held, 9, 2), make(lacking, 9, 2))
    if name != "random":
        assert not same(make(held, 9, 2), make(split_of(36, held.graph.links.tolist()), 9, 2))


@pytest.mark.parametrize("name", start_methods.STARTS)
def test_no_training_links_give_no_sets(name):
    start = start_methods.STARTS[name](unlinked(6), 4, 0)
    assert start.name == name
    assert sets_of(start) == []
    assert start.rows(0, 6, device_state.StateShape(6, 4, 1, "float64"))[1].shape == (0, 16)


@pytest.mark.parametrize("name", start_methods.STARTS)
@pytest.mark.parametrize("k", [1, 500])
def test_one_community_and_more_than_vertices(middling, name, k):
    start = start_methods.STARTS[name](middling, k, 0)
    assert len(sets_of(start)) <= min(k, 60)
    assert (len(sets_of(start)) > 0) == (name != "random")
    vertices, rows = start.rows(0, 60, device_state.StateShape(60, k, 1, "float64"))
    assert rows.shape == (vertices.size, -(-k // 16) * 16)
    assert rows.sum(axis=1) == pytest.approx(np.ones(vertices.size))


def test_there_is_one_function_for_every_option():
    assert set(start_methods.STARTS) | {"auto"} == set(options_of(Options)["start"].choices)
    assert all(make(ring_of_cliques(3, 4), 3, 0).name == name for name, make in start_methods.STARTS.items())


# Rows ---------------------------------------------------------------------------------------------------------


def test_of_sets_sorts_by_vertex():
    start = start_methods.of_sets("some", [np.array([4, 1]), np.array([1, 0, 4]), np.array([2])])
    assert start.name == "some"
    assert start.vertices.tolist() == [0, 1, 1, 2, 4, 4]
    assert start.communities.tolist() == [1, 0, 1, 2, 0, 1]
    nothing = start_methods.of_sets("none", [])
    assert nothing.vertices.size == nothing.communities.size == 0


def test_labels_become_the_largest_communities():
    """Largest first, of equal ones that with the first vertex; single vertices and small communities are left out."""
    labels = np.array([7, 2, 7, 0, 5, 5, 2, 7])
    start = start_methods.of_labels("some", labels, 3)
    assert start.vertices.tolist() == [0, 1, 2, 4, 5, 6, 7]
    assert start.communities.tolist() == [0, 1, 0, 2, 2, 1, 0]
    assert start_methods.of_labels("some", labels, 2).vertices.tolist() == [0, 1, 2, 6, 7]
    assert start_methods.of_labels("some", labels, 3, 2.5).vertices.tolist() == [0, 2, 7]
    for none in (np.arange(4), np.zeros(0, np.int64)):
        assert start_methods.of_labels("none", none, 3).vertices.size == 0


# theta --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("links", "n", "strength"),
    [(clique(0, 6), 6, 0.9), (clique(0, 2), 60, 0.05), (clique(0, 6), 16, 0.625)],
    ids=["dense", "sparse", "between"],
)
def test_theta_of_blocks_is_a_guess_at_the_strengths(links, n, strength):
    """Five times the density: 15 of 120 pairs are 1/8."""
    theta = start_methods.first_theta(split_of(n, links).graph.density, Options(3, mini_batch="block"))
    assert theta.shape == (2, 3)
    assert theta[1] == pytest.approx(np.full(3, strength), rel=1e-12)
    assert theta.sum(axis=0) == pytest.approx(np.ones(3), rel=1e-12)


def test_theta_of_stars_is_drawn_from_the_prior(middling):
    k = 20000
    options = Options(k, mini_batch="random-node", eta=(2.0, 0.5), seed=3)
    theta = start_methods.first_theta(middling.density, options)
    assert theta.shape == (2, k)
    for row, eta in zip(theta, options.eta, strict=True):
        assert abs(row.mean() - eta) < 5 * np.sqrt(eta / k)
    assert np.array_equal(theta, start_methods.first_theta(middling.density, options))
    assert not np.array_equal(theta, start_methods.first_theta(middling.density, replace(options, seed=4)))
    tiny = start_methods.first_theta(middling.density, replace(options, eta=(1e-3, 1e-3)))
    assert tiny.min() == 1e-6, "Gamma(0.001) draws zeros, of which no strength could be made"
