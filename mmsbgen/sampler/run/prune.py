"""Pruning: empty the communities of the model that the held-out pairs do not need.

With more communities than a graph has, the model spends the others on links that are chance: small sets of vertices
with a few more links than others.  A set's evidence is the log-likelihood ratio of its links against the density of the
graph, over the cost of naming its members, log C(N, n) (minimum description length).  Communities are removed in the
order of this ratio: as many as leave the held-out log-likelihood within one standard error (Breiman et al. 1984).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mmsbgen.base.processes import chosen_in_parts, side_by_side
from mmsbgen.families.mmsb.numbers.sparse_rows import NONE
from mmsbgen.graph.graph import repeated
from mmsbgen.graph.ids import in_order
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics import held_out
from mmsbgen.sampler.diagnostics.explained_links import Array, Floats, Ints
from mmsbgen.sampler.diagnostics.member_odds import member_chances
from mmsbgen.sampler.diagnostics.state_rows import SparseRows, best_communities, row_source
from mmsbgen.sampler.starts.local_moving import even_parts
from mmsbgen.sampler.state.sparse_state import SparseState

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


#: Takes which candidates ``[M]`` are members; returns how many links between members each community has, ``[K]``.
_Inside = Callable[[npt.NDArray[np.bool_]], Array]


class _Counted(NamedTuple):
    """Candidates ``[M]``: communities explain ``counts`` links of the vertices best, at least _LEAST_LINKS each."""

    vertices: Ints
    communities: Ints
    counts: Floats
    inside: _Inside

    def evidence(self, degrees: Ints, k: int, n_links: int) -> Floats:
        """Evidence over cost ``[K]`` of the communities of a graph of ``n_links``; 0 for empty ones."""
        n_vertices = int(np.count_nonzero(degrees))
        chances = member_chances(self.vertices, self.communities, self.counts, degrees, k, residual=False)
        members = (chances > _LIKELY) | (self.counts > _MOST * degrees[self.vertices])
        sizes = np.bincount(self.communities[members], minlength=k)
        inside = self.inside(members)
        density = 2.0 * n_links / (n_vertices * (n_vertices - 1.0))
        found = np.zeros(k)
        for community in np.flatnonzero(inside > density * sizes * (sizes - 1) / 2):
            size, count = int(sizes[community]), int(inside[community])
            chance = density * size * (size - 1) / 2
            ratio = count * math.log(count / chance) - count + chance
            found[community] = ratio / max(_log_choose(n_vertices, size), 1.0)
        return found


def evidence(links: Array, best: Ints, degrees: Ints, k: int) -> Floats:
    """Evidence over cost ``[K]`` of the communities; 0 for empty ones.

    ``best`` ``[E]`` is the community that explains each of the training links ``[E, 2]`` best, ``degrees`` ``[N]``
    counts the links of each vertex.
    """
    n_vertices = degrees.size

    def of(part: slice) -> tuple[Ints, _InOrder]:
        """The links of a part of the communities, and the ends of these by community and vertex."""
        own = np.flatnonzero((best >= part.start) & (best < part.stop))
        return own, _sorted_ends((best[own, None] * n_vertices + links[own]).ravel())

    ordered = list(side_by_side(of, even_parts(np.bincount(best, minlength=k), _LINKS)))
    keys, counts = (np.concatenate([ends[at] for _, ends in ordered]) for at in (0, 1))
    several = counts >= _LEAST_LINKS
    communities, vertices = np.divmod(keys[several], n_vertices)
    firsts = np.cumsum([0, *(ends.keys.size for _, ends in ordered)])

    def inside(members: npt.NDArray[np.bool_]) -> Ints:
        is_member = np.zeros(keys.size, bool)
        is_member[several] = members

        def of_part(number: int) -> Ints:
            own, ends = ordered[number]
            of_ends = np.empty(own.size * 2, bool)
            of_ends[ends.places] = repeated(is_member[firsts[number] : firsts[number + 1]].view(np.uint8), ends.counts)
            return np.bincount(best[own[of_ends[::2] & of_ends[1::2]]], minlength=k)

        return sum(side_by_side(of_part, range(len(ordered))), np.zeros(k, np.int64))

    return _Counted(vertices, communities, counts[several], inside).evidence(degrees, k, len(links))


def sparse_evidence(sampler: Sampler) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """As :func:`evidence`, of sparse rows; the device counts the links.  And which communities explain a link best."""
    rows, k, adjacency = SparseRows(sampler), sampler.shape.k, sampler.split.training_adjacency
    counts, communities = rows.best_links(), rows.communities()
    numbers, kept, r = counts.ravel(), communities.ravel(), counts.shape[1]

    def candidates(part: slice) -> tuple[Array, ...]:
        own = part.start + np.flatnonzero(numbers[part] >= _LEAST_LINKS)
        return own, (own // r).astype(np.uint32), kept[own], numbers[own].astype(np.float64)

    at, vertices, of, explained = chosen_in_parts(candidates, numbers.size)

    def inside(members: npt.NDArray[np.bool_]) -> Array:
        mask, own = np.zeros(counts.size, bool), np.flatnonzero(members)
        mask[at[own]] = True
        both = rows.best_links(mask.reshape(counts.shape)).ravel()[at[own]]
        return np.bincount(of[own], both, k) / 2  # at both ends

    counted = _Counted(vertices, of, explained, inside)
    return counted.evidence(adjacency.degrees, k, adjacency.neighbours.size // 2), rows.best_of(counts, communities) > 0


class _InOrder(NamedTuple):
    """Distinct ``keys`` ``[U]``, ascending, their ``counts`` ``[U]``, and the ``places`` ``[M]`` of all in order."""

    keys: Ints
    counts: Ints
    places: Ints


def _sorted_ends(keys: Ints) -> _InOrder:
    """The ``keys`` ``[M]`` in order."""
    ascending, places = in_order(keys)
    starts = np.flatnonzero(np.concatenate([np.ones(min(1, keys.size), bool), ascending[1:] != ascending[:-1]]))
    return _InOrder(ascending[starts], np.diff(np.append(starts, keys.size)), places)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


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
    if sampler.options.sparse:
        ratios, used = sparse_evidence(sampler)
    else:
        training = split.training_links
        best, _ = best_communities(sampler, training)
        ratios, used = evidence(training, best, split.training_adjacency.degrees, k), np.bincount(best, minlength=k) > 0
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
