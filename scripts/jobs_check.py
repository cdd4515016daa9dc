#!/usr/bin/env python
"""Kill workers with kill -9 at random moments under load, and hold what is left against what should be.

    scripts/jobs_check.py --kills 20 --database postgresql://USER@HOST/EMPTY --output docs/reports/jobs.json

Two workers on one device do detections and tunes while more are submitted; at random moments one of the two, most often
the one that has a job, is killed and started again.  Afterwards: no job is lost, each has one recorded completion, a
detection has the bits of one that nobody killed, every trial that was ever seen is there, no configuration was measured
again, and the database is sound.
Ends with exit code 1 where that is not so.  The database must be empty; without one it is a new SQLite file.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from sqlalchemy import text

import mmsbgen
from mmsbgen.db.store.tuning_store import Store, open_store
from mmsbgen.jobs import Job, Queue

GRAPH = Path(__file__).parents[1] / "tests" / "data" / "CA-GrQc.txt.gz"
DETECT: dict[str, Any] = {"n_communities": 20, "start": "random", "evaluate_every": 20}
TUNE: dict[str, Any] = {
    "kernels": ["draw_stars"],
    "problem": {"K": 8, "N": 200, "m": 64},
    "roof_mib": 16,
    "compilers": 0,
}
LEASE_S = 2.0
BUSY = 0.8
"""How often the worker that is killed is one that has a job."""
PATIENCE_S = 120.0


@dataclass
class Load:
    """Jobs and workers of a check."""

    store: Store
    device: str
    folder: Path
    dice: random.Random
    detect: dict[str, Any]
    """The payload of detections."""
    ids: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    """Trials that were in the database at some moment."""
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.queue = Queue(self.store)

    def submit(self) -> None:
        """One job more: two of three are detections, of one of two seeds."""
        n = len(self.ids)
        if n % 3 == 2:
            # Another size each time, so that no tune finds what another has measured.
            payload = TUNE | {"problem": {"K": 8, "N": 200 + n, "m": 64}}
            self.ids.append(self.queue.submit("tune", payload, max_losses=1000))
        else:
            payload = self.detect | {"seed": n % 2}
            self.ids.append(self.queue.submit("detect", payload, inputs={"graph": GRAPH}, max_losses=1000))

    def start(self) -> None:
        """One worker more."""
        words = ["worker", "--device", self.device, "--data", str(self.folder / "data")]
        words += ["--lease", str(LEASE_S), "--checkpoint-seconds", "0.2", "--quiet"]
        command = [sys.executable, "-c", "from mmsbgen.cli import main; main()", *words]
        url = self.store.place.url
        place = str(self.store.place.path) if url is None else url.render_as_string(hide_password=False)
        roots = [str(Path(mmsbgen.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {"MMSBGEN_DATABASE_URL": place, "PYTHONPATH": os.pathsep.join(filter(None, roots))}
        with (self.folder / "workers.log").open("ab") as log:
            self.workers.append(subprocess.Popen(command, env=environment, stderr=log))

    def kill(self) -> None:
        """Kill a worker, most often the one that has a job, and start another."""
        busy = {job.worker for job in self.queue.list(state="running")}
        having = [one for one in self.workers if any(f" {one.pid} " in str(name) for name in busy)]
        worker = self.dice.choice(having if having and self.dice.random() < BUSY else self.workers)
        self.workers.remove(worker)
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        self.start()

    def look(self) -> None:
        """Remember the trials that are stored."""
        self.seen |= {trial.uid for trial in self.store.trials()}

    def waiting(self) -> int:
        """How many jobs have not ended."""
        counts = self.queue.counts()
        return counts["queued"] + counts["running"]


@click.command(help=__doc__)
@click.option("--kills", type=click.IntRange(1), default=20, show_default=True, help="How often a worker is killed.")
@click.option("--least", default=0.5, show_default=True, help="Least seconds between kills.")
@click.option("--most", default=6.0, show_default=True, help="Most seconds between kills.")
@click.option("--iterations", type=click.IntRange(1), default=1500, show_default=True, help="Of a detection.")
@click.option("--device", default="pocl", show_default=True, help="Device of all workers.")
@click.option("--database", metavar="URL", help="An empty database; else a new SQLite file.")
@click.option("--seed", default=0, show_default=True, help="Of the random moments.")
@click.option("--output", type=click.Path(path_type=Path), help="Where the figures go as JSON.")
def main(
    kills: int,
    least: float,
    most: float,
    iterations: int,
    device: str,
    database: str | None,
    seed: int,
    output: Path | None,
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open_store(database or folder / "jobs.sqlite3") as store:
            if Queue(store).list() or store.runs():
                raise click.UsageError(f"--database {store.location} is not empty: give one that is")
            load = Load(store, device, folder, random.Random(seed), DETECT | {"iterations": iterations})
            begin = time.monotonic()
            try:
                under_load(load, kills, least, most)
            finally:
                for worker in load.workers:
                    worker.terminate()
                for worker in load.workers:
                    worker.wait()
            right = straight(device, folder, load.detect)
            found = figures(load, kills, time.monotonic() - begin)
            wrong = faults(load, right)
            log = (folder / "workers.log").read_text()
            if log:
                wrong.append(f"workers said: {log[-500:]}")
    found["faults"] = wrong
    click.echo(json.dumps(found, indent=2))
    if output is not None:
        output.write_text(json.dumps(found, indent=2) + "\n")
    raise SystemExit(1 if wrong else 0)


def under_load(load: Load, kills: int, least: float, most: float) -> None:
    """Kill workers while jobs come, then let what is left be done."""
    for _ in range(3):
        load.submit()
    for _ in range(2):
        load.start()
    for _ in range(kills):
        end = time.monotonic() + load.dice.uniform(least, most)
        while time.monotonic() < end:
            load.look()
            time.sleep(0.1)
        if load.waiting() < 3:
            load.submit()
        end = time.monotonic() + PATIENCE_S
        while not load.queue.counts()["running"] and time.monotonic() < end:
            time.sleep(0.05)
        load.kill()
    end = time.monotonic() + PATIENCE_S
    while load.waiting() and time.monotonic() < end:
        load.look()
        time.sleep(0.2)


def straight(device: str, folder: Path, detect: dict[str, Any]) -> dict[int, str]:
    """What detections of each seed give where nobody is killed."""
    right = {}
    for seed in (0, 1):
        out = folder / f"straight{seed}"
        mmsbgen.detect(GRAPH, random_state=seed, device=device, database=folder / "none.sqlite3", out=out, **detect)
        right[seed] = (out / "communities.txt").read_text()
    return right


def figures(load: Load, kills: int, seconds: float) -> dict[str, Any]:
    """What was done."""
    jobs = [load.queue.get(id) for id in load.ids]
    resumed = sum(
        event.kind == "message" and event.data["text"].startswith("Resumed after")
        for id in load.ids
        for event in load.queue.events(id)
    )
    return {
        "server": load.store.database.engine.dialect.name,
        "kills": kills,
        "jobs": dict(Counter(job.kind for job in jobs)),
        "states": dict(Counter(job.state for job in jobs)),
        "attempts": sum(job.attempt for job in jobs),
        "lost": sum(job.losses for job in jobs),
        "resumed": resumed,
        "trials": len(load.store.trials()),
        "seconds": round(seconds, 1),
    }


def faults(load: Load, right: dict[int, str]) -> list[str]:
    """What is not as it should be."""
    wrong = []
    for id in load.ids:
        job = load.queue.get(id)
        ends = [e.data["state"] for e in load.queue.events(id) if e.kind == "state" and e.data["state"] == "done"]
        if job.state != "done" or len(ends) != 1:
            wrong.append(f"job {id} ({job.kind}) is {job.state} with {len(ends)} completions: {job.error}")
        elif job.kind == "detect" and communities(load.queue, job) != right[job.payload["seed"]]:
            wrong.append(f"job {id} has other communities than a run that nobody killed")
    if len(load.queue.list(limit=10_000)) != len(load.ids):
        wrong.append("there are other jobs than were submitted")
    trials = load.store.trials()
    lost = load.seen - {trial.uid for trial in trials}
    if lost:
        wrong.append(f"{len(lost)} trials that were stored are gone")
    # What was given up as slower than the best is no result that a later attempt could take over.
    whole = [trial for trial in trials if trial.round == 0 and not trial.extra.get("given_up")]
    again = [count for count in Counter((trial.key, trial.config_digest) for trial in whole).values() if count > 1]
    if again:
        wrong.append(f"{len(again)} configurations were measured again though they were known")
    if load.store.database.engine.dialect.name == "sqlite":
        said = load.store.database.read(lambda c: c.execute(text("PRAGMA integrity_check")).scalars().all())
        if list(said) != ["ok"]:
            wrong.append(f"the database is damaged: {said[:3]}")
    return wrong


def communities(queue: Queue, job: Job) -> str:
    """The file of communities that a job left."""
    return b"".join(queue.read(job.id, "output", "communities.txt")).decode()


if __name__ == "__main__":
    main()
