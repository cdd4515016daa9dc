"""Workers killed with kill -9 at random moments lose nothing; docs/reports/service.md has the same with 20 kills."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

import mmsbgen
from tests.devices import PROCESSOR

pytestmark = [pytest.mark.opencl, pytest.mark.slow]

GRAPH = Path(__file__).parents[1] / "data" / "netscience.txt.gz"
DETECT: dict[str, Any] = {"n_communities": 6, "start": "random", "evaluate_every": 20, "iterations": 300}
TUNE: dict[str, Any] = {"kernels": ["draw_stars"], "roof_mib": 16, "compilers": 0}
KILLS = {"sqlite": 5, "postgresql": 2}
BUSY = 0.8
"""How often the worker that is killed is one that has a job."""


class Load:
    """Two workers on one device, and jobs for them."""

    def __init__(self, crew: Any) -> None:
        self.crew, self.dice = crew, random.Random(0)
        self.ids: list[str] = []
        self.seen: set[str] = set()
        """Trials that were in the database before a kill."""
        self.workers = [self.start(), self.start()]

    def start(self) -> Any:
        return self.crew.start("--checkpoint-seconds", 0.2, "--quiet")

    def submit(self) -> None:
        """One job more: two of three are detections, of one of two seeds; each tune has a size of its own."""
        n, queue = len(self.ids), self.crew.queue
        if n % 3 == 2:
            payload = TUNE | {"problem": {"K": 8, "N": 200 + n, "m": 64}}
            self.ids.append(queue.submit("tune", payload, max_losses=1000))
        else:
            self.ids.append(queue.submit("detect", DETECT | {"seed": n % 2}, inputs={"graph": GRAPH}, max_losses=1000))

    def kill(self) -> None:
        """Kill a worker, most often one that has a job, and start another."""
        self.seen |= {trial.uid for trial in self.crew.store.trials()}
        busy = {job.worker for job in self.crew.queue.list(state="running")}
        having = [one for one in self.workers if any(f" {one.pid} " in str(name) for name in busy)]
        worker = self.dice.choice(having if having and self.dice.random() < BUSY else self.workers)
        self.workers.remove(worker)
        worker.kill()
        worker.communicate()
        self.workers.append(self.start())

    def waiting(self) -> int:
        counts: Counter[str] = self.crew.queue.counts()
        return counts["queued"] + counts["running"]

    def killed_while_jobs_come(self, kills: int) -> None:
        for _ in range(3):
            self.submit()
        for _ in range(kills):
            time.sleep(self.dice.uniform(0.5, 3.0))
            if self.waiting() < 3:
                self.submit()
            self.crew.until(lambda: self.crew.queue.counts()["running"], "no job was begun")
            self.kill()
        for _ in range(2):
            self.crew.until(lambda: self.waiting() < 2, "jobs are left")
        self.crew.until(lambda: not self.waiting(), "a job is left")


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, processor: object) -> tuple[str, ...]:
    """The communities of a run that nobody killed, by seed."""
    found = []
    for seed in (0, 1):
        folder = tmp_path_factory.mktemp(f"straight{seed}")
        database = folder / "none.sqlite3"
        mmsbgen.detect(GRAPH, random_state=seed, device=PROCESSOR, database=database, out=folder / "out", **DETECT)
        found.append((folder / "out" / "communities.txt").read_text())
    return tuple(found)


@pytest.mark.timeout(400)
def test_killed_workers_lose_no_job_and_no_record(crew: Any, straight: tuple[str, ...]) -> None:
    load, store, queue = Load(crew), crew.store, crew.queue
    kind = store.database.engine.dialect.name
    load.killed_while_jobs_come(KILLS[kind])
    for worker in load.workers:
        worker.send_signal(signal.SIGTERM)
        assert not worker.communicate()[1]

    assert len(queue.list(limit=10_000)) == len(load.ids)
    for id in load.ids:
        job = queue.get(id)
        assert (job.state, crew.states(id).count("done")) == ("done", 1), job.error
        if job.kind == "detect":
            found = b"".join(queue.read(id, "output", "communities.txt")).decode()
            assert found == straight[job.payload["seed"]]
    jobs = [queue.get(id) for id in load.ids]
    assert sum(job.attempt for job in jobs) == sum(job.losses for job in jobs) + len(jobs)
    assert sum(job.losses for job in jobs) >= (kind == "sqlite"), "five kills meet a job at least once"

    trials = store.trials()
    assert load.seen <= {trial.uid for trial in trials}
    # What was given up as slower than the best is no result that a later attempt could take over.
    whole = [trial for trial in trials if trial.round == 0 and not trial.extra.get("given_up")]
    assert max(Counter((trial.key, trial.config_digest) for trial in whole).values()) == 1, "measured again"
    if kind == "sqlite":
        said = store.database.read(lambda c: c.execute(text("PRAGMA integrity_check")).scalars().all())
        assert list(said) == ["ok"]
