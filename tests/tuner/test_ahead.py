"""What is compiled ahead is what the measuring process would compile, and it finds it."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from mmsbgen.backends import Device, DeviceInfo
from mmsbgen.backends.binary_cache import BinaryCache
from mmsbgen.backends.nvidia.cuda_compile import Nvcc, compile_cuda
from mmsbgen.base.host_memory import available_host_memory
from mmsbgen.db.records.canonical_json import digest
from mmsbgen.db.records.tuning_records import Key, RunRecord
from mmsbgen.db.store.tuning_store import Store
from mmsbgen.families import family
from mmsbgen.kernels.build import compiler_options, traits_of
from mmsbgen.kernels.record_key import key_of
from mmsbgen.kernels.render import render
from mmsbgen.kernels.space import Config
from mmsbgen.tuner.measure import compile_ahead
from mmsbgen.tuner.measure.compile_ahead import CompileAhead, default_jobs
from mmsbgen.tuner.measure.measurer import Measurer, TrialLimits, WorkerLostError, _Child
from mmsbgen.tuner.measure.timing import Patience, Timing
from mmsbgen.tuner.measure.trial_process import TrialOutcome
from mmsbgen.tuner.run.kernel_trials import Evaluator, Recorder
from mmsbgen.tuner.run.tune import tune
from mmsbgen.tuner.run.tune_jobs import KernelJob
from mmsbgen.tuner.run.tuning_report import KernelReport, Progress
from mmsbgen.tuner.search.candidates import BudgetSpentError, Candidates, candidates
from tests.devices import H200

PROBLEM = family().problem(K=32, m=16, n=8, N=100)
PHI = family().kernel("update_phi")
HASTY = Patience(repetitions=3, enough_s=0.0)
FIXED = {"placement": ("THREAD", "GLOBAL"), "team": "item", "vector_width": (4, 16), "block_size": (1, 16)}


class Compiler:
    """Compiles nothing, and counts how often it began to; while the gate is shut it does not come to an end."""

    version = "none 1"

    def __init__(self, shut: bool = False) -> None:
        self.began: list[str] = []
        self.gate = threading.Event()
        if not shut:
            self.gate.set()

    @property
    def calls(self) -> int:
        return len(self.began)

    def cancel(self) -> None:
        self.gate.set()

    def compile(self, source: str, options: Sequence[str]) -> tuple[bytes, str]:
        self.began.append(source)
        assert self.gate.wait(200)
        return b"cubin", ""

    def await_calls(self, count: int) -> None:
        deadline = time.monotonic() + 200
        while self.calls < count:
            assert time.monotonic() < deadline, f"only {self.calls} began"
            time.sleep(0.01)


def job(space: Candidates, key: Key) -> KernelJob:
    """The work on PHI, whose programs have no digests."""
    return KernelJob(PHI, space, key, lambda config: "", 1, 1.0, "")


@contextlib.contextmanager
def ahead_of(jobs: int, compiler: Any, cache: BinaryCache) -> Iterator[CompileAhead]:
    """What compiles ahead for an H200, with a compiler and a cache of a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compile_ahead, "compiler_that_ends", lambda processes: compiler)
        patch.setattr(compile_ahead, "BinaryCache", lambda: cache)
        with CompileAhead(H200, "mmsb", PROBLEM, jobs) as ahead:
            yield ahead


def configs_of(info: DeviceInfo, count: int) -> list[dict[str, Any]]:
    return candidates(PHI, PROBLEM, traits_of(info)).configs[:count]


@pytest.mark.slow
def test_cuda_sources_are_compiled_without_a_device_and_found_in_the_cache(tmp_path: Path) -> None:
    compiler, cache, configs = Compiler(), BinaryCache(tmp_path), configs_of(H200, 9)
    with ahead_of(3, compiler, cache) as ahead:
        ahead.begin("update_phi")
        assert not ahead.before
        ahead.ask(configs)
        ahead.wait()
        assert set(ahead.seconds) == {digest(config) for config in configs}
    assert compiler.calls == 9
    for config in configs:
        text = render(PHI, PROBLEM, config, traits_of(H200)).program
        compile_cuda(text, "sm_90", compiler_options(traits_of(H200)), compiler=compiler, cache=cache)
    assert compiler.calls == 9


@pytest.mark.slow
def test_what_is_asked_for_later_goes_first_and_nothing_is_compiled_twice(tmp_path: Path) -> None:
    compiler, cache, configs = Compiler(shut=True), BinaryCache(tmp_path), configs_of(H200, 12)
    with ahead_of(2, compiler, cache) as ahead:
        ahead.begin("update_phi")
        ahead.ask(configs[:10])
        compiler.await_calls(2)
        ahead.ask(configs[9:])
        compiler.gate.set()
        ahead.wait()
        wanted = {digest(config) for config in (*configs[:2], *configs[9:])}
        assert set(ahead.seconds) == wanted, "two had begun when the others were forgotten"
        ahead.ask(configs[9:])
        ahead.wait()
    assert compiler.calls == len(set(compiler.began)) == 5


@pytest.mark.slow
def test_the_end_of_the_time_is_kept(tmp_path: Path) -> None:
    compiler, cache, configs = Compiler(shut=True), BinaryCache(tmp_path), configs_of(H200, 20)
    with ahead_of(2, compiler, cache) as ahead:
        ahead.begin("update_phi")
        ahead.ask(configs)
        compiler.await_calls(2)
        ahead.wait(lambda: True)  # returns though two are being compiled
        ahead.ask([])
        compiler.gate.set()
    assert compiler.calls == 2


@pytest.mark.slow
def test_the_next_kernel_does_not_wait_for_what_compiles_beside_a_gpu(tmp_path: Path) -> None:
    compiler, cache = Compiler(shut=True), BinaryCache(tmp_path)
    with ahead_of(2, compiler, cache) as ahead:
        ahead.begin("update_phi")
        ahead.ask(configs_of(H200, 5))
        compiler.await_calls(2)
        ahead.begin("update_beta")
        assert not compiler.gate.is_set()
        compiler.gate.set()
        ahead.wait()
    assert ahead.seconds == {}, "what had begun was of the kernel before"


class Sleeper:
    """Measures nothing, which takes 50 ms; what a run asks of where it measures besides is not asked here."""

    def measure(self, config: Config, **how: Any) -> TrialOutcome:
        time.sleep(0.05)
        return TrialOutcome("ok", "", Timing((1e-3, 1e-3, 1e-3)), 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.5, None])
def test_no_more_is_compiled_ahead_than_there_is_time_to_measure(
    tmp_path: Path, store: Store, seconds: float | None
) -> None:
    compiler, cache, run = Compiler(), BinaryCache(tmp_path), RunRecord(strategy="random")
    store.begin_run(run)
    space = candidates(PHI, PROBLEM, traits_of(H200), {"normalise": True})
    key = key_of(H200, PHI, PROBLEM)
    kernel = KernelReport("update_phi", key, space, digest(space.default), 8 if seconds is None else None)
    with ahead_of(16, compiler, cache) as ahead:
        ahead.begin("update_phi")
        kernel.deadline = None if seconds is None else time.monotonic() + seconds
        made, measurer = Recorder(run.uuid, job(space, key), kernel), cast(Measurer, Sleeper())
        evaluate = Evaluator(made, {}, measurer, store, Progress(), Patience(), False, lambda: False, None, ahead)
        with pytest.raises(BudgetSpentError):
            evaluate(space.configs)
        ahead.wait()
    assert 1 <= len(kernel.trials) <= 10
    assert compiler.calls <= len(kernel.trials) + 4, "a batch for sixteen compilers would be 32"
    assert evaluate.part() >= 1


class OfProcessor:
    """Two processes that compile while nothing is timed; it notes what they are asked for, and what is waited for."""

    jobs, before, name = 2, True, staticmethod(digest)

    def __init__(self) -> None:
        self.asked: list[Sequence[Config]] = []
        self.awaited: list[Sequence[Config]] = []
        self.seconds: dict[object, float] = {}

    def done(self, names: Sequence[object]) -> list[bool]:
        return [name in self.seconds for name in names]

    def ask(self, configs: Sequence[Config]) -> None:
        self.asked.append(configs)

    def wait(self, stop: Callable[[], bool], configs: Sequence[Config]) -> None:
        self.awaited.append(configs)
        self.seconds |= {digest(config): 1.0 for config in configs}


def test_a_compiler_of_a_processor_does_not_idle_while_the_other_compiles(store: Store) -> None:
    """It begins what is tried next, which is not waited for; what is only likely to be does not keep it busy."""
    run, space = RunRecord(strategy="default"), candidates(PHI, PROBLEM, traits_of(H200), {"normalise": True})
    store.begin_run(run)
    key, ahead = key_of(H200, PHI, PROBLEM), OfProcessor()
    kernel = KernelReport("update_phi", key, space, digest(space.default), 100)
    made, measurer = Recorder(run.uuid, job(space, key), kernel), cast(Measurer, Sleeper())
    beside = cast(CompileAhead, ahead)
    evaluate = Evaluator(made, {}, measurer, store, Progress(), Patience(), False, lambda: False, None, beside)
    a, b, c, d, e, f = evaluate.soon = space.configs[:6]
    evaluate([a])
    evaluate([b, c])
    evaluate.likely([f, e])
    evaluate([d, e])
    assert ahead.asked == [[a, b], [b, c, d], [d, e]]
    assert ahead.awaited == [[a], [b, c], [d, e]]


class OneIsSlow(Compiler):
    """Compiles one of the programs only when the gate opens."""

    def __init__(self, slow: str) -> None:
        super().__init__(shut=True)
        self.slow = slow

    def compile(self, source: str, options: Sequence[str]) -> tuple[bytes, str]:
        self.began.append(source)
        assert source != self.slow or self.gate.wait(200)
        return b"cubin", ""


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [200.0, None])
def test_within_seconds_what_is_compiled_first_is_measured_first(
    tmp_path: Path, store: Store, seconds: float | None
) -> None:
    space, key = candidates(PHI, PROBLEM, traits_of(H200), {"normalise": True}), key_of(H200, PHI, PROBLEM)
    first, *some = space.configs[:5]
    compiler = OneIsSlow(render(PHI, PROBLEM, some[0], traits_of(H200)).program)
    run = RunRecord(strategy="random")
    store.begin_run(run)
    kernel = KernelReport("update_phi", key, space, digest(space.default), None)
    kernel.deadline = None if seconds is None else time.monotonic() + seconds
    measured: list[Config] = []

    class Noted(Sleeper):
        def measure(self, config: Config, **how: Any) -> TrialOutcome:
            measured.append(config)
            if len(measured) == 4:
                compiler.gate.set()
            return super().measure(config, **how)

    with ahead_of(2, compiler, BinaryCache(tmp_path)) as ahead:
        ahead.begin("update_phi")
        made, measurer = Recorder(run.uuid, job(space, key), kernel), cast(Measurer, Noted())
        evaluate = Evaluator(made, {}, measurer, store, Progress(), Patience(), False, lambda: False, None, ahead)
        evaluate([first])
        if seconds is None:
            compiler.gate.set()
        assert len(evaluate(some)) == 4
    assert measured == [first, *([*some[1:], some[0]] if seconds else some)]


def slow_nvcc(folder: Path) -> Path:
    """A compiler that takes minutes; ``folder`` gets a file by its number with that of the program that it drives."""
    program = folder / "nvcc"
    program.write_text(
        '#!/bin/sh\ncase "$1" in --version) echo "release 13.0, V13.0.88"; exit;; esac\n'
        f"sleep 271 & echo $! > {folder}/$$; wait\n"
    )
    program.chmod(0o755)
    return program


@pytest.mark.slow
def test_the_end_of_a_run_ends_what_compiles(tmp_path: Path) -> None:
    """With all its programs: nvcc is but their driver."""
    program = slow_nvcc(tmp_path)
    begin, compiler = time.monotonic(), Nvcc(str(program))
    with ahead_of(2, compiler, BinaryCache(tmp_path)) as ahead:
        ahead.begin("update_phi")
        ahead.ask(configs_of(H200, 5))
        while len(began := [path for path in tmp_path.iterdir() if path.name.isdigit() and path.read_text()]) < 2:
            assert time.monotonic() < begin + 100
            time.sleep(0.01)
    assert time.monotonic() < begin + 100, "nobody waited for the others"
    for path in began:
        assert gone(int(path.name))
        assert gone(int(path.read_text()))
    assert ahead.seconds == {}


def gone(pid: int) -> bool:
    """Whether a process has ended, or only waits for whom it was left to; a signal takes its moment."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_what_compiles_dies_with_its_run(tmp_path: Path, number: int) -> None:
    """The signal comes to the run alone; from a terminal an interrupt would reach the compiler too."""
    program = slow_nvcc(tmp_path)
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # background jobs ignore it
        "from mmsbgen.backends.nvidia import cuda_compile as c; c.Nvcc(sys.argv[1]).compile('', ())"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(program)], stderr=subprocess.PIPE, text=True) as run:
        begin = time.monotonic()
        while not (began := [path for path in tmp_path.iterdir() if path.name.isdigit() and path.read_text()]):
            assert time.monotonic() < begin + 60
            time.sleep(0.01)
        run.send_signal(number)
        said = run.communicate(timeout=60)[1]
    assert ("KeyboardInterrupt" in said) == (number == signal.SIGINT), said
    for path in began:
        assert gone(int(path.name))
        assert gone(int(path.read_text()))


def test_a_core_is_left_to_what_measures_beside() -> None:
    cores = len(os.sched_getaffinity(0))
    assert default_jobs(H200) == min(16, cores - 1)


@pytest.mark.alone
def test_compilers_share_the_memory_that_there_is() -> None:
    available = available_host_memory()[0]
    with CompileAhead(H200, "mmsb", PROBLEM, 16) as ahead:
        limits = [child.limits.memory_bytes for child in ahead._children]
    assert len(limits) == 16
    assert 0.4 * available < sum(limit or math.inf for limit in limits) < 0.99 * available, "which moves meanwhile"
    with CompileAhead(H200, "mmsb", PROBLEM, 16, limits=TrialLimits(memory_bytes=1 << 30)) as ahead:
        assert {child.limits.memory_bytes for child in ahead._children} == {1 << 30}


@pytest.mark.opencl
def test_a_later_process_compiles_nothing_anew(
    opencl_device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same block size: PoCL finishes a kernel at its first launch, for the size of a block."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path / "pocl"))
    info = opencl_device.info
    configs = configs_of(info, 4)
    with CompileAhead(info, "mmsb", PROBLEM, 2) as ahead:
        ahead.begin("update_phi")
        assert ahead.before
        ahead.ask(configs)
        ahead.wait()
        assert set(ahead.seconds) == {digest(config) for config in configs}
    made = compiled(tmp_path)
    assert len(made) >= 4
    with Measurer(info.spec, "mmsb") as measurer:
        measurer.load("update_phi", PROBLEM)
        outcomes = [measurer.measure(config, patience=HASTY) for config in configs]
    assert [outcome.status for outcome in outcomes] == ["ok"] * 4
    assert compiled(tmp_path) == made


@pytest.mark.slow
def test_compilers_of_a_processor_are_stopped_while_others_measure(pocl_device: Device) -> None:
    info = pocl_device.info
    with CompileAhead(info, "mmsb", PROBLEM, 2) as ahead:
        ahead.begin("update_phi")
        ahead.start()
        ahead.ask(configs_of(info, 2))
        ahead.wait(lambda: True)
        assert states(ahead) == ["T", "T"]
        ahead.wait()
        assert len(ahead.seconds) == 2
        assert states(ahead) == ["T", "T"]


def test_time_that_a_compiler_is_stopped_counts_neither_as_compiling_nor_by_its_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, gate, config = threading.Event(), threading.Event(), {"any": 1}

    def prepare(*_: object) -> None:
        begun.set()
        gate.wait(10)

    monkeypatch.setattr(Measurer, "prepare", prepare)
    with CompileAhead(replace(H200, kind="cpu", backend="opencl"), "mmsb", PROBLEM, 2) as ahead:
        ahead.begin("update_phi")
        ahead.ask([config])
        assert begun.wait(10)
        ahead.wait(lambda: True)
        now = ahead._clock()
        time.sleep(0.2)
        gate.set()
        ahead._pool.shutdown()
        assert ahead.seconds == {digest(config): pytest.approx(now, abs=0.1)}
        assert ahead._clock() == now
    limits, times, child = TrialLimits(compile_s=0.05), 5, _Child.__new__(_Child)

    def poll(seconds: float) -> bool:
        nonlocal times
        time.sleep(seconds)
        times -= 1
        return times < 0

    child.connection = cast(Any, SimpleNamespace(send=len, poll=poll, recv=lambda: ("done", 7)))
    child.pid, child._memory, child._stopped = os.getpid(), 1 << 60, True
    monkeypatch.setattr(child, "kill", lambda: None)
    assert child.ask("prepare", (), "compile", limits) == 7
    times, child._stopped = 5, False
    with pytest.raises(WorkerLostError, match="not done after 0.05 s"):
        child.ask("prepare", (), "compile", limits)


def states(ahead: CompileAhead) -> list[str]:
    """The states of the processes that compile; T is stopped."""
    pids = [child._child.pid for child in ahead._children if child._child is not None]
    deadline = time.monotonic() + 5.0
    while True:  # a signal takes a moment
        found = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in pids]
        if set(found) == {"T"} or time.monotonic() > deadline:
            return found


@pytest.mark.slow
def test_one_program_serves_all_block_sizes_of_work_items_that_share_nothing(pocl_device: Device) -> None:
    traits = traits_of(pocl_device.info)
    alone = {"team": "item", "placement": "THREAD", "rows_in_flight": 1, "prefetch": 0, "vector_width": 4}
    for placement, most in (("THREAD", 1), ("SSR", 99)):
        fixed = alone | {"placement": placement}
        configs = candidates(PHI, PROBLEM, traits, fixed).configs
        sizes, programs = {c["block_size"] for c in configs}, {render(PHI, PROBLEM, c, traits).program for c in configs}
        assert len(sizes) > 5
        assert len(programs) == min(most, len(sizes)), placement


def compiled(folder: Path) -> set[Path]:
    """Compiled kernels of the package's cache and of PoCL's."""
    return {path for path in folder.rglob("*") if path.suffix in (".bin", ".so")}


@pytest.mark.slow
def test_a_tune_compiles_ahead_and_finds_the_same(pocl_device: Device, store: Store) -> None:
    report = tune(
        pocl_device.info.spec,
        "mmsb",
        ["update_phi"],
        PROBLEM,
        store=store,
        strategy="random",
        budget_trials=8,
        fixed=FIXED,
        patience=HASTY,
        roof_bytes=1 << 20,
        compilers=2,
    )
    (kernel,) = report.kernels
    assert [trial.status for trial in kernel.trials] == ["ok"] * 8
    assert sum("ahead_s" in trial.extra for trial in kernel.trials) >= 6
    assert all(trial.extra.get("ahead_s", 1) > 0 for trial in kernel.trials)


@pytest.mark.slow
@pytest.mark.opencl
@pytest.mark.timeout(60)
def test_a_process_that_is_stopped_as_it_starts_ends_with_the_others(pocl_device: Device) -> None:
    """Its answer to being opened would never come."""
    me, before = psutil.Process(), set(psutil.Process().children())
    with CompileAhead(pocl_device.info, "mmsb", PROBLEM, 2) as ahead:
        ahead.begin("update_phi")
        ahead.wait()  # nothing is asked for, and from now on a kernel may be timed
        ahead.ask(configs_of(pocl_device.info, 2))
        while not any(child.status() == psutil.STATUS_STOPPED for child in set(me.children()) - before):
            time.sleep(0.01)
    assert set(me.children()) <= before
