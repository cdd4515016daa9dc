"""Real workers: what jobs make, and what is left of them when they are stopped, cancelled or killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
from click.testing import CliRunner

import mmsbgen
from mmsbgen.backends import Device
from mmsbgen.cli import main
from mmsbgen.db.records.job_records import Job
from mmsbgen.jobs.worker.supervisor import OWNER, Worker
from tests.devices import PROCESSOR

pytestmark = [pytest.mark.opencl, pytest.mark.slow]

DATA = Path(__file__).parents[1] / "data"
GRAPH = DATA / "netscience.txt.gz"
OPTIONS: dict[str, Any] = {"n_communities": 20, "start": "random", "seed": 5, "evaluate_every": 20}
LONG = OPTIONS | {"iterations": 100_000}
SOME = OPTIONS | {"iterations": 400}
TUNE: dict[str, Any] = {
    "kernels": ["draw_stars"],
    "problem": {"K": 8, "N": 200, "m": 64},
    "budget_trials": 4,
    "roof_mib": 16,
    "compilers": 0,
}


def outputs(crew: Any, job: Job) -> dict[str, bytes]:
    return {name: b"".join(crew.queue.read(job.id, "output", name)) for name in job.outputs}


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, processor: object) -> Path:
    """What a detection gives that nobody stops."""
    out = tmp_path_factory.mktemp("straight")
    options = {name: value for name, value in SOME.items() if name != "seed"}
    mmsbgen.detect(GRAPH, random_state=5, device=PROCESSOR, database=out / "none.sqlite3", out=out, **options)
    return out


def same(found: dict[str, bytes], straight: Path, tmp_path: Path) -> None:
    assert found["communities.txt"] == (straight / "communities.txt").read_bytes()
    (tmp_path / "found.npz").write_bytes(found["memberships.npz"])
    with np.load(tmp_path / "found.npz") as there, np.load(straight / "memberships.npz") as right:
        for name in right:
            assert np.array_equal(there[name], right[name]), name


def test_jobs_of_both_kinds_are_done_and_bad_ones_told(
    here: Any, straight: Path, tmp_path: Path, processor: Device
) -> None:
    submit = here.queue.submit
    detect = submit("detect", SOME | {"name": "netscience"}, inputs={"graph": GRAPH})
    wrong = submit("detect", {"n_communities": 5, "mini_batch": "nope"}, inputs={"graph": GRAPH})
    broken = submit("detect", {"n_communities": 5}, inputs={"graph": b"1 2 3\n"})
    tune = submit("tune", TUNE, device=processor.info.platform[:8].lower())
    other = submit("tune", TUNE, device="H200")
    said = here.finish("--drain")
    assert "attempt 1" in said
    job = here.queue.get(detect)
    assert (job.state, job.error, job.attempt, set(job.outputs)) == (
        "done",
        None,
        1,
        {"communities.txt", "graph", "memberships.npz", "run.json"},
    )
    same(outputs(here, job), straight, tmp_path)
    record = json.loads(outputs(here, job)["run.json"])
    assert (record["graph"]["name"], record["iterations"]) == ("netscience", 400)
    assert job.result is not None
    assert job.result["n_communities"] == 20
    assert job.result["graph"]["links"] == record["graph"]["links"]
    progress = [event.data for event in here.queue.events(detect) if event.kind == "progress"]
    assert any(0 < data.get("share", 0) <= 1 and "auc" in data for data in progress)
    assert job.progress is not None
    failed, unread = here.queue.get(wrong), here.queue.get(broken)
    assert (failed.state, failed.attempt) == ("failed", 1)
    assert "'nope' is not one of block" in str(failed.error)
    assert (unread.state, str(unread.error)[:14]) == ("failed", "graph, line 1:")
    tuned = here.queue.get(tune)
    assert tuned.state == "done", tuned.error
    assert tuned.result is not None
    assert tuned.result["kernels"][0]["best"] is not None
    assert sum(trial.round == 0 for trial in here.store.trials(kernel="draw_stars")) == 4
    assert here.queue.get(other).state == "queued"
    assert list((here.data / "jobs").iterdir()) == []


def test_a_worker_that_is_asked_to_end_gives_its_job_back_at_once(here: Any, straight: Path, tmp_path: Path) -> None:
    id = here.queue.submit("detect", SOME, inputs={"graph": GRAPH}, max_losses=1)
    for way, code in ((signal.SIGTERM, 0), (signal.SIGINT, 130)):
        worker = here.start("--checkpoint-seconds", 0.2)
        here.sampling(id)
        here.until(lambda: here.queue.get(id).state == "running", "not taken")
        worker.send_signal(way)
        assert worker.wait(60) == code, worker.stderr.read()
        job = here.queue.get(id)
        if job.ended:  # the machine was fast: the end came before the signal
            break
        assert (job.state, job.losses, job.error) == ("queued", 0, "its worker was ended")
        assert job.checkpoint is not None
    shutil.rmtree(here.data)  # as on another machine
    here.finish("--drain")
    job = here.queue.get(id)
    assert (job.state, job.losses) == ("done", 0)
    same(outputs(here, job), straight, tmp_path)
    assert any(text.startswith("Resumed after iteration") and "bit for bit" in text for text in here.messages(id))


def test_a_running_job_is_cancelled(here: Any) -> None:
    detect = here.queue.submit("detect", LONG, inputs={"graph": GRAPH})
    here.start("--checkpoint-seconds", 0.2)
    here.sampling(detect)
    assert here.queue.cancel(detect).state == "running"
    assert here.ended(detect).state == "cancelled"
    many = here.queue.submit("tune", TUNE | {"kernels": ["update_phi"], "problem": {"K": 8}, "budget_trials": 10_000})
    here.until(lambda: len(here.store.trials()) >= 2, "no trial")
    here.queue.cancel(many)
    assert here.ended(many).state == "cancelled"
    assert {run.status for run in here.store.runs()} == {"interrupted"}
    here.until(lambda: not list((here.data / "jobs").iterdir()), "files were left")


def children_of(worker: subprocess.Popen[str]) -> list[psutil.Process]:
    """The process of the worker's job; a job that was just taken has none yet."""
    return psutil.Process(worker.pid).children()


def child_of(worker: subprocess.Popen[str]) -> psutil.Process:
    return children_of(worker)[0]


def test_what_kills_the_child_costs_its_job_one_of_its_attempts(here: Any) -> None:
    bad = here.queue.submit("detect", LONG, inputs={"graph": GRAPH}, max_losses=2)
    worker = here.start("--checkpoint-seconds", 0.2)
    for attempt in (1, 2):
        found = here.until(lambda n=attempt: here.queue.get(bad).attempt == n and children_of(worker), "not taken")
        found[0].kill()
        here.until(lambda n=attempt: here.queue.get(bad).losses == n, "not counted")
    job = here.ended(bad)
    assert job.state == "failed"
    assert "2 attempts were lost, so it is not tried again: the process that did it died: SIGKILL" in str(job.error)
    good = here.queue.submit("tune", TUNE)
    assert here.ended(good).state == "done", "the worker goes on"
    assert worker.poll() is None


def test_a_child_that_is_killed_while_its_worker_ends_costs_an_attempt(here: Any) -> None:
    """As where memory runs out and the service manager ends the whole unit."""
    id = here.queue.submit("detect", LONG, inputs={"graph": GRAPH}, max_losses=3)
    worker = here.start("--checkpoint-seconds", 0.2)
    here.sampling(id)
    child = child_of(worker)
    child.suspend()
    worker.send_signal(signal.SIGTERM)
    time.sleep(1.0)  # the worker has asked the child to stop, which it does not
    assert worker.poll() is None
    child.kill()
    assert worker.wait(60) == 0, worker.stderr.read()
    job = here.queue.get(id)
    assert (job.state, job.losses) == ("queued", 1)
    assert "SIGKILL" in str(job.error)


def test_what_another_worker_has_just_begun_is_not_tidied_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next attempt's files come when this one has seen that there are none."""
    job = tmp_path / "job"
    (job / "1").mkdir(parents=True)
    (job / OWNER).write_text("a database\n")
    listing = Path.iterdir

    def iterdir(path: Path) -> Any:
        found = list(listing(path))
        if path == job:
            (job / "2").mkdir(exist_ok=True)
            (job / "2" / "graph").touch()
        return iter(found)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "iterdir", iterdir)
        Worker._tidy(SimpleNamespace(_owner="a database\n"), SimpleNamespace(), job / "1", False)  # type: ignore[arg-type]
    assert sorted(path.relative_to(job).as_posix() for path in job.rglob("*")) == ["2", "2/graph", OWNER]
    assert (job / OWNER).read_text() == "a database\n"
    shutil.rmtree(job / "2")
    (job / "1").mkdir()
    Worker._tidy(SimpleNamespace(_owner=""), SimpleNamespace(), job / "1", False)  # type: ignore[arg-type]
    assert not job.exists()


def test_a_machine_that_cannot_begin_leaves_jobs_to_others(here: Any) -> None:
    id = here.queue.submit("tune", TUNE, max_losses=1)
    (here.data / "jobs").mkdir(parents=True)
    (here.data / "jobs" / id).touch()
    worker = here.start("--drain")
    said = worker.communicate(timeout=60)[1]
    assert (worker.returncode, "Traceback" in said, "cannot be made" in said) == (2, False, True), said
    job = here.queue.get(id)
    assert (job.state, job.losses) == ("queued", 0)
    assert "could not begin" in str(job.error)
    staying = here.start()
    here.until(lambda: here.queue.get(id).attempt == 2 and here.queue.get(id).state == "queued", "not given back")
    assert staying.poll() is None


def test_the_child_of_a_killed_worker_dies_with_it(here: Any) -> None:
    id = here.queue.submit("detect", LONG, inputs={"graph": GRAPH})
    worker = here.start("--checkpoint-seconds", 0.2)
    here.sampling(id)
    child = child_of(worker)
    worker.kill()
    worker.wait(10)
    child.wait(10)
    assert not child.is_running()
    here.until(here.queue.expire, "the lease did not end")
    job = here.queue.get(id)
    assert (job.state, job.attempt, job.losses) == ("queued", 1, 1)
    assert "was not heard of" in str(job.error)
    assert job.checkpoint is not None


def test_workers_on_one_device_take_turns(here: Any) -> None:
    ids = [here.queue.submit("tune", TUNE | {"seed": seed, "retune": True}) for seed in range(2)]
    workers = [here.start("--drain") for _ in range(2)]
    assert [worker.wait(60) for worker in workers] == [0, 0]
    jobs = sorted((here.queue.get(id) for id in ids), key=lambda job: str(job.started_at))
    assert {job.state for job in jobs} == {"done"}
    for before, after in pairwise(jobs):
        assert str(before.finished_at) <= str(after.started_at)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--kinds", "sleep"], "no jobs of kind 'sleep'"),
        (["--kinds", ","], "give some of tune, detect"),
        (["--device", "no such device"], "no such device"),
        (["--database", "sqlite://"], "a database in memory has no jobs"),
        (["--database", "mysql://x/y"], "not supported"),
        (["--data", "/proc/nothing"], "name another folder with --data"),
        (["--scheduler", "tcp://127.0.0.1:1", "--drain"], "takes no jobs of a database"),
        (["--lease", "0"], "lease=0.0: it must be at least 1"),
    ],
)
def test_what_cannot_be_used_is_refused(
    tmp_path: Path, processor: object, monkeypatch: pytest.MonkeyPatch, options: list[str], words: str
) -> None:
    monkeypatch.setenv("MMSBGEN_DATABASE_URL", str(tmp_path / "jobs.sqlite3"))
    line = ["worker", "--device", PROCESSOR, "--data", str(tmp_path / "data"), *options]
    result = CliRunner().invoke(main, line)
    assert (result.exit_code, "Traceback" in result.stderr) == (2, False), result.stderr
    assert words in result.stderr


def test_a_checkpoint_too_large_for_the_database_is_found_in_the_folder(
    here: Any, straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = here.queue.submit("detect", SOME, inputs={"graph": GRAPH})
    worker = here.start("--checkpoint-seconds", 0.2, "--checkpoint-mib", 0)
    kept = here.until(lambda: list((here.data / "jobs" / id).glob("1/checkpoint.npz")), "no checkpoint")
    assert here.queue.get(id).checkpoint is None
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0
    if not here.queue.get(id).ended:
        assert kept[0].exists()
        here.finish("--drain", "--checkpoint-mib", 0)
        assert any(text.startswith("Resumed after iteration") for text in here.messages(id))
    job = here.queue.get(id)
    assert job.state == "done"
    same(outputs(here, job), straight, tmp_path)
    assert not os.listdir(here.data / "jobs")


def test_an_endless_job_is_ended_so_that_others_get_their_turn(here: Any) -> None:
    endless = here.queue.submit("detect", LONG | {"iterations": 2**31}, inputs={"graph": GRAPH})
    after = here.queue.submit("tune", TUNE)
    said = here.finish("--drain", "--max-hours", 4 / 3600)
    job = here.queue.get(endless)
    assert (job.state, job.attempt) == ("failed", 1), said
    assert job.error == "it ran for 0.00111 hours, the most that this worker gives a job"
    assert here.queue.get(after).state in ("done", "failed")
