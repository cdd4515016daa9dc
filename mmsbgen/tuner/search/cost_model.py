"""A model of a kernel's time by bytes and occupancy, from what its family declares.

It ranks configurations before any was measured, and gives the search features of them.  Its rates are those of no
device in particular: only ratios between configurations are meaningful.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.kernels.family import Demand, KernelSpec
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config, Traits

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
    """The model's estimate for one configuration."""
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


def estimates(spec: KernelSpec, problem: Problem, configs: Sequence[Config], traits: Traits) -> list[Estimate]:
    """The model's estimates for several configurations."""
    return [estimate(spec, problem, config, traits) for config in configs]


def model_of(spec: KernelSpec, problem: Problem, traits: Traits) -> Model:
    """The model of one kernel for a problem on a device."""
    return lambda configs: estimates(spec, problem, configs, traits)


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
