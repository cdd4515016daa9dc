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
from typing import Any

from mmsbgen.backends import DeviceInfo
from mmsbgen.base.version import __version__
from mmsbgen.families import resolve_family
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.render import sources_digest
from mmsbgen.tuner.measure.measurer import Measurer, TrialLimits
from mmsbgen.tuner.measure.trial_process import TrialOutcome

DEVICE_VARIABLE = "MMSBGEN_WORKER_DEVICE"
"""Environment variable with the spec of a worker's device."""


@dataclass(frozen=True)
class Described:
    """A worker's device, host and version, and the digest of its kernels' sources."""

    info: DeviceInfo
    host: str
    version: str
    sources: str


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
    return Described(info, platform.node(), __version__, sources_digest(map(found.kernel, kernels)))


def call(bench: FleetBench, method: str, arguments: Sequence[Any], how: Mapping[str, Any]) -> Any:
    """Call a method of :class:`mmsbgen.tuner.measure.measurer.Measurer`; outcomes say where they were found."""
    with _mine(bench) as measurer:
        found = getattr(measurer, method)(*arguments, **how)
    if isinstance(found, TrialOutcome):
        return replace(found, where=f"{platform.node()} {os.environ[DEVICE_VARIABLE]}")
    return found


@contextlib.contextmanager
def _mine(bench: FleetBench) -> Iterator[Measurer]:
    """The measurer of this worker's device, loaded with the inputs of the task."""
    with _Kept.lock:
        kept, before = _Kept.measurer, _Kept.bench
        if kept is None or before is None or _kind(before) != _kind(bench):
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
