"""One run over several devices: real schedulers, real workers, devices of two OpenCL platforms."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from mmsbgen.backends import open_device
from mmsbgen.base.errors import InputError
from mmsbgen.db.exchange import jsonl
from mmsbgen.db.store.tuning_store import Store, open_store
from mmsbgen.families import resolve_family
from mmsbgen.tuner.fleet.fleet_run import tune_fleet
from mmsbgen.tuner.measure.measurer import TrialLimits
from mmsbgen.tuner.measure.timing import Patience
from mmsbgen.tuner.run.earlier_trials import known_trials, this_process
from mmsbgen.tuner.search.candidates import BudgetSpentError, Candidates
from mmsbgen.tuner.search.parallel_search import ParallelLimit, deal, search_in_parallel, try_in_parallel

MMSBGEN = [sys.executable, "-c", "from mmsbgen.cli import main; main()"]
SMALL = ["-p", "K=20", "-p", "N=500", "-p", "m=64", "-p", "n=4", "--roof-mib", "16"]
LONG_S = 270.0
"""For what takes seconds, and a minute or two where other programs have the cores."""
HASTY = Patience(repetitions=3, enough_s=0.0)


def having(mark: str) -> list[psutil.Process]:
    """The processes that were started with this mark, by whomever."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if process.environ().get("FLEET_MARK") == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def wait_until_gone(mark: str) -> None:
    deadline = time.monotonic() + LONG_S
    while left := having(mark):
        assert time.monotonic() < deadline, f"{left} stay behind"
        time.sleep(0.1)


@pytest.mark.opencl
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", ["to the end", "Ctrl-C", "kill -9"])
def test_two_platforms_are_tuned_in_one_run(
    way: str, pocl_device: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_device("intel"):
        pass
    mark, database = f"{way} {tmp_path}", tmp_path / "tuning.sqlite3"
    budget, kernel = ("5", "update_beta") if way == "to the end" else ("1000", "update_pi")
    words = ["tune", "--workers", "pocl,intel", "--kernel", kernel, *SMALL, "--budget-trials", budget, "--json"]
    process = subprocess.Popen(
        [*MMSBGEN, *words, "--database", str(database)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"FLEET_MARK": mark},
        start_new_session=True,
    )
    if way != "to the end":
        deadline, devices = time.monotonic() + LONG_S, 0
        while devices < 2 and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.2)
            if database.exists():
                with open_store(database, read_only=True) as store:
                    devices = len({trial.key.device.key for trial in store.trials()})
        assert devices == 2
        assert len(having(mark)) >= 5, "the run, two workers and what measures for each"
        if way == "Ctrl-C":
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does it: all processes in the foreground
        else:
            process.kill()
    out, err = process.communicate(timeout=LONG_S)
    wait_until_gone(mark)
    with open_store(database) as store:
        (run,) = store.runs()
        trials = store.trials()
    assert {trial.run for trial in trials} == {run.uuid}
    assert {trial.key.device.platform.split("(")[0] for trial in trials} == {"Portable Computing Language", "Intel"}
    if way == "kill -9":
        assert run.status == "running", "the next run on this machine says that it was interrupted"
        return
    assert process.returncode == (130 if way == "Ctrl-C" else 0), err
    report = json.loads(out)
    assert run.status == report["status"] == ("interrupted" if way == "Ctrl-C" else "finished")
    if way == "to the end":
        for device in report["devices"]:
            (found,) = device["kernels"]
            assert found["trials"] == {"ok": 5}
            assert found["best"] is not None
            assert len(device["workers"]) == 1
        searched = [trial for trial in trials if trial.round == 0]
        assert Counter(trial.key.device.key for trial in searched) == dict.fromkeys(
            {trial.key.device.key for trial in trials}, 5
        )
        assert len({trial.extra["where"] for trial in searched}) == 2


@pytest.fixture
def stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where workers that start from now on leave the number of a process that waits to be killed."""
    folder = tmp_path / "stops"
    folder.mkdir()
    monkeypatch.setenv("FAULTY_STOPS", str(folder))
    return folder


@pytest.fixture
def two_alike(tmp_path: Path, faulty: str) -> Iterator[tuple[str, list[subprocess.Popen[str]]]]:
    """A scheduler's address and two workers that joined it, each with one of two devices that are alike."""
    mark = f"alike {tmp_path}"
    environment = os.environ | {
        "FLEET_MARK": mark,
        "POCL_DEVICES": "basic basic",
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)]),
    }
    file = tmp_path / "scheduler.json"
    words = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)]
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True, "env": environment}
    started = [subprocess.Popen([sys.executable, "-m", "distributed.cli.dask_scheduler", *words], **quiet)]  # type: ignore[call-overload]
    try:
        deadline = time.monotonic() + LONG_S
        while not file.exists() or not file.read_text():
            assert time.monotonic() < deadline, "no scheduler"
            time.sleep(0.1)
        address = json.loads(file.read_text())["address"]
        for device in ("opencl:0", "opencl:1"):
            started.append(subprocess.Popen([*MMSBGEN, "worker", "--scheduler", address, "--device", device], **quiet))  # type: ignore[call-overload]
        for worker in started[1:]:
            assert "measuring on basic" in worker.stdout.readline()
        yield address, started[1:]
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(15)
            process.kill()
            process.communicate()
    wait_until_gone(mark)


def kill_who_stops(folder: Path, killed: list[str], stop: threading.Event) -> None:
    """Kill the process of Dask, with kill -9, whose child waits for it at a candidate; see :mod:`faulty_family`."""
    while not stop.wait(0.1):
        for file in folder.iterdir():
            if file.name not in killed:
                worker = psutil.Process(int(file.name.split()[1])).parent()
                assert worker is not None
                killed.append(file.name)
                worker.kill()


@pytest.mark.opencl
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_devices_that_are_alike_share_a_search_and_only_a_candidate_whose_workers_die_twice_is_lost(
    pocl_device: object,
    stops: Path,
    two_alike: tuple[str, list[subprocess.Popen[str]]],
    store: Store,
    faulty: str,
) -> None:
    address, _ = two_alike
    killed: list[str] = []
    stop = threading.Event()
    killer = threading.Thread(target=kill_who_stops, args=(stops, killed, stop))
    killer.start()
    try:
        report = tune_fleet(
            faulty,
            ["some"],
            resolve_family(faulty).problem(n=1 << 14),
            store=store,
            scheduler=address,
            strategy="exhaustive",
            limits=TrialLimits(compile_s=500.0, run_s=500.0),
            patience=HASTY,
            roof_bytes=1 << 20,
        )
    finally:
        stop.set()
        killer.join()
    assert Counter(name.split()[0] for name in killed) == {"hangs": 2, "none": 1}
    assert report.status == "finished"
    (device,), (places,) = report.devices, report.workers
    assert len(places) == 2
    (kernel,) = device.kernels
    stored = [trial for trial in store.trials(run=report.run) if trial.round == 0]
    assert len(stored) == len({trial.config_digest for trial in stored}) == 13
    assert kernel.statuses == {"ok": 8, "wrong_result": 4, "crashed": 1}
    (lost,) = [trial for trial in stored if trial.status == "crashed"]
    assert lost.config["fault"] == "hangs"
    assert "died" in lost.message
    assert lost.extra["lost"]
    known = known_trials(store, kernel.key)
    assert known.keys() == {trial.config_digest for trial in stored} - {lost.config_digest}
    assert {trial.extra["where"] for trial in stored if trial is not lost} == set(places)
    assert kernel.best is not None
    assert kernel.best.config["fault"] == "none"
    assert kernel.best.round == 2
    bundle = store.bundle()
    assert platform.node() in repr(bundle)
    told = repr(jsonl.anonymous(bundle))
    for secret in (platform.node(), "tcp://", this_process()["numbers"].split()[0]):
        assert secret not in told


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--workers nowhere", "no device matches 'nowhere'"),
        ("--workers pocl,pocl", "is named twice"),
        ("--workers pocl,", "write devices as"),
        ("--workers pocl --device pocl", "give one of them"),
        ("--scheduler tcp://127.0.0.1:1", "no scheduler answers at 'tcp://127.0.0.1:1'"),
        ("--scheduler carrier-pigeon://roof", "no scheduler answers at 'carrier-pigeon://roof'"),
    ],
)
def test_bad_input_is_told_and_nothing_is_written(
    words: str, message: str, pocl_device: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.testing import CliRunner

    from mmsbgen.cli import main

    monkeypatch.setattr("mmsbgen.tuner.fleet.cluster._CONNECT_S", 1.0)
    database = tmp_path / "tuning.sqlite3"
    result = CliRunner().invoke(main, ["tune", *words.split(), "--database", str(database)])
    assert result.exit_code == 2, result.output
    assert message in result.output
    assert list(tmp_path.iterdir()) == [], "no database and no lock"


@pytest.mark.slow
def test_a_worker_needs_a_scheduler() -> None:
    words = ["worker", "--scheduler", "tcp://127.0.0.1:1", "--device", "fake"]
    done = subprocess.run([*MMSBGEN, *words], capture_output=True, text=True, timeout=LONG_S)
    assert done.returncode == 2
    assert "no scheduler answers at 'tcp://127.0.0.1:1'" in done.stderr
    assert "Traceback" not in done.stderr


def space_of(size: int) -> Candidates:
    configs = [{"a": a, "b": b} for a in range(size) for b in range(size)]
    return Candidates(configs, configs[-1], Counter(), {})


def test_a_space_is_dealt_out_whole_and_the_same_way_again() -> None:
    space = space_of(8)
    parts = deal(space, 3)
    assert len(parts) == 3
    dealt = [tuple(config.values()) for part in parts for config in part.configs]
    assert sorted(dealt) == sorted(tuple(config.values()) for config in space.configs)
    assert all(len(part.configs) > 8 for part in parts)
    assert all(part.default in part.configs for part in parts)
    assert parts[0].default == space.default
    assert deal(space, 3) == parts
    assert len(deal(replace(space, configs=space.configs[:1], default=space.configs[0]), 3)) == 1


@pytest.mark.slow
def test_lanes_measure_side_by_side_and_keep_the_budget() -> None:
    lanes, tried, together = ParallelLimit(3), [], []
    barrier = threading.Barrier(3)

    def evaluate(configs: list[dict[str, int]]) -> list[float]:
        (config,) = configs
        assert lanes.lock.locked()
        with lanes.waiting():
            with contextlib.suppress(threading.BrokenBarrierError):
                barrier.wait(5.0)
            together.append(lanes.in_flight)
        tried.append(config)
        return [1.0]

    search_in_parallel(lanes, "exhaustive", space_of(8), evaluate, tried=lambda: len(tried), budget=12, seed=0)  # type: ignore[arg-type]
    assert len(tried) == 12
    assert max(together) == 3

    lanes, tried = ParallelLimit(3), tried[:7]
    with pytest.raises(BudgetSpentError):
        try_in_parallel(lanes, space_of(8).configs, evaluate, tried=lambda: len(tried), budget=9)  # type: ignore[arg-type]
    assert len(tried) == 9

    def fails(configs: object) -> list[float]:
        raise InputError("no")

    with pytest.raises(InputError, match="no"):
        search_in_parallel(ParallelLimit(2), "random", space_of(4), fails, tried=lambda: 0, budget=None, seed=0)
    lanes = ParallelLimit(2)
    with pytest.raises(InputError, match="no"):
        try_in_parallel(lanes, space_of(4).configs, fails, tried=lambda: 0, budget=None)
    assert lanes.failed
