"""About K communities by Leiden's algorithm in large graphs, where one run on the whole graph takes a second or more.

One run at a high resolution finds many small communities.  The resolution is then searched on the contracted graph,
which has one vertex per small community: there a run takes hundredths of a second.  The levels of Leiden's algorithm
(Traag, Waltman, van Eck 2019) merge communities in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mmsbgen.sampler.starts.leiden import leiden, network

if TYPE_CHECKING:
    import networkit

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: Resolution of the first run as a share of K.  A community at resolution g holds less than 1/g of all links' ends, so
#: there are more than K/4 communities; in a clustered graph there are many times as many.
_FINE = 0.25
#: Fewest small communities per community wanted, the factor by which the resolution rises, and the most runs.
_EACH, _FINER, _TRIES = 3, 4.0, 3
#: Most runs on the contracted graph, and the accepted deviation from K as a share of K.
_RUNS, _NEAR = 12, 0.02
#: Iterations of Leiden's algorithm in the whole graph.
_WHOLE = 2


@dataclass(frozen=True)
class Contracted:
    """A graph with ``n_links`` links, contracted to one vertex for each of its ``C`` communities.

    Its weights count the original links between two communities, and in self-loops those within one.  ``sizes``
    ``[C]`` counts the vertices of a community.
    """

    graph: networkit.Graph
    sizes: Floats

    @classmethod
    def of(cls, links: Ints, labels: Ints) -> Contracted:
        """Contract the graph of ``links`` ``[E, 2]`` by ``labels`` ``[N]``, which count from 0 without gaps."""
        count = int(labels.max()) + 1
        pairs = np.sort(labels[links], axis=1)
        keys, weights = np.unique(pairs[:, 0] * count + pairs[:, 1], return_counts=True)
        return cls(
            network(count, np.stack(np.divmod(keys, count), axis=1), weights.astype(np.float64)),
            np.bincount(labels, minlength=count).astype(np.float64),
        )

    def leiden(self, resolution: float, seed: int) -> Ints:
        """Labels ``[C]`` of communities by the modularity of the original graph."""
        return leiden(self.graph, resolution, seed)


def labels_for(
    graph: networkit.Graph, links: Ints, k: int, fewest: float, seed: int, tell: Callable[[int], None]
) -> Ints:
    """Labels ``[N]`` of Leiden's communities, of which about ``k`` have at least ``fewest`` vertices.

    ``graph`` is the networkit graph of ``links`` ``[E, 2]``; ``tell`` is called with the number of runs done on it.
    """
    resolution = max(1.0, _FINE * k)
    for number in range(_TRIES):
        fine = leiden(graph, resolution, seed, _WHOLE)
        tell(number + 1)
        if int(fine.max()) + 1 >= _EACH * k:
            break
        resolution *= _FINER
    merged = merged_to(Contracted.of(links, fine), k, fewest, resolution, seed)
    return merged[fine]


def merged_to(contracted: Contracted, k: int, fewest: float, finest: float, seed: int) -> Ints:
    """Labels ``[C]`` with about ``k`` communities of at least ``fewest`` vertices, for resolutions below ``finest``.

    As the resolution rises from 0, the number of such communities first rises, then falls as they become too small.
    """
    low, high = 0.0, finest
    resolution, best, least = finest / 16, np.arange(contracted.sizes.size), np.inf
    tried: list[tuple[float, int]] = []
    for _ in range(_RUNS):
        labels = contracted.leiden(resolution, seed)
        count = int(np.count_nonzero(np.bincount(labels, contracted.sizes) >= fewest))
        if abs(count - k) < least:
            best, least = labels, abs(count - k)
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
