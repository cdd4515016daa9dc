"""About K communities in large graphs, where one run of Leiden's algorithm on the whole graph takes a second or more.

Local moving at a high resolution (:mod:`mmsbgen.sampler.starts.local_moving`) finds many small communities.  The
resolution is then searched on the contracted graph, which has one vertex per small community: there a run of Leiden's
algorithm (Traag, Waltman, van Eck 2019) takes hundredths of a second.  At the resolution found, vertices of the whole
graph move once more: some came into the wrong small community.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mmsbgen.graph.graph import Adjacency
from mmsbgen.sampler.starts.leiden import leiden, network
from mmsbgen.sampler.starts.local_moving import Mover, Weighted, coarsened, corrected, in_threads

if TYPE_CHECKING:
    import networkit

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


@dataclass(frozen=True)
class Contracted:
    """A graph contracted to one vertex for each of its ``C`` communities.

    Its weights count the original links between two communities, and in self-loops those within one and those that
    :meth:`Weighted.strongest` has put inside: in all as many as the graph has.  ``sizes`` ``[C]`` counts the vertices
    of a community.
    """

    graph: networkit.Graph
    sizes: Floats

    @classmethod
    def of(cls, contracted: Weighted, labels: Ints) -> Contracted:
        """The graph ``contracted`` by ``labels`` ``[N]``, as one of networkit."""
        count, first = contracted.volumes.size, contracted.own
        weights = contracted.weights
        assert weights is not None
        outside = np.bincount(first, weights, count)
        within = (contracted.volumes - outside) / 2
        once, alone = first < contracted.ends, np.flatnonzero(within)
        ends = np.stack([np.append(first[once], alone), np.append(contracted.ends[once], alone)], axis=1)
        return cls(
            network(count, ends, np.append(weights[once], within[alone]).astype(np.float64)),
            np.bincount(labels, minlength=count).astype(np.float64),
        )

    def leiden(self, resolution: float, seed: int) -> Ints:
        """Labels ``[C]`` of communities by the modularity of the original graph."""
        return leiden(self.graph, resolution, seed)


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
    for number in range(_TRIES):
        costs = resolution / max(1, graph.ends.size)
        fine, contracted = coarsened(graph, costs, seed, _EACH * k, _ENOUGH * k, mover)
        tell(number + 1)
        if contracted.linked >= _EACH * k:
            break
        resolution *= _FINER
    searched = Contracted.of(contracted.strongest(_STRONGEST), fine)
    merged, resolution = merged_to(searched, k, fewest, resolution, seed)
    return corrected(graph, merged[fine], resolution / max(1, graph.ends.size), seed, mover)


def merged_to(contracted: Contracted, k: int, fewest: float, finest: float, seed: int) -> tuple[Ints, float]:
    """Labels ``[C]`` of about ``k`` communities of at least ``fewest`` vertices, and a resolution below ``finest``.

    As the resolution rises from 0, the number of such communities first rises, then falls as they become too small.
    """
    low, high = 0.0, finest
    resolution, least = finest / 16, np.inf
    best = np.arange(contracted.sizes.size), resolution
    tried: list[tuple[float, int]] = []
    for _ in range(_RUNS):
        labels = contracted.leiden(resolution, seed)
        count = int(np.count_nonzero(np.bincount(labels, contracted.sizes) >= fewest))
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
