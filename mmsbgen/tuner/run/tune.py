"""One tuning run: measure the device's roofs, search each kernel's space, time the finalists again, store it all."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from mmsbgen.base.errors import InputError, MmsbgenError
from mmsbgen.base.stop_signals import StopRequest, TimeUpError, ending_at
from mmsbgen.db.exchange.jsonl import Bundle
from mmsbgen.db.records.canonical_json import digest, utc_timestamp
from mmsbgen.db.records.tuning_records import RoofRecord, TrialRecord
from mmsbgen.db.selection.index import Index
from mmsbgen.db.store.tuning_store import Store
from mmsbgen.families import absolute, declaration, resolve_family
from mmsbgen.kernels.family import KernelFamily, KernelSpec
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.record_key import device_record
from mmsbgen.kernels.roof import RoofKind
from mmsbgen.kernels.space import Config, describe
from mmsbgen.tuner.measure.compile_ahead import CompileAhead, default_jobs
from mmsbgen.tuner.measure.in_turns import InTurns, in_turns
from mmsbgen.tuner.measure.measurer import Measurer, TrialLimits
from mmsbgen.tuner.measure.noise import FinalsVerdict
from mmsbgen.tuner.measure.roofs import BUFFER_BYTES, within_budget
from mmsbgen.tuner.measure.timing import Energy, Patience, Timing
from mmsbgen.tuner.measure.trial_process import TrialOutcome
from mmsbgen.tuner.run import finals
from mmsbgen.tuner.run.earlier_trials import known_finals, known_roofs, known_trials, order_of_going_on
from mmsbgen.tuner.run.kernel_trials import Evaluator, Recorder, with_energy
from mmsbgen.tuner.run.run_context import Entry, RunContext, new_run
from mmsbgen.tuner.run.tune_jobs import KernelJob, check_arguments, foreseen, kernel_jobs, other_roofs, roof_of, share
from mmsbgen.tuner.run.tune_options import last_moment
from mmsbgen.tuner.run.tuning_report import KernelReport, Progress, TuneReport
from mmsbgen.tuner.search.candidates import Fixed
from mmsbgen.tuner.search.coordinate_descent import COMPARE_S, CoordinateDescent, neighbours
from mmsbgen.tuner.search.parallel_search import search_in_parallel, try_in_parallel
from mmsbgen.tuner.search.surrogate import coordinates, with_expected

__all__ = ["DEFAULT_TRIALS", "TuneReport", "tune"]

DEFAULT_TRIALS = 100
_RESOURCES = ("registers", "spill_bytes", "shared_bytes")


def tune(
    device_spec: str | None,
    family: str | KernelFamily,
    kernels: Sequence[str] | None,
    problem: Problem,
    *,
    store: Store,
    budget_trials: int | None = None,
    budget_seconds: float | None = None,
    strategy: str = "default",
    seed: int = 0,
    progress: Progress | None = None,
    check: bool = True,
    retune: bool = False,
    fixed: Fixed | None = None,
    limits: TrialLimits | None = None,
    patience: Patience | None = None,
    roof_bytes: int = BUFFER_BYTES,
    objective: str = "time",
    place: RunContext | None = None,
    compilers: int | None = None,
    data: Path | None = None,
) -> TuneReport:
    """Find the fastest configuration of ``kernels`` for ``problem`` on a device, and store every trial as it ends.

    Ctrl-C ends the run after the current configuration: the report is marked as interrupted, and stored trials remain.

    Args:
        device_spec: see :func:`mmsbgen.backends.open_device`; None takes the best device.
        family: a registered family, or a reference that :func:`mmsbgen.families.resolve_family` takes, such as FILE.py.
        kernels: names in the order in which they are tuned; None takes those that the family declares worth tuning.
        problem: a problem of the family.
        store: where runs, roofs and trials are stored.  Configurations that it already has under the very same key are
            not measured again unless ``retune``.
        budget_trials: most configurations tried per kernel, including those found in the store; 100 without any budget.
        budget_seconds: for the whole run; kernels get shares by the bytes that they move in an iteration.  Nothing
            begins after it, and what still runs at :func:`.last_moment` is ended.
        strategy: one of :data:`mmsbgen.tuner.search.strategies.STRATEGIES`.
        seed: of the strategy and of the kernels' inputs.
        progress: receives progress reports.
        check: whether each configuration's result is compared with the family's reference.
        retune: measure again what the store has, roofs included.
        fixed: axes held at one value, or restricted to a tuple of values.
        limits: time and memory limits of a candidate.
        patience: how long a configuration is timed.
        roof_bytes: size of the buffer in which the roofs are measured, a quarter of the default on processors with a
            budget below 120 s; a small one measures a cache.
        objective: what is minimised: "time", "energy" (joules per call) or "edp" (their product).
        place: context of a larger run, in which to measure instead of on ``device_spec``; the caller ends that run.
        compilers: processes that compile in advance, beside measuring on a GPU and before it on a processor.  None
            takes about one per core, at most 16; with 0 or 1 the measuring process compiles.
        data: a file for the family's reader, whose contents are the kernels' inputs; None generates them.

    Raises:
        InputError: an unknown device, kernel, strategy or axis, an empty space or inputs that do not fit.
    """
    begin, tell = time.monotonic(), progress or Progress()
    reference = absolute(family) if isinstance(family, str) else family.name
    found = resolve_family(reference)
    if not isinstance(family, str) and found is not family:
        raise InputError(f"the family {family.name!r} is not known by that name; give it as FILE.py or MODULE:NAME")
    if problem.family != found.name:
        raise InputError(f"a problem of {problem.family} cannot be tuned with the kernels of {found.name}")
    specs = [found.kernel(name) for name in dict.fromkeys(kernels or found.worth_tuning(problem))]
    check_arguments(found, specs, problem, strategy, objective, budget_trials, budget_seconds, fixed or {})
    if budget_trials is None and budget_seconds is None:
        budget_trials = DEFAULT_TRIALS
    with ExitStack() as stack:
        owned = place is None
        if place is None:
            measurer = stack.enter_context(Measurer(device_spec, reference, limits, seed, data))
            measurer.waiting = tell.waiting
            interrupt = stack.enter_context(StopRequest(tell.interrupted).listening([signal.SIGINT]))
            entry = Entry(store, new_run(strategy, budget_trials, budget_seconds, seed, {"roof_bytes": roof_bytes}))
            place = RunContext(measurer, entry, interrupt)
        info, run = place.measurer.open(), place.run
        named = None if data is None else found.dataset(data).name
        jobs = kernel_jobs(info, found, specs, problem, fixed, named, declaration(reference))
        report = TuneReport(run.uuid, info, asked=[spec.name for spec in specs])
        session = _Session(place, store, tell, check, retune, patience or Patience(), report, objective)
        session.compilers = default_jobs(info) if compilers is None else compilers
        session.find_meter()
        # The store is not used before this point: a refused run leaves no database behind.
        place.entry.begin()
        status = "failed"
        try:
            tell.started(report)
            if strategy == "default":
                index = Index(store)
                known = [with_expected(job.space, found, job.key, index, budget_trials) for job in jobs]
                jobs = [replace(job, space=space) for job, space in zip(jobs, known, strict=True)]
            if budget_seconds is not None:
                session.end, session.last = begin + budget_seconds, last_moment(begin, budget_seconds)
            with (
                session.compile_ahead(problem) as ahead,
                in_turns(place.measurer, info, objective) as session.turns,
                ending_at(session.last),
            ):
                if ahead is not None and not ahead.before:
                    for job in jobs:
                        soon = foreseen(strategy, job.space, budget_trials, seed) if job is jobs[0] else []
                        ahead.early(job.spec.name, [job.space.default, *soon])
                session.most = within_budget(roof_bytes, info, budget_seconds)
                others = other_roofs(specs, problem, info, session.most)
                session.find_roofs(found.row_bytes(problem), roof_bytes, budget_seconds, others)
                session.search(problem, jobs, budget_trials, ahead)
            status = "interrupted" if place.interrupt else "finished"
        except TimeUpError:
            status = "finished"
        except KeyboardInterrupt:
            status = "interrupted"
        finally:
            if owned:
                place.entry.end(status)
        report.status, report.seconds = status, time.monotonic() - begin
        return report


class _NoTurnsError(Exception):
    """Finalists could not be re-timed; the search's results stand."""


@dataclass
class _Session:
    """State that the steps of one run share."""

    place: RunContext
    store: Store
    progress: Progress
    check: bool
    retune: bool
    patience: Patience
    report: TuneReport
    objective: str
    metered: bool = False
    """Whether the device's energy can be measured."""
    compilers: int = 0
    """Number of processes that compile in advance."""
    end: float | None = None
    """When the last configuration may begin, if time is limited, and when what runs is ended."""
    last: float = math.inf
    most: int = BUFFER_BYTES
    """Bytes of the buffer of the roofs."""
    turns: InTurns | None = None

    def search(self, problem: Problem, jobs: list[KernelJob], trials: int | None, ahead: CompileAhead | None) -> None:
        """Search every kernel's space within its share of the time left."""
        for position, job in enumerate(jobs):
            roofs, begin, deadline = self.report.roofs, time.monotonic(), None
            if self.place.interrupt or (self.end is not None and begin >= self.end):
                return
            gather, fastest = (roofs.gather, max(roofs.copy, roofs.gather)) if roofs else (None, None)
            if self.end is not None:
                deadline = begin + (self.end - begin) * share(jobs[position:], gather)
            kernel = KernelReport(job.spec.name, job.key, job.space, digest(job.space.default), trials, deadline)
            kind = roof_of(job.spec, problem, self.most)
            kernel.objective, kernel.roof = self.objective, str(kind or "")
            kernel.roof_gbps = roofs.others.get(kind) if roofs and kind else gather
            self.report.kernels.append(kernel)
            self.progress.kernel(kernel)
            (self.turns or self.place.measurer).load(job.spec.name, problem, fastest)
            if ahead is not None:
                ahead.begin(job.spec.name, job.alike)
            evaluate = self._evaluator(Recorder(self.place.run.uuid, job, kernel, roofs), ahead)
            space, strategy = job.space, self.place.run.strategy
            if strategy == "exhaustive" and not self.retune:
                configs = order_of_going_on(self.store, job.key, space.configs, evaluate.known, job.program, job.data)
                space = replace(space, configs=configs)
            evaluate.soon = [] if ahead is None else foreseen(strategy, space, trials, self.place.run.seed)
            tried, seed = partial(len, kernel.trials), self.place.run.seed
            search_in_parallel(self.place.lanes, strategy, space, evaluate, tried=tried, budget=trials, seed=seed)
            if not self.place.interrupt:
                self._finals(evaluate)
            self.progress.finished(kernel)

    def compile_ahead(self, problem: Problem) -> AbstractContextManager[CompileAhead | None]:
        """The processes that compile in advance, if any; a fleet's workers compile what they measure."""
        measurer, info = self.place.measurer, self.report.info
        if not isinstance(measurer, Measurer) or self.compilers < 2 or info.backend == "fake":
            return nullcontext()
        limits, seed = measurer.limits, measurer.seed
        return CompileAhead(info, measurer.family, problem, self.compilers, limits=limits, seed=seed)

    def _evaluator(self, made: Recorder, ahead: CompileAhead | None) -> Evaluator:
        measurer, by_time, job = self.place.measurer, self.objective == "time", made.job
        return Evaluator(
            made,
            {} if self.retune else known_trials(self.store, job.key, self.objective, job.program, job.data),
            measurer,
            self.store,
            self.progress,
            self.patience,
            self.check,
            lambda: bool(self.place.interrupt),
            None if by_time else lambda config: self.energy(made.kernel, config),
            ahead,
            measurer.hardware() if isinstance(measurer, Measurer) else "",
            self._reserve(made.kernel) if by_time else 0,
            turns=self.turns,
        )

    def _reserve(self, kernel: KernelReport) -> int:
        """Number of trials for the neighbours of a configuration; 0 if all are tried, or with another strategy."""
        space = kernel.space
        if self.place.run.strategy != "default" or len(space.configs) <= (kernel.budget or 0):
            return 0
        return len(neighbours(space.configs, coordinates(space.configs), space.configs.index(space.default)))

    def find_meter(self) -> None:
        """Check whether the device's energy can be measured.

        Raises :class:`InputError` if not and the objective needs it.
        """
        try:
            self.place.measurer.meter()
            self.metered = True
        except InputError:
            if self.objective != "time":
                raise

    def energy(self, kernel: KernelReport, config: Config) -> Energy | None:
        """Joules of a call, or None without a meter; a failure becomes a note in the report."""
        if not self.metered:
            return None
        try:
            return self.place.measurer.energy(config)
        except MmsbgenError as error:
            if self.objective != "time" and isinstance(error, InputError):  # no configuration of it can be measured
                raise
            kernel.note = f"the energy of {describe(config)} could not be measured: {error}"
            return None

    def find_roofs(
        self, row_bytes: int, buffer_bytes: int, seconds: float | None, others: tuple[RoofKind, ...]
    ) -> None:
        """Take the device's roofs from the store, or measure them; store them as those of this run."""
        info = self.report.info
        roofs = None if self.retune else known_roofs(self.store, info, row_bytes, buffer_bytes, seconds, others)
        if roofs is None:
            roofs = self.place.measurer.roofs(row_bytes, self.most, others)
        self.report.roofs = roofs
        record = partial(
            RoofRecord,
            run=self.place.run.uuid,
            device=device_record(info),
            measured_at=utc_timestamp((datetime.now(UTC) - timedelta(seconds=roofs.age_s or 0.0)).isoformat()),
        )
        gather = record(kind="gather", gbps=roofs.gather, row_bytes=roofs.row_bytes)
        rest = [record(kind=str(k), gbps=rate, row_bytes=k.row_bytes) for k, rate in roofs.others.items()]
        self.store.add_roofs([record(kind="copy", gbps=roofs.copy), gather, *rest])
        self.progress.roofs(roofs)

    def _finals(self, evaluate: Evaluator) -> None:
        """Time the best trials and the default again in turns, so that all meet the same conditions."""
        climbs, kernel, job = evaluate.release(), evaluate.kernel, evaluate.job
        if not self.retune:
            configs, asked = kernel.space.configs, (self.objective, job.program, job.data)
            kernel.finals += known_finals(self.store, kernel.key, configs, *asked)
            if kernel.finals:
                kernel.verdict = self._verdict(kernel, job.spec)
                return
        try:
            chosen = self._finalists(evaluate, climbs)
            while self.check and not self.place.interrupt and self._refuted(evaluate, chosen):
                chosen = self._finalists(evaluate, climbs=False)
            chosen = finals.in_time(chosen, self.last - time.monotonic())
            if len(chosen) < 2 or self.place.interrupt:
                return
            most = evaluate.at_most(finals.FINAL_S)
            rounds, named = finals.rounds_for(chosen, most), [trial.config for trial in chosen]
            timings = finals.timed_in_turns(named, rounds, self._turns, most)
        except _NoTurnsError as error:
            kernel.note = f"the finalists could not be timed again: {error}"
            return
        for trial, timing in zip(chosen, timings, strict=True):
            resources = {name: getattr(trial, name) for name in _RESOURCES if getattr(trial, name) is not None}
            outcome = TrialOutcome("ok", "", timing, trial.compile_s, resources, prepare_s=trial.extra.get("prepare_s"))
            outcome = replace(outcome, rounds=trial.extra.get("rounds"))
            kernel.finals.append(evaluate.made.record(trial.config, outcome, round_=1))
        kernel.verdict = verdict = self._verdict(kernel, job.spec)
        # Objectives other than time rank the finalists by energy: all of them are measured.
        seconds = None if verdict is None or kernel.deadline is None else (evaluate.begin, kernel.deadline)
        try:
            for place in finals.metered(len(chosen), 0 if verdict is None else verdict.winner, seconds):
                if self.place.interrupt:
                    break
                if (energy := self.energy(kernel, chosen[place].config)) is not None:
                    kernel.finals[place] = with_energy(kernel.finals[place], energy)
        finally:  # the end of the time may come while energy is measured
            if verdict is not None:
                # A run's last round ranks first, whatever its median: so readers of the store find the winner.
                kernel.finals[verdict.winner] = replace(kernel.finals[verdict.winner], round=2)
            self.store.add_bundle(Bundle([self.place.run], [], kernel.finals))

    def _refuted(self, evaluate: Evaluator, chosen: Sequence[TrialRecord]) -> bool:
        """Check the finalists together; withdraw the trials of those that are wrong, and say whether there are any."""
        try:
            found = self.place.measurer.recheck([trial.config for trial in chosen])
        except MmsbgenError as error:
            raise _NoTurnsError(str(error)) from error
        for trial, wrong in zip(chosen, found, strict=True):
            if wrong is not None:
                evaluate.withdraw(trial, f"at full size: {wrong}")
        return any(found)

    def _finalists(self, evaluate: Evaluator, climbs: bool) -> list[TrialRecord]:
        """The finalists: by time those of the coordinate descent, for other objectives the best of the search."""
        kernel, lanes = evaluate.kernel, self.place.lanes
        if self.objective != "time" or len(kernel.ranked) < 2:
            return finals.choose(kernel.ranked, kernel.default)

        def attempt(configs: Sequence[Config]) -> None:
            if lanes.count == 1:
                evaluate(configs)
            else:
                try_in_parallel(lanes, configs, evaluate, tried=lambda: len(kernel.trials), budget=kernel.budget)

        seconds = evaluate.at_most(COMPARE_S)
        climb = CoordinateDescent(kernel.space.configs, kernel.trials, self._turns, attempt, seconds, kernel.deadline)
        return climb.finalists(kernel.default, climb=climbs)

    def _turns(self, configs: Sequence[Config], rounds: int) -> list[Timing]:
        """Time configurations in turns; raises :class:`_NoTurnsError` for the package's errors."""
        try:
            return self.place.measurer.turns(configs, rounds)
        except MmsbgenError as error:
            raise _NoTurnsError(str(error)) from error

    def _verdict(self, kernel: KernelReport, spec: KernelSpec) -> FinalsVerdict | None:
        """The verdict by time; None for other objectives, which have one number per finalist and no noise."""
        return finals.verdict_of(kernel.finals, spec.space.complexity) if self.objective == "time" else None
