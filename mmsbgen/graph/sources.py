"""Conversion of a user's file or object to a :class:`~mmsbgen.graph.Graph`.

Objects of other libraries are recognised by the module of their class, so that no library is imported here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.errors import InputError
from mmsbgen.graph.edge_tables import from_table
from mmsbgen.graph.edgelist import load_edge_list
from mmsbgen.graph.graph import Graph, Int64Array, build_graph, number_integers
from mmsbgen.graph.ids import number_ids
from mmsbgen.graph.library_graphs import from_igraph, from_networkit, from_networkx, from_scipy

_LIBRARIES = {
    "networkx": ("is_directed", from_networkx),
    "igraph": ("get_edgelist", from_igraph),
    "networkit": ("iterEdges", from_networkit),
    "scipy": ("tocoo", from_scipy),
}
_TABLES = ("pandas", "polars", "pyarrow")


def as_graph(source: Any, *, name: str | None = None, columns: tuple[Any, Any] | None = None) -> Graph:
    """Return ``source`` as a :class:`~mmsbgen.graph.Graph`.

    ``source`` is one of

    * a :class:`~mmsbgen.graph.Graph`, returned unchanged;
    * the path of an edge list or a table of links (:func:`~mmsbgen.graph.load_edge_list`);
    * an array ``[L, 2]`` of integers or strings, or of Python objects; any iterable of pairs of hashable values;
    * a square scipy.sparse matrix or array ``[N, N]`` of zeros and ones; it is directed if neither symmetric nor
      triangular; ids are ``0 .. N - 1``, vertices without entries are isolated;
    * a networkx graph of any kind, including isolated nodes; weights are ignored;
    * an igraph graph; ids are the vertices' attribute ``name`` if present, else their indices; weights are ignored;
    * a networkit graph; ids are its node numbers; weights are ignored;
    * a pandas or polars data frame or a pyarrow table with one link per row; ``columns`` names its two columns of ids,
      by default a usual pair of names such as ``source`` and ``target``, or its only two columns; those of a file may
      be numbers from 1 on.

    Ids may be any hashable values and are not changed.  Vertices are numbered in the order of the ids
    (:mod:`mmsbgen.graph.ids`), independent of the input order.  Direction, self-loops and repeated links are dropped,
    as for a file.  ``name`` is used in run records and ignored for a path or a Graph.

    Raises:
        InputError: For any other source, for links with weights, or if no link remains.
    """
    library = _library_of(source)
    is_path = isinstance(source, str | os.PathLike)
    if columns is not None and library not in _TABLES and not is_path:
        raise InputError(
            f"columns={columns!r} name those of a table; a {type(source).__qualname__} has none: leave it out"
        )
    if isinstance(source, Graph):
        return source
    if is_path:
        return load_edge_list(source, columns)
    if library in _TABLES:
        return from_table(source, library, columns, name or f"{library} table")
    if library:
        return _LIBRARIES[library][1](source, name)
    if isinstance(source, np.ma.MaskedArray) and np.ma.is_masked(source):
        raise InputError("the array is masked in places, where it has no ids; leave those rows out")
    if isinstance(source, np.ndarray):
        return _from_array(source, name or "array")
    if isinstance(source, Iterable) and not isinstance(source, str | bytes | Mapping):
        rows = source if isinstance(source, list | tuple) else list(source)
        return _from_rows(rows, name or type(source).__name__)
    raise InputError(
        f"a {type(source).__module__}.{type(source).__qualname__} is no graph; give the path of an edge list, an "
        "array of shape (n, 2), pairs of ids, a scipy.sparse matrix, a graph of networkx, igraph or networkit, or a "
        "data frame"
    )


def _library_of(source: Any) -> str:
    modules = {base.__module__.partition(".")[0] for base in type(source).__mro__}
    for library, (method, _) in _LIBRARIES.items():
        if library in modules and hasattr(source, method):
            return library
    for library in _TABLES:
        if library in modules and len(getattr(source, "shape", ())) == 2 and hasattr(source, "columns"):
            return library
    return ""


def _from_array(source: NDArray[Any], name: str) -> Graph:
    if source.ndim == 2 and source.shape[1] == 3:
        raise _weighted(name, f"shape {source.shape}")
    if source.ndim != 2 or source.shape[1] != 2:
        raise InputError(
            f"{name} has shape {source.shape}; give pairs of ids of shape (n, 2), or a square matrix as "
            "scipy.sparse.csr_array(a)"
        )
    places, ids = _number(source, name)
    return build_graph(places[:, 0], places[:, 1], ids, name=name)


def _from_rows(source: list[Any] | tuple[Any, ...], name: str) -> Graph:
    items: list[Any] = []
    for number, row in enumerate(source):
        if not isinstance(row, list | tuple | np.ndarray):
            raise InputError(f"{name}: row {number} is {row!r}, which is no pair; give one pair of ids a row")
        if len(row) == 3:
            raise _weighted(name, f"three values in row {number}, {row!r}")
        if len(row) != 2:
            raise InputError(f"{name}: row {number} has {len(row)} values, {row!r}; give one pair of ids a row")
        # "+=" with an array would add elementwise.
        items.extend(row.tolist() if isinstance(row, np.ndarray) else row)
    places, ids = number_ids(items, name=name)
    return build_graph(places[0::2], places[1::2], ids, name=name)


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


def _weighted(name: str, found: str) -> InputError:
    return InputError(
        f"{name} has {found}; a third column would be weights, and the model takes unweighted links. "
        "Keep the rows that count as links and their first two columns: a[:, :2]"
    )
