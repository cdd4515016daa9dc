"""Step 7: turn a finished chain into communities and a run record, as values and as files."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

from mmsbgen.detection.check_request import CheckedRequest
from mmsbgen.detection.request import Detection
from mmsbgen.detection.run_chain import FinishedRun
from mmsbgen.sampler.diagnostics.communities import checked_threshold, cover, entries_needed
from mmsbgen.sampler.diagnostics.convergence import convergence
from mmsbgen.sampler.diagnostics.evaluation import of_result
from mmsbgen.sampler.diagnostics.state_rows import row_source
from mmsbgen.sampler.diagnostics.verdict import verdict
from mmsbgen.sampler.run import results


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
    memberships = results.with_codes(numbered.first(request.top), sampler)
    interrupted = sampler.iteration < sampler.limit
    rule = {"name": request.rule, "threshold": threshold}
    notes: dict[str, Any] = {"tried": [asdict(one) for one in finished.tried]} if finished.tried else {}
    notes["held_out"] = {"validation": of_result(sampler, parts.validation), "test": of_result(sampler, parts.test)}
    notes["verdict"] = asdict(verdict(sampler, request.on_making))
    notes["convergence"] = convergence(sampler, trace, wide, finished.watch)
    record = results.record(sampler, found, rule, trace, finished.seconds, notes)
    if request.out is not None:
        results.write(request.out, memberships, found, record, sampler if request.whole else None)
    if request.state is None and request.saved is not None and not interrupted and not request.keep_checkpoint:
        request.saved.unlink(missing_ok=True)
    kept = request.saved if interrupted else None
    return Detection(memberships, found, trace, record, interrupted, kept, parts.graph)
