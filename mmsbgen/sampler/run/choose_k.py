"""Choice of the number of communities by held-out log-likelihood, over a geometric grid."""

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


@dataclass(frozen=True)
class KTrial:
    """Trial of one K: log-likelihood per held-out pair and AUC, of link probabilities averaged over some sweeps."""

    k: int
    log_likelihood: float
    auc: float
    standard_error: float
    """Standard error of the difference in log-likelihood to the best K."""


class _Fit(NamedTuple):
    auc: float
    logs: Floats
    """Log-likelihood ``[H]`` of every held-out pair."""
    value: float
    """Their mean, classes weighted by their share in the graph."""
    filled: int
    """Number of communities that are not empty: they explain a training link best; K if chains do not refine."""


def choose_k(
    split: Split,
    make: Callable[[int], Sampler],
    seed: int,
    say: Callable[[str], None],
    asked: Callable[[], bool],
) -> tuple[int, list[KTrial]]:
    """Choose K for a split graph; returns it and the trials in the order of K.

    The grid begins at the number of Leiden's communities and doubles until the log-likelihood is more than a standard
    error below the best one, or half of the communities are empty; if the first is the best, the grid goes down in the
    same way.  Then the geometric means of the best K and its neighbours are tried: once if pi is large, else twice.

    The best of all is taken, or the smallest K that has empty communities and fills no fewer: each further empty
    community takes a share of the rows, by which the log-likelihood gains a little.

    Args:
        split: the graph with its held-out pairs.
        make: builds a chain for a K; it is closed here.
        seed: seed of the starts.
        say: called with messages.
        asked: returns true if the user asks to stop.

    Without held-out pairs, it is the number of Leiden's communities, and there are no trials.

    Raises:
        InputError: if no K could be tried.
        KeyboardInterrupt: if ``asked`` returns true.
    """
    labels = np.asarray(split.validation.labels, bool)
    fits: dict[int, _Fit] = {}

    def best() -> int:
        return max(fits, key=lambda k: fits[k].value)

    def enough() -> int:
        """The best K, or the smallest that has empty communities and fills no fewer."""
        return min(k for k in fits if k == best() or fits[best()].filled <= fits[k].filled < k)

    def error(k: int) -> float:
        return held_out.weighted_error(fits[best()].logs - fits[k].logs, labels, split.density)

    def pays(k: int) -> bool:
        """Try ``k``, unless it is not from 2 to N/2; whether it is the best so far, or within a standard error."""
        if not 2 <= k <= most or k in fits:
            return False
        say(f"Trying K={k}")
        try:
            sampler = make(k)
        except DeviceMemoryError:
            say(f"K={k} does not fit in memory")
            return False
        try:
            sampler.initialise(communities(split, k, seed))
            fits[k] = fit = _fitted(sampler, labels, asked)
        finally:
            sampler.close()
        auc = "unknown (one class only)" if math.isnan(fit.auc) else f"{fit.auc:.4f}"
        say(f"K={k}: log-likelihood {fit.value:.5g} a held-out pair, AUC {auc}")
        return fits[best()].value - fit.value <= error(k)

    def saturated(k: int) -> bool:
        """Whether at least half of the communities are empty, so that a larger K only adds more of them."""
        return k in fits and 2 * fits[k].filled <= k

    most = max(2, split.graph.n_vertices // 2)
    first = max(2, int(np.count_nonzero(np.bincount(leiden(training_graph(split), 1.0, seed)) > 1)))
    if not len(split.validation.pairs):
        return first, []
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
    return enough(), [KTrial(k, fits[k].value, fits[k].auc, error(k)) for k in sorted(fits)]


def _fitted(sampler: Sampler, labels: npt.NDArray[np.bool_], asked: Callable[[], bool]) -> _Fit:
    """A chain of two phases of sweeps with a refinement between them, and the metrics of its last sweeps."""
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
    logs = held_out.log_likelihoods(means, labels)
    return _Fit(metrics.auc, logs, metrics.log_likelihood, _n_filled(sampler))


def _n_filled(sampler: Sampler) -> int:
    """Number of communities that explain a training link best; K if the chain does not refine."""
    if not sampler.options.refine:
        return sampler.shape.k
    filled = np.zeros(sampler.shape.k, np.bool_)
    for begin in range(0, sampler.split.graph.n_links, AT_A_TIME):
        filled[best_communities(sampler, sampler.split.training_part(begin))[0]] = True
    return int(filled.sum())
