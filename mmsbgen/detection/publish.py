"""Step 7: turn a finished chain into communities and a run record, as values and as files."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from mmsbgen.base.progress import stage
from mmsbgen.detection.check_request import CheckedRequest
from mmsbgen.detection.request import Detection
from mmsbgen.detection.run_chains import CheckpointError, FinishedRun
from mmsbgen.graph import HeldOut
from mmsbgen.sampler.diagnostics.communities import checked_threshold, cover, entries_needed
from mmsbgen.sampler.diagnostics.convergence import convergence
from mmsbgen.sampler.diagnostics.evaluation import link_probabilities, metrics
from mmsbgen.sampler.diagnostics.explained_links import Floats
from mmsbgen.sampler.diagnostics.memberships import Memberships
from mmsbgen.sampler.diagnostics.state_rows import row_source
from mmsbgen.sampler.diagnostics.verdict import verdict
from mmsbgen.sampler.posterior import moments
from mmsbgen.sampler.posterior.draws import ARRAYS
from mmsbgen.sampler.posterior.report import sampling_report
from mmsbgen.sampler.run.calibrate import calibrate
from mmsbgen.sampler.saved import results


def publish(finished: FinishedRun, checked: CheckedRequest) -> Detection:
    """Compute communities from the chain and write the requested files.

    Raises :class:`CheckpointError` afterwards if the run should leave a checkpoint that could not be written.  If this
    fails or is interrupted, the exception carries a note on how to resume from the checkpoint.
    """
    request = checked.request
    try:
        with stage("making results", 1.0) as told:

            def making(what: str, share: float) -> None:
                told.rename(f"making {what}")
                told.tell(share)
                request.on_making(what, share)

            found = _published(finished, checked, making)
        if finished.unsaved is not None and request.state is None and (found.interrupted or request.keep_checkpoint):
            results_too = "" if request.out is None else f" The results are in {request.out}."
            raise CheckpointError(f"There is no checkpoint of the end: {finished.unsaved}{results_too}")
        return found
    except BaseException as error:
        if finished.checkpoint is not None and request.state is None:
            place = finished.checkpoint
            error.add_note(f"The chain is kept: go on with --resume {place} -o {place.parent}")
        raise


def _published(finished: FinishedRun, checked: CheckedRequest, making: Callable[[str, float], None]) -> Detection:
    request, sampler, trace = checked.request, finished.sampler, finished.trace
    parts = sampler.split
    threshold = checked_threshold(request.rule, request.threshold)
    needed = entries_needed(request.rule, threshold, sampler.shape.k)
    entries = min(max(needed, request.top), sampler.shape.k)
    wide = results.memberships(sampler, entries, partial(making, "memberships"))
    looking = partial(making, f"communities by the rule {request.rule}")
    links, known = parts.graph.links, (parts.training_adjacency, parts.degrees)
    found, numbered = cover(wide, links, request.rule, threshold, row_source(sampler), looking, *known)
    own = results.with_samples(results.with_codes(numbered.first(request.top), sampler), sampler)
    memberships = replace(own, others=finished.others)
    held_out = {"validation": parts.validation, "test": parts.test}
    with ThreadPoolExecutor(1) as beside:
        calibrated = beside.submit(calibrate, memberships, parts, checked.options.seed, numbered)
        judged = verdict(sampler, wide.indices[:, 0], making)
        converged = convergence(sampler, trace, wide, finished.watch)
        of_one = {} if finished.others else {name: link_probabilities(sampler, x.pairs) for name, x in held_out.items()}
    memberships, calibration = calibrated.result()
    interrupted = sampler.iteration < sampler.limit or finished.missing > 0
    rule = {"name": request.rule, "threshold": threshold}
    notes: dict[str, Any] = {"tried": [asdict(one) for one in finished.tried]} if finished.tried else {}
    notes["interrupted"] = interrupted
    if finished.chains:
        options = replace(sampler.options, seed=checked.options.seed)
        notes |= {"seed": options.seed, "options": asdict(options), "chains": list(finished.chains)}
    notes["held_out"] = {
        name: _metrics(memberships, pairs, of_one.get(name), parts.density) for name, pairs in held_out.items()
    }
    notes["calibration"] = calibration
    notes["verdict"] = asdict(judged)
    notes["convergence"] = converged
    if draws := memberships.all_draws:
        of_pi = {} if own.posterior is None else moments.WHOLE_ARRAYS if request.whole else moments.ARRAYS
        notes["sampling"] = sampling_report(draws, of_pi | ARRAYS, partial(making, "R-hat"))
    record = results.record(sampler, found, rule, trace, finished.seconds, notes)
    if request.out is not None:
        with stage(f"writing {request.out.name}"):
            results.write(request.out, memberships, found, record, sampler if request.whole else None)
    if request.state is None and request.saved is not None and not interrupted and not request.keep_checkpoint:
        request.saved.unlink(missing_ok=True)
    kept = request.saved if interrupted else None
    return Detection(memberships, found, trace, record, interrupted, kept, parts.graph)


def _metrics(found: Memberships, pairs: HeldOut, p: Floats | None, density: float) -> dict[str, Any] | None:
    """Metrics of ``pairs`` by the link probabilities that users get, pooled and calibrated; None without pairs.

    ``p`` are those of a run with one chain before calibration.
    """
    if not len(pairs.pairs):
        return None
    p = found.link_probabilities(pairs.pairs) if p is None else found.calibrated(p)
    return metrics(p, pairs, density)
