"""The configurations that a search may try, a model of their time by bytes and occupancy, and what measures them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.base.errors import InputError
from mmsbgen.kernels.family import Demand, KernelSpec
from mmsbgen.kernels.problem import Problem, Value
from mmsbgen.kernels.space import Config, Traits, describe

#: Capacity of a GPU's compute unit: work-items, blocks, bytes of registers.
_WORK_ITEMS = 2048
_BLOCKS = 32
_REGISTER_BYTES = 256 << 10
#: Bytes of registers that any work-item uses besides those that a configuration declares.
_OTHER_REGISTERS = 128
#: Bytes that a compute unit must have in flight for the full rate of memory: 1 us of latency at some 40 GB/s each.
_IN_FLIGHT_GPU = 40 << 10
_IN_FLIGHT_CPU = 1 << 10
#: Work units of a launch if the declaration has none.
_UNITS = 1 << 16
#: Rate of caches and local memory relative to memory.
_NEAR = 6.0


@dataclass(frozen=True)
class Estimate:
    """The model's estimate for one configuration."""

    work: float
    """Relative time: bytes over the share of the device's rate that can be reached."""
    resident: float
    """Work-items resident on a compute unit."""
    waves: float
    """Rounds of blocks, rounded up, over the exact number: 1 where the last round is full."""
    in_flight: float
    """Bytes that a compute unit has in flight."""
    demand: Demand


Model = Callable[[Sequence[Config]], list[Estimate]]
"""Estimates of configurations of one kernel, problem and device."""


def estimate(spec: KernelSpec, problem: Problem, config: Config, traits: Traits) -> Estimate:
    """The model's estimate for one configuration, from what its family declares.

    It ranks configurations before any was measured, and gives the search features of them.  Its rates are those of no
    device in particular: only ratios between configurations are meaningful.
    """
    demand = spec.demand(problem, config, traits) if spec.demand else Demand(moved=max(1, spec.traffic(problem)))
    launch = spec.launch(problem, config, demand.units or _UNITS, traits)
    cores = max(1, traits.compute_units)
    if traits.kind == "cpu":
        at_once = 1.0
        enough = _IN_FLIGHT_CPU
    else:
        registers = (demand.private + _OTHER_REGISTERS) * launch.block
        at_once = min(_WORK_ITEMS / launch.block, _BLOCKS, _REGISTER_BYTES / registers)
        if demand.local:
            at_once = min(at_once, traits.local_memory * 4 / demand.local)
        at_once = max(1.0, float(int(at_once)))
        enough = _IN_FLIGHT_GPU
    blocks = launch.grid / (cores * at_once)
    waves = float(np.ceil(blocks)) / blocks
    resident = min(at_once, launch.grid / cores) * launch.block
    in_flight = (resident if traits.kind != "cpu" else 1.0) * demand.wanted * demand.busy
    reached = min(1.0, in_flight / enough)
    stall = 1 + demand.barriers * 1e-2
    work = (demand.moved + demand.near / _NEAR) / max(reached, 1e-6) * min(waves, 4.0) * stall / demand.busy**0.5
    return Estimate(work, resident, waves, in_flight, demand)


def model_of(spec: KernelSpec, problem: Problem, traits: Traits) -> Model:
    """The model of one kernel for a problem on a device."""
    return lambda configs: [estimate(spec, problem, config, traits) for config in configs]


def features(found: Sequence[Estimate]) -> npt.NDArray[Any]:
    """Features of configurations for the surrogate: float64 ``[configurations, features]``, between 0 and 1."""
    rows = [
        (
            e.work,
            e.resident,
            e.waves,
            e.in_flight,
            1 + e.demand.near / e.demand.moved,
            e.demand.private + 16.0,
            1.0 + e.demand.local,
            1.0 + e.demand.barriers,
        )
        for e in found
    ]
    table = np.log(np.array(rows))
    low, spread = table.min(axis=0), np.ptp(table, axis=0)
    scaled: npt.NDArray[Any] = (table - low)[:, spread > 0] / spread[spread > 0]
    return scaled


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

    @cached_property
    def estimates(self) -> list[Estimate]:
        """The model's estimates of ``configs``, which take long for a whole space; empty without a model."""
        return [] if self.model is None else self.model(self.configs)

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
