"""The family of the package with an axis more: the fault that is put into a kernel's program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jinja2

from mmsbgen.families import family
from mmsbgen.kernels.family import KernelSpec
from mmsbgen.kernels.problem import Problem, Value
from mmsbgen.kernels.render import environment
from mmsbgen.kernels.space import Axis, Space, Traits
from tests.mutants.mutants import MUTANTS, Mutant

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


@dataclass(frozen=True)
class _Few(Space):
    """A space of which some configurations are tried: the whole product would be many times the kernel's own."""

    few: Callable[[Problem, Traits], list[dict[str, Any]]] = lambda problem, traits: []

    def judged(
        self, problem: Problem, traits: Traits, kept: Mapping[str, Sequence[Value]] | None = None
    ) -> Iterator[tuple[dict[str, Value], str | None, int]]:
        for config in self.few(problem, traits):
            if all(config[name] in values for name, values in (kept or {}).items() if name in config):
                yield config, self.refusal(config, problem, traits), 1


def _mutated(spec: KernelSpec, mutants: Sequence[Mutant]) -> KernelSpec:
    def few(problem: Problem, traits: Traits) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for mutant in mutants:
            for fault in (NONE, mutant.name):
                config = {AXIS: fault} | config_of(mutant, problem, traits)
                found += [] if config in found else [config]
        return found

    return replace(
        spec,
        template=f"mutants/{spec.name}",
        space=_Few(
            (Axis(AXIS, (NONE, *(mutant.name for mutant in mutants)), "what is left out or wrong"), *spec.space.axes),
            spec.space.constraints,
            few,
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
