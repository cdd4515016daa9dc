"""The configurations that a search may try, and the interface that measures them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from mmsbgen.base.errors import InputError
from mmsbgen.kernels.family import KernelSpec
from mmsbgen.kernels.problem import Problem, Value
from mmsbgen.kernels.space import Config, Traits, describe
from mmsbgen.tuner.search.cost_model import Model, model_of

Fixed = Mapping[str, Value | tuple[Value, ...]]
"""Axes that a search holds at one value, or restricts to several."""

Evaluate = Callable[[Sequence[Config]], list[float]]
"""Cost of each configuration (seconds, or another objective), infinity for one that failed; repeats cost nothing.

Optional attributes serve the default strategy.  ``likely(configs)`` announces configurations that may be evaluated
soon.  ``part()`` is the share of the budget that is spent.  ``cost(config)`` is the seconds that compiling a tried
configuration takes, and those that running it took; it is None without a budget of seconds.  ``ready(configs)`` says
which need not be compiled any more; ``wait_for_one()`` waits until one more of those announced is, and returns False if
there are none.  ``side_by_side`` is the number of configurations that compile in the time of one.
"""


class BudgetSpentError(Exception):
    """No further configuration may be measured."""


@dataclass(frozen=True)
class Candidates:
    """The valid configurations of a kernel for a problem on a device, and why the others are refused.

    ``refusals`` counts refused configurations by the name of the constraint; ``examples`` has one reason each.
    """

    configs: list[dict[str, Value]]
    default: dict[str, Value]
    refusals: Counter[str]
    examples: Mapping[str, str]
    model: Model | None = None
    """The kernel's model by bytes and occupancy, if there is one."""
    expected: tuple[float, ...] = ()
    """The log slowdown of each, of which only differences count, that records of other problems let one expect."""

    @property
    def total(self) -> int:
        """Number of configurations, refused ones included."""
        return len(self.configs) + self.refusals.total()


def candidates(spec: KernelSpec, problem: Problem, traits: Traits, fixed: Fixed | None = None) -> Candidates:
    """The valid configurations within ``fixed``; mode axes keep their defaults unless ``fixed`` names them.

    Raises :class:`InputError` when ``fixed`` has a value that the axis lacks, or when nothing is valid.
    """
    default = dict(spec.default(problem, traits))
    asked = {name: default[name] for name in spec.modes} | dict(fixed or {})
    kept = {name: values if isinstance(values, tuple) else (values,) for name, values in asked.items()}
    configs: list[dict[str, Value]] = []
    refusals: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for axis in spec.space.axes:
        for value in kept.get(axis.name, ()):
            if value not in axis.values:
                allowed = ", ".join(map(str, axis.values))
                raise InputError(f"{spec.name}: {axis.name}={value} is not one of {allowed}")
    for config, reason, count in spec.space.judged(problem, traits, kept):
        if reason is None:
            configs.append(config)
            continue
        name, _, why = reason.partition(": ")
        refusals[name] += count
        if name not in examples:
            examples[name] = f"{why} ({describe(config)})"
    if not configs:
        reasons = "; ".join(f"{name}: {why}" for name, why in examples.items())
        raise InputError(f"{spec.name} has no valid configuration for this problem on this device: {reasons}")
    if default not in configs:
        default = configs[0]
    return Candidates(configs, default, refusals, examples, model_of(spec, problem, traits))


def fixed_values(wanted: Mapping[str, Sequence[object]], specs: Iterable[KernelSpec]) -> dict[str, tuple[Value, ...]]:
    """Values of axes given as text or JSON, converted to the types of the axes.

    Raises :class:`InputError` for an axis or a value that none of ``specs`` has.
    """
    known: dict[str, dict[str, Value]] = {}
    for spec in specs:
        for axis in spec.space.axes:
            known.setdefault(axis.name, {}).update({str(value).lower(): value for value in axis.values})
    fixed: dict[str, tuple[Value, ...]] = {}
    for name, values in wanted.items():
        if name not in known:
            raise InputError(f"{name}: no such axis; there are {', '.join(sorted(known))}")
        words = [str(value).strip() for value in values]
        if odd := [word for word in words if word.lower() not in known[name]]:
            raise InputError(f"{name}={odd[0]}: the values are {', '.join(map(str, known[name].values()))}")
        fixed[name] = tuple(known[name][word.lower()] for word in words)
    return fixed
