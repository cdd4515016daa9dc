"""Functions that run in a worker of a fleet: measurements on one device.

A worker is one process with one thread and one device, which its environment names.  The device is opened in a child of
the worker, so that a faulty candidate ends neither the worker nor its connection to the scheduler.
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mmsbgen.backends import DeviceInfo
from mmsbgen.base.version import __version__
from mmsbgen.families import resolve_family
from mmsbgen.kernels.build import traits_of
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.render import template_digest
from mmsbgen.kernels.space import Config
from mmsbgen.tuner.measure.energy import Energy
from mmsbgen.tuner.measure.measurer import Measurer, TrialLimits
from mmsbgen.tuner.measure.roofs import Roofs
from mmsbgen.tuner.measure.timing import Patience, Timing
from mmsbgen.tuner.measure.trial_process import TrialOutcome

DEVICE_VARIABLE = "MMSBGEN_WORKER_DEVICE"
"""Environment variable with the spec of a worker's device."""


@dataclass(frozen=True)
class Described:
    """A worker's device, host and version, and the template digests of its kernels by name."""

    info: DeviceInfo
    host: str
    version: str
    kernels: Mapping[str, str]


@dataclass(frozen=True)
class FleetBench:
    """The kernel, problem and measurement settings of a task."""

    family: str
    limits: TrialLimits
    seed: int
    kernel: str = ""
    problem: Problem | None = None
    roof_gbps: float | None = None


class _Kept:
    """The worker's measurer, reused between tasks and replaced when family, limits or seed change."""

    measurer: Measurer | None = None
    bench: FleetBench | None = None
    lock = threading.Lock()


def dask_setup(worker: object) -> None:
    """Ignore Ctrl-C in the worker; Dask calls this in its main thread.

    Ctrl-C at the terminal is handled by the process that runs the searches.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def describe(family: str, kernels: Sequence[str]) -> Described:
    """Describe this worker, for comparison with the others and with the process that runs the searches."""
    with _mine(FleetBench(family, TrialLimits(), 0)) as measurer:
        info = measurer.open()
    found = resolve_family(family)
    states = {name: template_digest(found.kernel(name).template, traits_of(info).dialect) for name in kernels}
    return Described(info, platform.node(), __version__, states)


def roofs(bench: FleetBench, row_bytes: int, buffer_bytes: int) -> Roofs:
    """See :meth:`mmsbgen.tuner.measure.measurer.Measurer.roofs`."""
    with _mine(bench) as measurer:
        return measurer.roofs(row_bytes, buffer_bytes)


def measure(bench: FleetBench, config: Config, best_s: float | None, patience: Patience, check: bool) -> TrialOutcome:
    """See :meth:`mmsbgen.tuner.measure.measurer.Measurer.measure`."""
    with _mine(bench) as measurer:
        outcome = measurer.measure(config, best_s=best_s, patience=patience, check=check)
    return replace(outcome, where=f"{platform.node()} {os.environ[DEVICE_VARIABLE]}")


def recheck(bench: FleetBench, configs: Sequence[Config]) -> list[str | None]:
    """See :meth:`mmsbgen.tuner.measure.measurer.Measurer.recheck`."""
    with _mine(bench) as measurer:
        return measurer.recheck(configs)


def turns(bench: FleetBench, configs: Sequence[Config], rounds: int) -> list[Timing]:
    """See :meth:`mmsbgen.tuner.measure.measurer.Measurer.turns`."""
    with _mine(bench) as measurer:
        return measurer.turns(configs, rounds)


def meter(bench: FleetBench) -> str:
    """See :meth:`mmsbgen.tuner.measure.measurer.Measurer.meter`."""
    with _mine(bench) as measurer:
        return measurer.meter()


def energy(bench: FleetBench, config: Config) -> Energy:
    """See :meth:`mmsbgen.tuner.measure.measurer.Measurer.energy`."""
    with _mine(bench) as measurer:
        return measurer.energy(config)


@contextlib.contextmanager
def _mine(bench: FleetBench) -> Iterator[Measurer]:
    """The measurer of this worker's device, loaded with the inputs of the task."""
    with _Kept.lock:
        kept, before = _Kept.measurer, _Kept.bench
        if kept is None or before is None or (before.family, before.limits, before.seed) != _kind(bench):
            if kept is not None:
                kept.close()
            _Kept.measurer = kept = Measurer(os.environ[DEVICE_VARIABLE], bench.family, bench.limits, bench.seed)
            before = None
        _Kept.bench = None
        if bench.problem is not None and before != bench:
            kept.load(bench.kernel, bench.problem, bench.roof_gbps)
        yield kept
        _Kept.bench = bench


def _kind(bench: FleetBench) -> tuple[str, TrialLimits, int]:
    return bench.family, bench.limits, bench.seed
