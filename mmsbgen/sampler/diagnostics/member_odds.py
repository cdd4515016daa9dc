"""Chances that vertices are members of communities, by how many of their links the communities explain.

Of a vertex with d links a community explains x.  If the vertex is a member, x is binomial with a share of the links
that is its own; the shares of all memberships of the graph have one distribution, over a grid.  If it is none, x is
binomial with the probability that a link falls on the community by chance.  A mixture of both, in which a community of
n members has the prior n / N for N vertices with links, is fitted by expectation and maximisation; for the shares that
is the non-parametric maximum-likelihood estimate of Laird (1978).  The bar for membership thus follows the overlap and
the mixing of the graph: a tenth of its links makes a member where members have six communities, and not where they have
one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from mmsbgen.base.processes import in_parts, side_by_side
from mmsbgen.graph.ids import number_integers
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
_PART = 1 << 19
#: Candidates whose chances are found together, so that little memory is taken.
_CACHED = 1 << 16
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
        vertices: the candidates: pairs of a vertex and a community that explains links of it.  With ``residual``
            ascending.
        communities: their communities.
        explained: the number of links of the vertex that the community explains.
        degrees: the number of links ``[N]`` of every vertex.
        n_communities: number of communities.
        residual: what chance is.
    """
    n, law = np.count_nonzero(degrees), np.full(_SHARES.size, 1.0 / _SHARES.size)
    per_link = int(np.rint(_STEPS * explained.max(initial=0.0))) + 1

    def prepared(part: slice) -> tuple[Array, ...]:
        own = np.maximum(degrees[vertices[part]], 1).astype(np.float64)
        x = np.minimum(explained[part], own)
        keys = own.astype(np.int64) * per_link + np.rint(_STEPS * x).astype(np.int64)
        return x, own, keys, (x > _FIRST * own).astype(np.float64)

    chances: Floats
    x, own, keys, chances = in_parts(prepared, len(vertices))
    by_share, at = _likelihoods(keys, per_link)
    candidates = _Candidates(
        x, own, vertices, communities, at, degrees if residual else None, n_communities, len(by_share.factors)
    )
    sums = candidates.sums(chances)
    for _ in range(_ROUNDS):
        weight = sums.members.sum()
        if weight <= 0.0:
            break
        sizes = sums.members.clip(1.0, max(1.0, n - 1.0))
        prior = np.log(sizes / np.maximum(n - sizes, 1.0))
        by_chance = np.minimum(sums.links, sums.left) if residual else sums.links
        by_chance = (by_chance / degrees.sum()).clip(_LEAST, 1.0 - _LEAST)
        mixed = by_share.factors @ law
        sums = candidates.sums(chances, candidates.odds(by_share.exponent + np.log(mixed), prior, by_chance))
        if sums.change <= _SETTLED * weight:
            break
        law = law * ((sums.counts / mixed) @ by_share.factors)
        law = (law / max(law.sum(), _LEAST)).clip(min=_LEAST**8)
    return chances


class _Sums(NamedTuple):
    """Sums of chances: ``members`` ``[K]`` by community, the ``links`` explained of them, and by value, ``counts``.

    ``left`` ``[K]`` is the sum of chances times the link ends of the vertex that no community explains.  ``change`` is
    the sum of the changes of chances.
    """

    members: Floats
    links: Floats
    left: Floats
    change: Floats
    counts: Floats


@dataclass(frozen=True)
class _Candidates:
    """The candidates ``[M]``: explained links ``x`` of ``own`` links, ``vertices``, ``communities`` and places of both.

    Sums are made in threads, in parts that do not depend on the number of threads.  ``degrees`` ``[N]`` are given for
    ``left``, where ``vertices`` must be ascending.  Of the values that ``at`` names, a part has few: it is made to name
    places among these.
    """

    x: Floats
    own: Floats
    vertices: Ints
    communities: Ints
    at: Ints
    degrees: Ints | None
    n_communities: int
    n_values: int

    @cached_property
    def _parts(self) -> list[tuple[slice, Ints]]:
        """Parts of the candidates, and the values of each."""
        cuts = np.arange(0, self.x.size, _PART)
        if self.degrees is not None:  # all candidates of a vertex are in one part
            cuts = np.searchsorted(self.vertices, self.vertices[cuts])
        cuts = np.unique(np.append(cuts, self.x.size))

        def of(part: slice) -> tuple[slice, Ints]:
            there = np.zeros(self.n_values, bool)
            there[self.at[part]] = True
            self.at[part] = (np.cumsum(there) - 1)[self.at[part]]
            return part, np.flatnonzero(there)

        return list(side_by_side(of, list(map(slice, cuts[:-1], cuts[1:]))))

    def sums(self, chances: Floats, new: Callable[[slice, Ints, Ints], Floats] | None = None) -> _Sums:
        """The sums of ``chances`` ``[M]``, after ``new`` has given each part its new ones."""

        def of(given: tuple[slice, Ints]) -> _Sums:
            part, values = given
            own, change, left = chances[part], np.zeros(1), np.zeros(self.n_communities)
            communities = self.communities[part].astype(np.intp)
            if new is not None:
                before = own.copy()
                for first in range(0, own.size, _CACHED):
                    some = slice(part.start + first, min(part.start + first + _CACHED, part.stop))
                    chances[some] = new(some, communities[first : first + _CACHED], values)
                change += np.abs(own - before).sum()
            links = own * self.x[part]
            if self.degrees is not None:
                vertices = self.vertices[part].astype(np.intp)
                first, last = vertices[[0, -1]]
                vertices -= first
                ends = (self.degrees[first : last + 1] - np.bincount(vertices, links)).clip(min=0.0)
                left = _added(communities, own * ends[vertices], self.n_communities)
            return _Sums(
                _added(communities, own, self.n_communities),
                _added(communities, links, self.n_communities),
                left,
                change,
                _added(self.at[part], own, values.size),
            )

        members, links, left = np.zeros((3, self.n_communities))
        total = _Sums(members, links, left, np.zeros(1), np.zeros(self.n_values))
        for (_, values), found in zip(self._parts, side_by_side(of, self._parts), strict=True):
            for whole, one in zip(total[:-1], found[:-1], strict=True):
                whole += one
            total.counts[values] += found.counts
        return total

    def odds(self, of_member: Floats, prior: Floats, by_chance: Floats) -> Callable[[slice, Ints, Ints], Floats]:
        """Gives chances of a part, by log-likelihoods ``of_member`` of each value and what communities ``[K]`` have."""
        inside, outside = np.log(by_chance), np.log1p(-by_chance)

        def compute(part: slice, of: Ints, values: Ints) -> Floats:
            links, counts = self.own[part], self.x[part]
            chances = counts * inside[of]
            chances += (links - counts) * outside[of]
            chances -= of_member[values[self.at[part]]] + prior[of]
            np.exp(chances.clip(-_MOST_ODDS, _MOST_ODDS, out=chances), out=chances)
            chances += 1.0
            np.divide(1.0, chances, out=chances)
            chances *= counts > by_chance[of] * links
            return chances

        return compute


def _added(places: Ints, values: Floats, size: int) -> Floats:
    sums: Floats = np.bincount(places, values, size).astype(np.float64, copy=False)
    return sums


class _ByShare(NamedTuple):
    """Likelihoods of counts ``[U]`` by the share of a member, without binomial coefficients, which cancel.

    They are ``exp(exponent)`` times ``factors`` ``[U, 20]``, of which the largest in each row is 1.
    """

    exponent: Floats
    factors: Floats


def _likelihoods(keys: Ints, per_link: int) -> tuple[_ByShare, Ints]:
    """The likelihoods of counts, each value once, and the place ``[M]`` of each of ``keys`` ``[M]`` among them.

    A key is a number of links times ``per_link``, plus eighths of a link that are explained of them.
    """
    keys, at = number_integers(keys)
    links, steps = np.divmod(keys, per_link)
    counts = steps / _STEPS
    logs = counts[:, None] * np.log(_SHARES) + (links - counts)[:, None] * np.log1p(-_SHARES)
    top = logs.max(axis=1, initial=-np.inf)
    return _ByShare(top, np.exp(logs - top[:, None])), at
