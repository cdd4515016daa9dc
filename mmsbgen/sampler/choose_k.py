"""How many communities: a search over a geometric grid, the held-out log-likelihood choosing.

Of the numbers whose log-likelihood is within one standard error of the best one's, the smallest is taken (the
one-standard-error rule of Breiman et al. 1984): more communities than the data tell apart are no gain.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mmsbgen.errors import DeviceMemoryError, InputError
from mmsbgen.graph import Split
from mmsbgen.sampler.communities import largest
from mmsbgen.sampler.course import REFINE_SWEEPS
from mmsbgen.sampler.evaluation import evaluate
from mmsbgen.sampler.refine import refine
from mmsbgen.sampler.sampler import Sampler
from mmsbgen.sampler.starts import Start, communities, leiden, of_sets, seeded

Floats = npt.NDArray[np.float64]
#: Share of a row from which a vertex is in a set of a warm start.
_INSIDE = 0.2
#: Numbers in a row that are no better before the grid ends.
_PATIENCE = 2


@dataclass(frozen=True)
class Tried:
    """One number of communities: its start, its log-likelihood a held-out pair, its AUC."""

    k: int
    start: str
    log_likelihood: float
    auc: float
    standard_error: float
    """Of the difference to the best one tried."""


class _Fit(NamedTuple):
    k: int
    start: str
    auc: float
    logs: Floats
    """Log-likelihood ``[H]`` of every held-out pair."""
    sets: Start


def choose_k(
    split: Split, make: Callable[[int], Sampler], seed: int, say: Callable[[str], None], asked: Callable[[], bool]
) -> tuple[int, list[Tried]]:
    """The number of communities for a split graph, and what was tried, in the order of K.

    ``make`` builds a chain of K communities, which is closed here.  The grid begins at half the number of Leiden's
    communities and doubles as long as that pays; then the neighbours of the best at a ratio of the square root of 2
    are tried.  Each is optimised from Leiden's communities and, warm, from the sets that the one before has found.

    Raises :class:`InputError` where no pairs are held out, and KeyboardInterrupt once ``asked`` is true.
    """
    if not len(split.validation.pairs):
        raise InputError("the number of communities is chosen on held-out pairs: give --validation a positive share")
    weights = _weights(split)
    fits: dict[int, _Fit] = {}

    def better(k: int, warm: Start | None) -> bool:
        """Fit k; whether it is the best so far."""
        say(f"Trying K={k}")
        try:
            fit = _fitted(split, make, k, warm, seed, weights, asked)
        except DeviceMemoryError:
            say(f"K={k} does not fit in memory")
            return False
        best = max((float(other.logs @ weights) for other in fits.values()), default=-math.inf)
        fits[k] = fit
        value = float(fit.logs @ weights)
        say(f"K={k}: log-likelihood {value:.5g} a held-out pair, AUC {fit.auc:.4f}, from {fit.start}")
        return value > best

    with seeded(seed):
        natural = len(leiden(split.graph.n_vertices, split.training_links, 1.0))
    k, most, misses, warm = max(2, natural // 2), max(2, split.graph.n_vertices // 2), 0, None
    while k <= most and misses < _PATIENCE:
        misses = 0 if better(k, warm) else misses + 1
        warm = fits[k].sets if k in fits else warm
        k *= 2
    if not fits:
        raise InputError(f"no number of communities could be tried for {split.graph.n_vertices} vertices; give -k")
    top = max(fits, key=lambda k: float(fits[k].logs @ weights))
    for near in (round(top / math.sqrt(2)), round(top * math.sqrt(2))):
        if 1 < near <= most and near not in fits:
            better(near, fits[max(k for k in fits if k <= near)].sets if min(fits) <= near else None)
    best = max(fits.values(), key=lambda fit: float(fit.logs @ weights))
    tried = [_told(fits[k], best, split, weights) for k in sorted(fits)]
    goal = float(best.logs @ weights)
    return next(one.k for one in tried if one.log_likelihood >= goal - one.standard_error), tried


def _weights(split: Split) -> Floats:
    """What each held-out pair counts ``[H]``: both classes by their share in the graph."""
    density, labels = split.graph.density, np.asarray(split.validation.labels, bool)
    n_links, n_non_links = int(labels.sum()), int((~labels).sum())
    each: Floats = np.where(labels, density / max(1, n_links), (1 - density) / max(1, n_non_links))
    return each


def _told(fit: _Fit, best: _Fit, split: Split, weights: Floats) -> Tried:
    difference, labels = best.logs - fit.logs, np.asarray(split.validation.labels, bool)
    variance = 0.0
    for one in (labels, ~labels):
        if one.sum() > 1:
            # Pairs of a class weigh alike, so the class adds (its weight)^2 var / count.
            variance += float(weights[one].sum() ** 2 * difference[one].var(ddof=1) / one.sum())
    return Tried(fit.k, fit.start, float(fit.logs @ weights), fit.auc, math.sqrt(variance))


def _fitted(
    split: Split,
    make: Callable[[int], Sampler],
    k: int,
    warm: Start | None,
    seed: int,
    weights: Floats,
    asked: Callable[[], bool],
) -> _Fit:
    sampler = make(k)
    try:
        starts = [communities(split, k, seed)]
        if warm is not None:
            keep = warm.communities < k
            starts.append(Start("the one before", warm.vertices[keep], warm.communities[keep]))
        return max((_one(sampler, start, asked) for start in starts), key=lambda fit: float(fit.logs @ weights))
    finally:
        sampler.close()


def _one(sampler: Sampler, start: Start, asked: Callable[[], bool]) -> _Fit:
    sampler.initialise(start)
    for last in (False, True):
        for _ in range(REFINE_SWEEPS * sampler.per_sweep):
            if asked():
                raise KeyboardInterrupt
            sampler.step()
        if not last and not (sampler.options.refine and refine(sampler)):
            break
    metrics: Any = evaluate(sampler, burnt_in=False)
    p = sampler.device.download(sampler.held_values["probabilities"])
    labels = np.asarray(sampler.split.validation.labels, bool)
    logs = np.where(labels, np.log(np.maximum(p, 1e-300)), np.log1p(-np.minimum(p, 1 - 1e-16)))
    return _Fit(sampler.shape.k, start.name, metrics.auc, logs, _sets(sampler))


def _sets(sampler: Sampler) -> Start:
    """The sets that the chain has found, largest first."""
    vertices, labels = [], []
    for first, stop in sampler.state_chunks():
        at, values = largest(sampler.rows(first, stop)[0], min(sampler.shape.k, int(1 / _INSIDE)))
        row, column = np.nonzero(values > _INSIDE)
        vertices.append(row + first)
        labels.append(at[row, column].astype(np.int64))
    vertex, label = np.concatenate(vertices), np.concatenate(labels)
    sets = [vertex[label == one] for one in np.unique(label)]
    return of_sets("the one before", sorted(sets, key=len, reverse=True))
