"""Graphs from pandas and polars data frames and pyarrow tables with one link per row.

None of these libraries is imported here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.errors import InputError
from mmsbgen.graph.graph import Graph, build_graph, number_integers
from mmsbgen.graph.ids import number_ids
from mmsbgen.graph.reading_options import WEIGHT_NAMES, ReadingOptions, kept_links, need_weights, only_column

#: Usual names of the two columns of a link.
USUAL = (("source", "target"), ("from", "to"), ("u", "v"), ("src", "dst"), ("Source", "Target"))


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
    kept = _kept(table, library, ends, reading, name)
    if kept is not None:
        pairs = pairs[:, kept]
    return build_graph(pairs[0], pairs[1], ids, name=name)


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
    for pair in USUAL:
        if all(found.count(column) == 1 for column in pair):
            return pair
    if len(found) == 2 and found[0] != found[1]:
        return found[0], found[1]
    raise InputError(
        f"{name} has the columns {there}; say which two are the ends of a link, such as columns=('source', 'target')"
    )


def _kept(
    table: Any, library: str, ends: tuple[Any, ...], reading: ReadingOptions, name: str
) -> NDArray[np.bool_] | None:
    """Which rows are links by their weights, which stand in ``ends[2]`` or in a column so named; None for all."""
    named = [column for column in _names(table, library) if str(column).lower() in WEIGHT_NAMES]
    if len(ends) > 2:
        named = [ends[2]]
    elif reading.columns is not None and reading.threshold is None:
        named = []
    if not named:
        need_weights(reading, name)
        return None
    only_column(named, reading, name)
    checked = []
    for column in named:
        part = _column(table, library, column)
        if _first_missing(part, library) is not None:
            return kept_links([None], reading, name)
        weights = np.asarray(part.to_numpy()) if _kind(part, library) in "if" else _list(part, library)
        checked.append(kept_links(weights, reading, name))
    return checked[0]


def _values(table: Any, library: str, column: Any, name: str) -> NDArray[np.int64] | list[Any]:
    """The ids of a column: an int64 array for integer types within int64, else a list."""
    part = _column(table, library, column)
    row = _first_missing(part, library)
    if row is not None:
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
