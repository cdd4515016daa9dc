"""Ranges of vertices, one a rank, by the work of the vertices and the speed of the ranks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mmsbgen.kernels.family import Array

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
#: Work of a vertex beside that of its links, in links: its own row is read and written.
_OWN = 3


def work(offsets: Array) -> Ints:
    """Work ``[N + 1]`` of all vertices before each, in links, from the ``offsets`` ``[N + 1]`` of their neighbours."""
    found: Ints = offsets.astype(np.int64) + _OWN * np.arange(len(offsets), dtype=np.int64)
    return found


def bounds(before: Ints, speeds: Floats) -> Ints:
    """Bounds ``[ranks + 1]`` of the ranges: work in proportion to ``speeds`` ``[ranks]``, a vertex each at least.

    ``before`` is as :func:`work` returns it, of as many vertices as ranks or more.
    """
    size, n = len(speeds), len(before) - 1
    wanted = np.cumsum(speeds)[:-1] / speeds.sum() * before[-1]
    cuts = np.searchsorted(before, wanted)
    ranks = np.arange(1, size)
    # Each bound is above the one before and leaves a vertex for each rank after it.
    cuts = np.maximum.accumulate(np.maximum(cuts, ranks) - ranks) + ranks
    found: Ints = np.concatenate([[0], np.minimum(cuts, n - size + ranks), [n]]).astype(np.int64)
    return found


def pieces(before: Ints, cuts: Ints, count: int) -> Ints:
    """Bounds ``[ranks, count + 1]`` of pieces of the ranges ``cuts`` ``[ranks + 1]``, of about equal work each."""
    wanted = before[cuts[:-1], None] + np.diff(before[cuts])[:, None] * np.arange(count + 1) // count
    found: Ints = np.searchsorted(before, wanted).astype(np.int64)
    found[:, 0], found[:, -1] = cuts[:-1], cuts[1:]
    return found
