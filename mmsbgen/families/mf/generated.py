"""What is drawn by Philox: ratings of given shape and skew, and what factors start from.

A start depends on nothing but seed, side, row and coordinate.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.processes import run_side_by_side
from mmsbgen.ratings.orders import random_order

_SIDES = {"user": 0, "item": 1, "order": 2}
#: Rows that a thread draws at a time.
_ROWS = 1 << 16
#: Of the model in :func:`generated_ratings`.
_RANK, _PLANTED, _NOISE = 8, 0.45, 0.85


def generated_ratings(
    n_users: int, n_items: int, n_ratings: int, seed: int, *, skew: float = 1.0
) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.float64]]:
    """Ratings 1 to 5 with a planted structure of rank 8: users, items and ratings, ``[E]`` each, in random order.

    Users are as active as ``exp(1.1 z)``, items as popular as ``(rank + n / 178)^-skew``; cells are drawn from the
    product and are distinct.  A rating is ``3.6 + .4 z_u + .45 z_v`` plus a rank-8 product of deviation .45 plus
    ``.85 z``, rounded and clipped.  All numbers come from Philox, keyed by ``seed``.

    Raises:
        ValueError: More ratings than two thirds of all cells.
    """
    if 3 * n_ratings > 2 * n_users * n_items:
        raise ValueError(f"{n_ratings} distinct cells of {n_users} x {n_items} are too many")
    rng = np.random.Generator(np.random.Philox(key=np.array([seed, 3], np.uint64)))
    of_users = np.exp(1.1 * rng.standard_normal(n_users))
    of_items = rng.permutation((np.arange(n_items) + max(1.0, n_items / 178)) ** -skew)
    cells = np.zeros(0, np.int64)
    tried = 0
    while cells.size < n_ratings:
        if tried > 20:  # a few cells have nearly all of the product: fill up evenly
            of_users, of_items = np.sqrt(of_users), np.sqrt(of_items)
        missing = n_ratings - cells.size
        u = np.searchsorted(np.cumsum(of_users), rng.random(missing + missing // 8 + 8) * of_users.sum())
        v = np.searchsorted(np.cumsum(of_items), rng.random(u.size) * of_items.sum())
        # np.unique takes twenty times as long.
        drawn = np.minimum(u, n_users - 1) * n_items + np.minimum(v, n_items - 1)
        cells = np.sort(np.concatenate([cells, drawn]))
        cells = cells[np.diff(cells, prepend=-1) > 0]
        tried += 1
    cells = rng.permutation(cells)[:n_ratings]
    users, items = cells // n_items, cells % n_items
    planted_u, planted_v = rng.standard_normal((n_users, _RANK)), rng.standard_normal((n_items, _RANK))
    mean = 3.6 + 0.4 * rng.standard_normal(n_users)[users] + 0.45 * rng.standard_normal(n_items)[items]
    planted = np.einsum("ek,ek->e", planted_u[users], planted_v[items]) * (_PLANTED / np.sqrt(_RANK))
    ratings = np.clip(np.rint(mean + planted + _NOISE * rng.standard_normal(n_ratings)), 1, 5)
    return users.astype(np.uint32), items.astype(np.uint32), ratings


def start_rows(seed: int, side: str, n_rows: int, n_factors: int, *, bias: bool) -> NDArray[Any]:
    """Factors ``[R, K]`` to start from, float64.

    ``side`` is ``user`` or ``item``.  With biases they are normal with deviation 0.1.  Without, uniform on
    [0, 2 / sqrt(K)): products then have a positive mean.  More rows of the same width begin with the same rows.
    """
    rows = np.empty((n_rows, n_factors))

    def put(first: int) -> None:
        key, counter = np.array([seed, _SIDES[side]], np.uint64), [0, 0, 0, first]
        rng, part = np.random.Generator(np.random.Philox(key=key, counter=counter)), rows[first : first + _ROWS]
        if bias:
            rng.standard_normal(out=part)
            part *= 0.1
        else:
            rng.random(out=part)
            part *= 2.0 / np.sqrt(n_factors)

    run_side_by_side(put, range(0, n_rows, _ROWS))
    return rows


def start_factors(
    seed: int, n_users: int, n_items: int, n_factors: int, *, bias: bool
) -> tuple[NDArray[Any], NDArray[Any]]:
    """:func:`start_rows` of both sides."""
    user, item = (
        start_rows(seed, side, rows, n_factors, bias=bias) for side, rows in (("user", n_users), ("item", n_items))
    )
    return user, item


def order_of(seed: int, n_ratings: int) -> NDArray[np.int64]:
    """A random order of the ratings, int64 ``[E]``."""
    return random_order([seed, _SIDES["order"]], n_ratings)
