"""Step 4: choose the device, plan the chain and check that it fits; nothing is allocated yet."""

from __future__ import annotations

import numpy as np

from mmsbgen.backends.base import DeviceInfo
from mmsbgen.detection.request import Request
from mmsbgen.graph import Split
from mmsbgen.sampler.chain.plan import Plan
from mmsbgen.sampler.diagnostics.communities import checked_threshold, entries_needed
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.state import memory_needs


def planned(parts: Split, options: Options, info: DeviceInfo, request: Request) -> Plan:
    """The plan of a chain, with the results that the request asks for."""
    threshold, k = checked_threshold(request.rule, request.threshold), options.n_communities
    results = memory_needs.of_results(
        parts.graph.n_vertices,
        k,
        np.dtype(options.dtype).itemsize,
        request.top,
        entries_needed(request.rule, threshold, k),
        is_fixed=request.rule == "top",
        chains=options.chains,
        keeps_spread=options.keeps_spread,
    )
    return Plan(parts, options, info, results)


def fitting_plan(parts: Split, options: Options, info: DeviceInfo, request: Request) -> Plan:
    """The plan of a chain; sends a message on the memory it needs, including the search for starts.

    With several chains, the best one so far stays on the device beside the next.

    Raises :class:`mmsbgen.base.errors.DeviceMemoryError` if it does not fit.
    """
    plan = planned(parts, options, info, request)
    beside = plan.needs.device_total if options.chains > 1 else 0
    request.on_message(f"{parts.graph.name or 'graph'} on {info.name} ({info.platform}): {plan.require(beside)}.")
    return plan
