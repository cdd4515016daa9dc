"""Tuning runs that are killed at any moment, and the runs that go on from there."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import sqlite3
import time
import uuid
from collections import Counter
from pathlib import Path

import psutil
import pytest

from mmsbgen.backends import Device
from mmsbgen.db.records.tuning_records import (
    PROGRAM,
    KernelRecord,
    Key,
    ProblemRecord,
    RunRecord,
    ToolchainRecord,
    TrialRecord,
)
from mmsbgen.db.store.tuning_store import Store, open_store
from mmsbgen.families import family
from mmsbgen.tuner.run import earlier_trials, tune_jobs
from mmsbgen.tuner.run.earlier_trials import end_dead_runs, known_finals, known_trials, order_of_going_on, this_process
from tests.conftest import IN_CI
from tests.records import GPU

KILLS = 8


def having(mark: str) -> list[psutil.Process]:
    """The processes, children of children included, that a tuning run with this mark has started."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TUNING_MARK") == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def committed(database: Path) -> dict[str, TrialRecord]:
    with open_store(database, read_only=True) as store:
        return {trial.uid: trial for trial in store.trials()}


def count(database: Path) -> int:
    """How many trials are committed, for loops that wait: a store takes a hundred times as long to open."""
    with contextlib.suppress(sqlite3.OperationalError), contextlib.closing(sqlite3.connect(database)) as connection:
        return int(connection.execute("SELECT count(*) FROM trials").fetchone()[0])
    return 0


@pytest.mark.slow
@pytest.mark.opencl
@pytest.mark.timeout(1200)
def test_killed_at_random_points_a_tune_repeats_nothing_and_loses_nothing(
    pocl_device: Device, tmp_path: Path, faulty: str
) -> None:
    from tuning_process import tune_many  # beside this file, where ``faulty`` made it importable

    # Processes are forked from one that has imported everything, so that the kills fall on the tuner's work.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["tuning_process", "mmsbgen.backends.opencl.opencl_device", "sqlalchemy.dialects.sqlite"]
    )
    database, seed = tmp_path / "tuning.sqlite3", 20 if IN_CI else random.randrange(1 << 32)
    draw = random.Random(seed)
    before: dict[str, TrialRecord] = {}
    gained: list[int] = []
    for _ in range(KILLS):
        mark = uuid.uuid4().hex
        process = context.Process(target=tune_many, args=(pocl_device.info.spec, faulty, str(database), mark))
        process.start()
        began = time.monotonic()
        # Half of the points are counted from the start, half from the first new trial.
        if draw.random() < 0.5:
            while process.is_alive() and time.monotonic() < began + 100 and count(database) == len(before):
                time.sleep(0.05)
        process.join(draw.uniform(0.0, 1.2))
        assert process.pid is not None
        with contextlib.suppress(ProcessLookupError):  # where it was done before
            os.kill(process.pid, signal.SIGKILL)
        process.join()
        deadline = time.monotonic() + 100
        while left := having(mark):
            assert time.monotonic() < deadline, f"seed {seed}: {left} outlived the tune"
            time.sleep(0.1)  # a look at all processes takes as long as this
        after = committed(database)
        assert before.keys() <= after.keys(), f"seed {seed}: a trial was lost"
        gained.append(len(after) - len(before))
        before = after
    assert any(gained), f"seed {seed}: no kill fell between trials"
    process = context.Process(target=tune_many, args=(pocl_device.info.spec, faulty, str(database), "the last"))
    process.start()
    process.join(500)
    assert process.exitcode == 0
    after = committed(database)
    assert before.keys() <= after.keys()
    searched = Counter(trial.config_digest for trial in after.values() if trial.round == 0)
    assert len(searched) == 27
    # What was given up is looked at again: that was about the best of its run.
    whole = [t.config_digest for t in after.values() if t.round == 0 and not t.extra.get("given_up")]
    assert max(Counter(whole).values()) == 1, f"seed {seed}: a committed trial was repeated"
    assert len(whole) > len(searched) / 2
    finals = Counter(trial.config_digest for trial in after.values() if trial.round > 0)
    assert len(finals) >= 3
    assert set(finals.values()) == {1}
    with open_store(database) as store:
        assert Counter(run.status for run in store.runs())["finished"] >= 1
        assert not [run for run in store.runs() if run.status == "running"]
    assert having("the last") == []


def test_runs_whose_process_is_gone_are_ended(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "machine-id").write_text("0123456789abcdef0123456789abcdef\n")
    monkeypatch.setattr(earlier_trials, "_MACHINE", tmp_path / "machine-id")
    mine, numbers = this_process(), this_process()["numbers"]
    assert "0123456789abcdef" not in str(mine)
    boot, space = numbers.split()
    runs = {
        "alive": RunRecord(strategy="", host=os.uname().nodename, extra={"process": mine}),
        "dead": RunRecord(strategy="", host=os.uname().nodename, extra={"process": {**mine, "started": 1}}),
        "elsewhere": RunRecord(strategy="", host="elsewhere", extra={"process": {**mine, "started": 1}}),
        "boot before": RunRecord(
            strategy="", host=os.uname().nodename, extra={"process": {**mine, "numbers": f"x{boot} {space}"}}
        ),
        "boot of a machine of this name": RunRecord(
            strategy="",
            host=os.uname().nodename,
            extra={"process": {**mine, "numbers": f"x{boot} {space}", "machine": "another"}},
        ),
        "boot of a machine without a number": RunRecord(
            strategy="",
            host=os.uname().nodename,
            extra={"process": {**mine, "numbers": f"x{boot} {space}", "machine": ""}},
        ),
        "other container": RunRecord(
            strategy="", host=os.uname().nodename, extra={"process": {**mine, "numbers": f"{boot} x", "started": 1}}
        ),
        "old": RunRecord(strategy="", host=os.uname().nodename),
    }
    for run in runs.values():
        store.begin_run(run)
    assert {run.uuid for run in end_dead_runs(store)} == {runs["dead"].uuid, runs["boot before"].uuid}
    status = {run.uuid: run.status for run in store.runs()}
    assert {name: status[run.uuid] for name, run in runs.items()} == {
        "alive": "running",
        "dead": "interrupted",
        "elsewhere": "running",
        "boot before": "interrupted",
        "boot of a machine of this name": "running",
        "boot of a machine without a number": "running",
        "other container": "running",
        "old": "running",
    }


def stored(store: Store, block: int, program: str) -> TrialRecord:
    """A stored trial of a search."""
    kernel = KernelRecord("mmsb", "update_phi", PROGRAM)
    key = Key(GPU, ToolchainRecord("nvcc", "13"), kernel, ProblemRecord("mmsb", {"K": 64}))
    run = RunRecord(strategy="exhaustive")
    store.begin_run(run)
    config, extra = {"block": block}, {"program": program}
    trial = TrialRecord(run=run.uuid, key=key, config=config, status="ok", times=(1e-3,), extra=extra)
    store.add_trial(trial)
    return trial


def test_a_configuration_of_another_program_is_untried(store: Store) -> None:
    old, present = stored(store, 1, "old"), stored(store, 2, "new")
    configs = [{"block": n} for n in (2, 1, 3)]
    order = [c["block"] for c in order_of_going_on(store, old.key, configs, (), lambda config: "new")]
    assert order == [1, 3, 2]
    assert known_trials(store, old.key, program=lambda config: "new").keys() == {present.config_digest}


def test_a_tune_renders_each_stored_configuration_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    trials = [stored(store, block, "new") for block in (1, 1, 2)]
    rendered: list[object] = []
    monkeypatch.setattr(tune_jobs, "program_digest", lambda family, key, at: rendered.append(at["block"]) or "new")
    program = tune_jobs._programs(family(), trials[0].key)
    assert len(known_trials(store, trials[0].key, program=program)) == 2
    assert known_finals(store, trials[0].key, [], program=program) == []
    assert sorted(rendered) == [1, 2]
