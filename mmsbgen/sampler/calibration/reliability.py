"""How far link probabilities are from the shares of pairs that are linked: reliability diagram and its mean error."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

#: Least probability of the pairs that are looked at: most pairs of a sparse graph are near 0, whatever the model.
LEAST = 0.1
#: Most bins, fewest links for each in the mean, and fewest links in all.
_BINS, _LINKS_A_BIN, _FEWEST = 10, 10, 20
#: Bootstrap samples behind the standard error.
_SAMPLES = 200


def reliability(p: Floats, before: Floats, links: Bools, weights: Floats, seed: int) -> dict[str, Any] | None:
    """The expected calibration error (ECE) of ``p`` ``[S]`` for pairs of p from 0.1 on, by bins of equal mass.

    ECE is the mean, over pairs, of |mean p - share of links| of a pair's bin.  Each of ``links`` ``[S]`` and non-links
    stands for ``weights`` ``[S]`` pairs.  ``before`` ``[S]`` are the same probabilities without calibration.

    Keys: ``ece``, ``ece_error`` (standard error, by bootstrap), ``ece_by_chance`` (what a perfect model is expected to
    show with these pairs), ``ece_before``, the numbers of ``links`` and ``non_links``, and ``bins``: means of p
    (``p``) and of ``before``, share of links (``observed``) and its standard error (``error``).  None for fewer than
    20 links of such a probability.
    """
    seen = p >= LEAST
    p, before, links, weights = p[seen], before[seen], links[seen], weights[seen]
    count = int(links.sum())
    if count < _FEWEST:
        return None
    bins = equal_mass(p, weights, min(_BINS, count // _LINKS_A_BIN))
    mass, observed, error = _shares(bins, links, weights)
    means = (np.bincount(bins, weights * one) / mass for one in (p, before))
    columns = dict(zip(("p", "before", "observed", "error"), (*means, observed, error), strict=True))
    rng = np.random.Generator(np.random.PCG64([seed, 7]))
    drawn = [_ece(p, bins, links, weights * rng.poisson(1.0, p.size)) for _ in range(_SAMPLES)]
    return {
        "links": count,
        "non_links": int(links.size - count),
        "ece": _ece(p, bins, links, weights),
        "ece_error": float(np.std(drawn, ddof=1)),
        # The mean of the absolute value of a normal variable.
        "ece_by_chance": float(mass @ error / mass.sum()) * math.sqrt(2 / math.pi),
        "ece_before": _ece(before, bins, links, weights),
        "bins": [dict(zip(columns, map(float, row), strict=True)) for row in zip(*columns.values(), strict=True)],
    }


def equal_mass(p: Floats, weights: Floats, count: int) -> Ints:
    """The bin ``[S]`` of each of ``p`` ``[S]``, of ``count`` bins of about equal weight; pairs of one p share a bin."""
    at = np.unique(p, return_inverse=True)[1]
    mass = np.bincount(at, weights)
    middle = (np.cumsum(mass) - mass / 2) / mass.sum()
    bins = np.minimum((middle * count).astype(np.int64), count - 1)
    # A bin that one large group of equal p has skipped does not exist.
    return np.unique(bins, return_inverse=True)[1][at]


def _shares(bins: Ints, links: Bools, weights: Floats) -> tuple[Floats, Floats, Floats]:
    """Mass, share of links and the share's standard error ``[B]`` of every bin.

    The share is L / (L + N) for the weights L of links and N of non-links, so that its error is f (1 - f) times the
    root of the relative variances of L and N.  For the error, a bin without links or non-links has half a one.
    """
    mass = np.bincount(bins, weights).astype(np.float64)
    sums, variance = [], np.zeros(mass.size)
    for kind in (links, ~links):
        total = np.bincount(bins, weights * kind)
        none = np.bincount(bins, kind) == 0
        half = 0.5 * (weights[kind].mean() if kind.any() else 1.0)
        variance += np.where(none, 2.0, np.bincount(bins, weights**2 * kind) / np.where(none, 1.0, total) ** 2)
        sums.append(np.where(none, half, total))
    share = sums[0] / (sums[0] + sums[1])
    return mass, np.bincount(bins, weights * links) / mass, share * (1.0 - share) * np.sqrt(variance)


def _ece(p: Floats, bins: Ints, links: Bools, weights: Floats) -> float:
    return float(np.abs(np.bincount(bins, weights * (p - links))).sum() / max(weights.sum(), 1e-300))
