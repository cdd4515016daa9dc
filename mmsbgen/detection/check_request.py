"""Step 1: check a request; get the options of the run and the checkpoint to resume, with its remaining iterations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

from mmsbgen.base.errors import InputError
from mmsbgen.detection.request import Request
from mmsbgen.sampler.diagnostics.communities import checked_threshold
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.saved import checkpoint as checkpoints
from mmsbgen.sampler.saved import result_folder
from mmsbgen.sampler.saved.result_options import ResultOptions


@dataclass(frozen=True)
class CheckedRequest:
    """A checked request with the sampler's options.

    ``checkpoint`` is the checkpoint to resume from, if any. With ``k_auto``, ``options`` hold a placeholder K.
    """

    request: Request
    options: Options
    checkpoint: checkpoints.Checkpoint | None
    k_auto: bool = False


def check_request(request: Request) -> CheckedRequest:
    """Check everything that can be checked without the graph.

    Raises :class:`InputError` for invalid values, and if files of another run or program would be overwritten.
    """
    top: Any = request.top
    if not isinstance(top, Integral) or top < 1:
        raise InputError(f"top={request.top}: at least one entry of each row is kept")
    checked_threshold(request.rule, request.threshold)
    k = request.options.get("n_communities")
    if k == "auto" and request.resume is not None:
        raise InputError("-k auto starts a run; one that is resumed has its number of communities: leave -k out")
    auto = request.resume is None and (k is None or (isinstance(k, str) and k == "auto"))
    checkpoint = checkpoints.load(request.resume) if request.resume else None
    _refuse_loss(request)
    if checkpoint is None:
        options = options_of({**request.options, "n_communities": 2} if auto else request.options)
    else:
        if checkpoint.meta["kept"] and request.resumes_saved:
            # The resumed run asked to keep its checkpoint, so this one does too.
            request = replace(request, keep_checkpoint=True)
        checkpoint, options = resumed(checkpoint, request)
    return CheckedRequest(request, options, checkpoint, auto)


def _refuse_loss(request: Request) -> None:
    """Raise :class:`InputError` if the run would replace a checkpoint it does not resume, or files of others."""
    saved = request.saved
    if request.overwrite or request.resumes_saved:
        return
    if request.out is not None:
        result_folder.keep_foreign(request.out)
    if saved is not None and saved.exists():
        raise InputError(
            f"{saved} is the checkpoint of another run, which would be lost: go on with that run by --resume {saved}, "
            "give it up by --overwrite, or name another folder"
        )


def options_of(given: Mapping[str, Any]) -> Options:
    """Build options from given values with ``n_communities``; raises :class:`InputError` for an unknown name."""
    if unknown := sorted(set(given) - set(Options.__dataclass_fields__)):
        names = ["random_state" if name == "seed" else name for name in Options.__dataclass_fields__]
        raise InputError(f"there is no option {unknown[0]!r}; there are {', '.join(names)}")
    return Options(**given)


def resumed(checkpoint: checkpoints.Checkpoint, request: Request) -> tuple[checkpoints.Checkpoint, Options]:
    """The checkpoint and the options of a resumed run; given options must equal its own, only iterations may be larger.

    A run of open length that samples gets a later end in the checkpoint's course, and goes on sampling.
    """
    before = checkpoint.options
    given = options_of({"n_communities": before.n_communities} | dict(request.options))
    for name in request.options:
        if name != "iterations" and getattr(given, name) != getattr(before, name):
            raise InputError(
                f"{name}={getattr(given, name)} is not that of the run in {checkpoint.path}, which has "
                f"{getattr(before, name)}; leave it out, or start a run of its own"
            )
    if given.iterations is None or given.iterations == before.iterations:
        return checkpoint, before
    done, course = checkpoint.meta["iteration"], checkpoint.meta["course"]
    if given.iterations < done:
        raise InputError(
            f"iterations={given.iterations}: the run in {checkpoint.path} has already done {done}; give more, or leave "
            "it out"
        )
    if before.iterations is None and course["sampling_from"] is not None:
        return replace(checkpoint, meta=checkpoint.meta | {"course": course | {"end": given.iterations}}), before
    if before.sample_sweeps:
        raise InputError(
            f"iterations={given.iterations}: the run in {checkpoint.path} has yet to find the optimum after which it "
            f"samples for {before.sample_sweeps} sweeps; leave iterations out"
        )
    return checkpoint, replace(before, iterations=given.iterations)


def has_work(checkpoint: checkpoints.Checkpoint, options: Options, request: Request) -> None:
    """Raise :class:`InputError` if the chain has finished and the folder already holds its results."""
    done, course = checkpoint.meta["iteration"], checkpoint.meta["course"]
    end = course["end"] if options.iterations is None else options.iterations
    record = None if request.out is None else result_folder.record_in(request.out)
    if end is None or done < end or record is None or options.chains > max(1, len(record.get("chains", []))):
        return
    if request.whole or request.top != ResultOptions.top:
        return
    if request.out is None or not all((request.out / name).exists() for name in result_folder.FILES):
        return
    rule = {"name": request.rule, "threshold": checked_threshold(request.rule, request.threshold)}
    there = (record["graph"].get("digest"), record.get("iterations"), record.get("seed"), record.get("rule"))
    if there == (checkpoint.meta["graph"], done, options.seed, rule):
        raise InputError(
            f"the run in {checkpoint.path} is already at iteration {done}, and {request.out} has its results: give -n "
            "above it to go on"
        )


def longer(checkpoint: checkpoints.Checkpoint, options: Options, request: Request) -> None:
    """Send a message if a resumed run is extended to another number of iterations."""
    before, course = checkpoint.options, checkpoint.meta["course"]
    if options.iterations == before.iterations:
        if course["sampling_from"] is not None and request.options.get("iterations") is not None:
            request.on_message(f"The run goes on sampling to iteration {course['end']}.")
        return
    still = "still begin" if before.burn_in_end is not None else "begin"
    request.on_message(
        f"The run goes to iteration {options.iterations} instead of {before.iterations or 'its own end'}; it is still "
        f"evaluated every {before.interval} iterations, and means {still} at iteration {options.burn_in_end}."
        f"{_own(options)}"
    )


def _own(after: Options) -> str:
    """A warning that an extended run may differ from one of that length, or "" if it does not."""
    own = ["how long it tries starts"] if after.start == "auto" else []
    own += ["until when it refills empty communities"] if after.refines else []
    end = f" A run of {after.iterations} iterations from the beginning may give other results, since its length says "
    return f"{end}{' and '.join(own)}." if own else ""
