"""Mini-batches as the host draws them: the reference for the kernel ``draw_stars``, and for blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mmsbgen.families.mmsb.numbers import partner_rule
from mmsbgen.sampler.minibatch import strategies
from mmsbgen.sampler.minibatch.block_sweeps import Sweeps
from mmsbgen.sampler.minibatch.strategies import Floats, Ints, Sources

NONE: Ints = np.zeros(0, np.int64)


@dataclass(frozen=True)
class MiniBatch:
    """Distinct ``vertices`` ``[M]``, and the ends ``[P]`` and signed weights ``[P]`` of pairs."""

    vertices: Ints
    pairs_a: Ints
    pairs_b: Ints
    weights: Floats


def sweeps_of(sources: Sources) -> Sweeps:
    """The blocks of a run."""
    return Sweeps(sources.split, sources.options.size, sources.options.seed)


def host_batch(sources: Sources, iteration: int) -> MiniBatch:
    """The mini-batch of an iteration."""
    if sources.options.block:
        return MiniBatch(block_of(sweeps_of(sources), iteration).astype(np.int64), NONE, NONE, np.zeros(0))
    stars = strategies.random_node(sources, iteration, 1)
    centre, weight = int(stars.centres[0]), float(stars.weights[0])
    if not stars.sizes[0]:
        return MiniBatch(NONE, NONE, NONE, np.zeros(0))
    if weight > 0:
        others = sources.split.training_adjacency.row(centre).astype(np.int64)
    else:
        others = distinct_non_links(sources, centre, iteration)
    vertices, pairs = np.concatenate([[centre], others]), np.full(others.size, centre)
    return MiniBatch(vertices, pairs, others, np.full(others.size, weight))


def block_of(sweeps: Sweeps, iteration: int) -> NDArray[np.uint32]:
    """The vertices of an iteration of blocks; iterations count from 1."""
    sweep, part = divmod(iteration - 1, sweeps.per_sweep)
    order, starts = sweeps.order(sweep)
    return order[starts[part] : starts[part + 1]]


def eligible(sources: Sources, vertex: int) -> int:
    """Number of non-links of a vertex that may be drawn: all other vertices minus its links and held-out pairs."""
    degree = sources.split.training_adjacency.row(vertex).size
    return sources.n_vertices - 1 - degree - int(sources.split.held_out_degree[vertex])


def distinct_non_links(sources: Sources, vertex: int, iteration: int) -> Ints:
    """Distinct eligible non-neighbours of ``vertex``: ``mini_batch_size`` of them, or all if there are fewer.

    They are the first of a random permutation of all vertices that are neither linked nor held out nor ``vertex``.
    """
    n, wanted = sources.n_vertices, min(sources.options.size, eligible(sources, vertex))
    adjacency, held = sources.split.training_adjacency, sources.split.held_out_adjacency
    refused = {*adjacency.row(vertex).tolist(), *held.row(vertex).tolist()}
    return partner_rule.distinct_non_links(vertex, n, refused, wanted, sources.options.seed, iteration)
