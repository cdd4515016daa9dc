"""Graphs from objects of scipy.sparse, networkx, igraph and networkit, none of which is imported here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from mmsbgen.base.errors import InputError
from mmsbgen.graph.graph import Graph, Int64Array, build_graph, pack_pairs
from mmsbgen.graph.ids import number_ids, ordered_ids


def from_scipy(matrix: Any, name: str | None) -> Graph:
    """Convert a square scipy.sparse matrix of zeros and ones."""
    name = name or "scipy matrix"
    if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(
            f"{name} has shape {matrix.shape}; an adjacency matrix is square. For pairs of ids give a plain array"
        )
    entries = matrix.tocoo(copy=True)  # a copy, as the entries are summed up in place below
    entries.sum_duplicates()
    first, second = (np.asarray(part, dtype=np.int64) for part in (entries.row, entries.col))
    stored = np.asarray(entries.data)
    there = stored != 0
    odd = np.flatnonzero(there & (stored != 1))
    if odd.size:
        at = int(odd[0])
        raise InputError(
            f"{name}: entry ({first[at]}, {second[at]}) is {stored[at]}; the model takes unweighted links, zeros and "
            "ones. To count every nonzero entry as a link give (A != 0)"
        )
    first, second = first[there], second[there]
    ids = np.arange(matrix.shape[0], dtype=np.int64)
    return build_graph(first, second, ids, name=name, directed=_has_arcs(first, second))


def _has_arcs(first: Int64Array, second: Int64Array) -> bool:
    """Whether the distinct entries of a matrix are neither triangular nor symmetric, as in a directed graph."""
    up, down = first < second, second < first
    n_up, n_down = np.count_nonzero(up), np.count_nonzero(down)
    if n_up == 0 or n_down == 0:
        return False
    if n_up != n_down:
        return True
    return not np.array_equal(
        np.sort(pack_pairs(first[up], second[up])), np.sort(pack_pairs(second[down], first[down]))
    )


def from_networkx(source: Any, name: str | None) -> Graph:
    """Convert a networkx graph of any kind; weights are ignored, as by networkx where ``weight=None``."""
    name = name or str(getattr(source, "name", "")) or "networkx graph"
    nodes = list(source.nodes)
    index = {node: place for place, node in enumerate(nodes)}
    ends = [(index[u], index[v]) for u, v in source.edges()]
    return _build(nodes, ends, name, source.is_directed())


def from_igraph(source: Any, name: str | None) -> Graph:
    """Convert an igraph graph; ids are the ``name`` of its vertices, or their indices. Weights are ignored."""
    own = source["name"] if "name" in source.attributes() else None
    name = name or str(own or "igraph graph")
    nodes: list[Any] = list(range(source.vcount()))
    if "name" in source.vs.attributes():
        nodes = list(source.vs["name"])
        ordered_ids(nodes, name=name)  # raises for names that cannot be ids
        twice = next((node for node, count in Counter(nodes).items() if count > 1), nodes)
        if twice is not nodes:
            raise InputError(
                f"{name}: two vertices have the name {twice!r}; give them different names, or delete the attribute "
                "(del g.vs['name']) to go by their indices"
            )
    return _build(nodes, source.get_edgelist(), name, source.is_directed())


def from_networkit(source: Any, name: str | None) -> Graph:
    """Convert a networkit graph; ids are its node numbers. Weights are ignored."""
    nodes = list(source.iterNodes())
    index = {node: place for place, node in enumerate(nodes)}
    ends = ((index[u], index[v]) for u, v in source.iterEdges())
    return _build(nodes, ends, name or "networkit graph", source.isDirected())


def is_one(weight: Any) -> bool:
    """Whether a weight is 1; False for None and "1", whose meaning is unclear."""
    try:
        return not isinstance(weight, str) and bool(weight == 1)
    except (TypeError, ValueError):  # an array or a missing value of pandas
        return False


def _build(nodes: list[Any], ends: Iterable[tuple[int, int]], name: str, is_directed: bool) -> Graph:
    place, ids = number_ids(nodes, name=name)
    arcs = list(ends)
    pairs: Int64Array = place[np.array(arcs, dtype=np.int64).reshape(-1, 2)]
    # An undirected graph may have parallel edges in both directions; its own type decides.  A directed graph
    # with all links in both directions loses no information.
    directed = False
    if is_directed:
        there = set(arcs)
        directed = any((v, u) not in there for u, v in there)
    return build_graph(pairs[:, 0], pairs[:, 1], ids, name=name, directed=directed)
