"""Rules on memberships small enough to check by eye."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from mmsbgen.base.errors import InputError
from mmsbgen.graph.graph import Adjacency, degrees_of
from mmsbgen.sampler.diagnostics import memberships, uncovered
from mmsbgen.sampler.diagnostics.communities import checked_threshold, cover, entries_needed
from mmsbgen.sampler.diagnostics.memberships import (
    Memberships,
    StoredRows,
    by_column,
    decoded,
    encoded,
    largest,
    outside,
)

PI = np.array(
    [
        [0.70, 0.25, 0.05],
        [0.60, 0.40, 0.00],
        [0.10, 0.90, 0.00],
        [0.21, 0.59, 0.20],
        [0.34, 0.33, 0.33],
    ]
)
LINKS = np.array([[0, 1], [2, 3], [3, 4]])


def of(pi: np.ndarray, beta=(0.5, 0.5, 0.5), r: int = 3, delta: float = 1e-7) -> Memberships:
    return Memberships(np.arange(len(pi)), *largest(pi, r), np.array(beta), delta)


def members(result) -> dict[int, list[int]]:
    """The communities by their columns of pi before they were numbered."""
    found, m = result
    return {label: there.tolist() for label, there in zip(m.columns.tolist(), found.members, strict=False)}


def test_threshold():
    found, m = cover(of(PI), LINKS, "threshold")
    assert members((found, m)) == {0: [0, 1, 3, 4], 1: [0, 1, 2, 3, 4]}
    assert m.columns.tolist() == [1, 0, 2]
    assert found.coverage == 1.0
    assert found.overlap == pytest.approx(9 / 5)
    assert members(cover(of(PI), LINKS, "threshold", 0.55)) == {0: [0, 1], 1: [2, 3]}


def test_top():
    assert members(cover(of(PI), LINKS, "top")) == {0: [0, 1, 4], 1: [2, 3]}
    two = members(cover(of(PI), LINKS, "top", 2))
    assert two == {0: [0, 1, 2, 3, 4], 1: [0, 1, 2, 3, 4]} or two == {0: [0, 1, 2, 3, 4]}


def test_duplicates_and_empty_communities_are_dropped():
    pi = np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.5, 0.5, 0.0]])
    assert members(cover(of(pi), LINKS[:1], "threshold")) == {0: [0, 1, 2]}
    nothing, _ = cover(of(pi), LINKS[:1], "threshold", 0.9)
    assert (nothing.members, nothing.coverage, nothing.overlap) == ((), 0.0, 0.0)


def test_link():
    found = members(cover(of(PI), LINKS, "link"))
    # {0,1}: community 0 explains .42 of .42+.10; {2,3}: community 1 .531 of .552; {3,4}: .195 of .332.
    assert found == {0: [0, 1], 1: [2, 3, 4]}
    assert members(cover(of(PI), LINKS, "link", 0.9)) == {1: [2, 3]}


def test_link_between_strangers_is_explained_by_none():
    """A shared sliver of 1e-6 explains less than chance across communities does."""
    pi = np.array([[1 - 1e-6, 1e-6, 0.0], [0.0, 1.0, 0.0]])
    assert members(cover(of(pi, delta=1e-4), np.array([[0, 1]]), "link")) == {}
    assert members(cover(of(pi, delta=1e-9), np.array([[0, 1]]), "link")) == {1: [0, 1]}


def test_link_agrees_with_a_loop():
    rng = np.random.default_rng(3)
    pi, beta = rng.dirichlet(np.full(6, 0.3), 40), rng.uniform(0.25, 0.9, 6)
    links = np.unique(np.sort(rng.integers(0, 40, (150, 2)), axis=1), axis=0)
    links = links[links[:, 0] != links[:, 1]]
    right: dict[int, set[int]] = {}
    for a, b in links.tolist():
        each = pi[a] * pi[b] * beta
        p = each.sum() + 0.01 * (1 - (pi[a] * pi[b]).sum())
        if each.max() > 0.5 * p:
            right.setdefault(int(each.argmax()), set()).update((a, b))
    found = members(cover(of(pi, beta, r=6, delta=0.01), links, "link"))
    assert found == {label: sorted(there) for label, there in right.items()}


@pytest.mark.parametrize("r", [1, 3, 7, 8])
def test_largest_of_many_rows_are_those_of_each(monkeypatch, r):
    """A part of the rows at a time, in several threads: in their order, with the ties of each."""
    monkeypatch.setattr(memberships, "_CACHED", 40)
    rows = np.random.default_rng(r).integers(0, 5, (203, 8)) / 8
    at, values = largest(rows, r)
    assert at.dtype == np.int32
    for row, found, there in zip(rows, at, values, strict=True):
        best = sorted(range(8), key=lambda k, row=row: (-row[k], k))[:r] if r in (1, 8) else found.tolist()
        assert found.tolist() == best
        assert there.tolist() == row[found].tolist() == sorted(row, reverse=True)[:r]
    alone = [largest(rows[i : i + 1], r) for i in range(203)]
    assert np.array_equal(at, np.concatenate([one for one, _ in alone]))
    assert np.array_equal(values, np.concatenate([one for _, one in alone]))


def test_largest_breaks_ties_by_index_and_sorts():
    at, values = largest(np.array([[0.1, 0.4, 0.4, 0.1], [0.0, 0.0, 0.0, 1.0]]), 2)
    assert at[0].tolist() == [1, 2]
    assert at[1, 0] == 3
    assert values[1].tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("rule", "threshold"),
    [
        ("best", None),
        ("threshold", 1.0),
        ("threshold", -0.1),
        ("threshold", float("nan")),
        ("top", 0),
        ("top", 1.5),
        ("top", float("inf")),
    ],
)
def test_bad_rules(rule, threshold):
    with pytest.raises(InputError, match=rule):
        checked_threshold(rule, threshold)


def test_a_rule_gets_the_entries_that_it_needs():
    assert entries_needed("threshold", 0.2, 1000) == 5
    assert entries_needed("threshold", 0.01, 1000) == 100
    assert entries_needed("threshold", 0.0, 1000) == 256
    assert entries_needed("top", 20, 1000) == 20
    assert entries_needed("top", 20, 4) == 4


@pytest.mark.parametrize(("rule", "threshold"), [("threshold", 1 / 700), ("threshold", 0.1), ("top", 2), ("link", 0.3)])
def test_entries_beyond_those_that_a_rule_needs_change_nothing(rule, threshold):
    rng = np.random.default_rng(4)
    pi, beta = rng.dirichlet(np.full(600, 2.0), 50), rng.uniform(0.001, 0.002, 600)
    pi[:, :5] += rng.dirichlet(np.full(5, 0.5), 50)
    pi /= pi.sum(axis=1, keepdims=True)
    links = np.array([(a, b) for a in range(50) for b in range(a)])
    needed = entries_needed(rule, threshold, 600)
    found = [cover(of(pi, beta, r), links, rule, threshold, rows=lambda v: pi[v]) for r in (needed, 300, 600)]
    assert len(found[0][0].members) > 1
    for other in found[1:]:
        assert members(other) == members(found[0])


def test_fewer_entries_hold_on_to_no_others():
    kept = of(PI).first(1)
    assert kept.values.tolist() == [[0.70], [0.60], [0.90], [0.59], [0.34]]
    assert kept.values.base is None or kept.values.base.size == kept.values.size


def test_what_is_outside_the_stored_entries_is_kept():
    """However the entries are cut, the mass is the same, and rows completed with it sum to 1."""
    pi = np.random.default_rng(6).dirichlet(np.full(12, 0.4), 40)
    cut = {}
    for r in (12, 5):
        at, best = largest(pi, r)
        m = Memberships(np.arange(40), at, best, np.full(12, 0.5))
        rest, spread = outside(pi, at, best)
        cut[r] = Memberships(m.ids, at, best, m.beta, rest=rest, spread=spread).first(3)
    assert np.allclose(cut[12].rest, cut[5].rest)
    assert np.allclose(cut[12].spread, cut[5].spread)
    assert cut[5].rest.sum() == pytest.approx(cut[5].spread.sum())
    completed = cut[5].completed_rows(np.arange(40))
    assert np.allclose(completed.sum(axis=1), 1.0)
    stored = cut[5].dense()
    assert np.array_equal(completed[stored > 0], stored[stored > 0])
    some = np.array([5, 0, 39, 5])
    assert np.allclose(StoredRows(cut[5])(some), completed[some], rtol=1e-12, atol=0)
    assert np.allclose(StoredRows(cut[5], completed=False)(some), stored[some], rtol=1e-12, atol=0)


def test_a_rest_with_nowhere_to_go_is_left_out():
    """Where all that is outside the stored entries is in their communities, rounding would divide the rest."""
    m = Memberships(np.arange(1), np.array([[1, 0]], np.int32), np.array([[0.5, 0.2]]), np.full(3, 0.5))
    m = replace(m, rest=np.array([0.3]), spread=np.array([0.1, 0.2, 1e-17]))
    assert StoredRows(m)(np.array([0])) == pytest.approx(np.array([[0.2, 0.5, 0.0]]))


def test_predictions_from_stored_entries_come_close_to_those_of_whole_rows():
    rng = np.random.default_rng(7)
    pi, beta = rng.dirichlet(np.linspace(0.05, 0.4, 30), 200), rng.uniform(0.2, 0.9, 30)
    pairs = np.array([(a, b) for a in range(200) for b in range(a)])
    at, best = largest(pi, 30)
    whole = Memberships(np.arange(200), at, best, beta, 1e-3)
    right, kept = whole.link_probabilities(pairs), whole.first(4)
    without = Memberships(kept.ids, kept.indices, kept.values, beta, 1e-3).link_probabilities(pairs)
    error, before = (np.abs(np.log(p / right)).mean() for p in (kept.link_probabilities(pairs), without))
    assert error < before / 3


def test_columns_are_numbered_as_communities_are():
    """Column c is that of community c, whatever it was in the chain; predictions do not change."""
    rng = np.random.default_rng(8)
    pi, beta = rng.dirichlet(np.full(9, 0.3), 60), rng.uniform(0.6, 0.9, 9)
    links = np.array([(a, b) for a in range(60) for b in range(a) if rng.random() < (pi[a] * pi[b]) @ beta])
    before = of(pi, beta, r=9, delta=1e-3)
    found, m = cover(before, links, "share")
    assert [len(one) for one in found.members] == sorted(map(len, found.members), reverse=True)
    assert sorted(m.columns.tolist()) == list(range(9))
    assert np.array_equal(m.dense(), by_column(pi, m.columns))
    assert np.allclose(m.link_probabilities(links), before.link_probabilities(links), rtol=1e-12)
    assert np.array_equal(m.first(3).renumbered(np.argsort(m.columns), np.zeros(9)).dense(), before.first(3).dense())


def test_rows_in_one_byte_an_entry_predict_as_whole_rows_do():
    """An entry's square root is off by at most 1/510, so that p(link) is off by little of itself."""
    rng = np.random.default_rng(9)
    pi = rng.dirichlet(np.linspace(0.05, 0.4, 30), 200)
    assert np.abs(np.sqrt(encoded(pi) / 255 * (encoded(pi) / 255)) - np.sqrt(pi)).max() <= 1 / 510
    assert np.allclose(decoded(encoded(pi), np.float64).sum(axis=1), 1.0)
    pairs = np.array([(a, b) for a in range(200) for b in range(a)])
    whole = of(pi, rng.uniform(0.2, 0.9, 30), r=30, delta=1e-3)
    coded = replace(whole.first(4), codes=encoded(pi))
    right = whole.link_probabilities(pairs)
    assert np.abs(np.log(coded.link_probabilities(pairs) / right)).mean() < 0.02


TRIANGLES = [(0, 1), (0, 2), (1, 2), (3, 4), (3, 5), (4, 5)]


@pytest.mark.parametrize("together", [1, 1 << 22])
def test_an_uncovered_vertex_goes_where_its_neighbours_explain_most(monkeypatch, together):
    """6 is linked to both triangles, 7 only to 6; both have most of their rows where nobody is linked."""
    monkeypatch.setattr("mmsbgen.sampler.diagnostics.uncovered._BORDER", together)
    pi = np.concatenate([np.eye(4)[[0, 0, 0, 1, 1, 1]], [[0.02, 0.04, 0.94, 0.0], [0.01, 0.0, 0.0, 0.99]]])
    links = np.array([*TRIANGLES, (0, 6), (3, 6), (6, 7)])
    m = of(pi, beta=(0.9,) * 4, r=4, delta=0.1)
    assert members(cover(m, links, "share")) == {0: [0, 1, 2], 1: [3, 4, 5, 6, 7]}
    assert members(cover(m, links, "threshold", 0.5)) == {0: [0, 1, 2], 1: [3, 4, 5]}


def test_a_small_component_without_a_community_is_one():
    """Vertices 3 to 5 share no column; a vertex alone and the whole graph are no communities."""
    pi = np.eye(4)[[0, 0, 0, 1, 2, 3, 0, 1, 1]]
    links = np.array([*TRIANGLES, (6, 7)])
    m = of(pi, beta=(0.9, 0.8, 0.7, 0.6), r=4, delta=1e-3)
    found, numbered = cover(m, links, "share")
    assert [one.tolist() for one in found.members] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert numbered.columns.tolist() == [0, -1, -1, 1, 2, 3]
    assert numbered.beta.tolist() == [0.9, 1.0, 1.0, 0.8, 0.7, 0.6]
    assert numbered.k == 4
    assert np.allclose(numbered.link_probabilities(links), m.link_probabilities(links), rtol=1e-12)
    whole, _ = cover(of(np.eye(4), beta=(0.9,) * 4, r=4), np.array([(0, 1), (1, 2), (2, 3)]), "share")
    assert whole.members == ()


def test_a_community_lies_in_one_component():
    """Column 0 holds a triangle, a path of three and a pair, column 1 a vertex of each of two pairs."""
    pi = np.eye(2)[[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0]]
    links = np.array([(0, 1), (0, 2), (1, 2), (3, 4), (4, 5), (6, 7), (8, 9), (10, 11)])
    found, numbered = cover(of(pi, beta=(0.9, 0.8), r=2, delta=1e-3), links, "share")
    assert [one.tolist() for one in found.members] == [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9], [10, 11]]
    assert numbered.columns.tolist() == [0, -1, -1, -1, -1, 1]
    assert numbered.beta.tolist() == pytest.approx([0.9, 2 / 3, 1, 1, 1, 0.8])


def test_a_background_keeps_only_vertices_without_another_community():
    """Column 1 is as strong as the density of the graph; it explains more than half of the links of 2 and of 6."""
    pi = np.array([[1.0, 0], [1.0, 0], [0.5, 0.5], [0, 1.0], [0, 1.0], [0, 1.0], [0, 1.0]])
    links = np.array([(0, 1), (0, 2), (1, 2), (2, 3), (4, 5), (5, 6), (2, 6)])
    m = of(pi, beta=(0.9, len(links) / 21), r=2, delta=1e-6)
    found, _ = cover(m, links, "threshold", 0.4)
    assert [one.tolist() for one in found.members] == [[3, 4, 5, 6], [0, 1, 2]]
    assert found.background == (0,)
    stronger, _ = cover(of(pi, beta=(0.9, 0.4), r=2, delta=1e-6), links, "threshold", 0.4)
    assert ([one.tolist() for one in stronger.members], stronger.background) == ([[2, 3, 4, 5, 6], [0, 1, 2]], ())


def test_degrees_in_parts_take_less_memory_than_the_links(monkeypatch):
    monkeypatch.setattr("mmsbgen.graph.graph.AT_A_TIME", 1024)
    links = np.random.default_rng(0).integers(0, 200_000, (400_000, 2))
    tracemalloc.start()
    try:
        found = degrees_of(links, 200_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(found, np.bincount(links.ravel(), minlength=200_000))
    np.testing.assert_array_equal(degrees_of(links[:5000] // 1000, 200), np.bincount(links[:5000].ravel() // 1000))
    assert peak < links.nbytes


def test_components_with_an_adjacency_of_some_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """As without it, whatever links it has, on random graphs, and where the search ends early."""
    rng = np.random.default_rng(0)
    monkeypatch.setattr(uncovered, "_PART", 8)
    for levels in [1, 2, 64] * 60:
        monkeypatch.setattr(uncovered, "_LEVELS", levels)
        n = int(rng.integers(2, 40))
        links = np.unique(np.sort(rng.integers(0, n, (int(rng.integers(0, 50)), 2)), axis=1), axis=0)
        links = links[links[:, 0] < links[:, 1]]
        adjacency = Adjacency.from_pairs(links[rng.random(len(links)) < rng.random()], n)
        searched = uncovered.components_of(n, links, adjacency)
        _, numbered = np.unique(searched, return_inverse=True)
        np.testing.assert_array_equal(numbered, uncovered.components_of(n, links))
        matrix = coo_array((np.ones(len(links)), tuple(links.T)), (n, n))
        np.testing.assert_array_equal(numbered, connected_components(matrix, directed=False)[1])
