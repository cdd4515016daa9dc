"""Step 5: build the chain on its device and start it, or restore it from a checkpoint."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace

from mmsbgen.backends import Device, DeviceInfo, opened
from mmsbgen.base.atomic_files import writable_folder
from mmsbgen.base.stop_signals import StopRequest
from mmsbgen.detection.auto_k import chosen_k
from mmsbgen.detection.check_request import CheckedRequest
from mmsbgen.detection.plan_chain import fitting_plan
from mmsbgen.detection.ranks.forming import formed_team
from mmsbgen.families.mmsb import MMSB
from mmsbgen.graph import Split
from mmsbgen.kernels.runtime import Runtime, by_tier, opened_runtime
from mmsbgen.sampler.chain.plan import Plan
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics.evaluation import Trace
from mmsbgen.sampler.ranks.sharing import Team
from mmsbgen.sampler.run.choose_k import KTrial
from mmsbgen.sampler.run.start_trials import choose, trials_told
from mmsbgen.sampler.saved import checkpoint as checkpoints
from mmsbgen.sampler.starts.background_search import StartSearch
from mmsbgen.sampler.starts.device_moves import moving_kernels


@dataclass(frozen=True)
class BuiltChain:
    """A chain before its start; ``sought`` is the background search for starts, ``tried`` the trials of K.

    ``fused`` is whether iterations are fused, ``opened`` closes further samplers after the run, and ``team`` are the
    ranks that share the sweeps.
    """

    sampler: Sampler
    sought: StartSearch | None
    tried: list[KTrial]
    fused: bool | None
    opened: ExitStack
    team: Team | None = None


@dataclass(frozen=True)
class StartedChain:
    """A chain ready to iterate; ``trace`` and ``seconds`` include the part of the run before a resume."""

    sampler: Sampler
    trace: Trace
    seconds: float
    tried: list[KTrial]


@contextmanager
def built_chain(
    parts: Split, info: DeviceInfo, plan: Plan | None, checked: CheckedRequest, sought: StartSearch | None
) -> Iterator[BuiltChain]:
    """Open the device and build the chain, choosing K first if ``plan`` is None; closes both."""
    request, options, checkpoint = checked.request, checked.options, checked.checkpoint
    with (
        opened(info) as device,
        _runtime(device, checked) as runtime,
        nullcontext() if request.out is None else writable_folder(request.out),
        ExitStack() as stack,
    ):
        tried: list[KTrial] = []
        team = None
        if request.world is not None:
            team = stack.enter_context(closing(formed_team(request.world, device, request.configs)))
            if team.reason:
                request.on_message(f"Rows go by MPI, through the hosts: {team.reason}.")
        if plan is None:
            k, tried = chosen_k(parts, checked, runtime, team)
            options = replace(options, n_communities=k)
            plan = fitting_plan(parts, options, info, request)
        fused = request.fused
        if checkpoint is not None and fused is None:
            fused = checkpoint.fused and info.backend == "cuda"
        with ExitStack() as opened_samplers:
            sampler = Sampler(parts, options, runtime, fused, plan, team)
            opened_samplers.callback(sampler.close)
            if sought is not None and sought.moves_on_device:
                kernels = moving_kernels(sampler.runtime, sampler.problem, "starts are sought")
                sought.use_device(None if kernels is None else kernels.best.config)
            for line in by_tier(sampler.runtime.choices):
                request.on_detail(f"Configurations, {line}.")
            yield BuiltChain(sampler, sought, tried, fused, opened_samplers, team)


def _runtime(device: Device, checked: CheckedRequest) -> AbstractContextManager[Runtime]:
    request, checkpoint = checked.request, checked.checkpoint
    # The configurations of the checkpoint give the same bits, but only on the same device.
    here = checkpoints.device_name(device.info)
    same = checkpoint is not None and checkpoint.meta["fingerprint"].get("device") == here
    kept = checkpoint.configs if checkpoint is not None and same else {}

    def tell(location: str) -> None:
        request.on_message(f"There is no tuning database at {location}: no records of yours are used.")

    return opened_runtime(device, MMSB, request.database, request.configs, kept, tell)


def start_chain(built: BuiltChain, checked: CheckedRequest, stop: StopRequest) -> StartedChain:
    """Start the chain, or restore it from the checkpoint; sends messages on the start.

    Raises KeyboardInterrupt if ``stop`` becomes true while starts are tried.
    """
    say, detail = checked.request.on_message, checked.request.on_detail
    checkpoint, sampler = checked.checkpoint, built.sampler
    if checkpoint is None:
        begin = time.monotonic()
        choose(sampler, lambda: bool(stop), lambda text: detail(f"{text}."), built.sought)
        for line in trials_told(sampler):
            detail(line)
        return StartedChain(sampler, [], time.monotonic() - begin, built.tried)
    changed = checkpoints.differences(checkpoint, sampler)
    checkpoints.restore(checkpoint, sampler)
    how = f"; not bitwise, since these differ: {', '.join(changed)}." if changed else ", bit for bit."
    say(f"Resumed after iteration {sampler.iteration}{how}")
    return StartedChain(sampler, checkpoint.trace, float(checkpoint.meta["seconds"]), built.tried)
