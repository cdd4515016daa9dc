"""Values that factors start from: by Philox, so that they depend on nothing but seed, side, row and coordinate."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_SIDES = {"user": 0, "item": 1, "order": 2}


def _generator(seed: int, purpose: str) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=np.array([seed, _SIDES[purpose]], np.uint64)))


def start_rows(seed: int, side: str, n_rows: int, n_factors: int, *, bias: bool) -> NDArray[Any]:
    """Factors ``[R, K]`` to start from, float64.

    ``side`` is ``user`` or ``item``.  With biases they are normal with deviation 0.1.  Without, uniform on
    [0, 2 / sqrt(K)): products then have a positive mean.  More rows of the same width begin with the same rows.
    """
    rng = _generator(seed, side)
    shape = n_rows, n_factors
    rows: NDArray[Any] = 0.1 * rng.standard_normal(shape) if bias else rng.random(shape) * (2.0 / np.sqrt(n_factors))
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
    order: NDArray[np.int64] = _generator(seed, "order").permutation(n_ratings)
    return order
