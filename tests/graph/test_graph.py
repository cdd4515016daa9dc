"""Graph, its adjacency and digest, and the conversion of arrays, matrices and networkx graphs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from mmsbgen.base.errors import InputError
from mmsbgen.graph import Adjacency, Graph, GraphWarning, LoadReport, as_graph
from mmsbgen.graph.graph import by_degree, numbers_of_ranges, repeated

DATA = Path(__file__).parents[1] / "data"
NO_REPORT = LoadReport(0, 0, 0, 0, False, 0)

small_pairs = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=40).filter(
    lambda pairs: any(u != v for u, v in pairs)
)


@given(pairs=small_pairs)
@pytest.mark.filterwarnings("ignore::mmsbgen.graph.GraphWarning")
def test_links_and_adjacency_of_any_pairs(pairs: list[tuple[int, int]]) -> None:
    graph = as_graph(np.array(pairs))
    names = graph.ids.tolist()
    links = {(min(p), max(p)) for p in pairs if p[0] != p[1]}
    assert [(names[u], names[v]) for u, v in graph.links.tolist()] == sorted(links)
    rows = graph.adjacency()
    assert rows.n_vertices == graph.n_vertices == len(names)
    for place, name in enumerate(names):
        expected = sorted({a + b - name for a, b in links if name in (a, b)})
        assert [names[other] for other in rows.row(place)] == expected
        assert graph.degrees()[place] == len(expected)
    report = graph.report
    assert report.n_lines == len(pairs) == graph.n_links + report.n_self_loops + report.n_duplicates
    both = sum((v, u) in set(pairs) and (u, v) in set(pairs) for u, v in links)
    assert (report.n_both_ways, report.directed) == (both, 0 < both < len(links))


@pytest.mark.filterwarnings("ignore::mmsbgen.graph.GraphWarning")
@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([(0, 1), (1, 2)], ""),
        ([(0, 1), (1, 1)], "1 self-loop was dropped"),
        ([(0, 1), (0, 1), (1, 1)], "1 self-loop and 1 repeated link were dropped"),
        ([(0, 1), (0, 1), (0, 1)], "2 repeated links were dropped"),
        ([(0, 1), (1, 0)], "1 of 1 link was listed in both directions and counted once"),
        ([(0, 1), (1, 0), (1, 2), (2, 1)], "all 2 links were listed in both directions and counted once"),
        (
            [(0, 1), (1, 0), (0, 1)],
            "1 repeated link was dropped; 1 of 1 link was listed in both directions and counted once",
        ),
        (
            [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 3), (4, 4)],
            "2 self-loops were dropped",  # the warning tells of directions
        ),
    ],
)
def test_what_is_dropped_is_told_with_counts(pairs: list[tuple[int, int]], said: str) -> None:
    assert as_graph(pairs).report.dropped() == said


def test_adjacency_layout_is_that_of_scipy() -> None:
    graph = as_graph(DATA / "netscience.txt.gz")
    rows = graph.adjacency()
    u, v = graph.links.T
    ones = np.ones(2 * graph.n_links)
    matrix = sp.csr_array((ones, (np.concatenate([u, v]), np.concatenate([v, u]))), shape=(graph.n_vertices,) * 2)
    matrix.sort_indices()
    assert np.array_equal(rows.offsets, matrix.indptr)
    assert np.array_equal(rows.neighbours, matrix.indices)
    assert rows.offsets.dtype == np.int64
    assert rows.neighbours.dtype == np.uint32
    assert graph.adjacency() is rows
    assert not rows.neighbours.flags.writeable


@pytest.mark.parametrize(("n_vertices", "dtype"), [(2, np.int64), (300, np.uint32), (150_000, np.uint32)])
def test_adjacency_by_many_ranges_without_some_links(
    n_vertices: int, dtype: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    pairs = np.sort(rng.integers(0, n_vertices, (2000, 2)), axis=1)
    pairs = np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0)
    without = np.sort(rng.choice(len(pairs), len(pairs) // 5, replace=False))
    matrix = sp.coo_array((np.ones(len(pairs) - without.size), np.delete(pairs, without, axis=0).T), (n_vertices,) * 2)
    both = (matrix + matrix.T).tocsr()
    monkeypatch.setattr("mmsbgen.graph.graph.AT_A_TIME", 100)
    for links_of_a_range in (0, 5):
        monkeypatch.setattr("mmsbgen.graph.graph._RANGE_LINKS", links_of_a_range)
        found = Adjacency.from_pairs(pairs.astype(dtype), n_vertices, without)
        assert np.array_equal(found.offsets, both.indptr)
        assert np.array_equal(found.neighbours, both.indices)


def test_adjacency_without_links() -> None:
    rows = Adjacency.from_pairs(np.empty((0, 2), dtype=np.int64), 3)
    assert rows.offsets.tolist() == [0, 0, 0, 0]
    assert rows.neighbours.size == 0


@pytest.mark.parametrize("pairs", [[[1, 2], [0, 1]], [[0, 2], [0, 1]], [[0, 1], [0, 1]], [[1, 0], [1, 2]], [[1, 1]]])
def test_adjacency_of_pairs_that_are_not_in_order_or_twice(pairs: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="distinct and in lexicographic order"):
        Adjacency.from_pairs(np.array(pairs), 3)


def test_digest_depends_on_content_only() -> None:
    pairs = np.array([[1, 5], [5, 9]])
    digest = as_graph(pairs).digest
    assert len(digest) == 64
    assert as_graph(pairs[::-1, ::-1].astype(np.uint8), name="other").digest == digest
    assert as_graph([[1, 5], [9, 5], [5, 5], [1, 5]]).digest == digest
    others = [[[1, 5], [1, 9]], [[1, 5], [5, 8]], [["1", "5"], ["5", "9"]], [[1, 5]]]
    assert len({digest, *(as_graph(np.array(other)).digest for other in others)}) == 5


@pytest.mark.parametrize(
    ("links", "n_ids", "match"),
    [
        ([[1, 0]], 2, "u < v"),
        ([[0, 2]], 2, "u < v < 2"),
        ([[0, 1], [0, 1]], 2, "distinct"),
        ([[1, 2], [0, 1]], 3, "lexicographic"),
        ([[0, 1]], 3, "ids must have shape"),
        ([[0, 1, 2]], 2, "int64"),
    ],
)
def test_broken_graphs_are_refused(links: list[list[int]], n_ids: int, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        Graph(2 if n_ids == 3 and len(links) == 1 else n_ids, np.arange(n_ids), np.array(links), NO_REPORT)


def test_graph_is_read_only() -> None:
    graph = as_graph([[0, 1]])
    with pytest.raises(ValueError, match="read-only"):
        graph.links[0, 0] = 5
    with pytest.raises(ValueError, match="read-only"):
        graph.ids[0] = 5


def test_graph_and_path_pass_through() -> None:
    graph = as_graph(str(DATA / "fb_3980.txt.gz"))
    assert (graph.n_vertices, graph.n_links) == (59, 146)
    assert as_graph(graph) is graph


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.uint64, np.int32, object, ">i4"])
def test_integer_arrays(dtype: Any) -> None:
    graph = as_graph(np.array([[7, 3], [3, 100]], dtype=dtype))
    assert graph.ids.tolist() == [3, 7, 100]
    assert graph.ids.dtype == np.int64
    assert graph.links.tolist() == [[0, 1], [0, 2]]


@pytest.mark.parametrize("dtype", [str, bytes, object])
def test_string_arrays(dtype: Any) -> None:
    graph = as_graph(np.array([["b", "a"], ["c", "b"]], dtype=dtype))
    assert graph.ids.tolist() == ["a", "b", "c"]
    assert graph.links.tolist() == [[0, 1], [1, 2]]


def test_sparse_ids_far_apart() -> None:
    graph = as_graph(np.array([[2**62, -(2**62)], [0, 2**62]]))
    assert graph.ids.tolist() == [-(2**62), 0, 2**62]
    assert graph.links.tolist() == [[0, 2], [1, 2]]


@pytest.mark.parametrize(
    ("array", "match"),
    [
        (np.ones((4, 3)), r"shape \(4, 3\); a third column would be weights.*a\[:, :2\]"),
        (np.ones((4, 4)), r"shape \(4, 4\); give pairs.*csr_array"),
        (np.arange(4), r"shape \(4,\)"),
        ([[1, 2], [3]], r"row 1 has 1 values, \[3\]"),
        (np.array([[0.0, 1.0]]), "float64.*astype"),
        (np.array([[True, False]]), "bool"),
        ([[1, 2, 3]], r"three values in row 0, \[1, 2, 3\]; a third column would be weights"),
        ([(1, 2), "ab"], "row 1 is 'ab', which is no pair"),
        ([(1, {2})], r"\{2\} is a set and cannot be the id of a vertex"),
        ([(1, float("nan"))], "an id is NaN"),
        (np.array([[0, float("nan")]], dtype=object), "an id is NaN"),
        (np.array([[b"\xe9", b"a"]]), "not UTF-8"),
        (np.empty((0, 2), dtype=np.int64), "no link"),
        (np.array([[3, 3]]), "1 self-loop was dropped"),
    ],
)
def test_refused_arrays(array: Any, match: str) -> None:
    with pytest.raises(InputError, match=match):
        as_graph(array)


def test_refused_objects() -> None:
    with pytest.raises(InputError, match=r"builtins\.dict is no graph; give the path of an edge list"):
        as_graph({0: [1]})
    with pytest.raises(InputError, match="is no graph"):
        as_graph(nx.path_graph(3).edges)


@pytest.mark.parametrize("make", [sp.csr_array, sp.coo_matrix, sp.lil_matrix, sp.csc_array, sp.dok_array, sp.bsr_array])
@pytest.mark.parametrize("dtype", [np.float64, np.int8, np.bool_])
def test_scipy(make: Any, dtype: Any) -> None:
    dense = np.zeros((5, 5), dtype=dtype)
    for u, v in ((0, 2), (2, 4), (3, 3)):
        dense[u, v] = dense[v, u] = 1
    matrix = make(dense)
    graph = as_graph(matrix)
    assert graph.ids.tolist() == [0, 1, 2, 3, 4]
    assert graph.links.tolist() == [[0, 2], [2, 4]]
    assert graph.report == LoadReport(5, 1, 2, 2, False, 2)
    assert np.array_equal(matrix.toarray(), dense)


def test_scipy_details() -> None:
    upper = sp.coo_array((np.array([1, 0, 1]), (np.array([0, 0, 1]), np.array([1, 2, 2]))), shape=(3, 3))
    assert as_graph(upper).links.tolist() == [[0, 1], [1, 2]]
    with pytest.warns(GraphWarning, match="1 of its 2 links"):
        assert as_graph(sp.csr_array(np.array([[0, 1, 1], [1, 0, 0], [0, 0, 0]]))).report.directed
    arcs = [(0, 1), (2, 1), (2, 3), (0, 3)]
    for shown in (arcs, arcs[1:]):
        u, v = np.array(shown).T
        directed = sp.csr_array((np.ones(len(shown)), (u, v)), shape=(4, 4))
        with pytest.warns(GraphWarning, match=f"0 of its {len(shown)} links in both directions"):
            found = as_graph(directed)
        with pytest.warns(GraphWarning, match=f"0 of its {len(shown)} links in both directions"):
            assert found.digest == as_graph(nx.DiGraph(shown)).digest
        assert found.report.directed
        assert not as_graph(directed + directed.T + sp.eye_array(4)).report.directed
        assert not as_graph(sp.tril(directed + directed.T)).report.directed
    with pytest.raises(InputError, match=r"entry \(0, 1\) is 2\.5.*weights='ignore'"):
        as_graph(sp.csr_array(np.array([[0, 2.5], [2.5, 0]])))
    with pytest.raises(InputError, match=r"is 2;"):
        as_graph(sp.coo_array((np.array([1, 1]), (np.array([0, 0]), np.array([1, 1]))), shape=(2, 2)))
    repeated = sp.coo_array((np.array([1, 0]), (np.array([0, 0]), np.array([1, 1]))), shape=(2, 2))
    assert as_graph(repeated).links.tolist() == [[0, 1]]
    assert repeated.nnz == 2, "the caller's matrix was changed"
    with pytest.raises(InputError, match=r"shape \(2, 3\); an adjacency matrix is square"):
        as_graph(sp.csr_array(np.ones((2, 3))))
    with pytest.raises(InputError, match="no link"):
        as_graph(sp.csr_array((4, 4)))


def test_networkx_keeps_nodes_as_they_were() -> None:
    source = nx.Graph(name="demo")
    source.add_node("alone")
    source.add_edges_from([((1, 2), "b"), ("b", 3.5), ("b", "b"), (frozenset({1}), "b")])
    graph = as_graph(source)
    assert graph.ids.tolist() == [frozenset({1}), 3.5, "alone", "b", (1, 2)]
    assert graph.ids.dtype == object
    assert graph.links.tolist() == [[0, 3], [1, 3], [3, 4]]
    assert (graph.name, graph.report.n_self_loops, graph.report.n_isolated) == ("demo", 1, 1)
    assert graph.digest == as_graph(source).digest


def test_networkx_integer_and_string_ids() -> None:
    graph = as_graph(nx.relabel_nodes(nx.path_graph(3), {0: 50, 1: -7, 2: 9}))
    assert graph.ids.tolist() == [-7, 9, 50]
    assert graph.ids.dtype == np.int64
    assert graph.links.tolist() == [[0, 1], [0, 2]]
    assert as_graph(nx.relabel_nodes(nx.path_graph(2), str)).ids.dtype.kind == "U"
    assert as_graph(nx.relabel_nodes(nx.path_graph(2), {0: True, 1: 2**80})).ids.tolist() == [True, 2**80]


@pytest.mark.filterwarnings("error")
def test_networkx_kinds() -> None:
    multi = nx.MultiGraph([(0, 1), (1, 0), (1, 2)])
    assert as_graph(multi).report.n_duplicates == 1
    assert not as_graph(nx.path_graph(4).to_directed()).report.directed
    with pytest.warns(GraphWarning, match="0 of its 2 links in both directions"):
        assert as_graph(nx.DiGraph([(0, 1), (1, 2)])).report.directed
    assert as_graph(nx.Graph([(0, 1, {"weight": 1.0, "color": "red"})])).n_links == 1


@pytest.mark.parametrize("weight", [0.5, "1", None, 0])
def test_networkx_weights_are_ignored(weight: object) -> None:
    source = nx.Graph()
    source.add_edge("a", "b", weight=weight)
    assert as_graph(source).digest == as_graph([("a", "b")]).digest


def test_import_loads_neither_scipy_nor_networkx() -> None:
    code = (
        "import sys, mmsbgen.graph as g; g.split(g.as_graph([[0, 1], [1, 2], [2, 3]]), seed=0);"
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'scipy', 'networkx', 'pandas'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_hubs_come_first() -> None:
    assert by_degree(np.array([0, 2, 7, 9, 10], np.uint64)).tolist() == [1, 0, 2, 3]


@pytest.mark.parametrize("most", [3, 1 << 16, 1 << 40])
def test_few_and_many_links_are_in_the_same_order(most: int) -> None:
    degrees = np.random.default_rng(1).integers(0, most, 2000)
    offsets = np.concatenate([[0], np.cumsum(degrees)])
    every = np.argsort(-degrees, kind="stable")
    np.testing.assert_array_equal(by_degree(offsets), every[degrees[every] > 0])


@pytest.mark.parametrize("counts", [[], [0, 0], [3], [0, 2, 0, 0, 1, 4, 0]])
def test_numbers_are_repeated_as_numpy_does(counts: list[int]) -> None:
    for values in (np.array([7, 2, 9, 250, 0, 3, 1], np.uint8)[: len(counts)], np.arange(len(counts)) - 3):
        found = repeated(values, np.array(counts, np.int64))
        assert found.dtype == values.dtype
        np.testing.assert_array_equal(found, np.repeat(values, counts))
    ranges = [np.arange(5 * at, 5 * at + count) for at, count in enumerate(counts)]
    found = numbers_of_ranges(5 * np.arange(len(counts)), np.array(counts, np.int64))
    np.testing.assert_array_equal(found, np.concatenate([np.zeros(0, int), *ranges]))
