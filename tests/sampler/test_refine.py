"""Refinement: planted cliques that share a community while another is empty."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from mmsbgen.families.mmsb.reference import equations
from mmsbgen.graph import Split, split
from mmsbgen.graph.building import build_graph
from mmsbgen.sampler.diagnostics.explained_links import explained, explained_at
from mmsbgen.sampler.diagnostics.state_rows import best_communities, leading_communities, row_source
from mmsbgen.sampler.run import refine as refine_module
from mmsbgen.sampler.run.refine import _KEPT, _MODULARITY, Move, moved, moves, refine
from mmsbgen.sampler.starts.leiden import modularity
from mmsbgen.sampler.starts.local_moving import in_threads
from mmsbgen.sampler.starts.start_methods import of_sets as sets_of
from mmsbgen.sampler.state import buffers

DELTA = 1e-4


def between(first: np.ndarray, second: np.ndarray) -> list[tuple[int, int]]:
    return [(int(a), int(b)) for a in first for b in second if a < b]


SIZES = (12, 8, 10)
EDGES = np.cumsum([0, *SIZES])
CLIQUES = [np.arange(a, b) for a, b in pairwise(EDGES)]
#: Three cliques, two links from each to each.
LINKS = np.array(
    sorted(
        [link for members in CLIQUES for link in between(members, members)]
        + [(0, 12), (1, 13), (14, 20), (15, 21), (2, 22), (3, 23)]
    )
)


def rows_on(sets: list[np.ndarray], k: int, n: int = 30, mass: float = 0.9) -> np.ndarray:
    """pi with most of every row on the community of its set."""
    pi = np.full((n, k), (1 - mass) / (k - 1))
    for community, members in enumerate(sets):
        pi[members, community] = mass
    return pi


def wanted(pi: np.ndarray, links: np.ndarray = LINKS, seed: int = 0) -> list[tuple[int, int, list[int]]]:
    k = pi.shape[1]
    shares = equations.explained(pi[links[:, 0]], pi[links[:, 1]], np.full(k, 0.5), DELTA)
    best = shares.argmax(axis=1)
    found = moves(links, best, shares[np.arange(len(links)), best], k, seed)
    return [(move.source, move.target, move.members.tolist()) for move in found]


def joined(*cliques: int) -> np.ndarray:
    return np.concatenate([CLIQUES[at] for at in cliques])


# What is to move ----------------------------------------------------------------------------------------------


def test_two_cliques_in_one_community_part():
    """The larger one stays."""
    pi = rows_on([CLIQUES[2], joined(0, 1)], k=3)
    assert wanted(pi) == [(1, 2, CLIQUES[1].tolist())]


def test_nothing_moves_where_no_community_is_empty():
    assert wanted(rows_on([CLIQUES[2], joined(0, 1)], k=2)) == []
    assert wanted(rows_on(CLIQUES, k=3)) == []


def test_nothing_moves_where_none_falls_apart():
    assert wanted(rows_on(CLIQUES, k=5)) == []


def test_as_many_parts_move_as_there_is_room_for():
    """Of the parts of one community the larger one comes first."""
    one = rows_on([np.arange(30)], k=2)
    assert wanted(one) == [(0, 1, CLIQUES[2].tolist())]
    for k in (3, 5):
        two = rows_on([np.arange(30)], k)
        assert wanted(two) == [(0, 1, CLIQUES[2].tolist()), (0, 2, CLIQUES[1].tolist())]


def test_communities_with_equally_many_links_part_as_they_would_alone():
    """Ten of two cliques each, of which the smaller one moves; their scores are those of each alone."""
    links, sets, right = [], [], []
    for community in range(10):
        first, second = np.arange(8) + 14 * community, np.arange(8, 14) + 14 * community
        links += [*between(first, first), *between(second, second), (int(first[community % 8]), int(second[0]))]
        sets.append(np.concatenate([first, second]))
        right.append((community, 10 + community, second.tolist()))
    assert sorted(wanted(rows_on(sets, k=20, n=140), np.array(sorted(links)))) == right
    labels = np.repeat(np.arange(10), len(links) // 10)
    of, scores, members = refine_module._parts_together(np.array(links), labels, np.bincount(labels), 0, in_threads)
    assert of.tolist() == list(range(10))
    for community, score, part in zip(of, scores, members, strict=True):
        own = np.array(links)[labels == community] - 14 * community
        assert score == pytest.approx(part.size * modularity(own, np.arange(14) // 8))


@pytest.mark.parametrize(("many", "at_a_time"), [(0, 10**6), (0, 20), (10**6, 10**6), (10**6, 20)])
def test_many_links_part_as_few_do(monkeypatch, many, at_a_time):
    """Two communities of two cliques, with other numbers of links, and empty ones before and after."""
    monkeypatch.setattr(refine_module, "MANY", many)
    monkeypatch.setattr(refine_module, "AT_A_TIME", at_a_time)
    pairs = np.concatenate([np.array(between(members, members)) for members in CLIQUES])
    other = np.concatenate([pairs + 30, [[30 + 0, 30 + 12], [30 + 1, 30 + 20]]])
    links = np.unique(np.concatenate([LINKS, other]), axis=0)
    best = np.where(links[:, 0] < 30, 1, 2)
    found = moves(links, best, np.ones(len(links)), 7, 3)
    parts = {(move.source, tuple(move.members.tolist())) for move in found}
    assert parts == {(1 + at, tuple((members + 30 * at).tolist())) for at in (0, 1) for members in CLIQUES[1:]}


def test_many_links_of_one_community_do_not_go_to_leiden(monkeypatch):
    monkeypatch.setattr(refine_module, "MANY", 0)
    monkeypatch.setattr(refine_module, "leiden", None)
    assert wanted(rows_on([np.arange(30)], 3)) == [(0, 1, CLIQUES[2].tolist()), (0, 2, CLIQUES[1].tolist())]


def test_many_links_fall_into_hardly_more_parts_than_few(monkeypatch):
    """Communities of two sparse halves each, with 8 links a vertex within a half and 2 in the community."""
    numbers = []
    for seed in range(12):
        rng, links = np.random.default_rng(seed), []
        for size in (100, 150, 200, 400, 500):
            a, b = rng.integers(2 * size, size=8 * size), rng.integers(2 * size, size=(2 * size, 2))
            offset = 2 * sum(other for other in (100, 150, 200, 400, 500) if other < size)
            within = np.stack([a, a // size * size + rng.integers(size, size=a.size)], axis=1)
            pairs = np.sort(np.concatenate([within, b]), axis=1)
            links.append(offset + np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0))
        best = np.repeat(np.arange(5), [len(one) for one in links])
        for many in (10**6, 0):
            monkeypatch.setattr(refine_module, "MANY", many)
            numbers.append(len(moves(np.concatenate(links), best, np.ones(best.size), 100, 3)))
    few, many = (np.array(numbers[at::2]) for at in (0, 1))
    assert few.min() >= 5
    assert many.min() >= 5
    assert many.sum() <= 1.15 * few.sum()


def test_parts_of_a_clearer_cut_come_first():
    """Two equal cliques are cut at a modularity of a half, less where links between them blur the cut."""
    four = [np.arange(at, at + 10) for at in (0, 10, 20, 30)]
    blurred = [(a, b) for a in range(10) for b in range(10, 20) if (a + b) % 4 == 0]
    links = np.array(sorted([link for members in four for link in between(members, members)] + blurred))
    pi = rows_on([np.arange(20), np.arange(20, 40)], k=3, n=40)
    ((source, target, members),) = wanted(pi, links)
    assert (source, target) == (1, 2)
    assert members in (list(range(20, 30)), list(range(30, 40)))
    both = wanted(rows_on([np.arange(20), np.arange(20, 40)], k=4, n=40), links)
    assert [(source, target) for source, target, _ in both] == [(1, 2), (0, 3)]


@pytest.mark.parametrize(("triangle", "others"), [(0.9, []), (1.0, []), (0.9, [29])])
def test_a_triangle_of_its_own_is_not_empty(triangle, others):
    """Its community explains three links best, if not wholly."""
    links = np.concatenate([LINKS, [[30, 31], [30, 32], [31, 32]]])
    own = np.array([30, 31, 32, *others])
    pi = rows_on([joined(0, 1), CLIQUES[2], own], k=3, n=33, mass=triangle)
    assert wanted(pi, links) == []


@pytest.mark.slow
@pytest.mark.parametrize("dust", [0.01, 0.03])
def test_what_the_prior_leaves_in_every_row_is_nothing(dust):
    """A community that all rows have a little of explains a little of every link, of many more than a clique has."""
    copies = 900
    links = np.concatenate([LINKS + 30 * at for at in range(copies)])
    pi = np.tile(rows_on([joined(0, 1), CLIQUES[2]], k=3, mass=1 - 2 * dust), (copies, 1))
    parts = explained(links, lambda vertices: pi[vertices], np.full(3, 0.5), DELTA)
    assert sum(shares[:, 2].sum() for _, shares in parts) > 3
    assert [target for _, target, _ in wanted(pi, links)] == [2]


def test_a_single_link_is_nothing_to_keep():
    links = np.concatenate([LINKS, [[30, 31]]])
    pi = rows_on([joined(0, 1), CLIQUES[2], np.array([30, 31])], k=3, n=33)
    assert wanted(pi, links) == [(0, 2, CLIQUES[1].tolist())]


def test_links_between_communities_move_no_vertex():
    """A bipartite graph between two communities: no community explains its links clearly, so that none has any."""
    pi = rows_on([np.arange(15), np.arange(15, 30)], k=3, mass=0.8)
    pi[:, :2] = np.where(pi[:, :2] == 0.8, 0.8, 0.2)
    pi[:, 2] = 0.0
    links = np.array([(a, b) for a in range(0, 15) for b in range(15, 30) if (a + b) % 3])
    assert wanted(pi, links) == []


def test_moves_are_the_same_for_the_same_seed():
    rng = np.random.default_rng(2)
    pairs = np.array(between(np.arange(60), np.arange(60)))
    links = pairs[rng.random(len(pairs)) < 0.12]
    pi = rows_on([np.arange(60)], k=4, n=60)
    assert len(wanted(pi, links, seed=5)) == 3
    assert wanted(pi, links, seed=5) == wanted(pi, links, seed=5)


def test_no_links_nothing_to_move():
    assert wanted(rows_on(CLIQUES, k=4), np.zeros((0, 2), np.int64)) == []


@pytest.mark.parametrize("n", [40, 60, 100])
@pytest.mark.parametrize("p", [0.5, 0.6, 0.8, 1.0])
def test_a_random_dense_community_is_not_cut(n, p):
    """Cuts of random graphs go with sqrt((1 - p) / (p n)): of 40 vertices at 0.5 they have 0.11, spread by 0.01."""
    pairs = np.array(between(np.arange(n), np.arange(n)))
    pi = rows_on([np.arange(n)], k=3, n=n)
    for seed in range(5):
        links = pairs[np.random.default_rng([n, seed]).random(len(pairs)) < p]
        assert wanted(pi, links, seed) == []


def test_the_modularity_that_counts():
    """Two cliques of 8 with ever more links between them: cut while the modularity of the halves is above 0.15."""
    inside = between(np.arange(8), np.arange(8)) + between(np.arange(8, 16), np.arange(8, 16))
    across = between(np.arange(8), np.arange(8, 16))
    np.random.default_rng(1).shuffle(across)
    pi = rows_on([np.arange(16)], k=2, n=16)
    for n_across in (0, 5, 15, 25, 45, 55, 64):
        links = np.array(inside + across[:n_across])
        # Each half has half of all ends: its share of the links less a quarter, twice.
        modularity = len(inside) / len(links) - 0.5
        found = wanted(pi, links)
        if modularity > _MODULARITY:
            assert [(source, target) for source, target, _ in found] == [(0, 1)]
            assert found[0][2] in (list(range(8)), list(range(8, 16)))
        else:
            assert found == []


# What explains links ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [7, 1 << 18])
def test_what_explains_links_best_is_found_on_the_device(processor, chain, middling, monkeypatch, at_once):
    """As on the host, however many links are asked for at a time."""
    monkeypatch.setattr(buffers, "EXPLAINED", at_once)
    sampler = chain(processor, middling, n_communities=21, mini_batch="block", noise=None)
    sampler.initialise()
    while sampler.iteration < 2 * sampler.per_sweep:
        sampler.advance(1)
    links = middling.training_links
    best, shares = best_communities(sampler, links)
    parts = list(explained(links, row_source(sampler, mean=False), sampler.state.beta(), sampler.options.crossing))
    right = np.concatenate([part.shares for part in parts])
    assert len(np.unique(best)) > 3
    assert right[np.arange(len(links)), best] == pytest.approx(right.max(axis=1), rel=1e-6)
    assert shares == pytest.approx(right.max(axis=1), rel=1e-5)
    places = min(at_once, len(links)) * 2 * 21
    assert sampler.needs.device["explained links"] == min(at_once, len(links)) * 16 + places * 8
    assert np.array_equal(leading_communities(sampler), sampler.rows(0, 60)[0].argmax(axis=1))


@pytest.mark.parametrize("at_once", [50, 1 << 22])
def test_what_communities_of_the_ends_explain_is_found_on_the_device(processor, chain, middling, monkeypatch, at_once):
    """As on the host."""
    monkeypatch.setattr(buffers, "EXPLAINED_AT", at_once)
    sampler = chain(processor, middling, n_communities=21, mini_batch="block", noise=None)
    sampler.initialise()
    while sampler.iteration < 2 * sampler.per_sweep:
        sampler.advance(1)
    links, rows = middling.graph.links, row_source(sampler)
    at = np.argsort(-rows(np.arange(60)), axis=1)[:, :3]
    given = (sampler.beta(), sampler.options.crossing, at)
    here, there = (list(explained_at(links, source, *given)) for source in (rows, lambda vertices: rows(vertices)))
    assert len(here) == (2 if at_once > 50 else -(-len(links) // 8))
    assert np.array_equal(np.concatenate([part.ends for part in here]), links)
    right = np.concatenate([part.shares for part in there])
    assert right.max() > 0.1
    assert np.concatenate([part.shares for part in here]) == pytest.approx(right, rel=1e-5, abs=1e-12)


# Moving -------------------------------------------------------------------------------------------------------


def test_moved_rows_keep_their_sums():
    rng = np.random.default_rng(0)
    pi = rng.dirichlet(np.ones(5), 6)
    vertices = np.array([2, 3, 5, 8, 9, 11])
    todo = [Move(0, 3, np.array([3, 9])), Move(1, 4, np.array([2, 3])), Move(0, 2, np.array([11]))]
    before = pi.copy()
    new = moved(pi, vertices, todo)
    assert np.array_equal(pi, before)
    assert new.sum(axis=1) == pytest.approx(np.ones(6), abs=1e-15)
    right = before.copy()
    for at, source, target in ((1, 0, 3), (4, 0, 3), (0, 1, 4), (1, 1, 4), (5, 0, 2)):
        right[at, source] = _KEPT * before[at, source]
        right[at, target] += 0.9 * before[at, source]
    assert new == pytest.approx(right, abs=1e-15)
    assert np.array_equal(new[[2, 3]], before[[2, 3]])


# On a device --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cliques() -> Split:
    return split(build_graph(*LINKS.T, np.arange(30), name="cliques", directed=False), validation=0.0, seed=0)


@pytest.fixture
def merged(processor, chain, cliques):
    """Makes a chain whose first community has two cliques, its second one, and its third next to nothing."""

    def make():
        given = {"n_communities": 3, "mini_batch": "block", "mini_batch_size": 11, "noise": None, "alpha": 1e-4}
        sampler = chain(processor, cliques, **given)
        sampler.initialise()
        sampler.state.replace_rows(np.arange(30), rows_on([joined(0, 1), CLIQUES[2]], k=3, mass=1 - 1e-9))
        while sampler.iteration < 4 * sampler.per_sweep:
            sampler.advance(4 * sampler.per_sweep - sampler.iteration)
        return sampler

    return make


def everything(sampler) -> dict[str, np.ndarray]:
    pi, sums = sampler.rows(0, 30)
    return {"pi": pi, "sums": sums, "theta": sampler.state.theta(), "beta": sampler.state.beta()}


def test_refinement_touches_the_part_that_moves_alone(merged):
    sampler = merged()
    assert sampler.per_sweep == 3
    slots = sampler.device.download(sampler.values["slots"])
    assert not np.array_equal(slots, np.arange(30)), "rows are in other slots than at the start"
    before = everything(sampler)
    assert refine(sampler) == 1
    after = everything(sampler)

    others = np.setdiff1d(np.arange(30), CLIQUES[1])
    assert np.array_equal(after["pi"][others], before["pi"][others])
    was, now = (found["pi"][CLIQUES[1]].astype(np.float64) for found in (before, after))
    # Rows are rounded to single precision when they are written.
    assert now[:, 0] == pytest.approx(_KEPT * was[:, 0], rel=2**-23)
    assert now[:, 2] == pytest.approx(was[:, 2] + 0.9 * was[:, 0], rel=2**-23)
    assert np.array_equal(now[:, 1], was[:, 1])
    assert np.array_equal(after["sums"], before["sums"])

    assert np.array_equal(after["theta"][:, 1], before["theta"][:, 1])
    for community in (0, 2):
        assert np.array_equal(after["theta"][:, community], before["theta"][:, 0] / 2)
        # Halves of a power of two: the quotient is the same.
        assert after["beta"][community] == before["beta"][0]
    assert after["beta"][1] == before["beta"][1]

    course = sampler.course
    assert course.refinements == [{"iteration": 12, "filled": 1}]
    assert (course.clock_from, course.clock_at, sampler.time) == (12, 4.0, 4.0)


def test_the_chain_keeps_the_parts_apart(merged):
    sampler = merged()
    refine(sampler)
    while sampler.iteration < 90:
        sampler.advance(90 - sampler.iteration)
    labels = sampler.rows(0, 30)[0].argmax(axis=1)
    assert [set(labels[members].tolist()) for members in CLIQUES] == [{0}, {2}, {1}]


def test_refinement_is_the_same_twice(merged):
    first, second = merged(), merged()
    for sampler in (first, second):
        refine(sampler)
        sampler.advance(1)
    for name, value in everything(first).items():
        assert np.array_equal(value, everything(second)[name]), name
    assert first.course == second.course


def test_a_refinement_that_finds_nothing_changes_nothing(merged):
    sampler = merged()
    refine(sampler)
    course, before = replace(sampler.course), everything(sampler)
    noted = list(course.refinements)
    assert refine(sampler) == 0
    for name, value in everything(sampler).items():
        assert np.array_equal(value, before[name]), name
    assert sampler.course.refinements == [*noted, {"iteration": 12, "filled": 0}]
    assert (sampler.course.clock_from, sampler.course.clock_at) == (course.clock_from, course.clock_at)


def test_rows_are_moved_a_part_at_a_time(chain, processor, middling, monkeypatch):
    """However few rows are held at once, the same rows come out."""
    states = []
    for elements in (1 << 22, 12):
        monkeypatch.setattr(refine_module, "_ELEMENTS", elements)
        sampler = chain(processor, middling, n_communities=4, mini_batch="block", noise=None)
        sampler.initialise(sets_of("two", [np.arange(30), np.arange(30, 60)]))
        wanted = [refine_module.Move(0, 2, np.arange(5, 25)), refine_module.Move(1, 3, np.arange(20, 50, 3))]
        monkeypatch.setattr(refine_module, "moves", lambda *_, wanted=wanted: wanted)
        assert refine_module.refine(sampler) == 2
        states.append(sampler.rows(0, 60)[0])
    assert np.array_equal(*states)
    assert states[0][10, 2] > states[0][10, 0]
