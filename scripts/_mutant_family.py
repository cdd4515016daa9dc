"""The family of the package with an axis more: the fault that is put into a kernel's program."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jinja2
from _mutants import MUTANTS, Mutant

from mmsbgen.families import family
from mmsbgen.kernels.family import KernelSpec
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.render import environment
from mmsbgen.kernels.space import Axis, Config, Constraint, Space, Traits

AXIS = "fault"
NONE = "none"
MMSB = family()
BY_KERNEL: defaultdict[str, list[Mutant]] = defaultdict(list)
for _mutant in MUTANTS:
    BY_KERNEL[_mutant.kernel].append(_mutant)


def config_of(mutant: Mutant, problem: Problem, traits: Traits) -> dict[str, Any]:
    """The configuration of a mutant, without its fault."""
    axes = {axis.name for axis in MMSB.kernel(mutant.kernel).space.axes}
    own = {name: value for name, value in mutant.config.items() if name in axes}
    return {**MMSB.kernel(mutant.kernel).default(problem, traits), **own}


def _mutated(spec: KernelSpec, mutants: Sequence[Mutant]) -> KernelSpec:
    @functools.cache
    def configs(problem: Problem, traits: Traits) -> list[dict[str, Any]]:
        pairs = [(mutant, config_of(mutant, problem, traits)) for mutant in mutants]
        return [{**config, AXIS: fault} for mutant, config in pairs for fault in (NONE, mutant.name)]

    def chosen(config: Config, problem: Problem, traits: Traits) -> str | None:
        return None if config in configs(problem, traits) else "is no mutant's"

    return replace(
        spec,
        template=f"mutants/{spec.name}",
        space=Space(
            (Axis(AXIS, (NONE, *(mutant.name for mutant in mutants)), "what is left out or wrong"), *spec.space.axes),
            (Constraint("chosen", chosen), *spec.space.constraints),
        ),
        default=lambda problem, traits: {AXIS: NONE, **config_of(mutants[0], problem, traits)},
        variables=lambda problem, config, traits: (
            spec.variables(problem, config, traits) | {AXIS: config[AXIS], "block_size": config["block_size"]}
        ),
        demand=None,
        carry=None,
    )


def _put_in(program: str, kernel: KernelSpec, fault: str) -> str:
    if fault == NONE:
        return program
    try:
        return next(mutant for mutant in BY_KERNEL[kernel.name] if mutant.name == fault).put_into(program)
    except LookupError as error:
        raise jinja2.TemplateError(str(error)) from None


_WRAPPED = '{%% filter put_in(kernel, fault) %%}{%% include "%s" %%}{%% endfilter %%}'
environment().filters["put_in"] = _put_in
_own = environment().loader
assert _own is not None
environment().loader = jinja2.ChoiceLoader(
    [_own, jinja2.DictLoader({f"mutants/{name}": _WRAPPED % MMSB.kernel(name).template for name in BY_KERNEL})]
)
MUTANT_FAMILY = replace(
    MMSB,
    name="mutants",
    kernels={name: _mutated(MMSB.kernel(name), mutants) for name, mutants in BY_KERNEL.items()},
    tuned=(),
)
