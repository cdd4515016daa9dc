"""Sparse rows of pi: at most R entries a row, the largest first, and one value ``floor`` for every other community."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.base.processes import side_by_side

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
#: Community of an unused entry; unused entries follow the others.
NONE = 0xFFFFFFFF
# Of sweeps with noise.
#: Most communities all of which are candidates; from more, entrants are drawn.
EVERY = 64
#: Parts of the communities whose entrants are drawn one after another.
PARTS = 32
#: Threshold of phi over tau: the noise of a step forgets nearly all of what is smaller.
THRESHOLD = 0.2
#: Largest bound; above it, hardly any coordinate of the prior is.
MOST_BOUND = 4.0
#: Largest concentration of the prior where entrants are drawn: their chance is then well below 1.
MOST_ALPHA = 0.1
#: Rows whose columns are added up at a time, and those that are read together: their parts stay in a cache.
_ROWS, _CACHED = 1 << 20, 1 << 14


def expanded(communities: Array, values: Array, k: int, floor: float) -> Floats:
    """Dense rows ``[V, K]`` of sparse rows ``[V, R]``."""
    rows = np.full((len(communities), k), floor)
    vertex, entry = np.nonzero(communities != NONE)
    rows[vertex, communities[vertex, entry]] = values[vertex, entry]
    return rows


def kept(communities: Array, k: int) -> npt.NDArray[np.bool_]:
    """Which coordinates are kept ``[V, K]``."""
    mask = np.zeros((len(communities), k), bool)
    vertex, entry = np.nonzero(communities != NONE)
    mask[vertex, communities[vertex, entry]] = True
    return mask


def totals(communities: Array, values: Array, k: int, floor: float) -> Floats:
    """Sums of the columns ``[K]`` of all rows that have entries."""
    count = np.count_nonzero(communities[:, 0] != NONE)

    def of(first: int) -> Floats:
        found, end = np.zeros(k), min(first + _ROWS, len(communities))
        for begin in range(first, end, _CACHED):
            some, sizes = (array[begin : min(begin + _CACHED, end)] for array in (communities, values))
            used = some != NONE  # few of a start
            np.add.at(found, some[used].astype(np.intp), sizes[used].astype(np.float64) - floor)
        return found

    return sum(side_by_side(of, range(0, len(communities), _ROWS)), np.full(k, count * floor))


def filled(communities: Array, values: Array, k: int, floor: float) -> tuple[npt.NDArray[np.int64], Array]:
    """Entries whose unused places hold other communities, those with the smallest numbers, at the value ``floor``.

    Returns communities and values ``[V, min(R, K)]``.
    """
    r = min(communities.shape[1], k)
    found, sizes = communities[:, :r].astype(np.int64), values[:, :r].copy()
    unused = communities[:, :r] == NONE
    rows = np.flatnonzero(unused.any(axis=1))
    first = np.arange(min(2 * r, k))
    present = (found[rows, :, None] == first).any(axis=1)
    # Communities that a row does not keep come first, in ascending order.
    free = np.argsort(present, axis=1, kind="stable")
    rank = np.cumsum(unused[rows], axis=1) - 1
    found[rows] = np.where(unused[rows], np.take_along_axis(free, rank.clip(min=0), axis=1), found[rows])
    sizes[unused] = floor
    return found, sizes
