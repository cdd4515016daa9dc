"""Chances that vertices are members of communities, by how many of their links the communities explain.

Of a vertex with d links a community explains x.  If the vertex is a member, x is binomial with a share of the links
that is its own; the shares of all memberships of the graph have one distribution, over a grid.  If it is none, x is
binomial with the probability that a link falls on the community by chance.  A mixture of both, in which a community of
n members has the prior n / N, is fitted by expectation and maximisation; for the shares that is the non-parametric
maximum-likelihood estimate of Laird (1978).  The bar for membership thus follows the overlap and the mixing of the
graph: a tenth of its links makes a member where members have six communities, and not where they have one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mmsbgen.base.processes import side_by_side
from mmsbgen.graph.graph import number_integers
from mmsbgen.sampler.diagnostics.explained_links import Array, Floats, Ints

#: Shares that a member may have of its links.
_SHARES = (np.arange(20) + 0.5) / 20
#: Share of its links by which a vertex is a member in the first round; the result hardly depends on it.
_FIRST = 0.125
#: Most rounds, and the change of the chances, relative to their sum, that ends them.
_ROUNDS, _SETTLED = 30, 1e-3
#: Bound of probabilities, and of log odds.
_LEAST, _MOST_ODDS = 1e-6, 50.0
#: Candidates that a thread takes at a time; with fewer, threads mostly wait for each other.
_PART = 1 << 18
#: Counts of explained links are rounded to this part of a link: the law of a member has few values to be computed for.
_STEPS = 8


def member_chances(
    vertices: Ints, communities: Ints, explained: Array, degrees: Ints, n_communities: int, residual: bool
) -> Floats:
    """The chances ``[M]`` that ``vertices`` are members of ``communities`` ``[M]``.

    A link falls on a community by chance as often as any link end does: with the share s of all link ends that the
    community explains of its members.  With ``residual`` it falls only on link ends that no community explains of its
    members, as in the configuration model, and at most with the probability s.  A share no larger than chance is no
    evidence: the chance of membership is 0.

    Args:
        vertices: the candidates: pairs of a vertex and a community that explains links of it.
        communities: their communities.
        explained: the number of links of the vertex that the community explains.
        degrees: the number of links ``[N]`` of every vertex.
        n_communities: number of communities.
        residual: what chance is.
    """
    n, own = len(degrees), np.maximum(degrees[vertices], 1).astype(np.float64)
    x, law = np.minimum(explained, own), np.full(_SHARES.size, 1.0 / _SHARES.size)
    by_share, at = _likelihoods(x, own)
    candidates = _Candidates(x, own, communities, at, n_communities, len(by_share.factors))
    chances = (x > _FIRST * own).astype(np.float64)
    sums = candidates.sums(chances)
    for _ in range(_ROUNDS):
        weight = sums.members.sum()
        if weight <= 0.0:
            break
        sizes = sums.members.clip(1.0, max(1.0, n - 1.0))
        prior, by_chance = np.log(sizes / np.maximum(n - sizes, 1.0)), sums.links
        if residual:
            left = (degrees - np.bincount(vertices, chances * x, n)).clip(min=0.0)
            by_chance = np.minimum(by_chance, candidates.by_community(chances, left, vertices))
        by_chance = (by_chance / degrees.sum()).clip(_LEAST, 1.0 - _LEAST)
        of_member = by_share.exponent + np.log(by_share.factors @ law)
        new = candidates.chances(of_member, prior, by_chance)
        change, chances = np.abs(new - chances).sum(), new
        if change <= _SETTLED * weight:
            break
        sums = candidates.sums(chances)
        weights = sums.counts / (by_share.factors @ law)
        law = law * (weights @ by_share.factors)
        law = (law / max(law.sum(), _LEAST)).clip(min=_LEAST**8)
    return chances


class _Sums(NamedTuple):
    """Sums of chances: ``members`` ``[K]`` by community, the ``links`` explained of them, and by value, ``counts``."""

    members: Floats
    links: Floats
    counts: Floats


@dataclass(frozen=True)
class _Candidates:
    """The candidates ``[M]``: explained links ``x`` of ``own`` links, ``communities``, and the place of both values.

    Sums are made in threads, in parts of one size, so that they do not depend on the number of threads.
    """

    x: Floats
    own: Floats
    communities: Ints
    at: Ints
    n_communities: int
    n_values: int

    def _parts(self) -> list[slice]:
        return [slice(first, first + _PART) for first in range(0, self.x.size, _PART)]

    def by_community(self, chances: Floats, numbers: Floats, vertices: Ints) -> Floats:
        """Sums ``[K]`` of ``chances`` ``[M]`` times the ``numbers`` ``[N]`` of the ``vertices`` ``[M]``."""

        def of(part: slice) -> Floats:
            return _added(self.communities[part], chances[part] * numbers[vertices[part]], self.n_communities)

        total = np.zeros(self.n_communities)
        for one in side_by_side(of, self._parts()):
            total += one
        return total

    def sums(self, chances: Floats) -> _Sums:
        """The sums of ``chances`` ``[M]``."""

        def of(part: slice) -> tuple[Floats, Floats, Floats]:
            own, communities = chances[part], self.communities[part]
            return (
                _added(communities, own, self.n_communities),
                _added(communities, own * self.x[part], self.n_communities),
                _added(self.at[part], own, self.n_values),
            )

        total = _Sums(np.zeros(self.n_communities), np.zeros(self.n_communities), np.zeros(self.n_values))
        for found in side_by_side(of, self._parts()):
            for whole, one in zip(total, found, strict=True):
                whole += one
        return total

    def chances(self, of_member: Floats, prior: Floats, by_chance: Floats) -> Floats:
        """The chances ``[M]``, by log-likelihoods ``of_member`` of each value and by what communities ``[K]`` have."""
        found, inside, outside = np.empty(self.x.size), np.log(by_chance), np.log1p(-by_chance)

        def compute(part: slice) -> None:
            links, counts, of = self.own[part], self.x[part], self.communities[part]
            odds = of_member[self.at[part]] + prior[of]
            odds -= counts * inside[of] + (links - counts) * outside[of]
            chances = 1.0 / (1.0 + np.exp(-odds.clip(-_MOST_ODDS, _MOST_ODDS)))
            chances[counts <= by_chance[of] * links] = 0.0
            found[part] = chances

        for _ in side_by_side(compute, self._parts()):
            pass
        return found


def _added(places: Ints, values: Floats, size: int) -> Floats:
    sums: Floats = np.bincount(places, values, size).astype(np.float64, copy=False)
    return sums


class _ByShare(NamedTuple):
    """Likelihoods of counts ``[U]`` by the share of a member, without binomial coefficients, which cancel.

    They are ``exp(exponent)`` times ``factors`` ``[U, 20]``, of which the largest in each row is 1.
    """

    exponent: Floats
    factors: Floats


def _likelihoods(x: Floats, own: Floats) -> tuple[_ByShare, Ints]:
    """The likelihoods of ``x`` of ``own`` links ``[M]``, each value once, and the place ``[M]`` of each among them."""
    steps = np.rint(_STEPS * x).astype(np.int64)
    keys, at = number_integers(own.astype(np.int64) * (steps.max(initial=0) + 1) + steps)
    links, steps = np.divmod(keys, steps.max(initial=0) + 1)
    counts = steps / _STEPS
    logs = counts[:, None] * np.log(_SHARES) + (links - counts)[:, None] * np.log1p(-_SHARES)
    top = logs.max(axis=1, initial=-np.inf)
    return _ByShare(top, np.exp(logs - top[:, None])), at
