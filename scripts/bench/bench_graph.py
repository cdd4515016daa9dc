#!/usr/bin/env python
"""Graph programs against networkx, SciPy and igraph, each with its own graph in memory, in turns.

| against | target: mmsbgen is faster by |
|---|---|
| networkx | 20 |
| scipy.sparse.csgraph | 1 |
| igraph | 1 |

A call is a function of Python, from the graph in memory to an array or a list of values.  SciPy's search gives an order
and predecessors; its PageRank is products of a sparse matrix until the same tolerance.  igraph's PageRank has a method
and a tolerance of its own (1e-10).  Weights are 1 to 255.  Results are compared before times are taken.

Writes docs/reports/graph.md and .json.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import igraph
import networkx as nx
import numpy as np
from _harness import Sample, chosen_devices, interleave, parser, progress
from _report import Report
from scipy import sparse
from scipy.sparse import csgraph

from mmsbgen import algorithms
from mmsbgen.graph import Arcs, as_arcs

#: The L1 change at which PageRank ends.
CHANGE = 1e-10
TARGETS = {"networkx": 20.0, "SciPy": 1.0, "igraph": 1.0}
Calls = dict[str, Callable[[], Any]]


def inputs(file: Path) -> tuple[Arcs, Arcs]:
    """The graph without and with weights."""
    plain = as_arcs(file)
    low, high = np.minimum(plain.sources, plain.targets), np.maximum(plain.sources, plain.targets)
    mixed = (low.astype(np.uint64) * np.uint64(2654435761) + high.astype(np.uint64) * np.uint64(40503)) >> np.uint64(7)
    weights = (mixed % np.uint64(255) + np.uint64(1)).astype(np.float64)
    return plain, Arcs(plain.offsets, plain.targets, plain.ids, weights)


def power(matrix: Any, tolerance: float) -> Any:
    """PageRank by products of the matrix of the shares of arcs; no vertex is without."""
    n = matrix.shape[0]
    rank = np.full(n, 1 / n)
    while True:
        before = rank
        rank = 0.85 * (matrix @ before) + 0.15 / n
        if np.abs(rank - before).sum() < tolerance:
            return rank


def calls(plain: Arcs, weighted: Arcs, device: str) -> dict[str, Calls]:
    """Calls by algorithm and library."""
    n, start = plain.n_vertices, int(np.argmax(plain.degrees))
    source, tol = plain.ids[start].item(), CHANGE / n
    starts = np.random.default_rng(0).integers(0, n, 32)
    many = plain.ids[starts].tolist()
    found: dict[str, Calls] = {
        "bfs": {"mmsbgen": lambda: algorithms.bfs(plain, source, device=device).values},
        "sssp": {"mmsbgen": lambda: algorithms.sssp(weighted, source, device=device).values},
        "components": {"mmsbgen": lambda: algorithms.components(plain, device=device).values},
        "cores": {"mmsbgen": lambda: algorithms.cores(plain, device=device).values},
        "triangles": {"mmsbgen": lambda: algorithms.triangles(plain, device=device).clustering},
        "32 sources": {"mmsbgen": lambda: algorithms.multi_source_bfs(plain, many, device=device).values.T},
        "pagerank": {"mmsbgen": lambda: algorithms.pagerank(plain, tol=tol, max_iter=500, device=device).values},
    }
    places = plain.targets.astype(np.int32), plain.offsets.astype(np.int32)
    ones = sparse.csr_array((np.ones(plain.n_arcs), *places), shape=(n, n))
    lengths = sparse.csr_array((weighted.weights, *places), shape=(n, n))
    pairs_of = np.maximum(plain.degrees * (plain.degrees - 1), 1)
    shares = sparse.csr_array((1 / plain.degrees[plain.targets], *places), shape=(n, n))
    found["32 sources"]["SciPy"] = lambda: csgraph.dijkstra(ones, indices=starts, unweighted=True)
    found["triangles"]["SciPy"] = lambda: (ones @ ones).multiply(ones).sum(axis=1) / pairs_of
    found["bfs"]["SciPy"] = lambda: csgraph.breadth_first_order(ones, start)
    found["sssp"]["SciPy"] = lambda: csgraph.dijkstra(lengths, indices=start)
    found["components"]["SciPy"] = lambda: csgraph.connected_components(ones, directed=False)
    found["pagerank"]["SciPy"] = lambda: power(shares, CHANGE)

    once = plain.sources < plain.targets
    pairs = np.column_stack([plain.sources, plain.targets])[once]
    theirs, weights = igraph.Graph(n=n, edges=pairs), weighted.weights[once].tolist()  # type: ignore[index]
    found["bfs"]["igraph"] = lambda: theirs.distances(start)[0]
    found["sssp"]["igraph"] = lambda: theirs.distances(start, weights=weights)[0]
    found["components"]["igraph"] = lambda: theirs.connected_components().membership
    found["32 sources"]["igraph"] = lambda: theirs.distances(starts.tolist())
    found["triangles"]["igraph"] = lambda: theirs.transitivity_local_undirected(mode="zero")
    found["cores"]["igraph"] = lambda: theirs.coreness()
    found["pagerank"]["igraph"] = lambda: theirs.pagerank()

    graph = nx.Graph()
    graph.add_nodes_from(range(n))
    graph.add_weighted_edges_from(zip(*pairs.T.tolist(), weights, strict=True))
    found["bfs"]["networkx"] = lambda: nx.single_source_shortest_path_length(graph, start)
    found["sssp"]["networkx"] = lambda: nx.single_source_dijkstra_path_length(graph, start)
    found["components"]["networkx"] = lambda: list(nx.connected_components(graph))
    found["triangles"]["networkx"] = lambda: nx.clustering(graph)
    found["cores"]["networkx"] = lambda: nx.core_number(graph)
    found["pagerank"]["networkx"] = lambda: nx.pagerank(graph, tol=tol, max_iter=500, weight=None)
    return found


def check(name: str, libraries: Calls) -> None:
    """Raise AssertionError where a library's values differ from ours."""
    ours = libraries["mmsbgen"]()
    for library, call in libraries.items():
        got = call()
        if name == "components":  # numbered in several ways
            count = got[0] if library == "SciPy" else len(got) if library == "networkx" else max(got) + 1
            assert count == ours.max() + 1, library
        elif (name, library) == ("bfs", "SciPy"):  # no levels, but everyone in their order
            assert np.all(np.diff(ours[got[0]]) >= 0), library
        else:
            missing = -1 if name == "bfs" else np.inf
            if name == "32 sources":
                got = np.where(np.isinf(got), -1, got)
            values = [got.get(v, missing) for v in range(ours.size)] if isinstance(got, dict) else got
            assert np.allclose(np.array(values, dtype=float), ours, rtol=1e-5, atol=1e-9), (name, library)


def seconds_of(call: Callable[[], Any], number: int) -> float:
    """Seconds of a call, for the harness."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def main() -> None:
    """Time all calls and write the report."""
    options = parser(__doc__, repetitions=5, database=False)
    options.add_argument("--graph", type=Path, required=True, help="an undirected graph, such as com-DBLP")
    given = options.parse_args()
    report = Report(
        "Graph programs", "Milliseconds of a call from Python, in turns; in brackets how many times as fast mmsbgen is."
    )
    plain, weighted = inputs(given.graph)
    size = f"{plain.name}: {plain.n_vertices} vertices, {plain.n_arcs // 2} links"
    report.text(f"{size}. Targets: 20 times networkx, once SciPy, once igraph.")
    rows: dict[str, Any] = {}
    devices = chosen_devices(given.device)
    for device in devices:
        report.devices.append(device)
        found = calls(plain, weighted, device.spec)
        table = []
        for name, libraries in found.items():
            check(name, libraries)
            times = interleave(
                {library: partial(seconds_of, call) for library, call in libraries.items()}, given.repetitions
            )
            ours = times["mmsbgen"]
            progress(f"{device.platform}, {name}: {ours.text()} ms")
            table.append([name, ours.text(), *(_cell(times.get(library), ours) for library in TARGETS)])
            rows.setdefault(device.platform, {})[name] = {library: one.as_dict() for library, one in times.items()}
        report.text(f"## {device.platform}")
        report.table(["algorithm", "mmsbgen", *TARGETS], table)
    report.data["times"] = rows
    report.write("graph", given.output)


def _cell(other: Sample | None, ours: Sample) -> str:
    return "" if other is None else f"{other.median * 1e3:.4g} ({other.median / ours.median:.2g})"


if __name__ == "__main__":
    main()
