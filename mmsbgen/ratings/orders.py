"""Orders of many items, by keys or at random, and counts of keys: made in threads, the same on any number of cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.processes import in_parts, run_side_by_side, side_by_side

__all__ = ["counted", "grouped", "items_at", "order_by", "random_order", "slices"]

Array = NDArray[Any]
#: Items that a thread takes at a time; fewer are ordered in one piece.
_ITEMS = 1 << 21
_GROUPS = 256


def slices(size: int) -> list[slice]:
    """Slices of ``size`` items, which threads take."""
    return [slice(first, min(first + _ITEMS, size)) for first in range(0, size, _ITEMS)]


def items_at(places: Array, *arrays: Array) -> tuple[Array, ...]:
    """The items of ``arrays`` at ``places``, indices or a mask, in their order."""
    if places.dtype == np.bool_:
        places = np.flatnonzero(places)
    return in_parts(lambda part: tuple(each[places[part]] for each in arrays), places.size)


def counted(keys: Array, size: int) -> NDArray[np.int64]:
    """How often each number below ``size`` is among ``keys`` ``[E]``, int64 ``[size]``."""
    found = np.zeros(size, np.int64)
    parts = slices(keys.size) if size <= _ITEMS else [slice(None)]  # many counts of few items would fill the memory
    for part in side_by_side(lambda part: np.bincount(keys[part], minlength=size), parts):
        found += part
    return found


def order_by(keys: Array) -> NDArray[np.int64]:
    """The places of ``keys`` ``[E]``, integers below 2^32, in their order, int64 ``[E]``; equal ones as given."""
    if keys.size <= _ITEMS:
        # NumPy sorts 16 bits by radix.
        order = np.argsort((keys & 0xFFFF).astype(np.uint16), kind="stable")
        if keys.size and keys.max() > 0xFFFF:
            order = order[np.argsort((keys[order] >> 16).astype(np.uint16), kind="stable")]
        return order
    found = np.empty(keys.size, np.int64)

    def put(group: tuple[int, NDArray[np.int64]]) -> None:
        first, places = group
        own = keys[places]
        own -= own.min()
        own = own.astype(np.uint16 if own.max() <= 0xFFFF else np.uint32)
        found[first : first + places.size] = places[np.argsort(own, kind="stable")]

    run_side_by_side(put, grouped(keys))
    return found


def grouped(keys: Array) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Groups of items with neighbouring ``keys`` ``[E]``, by the keys' upper bits: the places of each, as given.

    With each group comes the number of items in the groups before it.
    """
    most = max((int(part) for part in side_by_side(lambda part: keys[part].max(), slices(keys.size))), default=0)
    shift = max(0, most.bit_length() - (_GROUPS - 1).bit_length())
    return _groups(lambda part: (keys[part] >> shift).astype(np.uint8), keys.size)


def random_order(key: list[int], size: int) -> NDArray[np.int64]:
    """A random order of ``size`` items, int64 ``[size]``, drawn by Philox with ``key`` ``[2]``.

    All orders are equally likely: items get groups at random, and each group is shuffled by itself (Rao 1961).
    """

    def generator(*counter: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=np.array(key, np.uint64), counter=[0, 0, *counter]))

    if size <= _ITEMS:
        return generator(0, 0).permutation(size)

    def group_of(part: slice) -> NDArray[np.uint8]:
        drawn: NDArray[np.uint8] = generator(1, part.start).integers(
            _GROUPS, size=part.stop - part.start, dtype=np.uint8
        )
        return drawn

    found = np.empty(size, np.int64)

    def put(group: tuple[int, NDArray[np.int64]]) -> None:
        first, places = group
        generator(2, first).shuffle(places)
        found[first : first + places.size] = places

    run_side_by_side(put, _groups(group_of, size))
    return found


def _groups(group_of: Callable[[slice], NDArray[np.uint8]], size: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """As :func:`grouped`, of items by their ``group_of`` 256."""
    parts = slices(size)
    numbers = list(side_by_side(group_of, parts))
    counts = np.array([np.bincount(each, minlength=_GROUPS) for each in numbers])
    ends = np.cumsum(counts.sum(axis=0))
    begins = ends - counts[::-1].cumsum(axis=0)[::-1]  # of each part in each group
    places = np.empty(size, np.int64)

    def put(at: int) -> None:
        own = np.argsort(numbers[at], kind="stable") + parts[at].start
        numbers[at] = numbers[at][:0]
        last = 0
        for begin, count in zip(begins[at].tolist(), counts[at].tolist(), strict=True):
            places[begin : begin + count] = own[last : last + count]
            last += count

    run_side_by_side(put, range(len(parts)))
    firsts = np.append(0, ends)
    for first, end in zip(firsts[:-1].tolist(), ends.tolist(), strict=True):
        if end > first:
            yield first, places[first:end]
