"""Conversion of vertex ids to and from JSON that preserves their types, without pickle."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.atomic_files import ArchiveWriter
from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import canonical_key
from mmsbgen.graph.ids import object_ids

#: Types written as text: name, conversion to text, and conversion from text.
_BY_TEXT: dict[type, tuple[str, Callable[[Any], str], Callable[[str], Any]]] = {
    bytes: ("bytes", bytes.hex, bytes.fromhex),
    complex: ("complex", repr, complex),
    Decimal: ("decimal", str, Decimal),
    Fraction: ("fraction", str, Fraction),
    UUID: ("uuid", str, UUID),
    datetime: ("datetime", lambda value: _folded(value), lambda text: _unfolded(datetime, text)),
    date: ("date", date.isoformat, date.fromisoformat),
    time: ("time", lambda value: _folded(value), lambda text: _unfolded(time, text)),
    timedelta: ("timedelta", lambda value: _micros(value), lambda text: timedelta(microseconds=int(text))),
    float: ("float", float.hex, float.fromhex),
}
_READ = {name: read for name, _, read in _BY_TEXT.values()}


def to_json(item: Any) -> Any:
    """The JSON value of an id: the id itself if JSON keeps its type, else a list of type and content.

    Raises:
        InputError: If ids of this type cannot be written.
    """
    if isinstance(item, np.generic):
        item = item.item()
    if item is None or type(item) in (bool, int, str):
        return item
    if type(item) is tuple:
        return ["tuple", *map(to_json, item)]
    if type(item) is frozenset:
        return ["frozenset", *map(to_json, sorted(item, key=canonical_key))]
    name, write, read = _BY_TEXT.get(type(item), ("", repr, repr))
    written = write(item)
    # A time in a named zone would be read back with a fixed offset, which is another id.
    if not name or canonical_key(read(written)) != canonical_key(item):
        raise InputError(
            f"id {item!r} is a {type(item).__module__}.{type(item).__qualname__}, which cannot be written to a file; "
            "name the vertices by strings, numbers, tuples, frozensets, bytes, dates or UUIDs, or pickle the estimator"
        )
    return [name, written]


def from_json(value: Any) -> Any:
    """The inverse of :func:`to_json`.

    Raises:
        ValueError: For values that :func:`to_json` does not return.
    """
    if not isinstance(value, list):
        if value is None or isinstance(value, bool | int | str):
            return value
        raise ValueError(f"{value!r} is no id")
    kind, *parts = value
    if kind == "tuple":
        return tuple(map(from_json, parts))
    if kind == "frozenset":
        return frozenset(map(from_json, parts))
    if kind not in _READ or len(parts) != 1 or not isinstance(parts[0], str):
        raise ValueError(f"{value!r} is no id")
    return _READ[kind](parts[0])


def _folded(value: datetime | time) -> str:
    return value.isoformat() + "~" * value.fold


def _unfolded(kind: Any, text: str) -> Any:
    value = kind.fromisoformat(text.rstrip("~"))
    return value.replace(fold=1) if text.endswith("~") else value


def _micros(value: timedelta) -> str:
    return str((value.days * 86400 + value.seconds) * 10**6 + value.microseconds)


def add_ids(archive: ArchiveWriter, name: str, ids: NDArray[Any]) -> None:
    """Add ids to an archive; those that are objects as JSON, with the name ``NAME_json``."""
    if ids.dtype.kind == "O":
        archive.add_json(f"{name}_json", list(map(to_json, ids.tolist())))
    else:
        archive.add(name, ids)


def ids_in(archive: Mapping[str, NDArray[Any]], name: str) -> NDArray[Any]:
    """The ids that :func:`add_ids` wrote."""
    if name in archive:
        return archive[name]
    return object_ids(list(map(from_json, json.loads(archive[f"{name}_json"].tobytes()))))
