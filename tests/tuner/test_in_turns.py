"""Two measuring processes of one device."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

from mmsbgen.backends import Device, Program
from mmsbgen.backends.fake import FakeDevice
from mmsbgen.base.errors import CompileError, InputError
from mmsbgen.db.records.canonical_json import digest
from mmsbgen.db.records.tuning_records import RunRecord, TrialRecord
from mmsbgen.db.store.tuning_store import Store
from mmsbgen.families import family, resolve_family
from mmsbgen.kernels.build import traits_of
from mmsbgen.kernels.record_key import key_of
from mmsbgen.kernels.space import Config
from mmsbgen.tuner.measure import in_turns, trial_process
from mmsbgen.tuner.measure.measurer import Measurer, TrialLimits
from mmsbgen.tuner.measure.timing import Patience, Timing
from mmsbgen.tuner.measure.trial_process import TrialBench, TrialOutcome
from mmsbgen.tuner.run.kernel_trials import Evaluator, Recorder
from mmsbgen.tuner.run.tune import TuneReport, tune
from mmsbgen.tuner.run.tune_jobs import KernelJob
from mmsbgen.tuner.run.tuning_report import KernelReport, Progress
from mmsbgen.tuner.search.candidates import BudgetSpentError, candidates

SMALL = family().problem(K=20, N=500, m=64, n=4)
HASTY = Patience(repetitions=3, enough_s=0.0)

pytestmark = pytest.mark.slow
LOGGED = """
import os, sys, time
from pathlib import Path
from mmsbgen.tuner.measure import timing, trial_process

log, real = Path(sys.argv.pop()), timing.time_launches

def logged(*args, **kwargs):
    begin = time.monotonic()
    try:
        return real(*args, **kwargs)
    finally:
        with log.open("a") as file:
            file.write(f"{os.getpid()} {begin} {time.monotonic()}\\n")

trial_process.time_launches = logged
trial_process.main()
"""


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Measurer, str]]:
    """The measurer and the outcome of each configuration.

    A processor takes two processes here, and no configuration is measured before both have the inputs.
    """
    found: list[tuple[Measurer, str]] = []
    real, real_load = Measurer.measure, in_turns.InTurns.load

    def load(self: in_turns.InTurns, *what: Any) -> None:
        real_load(self, *what)
        if self._inputs is not None:
            self._loaded, self._inputs = self._threads[1].submit(self._load, *self._inputs), None
            wait([self._loaded])

    def measure(self: Measurer, config: Any, **how: Any) -> TrialOutcome:
        outcome = real(self, config, **how)
        found.append((self, outcome.status))
        return outcome

    monkeypatch.setattr(in_turns, "takes_two", lambda info: True)
    monkeypatch.setattr(Measurer, "measure", measure)
    monkeypatch.setattr(in_turns.InTurns, "load", load)
    return found


def small(device: Device, store: Store, kernels: list[str], **options: Any) -> TuneReport:
    given: dict[str, Any] = {
        "budget_trials": 24,
        "patience": HASTY,
        "roof_bytes": 1 << 20,
        "compilers": 0,
        "check": True,
    }
    return tune(device.info.spec, "mmsb", kernels, SMALL, store=store, **given | options)


def test_two_processes_share_the_configurations(
    processor: Device, store: Store, noted: list[tuple[Measurer, str]]
) -> None:
    report = small(processor, store, ["update_phi", "update_beta"], budget_trials=8, strategy="exhaustive")
    assert report.status == "finished"
    for kernel in report.kernels:
        assert {trial.status for trial in kernel.trials} == {"ok"}
        assert len({trial.config_digest for trial in kernel.trials}) == len(kernel.trials)
    assert [len(kernel.trials) for kernel in report.kernels] == [8, 8]
    assert len(noted) == sum(len(kernel.trials) for kernel in report.kernels)
    assert len({measurer for measurer, _ in noted}) == 2


@pytest.mark.parametrize("device", ["processor", "cuda_device"])
def test_they_never_time_at_the_same_time(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    store: Store,
    noted: list[tuple[Measurer, str]],
    monkeypatch: pytest.MonkeyPatch,
    device: str,
) -> None:
    """The times at which each child began and ended to time a candidate, written by the children themselves."""
    found, log, logged = request.getfixturevalue(device), tmp_path / "log", tmp_path / "logged.py"
    logged.write_text(LOGGED)
    real = subprocess.Popen

    def with_log(command: list[str], **options: Any) -> Any:
        if trial_process.__name__ in command:
            place = command.index("-m")
            command = [*command[:place], str(logged), *command[place + 2 :], str(log)]
        return real(command, **options)

    monkeypatch.setattr(subprocess, "Popen", with_log)
    patience = Patience(repetitions=9, enough_s=0.05)
    report = small(found, store, ["update_phi"], patience=patience, budget_trials=12, strategy="exhaustive")
    assert report.kernels[0].statuses == {"ok": 12}
    lines = [line.split() for line in log.read_text().splitlines()]
    spans = sorted((float(begin), float(end)) for _, begin, end in lines)
    assert len(spans) == 12
    assert len({pid for pid, _, _ in lines}) == 2
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))


class AtOnce:
    """Measures any number of configurations at a time."""

    def __init__(self) -> None:
        self.begun: list[Config] = []

    def idle(self) -> bool:
        return True

    def begin(self, config: Config, **how: Any) -> Callable[[], tuple[TrialOutcome, float]]:
        self.begun.append(config)
        return lambda: (TrialOutcome("ok", timing=Timing((1e-3,)), compile_s=0.0), 0.0)


def evaluator(store: Store, budget: int) -> Evaluator:
    """Of configurations that are measured at once."""
    device, spec, run = FakeDevice(), family().kernel("update_phi"), RunRecord(strategy="random")
    store.begin_run(run)
    space, key = candidates(spec, SMALL, traits_of(device.info), {}), key_of(device.info, spec, SMALL)
    job = KernelJob(spec, space, key, lambda config: "", 1, 1.0, "")
    made = Recorder(run.uuid, job, KernelReport(spec.name, key, space, "", budget))
    measurer, turns = cast(Measurer, None), cast(in_turns.InTurns, AtOnce())
    return Evaluator(made, {}, measurer, store, Progress(), HASTY, False, lambda: False, turns=turns)


def test_known_trials_count_against_the_budget_beside_running_ones(store: Store) -> None:
    evaluate = evaluator(store, 2)
    known, *others = evaluate.kernel.space.configs[:3]
    evaluate.known = {digest(dict(known)): evaluate.made.record(known, TrialOutcome("ok", timing=Timing((1e-3,))))}
    with pytest.raises(BudgetSpentError):
        evaluate([*others, known])
    assert [trial.config for trial in evaluate.kernel.trials] == others


def test_a_configuration_twice_in_a_call_is_measured_once(store: Store) -> None:
    evaluate = evaluator(store, 8)
    one, other = evaluate.kernel.space.configs[:2]
    assert len(evaluate([one, one, other])) == 3
    assert [trial.config for trial in evaluate.kernel.trials] == [one, other]


class Refusing(FakeDevice):
    """A device whose compiler refuses everything, before the device is used."""

    side_by_side = True
    asked = 0

    def loader(self, source: str, kernel_names: Sequence[str], options: Sequence[str] = ()) -> Callable[[], Program]:
        self.asked += 1
        raise CompileError("no")


def test_what_does_not_compile_is_tried_once_and_without_the_device() -> None:
    phases: list[str] = []
    bench = TrialBench(device := Refusing(replace(FakeDevice().info, kind="gpu")), phases.append)
    bench.load("mmsb", "update_phi", SMALL, 0, None)
    phases.clear()
    config = family().kernel("update_phi").default(SMALL, traits_of(device.info))
    assert bench.measure(config, None, HASTY, 0, True).status == "compile_error"
    assert device.asked == 1
    assert phases == ["compile"]


def test_inputs_that_are_too_large_for_two_are_loaded_once(processor: Device) -> None:
    bench = TrialBench(processor, lambda phase: None)
    with pytest.raises(InputError, match=r"update_phi take more than 1/\d+ of the memory"):
        bench.load("mmsb", "update_phi", SMALL, 0, None, share=1 << 60)
    assert processor.allocated == 0
    bench.load("mmsb", "update_phi", SMALL, 0, None)
    bench.unload()


@pytest.mark.parametrize("error", [InputError("they do not fit twice"), RuntimeError("KeyError: an own error")])
def test_one_process_measures_alone_where_the_other_cannot(
    processor: Device,
    store: Store,
    noted: list[tuple[Measurer, str]],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    def place(self: Measurer) -> Any:
        if self.share > 1:
            raise error
        return real(self)

    real = Measurer.place

    monkeypatch.setattr(Measurer, "place", place)
    report = small(processor, store, ["update_beta"], budget_trials=4)
    assert report.kernels[0].statuses == {"ok": 4}
    assert len({measurer for measurer, _ in noted}) == 1


def test_faults_are_found_by_both_and_harm_no_other(
    processor: Device, store: Store, faulty: str, noted: list[tuple[Measurer, str]]
) -> None:
    found = resolve_family(faulty)
    report = tune(
        processor.info.spec,
        faulty,
        ["each"],
        found.problem(n=1 << 16),
        store=store,
        strategy="exhaustive",
        limits=TrialLimits(run_s=20.0),
        patience=HASTY,
        roof_bytes=1 << 20,
        compilers=0,
    )
    (kernel,) = report.kernels
    assert len(kernel.trials) == len(kernel.space.configs)
    for trial in kernel.trials:
        if trial.config["fault"] != "one wrong":  # whether that is drawn is chance
            assert (trial.status == "ok") == (trial.config["fault"] == "none"), trial.config
    assert len({measurer for measurer, _ in noted}) == 2


def test_ctrl_c_ends_both(processor: Device, store: Store, noted: list[tuple[Measurer, str]]) -> None:
    class Impatient(Progress):
        def trial(self, report: KernelReport, trial: TrialRecord) -> None:
            if len(report.trials) == 6:
                raise KeyboardInterrupt

    before = set(psutil.Process().children(recursive=True))
    report = small(processor, store, ["update_phi"], strategy="exhaustive", progress=Impatient())
    assert report.status == "interrupted"
    assert len(report.kernels[0].trials) == 6
    assert len({measurer for measurer, _ in noted}) == 2
    left = set(psutil.Process().children(recursive=True)) - before
    assert not [child for child in left if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
