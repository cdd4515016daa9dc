"""Metrics of link probabilities on held-out pairs (docs/statistics.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

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
    positive = probabilities[links]
    if not negative.size or not positive.size:
        return math.nan
    below = np.searchsorted(negative, positive, side="left")
    upto = np.searchsorted(negative, positive, side="right")
    return float(np.mean((below + upto) / 2) / negative.size)


def auc_error(probabilities: Floats, links: Bools) -> float:
    """Standard error of :func:`auc` as an estimate for all pairs (DeLong, DeLong and Clarke-Pearson 1988)."""
    positive, negative = np.sort(probabilities[links]), np.sort(probabilities[~links])
    variance = 0.0
    for these, those in ((positive, negative), (negative, positive)):
        if these.size < 2 or not those.size:
            return math.nan
        below = np.searchsorted(those, these, side="left") + np.searchsorted(those, these, side="right")
        variance += float(np.var(below / (2 * those.size), ddof=1)) / these.size
    return math.sqrt(variance)


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
