"""The trials of one kernel in one run: evaluates configurations for a strategy and stores the results."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from mmsbgen.backends.device_lock import having_device
from mmsbgen.db.records.canonical_json import digest
from mmsbgen.db.records.ranking import cost
from mmsbgen.db.records.tuning_records import QuarantineRecord, TrialRecord
from mmsbgen.db.store.tuning_store import Store
from mmsbgen.kernels.problem import Value
from mmsbgen.kernels.space import Config
from mmsbgen.tuner.measure.compile_ahead import CompileAhead
from mmsbgen.tuner.measure.in_turns import InTurns, Measured
from mmsbgen.tuner.measure.measurer import Measures
from mmsbgen.tuner.measure.noise import Noise
from mmsbgen.tuner.measure.roofs import Roofs
from mmsbgen.tuner.measure.timing import Energy, Patience, Timing
from mmsbgen.tuner.measure.trial_process import TrialOutcome
from mmsbgen.tuner.run.tune_jobs import KernelJob
from mmsbgen.tuner.run.tuning_report import KernelReport, Progress
from mmsbgen.tuner.search.candidates import BudgetSpentError

_MESSAGE = 4000
#: Configurations per compiler that are compiled together before they are timed.
_EACH = 2
#: Share of the budget that may be reserved for the neighbours of the best.
KEPT = 0.25
#: Share of a kernel's time that one comparison may take.
_COMPARED = 0.1


def spent_s(trial: TrialRecord) -> tuple[float, float]:
    """Seconds spent on a configuration: compiling, in whichever process, and its launches."""
    launched = sum(trial.times) * int(trial.extra.get("batch", 1))
    return max(trial.compile_s or 0.0, float(trial.extra.get("ahead_s", 0.0))), launched


def with_energy(trial: TrialRecord, energy: Energy) -> TrialRecord:
    """The record with the joules of a call, and how they were measured."""
    told = {"window_s": energy.window_s, "step_s": energy.step_s, "uncertainty": energy.uncertainty}
    return replace(trial, energy_j=energy.joules, extra={**trial.extra, "energy": told})


@dataclass(frozen=True)
class Recorder:
    """Makes the records of one kernel in one run."""

    run: str
    job: KernelJob
    kernel: KernelReport
    roofs: Roofs | None = None

    def record(
        self, config: Config, outcome: TrialOutcome, *, round_: int = 0, ahead_s: float | None = None
    ) -> TrialRecord:
        """The record of an outcome; ``round_`` is 1 for finalists and 2 for the winner.

        ``ahead_s`` is how long another process compiled it in advance, in seconds; None if none did.
        """
        timing = outcome.timing or Timing(())
        resources = dict(outcome.resources or {})
        told = {
            "data": self.job.data or None,
            "batch": timing.batch if timing.batch > 1 else None,
            "where": outcome.where or None,
            "lost": outcome.lost or None,
            "ahead_s": ahead_s,
            "prepare_s": outcome.prepare_s,
            "given_up": timing.given_up or None,
            "private_bytes": resources.get("private_bytes"),
            "roof": self.kernel.roof or None,
            "rounds": list(outcome.rounds) if outcome.rounds else None,
            "barriers_s": self.roofs.seconds_of(outcome.rounds) if self.roofs and outcome.rounds else None,
        }
        extra = {name: value for name, value in told.items() if value is not None}
        trial = TrialRecord(
            run=self.run,
            key=self.job.key,
            config=dict(config),
            status=outcome.status,
            message=outcome.message[:_MESSAGE],
            times=timing.times,
            bytes_moved=self.job.moved,
            roof_gbps=self.kernel.roof_gbps,
            registers=resources.get("registers"),
            spill_bytes=resources.get("spill_bytes"),
            shared_bytes=resources.get("shared_bytes"),
            compile_s=outcome.compile_s,
            round=round_,
            extra={"program": self.job.program(config), **extra},
        )
        return trial if outcome.energy is None else with_energy(trial, outcome.energy)


class _Running(NamedTuple):
    """A configuration that is being measured."""

    config: Config
    settled_s: float
    """Seconds in which its compilation was waited for."""
    measured: Callable[[], Measured]
    """Waits for the outcome."""


@dataclass
class Evaluator:
    """Evaluates configurations for a strategy: from the store, from memory or by measuring, within the kernel's budget.

    ``known`` has the stored trials that are not measured again.  ``energy`` measures joules, if the objective needs
    them. ``ahead`` compiles configurations in advance, if given.  ``hardware`` names the device that is locked while a
    processor compiles.
    """

    made: Recorder
    known: Mapping[str, TrialRecord]
    measurer: Measures
    store: Store
    progress: Progress
    patience: Patience
    check: bool
    interrupted: Callable[[], bool]
    energy: Callable[[Config], Energy | None] | None = None
    ahead: CompileAhead | None = None
    hardware: str = ""
    reserve: int = 0
    """Trials for which the last quarter of the budget is reserved, if they fit into it."""
    soon: Sequence[Config] = ()
    """Configurations that the strategy may ask for soon, likely ones first."""
    turns: InTurns | None = None
    """Two processes that measure instead of the measurer's one, if there are."""

    def __post_init__(self) -> None:
        self.kernel, self.job = self.made.kernel, self.made.job
        self.done: dict[str, TrialRecord] = {}
        self.names: dict[tuple[tuple[str, Value], ...], str] = {}
        # From this run only: the device may have been faster or slower in another.
        self.noise = Noise()
        self.begin = time.monotonic()
        self.keeping: bool | None = None
        self.certain = True
        """Whether the strategy asks for what is ``soon`` whatever is measured."""
        self.took: dict[str, float] = {}
        """Seconds of the configurations that this run tried, without compiling."""
        self.compiled: dict[object, float] = {}
        """Seconds that compiling took, by what :meth:`_program` returns."""
        self.cost = None if self.kernel.deadline is None else self.seconds_of
        """Seconds that trying a configuration took; None without a deadline."""
        overlaps = self.ahead is not None and not self.ahead.before
        self.wait_for_one = self._next_compiled if overlaps else None
        """Waits for a program that is being compiled; None where nothing compiles while another is timed."""
        self.side_by_side = self.ahead.jobs if self.ahead is not None and self.ahead.before else 1

    def __call__(self, configs: Sequence[Config]) -> list[float]:
        """The objective for each configuration, infinity for a failure; raises :class:`BudgetSpentError`."""
        size = len(configs) if self.ahead is None else _EACH * self.ahead.jobs
        found: list[float] = []
        while len(found) < len(configs):
            some = configs[len(found) :][: min(size, self._room())]
            self._compile(some)
            found += self._several(some)
        return found

    def _several(self, configs: Sequence[Config]) -> list[float]:
        """The objective for each; as many are measured at a time as there are measuring processes."""
        # One that comes twice would be measured twice side by side.
        left, running = [*{self._name(config): config for config in configs}.values()], deque[_Running]()
        try:
            while left or running:
                idle = bool(left) and (not running or (self.turns is not None and self.turns.idle()))
                chosen = self._next(left, waits=not running) if idle else None
                if chosen is None:
                    self._end(running.popleft())
                elif self._fresh([config := left.pop(chosen)]):
                    running.append(self._begin(config, len(running)))
                else:
                    self._recall(config, len(running))
        except BudgetSpentError:
            for trial in running:
                self._end(trial)
            raise
        return [cost(self.done[self._name(config)], self.kernel.objective) for config in configs]

    def _next(self, configs: Sequence[Config], *, waits: bool) -> int | None:
        """Position of the next to measure: within a budget of seconds, what is compiled first is measured first.

        If none is compiled, it waits for one or, unless it ``waits``, returns None.
        """
        if self.kernel.deadline is None or self.wait_for_one is None:
            return 0
        while True:
            able = [ready or not self._fresh([one]) for ready, one in zip(self.ready(configs), configs, strict=True)]
            if any(able) or not self._compiles(configs):
                return able.index(True) if any(able) else 0
            if not waits:
                return None
            if not self.wait_for_one():
                return 0

    def _compiles(self, configs: Sequence[Config]) -> bool:
        """Whether the program of one of these is asked for and not compiled yet."""
        return self.ahead is not None and self.ahead.pending([*map(self._program, configs)])

    def withdraw(self, trial: TrialRecord, wrong: str) -> None:
        """Replace a trial that seemed to work by one with a wrong result, and bar its configuration from use."""
        config, status = trial.config, "wrong_result"
        failure = QuarantineRecord(key=self.job.key, config=config, recorded=config, status=status, message=wrong)
        self.store.quarantine(failure)
        instead = self.made.record(config, TrialOutcome(status, wrong, None, trial.compile_s))
        self.store.add_trial(instead)
        self.done[trial.config_digest] = instead
        self.kernel.trials[self.kernel.trials.index(trial)] = instead

    def likely(self, configs: Sequence[Config]) -> None:
        """Configurations that the strategy may ask for soon; beside a GPU they are compiled at once."""
        if self.ahead is not None and not self._spent():
            self.soon, self.certain = configs, False
            if not self.ahead.before:
                self.ahead.ask(self._fresh(configs)[: self._room()])

    def _next_compiled(self) -> bool:
        """Wait until one more configuration is compiled; False if none is being compiled, or if the budget is spent."""
        return self.ahead is not None and self.ahead.wait_for_one(self._spent) and not self._spent()

    def part(self) -> float:
        """Share of the budget that is spent."""
        kernel, found = self.kernel, 0.0
        if kernel.budget is not None:
            found = len(kernel.trials) / kernel.budget
        if kernel.deadline is not None:
            found = max(found, (time.monotonic() - self.begin) / max(kernel.deadline - self.begin, 1e-9))
        return found

    def at_most(self, seconds: float) -> float:
        """Seconds for a comparison: ``seconds``, or less if the kernel's whole time is short."""
        if self.kernel.deadline is None:
            return seconds
        return min(seconds, _COMPARED * (self.kernel.deadline - self.begin))

    def kept(self) -> bool:
        """Whether only the reserve is left of the budget; decided once, when a quarter is left."""
        if self.keeping is None and self.reserve and (part := self.part()) >= 1 - KEPT:
            trials = self.kernel.budget or len(self.kernel.trials) / part
            self.keeping = self.reserve <= KEPT * trials
        return bool(self.keeping)

    def release(self) -> bool:
        """Make the reserve available; returns whether there was one."""
        kept, self.keeping, self.reserve = bool(self.keeping), False, 0
        return kept

    def seconds_of(self, config: Config) -> tuple[float, float]:
        """Seconds that compiling and trying a configuration took, in this run or by its record."""
        if (name := self._name(config)) in self.took:
            return self.compiled[self._program(config)], self.took[name]
        return spent_s(self.done[name])

    def left(self) -> float:
        """Seconds until the deadline."""
        return math.inf if self.kernel.deadline is None else self.kernel.deadline - time.monotonic()

    def ready(self, configs: Sequence[Config]) -> list[bool]:
        """Which configurations need not be compiled any more."""
        programs = [*map(self._program, configs)]
        done = self.ahead.done(programs) if self.ahead is not None else [False] * len(programs)
        return [ready or program in self.compiled for ready, program in zip(done, programs, strict=True)]

    def _name(self, config: Config) -> str:
        """The digest of a configuration, kept as a choice asks for those of a thousand."""
        values = tuple(config.items())
        if values not in self.names:
            self.names[values] = digest(dict(config))
        return self.names[values]

    def _program(self, config: Config) -> object:
        return self._name(config) if self.job.alike is None else self.job.alike(config)

    def _room(self) -> int:
        """Estimated number of configurations that can be tried in the time left, at least one.

        Compiling more than these in advance would waste time.
        """
        if self.kernel.deadline is None:
            return max(1, len(self.kernel.space.configs))
        measured, now = len(self.took), time.monotonic()
        if not measured:
            return 1
        return max(1, math.ceil((self.kernel.deadline - now) * measured / max(now - self.begin, 1e-9)))

    def _compile(self, configs: Sequence[Config]) -> None:
        """Compile configurations in advance, and those that come soon while there are compilers and time for them.

        On a processor wait for it, as compilers would disturb the timing.
        """
        ahead = self.ahead
        if ahead is None or self._spent():
            return
        room = self._room() if self.took else ahead.jobs
        if self.kernel.budget is not None:
            room = min(room, self.kernel.budget - len(self.kernel.trials))
        fresh = [config for config in self._fresh(configs)[:room] if self._program(config) not in self.compiled]
        soon = [config for config in self._fresh(self.soon) if self._program(config) not in self.compiled]
        later = [config for config in soon if config not in fresh][: max(0, room - len(fresh))]
        if not ahead.before:
            ahead.ask(fresh, later)
        elif not all(self.ready(fresh)):
            with having_device(self.hardware, lambda: self.progress.waiting(self.job.key.device.name)):
                # Who is through first begins what comes next, and is stopped when ``fresh`` is compiled.
                further = ahead.jobs - 1 if self.certain else 0
                ahead.ask([*fresh, *later[: -len(fresh) % ahead.jobs + further]])
                ahead.wait(self._spent, fresh)

    def _fresh(self, configs: Sequence[Config]) -> list[Config]:
        """The configurations without a known trial."""
        names = [self._name(config) for config in configs]
        return [c for c, name in zip(configs, names, strict=True) if name not in self.done and name not in self.known]

    def _recall(self, config: Config, running: int) -> None:
        """Take a configuration's trial from the store, unless this run has it already; see :meth:`_begin`."""
        key = self._name(config)
        if key not in self.done:
            if self._spent(running):
                raise BudgetSpentError
            self.kernel.reused += 1
            self._keep(key, self.known[key])

    def _keep(self, key: str, trial: TrialRecord) -> None:
        self.done[key] = trial
        self.kernel.trials.append(trial)
        if trial.status == "ok" and trial.run == self.made.run:
            self.noise.add(trial.times)
        self.progress.trial(self.kernel, trial)

    def _begin(self, config: Config, running: int) -> _Running:
        """Begin to measure a configuration beside others that are ``running``; raises :class:`BudgetSpentError`."""
        if self._spent(running):
            raise BudgetSpentError
        patience = self.patience
        if self.energy is None:  # the slower of two may take less energy
            patience = replace(patience, hopeless=self.noise.limits() or patience.hopeless)
        begin = time.monotonic()
        if self.ahead is not None and not self.ahead.before:
            self.ahead.settle(config)
        settled = time.monotonic()
        how: dict[str, Any] = {"best_s": self.noise.best_s, "patience": patience, "check": self.check}
        if self.turns is not None:
            return _Running(config, settled - begin, self.turns.begin(config, **how))
        with ThreadPoolExecutor(1) as beside:
            if self.job.key.device.kind != "cpu":
                beside.submit(self.job.program, config)  # for the record: it takes up to a tenth of a trial
            measured = self.measurer.measure(config, **how), time.monotonic() - settled
        return _Running(config, settled - begin, lambda: measured)

    def _end(self, trial: _Running) -> None:
        """Wait for a configuration's outcome, and record it."""
        config, name, program = trial.config, self._name(trial.config), self._program(trial.config)
        if self.turns is not None:
            self.job.program(config)  # for the record, while it is measured
        outcome, seconds = trial.measured()
        begin = time.monotonic()
        if self.energy is not None and outcome.timing is not None and not outcome.timing.given_up:
            outcome = replace(outcome, energy=self.energy(config))
        ahead_s = self.ahead.seconds.get(program) if self.ahead is not None and program not in self.compiled else None
        compile_s = outcome.compile_s or 0.0
        self.took[name] = max(0.0, seconds + (time.monotonic() - begin) - compile_s)
        compile_s += trial.settled_s
        if self.ahead is not None and ahead_s is not None:
            compile_s += ahead_s / self.ahead.jobs
        self.compiled.setdefault(program, compile_s)
        record = self.made.record(config, outcome, ahead_s=ahead_s)
        self.store.add_trial(record)
        self._keep(name, record)

    def _spent(self, running: int = 0) -> bool:
        kernel, begun = self.kernel, len(self.kernel.trials) + running
        return (
            self.interrupted()
            or self.kept()
            or (kernel.budget is not None and begun >= kernel.budget)
            or (kernel.deadline is not None and begun > 0 and time.monotonic() > kernel.deadline)
        )
