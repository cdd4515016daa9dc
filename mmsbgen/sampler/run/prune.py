"""Pruning: empty the communities of the model that the held-out pairs do not need.

With more communities than a graph has, the model spends the others on links that are chance: small sets of vertices
with a few more links than others.  A set's evidence is the log-likelihood ratio of its links against what chance or
another community predicts there, over the cost of naming its members, log C(N, n) (minimum description length).
Communities are removed in the order of this ratio: as many as leave the held-out log-likelihood within one standard
error (Breiman et al. 1984).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from mmsbgen.base.processes import chosen_in_parts, side_by_side
from mmsbgen.families.mmsb.numbers.sparse_rows import NONE
from mmsbgen.graph.graph import Adjacency
from mmsbgen.graph.ids import in_order
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics import held_out
from mmsbgen.sampler.diagnostics.explained_links import Array, Floats, Ints
from mmsbgen.sampler.diagnostics.member_odds import member_chances
from mmsbgen.sampler.diagnostics.state_rows import SparseRows, best_communities, row_source
from mmsbgen.sampler.starts.local_moving import even_parts
from mmsbgen.sampler.state.sparse_state import SparseState

if TYPE_CHECKING:
    from scipy.sparse import csr_array

#: Evidence over cost from which a community stays in any case.  At 1 it would be named by its links alone; half of that
#: keeps communities of small graphs, which overlap and have few members.
_KEPT = 0.5
#: A member has at least this number of links that the community explains best: more than chance, or most of its links.
_LEAST_LINKS, _LIKELY, _MOST = 2, 0.5, 0.5
#: Factor for the entries of removed communities, which must stay positive.
_EMPTIED = 1e-3
#: Mass of a row in removed communities below which the row stays as it is.
_NEGLIGIBLE = 1e-2
#: Pairs with sparse rows that a thread takes at a time.
_PAIRS = 1 << 12
#: Links that a thread takes at a time.
_LINKS = 1 << 20
#: Elements of products of rows at a time.
_ELEMENTS = 1 << 20


class Members(NamedTuple):
    """Members of communities, ``sets`` ``[N, K]`` of 0 and 1, and which communities explain a link best, ``used``."""

    sets: csr_array
    used: npt.NDArray[np.bool_]


def member_sets(vertices: Ints, communities: Ints, counts: Floats, degrees: Ints, k: int) -> csr_array:
    """Members ``[N, K]``, 0 or 1, of candidates ``[M]``: communities explain ``counts`` links of the vertices best.

    A candidate has at least :data:`_LEAST_LINKS` of them; a vertex has ``degrees`` ``[N]`` links.
    """
    from scipy.sparse import csr_array  # takes a tenth of a second, and all commands that run a chain load this module

    chances = member_chances(vertices, communities, counts, degrees, k, residual=False)
    own = np.flatnonzero((chances > _LIKELY) | (counts > _MOST * degrees[vertices]))
    at = vertices[own].astype(np.int64), communities[own].astype(np.int64)
    return csr_array((np.ones(own.size), at), shape=(degrees.size, k))


def members_by_links(links: Array, best: Ints, degrees: Ints, k: int) -> csr_array:
    """As :func:`member_sets`; ``best`` ``[E]`` is the community that explains each of ``links`` ``[E, 2]`` best."""
    n_vertices = degrees.size

    def of(part: slice) -> tuple[Array, ...]:
        """Communities times N plus vertices of a part of the communities, and their numbers of links."""
        own = np.flatnonzero((best >= part.start) & (best < part.stop))
        ends = in_order((best[own, None] * n_vertices + links[own]).ravel())[0]
        keys, counts = np.unique(ends, return_counts=True)
        several = counts >= _LEAST_LINKS
        return keys[several], counts[several].astype(np.float64)

    found = list(side_by_side(of, even_parts(np.bincount(best, minlength=k), _LINKS)))
    keys, counts = (np.concatenate([part[at] for part in found]) for at in (0, 1))
    communities, vertices = np.divmod(keys, n_vertices)
    return member_sets(vertices, communities, counts, degrees, k)


def members(sampler: Sampler) -> Members:
    """The members of a chain's communities, by the training links; the device counts those of sparse rows."""
    k, degrees = sampler.shape.k, sampler.split.training_adjacency.degrees
    if not sampler.options.sparse:
        links = sampler.split.training_links
        best, _ = best_communities(sampler, links)
        return Members(members_by_links(links, best, degrees, k), np.bincount(best, minlength=k) > 0)
    rows = SparseRows(sampler)
    explained, kept = rows.best_links(), rows.communities()
    numbers, of, r = explained.ravel(), kept.ravel(), explained.shape[1]

    def candidates(part: slice) -> tuple[Array, ...]:
        own = part.start + np.flatnonzero(numbers[part] >= _LEAST_LINKS)
        return (own // r).astype(np.uint32), of[own], numbers[own].astype(np.float64)

    vertices, communities, counts = chosen_in_parts(candidates, numbers.size)
    return Members(member_sets(vertices, communities, counts, degrees, k), rows.best_of(explained, kept) > 0)


def evidence(sets: csr_array, adjacency: Adjacency) -> Floats:
    """Evidence over cost ``[K]`` of communities with the members ``sets`` ``[N, K]``; 0 for empty ones.

    Links are compared with those by chance, or with those that another community predicts where these are more: of the
    pairs in the overlap with it, the share that it has linked of all its pairs.  The evidence, in nats, is a
    log-likelihood ratio of Poisson counts, and 0 where there are fewer links; the cost is that of naming the members.
    """
    from scipy.sparse import csr_array
    from scipy.special import gammaln

    n = sets.shape[0]
    offsets, neighbours = adjacency.offsets, adjacency.neighbours

    def of(part: slice) -> Floats:
        """Ends of links between members, of a part of the vertices."""
        begin, end = offsets[part.start], offsets[part.stop]
        rows = neighbours[begin:end].astype(np.int64), offsets[part.start : part.stop + 1] - begin
        own = csr_array((np.ones(int(end - begin)), *rows), shape=(part.stop - part.start, n))
        return np.asarray((own @ sets).multiply(sets[part]).sum(axis=0)).ravel()

    links = sum(side_by_side(of, even_parts(adjacency.degrees, _LINKS)), np.zeros(sets.shape[1])) / 2.0
    sizes = np.asarray(sets.sum(axis=0)).ravel()
    pairs = sizes * (sizes - 1.0) / 2.0
    shared = (sets.T @ sets).tocoo()
    own = shared.row != shared.col
    one, other, count = shared.row[own], shared.col[own], shared.data[own]
    predicted = np.zeros(sizes.size)
    np.maximum.at(predicted, one, count * (count - 1.0) / 2.0 * (links / pairs.clip(min=1.0))[other])
    linked = int(np.count_nonzero(adjacency.degrees))
    density = neighbours.size / (linked * (linked - 1.0))
    chance = np.maximum(density * pairs, predicted)
    more = links > chance
    found: Floats = np.zeros(sizes.size)
    found[more] = links[more] * np.log(links[more] / chance[more]) - links[more] + chance[more]
    cost = gammaln(linked + 1.0) - gammaln(sizes + 1.0) - gammaln(linked - sizes + 1.0)
    found /= np.maximum(cost, 1.0)
    return found


def log_likelihoods(first: Floats, second: Floats, beta: Floats, delta: float, links: npt.NDArray[np.bool_]) -> Floats:
    """Log-likelihoods ``[H, K]`` of pairs whose ends have the rows ``first`` and ``second`` ``[H, K]``.

    Column c is without the first c communities; rows are divided by what is left of them.
    """
    left = [np.cumsum(rows[:, ::-1], axis=1)[:, ::-1].clip(min=1e-6) for rows in (first, second)]
    both = first * second
    total = left[0] * left[1]
    same = np.cumsum(both[:, ::-1], axis=1)[:, ::-1] / total
    linked = np.cumsum((both * beta)[:, ::-1], axis=1)[:, ::-1] / total
    p = linked + delta * (1.0 - same).clip(min=0.0)
    return held_out.log_likelihoods(p, links[:, None])


def needless(sampler: Sampler) -> Ints:
    """The communities that the held-out pairs do not need, ascending; none if those explain no link best."""
    split, k = sampler.split, sampler.shape.k
    pairs, links = split.validation.pairs, np.asarray(split.validation.labels, bool)
    pairs, links = (np.delete(array, split.unlinked_validation, axis=0) for array in (pairs, links))
    if min(np.count_nonzero(links), np.count_nonzero(~links)) < 2:
        return np.zeros(0, np.int64)
    sets, used = members(sampler)
    ratios = evidence(sets, split.training_adjacency)
    order = np.argsort(ratios, kind="stable")
    density = split.density
    mean, variance = np.zeros(k), np.zeros(k)
    for linked, share in ((True, density), (False, 1.0 - density)):
        of_class = pairs[links == linked]
        count = len(of_class)
        total, squares = (_sparse_losses if sampler.options.sparse else _losses)(sampler, of_class, linked, order)
        mean += share * total / count
        variance += share**2 * (squares - total**2 / count).clip(min=0.0) / (count - 1) / count
    # Column c is without the first c communities, and one must stay.
    may_go = (mean <= np.sqrt(variance)) & (np.append(0.0, ratios[order][:-1]) < _KEPT)
    taken = int(np.flatnonzero(may_go)[-1])
    removed = np.sort(order[:taken])
    return removed if used[removed].any() else removed[:0]


def _losses(sampler: Sampler, pairs: Ints, linked: bool, order: Ints) -> tuple[Floats, Floats]:
    """Sums ``[K]`` of the losses in log-likelihood of ``pairs`` ``[H, 2]``, and of their squares.

    Column c is without the first c communities of ``order``.
    """
    read, k = row_source(sampler, mean=False), sampler.shape.k
    beta, delta, step = sampler.state.beta()[order], sampler.options.crossing, max(1, _ELEMENTS // k)
    total, squares = np.zeros(k), np.zeros(k)
    for first in range(0, len(pairs), step):
        one, other = (read(end)[:, order].astype(np.float64) for end in pairs[first : first + step].T)
        logs = log_likelihoods(one, other, beta, delta, np.full(len(one), linked))
        lost = logs[:, :1] - logs
        total += lost.sum(axis=0)
        squares += (lost**2).sum(axis=0)
    return total, squares


def _sparse_losses(sampler: Sampler, pairs: Ints, linked: bool, order: Ints) -> tuple[Floats, Floats]:
    """As :func:`_losses`, from the entries of sparse rows: losses change only where one of them is removed."""
    rows, k = SparseRows(sampler), sampler.shape.k
    rank = np.empty(k + 1, np.int64)
    rank[order], rank[k] = np.arange(k), k
    beta, delta = np.append(sampler.state.beta(), 0.0), sampler.options.crossing
    ends = [rows.entries(end) for end in pairs.T]
    total, squares = np.zeros(k + 2), np.zeros(k + 2)

    def compute(part: slice) -> tuple[Floats, Floats]:
        (one, first), (other, second) = ((entries[part], values[part]) for entries, values in ends)
        return _losses_of_entries(one, first, other, second, beta, delta, rank, sampler.shape.floor, linked)

    for lost, squared in side_by_side(compute, [slice(at, at + _PAIRS) for at in range(0, len(pairs), _PAIRS)]):
        total += lost
        squares += squared
    return np.cumsum(total)[:k], np.cumsum(squares)[:k]


def _losses_of_entries(
    one: Array,
    first: Array,
    other: Array,
    second: Array,
    beta: Floats,
    delta: float,
    rank: Ints,
    floor: float,
    linked: bool,
) -> tuple[Floats, Floats]:
    """What each removal adds to the sums, ``[K + 2]``, for pairs of the entries ``one`` and ``other`` ``[H, R]``."""
    k = rank.size - 1
    one, other = (np.where(entries == NONE, k, entries).astype(np.int64) for entries in (one, other))
    first, second = first.astype(np.float64), second.astype(np.float64)
    same = (one[:, :, None] == other[:, None, :]) & (one < k)[:, :, None]
    # What both have of a's entries, and of those that b alone keeps.
    both = first * np.where(same.any(axis=2), (same * second[:, None, :]).sum(axis=2), floor)
    alone = np.where(same.any(axis=1), 0.0, second * floor)
    # What each removal takes, in the order of removals: of a, of b (above the floor), of both, and of both times beta.
    zeros = np.zeros_like(first)
    parts = ((first - floor, zeros), (zeros, second - floor), (both, alone), (both * beta[one], alone * beta[other]))
    taken = np.stack([np.concatenate(part, axis=1) for part in parts])
    at = rank[np.concatenate([one, other], axis=1)]
    sequence = np.argsort(at, axis=1, kind="stable")
    at = np.take_along_axis(at, sequence, axis=1)
    removed = np.cumsum(np.take_along_axis(taken, sequence[None], axis=2), axis=2)
    left = (1.0 - removed[:2] - floor * (at + 1)).clip(min=1e-6)
    size = left[0] * left[1]
    same_left, linked_left = (taken[i].sum(axis=1)[:, None] - removed[i] for i in (2, 3))
    p = linked_left / size + delta * (1.0 - same_left / size).clip(min=0.0)
    start = taken[3].sum(axis=1) + delta * (1.0 - taken[2].sum(axis=1)).clip(min=0.0)
    logs = held_out.log_likelihoods(np.concatenate([start[:, None], p], axis=1).clip(min=0.0), np.array([[linked]]))
    lost = logs[:, :1] - logs
    # A removal at place c counts from column c + 1 on.
    columns = (at + 1).ravel()
    each, squares = (np.diff(sums, axis=1).ravel() for sums in (lost, lost**2))
    return np.bincount(columns, each, k + 2).astype(float), np.bincount(columns, squares, k + 2).astype(float)


def prune(sampler: Sampler) -> int:
    """Empty the needless communities of a chain; returns their number."""
    removed = needless(sampler)
    if not removed.size:
        return 0
    options = sampler.options
    if isinstance(sampler.state, SparseState):
        sampler.state.shrink(removed, _EMPTIED)
        return int(removed.size)
    for first, stop in sampler.state_chunks():
        rows = sampler.rows(first, stop)[0]
        at = np.flatnonzero(rows[:, removed].sum(axis=1) > _NEGLIGIBLE)
        if at.size:
            new = rows[at].astype(np.float64)
            new[:, removed] *= _EMPTIED
            new /= new.sum(axis=1, keepdims=True)
            sampler.state.replace_rows(first + at, new, options.seed, sampler.iteration)
    return int(removed.size)
