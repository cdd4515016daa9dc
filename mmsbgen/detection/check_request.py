"""Step 1: check a request; get the options of the run and the checkpoint to resume."""

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
from mmsbgen.sampler.saved import checkpoint as checkpoints
from mmsbgen.sampler.saved import result_folder


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
        if checkpoint.meta.get("kept") and request.resumes_saved:
            # The resumed run asked to keep its checkpoint, so this one does too.
            request = replace(request, keep_checkpoint=True)
        checkpoint, options = resumed(checkpoint, request)
    strategies.strategy(options.mini_batch)
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
