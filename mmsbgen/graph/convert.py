"""Turn what users hold in their hands into a :class:`~mmsbgen.graph.Graph`.

scipy and networkx are recognised by the module of an object's class, so that they are never imported here:
whoever passes such an object has imported its library.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.errors import InputError
from mmsbgen.graph.edgelist import load_edge_list
from mmsbgen.graph.graph import Graph, Int64Array, build_graph, number_integers, object_ids, string_ids


def as_graph(source: Any, *, name: str | None = None) -> Graph:
    """Return ``source`` as a :class:`~mmsbgen.graph.Graph`.

    ``source`` is one of

    * a :class:`~mmsbgen.graph.Graph`, returned as it is;
    * the path of an edge list (:func:`~mmsbgen.graph.load_edge_list`);
    * an array or list of pairs ``[L, 2]`` of integers (ids become int64, ascending) or strings (ids sorted);
    * a square scipy.sparse matrix or array ``[N, N]`` of zeros and ones; ids are ``0 .. N - 1``, empty rows
      are isolated vertices;
    * a networkx graph of any kind; node ids are kept, in the order of the graph, isolated ones too.

    Direction is folded, self-loops and repeated links are dropped, as for a file.  ``name`` goes into run
    records; for a path or a Graph it is ignored.

    Raises InputError for anything else, for links with weights, and when no link is left.
    """
    if isinstance(source, Graph):
        return source
    if isinstance(source, str | os.PathLike):
        return load_edge_list(source)
    library = _library_of(source)
    if library == "networkx":
        return _from_networkx(source, name or str(getattr(source, "name", "")) or "networkx graph")
    if library == "scipy":
        return _from_scipy(source, name or "scipy matrix")
    if isinstance(source, np.ndarray | list | tuple):
        return _from_array(source, name or "array")
    raise InputError(
        f"a {type(source).__module__}.{type(source).__qualname__} is no graph; give the path of an edge list, an "
        "array of shape (n, 2), a scipy.sparse matrix or a networkx graph"
    )


def _library_of(source: Any) -> str:
    modules = [base.__module__ for base in type(source).__mro__]
    if hasattr(source, "is_directed") and any(module.startswith("networkx.") for module in modules):
        return "networkx"
    return "scipy" if hasattr(source, "tocoo") and any(module.startswith("scipy.") for module in modules) else ""


def _from_array(source: Any, name: str) -> Graph:
    try:
        pairs = np.asarray(source)
    except ValueError as error:
        raise InputError(f"{name}: its rows differ in length ({error}); give one pair of ids a row") from None
    if pairs.ndim == 2 and pairs.shape[1] == 3:
        raise InputError(
            f"{name} has shape {pairs.shape}; a third column would be weights, and the model takes unweighted links. "
            "Keep the rows that count as links and their first two columns: a[:, :2]"
        )
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise InputError(
            f"{name} has shape {pairs.shape}; give pairs of ids of shape (n, 2), or a square matrix as "
            "scipy.sparse.csr_array(a)"
        )
    places, ids = _number(pairs, name)
    return build_graph(places[:, 0], places[:, 1], ids, name=name)


def _number(pairs: NDArray[Any], name: str) -> tuple[Int64Array, NDArray[Any]]:
    """Replace the ids in ``pairs`` by places in the sorted ids; return both."""
    if pairs.dtype.kind == "O":
        items = pairs.ravel().tolist()
        if all(isinstance(item, str) for item in items):
            index = {word: place for place, word in enumerate(sorted(set(items)))}
            places = np.array([index[item] for item in items], dtype=np.int64)
            return places.reshape(-1, 2), string_ids(list(index))
        if all(isinstance(item, int | np.integer) and not isinstance(item, bool) for item in items):
            wide = [item for item in items if not -(2**63) <= int(item) < 2**63]
            if wide:
                raise _too_wide(wide[0], name)
            pairs = pairs.astype(np.int64)
    if pairs.dtype.kind == "u" and pairs.size and pairs.max() > np.uint64(2**63 - 1):
        raise _too_wide(pairs.max(), name)
    if pairs.dtype.kind in "iu":
        ids, places = number_integers(pairs.astype(np.int64).ravel())
        return places.reshape(-1, 2), ids
    if pairs.dtype.kind == "S":
        try:
            pairs = np.char.decode(pairs, "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{name}: an id is not UTF-8 ({error}); decode the ids to str first") from None
    if pairs.dtype.kind == "U":
        words, places = np.unique(pairs, return_inverse=True)
        return places.reshape(-1, 2).astype(np.int64), words
    raise InputError(
        f"{name} holds ids of type {pairs.dtype}; give all integers or all strings, such as by "
        ".astype(np.int64) or .astype(str)"
    )


def _too_wide(value: Any, name: str) -> InputError:
    return InputError(f"{name}: id {value} does not fit into 64 bits with sign; give the ids as strings: .astype(str)")


def _from_scipy(matrix: Any, name: str) -> Graph:
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
    return build_graph(first[there], second[there], np.arange(matrix.shape[0], dtype=np.int64), name=name)


def _from_networkx(source: Any, name: str) -> Graph:
    nodes = list(source.nodes)
    index = {node: place for place, node in enumerate(nodes)}
    ends = []
    for u, v, weight in source.edges(data="weight", default=1):
        # A weight of None or "1" is refused too: what it means is the user's to say.
        if isinstance(weight, str) or weight != 1:
            raise InputError(
                f"{name}: edge {u!r} - {v!r} has weight {weight!r}; the model takes unweighted links. Keep the edges "
                "that count as links and delete the weight attribute of each"
            )
        ends.append((index[u], index[v]))
    places = np.array(ends, dtype=np.int64).reshape(-1, 2)
    # An undirected graph may hold parallel edges in both directions: its own word counts.  A directed one
    # that lists all links both ways says nothing that is lost.
    directed = False
    if source.is_directed():
        arcs = set(ends)
        directed = any((v, u) not in arcs for u, v in arcs)
    return build_graph(places[:, 0], places[:, 1], _node_ids(nodes), name=name, directed=directed)


def _node_ids(nodes: list[Any]) -> NDArray[Any]:
    if all(type(node) is int for node in nodes) and all(-(2**63) <= node < 2**63 for node in nodes):
        return np.array(nodes, dtype=np.int64)
    if all(type(node) is str for node in nodes):
        return string_ids(nodes)
    return object_ids(nodes)
