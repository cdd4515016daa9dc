"""Step 1: what a request asks for, checked; the options of the run and the checkpoint that it goes on from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

from mmsbgen.base.errors import InputError
from mmsbgen.detection.request import Request
from mmsbgen.detection.resume import options_of, resumed
from mmsbgen.sampler.diagnostics.communities import checked_threshold
from mmsbgen.sampler.minibatch import strategies
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.run import checkpoint as checkpoints
from mmsbgen.sampler.run import result_folder


@dataclass(frozen=True)
class CheckedRequest:
    """A request with its sampler's options; ``checkpoint`` is that of the run that it goes on with, if any.

    Where K is yet to be chosen, ``options`` have a K that stands in.
    """

    request: Request
    options: Options
    checkpoint: checkpoints.Checkpoint | None


def check_request(request: Request) -> CheckedRequest:
    """Check whatever can be checked without the graph.

    Raises :class:`InputError` for values that cannot be used, and where files of others would be lost.
    """
    top: Any = request.top
    if not isinstance(top, Integral) or top < 1:
        raise InputError(f"top={request.top}: at least one entry of each row is kept")
    checked_threshold(request.rule, request.threshold)
    if request.k_auto and request.resume is not None:
        raise InputError("-k auto starts a run; one that is resumed has its number of communities: leave -k out")
    checkpoint = checkpoints.load(request.resume) if request.resume else None
    _refuse_loss(request)
    if checkpoint is None:
        options = options_of({"n_communities": 2, **request.options} if request.k_auto else request.options)
    else:
        if checkpoint.meta.get("kept") and request.resumes_saved:
            # A checkpoint that was asked for once stays.
            request = replace(request, keep_checkpoint=True)
        options = resumed(checkpoint, request)
    strategies.strategy(options.mini_batch)
    return CheckedRequest(request, options, checkpoint)


def _refuse_loss(request: Request) -> None:
    """Raise :class:`InputError` when the run would replace a checkpoint that it does not resume, or files of others."""
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
