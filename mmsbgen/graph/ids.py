"""Numbering of vertex ids, which may be any hashable values, independent of the input order.

Integers are ordered by value, strings by code points.  Ids of other or of several types are ordered by the name of the
type, then within it: numbers by value, bytes and strings by their elements, tuples element by element, frozensets by
their sorted elements, anything else by its ``repr``.  Objects whose ``repr`` contains only their address keep the input
order.  Values that compare equal (1, 1.0 and True) are one id: the first of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import canonical_key
from mmsbgen.graph.graph import Int64Array

_INT64 = range(-(2**63), 2**63)
Own = TypeVar("Own")


class WholeText:
    """A process that reads a text alone.

    Readers decide by these methods what the whole text says.  Where several processes read a part of it each, as
    :class:`mmsbgen.detection.ranks.reading.SharedText`, all call the same methods in the same order.

    Attributes:
        rank: number of this process.
        here: number of processes on this machine, which share its memory.
        lines_before: number of lines of the text before the part of this process.
        begin: number of its bytes before this part.
    """

    rank, here, lines_before, begin = 0, 1, 0, 0

    def told(self, own: Own) -> list[Own]:
        """What each process has found, in their order; a few numbers or flags."""
        return [own]

    def agree(self, work: Callable[[], Own]) -> Own:
        """What ``work`` returns here; of processes that raise :class:`InputError`, the first one ends all."""
        return work()

    def either(self, flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which of ``flags`` ``[N]`` any process has set."""
        return flags

    def number_integers(self, values: Int64Array) -> tuple[Int64Array, NDArray[Any]]:
        """As :func:`number_integers`, of the ``values`` of all processes."""
        return number_integers(values)

    def number_words(self, words: list[bytes]) -> tuple[list[bytes], Int64Array]:
        """The distinct ``words`` of all processes, ascending, and the index of each word here, int64 ``[L]``."""
        distinct = sorted(set(words))
        return distinct, indices(distinct, words)


def holds_first(size: int, among: WholeText) -> bool:
    """Whether the first of all fields or rows is among the ``size`` ones of this process."""
    sizes = among.told(size)
    return size > 0 and not any(sizes[: among.rank])


def indices(distinct: list[bytes], words: list[bytes]) -> Int64Array:
    """The index of each of ``words`` ``[L]`` among ``distinct`` ones, int64 ``[L]``."""
    index = {word: place for place, word in enumerate(distinct)}
    return np.fromiter(map(index.__getitem__, words), dtype=np.int64, count=len(words))


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
        raise InputError(f"{odd!r} is no vertex of the graph; give ids as the input has them") from None
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
    if longest > 256 or any(word.endswith("\0") for word in words):
        return object_ids(words)
    return np.array(words, dtype=f"U{max(longest, 1)}")


def object_ids(items: list[Any]) -> NDArray[Any]:
    """Return ``items`` as an object array ``[N]``; unlike ``np.array`` it does not expand tuples."""
    ids = np.empty(len(items), dtype=object)
    for place, item in enumerate(items):
        ids[place] = item
    return ids


def number_integers(values: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the distinct ``values``, ascending, int64 ``[N]``, and the index of every value, int64 ``[L]``.

    ``values`` is int64 ``[L]``.  Dense ranges use a table, which is several times faster than sorting.
    """
    if values.size == 0:
        return values, values
    low, high = int(values.min()), int(values.max())
    span = high - low + 1
    if span <= 4 * values.size + 65536:
        seen = np.zeros(span, dtype=np.bool_)
        offset = values - low
        seen[offset] = True
        distinct = np.flatnonzero(seen)
        if distinct.size == span:
            return distinct + low, offset
        place = np.empty(span, dtype=np.int64)
        place[distinct] = np.arange(distinct.size)
        return distinct + low, place[offset]
    ascending, places = in_order(values)
    starts = np.concatenate([[True], ascending[1:] != ascending[:-1]])
    distinct = ascending[starts]
    del ascending
    index = np.empty(values.size, dtype=np.int64)
    index[places] = np.cumsum(starts) - 1
    return distinct, index


def in_order(values: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return ``values`` ``[L]`` in ascending order, and where each was, int64 ``[L]``; equal ones keep their order.

    Values are sorted with their places in the lowest bits if there is room: far faster than finding an order.
    """
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    bits = values.size.bit_length()
    if (high - low).bit_length() + bits >= 64:
        places = np.argsort(values, kind="stable")
        return values[places], places
    ascending = values - low
    ascending <<= bits
    ascending |= np.arange(values.size)
    ascending.sort()
    places = ascending & ((1 << bits) - 1)
    ascending >>= bits
    ascending += low
    return ascending, places
