"""Step 6: run the iterations and write checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mmsbgen.base.errors import InputError
from mmsbgen.base.stop_signals import StopRequest
from mmsbgen.detection.check_request import CheckedRequest
from mmsbgen.detection.start_chain import StartedChain
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics.convergence import StabilityWatch
from mmsbgen.sampler.diagnostics.evaluation import Trace
from mmsbgen.sampler.run import checkpoint as checkpoints
from mmsbgen.sampler.run.choose_k import KTrial
from mmsbgen.sampler.run.run import run


@dataclass(frozen=True)
class FinishedRun:
    """A finished or interrupted chain; ``checkpoint`` is the one written last, if any."""

    sampler: Sampler
    trace: Trace
    seconds: float
    watch: StabilityWatch
    tried: list[KTrial]
    checkpoint: Path | None


def run_chain(started: StartedChain, checked: CheckedRequest, stop: StopRequest) -> FinishedRun:
    """Iterate to the end, or until ``stop`` is true.

    Raises :class:`InputError` if a required checkpoint cannot be written.
    """
    request, watch = checked.request, StabilityWatch()
    written: list[Path | None] = [None]
    saved = request.saved

    def keep(running: Sampler, so_far: Trace, seconds: float) -> None:
        assert saved is not None
        try:
            checkpoints.save(saved, running, so_far, seconds, request.keep_checkpoint)
        except InputError as error:
            if request.state is None and (running.iteration < running.limit or request.keep_checkpoint):
                raise
            # The disk may still have room for the results, which are smaller than the chain.
            request.on_message(f"Going on without a checkpoint: {error}")
            return
        written.append(saved)
        request.on_checkpoint(saved)

    seconds = run(
        started.sampler,
        started.trace,
        on_progress=request.on_progress,
        on_checkpoint=None if saved is None else keep,
        checkpoint_seconds=request.checkpoint_seconds,
        checkpoint_at_end=True,
        stop=stop,
        watch=watch,
        seconds_before=started.seconds,
    )
    return FinishedRun(started.sampler, started.trace, seconds, watch, started.tried, written[-1])
