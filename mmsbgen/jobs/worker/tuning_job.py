"""Tuning jobs; trials that an earlier attempt has stored are not measured again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmsbgen.base.declared_options import options_of
from mmsbgen.base.errors import InputError
from mmsbgen.db.records.canonical_json import plain_json
from mmsbgen.db.records.tuning_records import TrialRecord
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.families import family as family_named
from mmsbgen.jobs.worker.task import JobOutcome, JobReporter, StoppedError, Task, Throttle, known_keys
from mmsbgen.kernels.problem import Problem
from mmsbgen.sampler.chain.chain_problem import problem_of_graph
from mmsbgen.sampler.options.options import Options
from mmsbgen.tuner.measure.roofs import Roofs
from mmsbgen.tuner.run.tune import tune
from mmsbgen.tuner.run.tune_options import TuneOptions
from mmsbgen.tuner.run.tuning_report import KernelReport, Progress, TuneReport
from mmsbgen.tuner.search.candidates import fixed_values

_TYPES = {"family": str, "kernels": list, "problem": dict, "fixed": dict, "sampler": dict}
_SHOWN = {str: "text", list: "list", dict: "mapping"}


@dataclass(frozen=True)
class Wanted:
    """A checked payload.  ``sampler`` has the options with which a graph is to be sampled."""

    family: str
    kernels: list[str] | None
    problem: dict[str, Any]
    sampler: Options | None
    options: dict[str, Any]


def checked(payload: Mapping[str, Any]) -> Wanted:
    """Check a payload and convert it for the tuner.

    Keys: the fields of :class:`TuneOptions`, ``family``, ``kernels`` (a list), ``problem`` (names and values) and
    ``fixed`` (axes with the values that they may take).  With the input file ``graph``, ``sampler`` has the options of
    the detection to tune for.  Raises :class:`InputError` that names the invalid key or value.
    """
    declared = options_of(TuneOptions)
    known_keys(payload, {*_TYPES, *declared}, "tune")
    given = {name: value for name, value in payload.items() if value is not None}
    for name, kind in _TYPES.items():
        if not isinstance(given.get(name, kind()), kind):
            raise InputError(f"{name}={given[name]!r}: it must be a {_SHOWN[kind]}")
    fixed = {name: value if isinstance(value, list) else [value] for name, value in given.get("fixed", {}).items()}
    if not all(fixed.values()):
        raise InputError(f"fixed={fixed}: an axis needs at least one value")
    found = family_named(given.get("family") or "mmsb")
    kernels = given.get("kernels") or None
    specs = [found.kernel(str(name)) for name in kernels or found.kernels]
    problem = given.get("problem", {})
    sizes = found.problem(**problem)
    options = TuneOptions(**{name: value for name, value in given.items() if name in declared})
    if not given.get("sampler") and (reason := found.inputs_refusal(sizes)) is not None:
        raise InputError(reason)
    try:
        sampler = Options(**given["sampler"]) if given.get("sampler") else None
    except (TypeError, ValueError) as error:
        raise InputError(f"an option of sampler has the wrong type: {error}") from error
    return Wanted(found.name, kernels, problem, sampler, options.keywords() | {"fixed": fixed_values(fixed, specs)})


def run(task: Task, tells: JobReporter) -> JobOutcome:
    """Tune; raises :class:`StoppedError` when asked to stop, after the current configuration."""
    wanted = checked(task.payload)
    family = family_named(wanted.family)
    values: dict[str, Any] = {}
    if "graph" in task.inputs:
        if wanted.sampler is None:
            raise InputError("a job that tunes for a graph says in sampler how it is sampled, at least n_communities")
        values = dict(problem_of_graph(task.inputs["graph"], wanted.sampler, task.device))
    problem: Problem = family.problem(**(values | wanted.problem))
    with open_store(task.database) as store:
        report = tune(
            task.device,
            wanted.family,
            wanted.kernels,
            problem,
            store=store,
            progress=_Progress(tells),
            **wanted.options,
        )
    if report.interrupted:
        raise StoppedError
    return JobOutcome(plain_json(report.as_dict()))


class _Progress(Progress):
    """Reports how many configurations were tried, and the best so far."""

    def __init__(self, tells: JobReporter) -> None:
        self.tells = tells
        self.throttle = Throttle()
        self.run = ""

    def roofs(self, roofs: Roofs) -> None:
        self.tells.message(f"The device's rates: {roofs.rates}.")

    def started(self, report: TuneReport) -> None:
        self.run = report.run
        self.tells.message(f"Tuning on {report.info.name} ({report.info.platform}), run {report.run}.")

    def kernel(self, report: KernelReport) -> None:
        self.tells.progress(self._told(report))

    def trial(self, report: KernelReport, trial: TrialRecord) -> None:
        if self.throttle.ready():
            self.tells.progress(self._told(report) | {"last": trial.status})

    def finished(self, report: KernelReport) -> None:
        self.tells.progress(self._told(report) | {"finished": True})

    def waiting(self, device: str) -> None:
        self.tells.message(f"Waiting for another measurement on {device}.")

    def _told(self, report: KernelReport) -> dict[str, Any]:
        """Progress of a kernel's search; ``run`` identifies its trials in the database."""
        planned = min(report.budget or len(report.space.configs), len(report.space.configs))
        best = report.best
        told = {
            "run": self.run,
            "kernel": report.kernel,
            "trials": len(report.trials),
            "of": planned,
            "share": len(report.trials) / planned if planned else 1.0,
            "known": report.reused,
            "best": None if best is None else dict(best.config),
            "best_s": None if best is None else best.median_s,
            "roof_fraction": report.roof_fraction,
        }
        found: dict[str, Any] = plain_json(told)
        return found
