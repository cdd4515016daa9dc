"""Pruning: empty the communities of the model that the held-out pairs do not need.

With more communities than a graph has, the model spends the others on links that are chance: small sets of vertices
with a few more links than others.  A set's evidence is the log-likelihood ratio of its links against the density of the
graph, over the cost of naming its members, log C(N, n) (minimum description length).  Communities are removed in the
order of this ratio for as long as the held-out log-likelihood stays within one standard error (Breiman et al. 1984).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics import held_out
from mmsbgen.sampler.diagnostics.best_community import best_communities
from mmsbgen.sampler.diagnostics.explained_links import Floats, Ints
from mmsbgen.sampler.diagnostics.member_odds import member_chances
from mmsbgen.sampler.diagnostics.state_rows import row_source

#: Evidence over cost from which a community stays in any case.  At 1 it would be named by its links alone; half of that
#: keeps communities of small graphs, which overlap and have few members.
_KEPT = 0.5
#: A member has at least this number of links that the community explains best: more than chance, or most of its links.
_LEAST_LINKS, _LIKELY, _MOST = 2, 0.5, 0.5
#: Factor for the entries of removed communities, which must stay positive.
_EMPTIED = 1e-3
#: Mass of a row in removed communities below which the row stays as it is.
_NEGLIGIBLE = 1e-2
#: Elements of products of rows at a time.
_ELEMENTS = 1 << 20


def evidence(links: Ints, best: Ints, n_vertices: int, k: int) -> Floats:
    """Evidence over cost ``[K]`` of the communities; 0 for empty ones.

    ``best`` ``[E]`` is the community that explains each of the training links ``[E, 2]`` best.
    """
    degrees = np.bincount(links.ravel(), minlength=n_vertices)
    keys, counts = np.unique(best[:, None] * n_vertices + links, return_counts=True)
    keys, counts = keys[counts >= _LEAST_LINKS], counts[counts >= _LEAST_LINKS]
    communities, vertices = np.divmod(keys, n_vertices)
    chances = member_chances(vertices, communities, counts, degrees, k, residual=False)
    members = keys[(chances > _LIKELY) | (counts > _MOST * degrees[vertices])]
    sizes = np.bincount(members // n_vertices, minlength=k)
    ends = np.isin(best[:, None] * n_vertices + links, members)
    inside = np.bincount(best[ends.all(axis=1)], minlength=k)
    density = 2.0 * len(links) / (n_vertices * (n_vertices - 1.0))
    found = np.zeros(k)
    for community in np.flatnonzero(inside > density * sizes * (sizes - 1) / 2):
        size, count = int(sizes[community]), int(inside[community])
        chance = density * size * (size - 1) / 2
        ratio = count * math.log(count / chance) - count + chance
        found[community] = ratio / max(_log_choose(n_vertices, size), 1.0)
    return found


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
    known = (split.training_adjacency.degrees[pairs] > 0).all(axis=1)
    pairs, links = pairs[known], links[known]
    if min(np.count_nonzero(links), np.count_nonzero(~links)) < 2:
        return np.zeros(0, np.int64)
    best, _ = best_communities(sampler, split.training_links)
    ratios = evidence(split.training_links, best, split.graph.n_vertices, k)
    order = np.argsort(ratios, kind="stable")
    read, beta, delta = row_source(sampler, mean=False), sampler.state.beta()[order], sampler.options.crossing
    step, density = max(1, _ELEMENTS // k), split.graph.density
    mean, variance = np.zeros(k), np.zeros(k)
    for linked, share in ((True, density), (False, 1.0 - density)):
        of_class = pairs[links == linked]
        total, squares, count = np.zeros(k), np.zeros(k), len(of_class)
        for first in range(0, count, step):
            one, other = (read(end)[:, order].astype(np.float64) for end in of_class[first : first + step].T)
            logs = log_likelihoods(one, other, beta, delta, np.full(len(one), linked))
            lost = logs[:, :1] - logs
            total += lost.sum(axis=0)
            squares += (lost**2).sum(axis=0)
        mean += share * total / count
        variance += share**2 * (squares - total**2 / count).clip(min=0.0) / (count - 1) / count
    # Column c is without the first c communities, and one must stay.
    may_go = (mean <= np.sqrt(variance)) & (np.append(0.0, ratios[order][:-1]) < _KEPT)
    taken = int(np.flatnonzero(may_go)[-1])
    removed = np.sort(order[:taken])
    return removed if np.isin(removed, best).any() else removed[:0]


def prune(sampler: Sampler) -> int:
    """Empty the needless communities of a chain; returns their number."""
    removed = needless(sampler)
    if not removed.size:
        return 0
    options = sampler.options
    for first, stop in sampler.state_chunks():
        rows = sampler.rows(first, stop)[0]
        at = np.flatnonzero(rows[:, removed].sum(axis=1) > _NEGLIGIBLE)
        if at.size:
            new = rows[at].astype(np.float64)
            new[:, removed] *= _EMPTIED
            new /= new.sum(axis=1, keepdims=True)
            sampler.state.replace_rows(first + at, new, options.seed, sampler.iteration)
    return int(removed.size)
