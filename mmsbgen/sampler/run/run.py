"""A run: iterations, evaluations at an interval, checkpoints, and an orderly end when it is interrupted."""

from __future__ import annotations

import time
from collections.abc import Callable

from mmsbgen.base.stop_signals import StopRequest
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics.convergence import StabilityWatch
from mmsbgen.sampler.diagnostics.evaluation import Trace, evaluation
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
    """Iterate until the options' number of iterations, appending to ``trace``; returns the seconds spent in all.

    Ends early, after a whole iteration, when ``stop`` becomes true.  ``on_checkpoint`` is called every
    ``checkpoint_seconds``, and at the end when the run was stopped or with ``checkpoint_at_end``.  A finished run ends
    with an evaluation; where that is off the interval no checkpoint has it, so that a run that goes on from there
    to more iterations has the trace and the running means of one that never ended.
    """
    options, per_sweep = sampler.options, sampler.per_sweep
    begin = saved = time.monotonic()

    def spent() -> float:
        return seconds_before + time.monotonic() - begin

    if sampler.iteration == 0 and not trace:
        trace.append(evaluation(sampler, spent()))
    while sampler.iteration < sampler.limit and not stop:
        pause = min(sampler.limit, (sampler.iteration // options.interval + 1) * options.interval)
        sampler.advance(pause - sampler.iteration)
        if sampler.iteration % options.interval == 0 or sampler.course.ends_open(options, sampler.iteration, per_sweep):
            trace.append(evaluation(sampler, spent()))
            if watch is not None:
                watch.look(sampler)
            if sampler.course.refines(options, sampler.iteration, per_sweep):
                refine(sampler)
            course = sampler.course.decided(options, trace, sampler.iteration, per_sweep)
            sampler.restore(sampler.chain._replace(course=course))
        if on_progress is not None:
            on_progress(sampler, trace)
        if on_checkpoint is not None and time.monotonic() - saved > checkpoint_seconds:
            on_checkpoint(sampler, trace, spent())
            saved = time.monotonic()
    sampler.device.synchronize()
    if on_checkpoint is not None and (checkpoint_at_end or sampler.iteration < sampler.limit):
        written = time.monotonic()
        on_checkpoint(sampler, trace, spent())
        # No part of the chain's time: the file is as large as the state.
        begin += time.monotonic() - written
    if sampler.iteration >= sampler.limit and (not trace or trace[-1]["iteration"] != sampler.iteration):
        trace.append(evaluation(sampler, spent()))
    return spent()
