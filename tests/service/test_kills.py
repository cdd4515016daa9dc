"""Kill -9 of the service and of its workers at random moments under load: no job and no record may be lost.

docs/reports/service.md has runs of 20 moments each.

A client submits detections and tunes and uploads records all the while, each job with a key of its own, again until it
is answered.  At random moments the service, or one of the two workers beside it, or all of them are killed; a killed
service is started again.  At the end every job that was asked for must be done, once, with its files or its trials,
detections with the same result, every record there, and no process left.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import pytest
from sqlalchemy import text

from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.jobs.queue import Queue
from tests.devices import PROCESSOR
from tests.service.hostile import API, bundle_lines
from tests.service.running import TOKEN

pytestmark = [pytest.mark.opencl, pytest.mark.slow]
EDGES = "".join(f"{12 * part + a} {12 * part + b}\n" for part in range(6) for a in range(12) for b in range(a))
OPTIONS = {"n_communities": 6, "iterations": 20, "seed": 1}
TUNE_EVERY = 4
"""So many jobs to a tune."""
LEASE_S = 4
MOST_PAUSE_S = 5.0
"""Between kills; the service takes some seconds more to start again."""
PATIENCE_S = 600.0


@dataclass
class Service:
    """A service that can be killed and started again on the same port."""

    database: str
    folder: Path
    device: str
    port: int = 0
    process: subprocess.Popen[bytes] | None = None
    crew: dict[int, psutil.Process] = field(default_factory=dict)
    """Workers that were seen beside it."""

    def start(self) -> None:
        """Start it and wait until it answers."""
        log = self.folder / "service.log"
        command = [sys.executable, "-c", "from mmsbgen.cli import main; main()", "serve", "--workers", "2"]
        command += ["--database", self.database, "--data", str(self.folder / "data"), "--port", str(self.port)]
        command += ["--write-rate", "100000/second", "--worker-device", self.device]
        environment = os.environ | {"MMSBGEN_TOKEN": TOKEN, "MMSBGEN_WORKER_LEASE": str(LEASE_S)}
        began = log.stat().st_size if log.exists() else 0
        with log.open("ab") as file:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=file, env=environment)
        deadline = time.monotonic() + 60
        while not (found := re.search(r"serves http://127.0.0.1:(\d+)/", log.read_text()[began:])):
            if self.process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the service did not start: {log.read_text()[began:]}")
            time.sleep(0.05)
        self.port = int(found[1])

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    def workers(self) -> list[psutil.Process]:
        """The workers beside it."""
        assert self.process is not None
        found = []
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(self.process.pid).children():
                with contextlib.suppress(psutil.Error):
                    if "worker" in child.cmdline():
                        found.append(child)
        self.crew |= {worker.pid: worker for worker in found}
        return found

    def left(self, patience_s: float) -> list[int]:
        """Workers that are still there after so long."""
        _, alive = psutil.wait_procs(list(self.crew.values()), patience_s)
        return [worker.pid for worker in alive]

    def kill(self) -> None:
        """As a power cut would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End it in an orderly way."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(90)


@dataclass
class Client:
    """Asks for work all the while; what was answered must not be lost."""

    service: Service
    jobs: dict[str, str] = field(default_factory=dict)
    tunes: set[str] = field(default_factory=set)
    runs: dict[str, int] = field(default_factory=dict)
    retried: int = 0
    wrong: list[str] = field(default_factory=list)
    enough: threading.Event = field(default_factory=threading.Event)

    def work(self, pause: float) -> None:
        """Submit until it is enough."""
        number = 0
        while not self.enough.is_set():
            number += 1
            (self.submit_tune if number % TUNE_EVERY == 0 else self.submit)(number)
            self.upload()
            self.enough.wait(pause)

    def submit(self, number: int) -> None:
        """One detection."""
        key = f"key-{number}"
        answer = self.until_answered(f"{API}/jobs/detect", EDGES.encode(), {"Idempotency-Key": key}, OPTIONS)
        if answer is not None:
            self.jobs[key] = answer.json()["id"]

    def submit_tune(self, number: int) -> None:
        """One tune, of another size each time, so that none finds what another has measured."""
        key = f"key-{number}"
        wanted = {"kernels": ["draw_stars"], "problem": {"K": 8, "N": 200 + number, "m": 64}, "budget_trials": 2}
        headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
        answer = self.until_answered(f"{API}/jobs/tune", json.dumps(wanted).encode(), headers)
        if answer is not None:
            self.jobs[key] = answer.json()["id"]
            self.tunes.add(self.jobs[key])

    def upload(self) -> None:
        """One run with three trials."""
        lines = bundle_lines()
        run = re.search(rb'"uuid":"([0-9a-f]{32})"', b"".join(lines))
        assert run is not None
        answer = self.until_answered(f"{API}/records", b"".join(lines), {})
        if answer is not None:
            self.runs[run[1].decode()] = 3

    def until_answered(
        self, path: str, body: bytes, headers: dict[str, str], params: dict[str, int] | None = None
    ) -> httpx.Response | None:
        """The answer to a request that is repeated where the connection ends or the queue is full."""
        headers = {**headers, "Authorization": f"Bearer {TOKEN}"}
        for _ in range(600):
            try:
                url = f"{self.service.url}{path}"
                answer = httpx.post(url, params=params, content=body, headers=headers, timeout=30, trust_env=False)
            except httpx.TransportError:
                self.retried += 1
                time.sleep(0.2)
                continue
            if answer.status_code in (200, 202):
                return answer
            if answer.status_code not in (429, 503):
                self.wrong.append(f"{path}: {answer.status_code} {answer.text[:300]}")
                return None
            if self.enough.wait(0.5):
                return None
        self.wrong.append(f"{path}: never answered")
        return None


def kill_some(service: Service, chance: random.Random) -> str:
    """Kill at a random moment; returns what."""
    end = time.monotonic() + chance.uniform(0.2, MOST_PAUSE_S)
    while time.monotonic() < end:
        service.workers()
        time.sleep(0.1)
    workers = service.workers()
    what = chance.choice(("service", "worker", "all"))
    if what != "service":
        for worker in workers if what == "all" else workers[: 1 + chance.randrange(2)][-1:]:
            with contextlib.suppress(psutil.Error):
                worker.kill()
    if what != "worker":
        service.kill()
        time.sleep(chance.uniform(0, 0.5))
        service.start()
    return what


def wait_for_all(service: Service, jobs: int) -> None:
    """Wait until no job is waiting or running."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        service.workers()
        counts = httpx.get(f"{service.url}{API}/jobs", timeout=30, trust_env=False).json()["counts"]
        if not counts["queued"] + counts["running"] and sum(counts.values()) >= jobs:
            return
        time.sleep(0.5)


def faults(service: Service, client: Client) -> list[str]:
    """What was lost or doubled."""
    wrong = list(client.wrong)
    with open_store(service.database) as store:
        queue = Queue(store)
        ids = list(client.jobs.values())
        if len(set(ids)) != len(ids):
            wrong.append("two keys have one job")
        if sum(queue.counts().values()) != len(ids):
            wrong.append(f"{sum(queue.counts().values())} jobs for {len(ids)} keys")
        results, recorded = set(), {run.uuid for run in store.runs()}
        for name in ids:
            job, events = queue.get(name), queue.events(name)
            ends = [event for event in events if event.data.get("state") in ("done", "failed", "cancelled")]
            if job.state != "done" or len(ends) != 1:
                wrong.append(f"{name} is {job.state} with {len(ends)} ends: {job.error}")
            elif name not in client.tunes:
                results.add(b"".join(queue.read(name, "output", "communities.txt")))
            elif (job.result or {})["run"] not in recorded:
                wrong.append(f"the trials of the tune {name} are gone")
        if len(results) > 1:
            wrong.append(f"the same detection gave {len(results)} results")
        for run, count in client.runs.items():
            if run not in recorded or len(store.trials(run=run)) != count:
                wrong.append(f"the run {run} is not whole")
        if store.database.engine.dialect.name == "sqlite":
            said = store.database.read(lambda c: c.execute(text("PRAGMA integrity_check")).scalars().all())
            if list(said) != ["ok"]:
                wrong.append(f"the database is damaged: {said[:3]}")
    if left := service.left(30):
        wrong.append(f"workers are left: {left}")
    return wrong


def kill_under_load(service: Service, moments: int, seed: int) -> None:
    """Kill at random moments under load, let what is left be done, and check."""
    chance, client = random.Random(seed), Client(service)
    asking = threading.Thread(target=client.work, args=(3.0,), daemon=True)
    service.start()
    asking.start()
    try:
        for _ in range(moments):
            kill_some(service, chance)
        client.enough.set()
        asking.join(120)
        wait_for_all(service, len(client.jobs))
    finally:
        service.stop()
    assert client.jobs
    assert client.runs
    assert not faults(service, client)


@pytest.mark.timeout(600)
def test_a_killed_service_loses_nothing_on_sqlite(processor: object, tmp_path: Path) -> None:
    kill_under_load(Service(str(tmp_path / "jobs.sqlite3"), tmp_path, PROCESSOR), moments=2, seed=1)


@pytest.mark.postgres
@pytest.mark.timeout(600)
def test_a_killed_service_loses_nothing_on_postgresql(processor: object, postgres_url: str, tmp_path: Path) -> None:
    kill_under_load(Service(postgres_url, tmp_path, PROCESSOR), moments=1, seed=2)
