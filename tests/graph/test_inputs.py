"""Graphs in the forms of other libraries, with ids of any kind, in any order."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Hashable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import igraph
import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import canonical_key
from mmsbgen.graph import Graph, GraphWarning, as_graph
from mmsbgen.graph.building import build_graph
from mmsbgen.graph.ids import from_json, numbered_pairs, to_json

#: Ids that files can have, and others.
stored = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=6)
    | st.binary(max_size=4)
    | st.dates()
    | st.datetimes().map(lambda moment: moment.replace(fold=0))
    | st.uuids()
)
others = (
    st.times() | st.timedeltas() | st.fractions() | st.decimals(allow_nan=False) | st.complex_numbers(allow_nan=False)
)


def nested(atoms: st.SearchStrategy[Hashable]) -> st.SearchStrategy[Hashable]:
    return st.recursive(
        atoms, lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3), max_leaves=6
    )


any_ids = nested(stored | others)


def named_links(graph: Graph) -> set[frozenset[Any]]:
    names = graph.ids.tolist()
    return {frozenset((names[u], names[v])) for u, v in graph.links.tolist()}


@pytest.mark.slow
@given(pairs=st.lists(st.tuples(any_ids, any_ids), min_size=1, max_size=12), seed=st.randoms(use_true_random=False))
@pytest.mark.filterwarnings("ignore::mmsbgen.graph.GraphWarning")
def test_ids_of_any_kind_come_back_in_an_order_of_their_own(
    pairs: list[tuple[Hashable, Hashable]], seed: random.Random
) -> None:
    distinct = dict.fromkeys(item for pair in pairs for item in pair)
    if all(u == v for u, v in pairs):
        with pytest.raises(InputError, match="no link"):
            as_graph(pairs)
        return
    graph = as_graph(pairs)
    names = graph.ids.tolist()
    assert len(names) == len(distinct)
    assert set(names) == set(distinct)
    types = {item: type(item) for item in distinct}
    assert all(type(name) is types[name] for name in names)
    assert named_links(graph) == {frozenset(pair) for pair in pairs if pair[0] != pair[1]}
    # The first of equal ids names the vertex, so that which is first is kept; all else is shuffled.
    first = list(distinct)
    shuffled = [(u, v) if seed.random() < 0.5 else (v, u) for u, v in pairs]
    seed.shuffle(shuffled)
    renamed = [tuple(first[first.index(item)] for item in pair) for pair in shuffled]
    other = as_graph(renamed)
    assert list(map(canonical_key, other.ids.tolist())) == list(map(canonical_key, names))
    assert np.array_equal(other.links, graph.links)
    assert other.digest == graph.digest


@pytest.mark.slow
@given(nested(stored))
def test_ids_go_into_json_and_back(item: Hashable) -> None:
    back = from_json(json.loads(json.dumps(to_json(item))))
    assert back == item
    assert type(back) is type(item)
    assert canonical_key(back) == canonical_key(item)


def test_ids_that_json_cannot_have_are_refused() -> None:
    for odd in (Decimal("1.5"), timedelta(1), 1j):
        with pytest.raises(InputError, match="cannot be written to a file; name the vertices by strings"):
            to_json(odd)
    with pytest.raises(InputError, match="range, which cannot be written to a file; name the vertices"):
        to_json((1, range(3)))
    with pytest.raises(InputError, match="cannot be written to a file"):
        to_json(datetime(2020, 1, 2, tzinfo=ZoneInfo("Europe/Berlin")))
    assert from_json(to_json(datetime(2020, 1, 2, tzinfo=UTC))) == datetime(2020, 1, 2, tzinfo=UTC)
    for bad in ({}, [], ["tuple", 1.5], ["set", 1], ["date", 3], ["uuid", "x"]):
        with pytest.raises((ValueError, IndexError)):
            from_json(bad)


@pytest.mark.slow
def test_the_digest_does_not_depend_on_the_hashes_of_strings() -> None:
    code = (
        "from mmsbgen.graph import as_graph;"
        "print(as_graph([(frozenset({'a', 'b', 'c'}), ('x', frozenset({'d', 'e'}))), (1, None)]).digest)"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
        ).stdout
        for seed in (1, 2, 3)
    }
    assert len(found) == 1


def test_rows_may_be_arrays() -> None:
    expected = as_graph([(1, 2), (2, 3), (3, 4)])
    for rows in (
        [np.array([1, 2]), np.array([2, 3]), np.array([3, 4])],
        [[1, 2], np.array([2, 3]), (3, 4)],
        [(1, 2), np.array([2, 3]), np.array([3, 4])],
    ):
        assert as_graph(rows).digest == expected.digest
    assert as_graph([np.array(["a", "b"]), ("b", "c")]).ids.tolist() == ["a", "b", "c"]


TWO = pd.DataFrame({"source": [1, 2], "target": [2, 3]})


@pytest.mark.parametrize(
    ("source", "columns", "words"),
    [
        (TWO, 5, "columns=5: name two"),
        (TWO, ("source", "source"), "name two, those of the two ends"),
        (TWO.iloc[:0], None, "pandas table has no rows"),
        (TWO.assign(weight=[np.ones(2), np.ones(2)]), None, "has weight array"),
        (np.ma.masked_equal([[1, 2], [2, 3]], 3), None, "masked in places"),
        ("a\0b", None, "can be no path .*null"),
    ],
)
def test_odd_inputs_are_refused(source: Any, columns: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        as_graph(source, columns=columns)


@pytest.mark.parametrize("name", [["a", "list"], {"a": 1}, {2}])
def test_names_of_igraph_that_cannot_be_ids_are_refused(name: Any) -> None:
    graph = igraph.Graph(3, [(0, 1), (1, 2)])
    graph.vs["name"] = ["x", name, "z"]
    with pytest.raises(InputError, match=re.escape(f"{name!r} is a {type(name).__name__} and cannot be")):
        as_graph(graph)
    graph.vs["name"] = ["x", float("nan"), "z"]
    with pytest.raises(InputError, match="an id is NaN"):
        as_graph(graph)


def test_the_warning_of_a_directed_graph_names_the_users_line(tmp_path: Path) -> None:
    links = [(1, 2), (2, 1), (2, 3)]
    (tmp_path / "links.txt").write_text("".join(f"{a} {b}\n" for a, b in links))
    frame = pd.DataFrame(links, columns=["source", "target"])
    graph = igraph.Graph(4, links, directed=True)
    for source in (links, np.array(links), tmp_path / "links.txt", nx.DiGraph(links), graph, frame):
        with pytest.warns(GraphWarning, match="direction is dropped") as told:
            as_graph(source)
        assert told[0].filename == __file__, type(source)
    with pytest.warns(GraphWarning) as told:
        build_graph(np.array([0, 1]), np.array([1, 0]), np.arange(2), name="two", directed=True)
    assert told[0].filename == __file__


def test_the_order_of_ids() -> None:
    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

        def __repr__(self) -> str:
            return self.name

    class Bare:
        pass

    mixed = [(2.5, "b"), (None, (1, "x")), (b"y", 2**70), (date(2020, 1, 2), (1,)), ("B", -3)]
    expected = [None, b"y", date(2020, 1, 2), -3, 2.5, 2**70, "B", "b", (1,), (1, "x")]
    assert as_graph(mixed).ids.tolist() == expected
    z, a = Named("z"), Named("a")
    assert as_graph([(z, a)]).ids.tolist() == [a, z]
    one, two = Bare(), Bare()
    assert as_graph([(two, one)]).ids.tolist() == [two, one], "nothing tells them apart but how they came"
    assert as_graph([(1, 2), (2, 3)]).ids.dtype == np.int64
    assert as_graph([("a", "b")]).ids.dtype.kind == "U"
    assert as_graph(np.array([[0, 2**63]], dtype=np.uint64)).ids.tolist() == [0, 2**63]
    assert as_graph(np.array([[0, "a"], [Decimal(7), "a"]], dtype=object)).ids.tolist() == [Decimal(7), 0, "a"]
    assert as_graph([(1, 1.0), (True, 2)]).ids.tolist() == [1, 2], "1, 1.0 and True are equal"


def grid() -> list[tuple[tuple[int, int], tuple[int, int]]]:
    return list(nx.grid_2d_graph(3, 3).edges)


def test_pairs_of_tuples_are_links_of_tuples() -> None:
    """np.asarray would make three dimensions of them."""
    graph = as_graph(grid())
    assert graph.ids.tolist() == [(a, b) for a in range(3) for b in range(3)]
    assert graph.digest == as_graph(nx.grid_2d_graph(3, 3)).digest


def test_igraph() -> None:
    graph = as_graph(igraph.Graph.Ring(5))
    assert graph.ids.tolist() == [0, 1, 2, 3, 4]
    assert (graph.n_links, graph.name) == (5, "igraph graph")
    named = igraph.Graph(n=4, edges=[(3, 1), (1, 0), (0, 0)])
    named["name"] = "demo"
    named.vs["name"] = ["d", "b", "alone", "a"]
    graph = as_graph(named)
    assert graph.ids.tolist() == ["a", "alone", "b", "d"]
    assert graph.links.tolist() == [[0, 2], [2, 3]]
    assert (graph.report.n_isolated, graph.report.n_self_loops, graph.name) == (1, 1, "demo")
    with pytest.warns(GraphWarning, match="a directed graph, with"):
        as_graph(igraph.Graph(edges=[(0, 1), (1, 2)], directed=True))
    assert not as_graph(igraph.Graph(edges=[(0, 1), (1, 0)], directed=True)).report.directed
    named.es["weight"] = [1, 2, 0.5]  # ignored
    assert as_graph(named).digest == graph.digest
    named.vs["name"] = ["d", "b", "b", "a"]
    with pytest.raises(InputError, match=r"two vertices have the name 'b'.*del g\.vs\['name'\]"):
        as_graph(named)


MAKERS: dict[str, Callable[[dict[str, list[Any]]], Any]] = {
    "pandas": pd.DataFrame,
    "polars": lambda columns: pl.DataFrame(columns, strict=False),
    "pyarrow": pa.table,
}


@pytest.mark.parametrize("library", MAKERS)
def test_tables(library: str) -> None:
    make = MAKERS[library]
    assert as_graph(make({"a": [3, 1], "b": [1, 2]})).ids.tolist() == [1, 2, 3]
    assert as_graph(make({"a": ["x", "y"], "b": ["y", "z"]})).ids.tolist() == ["x", "y", "z"]
    mixed = make({"user": [1, 2], "item": ["p", "q"], "when": [5, 6]})
    assert as_graph(mixed, columns=("user", "item")).ids.tolist() == [1, 2, "p", "q"]
    with pytest.raises(InputError, match="has the columns 'user', 'item', 'when'; name the two ends"):
        as_graph(mixed)
    with pytest.raises(InputError, match="has no column 'thing'; there are 'user', 'item', 'when'"):
        as_graph(mixed, columns=("user", "thing"))
    with pytest.raises(InputError, match=r"columns='user': name two"):
        as_graph(mixed, columns="user")  # type: ignore[arg-type]
    usual = make({"weight": [1, 1], "source": [1, 2], "target": [2, 3]})
    assert as_graph(usual).links.tolist() == [[0, 1], [1, 2]]
    heavy = make({"source": [1, 2], "target": [2, 3], "weight": [1.0, 0.5]})
    with pytest.raises(InputError, match=r"a link has weight 0\.5; the model takes unweighted links"):
        as_graph(heavy)
    assert as_graph(heavy, columns=("source", "target")).n_links == 2
    with pytest.raises(InputError, match="row 1 has no value in column 'target'"):
        as_graph(make({"source": ["a", "b"], "target": ["b", None]}))
    with pytest.raises(InputError, match=r"column 'b' is of type .*(64|double).*, which are no ids"):
        as_graph(make({"a": [1, 2], "b": [0.5, 0.25]}))
    with pytest.raises(InputError, match="which are no ids"):
        as_graph(make({"a": [1, 2], "b": [True, False]}))
    many = np.random.default_rng(0).integers(0, 500, (3000, 2))
    with pytest.warns(GraphWarning):
        expected = as_graph(many).digest
    with pytest.warns(GraphWarning):
        assert as_graph(make({"source": many[:, 0], "target": many[:, 1]})).digest == expected


def test_tables_of_pandas() -> None:
    frame = pd.DataFrame({0: pd.array([1, 2], dtype="Int64"), 1: pd.Categorical([2, 3])})
    assert as_graph(frame).ids.tolist() == [1, 2, 3]
    frame = pd.DataFrame({"u": pd.array([1, None], dtype="Int64"), "v": [2, 3]})
    with pytest.raises(InputError, match="row 1 has no value in column 'u'"):
        as_graph(frame)
    days = pd.DataFrame({"u": pd.to_datetime(["2020-01-02", "2020-01-03"]), "v": ["a", "b"]})
    assert as_graph(days).ids.tolist() == [*days["u"].to_list(), "a", "b"]
    twice = pd.DataFrame([[1, 2, 3]], columns=["u", "u", "v"])
    with pytest.raises(InputError, match="several columns 'u'"):
        as_graph(twice, columns=("u", "v"))
    tuples = pd.DataFrame({"u": [(0, 1), (0, 2)], "v": [(0, 2), (5,)]})
    assert as_graph(tuples).ids.tolist() == [(0, 1), (0, 2), (5,)]
    wide = pd.DataFrame({"u": np.array([2**63], np.uint64), "v": [1]})
    assert as_graph(wide).ids.tolist() == [1, 2**63]
    with pytest.raises(InputError, match="has the columns"):
        as_graph(pd.DataFrame(np.eye(3, dtype=int)))


def test_columns_are_for_tables() -> None:
    with pytest.raises(InputError, match="a list has none"):
        as_graph([(0, 1)], columns=("u", "v"))


def test_a_file_and_its_other_forms_are_one_graph() -> None:
    path = Path(__file__).parents[1] / "data" / "fb_3980.txt.gz"
    graph = as_graph(path)
    names = graph.ids.tolist()
    pairs = [(names[v], names[u]) for u, v in reversed(graph.links.tolist())]
    listed = nx.Graph(pairs)
    # The file has isolated vertices, which lists of links cannot have.
    listed.add_nodes_from(names)
    assert as_graph(listed).digest == graph.digest
    whole = igraph.Graph(n=len(names), edges=[(u, v) for u, v in graph.links.tolist()])
    whole.vs["name"] = names
    assert as_graph(whole).digest == graph.digest
    forms = [
        pairs,
        np.array(pairs),
        *(make({"u": [a for a, _ in pairs], "v": [b for _, b in pairs]}) for make in MAKERS.values()),
    ]
    assert len({as_graph(form).digest for form in forms}) == 1


def test_pairs_of_ids() -> None:
    ids = as_graph([((1, 2), "b"), ("b", None)]).ids
    assert numbered_pairs(ids, [("b", (1, 2)), (None, "b")]).tolist() == [[1, 2], [0, 1]]
    assert numbered_pairs(ids, []).shape == (0, 2)
    assert numbered_pairs(np.arange(3), np.array([[2, 0]])).tolist() == [[2, 0]]
    for bad, words in (
        ([("b", "c")], "'c' is no vertex"),
        ([("b", ["c"])], r"\['c'\] is no vertex"),
        ([("b",)], r"\('b',\) is no pair"),
        (["ab"], "'ab' is no pair"),
        (5, "5 is no pair"),
        (np.zeros((2, 3)), r"shape \(2, 3\)"),
    ):
        with pytest.raises(InputError, match=words):
            numbered_pairs(ids, bad)
