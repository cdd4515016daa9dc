"""Metrics of link probabilities on held-out pairs (docs/diagnostics.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

#: Standard deviations of a normal law on either side of its mean that hold 95 % of it.
_Z = 1.959964
#: Probability on either side of a 95 % interval.
_TAIL = 0.025
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class HeldOutMetrics:
    """Metrics of one evaluation, from this sample (``sample_...``) or from the running mean of samples.

    Attributes:
        samples: number of samples in the running mean (1: this sample only).
        perplexity: exp of minus the mean log-likelihood over links and non-links alike; coin flipping scores 2.
        sample_perplexity: the same for this sample.
        log_likelihood: mean log-likelihood in nats per pair, classes weighted by their share in the graph.
        sample_log_likelihood: the same for this sample.
        auc: area under the ROC curve of links against non-links, by the running mean.
        published_perplexity: as the published programs print it: averaged from the random start on, link terms
            without delta (1 - sum pi pi).
    """

    samples: int
    perplexity: float
    sample_perplexity: float
    log_likelihood: float
    sample_log_likelihood: float
    auc: float
    published_perplexity: float


def auc(probabilities: Floats, links: Bools) -> float:
    """Probability that a held-out link ranks above a held-out non-link, ties counting half; NaN without a class."""
    negative = np.sort(probabilities[~links])
    # Sorted too, as neighbours are then looked up in one place: ten times as fast.
    positive = np.sort(probabilities[links])
    if not negative.size or not positive.size:
        return math.nan
    below = np.searchsorted(negative, positive, side="left")
    upto = np.searchsorted(negative, positive, side="right")
    return float(np.mean((below + upto) / 2) / negative.size)


def auc_error(probabilities: Floats, links: Bools) -> float:
    """Standard error of :func:`auc` as an estimate for all pairs; NaN if a class has fewer than two.

    That of DeLong, DeLong and Clarke-Pearson (1988), which counts how far pairs are out of order.  Where the AUC is 1
    none is, and the error would be 0 however few pairs there are.  So where the AUC is within the error of 1, that is
    the error with one more link, below all others, and one more non-link, above them; likewise at 0.
    """
    positive, negative = probabilities[links], probabilities[~links]
    if min(positive.size, negative.size) < 2:
        return math.nan
    area, variance = _placed(positive, negative)
    _, wider = _placed(*_with_misplaced(positive, negative))
    return math.sqrt(wider if min(area, 1.0 - area) ** 2 < wider else variance)


def auc_interval(probabilities: Floats, links: Bools) -> tuple[float, float]:
    """95 % confidence interval of :func:`auc`; NaN without a class.

    At 1 it is exact: with m pairs in the smaller class, m comparisons of a link and a non-link can be made in which
    none comes twice.  So P(AUC = 1) is at most A^m, and the interval begins at .025^(1/m), about 1 - 3.7/m.  Likewise
    at 0.

    Elsewhere it is Wilson's (1927) score interval of a share of n.  n is the number of independent comparisons whose
    share has the AUC's variance, A (1 - A) / n, by DeLong's method with the pairs that :func:`auc_error` adds.  It is m
    at the least (Birnbaum and Klose 1957).
    """
    positive, negative = probabilities[links], probabilities[~links]
    if not positive.size or not negative.size:
        return math.nan, math.nan
    m, found = min(positive.size, negative.size), auc(probabilities, links)
    if found in (0.0, 1.0):
        bound = _TAIL ** (1.0 / m)
        return (bound, 1.0) if found else (0.0, 1.0 - bound)
    area, variance = _placed(*_with_misplaced(positive, negative))
    n = max(m, area * (1.0 - area) / variance)
    centre, scale = found + _Z**2 / (2 * n), 1.0 + _Z**2 / n
    half = _Z * math.sqrt(found * (1.0 - found) / n + (_Z / (2 * n)) ** 2)
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def _with_misplaced(positive: Floats, negative: Floats) -> tuple[Floats, Floats]:
    """The classes with one more link and one more non-link, both as far out of order as can be."""
    links = np.arange(positive.size + negative.size) < positive.size
    far = math.inf if auc(np.append(positive, negative), links) >= 0.5 else -math.inf
    return np.append(positive, -far), np.append(negative, far)


def _placed(positive: Floats, negative: Floats) -> tuple[float, float]:
    """AUC and DeLong's variance of it, for classes of two and more."""
    positive, negative = np.sort(positive), np.sort(negative)
    area, variance = 0.5, 0.0
    for these, those in ((negative, positive), (positive, negative)):
        below = np.searchsorted(those, these, side="left") + np.searchsorted(those, these, side="right")
        places = below / (2 * those.size)
        area, variance = float(places.mean()), variance + float(places.var(ddof=1)) / these.size
    return area, variance


def perplexity(link_sum: float, non_link_sum: float, pairs: int) -> float:
    """exp of minus the mean log-likelihood of all pairs."""
    return math.exp(min(700.0, -(link_sum + non_link_sum) / pairs))


def weighted(link_sum: float, non_link_sum: float, links: int, non_links: int, density: float) -> float:
    """density * mean over links + (1 - density) * mean over non-links; a class without pairs counts 0."""
    total = density * link_sum / links if links else 0.0
    return float(total + ((1.0 - density) * non_link_sum / non_links if non_links else 0.0))


def weighted_error(values: Floats, links: Bools, density: float) -> float:
    """Standard error of :func:`weighted` for ``values`` ``[H]`` of single pairs; a class of one pair counts 0."""
    variance = 0.0
    for one, share in ((links, density), (~links, 1.0 - density)):
        if one.sum() > 1:
            variance += share**2 * float(values[one].var(ddof=1)) / int(one.sum())
    return math.sqrt(variance)


def log_likelihoods(probabilities: Floats, links: Bools) -> Floats:
    """log p(y) ``[H]`` of the observed labels, given p(link)."""
    observed: Floats = np.where(
        links, np.log(np.maximum(probabilities, 1e-300)), np.log1p(-np.minimum(probabilities, 1 - 1e-16))
    )
    return observed


def published(means: Floats, links: Bools) -> float:
    """exp of minus the mean log-likelihood, as defined by the published programs.

    ``means`` ``[H]`` are means of p(y = 1) over all samples from the random start on: for links without
    delta (1 - sum pi pi) and floored at 1e-30, for non-links complete.
    """
    total = np.log(np.maximum(means[links], 1e-30)).sum() + np.log1p(-means[~links]).sum()
    return math.exp(min(700.0, -float(total) / links.size))
