"""The course of a run: what it decides as it goes, from the state and from its held-out metrics.

A run of block mini-batches without noise first optimises.  Communities that come out empty get parts of others
(:mod:`mmsbgen.sampler.run.refine`), a few times.  Where its length is left open, it ends, or goes on to sample, when
the held-out log-likelihood has settled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mmsbgen.sampler.options.options import MOST_SWEEPS, Options

#: Sweeps before the first refinement and between two.
REFINE_SWEEPS = 30
#: Refinements at most.
REFINE_ROUNDS = 3
#: Where the schedule's clock stands after a refinement: what moved must settle, the rest must not melt.
RESTART = 20.0
#: Evaluations whose mean is compared with that of as many before; more where they would span less than a sweep.
WINDOW = 5
#: Relative gain in log-likelihood from one window to the next below which a run has settled.
TOLERANCE = 2e-3
#: Sweeps before which no run ends by itself: where nothing is refined, the noise of single states may look like an end.
LEAST_SWEEPS = 60
#: Sweeps of a run that cannot tell, as nothing is held out.
BLIND_SWEEPS = 100
#: Sweeps that a run with noise from the start samples for after it has settled.
NOISY_SWEEPS = 100
#: Sweeps after an optimum whose link probabilities are averaged: the partners drawn make single states differ.
CLOSING_SWEEPS = 50
#: Share of the sampling sweeps that enter no mean.
WARM_UP = 0.2


@dataclass(frozen=True)
class Phases:
    """What has been decided so far, a value; a checkpoint keeps it.

    ``clock_from``: the iteration at which the schedule's clock stood at ``clock_at`` sweeps.  ``refinements``: the
    rounds so far, each with its iteration and how many communities were filled.  ``settled_at``: the iteration at
    which a run of open length found that the metrics had settled, and set its end; None in one of given length, which
    decides nothing.  ``sampling_from``: the last iteration before those that draw,
    ``closing_from`` before those whose link probabilities are averaged where none draw.  ``end``: the last
    of all, once that is known.  ``start``: the start's name, and ``trials`` what was tried for it.
    """

    start: str = "random"
    trials: list[dict[str, Any]] = field(default_factory=list)
    clock_from: int = 0
    clock_at: float = 0.0
    refinements: list[dict[str, int]] = field(default_factory=list)
    settled_at: int | None = None
    sampling_from: int | None = None
    closing_from: int | None = None
    end: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """All values, for run records and checkpoints."""
        return dataclasses.asdict(self)

    @property
    def changed_at(self) -> int:
        """The iteration from which on the metrics are those of one undisturbed descent."""
        return max((done["iteration"] for done in self.refinements if done["filled"]), default=0)

    def limit(self, options: Options, per_sweep: int) -> int:
        """The iteration at which the run ends, as far as is known."""
        if self.end is not None:
            return self.end
        return MOST_SWEEPS * per_sweep if options.iterations is None else options.iterations

    def ends_open(self, options: Options, iteration: int, per_sweep: int) -> bool:
        """Whether a run of open length has come as far as it may without a decision."""
        return options.iterations is None and self.end is None and iteration >= MOST_SWEEPS * per_sweep

    def burnt_in(self, options: Options, iteration: int) -> bool:
        """Whether the state after ``iteration`` enters running means and posterior averages."""
        if options.burn_in_end is not None:
            return iteration >= options.burn_in_end
        if self.closing_from is not None:
            return iteration > self.closing_from
        if self.sampling_from is None or self.end is None:
            return False
        return iteration >= self.sampling_from + WARM_UP * (self.end - self.sampling_from)

    def refines(self, options: Options, iteration: int, per_sweep: int) -> bool:
        """Whether a refinement is due after ``iteration``."""
        if not self._may_refine(options) or self.sampling_from is not None or self.end is not None:
            return False
        if self.burnt_in(options, iteration):
            # What a community means would change within the averages.
            return False
        left = self.limit(options, per_sweep) - iteration
        return min(iteration - self.changed_at, left) >= REFINE_SWEEPS * per_sweep

    def _may_refine(self, options: Options) -> bool:
        done = self.refinements
        return options.refines and len(done) < REFINE_ROUNDS and not (done and not done[-1]["filled"])

    def refined(self, iteration: int, filled: int, per_sweep: int) -> Phases:
        """The course after a refinement; one that changed something sets the clock back."""
        after = replace(self, refinements=[*self.refinements, {"iteration": iteration, "filled": filled}])
        if not filled:
            return after
        clock = self.clock_at + (iteration - self.clock_from) / per_sweep
        return replace(after, clock_at=min(RESTART, clock), clock_from=iteration)

    def decided(self, options: Options, trace: Sequence[dict[str, Any]], iteration: int, per_sweep: int) -> Phases:
        """The course after an evaluation: a run of open length goes on, samples, or gets its end."""
        if options.iterations is not None or self.end is not None:
            return self
        since = [row for row in trace if row["iteration"] > self.changed_at]
        verdict = settled(since, per_sweep, self.changed_at)
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
        return replace(
            self,
            settled_at=iteration if verdict else self.settled_at,
            sampling_from=iteration if samples else self.sampling_from,
            closing_from=iteration if more and not samples else self.closing_from,
            end=iteration + more * per_sweep,
        )


def settled(trace: Sequence[dict[str, Any]], sweep: float = 1.0, begin: int = 0) -> bool | None:
    """Whether the log-likelihood of the held-out pairs has stopped to rise; None where too little is known.

    The means of the last evaluations and of those before are compared: ``WINDOW`` of each, or all of a ``sweep`` each,
    the iterations in which every vertex is updated once, where that has more.  Within less than a sweep most vertices
    stand still, and so does what they predict.  ``begin`` is the iteration behind which the trace begins.  A fall
    counts as settled: more sweeps fit the training links better and what is held out worse.
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
    return bool(gain < TOLERANCE * abs(np.mean(before)))
