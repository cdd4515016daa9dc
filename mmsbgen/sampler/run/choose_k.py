"""Choice of the number of communities by held-out log-likelihood, over a geometric grid.

A small graph has few held-out pairs, so each K is fitted to several splits (repeated random validation).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mmsbgen.base.errors import DeviceMemoryError, InputError
from mmsbgen.base.progress import stage
from mmsbgen.graph import Split
from mmsbgen.graph.graph import AT_A_TIME
from mmsbgen.graph.split import repeated
from mmsbgen.sampler.calibration.curve import fitted
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics import held_out
from mmsbgen.sampler.diagnostics.evaluation import evaluate
from mmsbgen.sampler.diagnostics.state_rows import best_communities
from mmsbgen.sampler.options.phases import REFINE_SWEEPS
from mmsbgen.sampler.run.refine import refine
from mmsbgen.sampler.starts.leiden import leiden
from mmsbgen.sampler.starts.start_methods import communities, is_large, training_graph

Floats = npt.NDArray[np.float64]
#: Sweeps whose link probabilities are averaged: those of single states are overconfident, which favours a small K.
_AVERAGED_SWEEPS = 10
#: Splits are drawn until they hold out this number of links, in :data:`_MOST_SPLITS` at most.
_ENOUGH_LINKS, _MOST_SPLITS = 1000, 10
#: Standard errors below the best K from which on no further split of a K is fitted.
_BEHIND = 3.0


@dataclass(frozen=True)
class KTrial:
    """Trial of one K: log-likelihood per held-out pair and AUC, of calibrated means of link probabilities."""

    k: int
    log_likelihood: float
    auc: float
    standard_error: float
    """Standard error of the difference in log-likelihood to the largest one."""


class _Fit(NamedTuple):
    """Fit of a K to one split, or to several."""

    auc: float
    logs: Floats
    """Log-likelihood ``[H]`` of every held-out pair, by calibrated probabilities."""
    uncalibrated: Floats
    """The same, ``[H]``, by the model's own probabilities."""
    filled: float
    """Number of communities that are not empty: they explain a training link best; K if chains do not refine."""


def choose_k(
    split: Split,
    make: Callable[[Split, int], Sampler],
    seed: int,
    say: Callable[[str], None],
    asked: Callable[[], bool],
) -> tuple[int, list[KTrial]]:
    """Choose K for a split graph; returns it and the trials in the order of K.

    The grid begins at the number of Leiden's communities and doubles until the log-likelihood is more than a standard
    error below the best one, or half of the communities are empty; if the first is the best, the grid goes down in the
    same way.  Then the geometric means of the best K and its neighbours are tried: once if pi is large, else twice.

    Log-likelihoods are by calibrated probabilities, as those of a result are: the model is overconfident, the more so
    the larger K is.  Without calibration a K far too small wins where vertices are in many communities.  Of all K
    within a standard error of the best, the one whose own probabilities predict best is taken, or the smallest K that
    has empty communities and fills no fewer: each further empty community takes a share of the rows, by which the
    log-likelihood gains a little.

    Each K is fitted to ``split`` and, if that has few held-out links, to others (:func:`repeated`), as long as it is
    not clearly behind the best.

    Args:
        split: the graph with its held-out pairs.
        make: builds a chain for a split and a K; it is closed here.
        seed: seed of the starts.
        say: called with messages.
        asked: returns true if the user asks to stop.

    Without held-out pairs, it is the number of Leiden's communities, and there are no trials.

    Raises:
        InputError: if no K could be tried.
        KeyboardInterrupt: if ``asked`` returns true.
    """
    first = max(2, int(np.count_nonzero(np.bincount(leiden(training_graph(split), 1.0, seed)) > 1)))
    if not len(split.validation.pairs):
        return first, []
    splits = repeated(split, min(_MOST_SPLITS, -(-_ENOUGH_LINKS // max(1, split.validation.n_links))))
    labels = np.concatenate([np.asarray(one.validation.labels, bool) for one in splits])
    fits: dict[int, _Fit] = {}

    def value(logs: Floats) -> float:
        """Mean of values ``[H]`` of the first held-out pairs, classes weighted by their share in the graph."""
        linked = labels[: logs.size]
        sums = float(logs[linked].sum()), float(logs[~linked].sum())
        return held_out.weighted(*sums, int(linked.sum()), int((~linked).sum()), split.density)

    def whole() -> list[int]:
        """The K that are fitted to all splits."""
        return [k for k in fits if fits[k].logs.size == labels.size]

    def best() -> int:
        near = [k for k in whole() if behind(fits[k])[0] <= behind(fits[k])[1]]
        return max(near, key=lambda k: value(fits[k].uncalibrated))

    def enough() -> int:
        """The best K, or the smallest that has empty communities and fills no fewer."""
        return min(k for k in fits if k == best() or fits[best()].filled <= fits[k].filled < k)

    def behind(fit: _Fit) -> tuple[float, float]:
        """By how much the log-likelihood of a fit is below the largest one, on the same pairs, and the error."""
        likeliest = max((fits[k] for k in whole()), key=lambda one: value(one.logs))
        lost = likeliest.logs[: fit.logs.size] - fit.logs
        return value(lost), held_out.weighted_error(lost, labels[: lost.size], split.density)

    def fit_of(k: int) -> _Fit:
        """The fit of ``k`` to all splits, or to the first ones if it is clearly behind."""
        each: list[tuple[Floats, int]] = []
        for one in splits:
            sampler = make(one, k)
            try:
                sampler.initialise(communities(one, k, seed))
                each.append(_fitted(sampler, asked))
            finally:
                sampler.close()
            means, filled = zip(*each, strict=True)
            p = np.concatenate(means)
            links = labels[: p.size]
            logs = _calibrated(p, links, split.density), held_out.log_likelihoods(p, links)
            fit = _Fit(held_out.auc(p, links), *logs, float(np.mean(filled)))
            if fits:
                lost, error = behind(fit)
                if lost > _BEHIND * error:
                    break
        return fit

    def pays(k: int) -> bool:
        """Try ``k``, unless it is not from 2 to N/2; whether it is the best so far, or within a standard error."""
        if not 2 <= k <= most or k in fits:
            return False
        say(f"Trying K={k}")
        try:
            fits[k] = fit_of(k)
        except DeviceMemoryError:
            say(f"K={k} does not fit in memory")
            return False
        lost, error = behind(fits[k])
        auc = "unknown (one class only)" if math.isnan(fits[k].auc) else f"{fits[k].auc:.4f}"
        say(f"K={k}: log-likelihood {value(fits[k].logs):.5g} a held-out pair, AUC {auc}")
        return lost <= error

    def saturated(k: int) -> bool:
        """Whether at least half of the communities are empty, so that a larger K only adds more of them."""
        return k in fits and 2 * fits[k].filled <= k

    most = max(2, split.graph.n_vertices // 2)
    for k, ratio in ((first, 2.0), (round(first / 2), 0.5)):
        while pays(k) and (ratio < 1 or not saturated(k)):
            k = round(k * ratio)
        if fits and best() > first:
            break
    if not fits:
        raise InputError(f"no number of communities could be tried for {split.graph.n_vertices} vertices; give -k")
    for _ in range(1 if is_large(split, best()) else 2):
        middle = enough()
        below = max((k for k in fits if k < middle), default=1)
        above = min((k for k in fits if k > middle), default=middle if saturated(middle) else most)
        for other in (below, above):
            pays(round(math.sqrt(middle * other)))
    most_likely = max(value(fits[k].logs) for k in whole())
    tried = []
    for k in sorted(fits):
        lost, error = behind(fits[k])
        tried.append(KTrial(k, most_likely - lost, fits[k].auc, error))
    return enough(), tried


def _calibrated(p: Floats, links: npt.NDArray[np.bool_], density: float) -> Floats:
    """Log-likelihoods ``[H]`` of pairs by calibrated probabilities, or by ``p`` itself where a class is missing.

    The curve has two points, so that it fits hardly more than a scale of the log odds.
    """
    if links.any() and not links.all():
        rate = links.sum() / np.count_nonzero(~links) * (1.0 - density) / density
        p = fitted(p, links, np.full(p.size, rate), most_points=2)(p)
    return held_out.log_likelihoods(p, links)


def _fitted(sampler: Sampler, asked: Callable[[], bool]) -> tuple[Floats, int]:
    """Two phases of sweeps with a refinement between them.

    Returns the link probabilities ``[H]`` of the held-out pairs, means of the last sweeps, and the number of
    communities that are not empty.
    """
    per_sweep, steps = sampler.per_sweep, REFINE_SWEEPS * sampler.per_sweep
    for last in (False, True):
        with stage(f"trying K={sampler.shape.k}, phase {last + 1} of 2", steps, "iterations") as heard:
            for done in range(steps):
                if asked():
                    raise KeyboardInterrupt
                sampler.step()
                heard.tell(done + 1)
                left = steps - done - 1
                if last and left < _AVERAGED_SWEEPS * per_sweep and left % per_sweep == 0:
                    metrics, chain = evaluate(sampler, burnt_in=True)
                    sampler.chain = chain
        if not last and sampler.options.refine:
            refine(sampler)
    assert metrics is not None
    means = sampler.device.download(sampler.held_values["sums"]) / metrics.samples
    return means, _n_filled(sampler)


def _n_filled(sampler: Sampler) -> int:
    """Number of communities that explain a training link best; K if the chain does not refine."""
    if not sampler.options.refine:
        return sampler.shape.k
    filled = np.zeros(sampler.shape.k, np.bool_)
    for begin in range(0, sampler.split.graph.n_links, AT_A_TIME):
        filled[best_communities(sampler, sampler.split.training_part(begin))[0]] = True
    return int(filled.sum())
