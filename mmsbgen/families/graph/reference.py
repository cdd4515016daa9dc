"""The algorithms in NumPy, by which kernels are judged: integers and float64, whole arrays at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.families.graph.declare import NONE
from mmsbgen.graph.arcs import Arcs

Array = NDArray[Any]


def levels(arcs: Arcs, source: int | Array) -> Array:
    """Arcs on a shortest path from ``source`` to each vertex, uint32 ``[N]``; NONE where there is none.

    From several sources ``[S]``, ``[S, N]``.
    """
    from scipy.sparse.csgraph import dijkstra

    found = dijkstra(arcs.to_scipy(), indices=source, unweighted=True)
    return np.where(np.isinf(found), NONE, found).astype(np.uint32)


def parents(arcs: Arcs, found: Array) -> Array:
    """The least vertex one level nearer, uint32 ``[N]``; the source's is itself, NONE where it does not reach."""
    least = np.full(arcs.n_vertices, NONE, np.uint32)
    least[found == 0] = np.flatnonzero(found == 0)
    tree = (found[arcs.sources] != NONE) & (found[arcs.targets] == found[arcs.sources] + np.uint32(1))
    np.minimum.at(least, arcs.targets[tree], arcs.sources[tree])
    return least


def distances(arcs: Arcs, source: int, dtype: Any = np.float64) -> Array:
    """Least sum of weights of a path from ``source`` to each vertex ``[N]``; inf where there is none.

    Sums are rounded to ``dtype`` after every arc.  Rounding is monotone, so that this and every schedule of a kernel
    end at the same numbers, bit by bit.
    """
    assert arcs.weights is not None
    found = np.full(arcs.n_vertices, np.inf, dtype)
    found[source] = 0
    weights = arcs.weights.astype(dtype)
    while True:
        before = found.copy()
        np.minimum.at(found, arcs.targets, before[arcs.sources] + weights)
        if np.array_equal(found, before):
            return found


def widths(arcs: Arcs, source: int, dtype: Any = np.float64) -> Array:
    """The largest least weight of a path from ``source`` to each vertex ``[N]``; inf at it, 0 without a path."""
    assert arcs.weights is not None
    found = np.zeros(arcs.n_vertices, dtype)
    found[source] = np.inf
    weights = arcs.weights.astype(dtype)
    while True:
        before = found.copy()
        np.maximum.at(found, arcs.targets, np.minimum(before[arcs.sources], weights))
        if np.array_equal(found, before):
            return found


def components(arcs: Arcs) -> Array:
    """The least vertex of each vertex's component, uint32 ``[N]``; directions do not count."""
    from scipy.sparse.csgraph import connected_components

    label = connected_components(arcs.to_scipy(), directed=False)[1]
    least: Array = np.unique(label, return_index=True)[1][label]
    return least.astype(np.uint32)


def cores(arcs: Arcs) -> Array:
    """The core number of each vertex, uint32 ``[N]``: the largest k with the vertex in a part of least degree k."""
    left, core = arcs.degrees.astype(np.int64), np.full(arcs.n_vertices, NONE, np.uint32)
    k = 0
    while np.any(core == NONE):
        gone = (core == NONE) & (left <= k)
        if not gone.any():
            k = int(left[core == NONE].min())
            continue
        core[gone] = k
        left -= np.bincount(arcs.targets[gone[arcs.sources]], minlength=arcs.n_vertices)
    return core


def triangles(arcs: Arcs) -> Array:
    """The triangles that each vertex of a simple undirected graph is in, int64 ``[N]``."""
    from scipy.sparse import triu

    # By rising degree: rows of the upper triangle are then short, and so are their products.
    order = np.argsort(arcs.degrees, kind="stable")
    up = triu(arcs.to_scipy().astype(np.int64)[order][:, order], format="csr")
    by_ends = (up @ up).multiply(up)  # of each link, the middle vertices of triangles with it as the longest side
    by_last = (up @ up.T).multiply(up)  # of the first two vertices, the last ones
    found = np.empty(arcs.n_vertices, np.int64)
    found[order] = by_ends.sum(axis=1) + by_ends.sum(axis=0) + by_last.sum(axis=0)
    return found


def ranks(
    arcs: Arcs, alpha: float, restart: Array, dangling_to: Array, start: Array, rounds: int
) -> NDArray[np.float64]:
    """PageRank after ``rounds`` rounds, float64 ``[N]``; the equation is that of ``networkx.pagerank``."""
    weights = np.ones(arcs.n_arcs) if arcs.weights is None else arcs.weights
    out = np.bincount(arcs.sources, weights, arcs.n_vertices)
    rank = start.astype(np.float64)
    for _ in range(rounds):
        share = np.divide(rank, out, out=np.zeros_like(rank), where=out != 0)
        got = np.bincount(arcs.targets, share[arcs.sources] * weights, arcs.n_vertices)
        rank = alpha * (got + rank[out == 0].sum() * dangling_to) + (1 - alpha) * restart
    return rank
