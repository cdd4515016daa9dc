"""Leiden's communities at a resolution that gives K of them, where one run on the whole graph takes a second.

One run at a high resolution finds many small communities.  In the graph that has one vertex for each of these a run
takes hundredths of a second, so that the search for the resolution goes on there (Traag, Waltman, van Eck 2019 merge
communities in just this way, level by level).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import igraph

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: Share of K that the resolution of the first run is.  A community of modularity at resolution g holds less than 1/g of
#: all links' ends, so that there are more than K/4; where links gather at all there are many times as many.
_FINE = 0.25
#: Small communities that there must be for each of K, and by what the resolution rises until there are.
_EACH, _FINER, _TRIES = 3, 4.0, 3
#: Runs on the graph of communities in search of a resolution, and the share of K by which it may miss.
_RUNS, _NEAR = 12, 0.02


def graph_of(n: int, links: Ints) -> igraph.Graph:
    """igraph's graph of ``n`` vertices and ``links`` ``[E, 2]``, in their order.

    Its constructor takes three times as long for the same.
    """
    import igraph

    graph = igraph.Graph(n=n)
    graph.add_edges(links)
    return graph


@dataclass(frozen=True)
class Contracted:
    """A graph with one vertex for each of ``C`` communities of another of ``n_links`` links.

    ``weights`` counts the links behind each of its links, ``ends`` ``[C]`` the ends of links in each community,
    ``sizes`` ``[C]`` the vertices.
    """

    graph: igraph.Graph
    weights: Floats
    ends: Floats
    sizes: Floats
    n_links: int

    @classmethod
    def of(cls, links: Ints, labels: Ints) -> Contracted:
        """Contract ``labels`` ``[N]``, from 0 on without gaps, of the graph of ``links`` ``[E, 2]``."""
        count, degrees = int(labels.max()) + 1, np.bincount(links.ravel(), minlength=labels.size)
        pairs = np.sort(labels[links], axis=1)
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
        keys, weights = np.unique(pairs[:, 0] * count + pairs[:, 1], return_counts=True)
        return cls(
            graph_of(count, np.stack(np.divmod(keys, count), axis=1)),
            weights.astype(np.float64),
            np.bincount(labels, degrees, minlength=count).astype(np.float64),
            np.bincount(labels, minlength=count).astype(np.float64),
            len(links),
        )

    def leiden(self, resolution: float) -> Ints:
        """Labels ``[C]`` of communities for the modularity of the graph that was contracted.

        igraph takes links from a vertex to itself for others; the ends of all links as the vertices' weights say the
        same without them.
        """
        if not self.weights.size:
            return np.arange(self.sizes.size)
        found: Any = self.graph.community_leiden(
            objective_function="CPM",
            resolution=resolution / (2 * self.n_links),
            weights=self.weights.tolist(),
            node_weights=self.ends.tolist(),
            n_iterations=2,
        )
        return np.asarray(found.membership)


def labels_for(graph: igraph.Graph, links: Ints, k: int, fewest: float, tell: Callable[[int], None]) -> Ints:
    """Labels ``[N]`` of Leiden's communities, of which about ``k`` have ``fewest`` vertices or more.

    ``graph`` is igraph's of ``links`` ``[E, 2]``; ``tell`` hears how many runs on all of it are done.
    """
    resolution = max(1.0, _FINE * k)
    for number in range(_TRIES):
        fine = _run(graph, resolution)
        tell(number + 1)
        if int(fine.max()) + 1 >= _EACH * k:
            break
        resolution *= _FINER
    merged = merged_to(Contracted.of(links, fine), k, fewest, resolution)
    return merged[fine]


def merged_to(contracted: Contracted, k: int, fewest: float, finest: float) -> Ints:
    """Labels ``[C]`` that make about ``k`` communities of ``fewest`` vertices or more, by resolutions below ``finest``.

    Raising the resolution from 0 first makes more of these, and then cuts them too small.
    """
    low, high = 0.0, finest
    resolution, best, least = finest / 16, np.arange(contracted.sizes.size), np.inf
    tried: list[tuple[float, int]] = []
    for _ in range(_RUNS):
        labels = contracted.leiden(resolution)
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
    """The resolution for ``k`` communities on the line through the two tried that come nearest.

    The number of communities goes much like a line in the resolution, but not like one through 0.
    """
    (x, n), *others = sorted(tried, key=lambda one: abs(one[1] - k))[:2]
    for other_x, other_n in others:
        if other_n != n:
            return x + (k - n) * (other_x - x) / (other_n - n)
    return x * k / max(1, n)


def _run(graph: igraph.Graph, resolution: float) -> Ints:
    found: Any = graph.community_leiden(objective_function="modularity", resolution=resolution, n_iterations=1)
    return np.asarray(found.membership)
