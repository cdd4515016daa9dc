"""Chances that vertices are members of communities, by how many of their links the communities explain.

Of a vertex with d links a community explains x.  If the vertex is a member, x is binomial with a share of the links
that is its own; the shares of all memberships of the graph have one distribution, over a grid.  If it is none, x is
binomial with the probability that a link falls on the community by chance.  A mixture of both, in which a community of
n members has the prior n / N, is fitted by expectation and maximisation; for the shares that is the non-parametric
maximum-likelihood estimate of Laird (1978).  The bar for membership thus follows the overlap and the mixing of the
graph: a tenth of its links makes a member where members have six communities, and not where they have one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mmsbgen.sampler.diagnostics.explained_links import Array, Floats, Ints

#: Shares that a member may have of its links.
_SHARES = (np.arange(20) + 0.5) / 20
#: Share of its links by which a vertex is a member in the first round; the result hardly depends on it.
_FIRST = 0.125
#: Most rounds, and the change of the chances, relative to their sum, that ends them.
_ROUNDS, _SETTLED = 30, 1e-3
#: Bound of probabilities, and of log odds.
_LEAST, _MOST_ODDS = 1e-6, 50.0
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
    x = np.minimum(explained, own)
    chances, law = (x > _FIRST * own).astype(np.float64), np.full(_SHARES.size, 1.0 / _SHARES.size)
    by_share, at = _likelihoods(x, own)
    for _ in range(_ROUNDS):
        weight = chances.sum()
        if weight <= 0.0:
            break
        sizes = np.bincount(communities, chances, n_communities).clip(1.0, max(1.0, n - 1.0))
        prior = np.log(sizes / np.maximum(n - sizes, 1.0))
        by_chance = np.bincount(communities, chances * x, n_communities)
        if residual:
            left = (degrees - np.bincount(vertices, chances * x, n)).clip(min=0.0)
            by_chance = np.minimum(by_chance, np.bincount(communities, chances * left[vertices], n_communities))
        by_chance = (by_chance / degrees.sum()).clip(_LEAST, 1.0 - _LEAST)
        of_member = by_share.exponent + np.log(by_share.factors @ law)
        odds = of_member[at] + prior[communities]
        odds -= x * np.log(by_chance)[communities] + (own - x) * np.log1p(-by_chance)[communities]
        new = 1.0 / (1.0 + np.exp(-odds.clip(-_MOST_ODDS, _MOST_ODDS)))
        new[x <= by_chance[communities] * own] = 0.0
        change, chances = np.abs(new - chances).sum(), new
        if change <= _SETTLED * weight:
            break
        weights = np.bincount(at, chances, len(by_share.factors)) / (by_share.factors @ law)
        law = law * (weights @ by_share.factors)
        law = (law / max(law.sum(), _LEAST)).clip(min=_LEAST**8)
    return chances


class _ByShare(NamedTuple):
    """Likelihoods of counts ``[U]`` by the share of a member, without binomial coefficients, which cancel.

    They are ``exp(exponent)`` times ``factors`` ``[U, 20]``, of which the largest in each row is 1.
    """

    exponent: Floats
    factors: Floats


def _likelihoods(x: Floats, own: Floats) -> tuple[_ByShare, Ints]:
    """The likelihoods of ``x`` of ``own`` links ``[M]``, each value once, and the place ``[M]`` of each among them."""
    steps = np.rint(_STEPS * x).astype(np.int64)
    keys, at = np.unique(own.astype(np.int64) * (steps.max(initial=0) + 1) + steps, return_inverse=True)
    links, steps = np.divmod(keys, steps.max(initial=0) + 1)
    counts = steps / _STEPS
    logs = counts[:, None] * np.log(_SHARES) + (links - counts)[:, None] * np.log1p(-_SHARES)
    top = logs.max(axis=1, initial=-np.inf)
    return _ByShare(top, np.exp(logs - top[:, None])), at
