"""Graphs from arrays, data frames and objects of graph libraries, none of which is imported here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.errors import InputError
from mmsbgen.graph.building import build_graph, check_count
from mmsbgen.graph.graph import Graph, Int64Array, pack_pairs
from mmsbgen.graph.ids import number_ids, number_integers, ordered_ids
from mmsbgen.graph.reading_options import (
    ReadingOptions,
    kept_links,
    kept_of_columns,
    kept_of_some,
    need_weights,
    usual_columns,
    weight_columns,
)


def from_scipy(matrix: Any, name: str, reading: ReadingOptions, first_id: int = 0) -> Graph:
    """Convert a square scipy.sparse matrix ``[N, N]``; ids are ``first_id .. first_id + N - 1``, entries weights."""
    name = name or "scipy matrix"
    if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(
            f"{name} has shape {matrix.shape}; an adjacency matrix is square. For pairs of ids give a plain array"
        )
    check_count(matrix.shape[0], name)
    entries = matrix.tocoo(copy=True)  # a copy, as the entries are summed up in place below
    entries.sum_duplicates()
    first, second = (np.asarray(part, dtype=np.int64) for part in (entries.row, entries.col))
    stored = np.asarray(entries.data)
    there = stored != 0
    first, second, stored = first[there], second[there], stored[there]
    odd = np.flatnonzero(stored != 1)
    if odd.size and reading.weights is None:
        u, v, value = first[odd[0]] + first_id, second[odd[0]] + first_id, stored[odd[0]]
        raise InputError(
            f"{name}: entry ({u}, {v}) is {value}; the model takes unweighted links, zeros and ones. weights='ignore' "
            "(--weights ignore) counts every nonzero entry as a link, weights='threshold=X' those of X or more"
        )
    kept = kept_links(stored if stored.dtype.kind != "c" else stored.tolist(), reading, name)
    if kept is not None:
        first, second = first[kept], second[kept]
    ids = np.arange(first_id, first_id + matrix.shape[0], dtype=np.int64)
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


def from_networkx(source: Any, name: str, reading: ReadingOptions) -> Graph:
    """Convert a networkx graph of any kind; a link without the attribute ``weight`` has weight 1, as networkx has it.

    Without a rule for weights they are ignored, as by networkx where ``weight=None``.
    """
    name = name or str(getattr(source, "name", "")) or "networkx graph"
    nodes = list(source.nodes)
    index = {node: place for place, node in enumerate(nodes)}
    weighted = list(source.edges(data="weight"))
    ends = [(index[u], index[v]) for u, v, _ in weighted]
    return graph_of_ends(nodes, ends, name, source.is_directed(), _chosen([w for _, _, w in weighted], reading, name))


def from_igraph(source: Any, name: str, reading: ReadingOptions) -> Graph:
    """Convert an igraph graph; ids are the ``name`` of its vertices, or their indices.

    Weights, the attribute ``weight``, are ignored without a rule for them.
    """
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
    weights = source.es["weight"] if "weight" in source.es.attributes() else []
    return graph_of_ends(nodes, source.get_edgelist(), name, source.is_directed(), _chosen(weights, reading, name))


def from_networkit(source: Any, name: str, reading: ReadingOptions) -> Graph:
    """Convert a networkit graph; ids are its node numbers. Weights are ignored without a rule for them."""
    name = name or "networkit graph"
    nodes = list(source.iterNodes())
    index = {node: place for place, node in enumerate(nodes)}
    weighted = list(source.iterEdgesWeights())
    ends = [(index[u], index[v]) for u, v, _ in weighted]
    weights = [w for _, _, w in weighted] if source.isWeighted() else []
    return graph_of_ends(nodes, ends, name, source.isDirected(), _chosen(weights, reading, name))


def _chosen(weights: list[Any], reading: ReadingOptions, name: str) -> NDArray[np.bool_] | None:
    """Which links of a graph object to keep; None for all."""
    return None if reading.threshold is None else kept_of_some(weights, reading, name)


def from_array(source: NDArray[Any], name: str, reading: ReadingOptions) -> Graph:
    """Convert an array ``[L, 2]`` of ids; raises InputError for other shapes and types."""
    if source.ndim == 2 and source.shape[1] == 3:
        raise third_value(name, f"shape {source.shape}")
    if source.ndim != 2 or source.shape[1] != 2:
        raise InputError(
            f"{name} has shape {source.shape}; give pairs of ids of shape (n, 2), or a square matrix as "
            "scipy.sparse.csr_array(a)"
        )
    need_weights(reading, name)
    places, ids = _number(source, name)
    return build_graph(places[:, 0], places[:, 1], ids, name=name)


def third_value(name: str, found: str) -> InputError:
    """The error for pairs that have a third value."""
    return InputError(
        f"{name} has {found}; a third column would be weights, and the model takes unweighted links. "
        "Keep the rows that count as links, and of each the first two values (of an array: a[:, :2])"
    )


def graph_of_ends(
    nodes: list[Any],
    ends: Sequence[tuple[int, int]],
    name: str,
    is_directed: bool | None,
    kept: NDArray[np.bool_] | None = None,
) -> Graph:
    """The graph of the links between the places ``ends`` ``[L]`` in ``nodes`` that are ``kept``; None for all.

    ``is_directed`` None guesses from the links whether the source is.
    """
    place, ids = number_ids(nodes, name=name)
    pairs: Int64Array = place[np.array(ends, dtype=np.int64).reshape(-1, 2)]
    if kept is not None:
        pairs = pairs[kept]
    # An undirected graph may have parallel edges in both directions; its own type decides.  A directed graph
    # with all links in both directions loses no information.
    directed = None if is_directed is None else False
    if is_directed:
        there = set(map(tuple, pairs.tolist()))
        directed = any((v, u) not in there for u, v in there)
    return build_graph(pairs[:, 0], pairs[:, 1], ids, name=name, directed=directed)


def _number(pairs: NDArray[Any], name: str) -> tuple[Int64Array, NDArray[Any]]:
    """Return the indices of the ids in ``pairs`` ``[L, 2]`` in the sorted ids, and these ids."""
    if pairs.dtype.kind == "O" or (pairs.dtype.kind == "u" and pairs.size and pairs.max() > np.uint64(2**63 - 1)):
        places, ids = number_ids(pairs.ravel().tolist(), name=name)
        return places.reshape(-1, 2), ids
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
        f"{name} holds ids of type {pairs.dtype}; give integers or strings, such as by .astype(np.int64) or "
        ".astype(str), or any hashable values by .astype(object)"
    )


def from_table(table: Any, library: str, reading: ReadingOptions, name: str) -> Graph:
    """The graph of a table whose rows are links; see :func:`mmsbgen.graph.as_graph` for the options of ``reading``.

    Raises:
        InputError: For missing columns or values, and for weights other than 1 that no option or columns explain.
    """
    found = _names(table, library)
    ends = _ends(found, reading.columns, name)
    first, second = (_values(table, library, column, name) for column in ends[:2])
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        ids, places = number_integers(np.concatenate([first, second]))
    else:
        places, ids = number_ids([*_items(first), *_items(second)], name=name)
    pairs = places.reshape(2, -1)
    among = weight_columns(found, [found.index(end) for end in ends], reading)
    weights = [(found[at], _weights(_column_at(table, library, at), library)) for at in among]
    if (kept := kept_of_columns(weights, reading, name)) is not None:
        pairs = pairs[:, kept]
    return build_graph(pairs[0], pairs[1], ids, name=name)


def _weights(part: Any, library: str) -> NDArray[Any] | list[Any]:
    """The weights of a column; None alone if one is missing."""
    if _first_missing(part, library) is not None:
        return [None]
    return np.asarray(part.to_numpy()) if _kind(part, library) in "if" else _list(part, library)


def _names(table: Any, library: str) -> list[Any]:
    return list(table.column_names if library == "pyarrow" else table.columns)


def _ends(found: list[Any], columns: Sequence[Any] | None, name: str) -> tuple[Any, ...]:
    there = ", ".join(map(repr, found)) or "none"
    if columns is not None:
        for column in columns:
            if found.count(column) != 1:
                times = "no column" if column not in found else "several columns"
                raise InputError(f"{name} has {times} {column!r}; there are {there}")
        return tuple(columns)
    if usual := usual_columns(found):
        return tuple(found[at] for at in usual[0])
    if len(found) == 2 and found[0] != found[1]:
        return found[0], found[1]
    raise InputError(
        f"{name} has the columns {there}; name the two ends of a link: --columns A,B (columns=(A, B) in Python)"
    )


def _values(table: Any, library: str, column: Any, name: str) -> NDArray[np.int64] | list[Any]:
    """The ids of a column: an int64 array for integer types within int64, else a list."""
    part = _column(table, library, column)
    if (row := _first_missing(part, library)) is not None:
        raise InputError(
            f"{name}: row {row} has no value in column {column!r}; leave such rows out (dropna, drop_nulls)"
        )
    kind = _kind(part, library)
    if not len(part):
        raise InputError(f"{name} has no rows; give one for each link")
    if kind in "fb":
        raise InputError(
            f"{name}: column {column!r} is of type {_type(part, library)}, which are no ids; convert it to integers or "
            "strings, or name the columns of the ids by columns=(...)"
        )
    return np.asarray(part.to_numpy(), dtype=np.int64) if kind == "i" else _list(part, library)


def _column(table: Any, library: str, column: Any) -> Any:
    return table.column(column) if library == "pyarrow" else table[column]


def _column_at(table: Any, library: str, at: int) -> Any:
    """A column whose name others may have."""
    return table.iloc[:, at] if library == "pandas" else table.column(at) if library == "pyarrow" else table[:, at]


def _type(part: Any, library: str) -> str:
    return str(part.type if library == "pyarrow" else part.dtype)


def _list(part: Any, library: str) -> list[Any]:
    return list(part.to_pylist() if library == "pyarrow" else part.to_list())


def _first_missing(part: Any, library: str) -> int | None:
    missing = part.isna() if library == "pandas" else part.is_null()
    rows = np.flatnonzero(np.asarray(missing.to_numpy()))
    return int(rows[0]) if rows.size else None


def _kind(part: Any, library: str) -> str:
    """Kind of a column: ``i`` for integer types within int64, ``f`` for floating point, ``b`` for bool, else ``o``."""
    described = _type(part, library).lower()
    if described.startswith("int"):
        return "i"
    if described.startswith("uint") and "64" not in described:
        return "i"
    if described.startswith(("float", "double", "halffloat")):
        return "f"
    return "b" if described.startswith("bool") else "o"


def _items(values: NDArray[np.int64] | list[Any]) -> list[Any]:
    return values.tolist() if isinstance(values, np.ndarray) else values
