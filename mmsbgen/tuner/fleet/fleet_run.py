"""One tuning run over several devices and machines, with Dask distributed.

Each worker is a process with one device.  Workers with the same kind of device (the same key in the database) share one
search, each trying a part of its candidates.  Each kind of device gets its own search.  The searches run in the calling
process, which also writes to the database; workers only measure.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from mmsbgen.backends import DeviceInfo
from mmsbgen.base.errors import InputError, MmsbgenError
from mmsbgen.base.stop_signals import StopRequest
from mmsbgen.base.version import __version__
from mmsbgen.db.store.tuning_store import Store
from mmsbgen.families import absolute, resolve_family
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.render import sources_digest
from mmsbgen.kernels.roof import RoofKind
from mmsbgen.kernels.space import Config
from mmsbgen.tuner.fleet import fleet_worker
from mmsbgen.tuner.fleet.cluster import FleetWorkers, LostError, connected, local_workers, resources
from mmsbgen.tuner.fleet.fleet_worker import Described, FleetBench
from mmsbgen.tuner.measure.measurer import TrialLimits
from mmsbgen.tuner.measure.roofs import BUFFER_BYTES, Roofs
from mmsbgen.tuner.measure.timing import Energy, Patience, Timing
from mmsbgen.tuner.measure.trial_process import TrialOutcome
from mmsbgen.tuner.run.run_context import Entry, RunContext, new_run
from mmsbgen.tuner.run.tune import tune
from mmsbgen.tuner.run.tune_jobs import check_arguments
from mmsbgen.tuner.run.tuning_report import Progress, TuneReport
from mmsbgen.tuner.search.parallel_search import ParallelLimit

_TRIES = 3
_MEASURED = 2
"""Attempts at a candidate whose workers die, so that it cannot take down a third machine."""


@dataclass
class FleetReport:
    """Report of a run over several devices: one report for each kind of device, with its workers."""

    run: str
    devices: list[TuneReport] = field(default_factory=list)
    workers: list[list[str]] = field(default_factory=list)
    """For each kind of device the workers that measured, as ``host spec``."""
    status: str = "running"
    seconds: float = 0.0

    @property
    def interrupted(self) -> bool:
        """Whether the run was stopped from outside; its measurements are stored nonetheless."""
        return self.status == "interrupted"

    def as_dict(self) -> dict[str, Any]:
        """The report as values that JSON can hold."""
        devices = [
            report.as_dict() | {"workers": workers} for report, workers in zip(self.devices, self.workers, strict=True)
        ]
        return {"run": self.run, "status": self.status, "devices": devices, "seconds": self.seconds}


class FleetMeasurer:
    """A :class:`mmsbgen.tuner.measure.measurer.Measurer` on the workers of one kind of device."""

    def __init__(
        self, crew: FleetWorkers, info: DeviceInfo, family: str, limits: TrialLimits, seed: int, lanes: ParallelLimit
    ) -> None:
        self.crew, self.info, self.lanes = crew, info, lanes
        self.bench = FleetBench(family, limits, seed)

    def open(self) -> DeviceInfo:
        """The description of these workers' device."""
        return self.info

    def roofs(self, row_bytes: int, buffer_bytes: int = BUFFER_BYTES, others: Sequence[RoofKind] = ()) -> Roofs:
        """Measure the roofs on one of the devices."""
        found: Roofs = self._again("roofs", row_bytes, buffer_bytes, others)
        return found

    def load(self, kernel: str, problem: Problem, roof_gbps: float | None = None) -> None:
        """Select the kernel and problem to measure; each worker makes the inputs for its first candidate."""
        self.bench = replace(self.bench, kernel=kernel, problem=problem, roof_gbps=roof_gbps)

    def measure(
        self, config: Config, *, best_s: float | None = None, patience: Patience | None = None, check: bool = True
    ) -> TrialOutcome:
        """Measure on the first free device; if the worker dies in both attempts, the outcome is "crashed"."""
        with self.lanes.waiting():
            try:
                found: TrialOutcome = self._again(
                    "measure", dict(config), best_s=best_s, patience=patience, check=check, tries=_MEASURED
                )
            except LostError as lost:
                return TrialOutcome("crashed", str(lost), lost=True)
            return found

    def recheck(self, configs: Sequence[Config]) -> list[str | None]:
        """Check configurations together, all on one of the devices."""
        found: list[str | None] = self._again("recheck", [dict(config) for config in configs])
        return found

    def turns(self, configs: Sequence[Config], rounds: int) -> list[Timing]:
        """Time configurations in turns, all on one of the devices."""
        found: list[Timing] = self._again("turns", [dict(config) for config in configs], rounds)
        return found

    def meter(self) -> str:
        """Name of the energy meter of these devices."""
        return str(self._again("meter"))

    def energy(self, config: Config) -> Energy:
        """Joules of a call, measured on one of the devices."""
        with self.lanes.waiting():
            found: Energy = self._again("energy", dict(config))
            return found

    def _again(self, method: str, *arguments: Any, tries: int = _TRIES, **how: Any) -> Any:
        """Call a worker's measurer, and again on any worker if that one dies or its connection breaks.

        The cause is seldom a candidate, which crashes the worker's child and not the worker.
        """
        task = fleet_worker.call, self.bench, method, arguments, how
        for _ in range(tries - 1):
            with contextlib.suppress(LostError):
                return self.crew.ask(*task)
        return self.crew.ask(*task)


def tune_fleet(
    family: str,
    kernels: Sequence[str] | None,
    problem: Problem,
    *,
    store: Store,
    workers: Sequence[str] | None = None,
    scheduler: str | None = None,
    progress: Callable[[str], Progress] | None = None,
    **options: Any,
) -> FleetReport:
    """Tune on several devices at once, in one run.

    Args:
        family: as for :func:`mmsbgen.tuner.run.tune.tune`; each worker must have it.
        kernels: as for :func:`mmsbgen.tuner.run.tune.tune`.
        problem: a problem of the family.
        store: where the run, roofs and trials of all devices are stored.
        workers: devices of this machine, each of which gets a worker; "all" alone takes every one.
        scheduler: address of a Dask scheduler whose workers were started by ``mmsbgen worker``.
        progress: makes the progress callbacks of a search, from the device's name.
        options: further arguments of :func:`mmsbgen.tuner.run.tune.tune`; budgets count for each kind of device.

    Raises:
        InputError: :func:`mmsbgen.tuner.run.tune.tune` refuses an argument; no scheduler or worker answers; a worker
            has another version of mmsbgen or of a kernel.
        MmsbgenError: all workers of a device are gone; the searches on the others are finished first.
    """
    if (workers is None) == (scheduler is None):
        raise InputError("name either devices of this machine for workers or a scheduler, not both")
    family = absolute(family)
    found = resolve_family(family)
    names = list(dict.fromkeys(kernels or found.worth_tuning(problem)))
    strategy, seed = str(options.get("strategy", "default")), int(options.get("seed", 0))
    trials, seconds = options.get("budget_trials"), options.get("budget_seconds")
    check_arguments(
        found,
        [found.kernel(name) for name in names],
        problem,
        strategy,
        str(options.get("objective", "time")),
        trials,
        seconds,
        options.get("fixed") or {},
    )
    with (
        connected(scheduler) if scheduler is not None else local_workers(workers or ()) as client,
        StopRequest(Progress().interrupted).listening([signal.SIGINT]) as interrupt,
    ):
        crews = _crews(client, family, names)
        everyone = {
            "workers": [place for _, described in crews for place in map(_place, described)],
            "roof_bytes": options.get("roof_bytes", BUFFER_BYTES),
        }
        entry = Entry(store, new_run(strategy, trials, seconds, seed, everyone))
        report = FleetReport(entry.run.uuid)
        limits = options.get("limits") or TrialLimits()
        searches: list[_SearchThread] = []
        for crew, described in crews:
            lanes, info = ParallelLimit(len(described)), described[0].info
            measurer = FleetMeasurer(crew, info, family, limits, seed, lanes)
            told = progress(f"{info.name} ({info.platform})") if progress else None
            place = RunContext(measurer, entry, interrupt, lanes)
            how = {"store": store, "progress": told, "place": place, **options}
            searches.append(_SearchThread(partial(tune, None, family, names, problem, **how)))
            report.workers.append([_place(one) for one in described])
        begin, status = time.monotonic(), "failed"
        try:
            for search in searches:
                search.start()
            for search in searches:
                while search.is_alive():
                    search.join(0.2)
            for search in searches:
                if search.error is not None:
                    raise search.error
            status = "interrupted" if interrupt else "finished"
        except KeyboardInterrupt:
            status = "interrupted"
        finally:
            entry.end(status)
        report.devices = [search.report for search in searches if search.report is not None]
        report.workers = [w for w, search in zip(report.workers, searches, strict=True) if search.report is not None]
        report.status, report.seconds = status, time.monotonic() - begin
        return report


class _SearchThread(threading.Thread):
    """A thread that runs the search on one kind of device."""

    def __init__(self, work: Callable[[], TuneReport]) -> None:
        super().__init__(daemon=True)
        self.work = work
        self.report: TuneReport | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Store the report or the error for the main thread."""
        try:
            self.report = self.work()
        except BaseException as error:
            self.error = error


def _crews(client: Any, family: str, kernels: Sequence[str]) -> list[tuple[FleetWorkers, list[Described]]]:
    """The workers by kind of device, with their descriptions.

    Raises :class:`InputError` if versions differ or two workers have the same device.
    """
    crews = []
    for resource, addresses in sorted(resources(client).items()):
        futures = [
            client.submit(
                fleet_worker.describe, family, kernels, workers=[address], resources={resource: 1}, pure=False
            )
            for address in addresses
        ]
        try:
            described: list[Described] = client.gather(futures)
        except MmsbgenError:
            raise
        except Exception as error:
            raise MmsbgenError(f"a worker of {', '.join(addresses)} cannot be asked: {error}") from error
        here = sources_digest(map(resolve_family(family).kernel, kernels))
        for one in described:
            if one.version != __version__ or one.sources != here:
                raise InputError(
                    f"the worker on {_place(one)} has mmsbgen {one.version} and other kernels than this process with "
                    f"{__version__}: install the same version there and start it again"
                )
        places = [_place(one) for one in described]
        for place in places:
            if places.count(place) > 1:
                raise InputError(f"two workers have the device {place}: end one, a device measures for one worker only")
        crews.append((FleetWorkers(client, resource, places), described))
    return crews


def _place(one: Described) -> str:
    return f"{one.host} {one.info.spec}"
