"""Links added to and removed from a graph, its split after that, and the archive of both."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmsbgen.base.errors import InputError
from mmsbgen.graph import Graph, as_graph, load_graph, split
from mmsbgen.graph.changes import carried_split, changed_graph
from mmsbgen.graph.files.graph_archive import split_of_archive, write_graph

PAIRS = st.sets(st.tuples(st.integers(0, 30), st.integers(0, 30)).filter(lambda p: p[0] < p[1]), min_size=1)
IDS = st.sampled_from([lambda v: v, lambda v: f"v{v}", lambda v: (v, "tuple")])


def word(name: object) -> object:
    """An id in a changed graph: text, unless it is an integer."""
    return name if isinstance(name, int) else str(name)


def links_of(graph: Graph) -> set[frozenset[object]]:
    return {frozenset(map(graph.ids.tolist().__getitem__, pair)) for pair in graph.links.tolist()}


@given(PAIRS, PAIRS, st.randoms(use_true_random=False), IDS)
def test_changes_are_those_of_sets(there, wanted, random, of_id) -> None:
    gone = {pair for pair in there - wanted if random.random() < 0.5}
    named = [[tuple(map(of_id, pair)) for pair in sorted(pairs)] for pairs in (there, wanted, gone)]
    before, add = as_graph(named[0]), as_graph(named[1])
    change = changed_graph(before, add, as_graph(named[2]) if gone else None)
    after = change.graph
    assert links_of(after) == {frozenset(word(of_id(v)) for v in pair) for pair in (there - gone) | wanted}
    assert after.ids[change.place].tolist() == list(map(word, before.ids.tolist()))
    new = set(add.ids.tolist()) - set(before.ids.tolist())
    assert set(after.ids[change.new_vertices].tolist()) == set(map(word, new))
    assert change.known == len(there & wanted)
    assert (len(change.added), len(change.removed)) == (len(wanted - there), len(gone))
    assert after.report.n_isolated == after.n_vertices - len({v for pair in links_of(after) for v in pair})


@given(PAIRS, PAIRS, st.integers(0, 5))
def test_no_pair_that_was_trained_on_is_held_out(there, wanted, seed) -> None:
    before = as_graph(sorted(there | {(40, 41), (41, 42), (42, 43)}))
    first = split(before, validation=0.2, test=0.2, seed=seed)
    change = changed_graph(before, as_graph(sorted(wanted)), as_graph([(40, 41)]))
    second = carried_split(first, change, 0.2, 0.2)
    keys = {frozenset(pair) for pair in change.graph.links.tolist()}
    trained = {frozenset(change.place[list(pair)].tolist()) for pair in first.training_links.tolist()}
    seen: list[frozenset[int]] = []
    for held in (second.validation, second.test):
        pairs = [frozenset(pair) for pair in held.pairs.tolist()]
        assert [pair in keys for pair in pairs] == held.labels.tolist()
        assert not trained & set(pairs)
        seen += pairs
    assert len(seen) == len(set(seen))
    links = {frozenset(pair) for pair in second.training_links.tolist()}
    assert links == keys - set(seen)
    # Of the links held out before, those stay that have not changed.
    old = {
        frozenset(change.place[list(pair)].tolist())
        for held in (first.validation, first.test)
        for pair in held.pairs[held.labels].tolist()
    }
    gone = {frozenset(pair) for pair in change.removed.tolist()}
    assert old - gone <= set(seen)
    room = second.graph.n_vertices * (second.graph.n_vertices - 1) // 2 - second.graph.n_links - len(gone)
    for held in (second.validation, second.test):
        assert held.n_non_links == held.n_links or room < 2 * len(seen)
    assert np.array_equal(second.test.pairs, carried_split(first, change, 0.2, 0.2).test.pairs)


def test_a_graph_and_its_held_out_pairs_come_back(tmp_path: Path) -> None:
    graph = as_graph([("a", "b"), ("b", "c"), ("c", "d"), ("a", "d"), ("d", "e"), ("e", "f")])
    parts = split(graph, validation=0.2, test=0.2, seed=2)
    write_graph(tmp_path / "graph.npz", parts)
    assert load_graph(tmp_path / "graph.npz").digest == graph.digest
    again = split_of_archive(tmp_path / "graph.npz", 2)
    assert np.array_equal(again.training_links, parts.training_links)
    for name in ("validation", "test"):
        one, other = getattr(again, name), getattr(parts, name)
        assert np.array_equal(one.pairs, other.pairs)
        assert np.array_equal(one.labels, other.labels)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("links", [[0, 0]]),
        ("links", [[0, 9]]),
        ("links", [[0, 2**60]]),
        ("links", [[1, 2], [0, 1]]),
        ("validation", [[0, 7]]),
        ("test", [[0, 1], [0, 2]]),
        ("validation", [[0, 1], [0, 1]]),
        ("non_links", [1]),
        ("ids", [[1]]),
    ],
)
def test_a_forged_archive_is_refused(tmp_path: Path, name: str, array: list[object]) -> None:
    graph = as_graph([(0, 1), (1, 2), (2, 3)])
    write_graph(tmp_path / "graph.npz", split(graph, validation=0.0, seed=0))
    with np.load(tmp_path / "graph.npz") as archive:
        arrays = dict(archive)
    np.savez(tmp_path / "graph.npz", **arrays | {name: np.array(array)})
    with pytest.raises(InputError, match="damaged"):
        load_graph(tmp_path / "graph.npz")


def test_what_cannot_be_meant_is_refused() -> None:
    graph = as_graph([(1, 2), (2, 3)])
    with pytest.raises(InputError, match="^the link 1 - 3 is not in list; this holds for 1 of 2 links"):
        changed_graph(graph, None, as_graph([(1, 3), (1, 2)]))
    with pytest.raises(InputError, match="the link 1 - 2 is to be added and to be removed: name it in one"):
        changed_graph(graph, as_graph([(1, 2)]), as_graph([(1, 2)]))
    with pytest.raises(InputError, match="no link would remain"):
        changed_graph(graph, None, graph)


def test_small_changes_are_held_out_too() -> None:
    """Of 400 links that come one at a time, 5 % are held out: 20 ± 4.4."""
    parts = split(as_graph([(v, v + 1) for v in range(500)]), validation=0.05, seed=0)
    count = parts.validation.n_links
    for v in range(400):
        change = changed_graph(parts.graph, as_graph([(v, v + 50)]))
        parts = carried_split(parts, change, 0.05, 0.0)
    assert 20 - 4 * 4.4 < parts.validation.n_links - count < 20 + 4 * 4.4
    assert parts.validation.n_non_links == parts.validation.n_links


def test_no_held_out_link_is_left() -> None:
    parts = split(as_graph([(v, v + 1) for v in range(50)]), validation=0.1, seed=0)
    gone = parts.validation.pairs[parts.validation.labels]
    after = carried_split(parts, changed_graph(parts.graph, None, as_graph(gone)), 0.1, 0.0)
    assert len(after.validation.pairs) == 0
    assert "all held-out links were removed" in after.warnings[0]
