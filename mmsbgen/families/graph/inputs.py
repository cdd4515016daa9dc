"""The arguments of each kernel for a graph; the same in a tune and in a user's call."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.families.graph.declare import NONE
from mmsbgen.graph.arcs import Arcs

Inputs = dict[str, Any]


#: Arrays whose content before a call does not matter.
SCRATCH = frozenset({"next", "visited", "kept_next", "share_next", "slots", "partial", "parent"})
#: Places for sizes of lists and what a launch leaves to the next, as the templates count them.
COUNTS = 192
#: Arcs in from which on PageRank cuts those of a vertex into parts, and the parts.
HUB, PARTS = 4096, 64
#: Arrays that hold the graph.
GRAPH_ARRAYS = ("offsets", "targets", "weights", "in_offsets", "sources", "in_weights")


def of_graph(arcs: Arcs, real: Any) -> Inputs:
    """The arrays that hold the graph."""
    return {name: graph_array(arcs, name, real) for name in GRAPH_ARRAYS}


def graph_array(arcs: Arcs, name: str, real: Any) -> NDArray[Any]:
    """One of the arrays that hold the graph; weights are of type ``real``, and have one row if there are none."""
    if name in ("in_offsets", "sources", "in_weights"):
        arcs = arcs.reversed
    if name.endswith("offsets"):
        return arcs.offsets
    if name.endswith("weights"):
        return np.zeros(1, real) if arcs.weights is None else device_rows(arcs.weights.astype(real))
    return device_rows(arcs.targets)


def device_rows(array: NDArray[Any]) -> NDArray[Any]:
    """At least one row: a device has no empty array."""
    return array if len(array) else np.zeros((1, *array.shape[1:]), array.dtype)


def _lists(arcs: Arcs, *counts: int) -> Inputs:
    n = arcs.n_vertices
    return {
        "queue": np.zeros(n, np.uint32),
        "next": np.zeros(n, np.uint32),
        "counts": np.array([*counts, *[0] * (COUNTS - len(counts))], np.uint32),
    }


def lists_of(arcs: Arcs, first: NDArray[np.int64]) -> Inputs:
    """The lists of rounds that the vertices ``first`` ``[S]`` begin, no two the same."""
    found = _lists(arcs, first.size, 0, 0, 1, 0, 0, arcs.n_arcs)
    found["queue"][: first.size] = first
    return found


def state_of_bfs(arcs: Arcs, source: int) -> Inputs:
    """A search from ``source``."""
    level = np.full(arcs.n_vertices, NONE, np.uint32)
    level[source] = 0
    found = _lists(arcs, 1, int(arcs.degrees[source]), 0, 0, 0, 0, arcs.n_arcs)
    found["queue"][0] = source
    return {**found, "level": level, "visited": np.zeros(2 * -(-arcs.n_vertices // 32), np.uint32)}


def state_of_searches(arcs: Arcs, starts: NDArray[Any]) -> Inputs:
    """Searches from the vertices ``starts`` ``[S]``, up to 32; a vertex may be there twice."""
    n = arcs.n_vertices
    return {
        "starts": starts.astype(np.uint32),
        "n_sources": np.uint32(starts.size),
        "level": np.zeros((starts.size, n), np.uint32),
        **{name: np.zeros(n, np.uint32) for name in ("seen", "here", "there", "queue", "next")},
        "counts": np.zeros(3, np.uint32),
    }


def state_of_sssp(arcs: Arcs, source: int | NDArray[np.int64], real: Any) -> Inputs:
    """Distances from ``source``, or from the nearest of several ``[S]``, no two the same."""
    n = arcs.n_vertices
    dist, stamp = np.full(n, np.inf, real), np.zeros(n, np.uint32)
    dist[source], stamp[source] = 0, 1
    finite = np.zeros(0) if arcs.weights is None else arcs.weights[np.isfinite(arcs.weights)]
    mean = float(finite.mean()) if finite.size else 0.0
    return {
        **lists_of(arcs, np.atleast_1d(source)),
        "dist": dist,
        "stamp": stamp,
        "kept": np.zeros(n, np.uint32),
        "kept_next": np.zeros(n, np.uint32),
        "pending": np.zeros(n, np.uint32),
        "least": np.full(5, np.inf, real),
        "mean_weight": np.full(1, mean, real),
    }


def state_of_widest(arcs: Arcs, source: int, real: Any) -> Inputs:
    """Widths of paths from ``source``, which is as wide as can be; 0 where none is known."""
    n = arcs.n_vertices
    width, stamp = np.zeros(n, real), np.zeros(n, np.uint32)
    width[source], stamp[source] = np.inf, 1
    return {**lists_of(arcs, np.array([source])), "width": width, "stamp": stamp}


def state_of_cores(arcs: Arcs) -> Inputs:
    """Core numbers."""
    n = arcs.n_vertices
    return {
        **_lists(arcs, 0, 0, n, 0, 0, 0, arcs.n_arcs),
        "left": arcs.degrees.astype(np.uint32),
        "core": np.full(n, NONE, np.uint32),
        "kept": np.arange(n, dtype=np.uint32),
        "kept_next": np.zeros(n, np.uint32),
    }


def state_of_core(arcs: Arcs, k: int) -> Inputs:
    """What :func:`state_of_cores` is, for the k-core alone: vertices of it end with a core number above 0.

    Neighbours are counted above k - 1, so that those to remove first are those with none left, and with a frontier of
    them rounds may end when it is empty.
    """
    found = state_of_cores(arcs)
    found["left"] = np.maximum(arcs.degrees - (k - 1), 0).astype(np.uint32)
    gone = np.flatnonzero(found["left"] == 0)
    found["core"][gone] = 0
    found["queue"][: gone.size] = gone
    found["counts"][0] = gone.size
    return found


def state_of_components(arcs: Arcs) -> Inputs:
    """Components; both directions of a link are listed unless the graph is directed."""
    both_listed = np.full(1, not arcs.directed, np.uint32)
    return {"label": np.arange(arcs.n_vertices, dtype=np.uint32), "both_listed": both_listed}


def state_of_triangles(arcs: Arcs) -> Inputs:
    """Later neighbours of each vertex in the order of degrees, then numbers, of a simple undirected graph.

    So a vertex has at most sqrt(2 L) of them, and each triangle is found once, at its first vertex.
    """
    first, second = arcs.degrees[arcs.sources], arcs.degrees[arcs.targets]
    up = (first < second) | ((first == second) & (arcs.sources < arcs.targets))
    earlier, later = arcs.sources[up], arcs.targets[up]
    offsets = np.zeros(arcs.n_vertices + 1, np.uint32)
    np.cumsum(np.bincount(earlier, minlength=arcs.n_vertices), out=offsets[1:])
    found = np.zeros((arcs.n_vertices, 2), np.uint32)
    n = np.uint32(arcs.n_vertices)
    return {
        "later_offsets": offsets,
        "later": device_rows(later),
        "earlier": device_rows(earlier),
        "found": found,
        "n": n,
    }


def state_of_pagerank(
    arcs: Arcs,
    real: Any,
    alpha: float,
    tolerance: float,
    most_rounds: int,
    restart: NDArray[Any] | None = None,
    dangling_to: NDArray[Any] | None = None,
    start: NDArray[Any] | None = None,
) -> Inputs:
    """Ranks from ``start``; the vectors ``[N]`` sum to 1 and are uniform by default, ``dangling_to`` as ``restart``."""
    n = arcs.n_vertices
    out = arcs.degrees if arcs.weights is None else np.bincount(arcs.sources, arcs.weights, n)
    inverse = np.divide(1.0, out, out=np.zeros(n), where=out != 0)
    uniform = np.full(n, 1.0 / n)
    restart = uniform if restart is None else restart
    rank = uniform if start is None else start
    hubs = np.flatnonzero(arcs.reversed.degrees >= HUB)
    return {
        "share": (rank * inverse).astype(real),
        "share_next": np.zeros(n, real),
        "rank": rank.astype(real),
        "inverse_out": inverse.astype(real),
        "restart": restart.astype(real),
        "dangling_to": (restart if dangling_to is None else dangling_to).astype(real),
        "slots": np.zeros((n + 4096, 2), real),
        "hubs": np.concatenate([[hubs.size], hubs]).astype(np.uint32),
        "partial": np.zeros(max(1, PARTS * hubs.size), real),
        "arrived": np.zeros(1, np.uint32),
        "settings": np.array([alpha, tolerance, most_rounds, rank[out == 0].sum(), 0, 0], real),
    }
