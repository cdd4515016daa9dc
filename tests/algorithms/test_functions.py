"""The functions on graphs, against networkx and SciPy."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sparse
from scipy.sparse import csgraph

from mmsbgen.algorithms import (
    Argument,
    ConvergenceError,
    Rounds,
    bfs,
    closeness,
    components,
    cores,
    k_core,
    multi_source_bfs,
    pagerank,
    run_rounds,
    sssp,
    triangles,
    widest_paths,
)
from mmsbgen.backends import Device
from mmsbgen.base.errors import InputError
from mmsbgen.families.graph import GRAPH, inputs
from mmsbgen.graph import Arcs, as_arcs
from tests.families.graph.shapes import arcs, random_graphs, shapes


def networkx_of(graph: Arcs) -> Any:
    """The same graph in networkx: parallel links stay."""
    made = (nx.MultiDiGraph if graph.directed else nx.MultiGraph)()
    made.add_nodes_from(range(graph.n_vertices))
    assert graph.weights is not None
    for u, v, w in zip(graph.sources.tolist(), graph.targets.tolist(), graph.weights.tolist(), strict=True):
        if graph.directed or u <= v:
            made.add_edge(u, v, weight=w)
    return made


@pytest.mark.slow
def test_hundreds_of_random_graphs(opencl_device: Device) -> None:
    on = opencl_device.info.spec
    count = 50 if "Portable" in opencl_device.info.platform else 150  # of PoCL each takes longer
    for graph, rng in random_graphs(count):
        other, n = networkx_of(graph), graph.n_vertices
        source = int(rng.integers(n))
        plain = Arcs(graph.offsets, graph.targets, graph.ids, None, graph.directed)
        found = bfs(plain, source, parents=True, device=on)
        levels = nx.single_source_shortest_path_length(other, source)
        assert found.values.tolist() == [levels.get(v, -1) for v in range(n)]
        assert found.parents is not None
        for v, parent in enumerate(found.parents.tolist()):
            nearer = [u for u in graph.reversed.targets[slice(*graph.reversed.offsets[v : v + 2])].tolist()
                      if levels.get(u, n) == levels.get(v, -1) - 1]  # fmt: skip
            assert parent == min(nearer, default=-1)
        lengths = nx.single_source_dijkstra_path_length(other, source)
        assert sssp(graph, source, device=on).values.tolist() == [lengths.get(v, np.inf) for v in range(n)]
        sets = nx.weakly_connected_components(other) if graph.directed else nx.connected_components(other)
        number = {v: i for i, members in enumerate(sets) for v in members}
        assert components(plain, device=on).values.tolist() == [number[v] for v in range(n)]
        ranks = nx.pagerank(other, tol=1e-10, max_iter=500, weight=None)
        assert pagerank(plain, tol=1e-10, max_iter=500, device=on).values == pytest.approx(
            [ranks[v] for v in range(n)], abs=1e-9
        )
        simple = (nx.DiGraph if graph.directed else nx.Graph)(other)
        simple.remove_edges_from(list(nx.selfloop_edges(simple)))
        assert cores(simple, device=on).as_dict() == nx.core_number(simple)
        simple, counted = nx.Graph(simple), triangles(plain, device=on)
        assert counted.as_dict() == nx.triangles(simple)
        assert counted.clustering.tolist() == list(nx.clustering(simple).values())
        assert counted.transitivity == nx.transitivity(simple)


def test_every_shape_agrees_with_scipy(opencl_device: Device) -> None:
    on = opencl_device.info.spec
    for shape, graph in shapes().items():
        n = graph.n_vertices
        plain = Arcs(graph.offsets, graph.targets, graph.ids, None, graph.directed)
        matrix = sparse.csr_array((np.ones(graph.n_arcs), (graph.sources, graph.targets)), shape=(n, n))
        levels = csgraph.dijkstra(matrix, indices=0, unweighted=True)
        levels[np.isinf(levels)] = -1
        assert np.array_equal(bfs(plain, 0, device=on).values, levels), shape
        count, _ = csgraph.connected_components(matrix)
        assert components(plain, device=on).values.max() + 1 == (count if not graph.directed else len(
            list(nx.weakly_connected_components(networkx_of(graph))))), shape  # fmt: skip
        lengths = nx.multi_source_dijkstra_path_length(networkx_of(graph), {0, n // 2})
        nearest = sssp(graph, [n // 2, 0, n // 2], device=on).values
        assert nearest.tolist() == [lengths.get(v, np.inf) for v in range(n)], shape
        if n <= 80:
            assert graph.weights is not None
            widths = np.zeros((n, n))
            np.maximum.at(widths, (graph.sources, graph.targets), graph.weights)
            np.fill_diagonal(widths, np.inf)
            for v in range(n):
                widths = np.maximum(widths, np.minimum(widths[:, v, None], widths[None, v]))
            for v in (0, n - 1):
                assert np.array_equal(widest_paths(graph, v, device=on).values, widths[v]), shape
        numbers = cores(plain, device=on).values
        for k in {0, 1, 2, *numbers.tolist(), numbers.max() + 1}:
            assert np.array_equal(k_core(plain, k, device=on).values, numbers >= k), (shape, k)
        every = csgraph.dijkstra(matrix, indices=range(min(n, 33)), unweighted=True)
        every[np.isinf(every)] = -1
        # More sources than one run takes.
        assert np.array_equal(multi_source_bfs(plain, range(min(n, 33)), device=on).values, every.T), shape
        near = dict(nx.closeness_centrality(networkx_of(graph))) if n < 300 else closeness(plain, device=on).as_dict()
        assert closeness(plain, [n - 1], device=on).values.tolist() == [near[n - 1]], shape
        assert closeness(plain, device=on).as_dict() == near, shape
        assert triangles(graph, device=on).as_dict() == nx.triangles(nx.Graph(networkx_of(graph))), shape


def test_a_path_of_a_hundred_thousand(opencl_device: Device) -> None:
    """As many rounds as vertices; launches one by one would take minutes."""
    n = 100_000
    path = arcs([(v, v + 1) for v in range(n - 1)], n)
    path = Arcs(path.offsets, path.targets, path.ids)
    ones = Arcs(path.offsets, path.targets, path.ids, np.ones(path.n_arcs))
    on = opencl_device.info.spec
    assert np.array_equal(bfs(path, 0, device=on).values, np.arange(n))
    assert np.array_equal(multi_source_bfs(path, [0, n - 1], device=on).values[:, 1], np.arange(n)[::-1])
    assert np.array_equal(sssp(ones, 0, device=on).values, np.arange(n))
    assert not components(path, device=on).values.any()
    assert (cores(path, device=on).values == 1).all()


def test_a_large_star_and_clique(opencl_device: Device) -> None:
    on = opencl_device.info.spec
    star = arcs([(7, leaf) for leaf in range(100_000) if leaf != 7], 100_000)
    star = Arcs(star.offsets, star.targets, star.ids)
    assert bfs(star, 3, device=on).values.max() == 2
    assert np.bincount(multi_source_bfs(star, [3, 7], device=on).values.ravel()).tolist() == [2, 100_000, 99_998]
    assert (cores(star, device=on).values == 1).all()
    assert pagerank(star, device=on).values.argmax() == 7
    clique = as_arcs(np.array([(u, v) for u in range(300) for v in range(u)]))
    assert (bfs(clique, 0, parents=True, device=on).values[1:] == 1).all()
    assert (cores(clique, device=on).values == 299).all()
    assert (triangles(clique, device=on).values == 299 * 298 // 2).all()
    assert triangles(star, device=on).total == 0


def test_triangles_beyond_32_bits(opencl_device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if as many had been counted before."""
    begin = inputs.state_of_triangles

    def later(graph: Arcs) -> dict[str, Any]:
        state = begin(graph)
        state["found"][:, 0] = 2**32 - 2
        return state

    monkeypatch.setattr(inputs, "state_of_triangles", later)
    found = triangles(nx.complete_graph(5), device=opencl_device.info.spec)
    assert found.values.tolist() == [2**32 + 4] * 5


def test_graphs_without_vertices_or_links(processor: Device) -> None:
    on, empty, one = processor.info.spec, nx.Graph(), nx.empty_graph(1)
    for function in (closeness, components, cores, pagerank, triangles):
        assert function(empty, device=on).as_dict() == {}
    assert (triangles(empty).transitivity, triangles(one).as_dict()) == (0, {0: 0})
    assert components(one, device=on).as_dict() == {0: 0}
    assert cores(one, device=on).as_dict() == {0: 0}
    assert pagerank(one, device=on).as_dict() == pytest.approx({0: 1.0})
    assert bfs(one, 0, device=on).as_dict() == {0: 0}
    assert closeness(one, device=on).as_dict() == {0: 0}
    for search in (multi_source_bfs, sssp):
        with pytest.raises(InputError, match="there is no source; give at least one id"):
            search(nx.path_graph(1) if search is multi_source_bfs else weighted(1), [], device=on)
    with pytest.raises(InputError, match="0 is no vertex of networkx graph; its ids are such as none: it is empty"):
        bfs(empty, 0, device=on)


def weighted(*weights: float) -> Any:
    made = nx.DiGraph()
    made.add_weighted_edges_from((i, i + 1, weight) for i, weight in enumerate(weights))
    return made


def test_odd_weights(opencl_device: Device) -> None:
    on = opencl_device.info.spec
    assert sssp(weighted(0.0, -0.0, 1e-300), 0, device=on).values.tolist() == [0, 0, 0, 1e-300]
    assert widest_paths(weighted(np.inf, 1e-300, -0.0), 0, device=on).values.tolist() == [np.inf, np.inf, 1e-300, 0]
    assert sssp(weighted(1e308, 1e307), 0, device=on).values.tolist() == [0, 1e308, 1.1e308]
    cycle = nx.DiGraph([(0, 1), (1, 0), (1, 2)])
    nx.set_edge_attributes(cycle, 0, "weight")
    assert sssp(cycle, 0, device=on).values.tolist() == [0, 0, 0]
    assert sssp(weighted(1.0, np.inf, 2.0), 0, device=on).values.tolist() == [0, 1, np.inf, np.inf]
    for bad, told in ((-1.0, "-1.0"), (np.nan, "nan")):
        for function in (sssp, widest_paths):
            with pytest.raises(InputError, match=f"the weight from 1 to 2 is {told}; give ones of 0 or more"):
                function(weighted(1.0, bad), 0, device=on)
    with pytest.raises(InputError, match="the weight from 1 to 2 is inf; give finite ones of 0 or more"):
        pagerank(weighted(1.0, np.inf), weights="weight", device=on)
    with pytest.raises(InputError, match="the link from 0 to 1 has weight 'x'; give a number"):
        sssp(weighted("x"), 0, device=on)  # type: ignore[arg-type]


def test_weights_far_apart(opencl_device: Device) -> None:
    """Windows of the mean weight are passed over where they are empty."""
    n = 400
    rng = np.random.default_rng(4)
    pairs = rng.integers(0, n, (3 * n, 2))
    weights = 10.0 ** rng.uniform(-6, 6, len(pairs))
    made = nx.DiGraph()
    made.add_nodes_from(range(n))
    made.add_weighted_edges_from((int(u), int(v), float(w)) for (u, v), w in zip(pairs, weights, strict=True))
    lengths = nx.single_source_dijkstra_path_length(made, 0)
    assert sssp(made, 0, device=opencl_device.info.spec).values.tolist() == [lengths.get(v, np.inf) for v in made]


def test_ranks_of_given_vectors(processor: Device) -> None:
    on = processor.info.spec
    made = nx.gn_graph(60, seed=1)
    given = {"personalization": {3: 2.0, 5: 1.0}, "nstart": {1: 1.0}, "dangling": {0: 0.5, 9: 0.5}, "tol": 1e-12}
    found = pagerank(made, max_iter=500, device=on, **given).as_dict()
    assert found == pytest.approx(nx.pagerank(made, max_iter=500, **given), abs=1e-12)
    with pytest.raises(ConvergenceError, match=r"changes by .* a vertex after 2 rounds, and 1e-12.*larger --tolerance"):
        pagerank(made, tol=1e-12, max_iter=2, device=on)
    with pytest.raises(InputError, match="alpha=1.5: it is a probability"):
        pagerank(made, alpha=1.5, device=on)
    for name in ("personalization", "dangling", "nstart"):
        for values in ({1: 0.0}, {0: np.inf}, {0: np.nan}, {0: 1e308, 1: 1e308}):
            with pytest.raises(InputError, match=f"{name} must have a positive finite sum"):
                pagerank(made, device=on, **{name: values})


def test_a_call_gives_the_same_bits_again(opencl_device: Device) -> None:
    on, made = opencl_device.info.spec, as_arcs(nx.gnp_random_graph(500, 0.02, seed=2))
    assert len({pagerank(made, device=on).values.tobytes() for _ in range(20)}) == 1
    tree = [bfs(made, 0, parents=True, device=on).parents for _ in range(20)]
    assert all(np.array_equal(tree[0], one) for one in tree)


def test_self_loops_have_no_core(processor: Device) -> None:
    for function in (cores, lambda graph, device: k_core(graph, 2, device=device)):
        with pytest.raises(InputError, match="has 1 self-loop, such as at 1; remove them first"):
            function(nx.Graph([(0, 1), (1, 1)]), device=processor.info.spec)
    for k in (-1, 2.0, True):
        with pytest.raises(InputError, match=f"k={k}: give a whole number of 0 or more"):
            k_core(nx.Graph(), k)  # type: ignore[arg-type]


def test_what_a_graph_may_be(tmp_path: Path) -> None:
    """Files, matrices, pairs and networkx graphs, with directions where they are asked for."""
    file = tmp_path / "g.txt"
    file.write_text("# a comment\na b 2\nb\tc 0.5\nc,c,1\n")
    read = as_arcs(file, directed=True, weights="weight")
    assert (read.ids.tolist(), read.sources.tolist(), read.targets.tolist()) == (["a", "b", "c"], [0, 1, 2], [1, 2, 2])
    assert read.weights is not None
    assert read.weights.tolist() == [2, 0.5, 1]
    assert as_arcs(file, weights="weight").n_arcs == 5
    matrix = sparse.csr_array(np.array([[0, 3], [0, 0]]))
    assert as_arcs(matrix, directed=True, weights="weight").weights.tolist() == [3]  # type: ignore[union-attr]
    with pytest.raises(InputError, match="is not symmetric: give directed=True"):
        as_arcs(matrix)
    sparse.save_npz(tmp_path / "m.npz", matrix)
    assert as_arcs(tmp_path / "m.npz", directed=True).targets.tolist() == [1]
    assert (as_arcs(matrix, directed=True, weights="weight").to_scipy() != matrix).nnz == 0
    assert as_arcs(nx.MultiGraph([(0, 1), (0, 1), (1, 1)])).to_scipy().toarray().tolist() == [[0, 2], [2, 1]]
    assert as_arcs(nx.star_graph(3)).out_of(np.array([2, 0, 3])).tolist() == [4, 0, 1, 2, 5]
    assert as_arcs([(5, 3), (3, 5)], directed=True).n_arcs == 2
    assert as_arcs([(5, 3)]).n_arcs == 2
    with pytest.raises(InputError, match="a list has no directions that are read"):
        as_arcs([(1, 2), (1, 2, 3)], directed=True)
    (tmp_path / "h.csv").write_text("Source,Target,weight\n1,2,3\n")
    assert as_arcs(tmp_path / "h.csv", directed=True, weights="weight").ids.tolist() == [1, 2]
    (tmp_path / "two.csv").write_text("from,to,km,hours\n1,2,90,1\n")
    assert as_arcs(tmp_path / "two.csv", directed=True, weights="hours").weights.tolist() == [1]  # type: ignore[union-attr]
    with pytest.raises(InputError, match="not clear which column has the weights"):
        as_arcs(tmp_path / "two.csv", weights="miles")
    assert as_arcs(nx.MultiGraph([(0, 1), (0, 1), (1, 1)])).degrees.tolist() == [2, 3]
    with pytest.raises(InputError, match="has no directions that are read; give a networkx DiGraph"):
        as_arcs({}, directed=True)
    (tmp_path / "bad.txt").write_text("1 2 3\n1 2\n")
    with pytest.raises(InputError, match="'1 2' has 2 fields; an arc is two ids and its weight"):
        as_arcs(tmp_path / "bad.txt", weights="weight")
    (tmp_path / "word.txt").write_text("1 2 x\n")
    with pytest.raises(InputError, match="the link from 1 to 2 has weight 'x'; give a number"):
        as_arcs(tmp_path / "word.txt", weights="weight")


def test_more_arcs_than_32_bits_number_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmsbgen.graph.arcs.MOST_ARCS", 3)
    assert as_arcs([(0, 1)]).n_arcs == 2
    for graph in ([(0, 1), (1, 2)], nx.path_graph(3)):
        with pytest.raises(InputError, match="4 arcs; at most 3 can be numbered in 32 bits"):
            as_arcs(graph)


def test_a_stored_zero_is_a_link_both_ways_or_refused() -> None:
    one = sparse.csr_array((np.zeros(1), ([0], [1])), shape=(2, 2))
    with pytest.raises(InputError, match="is not symmetric: it stores a zero"):
        as_arcs(one)
    assert as_arcs(one, directed=True).n_arcs == 1
    assert as_arcs(sparse.csr_array((np.zeros(2), ([0, 1], [1, 0])), shape=(2, 2))).n_arcs == 2


@pytest.mark.parametrize("directed", [False, True])
def test_a_graph_is_released_at_once(directed: bool) -> None:
    """What a device holds for a graph goes with it, without a collection of cycles."""
    gc.disable()
    try:
        graph = arcs([(0, 1)], 2, directed=directed)
        assert graph.reversed is graph.reversed
        assert graph.both_ways is graph.both_ways
        seen = weakref.ref(graph)
        del graph
        assert seen() is None
    finally:
        gc.enable()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
@pytest.mark.parametrize("end", ["\n", ""])
def test_a_matrix_is_read_from_a_pipe(tmp_path: Path, end: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    text = f"%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2 5{end}"
    writer = threading.Thread(target=pipe.write_text, args=(text,))
    writer.start()
    read = as_arcs(pipe, directed=True, weights="weight")
    writer.join()
    assert (read.ids.tolist(), read.targets.tolist()) == ([1, 2], [1])
    assert read.weights is not None
    assert read.weights.tolist() == [5]


def test_a_damaged_matrix_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "m.mtx"
    file.write_text("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 x 3\n")
    with pytest.raises(InputError, match=r"m\.mtx is no whole Matrix Market file \(Line 3: Invalid integer value"):
        as_arcs(file, directed=True)
    file = tmp_path / "m.npz"
    sparse.save_npz(file, sparse.csr_array(np.eye(2)))
    file.write_bytes(file.read_bytes()[:-30])
    with pytest.raises(InputError, match=r"m\.npz holds no whole sparse matrix; give one that scipy"):
        as_arcs(file, directed=True)
    outside = {"data": np.ones(1), "indices": np.array([9]), "indptr": np.array([0, 1]), "shape": np.array([1, 1])}
    np.savez(file, format=np.array(b"csr"), **outside)
    with pytest.raises(InputError, match=r"m\.npz holds no whole sparse matrix; give one that scipy"):
        as_arcs(file, directed=True)


@pytest.mark.slow
def test_ranks_come_in_the_order_of_the_graph(
    processor: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = GRAPH.kernel("pagerank")
    by_degree = replace(spec, default=lambda *of: {**spec.default(*of), "order": "degree"})
    monkeypatch.setitem(GRAPH.kernels, "pagerank", by_degree)  # type: ignore[arg-type]
    made = nx.DiGraph(nx.scale_free_graph(300, seed=1))
    graph, where = as_arcs(made), {"device": processor.info.spec, "database": tmp_path / "none.sqlite3"}
    exact = nx.pagerank(made, tol=1e-12, max_iter=500)
    for _ in range(2):  # the second call finds the graph on the device
        found = pagerank(graph, tol=1e-12, max_iter=500, **where)
        assert found.values == pytest.approx([exact[v] for v in made], abs=1e-9)


STAMP = Argument("stamp", "u32", "inout", "")
#: Least sums of weights, and least numbers of arcs.
NEAR = Rounds((Argument("near", "real", "inout", ""), STAMP), "near", "near[v]", "sent + weights[at]", "min",
              "stamp[v] == step", weighted=True)  # fmt: skip
HOPS = Rounds((Argument("hops", "u32", "inout", ""), STAMP), "hops", "hops[v] + 1u", "sent", "min", "stamp[v] == step")


def test_rounds_of_ones_own(processor: Device) -> None:
    spec = processor.info.spec
    graph = nx.gnp_random_graph(40, 0.08, seed=3, directed=True)
    for number, (_, _, data) in enumerate(graph.edges(data=True)):
        data["weight"] = 1 + number % 7
    found, source = as_arcs(graph, weights="weight"), 5
    first = np.where(np.arange(40) == found.vertex(source), 0, np.inf)
    near = run_rounds(found, NEAR, {"near": first}, [source], device=spec)["near"]
    right = nx.single_source_dijkstra_path_length(graph, source)
    assert {v: near[found.vertex(v)] for v in graph if np.isfinite(near[found.vertex(v)])} == right
    hops = run_rounds(graph, HOPS, {"hops": np.where(first == 0, 0, 1000)}, device=spec)["hops"]
    right = nx.single_source_shortest_path_length(graph, source)
    assert [int(hops[found.vertex(v)]) for v in graph] == [right.get(v, 1000) for v in graph]


@pytest.mark.parametrize(
    ("rounds", "state", "told"),
    [
        (HOPS, {}, "state lacks 'hops'"),
        (HOPS, {"hops": [0, 1]}, r"int64 \(2,\): give 3 numbers that fit u32"),
        (HOPS, {"hops": [0.5, 1, 2]}, "fit u32"),
        (HOPS, {"hops": [0, 1, 2], "hop": [0, 1, 2]}, "'hop', which the rounds do not declare"),
        (replace(HOPS, combine="sum", crossed="old == 1u", active=""), {"hops": [0, 1, 2]}, "combine by 'sum'"),
        (NEAR, {"near": [0, 1, 2]}, "weights of a list are not read"),
    ],
)
def test_rounds_that_are_refused(processor: Device, rounds: Rounds, state: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        run_rounds([(0, 1), (1, 2)], rounds, state, device=processor.info.spec)
