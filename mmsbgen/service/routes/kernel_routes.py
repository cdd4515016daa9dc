"""Routes of kernels: lists and sources."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Annotated, Literal

from fastapi import APIRouter, Query

from mmsbgen.base.errors import InputError
from mmsbgen.families import family as family_named
from mmsbgen.families import names
from mmsbgen.kernels.complete import parse_value
from mmsbgen.kernels.family import KernelFamily, KernelSpec
from mmsbgen.kernels.problem import Parameter
from mmsbgen.kernels.render import render
from mmsbgen.kernels.space import Traits, describe
from mmsbgen.service.http.problem_details import documented
from mmsbgen.service.models import kernel_models
from mmsbgen.service.models.kernel_models import Name, Pair, Text, values_of
from mmsbgen.service.routes.tuning_routes import Problem, pairs
from mmsbgen.service.service_context import Core

router = APIRouter(prefix="/api/v1", tags=["kernels"], responses=documented(401, 421, 422, 429, 503))

Dialect = Literal["cuda", "opencl"]
FamilyName = Annotated[Text, Query(description="The family of kernels; registered, and never a file.")]


@router.get("/kernels")
def kernels(family: FamilyName = "mmsb") -> kernel_models.KernelList:
    """The kernels of a family with their axes, and the parameters of its problems."""
    found = family_named(family)
    return kernel_models.KernelList(
        family=found.name,
        families=list(names()),
        doc=found.doc,
        parameters=[_parameter(one) for one in found.parameters],
        kernels=[_kernel(found, spec) for spec in found.kernels.values()],
    )


@router.get("/source")
async def source(
    core: Core,
    kernel: Annotated[Name, Query(description="The kernel.", examples=["update_phi"])],
    family: FamilyName = "mmsb",
    device: Annotated[
        Text | None, Query(description="For this device, in the configuration that it would get.")
    ] = None,
    backend: Annotated[Dialect | None, Query(description="Without a device: the language.")] = None,
    problem: Problem = [],  # noqa: B006
    axis: Annotated[list[Pair], Query(description="Axes as AXIS=VALUE.", max_length=32)] = [],  # noqa: B006
) -> kernel_models.SourceModel:
    """The source of a kernel, for a device or a language.

    Axes that are not given come from the best known configuration for the device, or from the default.
    """
    found = family_named(family)
    spec = found.kernel(kernel)
    values = found.problem(**pairs(problem))
    given = {name: parse_value(spec, name, text) for name, text in pairs(axis).items()}
    selected, config = "default", None
    if device is not None:
        if backend is not None:
            raise InputError("device and backend each say what the source is for: give one of them")
        await core.discovered.wait()
        target, selection, _ = await asyncio.to_thread(core.look_ups.selected, device, found, kernel, values)
        traits = target.traits
        config, selected = selection.config, f"{selection.tier}: {selection.reason}"
    else:
        traits = _traits(backend or "opencl")
    if traits.dialect not in spec.dialects:
        raise InputError(f"{kernel} is not written in {traits.dialect}; it is in {', '.join(spec.dialects)}")
    asked = dict(config or spec.default(values, traits)) | given
    if (reason := spec.space.refusal(asked, values, traits)) is not None:
        raise InputError(f"these axes do not go with the others of {describe(asked)}: {reason}; give those too")
    made = await asyncio.to_thread(render, spec, values, asked, traits)
    return kernel_models.SourceModel(
        kernel=kernel,
        dialect="cuda" if traits.dialect == "cuda" else "opencl",
        problem=dict(values.only(spec.parameters)),
        configuration=asked,
        filled=[name for name in asked if name not in given],
        selected=selected,
        template_digest=made.digest,
        text=made.text,
    )


def _traits(dialect: Dialect) -> Traits:
    """Traits of a GPU for CUDA and of a CPU for OpenCL, the defaults of ``mmsbgen render``."""
    lanes = 32 if dialect == "cuda" else 0
    return Traits(dialect, "gpu" if dialect == "cuda" else "cpu", sub_group_size=lanes)


def _kernel(family: KernelFamily, spec: KernelSpec) -> kernel_models.KernelModel:
    axes = [
        kernel_models.AxisModel(name=a.name, values=list(a.values), doc=a.doc, mode=a.name in spec.modes)
        for a in spec.space.axes
    ]
    found = {
        "family": family.name,
        "axes": axes,
        "constraints": list(Counter(rule.name for rule in spec.space.constraints)),
        "worth_tuning": spec.name in (family.tuned or family.kernels),
    }
    return kernel_models.KernelModel(**values_of(spec, kernel_models.KernelModel) | found)


def _parameter(one: Parameter) -> kernel_models.ParameterModel:
    number = isinstance(one.default, int) and not isinstance(one.default, bool)
    bounds = {} if number else {"minimum": None, "maximum": None}
    return kernel_models.ParameterModel(**values_of(one, kernel_models.ParameterModel) | bounds)
