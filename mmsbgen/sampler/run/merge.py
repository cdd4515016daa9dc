"""Merging: join communities of the model that are parts of one.

With more communities than a graph has, starts split true ones, and updates of single vertices cannot join the parts.
Two communities become one if their members and links are told in fewer nats as those of one: the evidence against
chance minus the cost of naming the members (:func:`mmsbgen.sampler.run.prune.worth`) is then larger for the union than
for both.  Links from one to the other must also be more than by chance.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array, csr_array

from mmsbgen.graph.graph import AT_A_TIME
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics.explained_links import Array, Floats, Ints
from mmsbgen.sampler.diagnostics.state_rows import best_communities
from mmsbgen.sampler.run.prune import EMPTIED, members, worth
from mmsbgen.sampler.state.memory_needs import MOST_SPLIT
from mmsbgen.sampler.state.sparse_state import SparseState

#: Mass of a row in merged communities below which the row stays as it is.
_NEGLIGIBLE = 1e-4


class ExplainedBest(NamedTuple):
    """Links by the community that explains them best.

    ``inside`` ``[K]`` counts those between members, ``leaving`` ``[K, N]`` those from a member to each other vertex.
    """

    inside: Floats
    leaving: csr_array


def explained(links: Array, best: Ints, sets: csr_array) -> ExplainedBest:
    """Of ``links`` ``[E, 2]``, by their ``best`` communities ``[E]`` and the members ``sets`` ``[N, K]``."""
    n, k = sets.shape
    keys = np.repeat(np.arange(n), np.diff(sets.indptr)) * k + sets.indices
    one, other = (_among(links[:, end].astype(np.int64) * k + best, keys) for end in (0, 1))
    vertices = np.concatenate([links[one & ~other, 1], links[other & ~one, 0]]).astype(np.int64)
    of = np.concatenate([best[one & ~other], best[other & ~one]])
    leaving = coo_array((np.ones(of.size), (of, vertices)), shape=(k, n)).tocsr()
    return ExplainedBest(np.bincount(best[one & other], minlength=k).astype(np.float64), leaving)


def _among(values: Ints, keys: Ints) -> Array:
    """Which ``values`` are among the ascending ``keys``."""
    if not keys.size:
        return np.zeros(values.size, bool)
    at = np.searchsorted(keys, values).clip(max=keys.size - 1)
    found: Array = keys[at] == values
    return found


def joined(sets: csr_array, links: ExplainedBest, n_links: int, n: int) -> Ints:
    """The community ``[K]`` that each becomes: itself, or the larger one that it is merged into.

    ``sets`` ``[N, K]`` are the members; the graph has ``n_links`` and ``n`` vertices with links.  In each round the
    pairs with the largest gains merge, each community once, until none gains.
    """
    k = sets.shape[1]
    density, into = 2.0 * n_links / (n * (n - 1.0)), np.arange(k)
    inside, leaving = links
    while True:
        sizes = np.asarray(sets.sum(axis=0)).ravel()
        own = _gain(inside, sizes, density, n).clip(min=0.0)
        between = leaving @ sets
        # Links between two communities, and i times their common members: look-ups in rows would take longer.
        common = (between + between.T + 1j * (sets.T @ sets)).tocoo()
        one, other = common.coords
        pairs = np.flatnonzero((one < other) & (sizes[one] > 0) & (sizes[other] > 0))
        one, other, number = one[pairs], other[pairs], common.data[pairs]
        across, both = number.real, number.imag
        # Communities that are not linked with each other more often than by chance are no parts of one.
        near = np.flatnonzero(across >= density * (sizes[one] - both) * (sizes[other] - both))
        one, other, across, both = one[near], other[near], across[near], both[near]
        gains = _gain(inside[one] + inside[other] + across, sizes[one] + sizes[other] - both, density, n)
        gains -= own[one] + own[other]
        step, free, gain = np.arange(k), np.ones(k, bool), np.flatnonzero(gains > 0.0)
        for at in gain[np.argsort(-gains[gain], kind="stable")].tolist():
            first, second = sorted((int(one[at]), int(other[at])), key=lambda c: (-sizes[c], c))
            if free[first] and free[second]:
                free[[first, second]], step[second] = False, first
        if free.all():
            return into
        into = step[into]
        moves = coo_array((np.ones(k), (np.arange(k), step)), shape=(k, k)).tocsr()
        sets = sets @ moves
        sets.data[:] = 1.0
        leaving = moves.T @ leaving
        within = leaving.multiply(sets.T).tocsr()
        inside = np.bincount(step, inside, k) + np.asarray(within.sum(axis=1)).ravel()
        leaving = leaving - within


def _gain(links: Floats, sizes: Floats, density: float, n: int) -> Floats:
    """Nats that sets of ``sizes`` with ``links`` save."""
    found, cost = worth(links, density * sizes * (sizes - 1.0) / 2.0, sizes, n)
    return found - cost


def mergers(sampler: Sampler) -> Ints:
    """The community ``[K]`` that each of a chain becomes; itself for all in graphs of very many links."""
    split, k = sampler.split, sampler.shape.k
    if not 0 < split.n_training_links <= MOST_SPLIT:
        return np.arange(k)
    sets, _ = members(sampler)
    inside, leaving = np.zeros(k), csr_array((k, sets.shape[0]))
    for begin in range(0, split.graph.n_links, AT_A_TIME):
        links = split.training_part(begin)
        part = explained(links, best_communities(sampler, links)[0], sets)
        inside, leaving = inside + part.inside, leaving + part.leaving
    n_linked = int(np.count_nonzero(split.training_adjacency.degrees))
    return joined(sets, ExplainedBest(inside, leaving), split.n_training_links, n_linked)


def merge(sampler: Sampler) -> int:
    """Merge communities of a chain that are parts of one; returns how many are emptied by that."""
    into = mergers(sampler)
    gone = np.flatnonzero(into != np.arange(into.size))
    if not gone.size:
        return 0
    if isinstance(sampler.state, SparseState):
        kept, _ = sampler.state.entries()
        vertices, at = np.nonzero(np.isin(kept, gone))
        sources = kept[vertices, at].astype(np.int64)
        sampler.state.move(vertices, sources, into[sources], EMPTIED)
    else:
        for first, stop in sampler.state_chunks():
            rows = sampler.rows(first, stop)[0]
            at = np.flatnonzero(rows[:, gone].sum(axis=1) > _NEGLIGIBLE)
            if at.size:
                new = rows[at].astype(np.float64)
                np.add.at(new.T, into[gone], (1.0 - EMPTIED) * new[:, gone].T)
                new[:, gone] *= EMPTIED
                sampler.state.replace_rows(first + at, new, sampler.options.seed, sampler.iteration)
    theta = sampler.state.theta()
    np.add.at(theta.T, into[gone], theta[:, gone].T)
    sampler.set_theta(theta)
    return int(gone.size)
