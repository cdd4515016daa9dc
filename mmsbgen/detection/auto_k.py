"""``-k auto``: chooses the number of communities before the chain is planned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mmsbgen.base.stop_signals import StopRequest
from mmsbgen.detection.check_request import CheckedRequest
from mmsbgen.detection.plan_chain import planned
from mmsbgen.families.mmsb.numbers.storage import STORAGES
from mmsbgen.graph import Split
from mmsbgen.kernels.runtime import Runtime
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.ranks.sharing import Team
from mmsbgen.sampler.run.choose_k import KTrial, choose_k


def chosen_k(
    parts: Split, checked: CheckedRequest, runtime: Runtime, team: Team | None = None
) -> tuple[int, list[KTrial]]:
    """Choose the number of communities by held-out pairs; returns it and the trials.

    Trials use block mini-batches, whatever mini-batches the run will use.
    """
    options, detail = checked.options, checked.request.on_detail
    # Sizes given for stars do not apply to blocks; priors and the like do.
    sizes: dict[str, Any] = {} if options.block else {"mini_batch_size": None, "n_partners": None, "schedule": None}
    blocks = replace(
        options,
        mini_batch="block",
        storage=STORAGES[0],
        iterations=None,
        noise=None,
        sample_sweeps=0,
        average=False,
        evaluate_every=None,
        **sizes,
    )

    def make(of: Split, k: int) -> Sampler:
        chosen = replace(blocks, n_communities=k)
        plan = planned(of, chosen, runtime.device.info, checked.request)
        detail(f"K={k}: {plan.require(runtime.device.allocated)}.")
        return Sampler(of, chosen, runtime, plan=plan, team=team)

    with StopRequest().listening() as stop:
        k, tried = choose_k(parts, make, options.seed, lambda text: detail(f"{text}."), lambda: bool(stop))
    if not tried:
        checked.request.on_message(f"No pairs are held out to choose by: K={k} is the number of Leiden's communities.")
    else:
        best = max(tried, key=lambda one: one.log_likelihood)
        near = [one.k for one in tried if best.log_likelihood - one.log_likelihood <= one.standard_error]
        others = [f"K={other}" for other in near if other != k]
        if k not in near:
            why = "is enough; what a larger K adds stays empty"
        elif others:
            why = f"predicts held-out pairs well, and so {'does' if len(others) == 1 else 'do'} {_joined(others)}"
        else:
            why = "predicts held-out pairs best" if len(tried) > 1 else "is the only one that could be tried"
        checked.request.on_message(f"Chosen: K={k} {why}.")
    return k, tried


def _joined(names: list[str]) -> str:
    """``a``, ``a and b``, or ``a, b and c``."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
