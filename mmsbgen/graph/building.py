"""Builds graphs from lists of pairs of vertices: drops self-loops and repeated links, and counts them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.errors import InputError, warn_user
from mmsbgen.base.id_text import plural
from mmsbgen.base.processes import run_side_by_side
from mmsbgen.graph.graph import (
    AT_A_TIME,
    MAX_VERTICES,
    Graph,
    GraphWarning,
    Int64Array,
    LoadReport,
    UInt32Array,
    UInt64Array,
    count_isolated,
    links_of,
    pack_pairs,
    sort_distinct,
    were,
)


def build_graph(
    first: Int64Array,
    second: Int64Array,
    ids: NDArray[Any],
    *,
    name: str,
    directed: bool | None = None,
    file: str | None = None,
) -> Graph:
    """Build a :class:`Graph` from a list of vertex pairs; warn with :class:`GraphWarning` if the source is directed.

    Args:
        first: int64 ``[L]``, one vertex of each pair, in ``[0, len(ids))``; duplicates and self-loops are dropped.
        second: int64 ``[L]``, the other vertex of each pair.
        ids: ``[N]``, id of each vertex.
        name: name of the graph in messages and run records.
        directed: whether the source is directed; if None, it is if some but not all links have both directions.
        file: path of the input file.

    Raises:
        InputError: If no link remains or there are too many vertices.
    """
    pairs = np.empty((first.size, 2), np.uint32)
    pairs[:, 0], pairs[:, 1] = first, second
    return graph_of_pairs(pairs, ids, name=name, directed=directed, file=file)


def graph_of_pairs(
    pairs: UInt32Array, ids: NDArray[Any], *, name: str, directed: bool | None = None, file: str | None = None
) -> Graph:
    """As :func:`build_graph`, of ``pairs`` ``[L, 2]`` uint32, C-contiguous; the graph's links overwrite them."""
    check_count(int(ids.size), name)
    up, down, n_self_loops = directed_keys(pairs)
    n_directed = up.size + down.size
    keys = merged_keys(up, down)
    counts = len(pairs), n_self_loops, n_directed - keys.size
    return graph_of_links(links_of(keys), ids, *counts, name=name, directed=directed, file=file)


def directed_keys(pairs: UInt32Array) -> tuple[UInt64Array, UInt64Array, int]:
    """The distinct pairs of which the first vertex is the smaller one, those of which it is the larger one.

    Both are ascending keys ``u << 32 | v`` with u < v.  They overwrite ``pairs`` ``[L, 2]`` uint32, C-contiguous.  The
    third value is the number of self-loops.
    """
    keys, upward = pairs.view(np.uint64).reshape(-1), np.empty(len(pairs), np.bool_)
    equal = np.empty(len(pairs), np.bool_)

    def pack(begin: int) -> None:
        part = slice(begin, begin + AT_A_TIME)
        a, b = pairs[part].T
        upward[part], equal[part] = a < b, a == b
        keys[part] = pack_pairs(np.minimum(a, b), np.maximum(a, b))

    run_side_by_side(pack, range(0, len(pairs), AT_A_TIME))
    if upward.all():
        return sort_distinct(keys), keys[:0], 0
    down = keys[~(upward | equal)]
    n_up, n_self_loops = 0, int(np.count_nonzero(equal))
    for begin in range(0, keys.size, AT_A_TIME):
        part = keys[begin : begin + AT_A_TIME][upward[begin : begin + AT_A_TIME]]
        keys[n_up : n_up + part.size] = part
        n_up += part.size
    return sort_distinct(keys[:n_up]), sort_distinct(down), n_self_loops


def merged_keys(up: UInt64Array, down: UInt64Array) -> UInt64Array:
    """The distinct keys of two arrays of :func:`directed_keys`, ascending; perhaps in the memory of one of them."""
    # Most files list every link once as u < v; then no merge is needed.
    return sort_distinct(np.concatenate([up, down])) if up.size and down.size else (up if up.size else down)


def graph_of_links(
    links: UInt32Array,
    ids: NDArray[Any],
    n_lines: int,
    n_self_loops: int,
    n_both_ways: int,
    *,
    name: str,
    directed: bool | None = None,
    file: str | None = None,
) -> Graph:
    """The :class:`Graph` of distinct ``links`` ``[E, 2]`` with counts of the input; else as :func:`build_graph`."""
    n_vertices, n_links = int(ids.size), len(links)
    if n_links == 0:
        dropped = f" ({plural(n_self_loops, 'self-loop')} {were(n_self_loops)} dropped)"
        loops = dropped if n_self_loops else ""
        remedy = "give at least one pair of ids, or a smaller threshold if its weights have one"
        raise InputError(f"{name}: no link between two different vertices{loops}; {remedy}")
    declared = directed is not None
    if directed is None:
        directed = 0 < n_both_ways < n_links
    if directed:
        _warn_directed(name, n_both_ways, n_links, declared)
    report = LoadReport(
        n_lines=n_lines,
        n_self_loops=n_self_loops,
        n_duplicates=n_lines - n_self_loops - n_links,
        n_both_ways=int(n_both_ways),
        directed=directed,
        n_isolated=count_isolated(links, n_vertices),
    )
    return Graph(n_vertices=n_vertices, ids=ids, links=links, report=report, name=name, file=file)


def check_count(n_vertices: int, name: str) -> None:
    """Raise InputError for more vertices than can be numbered."""
    if n_vertices >= MAX_VERTICES:
        raise InputError(f"{name}: {n_vertices} vertices; at most {MAX_VERTICES - 1} can be numbered in 32 bits")


def _warn_directed(name: str, n_both_ways: int, n_links: int, declared: bool) -> None:
    both = f"{n_both_ways} of its {n_links} links"
    kind, other = f"a directed graph, with {both} in both directions;", ""
    if not declared:
        kind = f"{both} are listed in both directions and the rest in one only; if this is a directed graph,"
        other = ". If its columns are of two kinds, such as customers and products, make their ids differ"
    warn_user(f"{name}: {kind} direction is dropped: u -> v and v -> u are one link{other}", GraphWarning)
