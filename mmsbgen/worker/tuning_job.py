"""A tuning run as a job; what an attempt before it has measured is in the database, and is not measured again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmsbgen.base.errors import InputError
from mmsbgen.db.records.ranking import check_objective
from mmsbgen.db.records.tuning_records import TrialRecord
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.families import family as family_named
from mmsbgen.kernels.problem import Problem
from mmsbgen.sampler.chain.chain_problem import problem_of_graph
from mmsbgen.sampler.options.options import Options
from mmsbgen.tuner.measure.measurer import Limits
from mmsbgen.tuner.measure.roofs import BUFFER_BYTES, Roofs
from mmsbgen.tuner.run.tune import tune
from mmsbgen.tuner.run.tuning_report import KernelReport, Progress, TuneReport
from mmsbgen.tuner.search.candidates import fixed_values
from mmsbgen.tuner.search.strategies import check_strategy
from mmsbgen.worker.task import Outcome, StoppedError, Task, Tells, Throttle, known_keys, plain

__all__ = ["checked", "run"]

_NUMBERS: dict[str, tuple[type[int] | type[float], float]] = {
    "budget_trials": (int, 1),
    "seed": (int, 0),
    "compilers": (int, 0),
    "roof_mib": (int, 1),
    "budget_seconds": (float, 0),
    "compile_limit": (float, 0),
    "run_limit": (float, 0),
}
"""The type of each number and the least that it may be; what may be real is larger than that."""
_MOST = {"seed": 2**63 - 1, "compilers": 256, "roof_mib": 1 << 20}
"""The most, where it is not a thousand million."""
_TYPES: tuple[tuple[str, type, str], ...] = (
    ("family", str, "text"),
    ("strategy", str, "text"),
    ("objective", str, "text"),
    ("retune", bool, "truth value"),
    ("kernels", list, "list"),
    ("problem", dict, "mapping"),
    ("fixed", dict, "mapping"),
    ("sampler", dict, "mapping"),
)
_KEYS = {"family", "kernels", "problem", "fixed", "strategy", "objective", "retune", "sampler", *_NUMBERS}


@dataclass(frozen=True)
class Wanted:
    """A payload in the terms of the tuner.  ``sampler`` has the options with which a graph is to be sampled."""

    family: str
    kernels: list[str] | None
    problem: dict[str, Any]
    sampler: Options | None
    options: dict[str, Any]


def checked(payload: Mapping[str, Any]) -> Wanted:
    """What a payload asks for.

    Keys: ``family``, ``kernels`` (a list), ``problem`` (names and values), ``fixed`` (axes with the values that they
    keep), ``strategy``, ``objective``, ``retune``, ``budget_trials``, ``budget_seconds``, ``seed``, ``compilers``,
    ``roof_mib``, ``compile_limit``, ``run_limit``; where the job has the input file ``graph``, ``sampler`` has the
    options of the detection that is tuned for.  Raises :class:`InputError` that names what cannot be used.
    """
    known_keys(payload, _KEYS, "tune")
    numbers = {name: _number(name, payload[name]) for name in _NUMBERS if payload.get(name) is not None}
    for name, kind, what in _TYPES:
        if payload.get(name) is not None and not isinstance(payload[name], kind):
            raise InputError(f"{name}={payload[name]!r}: it must be a {what}")
    if any(isinstance(values, list) and not values for values in (payload.get("fixed") or {}).values()):
        raise InputError(f"fixed={payload['fixed']}: an axis needs at least one value")
    found = family_named(payload.get("family") or "mmsb")
    kernels = payload.get("kernels") or None
    specs = [found.kernel(str(name)) for name in kernels or found.kernels]
    found.problem(**(payload.get("problem") or {}))
    fixed = {
        name: value if isinstance(value, list) else [value] for name, value in (payload.get("fixed") or {}).items()
    }
    strategy, objective = payload.get("strategy") or "default", payload.get("objective") or "time"
    check_strategy(strategy)
    check_objective(objective)
    try:
        sampler = Options(**payload["sampler"]) if payload.get("sampler") else None
    except (TypeError, ValueError) as error:
        raise InputError(f"an option of sampler has the wrong type: {error}") from error
    limits = {name: numbers.pop(f"{key}_limit") for name, key in _LIMITS if f"{key}_limit" in numbers}
    roof_mib = numbers.pop("roof_mib", None)
    options = {
        **numbers,
        "fixed": fixed_values(fixed, specs),
        "strategy": strategy,
        "objective": objective,
        "retune": bool(payload.get("retune")),
        "limits": Limits(**limits),
        "roof_bytes": BUFFER_BYTES if roof_mib is None else roof_mib << 20,
    }
    return Wanted(found.name, kernels, payload.get("problem") or {}, sampler, options)


_LIMITS = (("compile_s", "compile"), ("run_s", "run"))


def _number(name: str, value: Any) -> Any:
    kind, least = _NUMBERS[name]
    most = _MOST.get(name, 1_000_000_000)
    what = f"it must be {'an integer' if kind is int else 'a number'} of {'at least' if kind is int else 'more than'}"
    fits = isinstance(value, kind if kind is int else int | float) and not isinstance(value, bool)
    if not fits or not least <= value <= most or (kind is float and value == least):
        raise InputError(f"{name}={value!r}: {what} {least} and at most {most}")
    return value


def run(task: Task, tells: Tells) -> Outcome:
    """Tune; raises :class:`StoppedError` when asked to stop, after the configuration at hand."""
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
    return Outcome(plain(report.as_dict()))


class _Progress(Progress):
    """Tells how many configurations were tried, and the best so far."""

    def __init__(self, tells: Tells) -> None:
        self.tells = tells
        self.throttle = Throttle()
        self.run = ""

    def roofs(self, roofs: Roofs) -> None:
        rates = f"copy {roofs.copy:.1f} GB/s, random {roofs.row_bytes}-byte rows {roofs.gather:.1f} GB/s"
        self.tells.message(f"The device's memory: {rates}.")

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
        """How far a kernel's search is; ``run`` finds its trials in the database."""
        return {"run": self.run, **_told(report)}


def _told(report: KernelReport) -> dict[str, Any]:
    planned = min(report.budget or len(report.space.configs), len(report.space.configs))
    best = report.best
    told = {
        "kernel": report.kernel,
        "trials": len(report.trials),
        "of": planned,
        "share": len(report.trials) / planned if planned else 1.0,
        "known": report.reused,
        "best": None if best is None else dict(best.config),
        "best_s": None if best is None else best.median_s,
        "roof_fraction": report.roof_fraction,
    }
    found: dict[str, Any] = plain(told)
    return found
