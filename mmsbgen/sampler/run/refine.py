"""Refinement: refill empty communities with parts of others.

From any start, some communities of the model contain several true communities while others stay empty; updates of
single vertices cannot separate them.  Leiden's algorithm splits the links that a community explains.  If they fall
into parts, a part moves to an empty community, and the chain continues.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics.best_community import best_communities
from mmsbgen.sampler.diagnostics.explained_links import Array
from mmsbgen.sampler.diagnostics.state_rows import row_source
from mmsbgen.sampler.starts.leiden import leiden, modularity, network
from mmsbgen.sampler.starts.start_methods import by_label

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
#: Fewest links that a non-empty community explains best: those of a clique of three vertices.
_FEWEST_LINKS = 3
#: Fewest links of a community that may be split.
_ENOUGH_LINKS = 12
#: Modularity above which a community is split.  Splits of random graphs reach about sqrt((1 - p) / (p n)): less than
#: this from 40 vertices on if half of all pairs are linked, from 90 on if a third are, and more in smaller or sparser
#: graphs.
_MODULARITY = 0.15
#: Elements of rows processed at a time.
_ELEMENTS = 1 << 22
#: Share of its mass that a moved vertex keeps in the old community.
_KEPT = 0.1


@dataclass(frozen=True)
class Move:
    """A move of ``members`` ``[V]`` from community ``source`` to the empty community ``target``."""

    source: int
    target: int
    members: Ints


def moves(links: Ints, best: Ints, shares: Array, k: int, seed: int) -> list[Move]:
    """The moves: the most distinct parts, one for each empty community of ``k``.

    ``best`` ``[E]`` is the community that explains each of the training links ``[E, 2]`` best, ``shares`` ``[E]`` its
    share of p(link).
    """
    # An empty community has a little mass in every row by the prior, but explains no link best.
    empty = np.flatnonzero(np.bincount(best, minlength=k) < _FEWEST_LINKS)
    if not empty.size:
        return []
    clear = shares > 0.5
    parts = _parts(links[clear], best[clear], k, seed, empty.size)
    return [Move(source, int(target), members) for target, (_, source, members) in zip(empty, parts, strict=False)]


def _parts(links: Ints, labels: Ints, k: int, seed: int, most: int) -> list[tuple[float, int, Ints]]:
    """Score, community and members of the ``most`` best parts, by descending score.

    A part's score is the modularity of the split times its size; the largest part of a community stays.  Communities
    are split in descending order of size, until none of the others can have a part among the best.
    """
    found: list[tuple[float, int, Ints]] = []
    order = np.argsort(labels, kind="stable")
    groups = np.split(links[order], np.searchsorted(labels[order], np.arange(1, k)))
    n = int(links.max(initial=0)) + 1
    sizes = np.bincount(np.unique(labels[:, None] * n + links) // n, minlength=k)
    best: list[float] = []
    for community in np.argsort(-sizes, kind="stable").tolist():
        # Modularity is below 1, and all parts but the largest have at most half of the members.
        if len(best) == most and sizes[community] / 2 < best[0]:
            break
        group = groups[community]
        if len(group) < _ENOUGH_LINKS:
            continue
        members, index = np.unique(group, return_inverse=True)
        ends = index.reshape(group.shape)
        labels = leiden(network(members.size, ends), 1.0, seed)
        score = modularity(ends, labels)
        if score <= _MODULARITY:
            continue
        sets = [part for part in by_label(labels) if part.size > 2]
        for part in sets[1:]:
            found.append((score * part.size, community, members[part]))
            heapq.heappush(best, found[-1][0])
            if len(best) > most:
                heapq.heappop(best)
    return sorted(found, key=lambda part: (-part[0], part[1], int(part[2][0])))[:most]


def moved(pi: Floats, vertices: Ints, wanted: list[Move]) -> Floats:
    """pi ``[V, K]`` of ``vertices`` ``[V]``, ascending, after the moves; row sums are unchanged.

    Members outside the range of ``vertices`` are skipped; members inside it must be among them.
    """
    new = pi.copy()
    for move in wanted:
        inside = (move.members >= vertices[0]) & (move.members <= vertices[-1])
        at = np.searchsorted(vertices, move.members[inside])
        new[at, move.target] += (1.0 - _KEPT) * new[at, move.source]
        new[at, move.source] *= _KEPT
    return new


def refine(sampler: Sampler) -> int:
    """Move parts into the empty communities of a chain; returns the number of communities filled."""
    options, links = sampler.options, sampler.split.training_links
    best, shares = best_communities(sampler, links)
    wanted = moves(links, best, shares, sampler.shape.k, options.seed + sampler.iteration)
    if wanted:
        rows = row_source(sampler, mean=False)
        vertices = np.unique(np.concatenate([move.members for move in wanted]))
        step = max(1, _ELEMENTS // sampler.shape.k)
        split = np.split(vertices, range(step, len(vertices), step))
        parts = ((part, moved(rows(part).astype(np.float64), part, wanted)) for part in split)
        sampler.state.replace_parts(parts, options.seed, sampler.iteration)
        theta = sampler.state.theta()
        for move in wanted:
            theta[:, move.target] = theta[:, move.source] = theta[:, move.source] / 2
        sampler.set_theta(theta)
    course = sampler.course.refined(sampler.iteration, len(wanted), sampler.per_sweep)
    sampler.restore(sampler.chain._replace(course=course))
    return len(wanted)
