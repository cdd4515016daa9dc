"""Phases of a run, decided while it runs from the state and from held-out metrics.

A run of block mini-batches without noise first optimises.  A few times, empty communities are refilled with parts of
others (:mod:`mmsbgen.sampler.run.refine`).  When the held-out log-likelihood of a run of open length has settled,
needless communities are emptied (:mod:`mmsbgen.sampler.run.prune`); when it has settled again, the run ends or starts
to sample.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mmsbgen.sampler.options.options import Options

#: Sweeps before the first refinement and between two.
REFINE_SWEEPS = 30
#: Most refinements of a run.
REFINE_ROUNDS = 3
#: The schedule's time after a refinement, in sweeps: steps large enough for moved vertices to settle, but not so large
#: that they destroy the other communities.
RESTART = 20.0
#: Evaluations per window; the means of two successive windows are compared. A window spans at least a sweep.
WINDOW = 5
#: Relative gain in log-likelihood from one window to the next, below which a run has settled.
TOLERANCE = 2e-3
#: Share of what one community leaves unexplained, below which gains are no longer relative to the log-likelihood: that
#: of perfect communities goes to 0, and its relative gains never end.
EXPLAINED = 0.25
#: Fewest sweeps of a run of open length: without refinements, the noise of single states may look like convergence.
LEAST_SWEEPS = 60
#: Most sweeps before a run of open length sets its end, even if its held-out log-likelihood still changes.
MOST_SWEEPS = 300
#: Sweeps of a run of open length without held-out pairs.
BLIND_SWEEPS = 100
#: Sampling sweeps, after it has settled, of a run that has noise from the start.
NOISY_SWEEPS = 100
#: Sweeps after an optimum whose link probabilities are averaged, as single states vary with the partners drawn.
CLOSING_SWEEPS = 50
#: Share of the sampling sweeps that is left out of means.
WARM_UP = 0.2


@dataclass(frozen=True)
class Phases:
    """Decisions of a run so far; immutable, stored in checkpoints.

    Attributes:
        start: name of the start.
        trials: the starts that were tried and their metrics.
        clock_from: the iteration at which the schedule's time was ``clock_at``.
        clock_at: time of the schedule at ``clock_from``, in sweeps.
        refinements: the refinements so far, each with its iteration and the number of communities filled.
        pruned: the iteration at which needless communities were emptied, and their number.
        settled_at: the iteration at which a run of open length had settled, if it has; None for one of given length.
        sampling_from: the last iteration before the sampling sweeps.
        closing_from: the last iteration before those whose states enter means.
        end: the last iteration of a run of open length, once known.
    """

    start: str = "random"
    trials: list[dict[str, Any]] = field(default_factory=list)
    clock_from: int = 0
    clock_at: float = 0.0
    refinements: list[dict[str, int]] = field(default_factory=list)
    pruned: dict[str, int] | None = None
    settled_at: int | None = None
    sampling_from: int | None = None
    closing_from: int | None = None
    end: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """All values, for run records and checkpoints."""
        return dataclasses.asdict(self)

    @property
    def changed_at(self) -> int:
        """The iteration of the last refinement that filled a community or of the pruning, or 0."""
        refined = [done["iteration"] for done in self.refinements if done["filled"]]
        return max([*refined, self.pruned["iteration"] if self.pruned else 0])

    def limit(self, options: Options, per_sweep: int) -> int:
        """The iteration at which the run ends or, while that is open, at which its end must be decided."""
        if self.end is not None:
            return self.end
        return MOST_SWEEPS * per_sweep if options.iterations is None else options.iterations

    def ends_open(self, options: Options, iteration: int, per_sweep: int) -> bool:
        """Whether a run of open length has reached the maximum number of sweeps without a decision."""
        return options.iterations is None and self.end is None and iteration >= MOST_SWEEPS * per_sweep

    def burnt_in(self, options: Options, iteration: int) -> bool:
        """Whether the state after ``iteration`` enters running means and posterior averages."""
        if options.burn_in_end is not None:
            return iteration >= options.burn_in_end
        return self.closing_from is not None and iteration > self.closing_from

    def refines(self, options: Options, iteration: int, per_sweep: int) -> bool:
        """Whether a refinement is due after ``iteration``."""
        if not self._may_refine(options) or self.sampling_from is not None or self.end is not None:
            return False
        if self.burnt_in(options, iteration):
            # A refinement would change the meaning of communities within the averages.
            return False
        left = self.limit(options, per_sweep) - iteration
        return min(iteration - self.changed_at, left) >= REFINE_SWEEPS * per_sweep

    def _may_refine(self, options: Options) -> bool:
        done = self.refinements
        open_ = self.pruned is None and len(done) < REFINE_ROUNDS
        return options.refines and open_ and not (done and not done[-1]["filled"])

    def refined(self, iteration: int, filled: int, per_sweep: int) -> Phases:
        """The phases after a refinement; if it filled communities, the schedule's time is set back."""
        after = replace(self, refinements=[*self.refinements, {"iteration": iteration, "filled": filled}])
        return after._set_back(iteration, per_sweep) if filled else after

    def prunes(self, options: Options, after: Phases) -> bool:
        """Whether communities are pruned before the phases ``after``: once, when the run has settled."""
        return options.refines and self.pruned is None and self.settled_at is None and after.settled_at is not None

    def after_pruning(self, iteration: int, emptied: int, per_sweep: int) -> Phases:
        """The phases after a pruning that ``emptied`` communities: the run goes on until it has settled again."""
        pruned = {"iteration": iteration, "emptied": emptied}
        return replace(self, pruned=pruned)._set_back(iteration, per_sweep)

    def _set_back(self, iteration: int, per_sweep: int) -> Phases:
        """The phases with the schedule's time at most ``RESTART``."""
        clock = self.clock_at + (iteration - self.clock_from) / per_sweep
        return replace(self, clock_at=min(RESTART, clock), clock_from=iteration)

    def decided(
        self,
        options: Options,
        trace: Sequence[dict[str, Any]],
        iteration: int,
        per_sweep: int,
        one_community: float = 0.0,
    ) -> Phases:
        """The phases after an evaluation: a run of open length continues, starts to sample, or gets its end.

        ``one_community`` is as for :func:`settled`.
        """
        if options.iterations is not None or self.end is not None:
            return self
        since = [row for row in trace if row["iteration"] > self.changed_at]
        verdict = settled(since, per_sweep, self.changed_at, one_community)
        last = iteration >= MOST_SWEEPS * per_sweep
        early = self._may_refine(options) or iteration < LEAST_SWEEPS * per_sweep
        if verdict and early and not last:
            return self
        blind = verdict is None and not any("auc" in row for row in trace)
        long_enough = iteration - self.changed_at >= BLIND_SWEEPS * per_sweep
        if not (verdict or (blind and long_enough) or last):
            return self
        samples = options.sample_sweeps if options.phased else NOISY_SWEEPS
        more = samples or (0 if blind else CLOSING_SWEEPS)
        left_out = max(0, math.ceil(WARM_UP * samples * per_sweep) - 1)
        return replace(
            self,
            settled_at=iteration if verdict else self.settled_at,
            sampling_from=iteration if samples else self.sampling_from,
            closing_from=iteration + left_out if more else self.closing_from,
            end=iteration + more * per_sweep,
        )


def one_community(density: float) -> float:
    """Log-likelihood of a pair, in nats, if all pairs are linked with the probability ``density``."""
    return sum(p * math.log(p) for p in (density, 1.0 - density) if p > 0)


def settled(
    trace: Sequence[dict[str, Any]], sweep: float = 1.0, begin: int = 0, one_community: float = 0.0
) -> bool | None:
    """Whether the held-out log-likelihood has stopped rising; None if there are too few evaluations.

    Compares the mean of the last window of evaluations with that of the window before.  A window has ``WINDOW``
    evaluations, or all evaluations of a sweep if these are more: within less than a sweep, most vertices are not
    updated.  A fall counts as settled: more sweeps fit the training links better and the held-out pairs worse.

    Args:
        trace: the evaluations to look at.
        sweep: iterations in which every vertex is updated once.
        begin: the iteration after which the trace begins.
        one_community: the log-likelihood of a pair by one community. Gains are relative to the log-likelihood, or to a
            quarter of this where that is more.
    """
    rows = [(row["iteration"], row["sample_log_likelihood"]) for row in trace if "sample_log_likelihood" in row]
    if len(rows) < 2 * WINDOW:
        return None
    last = rows[-1][0]
    after = [value for iteration, value in rows if iteration > last - sweep]
    before = [value for iteration, value in rows if last - 2 * sweep < iteration <= last - sweep]
    if len(after) <= WINDOW:
        values = [value for _, value in rows]
        before, after = values[-2 * WINDOW : -WINDOW], values[-WINDOW:]
    elif last - 2 * sweep < begin or not before:
        return None
    gain = np.mean(after) - np.mean(before)
    return bool(gain < TOLERANCE * max(abs(np.mean(before)), EXPLAINED * abs(one_community)))
