"""Ratings with the ids of their users and items."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import INTEGER, plural
from mmsbgen.base.processes import side_by_side
from mmsbgen.graph.files.tokens import Words
from mmsbgen.graph.files.words import ids_of_words, number_words
from mmsbgen.graph.ids import number_ids, number_integers
from mmsbgen.ratings.orders import grouped, items_at, order_by, random_order, slices

Duplicates = Literal["error", "mean", "last"]
_MOST_ROWS = 2**31


@dataclass(frozen=True, eq=False)
class Ratings:
    """Ratings, each of one user and one item.

    Attributes:
        users: uint32 ``[E]``, indices into ``user_ids``.
        items: uint32 ``[E]``, indices into ``item_ids``.
        values: float64 ``[E]``; of pairs without ratings NaN.
        user_ids: ``[m]``, as in the input.
        item_ids: ``[n]``.
        name: Of the input, for messages.
    """

    users: NDArray[np.uint32]
    items: NDArray[np.uint32]
    values: NDArray[np.float64]
    user_ids: NDArray[Any]
    item_ids: NDArray[Any]
    name: str = "ratings"

    def __len__(self) -> int:
        return self.users.size

    def __repr__(self) -> str:
        return f"Ratings({len(self)} of {self.user_ids.size} users and {self.item_ids.size} items)"

    def part(self, chosen: NDArray[Any]) -> Ratings:
        """Some of the ratings, by a mask or by places; users and items keep their numbers."""
        users, items, values = items_at(chosen, self.users, self.items, self.values)
        return Ratings(users, items, values, self.user_ids, self.item_ids, self.name)

    def cells(self, places: NDArray[Any] | slice) -> NDArray[np.int64]:
        """The cell of some ratings, int64: user times the number of items, plus item."""
        found: NDArray[np.int64] = self.users[places].astype(np.int64) * self.item_ids.size + self.items[places]
        return found

    def n_rated(self, users: NDArray[np.int64], items: NDArray[np.int64]) -> int:
        """How many of the cells of ``users`` and ``items`` ``[T]``, by their numbers here, have a rating."""
        asked = users * self.item_ids.size + items
        # Most ratings are sorted out by a table: all of 20 million take isin 40 s.
        maybe = np.zeros(1 << 24, bool)
        maybe[asked % maybe.size] = True

        def like(part: slice) -> NDArray[np.int64]:
            own = self.cells(part)
            return own[maybe[own % maybe.size]]

        return int(np.isin(asked, np.concatenate(list(side_by_side(like, slices(self.users.size))))).sum())

    def held_out(self, fraction: float, seed: int) -> tuple[Ratings, Ratings]:
        """The ratings to train on, and a random part of about ``fraction`` to evaluate on.

        Raises:
            InputError: For a fraction that leaves nothing of either.
        """
        count = round(fraction * len(self)) if 0 < fraction < 1 else 0
        if not 0 < count < len(self):
            raise InputError(
                f"holdout={fraction!r} of {plural(len(self), 'rating')}: give a part above 0 and below 1 that leaves "
                "some of both"
            )
        out = np.zeros(len(self), np.bool_)
        out[random_order([seed, 5], len(self))[:count]] = True
        return self.part(~out), self.part(out)


def numbered(ids: Any, what: str, name: str) -> tuple[NDArray[np.uint32], NDArray[Any]]:
    """Indices of ``ids`` ``[E]`` in the ordered distinct ones, and these; raises InputError for ids without a hash."""
    array = None if isinstance(ids, list | Words) else np.asarray(ids)
    places: NDArray[Any]
    if isinstance(ids, Words):
        words, places = number_words(ids)
        distinct = ids_of_words(words)
    elif array is not None and array.dtype.kind in "iu" and array.dtype != np.uint64:
        distinct, places = number_integers(array.astype(np.int64))
    else:
        places, distinct = number_ids(list(ids if array is None else array.tolist()), name=f"{name}: {what}")
    if distinct.size > _MOST_ROWS:
        raise InputError(f"{name} has {distinct.size} {what}; a factorisation can have {_MOST_ROWS}")
    return places.astype(np.uint32, copy=False), distinct


def looked_up(known: Mapping[Any, int], ids: Any, what: str) -> NDArray[np.int64]:
    """Indices ``[S]`` of ``ids`` ``[S]`` among the ``known``; -1 for others.

    The integer 7 and the text 7 are the same id, as other ids of a file decide which of them it gives.

    Raises:
        InputError: For ids that are no list of one dimension, or have no hash.
    """
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable) or getattr(ids, "ndim", 1) != 1:
        raise InputError(f"{ids!r}: give a list or an array of ids of {what}")
    every = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
    try:
        return np.fromiter((_index(known, each) for each in every), np.int64, len(every))
    except TypeError:
        raise InputError(f"an id of {what} is a list or has no hash otherwise: give a list of one dimension") from None


def _index(known: Mapping[Any, int], each: Any) -> int:
    at = known.get(each)
    if at is None and isinstance(each, int | np.integer):
        at = known.get(str(each))
    elif at is None and isinstance(each, str) and INTEGER.fullmatch(each):
        at = known.get(int(each))
    return -1 if at is None else at


def of_columns(users: Any, items: Any, values: Any, name: str, duplicates: Duplicates = "error") -> Ratings:
    """Ratings from three columns of equal length; see :func:`as_ratings`."""
    ratings = finite_ratings(values, name)
    if not len(users) == len(items) == ratings.size:
        raise InputError(
            f"{name}: {len(users)} users, {len(items)} items and {ratings.size} ratings; give as many of each"
        )
    (u, user_ids), (v, item_ids) = numbered(users, "users", name), numbered(items, "items", name)
    return unique_cells(Ratings(u, v, ratings, user_ids, item_ids, name), duplicates)


def finite_ratings(values: Any, name: str) -> NDArray[np.float64]:
    """Ratings, float64 ``[E]``; raises InputError for none, and for others than finite numbers of at most 1e15."""
    try:
        ratings = np.asarray(values)
        if ratings.dtype.kind == "c":
            raise TypeError
        ratings = ratings.astype(np.float64, copy=False).reshape(-1)
    except (TypeError, ValueError):
        raise InputError(f"{name}: ratings are no numbers; give integers or floats") from None
    if not ratings.size:
        raise InputError(f"{name} has no rating; give at least one: user, item, rating")

    def first_odd(part: slice) -> int | None:
        odd = ~(np.abs(ratings[part]) <= 1e15)
        return part.start + int(np.argmax(odd)) if odd.any() else None

    at = next((place for place in side_by_side(first_odd, slices(ratings.size)) if place is not None), None)
    if at is not None:
        raise InputError(
            f"{name}: row {at + 1} has the rating {ratings[at]}; leave such rows out, ratings are finite numbers of at "
            "most 1e15"
        )
    return ratings


def mean_and_deviation(values: NDArray[np.float64]) -> tuple[float, float]:
    """Mean and standard deviation of ``values`` ``[E]``, of at least one."""
    parts = slices(values.size)
    mean = sum(side_by_side(lambda part: float(values[part].sum()), parts)) / values.size
    squares = sum(side_by_side(lambda part: float(np.square(values[part] - mean).sum()), parts))
    return mean, float(np.sqrt(squares / values.size))


def unique_cells(found: Ratings, duplicates: Duplicates) -> Ratings:
    """The ratings with one a cell; of several the mean or the last, or InputError, as ``duplicates`` says."""
    if duplicates not in ("error", "mean", "last"):
        raise InputError(f"duplicates={duplicates!r}: give 'error', 'mean' or 'last'")

    def repeated(group: tuple[int, NDArray[np.int64]]) -> bool:
        ordered = found.cells(group[1])
        ordered.sort()
        return bool(np.any(ordered[1:] == ordered[:-1]))

    if not any(side_by_side(repeated, grouped(found.users))):
        return found
    order = order_by(found.items)
    order = order[order_by(found.users[order])]
    cells = found.cells(order)
    begins = np.flatnonzero(np.diff(cells, prepend=-1))
    if duplicates == "error":
        again = np.flatnonzero(np.diff(cells) == 0)[0]
        at = order[again]
        user, item = found.user_ids[found.users[at]], found.item_ids[found.items[at]]
        raise InputError(
            f"{found.name}: user {user} rates item {item} twice, {found.values[at]:g} and "
            f"{found.values[order[again + 1]]:g}; {plural(cells.size - begins.size, 'rating')} too many of such "
            "cells. Keep the last or the mean: --duplicates last or mean (as_ratings(..., duplicates='last') in Python)"
        )
    ends = np.append(begins[1:], cells.size)
    kept = order[ends - 1]
    values = found.values[kept]
    if duplicates == "mean":
        values = np.add.reduceat(found.values[order], begins) / (ends - begins)
    back = np.argsort(kept, kind="stable")  # in the order of the input
    kept, values = kept[back], values[back]
    return Ratings(found.users[kept], found.items[kept], values, found.user_ids, found.item_ids, found.name)
