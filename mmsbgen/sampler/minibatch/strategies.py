"""Mini-batches: which vertices are updated and which weighted pairs inform theta.

Strategies of stars give weights whose expectation over the draw is exactly one for every pair that is not held out
(derivation: docs/statistics.md).  Centres and weights are drawn here; blocks have no pairs.  Draws are counter-based:
they depend on the seed and the iteration alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mmsbgen.families.mmsb.numbers.counter_random import below
from mmsbgen.families.mmsb.numbers.row_layout import Purpose
from mmsbgen.graph import EdgeSet, Split
from mmsbgen.sampler.options.options import Options

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Sources:
    """Input of the strategies: the split graph, its edge sets, and the options."""

    split: Split
    links: EdgeSet
    held: EdgeSet
    options: Options

    @property
    def n_vertices(self) -> int:
        """N."""
        return self.split.graph.n_vertices

    def nonlink_factor(self) -> float:
        """Factor of the weights of non-links: 1, or with ``balanced`` the ratio of eligible links to non-links.

        The published programs balance, so that both strata have the same total weight.
        """
        if self.options.nonlink_weight == "exact":
            return 1.0
        links, held = self.split.n_training_links, len(self.split.held_out_pairs)
        n = self.n_vertices - (self.split.unlinked.size if self.options.block else 0)
        return links / max(1.0, n * (n - 1) / 2 - links - held)


@dataclass(frozen=True)
class Stars:
    """Host's part of the star-shaped mini-batches of R iterations; the device draws the other vertices.

    ``centres`` ``[R]``; ``sizes`` ``[R]``, number of vertices including the centre, 0 for an empty star; ``weights``
    ``[R]``, weight of each pair, negative for non-links.
    """

    centres: Ints
    sizes: Ints
    weights: Floats


def _draw(sources: Sources, iterations: Ints, number: int, bound: int) -> Ints:
    return below(sources.options.seed, number, 0, iterations, Purpose.mini_batch, bound)


#: Kinds of stars, by the only stratum of their pairs, links or non-links; None for both.
STARS = {"random-node": None, "random-node-link": True, "random-node-non-link": False}


def random_node(sources: Sources, first: int, count: int) -> Stars:
    """Stratified random node: the stars of ``count`` iterations from ``first`` on.

    A coin decides between all links of a vertex (h = N) and m of its non-links.  If there is only one stratum, every
    link is drawn with chance 2/N.
    """
    links = STARS[sources.options.mini_batch]
    n, iterations = sources.n_vertices, np.arange(first, first + count)
    centres = _draw(sources, iterations, 0, n)
    if links is None:
        is_link, share = _draw(sources, iterations, 1, 2) == 1, 1.0
    else:
        is_link, share = np.full(count, links), 0.5
    degrees = sources.split.training_adjacency.degrees[centres].astype(np.int64)
    eligible = n - 1 - degrees - sources.split.held_out_degree[centres].astype(np.int64)
    others = np.where(is_link, degrees, np.minimum(sources.options.size, eligible))
    non_link = share * sources.nonlink_factor() * n * eligible / np.maximum(others, 1)
    weights = np.where(is_link, share * n, -non_link)
    return Stars(centres, np.where(others > 0, others + 1, 0), weights)


def most_pairs(sources: Sources) -> int:
    """The largest number of pairs of a mini-batch; 0 for blocks."""
    links = STARS.get(sources.options.mini_batch)
    if sources.options.block:
        return 0
    most_links = int(sources.split.training_adjacency.degrees.max(initial=0)) if links is not False else 0
    most_non_links = min(sources.options.size, sources.n_vertices - 1) if links is not True else 0
    return max(most_links, most_non_links)
