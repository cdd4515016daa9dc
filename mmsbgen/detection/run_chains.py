"""Step 6: run one chain, or several, of which the best stays on the device; write checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mmsbgen.base.errors import InputError
from mmsbgen.base.progress import stage
from mmsbgen.base.stop_signals import StopRequest
from mmsbgen.detection.check_request import CheckedRequest
from mmsbgen.detection.plan_chain import planned
from mmsbgen.detection.request import Request
from mmsbgen.detection.start_chain import BuiltChain, StartedChain, start_chain
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics.convergence import StabilityWatch
from mmsbgen.sampler.diagnostics.evaluation import Trace, auc_text, of_result
from mmsbgen.sampler.diagnostics.memberships import Memberships
from mmsbgen.sampler.run.choose_k import KTrial
from mmsbgen.sampler.run.run import run
from mmsbgen.sampler.saved import checkpoint as checkpoints
from mmsbgen.sampler.saved import results


class CheckpointError(InputError):
    """The checkpoint that a run should leave could not be written; its results are."""


@dataclass(frozen=True)
class FinishedRun:
    """A finished or interrupted chain; ``checkpoint`` is the one written last, if any.

    ``unsaved`` is why a later one could not be written.

    Of several chains it is the best: ``others`` are the memberships by the others, ``chains`` the record's entry on all
    and ``missing`` the number of those that an interruption left out.
    """

    sampler: Sampler
    trace: Trace
    seconds: float
    watch: StabilityWatch
    tried: list[KTrial]
    checkpoint: Path | None
    unsaved: InputError | None = None
    others: tuple[Memberships, ...] = ()
    chains: tuple[dict[str, Any], ...] = ()
    missing: int = 0


def run_chains(built: BuiltChain, started: StartedChain, checked: CheckedRequest, stop: StopRequest) -> FinishedRun:
    """Run the started chain, then the others, one after another, on the same split; returns the best of them.

    The best has the largest log-likelihood of the validation pairs.  Checkpoints hold the first chain, and a run that
    is resumed runs the others anew.  A chain that ``stop`` interrupts is left out, unless it is the first.
    """
    request, count = checked.request, started.sampler.options.chains
    if count == 1:
        return _run_chain(started, checked, stop, request.saved)
    # The file for later use from Python gets the best chain, in the end.
    finished = _run_chain(started, checked, stop, None if request.state is not None else request.saved)
    best = replace(finished, chains=(_note(finished),), missing=count - 1)
    for number in range(1, count):
        if stop:
            break
        request.on_message(f"Chain {number + 1} of {count}.")
        sampler = _another(built, number, request)
        try:
            own = start_chain(replace(built, sampler=sampler, sought=None), replace(checked, checkpoint=None), stop)
        except KeyboardInterrupt:
            break
        after = _run_chain(own, checked, stop, None)
        if stop and sampler.iteration < sampler.limit:
            break
        best = _better(best, after, request.top)
    if request.state is not None:
        checkpoints.save(request.state, best.sampler, best.trace, best.seconds)
        best = replace(best, checkpoint=request.state)
    return best


def _another(built: BuiltChain, number: int, request: Request) -> Sampler:
    first = built.sampler
    options = replace(first.options, seed=(first.options.seed + number) % 2**64)
    plan = planned(first.split, options, first.device.info, request)
    sampler = Sampler(first.split, options, first.runtime, built.fused, plan, built.team)
    built.opened.callback(sampler.close)
    return sampler


def _better(best: FinishedRun, after: FinishedRun, top: int) -> FinishedRun:
    """The better of the best chain so far and the next, with the memberships by the other; closes that one."""
    notes = (*best.chains, _note(after))
    wins = _score(notes[-1]) > max(map(_score, best.chains))
    better, other = (after, best) if wins else (best, after)
    others = (*best.others, stored_memberships(other.sampler, top))
    better.sampler.stages.add(other.sampler.stages.seconds())
    other.sampler.close()
    return replace(
        better,
        seconds=best.seconds + after.seconds,
        tried=best.tried,
        checkpoint=best.checkpoint,
        unsaved=best.unsaved,
        others=others,
        chains=notes,
        missing=best.missing - 1,
    )


def stored_memberships(sampler: Sampler, top: int) -> Memberships:
    """The memberships by a finished chain, with the ``top`` largest entries of each row."""
    found = results.with_codes(results.memberships(sampler, min(top, sampler.shape.k)), sampler)
    return results.with_samples(found, sampler)


def _note(finished: FinishedRun) -> dict[str, Any]:
    """The entry of the run record on one chain."""
    sampler, parts = finished.sampler, finished.sampler.split
    return {
        "seed": sampler.options.seed,
        "start": sampler.course.start,
        "iterations": sampler.iteration,
        "seconds": finished.seconds,
        "validation": of_result(sampler, parts.validation),
        "test": of_result(sampler, parts.test),
    }


def _score(note: dict[str, Any]) -> float:
    validation = note["validation"]
    return 0.0 if validation is None else float(validation["log_likelihood"])


def _run_chain(started: StartedChain, checked: CheckedRequest, stop: StopRequest, saved: Path | None) -> FinishedRun:
    """Iterate to the end, or until ``stop`` is true; writes checkpoints to ``saved``.

    One that cannot be written, as when the disk is full, is tried again at the next interval and at the end.
    """
    request, watch = checked.request, StabilityWatch()
    written: Path | None = None
    unsaved: InputError | None = None

    def keep(running: Sampler, so_far: Trace, seconds: float) -> None:
        nonlocal written, unsaved
        assert saved is not None
        try:
            checkpoints.save(saved, running, so_far, seconds, request.keep_checkpoint)
        except InputError as error:
            unsaved = error
            request.on_message(f"Going on without a checkpoint: {error}")
            return
        written, unsaved = saved, None
        request.on_checkpoint(saved)

    first = started.sampler.iteration
    with stage("running the chain", unit="iterations") as told:

        def progress(sampler: Sampler, trace: Trace) -> None:
            told.tell(sampler.iteration - first, sampler.limit - first)
            told.early = not (sampler.options.iterations or sampler.course.end)
            told.note = _progress_note(sampler, trace)
            if request.on_progress is not None:
                request.on_progress(sampler, trace)

        seconds = run(
            started.sampler,
            started.trace,
            on_progress=progress,
            on_checkpoint=None if saved is None else keep,
            checkpoint_seconds=request.checkpoint_seconds,
            checkpoint_at_end=True,
            stop=stop,
            watch=watch,
            seconds_before=started.seconds,
        )
    return FinishedRun(started.sampler, started.trace, seconds, watch, started.tried, written, unsaved)


def _progress_note(sampler: Sampler, trace: Trace) -> str:
    """Iteration, updates per vertex and the last metrics, with their iteration if it is not the current one."""
    last, updates = trace[-1], sampler.chain.vertex_updates / sampler.split.graph.n_vertices
    note = f"iteration {sampler.iteration} of {sampler.limit}, {updates:.1f} updates a vertex"
    if "auc" not in last:
        return note
    when = "" if last["iteration"] == sampler.iteration else f" at iteration {last['iteration']}"
    return f"{note}, AUC {auc_text(last, 3)}, perplexity {last['perplexity']:.2f}{when}"
