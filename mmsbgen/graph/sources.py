"""Conversion of a user's file or object to a :class:`~mmsbgen.graph.Graph`.

Objects of other libraries are recognised by the module of their class, so that no library is imported here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from mmsbgen.base.errors import InputError
from mmsbgen.graph.building import build_graph
from mmsbgen.graph.files.graph_files import load_graph, with_vertices
from mmsbgen.graph.graph import Graph
from mmsbgen.graph.ids import number_ids
from mmsbgen.graph.library_graphs import (
    from_array,
    from_igraph,
    from_networkit,
    from_networkx,
    from_scipy,
    from_table,
    third_value,
)
from mmsbgen.graph.reading_options import ReadingOptions, need_weights

_LIBRARIES: dict[str, tuple[str, Callable[[Any, str, ReadingOptions], Graph]]] = {
    "networkx": ("is_directed", from_networkx),
    "igraph": ("get_edgelist", from_igraph),
    "networkit": ("iterEdges", from_networkit),
    "scipy": ("tocoo", from_scipy),
}
_TABLES = ("pandas", "polars", "pyarrow")


def as_graph(
    source: Any,
    *,
    name: str | None = None,
    columns: Sequence[Any] | None = None,
    weights: str | None = None,
    vertices: str | os.PathLike[str] | Iterable[Any] | None = None,
    format: str = "auto",
) -> Graph:
    """Return ``source`` as a :class:`~mmsbgen.graph.Graph`.

    ``source`` is one of

    * a :class:`~mmsbgen.graph.Graph`, returned unchanged;
    * the path of a file (:func:`~mmsbgen.graph.load_graph`) in the given ``format``, by default the one it has;
    * an array ``[L, 2]`` of integers or strings, or of Python objects; any iterable of pairs of hashable values;
    * a square scipy.sparse matrix or array ``[N, N]`` of zeros and ones; it is directed if neither symmetric nor
      triangular; ids are ``0 .. N - 1``, vertices without entries are isolated;
    * a networkx graph of any kind, including isolated nodes;
    * an igraph graph; ids are the vertices' attribute ``name`` if present, else their indices;
    * a networkit graph; ids are its node numbers;
    * a pandas or polars data frame or a pyarrow table with one link per row; ``columns`` names its two columns of ids,
      by default a usual pair of names such as ``source`` and ``target``, or its only two columns; those of a file may
      be numbers from 1 on.  A third one holds weights; by default that is a column ``weight``.

    ``weights="ignore"`` counts every row as a link, ``weights="threshold=X"`` those of weight X or more.  Without it,
    weights of networkx, igraph and networkit are ignored, and others than 1 of files, tables and matrices refused.

    ``vertices``, a file with one id a line or an iterable of ids, adds those that have no link.

    Ids may be any hashable values and are not changed.  Vertices are numbered in the order of the ids
    (:mod:`mmsbgen.graph.ids`), independent of the input order.  Direction, self-loops and repeated links are dropped,
    as for a file.  ``name`` is used in run records and ignored for a path or a Graph.

    Raises:
        InputError: For any other source, for links with weights, or if no link remains.
    """
    return read_graph(source, ReadingOptions(format, columns, weights, vertices), name)


def read_graph(source: Any, reading: ReadingOptions, name: str | None = None) -> Graph:
    """:func:`as_graph` with all options of ``reading``."""
    library = _library_of(source)
    is_path = isinstance(source, str | os.PathLike)
    kind = type(source).__qualname__
    if reading.columns is not None and library not in _TABLES and not is_path:
        raise InputError(f"columns={reading.columns!r} name those of a table; a {kind} has none: leave it out")
    if reading.format != "auto" and not is_path:
        raise InputError(f"format={reading.format!r} is that of a file, and a {kind} is none: leave it out")
    if isinstance(source, Graph):
        if reading.weights is not None:
            raise InputError(f"weights={reading.weights!r}: a Graph has none any more; give it where the file is read")
        return source if reading.vertices is None else with_vertices(source, reading.vertices)
    if is_path:
        return load_graph(source, reading)
    graph = _converted(source, library, reading, name or "")
    return graph if reading.vertices is None else with_vertices(graph, reading.vertices)


def _converted(source: Any, library: str, reading: ReadingOptions, name: str) -> Graph:
    if library in _TABLES:
        return from_table(source, library, reading, name or f"{library} table")
    if library:
        return _LIBRARIES[library][1](source, name, reading)
    if isinstance(source, np.ma.MaskedArray) and np.ma.is_masked(source):
        raise InputError("the array is masked in places, where it has no ids; leave those rows out")
    if isinstance(source, np.ndarray):
        return from_array(source, name or "array", reading)
    if isinstance(source, Iterable) and not isinstance(source, str | bytes | Mapping):
        rows = source if isinstance(source, list | tuple) else list(source)
        need_weights(reading, name or type(source).__name__)
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


def _from_rows(source: list[Any] | tuple[Any, ...], name: str) -> Graph:
    items: list[Any] = []
    for number, row in enumerate(source):
        if not isinstance(row, list | tuple | np.ndarray):
            raise InputError(f"{name}: row {number} is {row!r}, which is no pair; give one pair of ids a row")
        if len(row) == 3:
            raise third_value(name, f"three values in row {number}, {row!r}")
        if len(row) != 2:
            raise InputError(f"{name}: row {number} has {len(row)} values, {row!r}; give one pair of ids a row")
        # "+=" with an array would add elementwise.
        items.extend(row.tolist() if isinstance(row, np.ndarray) else row)
    places, ids = number_ids(items, name=name)
    return build_graph(places[0::2], places[1::2], ids, name=name)
