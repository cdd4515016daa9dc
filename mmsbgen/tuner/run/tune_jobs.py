"""The kernels of a run: their spaces, and their shares of the time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from mmsbgen.backends import DeviceInfo
from mmsbgen.backends.opencl.programs import POCL
from mmsbgen.base.errors import InputError
from mmsbgen.db.records.ranking import check_objective
from mmsbgen.db.records.tuning_records import Key
from mmsbgen.kernels.build import traits_of
from mmsbgen.kernels.family import KernelFamily, KernelSpec
from mmsbgen.kernels.problem import Problem, Value
from mmsbgen.kernels.record_key import key_of, program_digest
from mmsbgen.kernels.roof import RoofKind
from mmsbgen.kernels.space import Config, Traits
from mmsbgen.tuner.search.candidates import BudgetSpentError, Candidates, Fixed, candidates
from mmsbgen.tuner.search.strategies import OWN_STRATEGIES, check_strategy, search

_LAUNCH_S = 5e-6
"""Seconds of a launch that moves nothing."""
_FORESEEN = 64


@dataclass(frozen=True)
class KernelJob:
    """One kernel with its space and its cost."""

    spec: KernelSpec
    space: Candidates
    key: Key
    program: Callable[[Config], str]
    """The digest of a configuration's program."""
    moved: int
    """Bytes that a launch moves."""
    launches: float
    """Launches in an iteration of a run."""
    data: str
    """The name of the user's data; empty for generated inputs."""
    alike: Callable[[Config], object] | None = None
    """What configurations with the same program have in common, if one binary serves all of them."""

    def seconds(self, roof_gbps: float | None) -> float:
        """Estimated seconds in an iteration: of the launches, and of the bytes at the roof."""
        return self.launches * (_LAUNCH_S + self.moved / (1e9 * (roof_gbps or 100.0)))


def check_arguments(
    found: KernelFamily,
    specs: Sequence[KernelSpec],
    problem: Problem,
    strategy: str,
    objective: str,
    budget_trials: int | None,
    budget_seconds: float | None,
    fixed: Fixed,
) -> None:
    """Raise :class:`InputError` for arguments that are invalid on any device."""
    if (reason := found.inputs_refusal(problem)) is not None:
        raise InputError(reason)
    check_objective(objective)
    check_strategy(strategy)
    if budget_trials is not None and budget_trials < 1:
        raise InputError(f"the budget of trials must be at least 1, got {budget_trials}")
    if budget_seconds is not None and not 0 < budget_seconds < math.inf:
        raise InputError(f"the budget of seconds must be positive, got {budget_seconds}")
    axes = {axis.name for spec in specs for axis in spec.space.axes}
    if unknown := sorted(set(fixed) - axes):
        raise InputError(f"no axis {unknown[0]!r}; there are {', '.join(sorted(axes))}")


def kernel_jobs(
    info: DeviceInfo,
    family: KernelFamily,
    specs: Sequence[KernelSpec],
    problem: Problem,
    fixed: Fixed | None,
    data_of: Callable[[str], str] | None = None,
    declared: str = "",
) -> list[KernelJob]:
    """The work for each kernel; ``data_of`` returns the name of the data that a kernel is measured on.

    ``declared`` is a digest of the file that declares the family: trials of another file are those of other data.
    """
    traits, jobs = traits_of(info), []
    for spec in specs:
        key, space = key_of(info, spec, problem), candidates(spec, problem, traits, fixed)
        moved, launches = spec.traffic(problem), family.launches.get(spec.name, 1.0)
        data = declared if data_of is None else f"{declared} {data_of(spec.name)}".strip()
        alike = _alike(spec, problem, traits) if traits.kind == "cpu" and traits.platform != POCL else None
        jobs.append(KernelJob(spec, space, key, _programs(family, key), moved, launches, data, alike))
    return jobs


def roof_of(spec: KernelSpec, problem: Problem, most: int) -> RoofKind | None:
    """What the rate of a kernel is compared with, in at most so many bytes; None for gathers."""
    return None if spec.roof is None else spec.roof(problem).within(most)


def other_roofs(specs: Iterable[KernelSpec], problem: Problem, info: DeviceInfo, most: int) -> tuple[RoofKind, ...]:
    """The roofs of kernels that are not compared with gathers, and what rounds of host programs cost."""
    specs = list(specs)
    kinds = [roof_of(spec, problem, most) for spec in specs]
    if any(spec.program is not None for spec in specs):
        kinds += [RoofKind("launch")] + [RoofKind("barrier")] * (info.backend == "cuda")
    return tuple(kind for kind in dict.fromkeys(kinds) if kind is not None)


def share(jobs: Sequence[KernelJob], roof_gbps: float | None) -> float:
    """Share of the first of ``jobs`` in the estimated seconds of all.

    Measured seconds of one beside estimates of the others would favour it by as much as it is below the roof.
    """
    return jobs[0].seconds(roof_gbps) / sum(job.seconds(roof_gbps) for job in jobs)


def foreseen(strategy: str, space: Candidates, budget: int | None, seed: int) -> list[Config]:
    """The configurations that a search tries first, whatever their results: the default and the sample."""
    ask = _Asked()
    if strategy not in OWN_STRATEGIES:
        return [space.default]
    search(strategy, space, ask, budget=budget, seed=seed)
    return ask.configs


class _Asked:
    """Notes what a search asks for: the default alone, then several at a time or others before it asks by results."""

    def __init__(self) -> None:
        self.configs: list[Config] = []

    def __call__(self, configs: Sequence[Config]) -> list[float]:
        self.configs += configs[:_FORESEEN]
        if len(configs) > 1:
            raise BudgetSpentError
        return [1.0]

    def likely(self, configs: Sequence[Config]) -> None:
        """The search goes by results from here on."""
        raise BudgetSpentError


def _alike(spec: KernelSpec, problem: Problem, traits: Traits) -> Callable[[Config], object]:
    """The function from a configuration to what its program is made of, which is faster than to render it."""

    @cache  # a choice asks for those of a thousand
    def alike(*values: tuple[str, Value]) -> object:
        config = dict(values)
        used = spec.variables(problem, config, traits)
        block = None if used.get("any_block") else spec.launch(problem, config, 1, traits).block
        return block, tuple(sorted((name, repr(value)) for name, value in used.items() if not callable(value)))

    return lambda config: alike(*config.items())


def _programs(family: KernelFamily, key: Key) -> Callable[[Config], str]:
    """The function from a configuration to the digest of its program, which renders each once."""

    @cache
    def program(*values: tuple[str, Value]) -> str:
        return program_digest(family, key, dict(values))

    return lambda config: program(*config.items())
