"""Mini-batches: which vertices are updated and which weighted pairs inform theta.

Strategies are registered by name.  Each gives weights whose expectation over the draw is exactly one for every
pair that is not held out (derivation: docs/statistics.md).  Random pairs are drawn here; of stars the centres and
weights are, and blocks have no pairs.  Draws are counter-based: they depend on the seed and
the iteration alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from mmsbgen.base.errors import InputError
from mmsbgen.families.mmsb.numbers.counter_random import below
from mmsbgen.families.mmsb.numbers.row_layout import Purpose
from mmsbgen.graph import EdgeSet, Split
from mmsbgen.sampler.options.options import Options

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class MiniBatch:
    """A mini-batch of random pairs.

    ``vertices`` ``[M]`` are distinct; ``pairs_a`` and ``pairs_b`` ``[P]`` are the ends of pairs.  ``weights`` ``[P]``
    are inverse probabilities, negative for non-links, 0 for pairs that must not count.
    """

    vertices: Ints
    pairs_a: Ints
    pairs_b: Ints
    weights: Floats


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
        return links / max(1.0, self.n_vertices * (self.n_vertices - 1) / 2 - links - held)


@dataclass(frozen=True)
class Registered:
    """The largest sizes of a strategy; ``stars`` is set if the device can draw it in advance."""

    max_vertices: Callable[[Sources], int]
    max_pairs: Callable[[Sources], int]
    stars: Callable[[Sources, int, int], Stars] | None = None


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


def random_node(sources: Sources, first: int, count: int, links: bool | None = None) -> Stars:
    """Stratified random node: the stars of ``count`` iterations from ``first`` on.

    A coin decides between all links of a vertex (h = N) and m of its non-links.  With ``links`` given there is only
    one stratum; every link is then drawn with chance 2/N.
    """
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


def random_pair(sources: Sources, iteration: int) -> MiniBatch:
    """Pairs drawn uniformly with replacement from all N(N-1)/2; held-out pairs get weight 0."""
    n, m, seed = sources.n_vertices, sources.options.size, sources.options.seed
    a = below(seed, np.arange(m), 0, iteration, Purpose.mini_batch_pair, n)
    b = below(seed, np.arange(m), 1, iteration, Purpose.mini_batch_pair, n - 1)
    b += b >= a
    weight = n * (n - 1) / 2 / m
    weights = np.where(sources.links.contains(a, b), weight, -weight * sources.nonlink_factor())
    weights[sources.held.contains(a, b) | (a == b)] = 0.0
    return MiniBatch(np.unique(np.concatenate([a, b])), a, b, weights)


def _most_non_links(sources: Sources) -> int:
    return min(sources.options.size, sources.n_vertices - 1)


def _largest_degree(sources: Sources) -> int:
    degrees = sources.split.training_adjacency.degrees
    return int(degrees.max(initial=0))


STRATEGIES: dict[str, Registered] = {
    "random-node": Registered(
        lambda s: 1 + max(_most_non_links(s), _largest_degree(s)),
        lambda s: max(_most_non_links(s), _largest_degree(s)),
        random_node,
    ),
    "random-node-link": Registered(
        lambda s: 1 + _largest_degree(s),
        _largest_degree,
        partial(random_node, links=True),
    ),
    "random-node-non-link": Registered(
        lambda s: 1 + _most_non_links(s),
        _most_non_links,
        partial(random_node, links=False),
    ),
    "random-pair": Registered(
        lambda s: min(2 * s.options.size, s.n_vertices),
        lambda s: s.options.size,
    ),
    "block": Registered(
        lambda s: min(s.options.size, s.n_vertices),
        lambda s: 0,
    ),
}


def strategy(name: str) -> Registered:
    """The strategy called ``name``; raises :class:`InputError`, with all names, if it is unknown."""
    if name not in STRATEGIES:
        raise InputError(f"mini-batch {name!r} is not one of {', '.join(sorted(STRATEGIES))}")
    return STRATEGIES[name]
