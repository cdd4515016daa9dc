"""Ratings from files and from objects of other libraries, none of which is imported here."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mmsbgen.base.errors import InputError
from mmsbgen.ratings.rating_files import named_columns, read_ratings
from mmsbgen.ratings.ratings import Duplicates, Ratings, finite_ratings, of_columns


def as_ratings(source: Any, duplicates: Duplicates = "error", columns: Sequence[Any] | None = None) -> Ratings:
    """Return ``source`` as :class:`Ratings`, which ``fit`` and ``score`` take too.

    ``source`` is one of

    * the path of a file (:func:`mmsbgen.ratings.read_ratings`), or :class:`Ratings`;
    * a tuple ``(users, items, ratings)`` of arrays or lists ``[E]``, ids of any kind;
    * a scipy.sparse matrix of users by items, of which every stored entry is a rating, an explicit 0 too;
    * a data frame of pandas or polars or a pyarrow table, whose columns are found by their names.

    ``columns`` are those of user, item and rating in a file or a table: names, or for files numbers from 1 on.

    Raises:
        InputError: For anything else, for no rating, for ratings that are not finite, and for several ratings of a
            user and an item, unless ``duplicates`` is ``mean`` or ``last``.
    """
    if isinstance(source, Ratings):
        return _checked(source)
    if isinstance(source, str | os.PathLike):
        return read_ratings(source, columns=columns, duplicates=duplicates)
    if hasattr(source, "tocoo"):
        matrix = source.tocoo()
        users, items = (np.asarray(each) for each in (matrix.row, matrix.col))
        found = of_columns(users, items, matrix.data, "matrix", duplicates)
        return _whole(found, *matrix.shape)
    if isinstance(source, tuple | list) and len(source) == 3:
        return of_columns(source[0], source[1], source[2], "ratings", duplicates)
    names = getattr(source, "column_names", getattr(source, "columns", None))
    if names is not None and hasattr(source, "__getitem__"):
        places = named_columns(list(map(str, names)), columns, type(source).__name__)
        users, items, values = (source[list(names)[at]] for at in places)
        u, v = (each.to_pylist() if hasattr(each, "to_pylist") else each.to_list() for each in (users, items))
        return of_columns(u, v, values.to_numpy(), type(source).__name__, duplicates)
    raise InputError(
        f"a {type(source).__module__}.{type(source).__qualname__} holds no ratings; give a file, a scipy.sparse matrix "
        "of users by items, a data frame, or a tuple (users, items, ratings)"
    )


def _checked(given: Ratings) -> Ratings:
    values = finite_ratings(given.values, given.name)
    for what, places, ids in (("users", given.users, given.user_ids), ("items", given.items, given.item_ids)):
        right = getattr(places, "dtype", None) == np.uint32 and places.shape == values.shape
        if not right or int(places.max()) >= len(ids):
            raise InputError(f"{given.name}: {what} are not {values.size} uint32 indices below {len(ids)}: give such")
    return replace(given, values=values)


def _whole(found: Ratings, n_users: int, n_items: int) -> Ratings:
    """Ratings of a matrix, with all its rows and columns as ids."""
    users, items = found.user_ids[found.users], found.item_ids[found.items]
    return Ratings(
        users.astype(np.uint32),
        items.astype(np.uint32),
        found.values,
        np.arange(n_users),
        np.arange(n_items),
        found.name,
    )
