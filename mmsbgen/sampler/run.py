"""A run: iterations, evaluations at an interval, checkpoints, and an orderly end when it is interrupted."""

from __future__ import annotations

import dataclasses
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from mmsbgen.errors import MmsbgenError
from mmsbgen.sampler.sampler import Sampler

Trace = list[dict[str, Any]]


class Interrupted:
    """Whether the user has asked to stop; true from the first Ctrl-C or SIGTERM on."""

    def __init__(self) -> None:
        self.asked = False

    def __bool__(self) -> bool:
        return self.asked


@contextmanager
def graceful() -> Iterator[Interrupted]:
    """Turn the first SIGINT or SIGTERM into a request to stop between iterations; a second one interrupts at once."""
    state = Interrupted()
    if threading.current_thread() is not threading.main_thread():
        yield state
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if state.asked:
            raise KeyboardInterrupt
        state.asked = True

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield state
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def evaluation(sampler: Sampler, seconds: float) -> dict[str, Any]:
    """One row of the trace: where the chain is, its metrics, and monitors of its health."""
    sampler.device.synchronize()
    options = sampler.options
    burnt_in = sampler.iteration >= options.burn_in_end
    if options.average and burnt_in:
        sampler.accumulate()
    metrics = sampler.evaluate(burnt_in)
    mean_row_sum = float(sampler.row_sums().mean())
    if not math.isfinite(mean_row_sum):
        raise MmsbgenError(
            f"the chain left the range of {options.dtype} by iteration {sampler.iteration}: its row sums are no finite "
            "numbers. Use a smaller step size or the split step."
        )
    sampler.drain()
    return {
        "iteration": sampler.iteration,
        "updates_per_vertex": sampler.vertex_updates / sampler.split.graph.n_vertices,
        "seconds": seconds,
        "eps": options.step_sizes(sampler.time),
        "mean_row_sum": mean_row_sum,
        "clips": sampler.clipped(),
        "burnt_in": burnt_in,
        **({} if metrics is None else dataclasses.asdict(metrics)),
    }


def run(
    sampler: Sampler,
    trace: Trace,
    *,
    on_progress: Callable[[Sampler, Trace], None] | None = None,
    on_checkpoint: Callable[[Sampler, Trace, float], None] | None = None,
    checkpoint_seconds: float = 300.0,
    checkpoint_at_end: bool = False,
    stop: Interrupted | None = None,
    seconds_before: float = 0.0,
) -> float:
    """Iterate until the options' number of iterations, appending to ``trace``; returns the seconds spent in all.

    Ends early, after a whole iteration, when ``stop`` becomes true.  ``on_checkpoint`` is called every
    ``checkpoint_seconds``, and at the end when the run was stopped or with ``checkpoint_at_end``.  A finished run ends
    with an evaluation; where that is off the interval no checkpoint has it, so that a run that goes on from there
    to more iterations has the trace and the running means of one that never ended.
    """
    options = sampler.options
    begin = saved = time.monotonic()

    def spent() -> float:
        return seconds_before + time.monotonic() - begin

    if sampler.iteration == 0 and not trace:
        trace.append(evaluation(sampler, spent()))
    while sampler.iteration < options.iterations and not stop:
        pause = min(options.iterations, (sampler.iteration // options.interval + 1) * options.interval)
        sampler.advance(pause - sampler.iteration)
        if sampler.iteration % options.interval == 0:
            trace.append(evaluation(sampler, spent()))
        if on_progress is not None:
            on_progress(sampler, trace)
        if on_checkpoint is not None and time.monotonic() - saved > checkpoint_seconds:
            on_checkpoint(sampler, trace, spent())
            saved = time.monotonic()
    sampler.device.synchronize()
    if on_checkpoint is not None and (checkpoint_at_end or sampler.iteration < options.iterations):
        on_checkpoint(sampler, trace, spent())
    if sampler.iteration == options.iterations and (not trace or trace[-1]["iteration"] != sampler.iteration):
        trace.append(evaluation(sampler, spent()))
    return spent()
