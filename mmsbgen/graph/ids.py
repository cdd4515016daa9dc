"""Numbering of vertex ids, which may be any hashable values, independent of the input order.

Integers are ordered by value, strings by code points.  Ids of other or of several types are ordered by the name of the
type, then within it: numbers by value, bytes and strings by their elements, tuples element by element, frozensets by
their sorted elements, anything else by its ``repr``.  Objects whose ``repr`` contains only their address keep the input
order.  Values that compare equal (1, 1.0 and True) are one id: the first of them.

Ids go to JSON and come back with their types, without pickle.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.atomic_files import ArchiveWriter
from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import canonical_key
from mmsbgen.base.processes import run_side_by_side
from mmsbgen.graph.graph import AT_A_TIME, Int64Array

_INT64 = range(-(2**63), 2**63)
#: Longest words in arrays that have the same number of bytes or characters for all.
MOST_CHARACTERS = 256


def number_ids(items: list[Any], *, name: str) -> tuple[Int64Array, NDArray[Any]]:
    """Return the indices ``[L]`` of ``items`` ``[L]`` in the ordered distinct ids, and these ids ``[N]``.

    Raises:
        InputError: If an item is not hashable or is NaN; the message begins with ``name``.
    """
    if _all_int64(items):
        ids, places = number_integers(np.array(items, dtype=np.int64))
        return places, ids
    ordered = ordered_ids(items, name=name)
    index = {item: place for place, item in enumerate(ordered.tolist())}
    return np.fromiter(map(index.__getitem__, items), dtype=np.int64, count=len(items)), ordered


def ordered_ids(items: Iterable[Any], *, name: str) -> NDArray[Any]:
    """Return the ordered distinct ``items``, int64, str or object ``[N]``; raises as :func:`number_ids`."""
    try:
        distinct = list(dict.fromkeys(items))
    except TypeError:
        odd = next(item for item in items if not _hashable(item))
        raise InputError(
            f"{name}: {odd!r} is a {type(odd).__name__} and cannot be the id of a vertex, as it has no hash; "
            "give a tuple or a string"
        ) from None
    if any(isinstance(item, float) and item != item for item in distinct):
        raise InputError(f"{name}: an id is NaN, which equals nothing, not even itself; drop those rows or name them")
    if _all_int64(distinct):
        return np.array(sorted(map(int, distinct)), dtype=np.int64)
    if all(type(item) in (str, np.str_) for item in distinct):
        return string_ids(sorted(map(str, distinct)))
    return object_ids(sorted(distinct, key=canonical_key))


def numbered_pairs(ids: NDArray[Any], pairs: Any, *, unseen: bool = False) -> Int64Array:
    """Return the vertices, int64 ``[P, 2]``, of ``pairs`` of ids, an array ``[P, 2]`` or a list of pairs.

    With ``unseen``, ids that are not in ``ids`` ``[N]`` get the numbers from N on.

    Raises:
        InputError: For anything else, or for an id that is not in ``ids`` ``[N]``.
    """
    if isinstance(pairs, np.ndarray):
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise InputError(f"pairs of shape {pairs.shape}: give an array (P, 2) of ids")
        rows = pairs.tolist()
    else:
        rows = list(pairs) if isinstance(pairs, Iterable) else [pairs]
    for row in rows:
        if not isinstance(row, list | tuple | np.ndarray) or len(row) != 2:
            raise InputError(f"{row!r} is no pair: give an array (P, 2) of ids, or a list of pairs")
    number = {name: vertex for vertex, name in enumerate(ids.tolist())}
    try:
        if unseen:
            for name in (name for row in rows for name in row):
                number.setdefault(name, len(number))
        vertices = [(number[a], number[b]) for a, b in rows]
    except (KeyError, TypeError):
        odd = next(name for row in rows for name in row if not _hashable(name) or name not in number)
        some = ", ".join(map(repr, ids[:3].tolist()))
        raise InputError(f"{odd!r} is no vertex of the graph; its ids are such as {some}") from None
    return np.array(vertices, dtype=np.int64).reshape(-1, 2)


def _all_int64(items: Sequence[Any]) -> bool:
    kinds = set(map(type, items))
    if not all(kind is int or issubclass(kind, np.integer) for kind in kinds):
        return False
    numbers = items if kinds <= {int} else list(map(int, items))
    return not items or (min(numbers) in _INT64 and max(numbers) in _INT64)


def _hashable(item: Hashable) -> bool:
    try:
        hash(item)
    except TypeError:
        return False
    return True


def string_ids(words: list[str]) -> NDArray[Any]:
    """Return ``words`` as an id array ``[N]``: dtype ``U``, or object if a word is long or ends with NUL."""
    longest = max(map(len, words), default=0)
    if longest > MOST_CHARACTERS or any(word.endswith("\0") for word in words):
        return object_ids(words)
    return np.array(words, dtype=f"U{max(longest, 1)}")


def object_ids(items: list[Any]) -> NDArray[Any]:
    """Return ``items`` as an object array ``[N]``; unlike ``np.array`` it does not expand tuples."""
    ids = np.empty(len(items), dtype=object)
    for place, item in enumerate(items):
        ids[place] = item
    return ids


def number_integers(values: NDArray[Any]) -> tuple[Int64Array, NDArray[Any]]:
    """Return the distinct ``values``, ascending, int64 ``[N]``, and the index of every value ``[L]``.

    ``values`` are int64 or uint32 ``[L]``; their indices overwrite them.  Dense ranges use a table, which is several
    times faster than sorting.
    """
    if values.size == 0:
        return values.astype(np.int64), values
    low, high = int(values.min()), int(values.max())
    if high - low < 4 * values.size + 65536:
        if low:
            values -= values.dtype.type(low)
        seen = np.zeros(high - low + 1, dtype=np.bool_)

        def see(begin: int) -> None:
            seen[values[begin : begin + AT_A_TIME]] = True  # threads may write the same value to one place

        run_side_by_side(see, range(0, values.size, AT_A_TIME))
        distinct = np.flatnonzero(seen)
        if distinct.size < seen.size:
            renumber(values, distinct, seen.size)
        return distinct + low, values
    return by_sorting(values)


def by_sorting(values: NDArray[Any]) -> tuple[Int64Array, NDArray[Any]]:
    """As :func:`number_integers`, in this thread."""
    ascending, places = in_order(values)
    starts = np.concatenate([[True], ascending[1:] != ascending[:-1]])
    distinct = ascending[starts]
    del ascending
    number = np.cumsum(starts, dtype=values.dtype)
    number -= number.dtype.type(1)
    values[places] = number
    return distinct, values


def renumber(values: NDArray[Any], distinct: Int64Array, size: int) -> None:
    """Replace each of ``values`` ``[L]``, whole numbers below ``size``, by its index in ``distinct`` ``[N]``."""
    place = np.empty(size, dtype=np.uint32)
    place[distinct] = np.arange(distinct.size, dtype=np.uint32)

    def replace(begin: int) -> None:
        values[begin : begin + AT_A_TIME] = place[values[begin : begin + AT_A_TIME]]

    run_side_by_side(replace, range(0, values.size, AT_A_TIME))


def in_order(values: NDArray[Any]) -> tuple[Int64Array, Int64Array]:
    """Return ``values`` ``[L]`` in ascending order, and where each was, int64 ``[L]``; equal ones keep their order.

    Values are sorted with their places in the lowest bits if there is room: far faster than finding an order.
    """
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    bits = values.size.bit_length()
    if (high - low).bit_length() + bits >= 64:
        places = np.argsort(values, kind="stable")
        return values[places].astype(np.int64), places
    ascending = values.astype(np.int64)
    ascending -= low
    ascending <<= bits
    ascending |= np.arange(values.size)
    ascending.sort()
    places = ascending & ((1 << bits) - 1)
    ascending >>= bits
    ascending += low
    return ascending, places


#: Types written as text: name, conversion to text, and conversion from text.
_BY_TEXT: dict[type, tuple[str, Callable[[Any], str], Callable[[str], Any]]] = {
    bytes: ("bytes", bytes.hex, bytes.fromhex),
    UUID: ("uuid", str, UUID),
    datetime: ("datetime", datetime.isoformat, datetime.fromisoformat),
    date: ("date", date.isoformat, date.fromisoformat),
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
    # A time in a named zone would be read back with a fixed offset, which is another id; the second of a repeated hour
    # as the first.
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
