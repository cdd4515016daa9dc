"""The main loop of a run: iterations, evaluations at an interval, checkpoints, and interruption."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mmsbgen.backends.ranks.world import LostRankError
from mmsbgen.base.stop_signals import StopRequest
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics.convergence import StabilityWatch
from mmsbgen.sampler.diagnostics.evaluation import Trace, evaluation
from mmsbgen.sampler.options.phases import one_community
from mmsbgen.sampler.run.prune import prune
from mmsbgen.sampler.run.refine import refine


def run(
    sampler: Sampler,
    trace: Trace,
    *,
    on_progress: Callable[[Sampler, Trace], None] | None = None,
    on_checkpoint: Callable[[Sampler, Trace, float], None] | None = None,
    checkpoint_seconds: float = 300.0,
    checkpoint_at_end: bool = False,
    watch: StabilityWatch | None = None,
    stop: StopRequest | None = None,
    seconds_before: float = 0.0,
) -> float:
    """Iterate to the end of the run, appending to ``trace``; returns the total seconds, with ``seconds_before``.

    The run stops early, after a whole iteration, if ``stop`` becomes true.  ``on_checkpoint`` is called every
    ``checkpoint_seconds``, and at the end if the run was stopped or with ``checkpoint_at_end``.  A finished run ends
    with an evaluation.  If that is off the interval, it is made after the checkpoint: a run resumed to more iterations
    then has the trace and the running means of one that did not end there.
    """
    options, per_sweep = sampler.options, sampler.per_sweep
    chance = one_community(sampler.split.density)
    begin = saved = time.monotonic()

    def spent() -> float:
        return seconds_before + time.monotonic() - begin

    @contextmanager
    def kept_if_lost() -> Iterator[None]:
        try:
            yield
        except LostRankError as error:
            # The state is that of the last whole sweep.
            if on_checkpoint is not None:
                on_checkpoint(sampler, trace, spent())
                error.add_note("The chain is kept: resume it, with any number of devices.")
            raise

    def look() -> None:
        """Evaluate, and decide on the course, if it is time and this is not done yet."""
        now = sampler.iteration
        done = bool(trace) and trace[-1]["iteration"] == now
        if done or not (now % options.interval == 0 or sampler.course.ends_open(options, now, per_sweep)):
            return
        trace.append(evaluation(sampler, spent()))
        if watch is not None:
            watch.look(sampler)
        if sampler.course.refines(options, now, per_sweep):
            refine(sampler)
        course = sampler.course.decided(options, trace, now, per_sweep, chance)
        if sampler.course.prunes(options, course) and (emptied := prune(sampler)):
            course = sampler.course.after_pruning(now, emptied, per_sweep)
        sampler.chain = sampler.chain._replace(course=course)

    if sampler.iteration == 0 and not trace:
        trace.append(evaluation(sampler, spent()))
    elif sampler.iteration:
        # A rank was lost after the sweeps and before the evaluation.
        with kept_if_lost():
            look()
    while sampler.iteration < sampler.limit and not stop:
        pause = min(sampler.limit, (sampler.iteration // options.interval + 1) * options.interval)
        with kept_if_lost():
            sampler.advance(pause - sampler.iteration)
            look()
        if on_progress is not None:
            on_progress(sampler, trace)
        if on_checkpoint is not None and time.monotonic() - saved > checkpoint_seconds:
            with kept_if_lost():
                on_checkpoint(sampler, trace, spent())
            saved = time.monotonic()
    with kept_if_lost():
        sampler.settle()
        if on_checkpoint is not None and (checkpoint_at_end or sampler.iteration < sampler.limit):
            written = time.monotonic()
            on_checkpoint(sampler, trace, spent())
            # The final checkpoint is as large as the state and does not count as time of the chain.
            begin += time.monotonic() - written
    if sampler.iteration >= sampler.limit and (not trace or trace[-1]["iteration"] != sampler.iteration):
        trace.append(evaluation(sampler, spent()))
    return spent()
