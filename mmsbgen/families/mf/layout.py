"""How rows and ratings lie in memory: padded rows, cells of tiles, rows by user or item."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["balanced", "by_row", "cells_of_tiles", "padded", "padded_width"]

Array = NDArray[Any]
#: Rows have a multiple of so many coordinates.
_PAD = 16


def padded_width(n_factors: int) -> int:
    """Coordinates of a row in memory: ``n_factors`` rounded up to a multiple of 16."""
    return -(-n_factors // _PAD) * _PAD


def padded(rows: Array, dtype: Any) -> Array:
    """Rows ``[R, K]`` as ``[R, LD]``; what is added is 0, and stays 0 under every kernel."""
    found: Array = np.zeros((rows.shape[0], padded_width(rows.shape[1])), dtype)
    found[:, : rows.shape[1]] = rows
    return found


def balanced(degrees: Array, groups: int) -> Array:
    """The group, uint32 ``[R]``, of rows of ``degrees`` ``[R]``: the longest first into the emptiest (Graham 1969)."""
    found = np.empty(degrees.size, np.uint32)
    filled = [(0, group) for group in range(groups)]
    order = np.argsort(-degrees.astype(np.int64), kind="stable")
    for row, degree in zip(order.tolist(), degrees[order].tolist(), strict=True):
        load, group = filled[0]
        found[row] = group
        heapq.heapreplace(filled, (load + degree, group))
    return found


def cells_of_tiles(users: Array, items: Array, n_users: int, n_items: int, tiles: int) -> tuple[Array, Array]:
    """Where ratings go for a sweep by wrapped tiles.

    Users and items are in ``tiles`` groups each, of about as many ratings.  Cell (J, I) has the ratings of user group J
    and item group I; cells with the same ``(J - I) mod tiles`` share no row.

    Returns:
        The ratings, int64 ``[E]``, in the order of ``(J - I) mod tiles``, then of I, then as given; and the first of
        each cell, uint32 ``[tiles * tiles + 1]``.
    """
    of_user = balanced(np.bincount(users, minlength=n_users), tiles)
    of_item = balanced(np.bincount(items, minlength=n_items), tiles)
    at = of_item[items].astype(np.int64)
    cell = (of_user[users].astype(np.int64) - at) % tiles * tiles + at
    order = _sorted(cell)
    cells = np.zeros(tiles * tiles + 1, np.uint32)
    np.cumsum(np.bincount(cell, minlength=tiles * tiles), out=cells[1:])
    return order, cells


def by_row(rows: Array, n_rows: int) -> tuple[Array, Array]:
    """Ratings by their ``rows`` ``[E]``, then as given, int64 ``[E]``; and the first of each, uint32 ``[R + 1]``."""
    offsets = np.zeros(n_rows + 1, np.uint32)
    np.cumsum(np.bincount(rows, minlength=n_rows), out=offsets[1:])
    return _sorted(rows), offsets


def _sorted(keys: Array) -> Array:
    """The places of ``keys`` below 2^32 in their order, equal ones as given: by 16 bits, which NumPy sorts by radix."""
    order = np.argsort((keys & 0xFFFF).astype(np.uint16), kind="stable")
    if keys.size and keys.max() > 0xFFFF:
        order = order[np.argsort((keys[order] >> 16).astype(np.uint16), kind="stable")]
    return order
