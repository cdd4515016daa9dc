"""Graphs from pandas and polars data frames and pyarrow tables with one link per row.

None of these libraries is imported here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.errors import InputError
from mmsbgen.graph.graph import Graph, build_graph, number_integers
from mmsbgen.graph.ids import number_ids
from mmsbgen.graph.library_graphs import is_one
from mmsbgen.graph.text_tables import WEIGHT_COLUMNS

#: Usual names of the two columns of a link.
USUAL = (("source", "target"), ("from", "to"), ("u", "v"), ("src", "dst"), ("Source", "Target"))


def from_table(table: Any, library: str, columns: tuple[Any, Any] | None, name: str) -> Graph:
    """The graph of a table whose rows are links; see :func:`mmsbgen.graph.as_graph` for ``columns``.

    Raises:
        InputError: For missing columns or values, or if ``columns`` is None and the table has weights other than 1.
    """
    found = _names(table, library)
    ends = _ends(found, columns, name)
    if columns is None:
        _no_weights(table, library, found, name)
    first, second = (_values(table, library, column, name) for column in ends)
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        ids, places = number_integers(np.concatenate([first, second]))
    else:
        places, ids = number_ids([*_items(first), *_items(second)], name=name)
    return build_graph(places[: len(first)], places[len(first) :], ids, name=name)


def _names(table: Any, library: str) -> list[Any]:
    return list(table.column_names if library == "pyarrow" else table.columns)


def _ends(found: list[Any], columns: tuple[Any, Any] | None, name: str) -> tuple[Any, Any]:
    there = ", ".join(map(repr, found)) or "none"
    if columns is not None:
        if not isinstance(columns, tuple | list) or len(columns) != 2 or columns[0] == columns[1]:
            raise InputError(f"columns={columns!r}: name two, those of the two ends of a link; {name} has {there}")
        for column in columns:
            if found.count(column) != 1:
                times = "no column" if column not in found else "several columns"
                raise InputError(f"{name} has {times} {column!r}; there are {there}")
        return columns[0], columns[1]
    for pair in USUAL:
        if all(found.count(column) == 1 for column in pair):
            return pair
    if len(found) == 2 and found[0] != found[1]:
        return found[0], found[1]
    raise InputError(
        f"{name} has the columns {there}; say which two are the ends of a link, such as columns=('source', 'target')"
    )


def _no_weights(table: Any, library: str, found: list[Any], name: str) -> None:
    for column in found:
        if str(column).lower() in WEIGHT_COLUMNS:
            part = _column(table, library, column)
            lacks = _first_missing(part, library) is not None
            odd = [None] if lacks else [value for value in _list(part, library) if not is_one(value)]
            if odd:
                raise InputError(
                    f"{name}: a link has {column} {odd[0]!r}; the model takes unweighted links. Keep the rows that "
                    "count as links and name the columns of their ends: columns=('source', 'target')"
                )


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
