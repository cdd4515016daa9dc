"""Step 7: turn a finished chain into communities and a run record, as values and as files."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from typing import Any

from mmsbgen.detection.check_request import CheckedRequest
from mmsbgen.detection.request import Detection
from mmsbgen.detection.run_chains import FinishedRun
from mmsbgen.graph import HeldOut
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics.communities import checked_threshold, cover, entries_needed
from mmsbgen.sampler.diagnostics.convergence import convergence
from mmsbgen.sampler.diagnostics.evaluation import link_probabilities, metrics
from mmsbgen.sampler.diagnostics.memberships import Memberships
from mmsbgen.sampler.diagnostics.state_rows import row_source
from mmsbgen.sampler.diagnostics.verdict import verdict
from mmsbgen.sampler.run import results
from mmsbgen.sampler.run.calibrate import calibrate


def publish(finished: FinishedRun, checked: CheckedRequest) -> Detection:
    """Compute communities from the chain and write the requested files.

    If this fails or is interrupted, the exception carries a note on how to resume from the checkpoint.
    """
    try:
        return _published(finished, checked)
    except BaseException as error:
        if finished.checkpoint is not None and checked.request.state is None:
            place = finished.checkpoint
            error.add_note(f"The chain is kept: go on with --resume {place} -o {place.parent}")
        raise


def _published(finished: FinishedRun, checked: CheckedRequest) -> Detection:
    request, sampler, trace = checked.request, finished.sampler, finished.trace
    parts = sampler.split
    threshold = checked_threshold(request.rule, request.threshold)
    needed = entries_needed(request.rule, threshold, sampler.shape.k)
    entries = min(max(needed, request.top), sampler.shape.k)
    wide = results.memberships(sampler, entries, partial(request.on_making, "memberships"))
    making = partial(request.on_making, f"communities by the rule {request.rule}")
    found, numbered = cover(wide, parts.graph.links, request.rule, threshold, rows=row_source(sampler), tell=making)
    memberships = replace(results.with_codes(numbered.first(request.top), sampler), others=finished.others)
    calibrating = partial(request.on_making, "calibration of link probabilities")
    memberships, calibration = calibrate(memberships, parts, checked.options.seed, calibrating)
    interrupted = sampler.iteration < sampler.limit or finished.missing > 0
    rule = {"name": request.rule, "threshold": threshold}
    notes: dict[str, Any] = {"tried": [asdict(one) for one in finished.tried]} if finished.tried else {}
    notes["interrupted"] = interrupted
    if finished.chains:
        options = replace(sampler.options, seed=checked.options.seed)
        notes |= {"seed": options.seed, "options": options.as_dict(), "chains": list(finished.chains)}
    notes["held_out"] = {
        "validation": _metrics(sampler, memberships, parts.validation),
        "test": _metrics(sampler, memberships, parts.test),
    }
    notes["calibration"] = calibration
    notes["verdict"] = asdict(verdict(sampler, request.on_making))
    notes["convergence"] = convergence(sampler, trace, wide, finished.watch)
    record = results.record(sampler, found, rule, trace, finished.seconds, notes)
    if request.out is not None:
        results.write(request.out, memberships, found, record, sampler if request.whole else None)
    if request.state is None and request.saved is not None and not interrupted and not request.keep_checkpoint:
        request.saved.unlink(missing_ok=True)
    kept = request.saved if interrupted else None
    return Detection(memberships, found, trace, record, interrupted, kept, parts.graph)


def _metrics(sampler: Sampler, memberships: Memberships, pairs: HeldOut) -> dict[str, Any] | None:
    """Metrics of ``pairs`` by the link probabilities that users get, pooled and calibrated; None without pairs."""
    if not len(pairs.pairs):
        return None
    if memberships.others:
        p = memberships.link_probabilities(pairs.pairs)
    else:
        p = memberships.calibrated(link_probabilities(sampler, pairs.pairs))
    return metrics(p, pairs, sampler.split.graph.density)
