"""About K communities in large graphs, where one run of Leiden's algorithm on the whole graph takes a second or more.

Local moving at a high resolution (:mod:`mmsbgen.sampler.starts.local_moving`) finds many small communities.  The
resolution is then searched on the contracted graph, which has one vertex per small community.  At the resolution found,
vertices of the whole graph move once more: some came into the wrong small community.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from mmsbgen.graph.graph import Adjacency
from mmsbgen.sampler.starts.local_moving import Mover, Weighted, coarsened, corrected, in_threads

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: Resolution of local moving as a share of K.  A community at resolution g holds less than 1/g of all links' ends, so
#: there are more than K/4 communities; in a clustered graph there are many times as many.
_FINE = 0.25
#: Fewest small communities per community wanted, the factor by which the resolution rises, and the most tries.
_EACH, _FINER, _TRIES = 3, 4.0, 3
#: Small communities per community wanted, at which local moving ends.
_ENOUGH = 8
#: Links of a small community that count in the search: of a graph without clear communities it has hundreds, nearly all
#: of which are chance.
_STRONGEST = 64
#: Most runs on the contracted graph, and the accepted deviation from K as a share of K.
_RUNS, _NEAR = 12, 0.02


def labels_for(
    adjacency: Adjacency,
    k: int,
    fewest: float,
    seed: int,
    tell: Callable[[int], None],
    mover: Mover = in_threads,
) -> Ints:
    """Labels ``[N]`` of communities, of which about ``k`` have at least ``fewest`` vertices.

    ``tell`` is called with the number of searches for small communities that are done, ``mover`` finds the moves.
    """
    resolution, graph = max(1.0, _FINE * k), Weighted.of(adjacency)
    ends = max(1, graph.ends.size)
    for number in range(_TRIES):
        fine, contracted = coarsened(graph, resolution / ends, seed, _EACH * k, _ENOUGH * k, mover)
        tell(number + 1)
        if contracted.linked >= _EACH * k:
            break
        resolution *= _FINER

    clear = contracted.strongest(_STRONGEST)

    def merged(resolution: float) -> Ints:
        labels = coarsened(clear, resolution / ends, seed, mover=mover)[0]
        return corrected(clear, labels, resolution / ends, seed, mover)

    sizes = np.bincount(fine, minlength=contracted.volumes.size).astype(np.float64)
    labels, resolution = merged_to(merged, sizes, k, fewest, resolution)
    return corrected(graph, labels[fine], resolution / ends, seed, mover)


def merged_to(
    merged: Callable[[float], Ints], sizes: Floats, k: int, fewest: float, finest: float
) -> tuple[Ints, float]:
    """Labels ``[C]`` of about ``k`` communities of at least ``fewest`` vertices, and a resolution below ``finest``.

    ``merged`` gives the labels at a resolution, and ``sizes`` ``[C]`` count vertices.  As the resolution rises from 0,
    the number of such communities first rises, then falls as they become too small.
    """
    low, high = 0.0, finest
    resolution, least = finest / 16, np.inf
    best = np.arange(sizes.size), resolution
    tried: list[tuple[float, int]] = []
    for _ in range(_RUNS):
        labels = merged(resolution)
        count = int(np.count_nonzero(np.bincount(labels, sizes) >= fewest))
        if abs(count - k) < least:
            best, least = (labels, resolution), abs(count - k)
        if least <= _NEAR * k:
            break
        low, high = (resolution, high) if count < k else (low, resolution)
        tried.append((resolution, count))
        guess = between(tried, k)
        resolution = guess if low < guess < high else (low + high) / 2
    return best


def between(tried: list[tuple[float, int]], k: int) -> float:
    """The resolution for ``k`` communities, extrapolated linearly from the two nearest trials.

    The number of communities is nearly linear in the resolution, but not proportional to it.
    """
    (x, n), *others = sorted(tried, key=lambda one: abs(one[1] - k))[:2]
    for other_x, other_n in others:
        if other_n != n:
            return x + (k - n) * (other_x - x) / (other_n - n)
    return x * k / max(1, n)
