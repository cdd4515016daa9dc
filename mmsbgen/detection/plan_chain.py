"""Step 4: what the chain is made of, on which device, and whether it fits; nothing is allocated yet."""

from __future__ import annotations

from mmsbgen.backends import find_device
from mmsbgen.backends.base import DeviceInfo
from mmsbgen.detection.check_request import CheckedRequest
from mmsbgen.detection.request import Request
from mmsbgen.graph import Split
from mmsbgen.sampler.chain.plan import Plan
from mmsbgen.sampler.options.options import Options


def plan_chain(parts: Split, checked: CheckedRequest) -> tuple[DeviceInfo, Plan | None]:
    """The device, and the plan of the chain on it: None where K is yet to be chosen, which takes the device.

    Raises what :func:`fitting_plan` raises, and :class:`mmsbgen.base.errors.InputError` without such a device.
    """
    info = find_device(checked.request.device)
    return info, None if checked.request.k_auto else fitting_plan(parts, checked.options, info, checked.request)


def fitting_plan(parts: Split, options: Options, info: DeviceInfo, request: Request) -> Plan:
    """The plan of a chain, with a message on the memory that it needs.

    The memory of the search for starts is counted too.
    Raises :class:`mmsbgen.base.errors.DeviceMemoryError` where it does not fit.
    """
    plan = Plan(parts, options, info)
    request.on_message(f"{parts.graph.name or 'graph'} on {info.name} ({info.platform}): {plan.require()}.")
    return plan
