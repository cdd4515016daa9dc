"""Kill -9 of the service and of its workers at random moments under load: no job and no record may be lost.

    scripts/service_kills.py                 20 moments on SQLite, added to docs/reports/service-kills.md
    scripts/service_kills.py --points 3 --no-report --database postgresql://...

A client submits detections and tunes and uploads records all the while, each job with a key of its own, again until it
is answered.  At random moments the service, or one of the two workers beside it, or all of them are killed; a killed
service is started again.  At the end every job that was asked for must be done, once, with its files or its trials,
detections with the same result, every record there, and no process left.  Exit code 1 otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
from _hostile import API, TOKEN, bundle_lines
from sqlalchemy import text

from mmsbgen.db.store import paging
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.jobs import Queue

FIGURES = Path(__file__).resolve().parents[1] / "docs" / "reports" / "service-kills.json"
REPORT = Path(__file__).resolve().parents[1] / "docs" / "reports" / "service-kills.md"
EDGES = "".join(f"{12 * part + a} {12 * part + b}\n" for part in range(6) for a in range(12) for b in range(a))
OPTIONS = {"n_communities": 6, "iterations": 20, "seed": 1}
TUNE_EVERY = 4
"""So many jobs to a tune."""
LEASE_S = 4
MOST_PAUSE_S = 8.0
"""Between kills; the service takes some seconds more to start again."""
PATIENCE_S = 600.0


@dataclass
class Service:
    """A service that can be killed and started again on the same port."""

    database: str
    folder: Path
    device: str | None
    port: int = 0
    process: subprocess.Popen[bytes] | None = None
    crew: dict[int, psutil.Process] = field(default_factory=dict)
    """Workers that were seen beside it."""

    def start(self) -> None:
        """Start it and wait until it answers."""
        log = self.folder / "service.log"
        command = [sys.executable, "-c", "from mmsbgen.cli import main; main()", "serve", "--workers", "2"]
        command += ["--database", self.database, "--data", str(self.folder / "data"), "--port", str(self.port)]
        command += ["--write-rate", "100000/second", *(("--worker-device", self.device) if self.device else ())]
        environment = os.environ | {"MMSBGEN_TOKEN": TOKEN, "MMSBGEN_WORKER_LEASE": str(LEASE_S)}
        began = log.stat().st_size if log.exists() else 0
        with log.open("ab") as file:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=file, env=environment)
        deadline = time.monotonic() + 60
        while not (found := re.search(r"serves http://127.0.0.1:(\d+)/", log.read_text()[began:])):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the service did not start: {log.read_text()[began:]}")
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


def check(service: Service, client: Client) -> tuple[list[str], dict[str, Any]]:
    """What was lost or doubled, and figures of the jobs."""
    wrong, attempts, losses, resumed = list(client.wrong), Counter[int](), 0, 0
    with open_store(service.database) as store:
        queue = Queue(store)
        ids = list(client.jobs.values())
        if len(set(ids)) != len(ids):
            wrong.append("two keys have one job")
        if sum(queue.counts().values()) != len(ids):
            wrong.append(f"{sum(queue.counts().values())} jobs for {len(ids)} keys")
        results = set()
        for name in ids:
            job, events = queue.get(name), queue.events(name)
            ends = [event for event in events if event.data.get("state") in ("done", "failed", "cancelled")]
            if job.state != "done" or len(ends) != 1:
                wrong.append(f"{name} is {job.state} with {len(ends)} ends: {job.error}")
                continue
            attempts[job.attempt] += 1
            losses += job.losses
            resumed += any(str(event.data.get("text")).startswith("Resumed after") for event in events)
            if name not in client.tunes:
                results.add(b"".join(queue.read(name, "output", "communities.txt")))
            elif paging.run(store, (job.result or {})["run"]) is None:
                wrong.append(f"the trials of the tune {name} are gone")
        if len(results) > 1:
            wrong.append(f"the same detection gave {len(results)} results")
        for run, count in client.runs.items():
            if paging.run(store, run) is None or len(store.trials(run=run)) != count:
                wrong.append(f"the run {run} is not whole")
        if store.database.engine.dialect.name == "sqlite":
            said = store.database.read(lambda c: c.execute(text("PRAGMA integrity_check")).scalars().all())
            if list(said) != ["ok"]:
                wrong.append(f"the database is damaged: {said[:3]}")
    if left := service.left(30):
        wrong.append(f"workers are left: {left}")
    return wrong, {
        "detections": len(ids) - len(client.tunes),
        "tunes": len(client.tunes),
        "attempts": dict(sorted(attempts.items())),
        "lost": losses,
        "resumed": resumed,
    }


def under_kills(service: Service, arguments: argparse.Namespace) -> tuple[list[str], dict[str, Any]]:
    """Kill under load, let what is left be done, and check; what is wrong, and figures."""
    chance, killed = random.Random(arguments.seed), Counter[str]()
    client = Client(service)
    asking = threading.Thread(target=client.work, args=(arguments.pause,), daemon=True)
    began = time.monotonic()
    service.start()
    asking.start()
    try:
        for point in range(arguments.points):
            killed[kill_some(service, chance)] += 1
            print(f"{point + 1}: {dict(killed)}, {len(client.jobs)} jobs, {len(client.runs)} runs", file=sys.stderr)
        last = time.monotonic() - began
        client.enough.set()
        asking.join(120)
        wait_for_all(service, len(client.jobs))
    finally:
        service.stop()
    wrong, figures = check(service, client)
    return wrong, {
        "points": arguments.points,
        "seed": arguments.seed,
        "killed": dict(sorted(killed.items())),
        **figures,
        "uploads": len(client.runs),
        "repeated": client.retried,
        "seconds_of_kills": round(last),
        "seconds": round(time.monotonic() - began),
        "wrong": wrong,
    }


WORDS = f"""\
on two cores of a virtual AMD EPYC, on PoCL, with other programs beside it. A client submits detections and tunes to
`mmsbgen serve --workers 2` and uploads records all the while, each job with a key of its own, again until it is
answered. At random moments, {MOST_PAUSE_S:g} s apart at most, signal 9 ends the service, or one of the workers beside
it, or all of them; a killed service is started again. Leases are {LEASE_S} seconds."""
AFTER = """\
A fault would be: a job that is lost, failed, or has not exactly one completion; a detection with another result than
the others, which are all of one graph and seed; a tune without its run; an upload that was answered and is not whole; a
database that is damaged; a worker that outlives its service. A worker whose service is killed gives its job back, which
is no lost attempt; a job whose worker is killed is tried again, a dozen times where it has to be."""
ROWS = {
    "moments": lambda run: sum(run["killed"].values()),
    "the service killed": lambda run: run["killed"].get("service", 0),
    "a worker killed": lambda run: run["killed"].get("worker", 0),
    "service and workers killed": lambda run: run["killed"].get("all", 0),
    "jobs: detections, tunes": lambda run: f"{run['detections']}, {run['tunes']}",
    "completed, once each": lambda run: sum(run["attempts"].values()),
    "attempts": lambda run: sum(int(number) * jobs for number, jobs in run["attempts"].items()),
    "most attempts of a job": lambda run: max(map(int, run["attempts"])),
    "attempts lost with their workers": lambda run: run["lost"],
    "jobs that went on from a checkpoint": lambda run: run["resumed"],
    "uploads, three trials each": lambda run: run["uploads"],
    "requests repeated, their connection having ended": lambda run: run["repeated"],
    "seconds until the last kill, in all": lambda run: f"{run['seconds_of_kills']}, {run['seconds']}",
    "faults": lambda run: len(run["wrong"]),
}


def page(runs: dict[str, dict[str, Any]]) -> str:
    """The report of some runs."""
    lines = ["# The service killed at random moments", "", '```bash title="not run by the tests: takes minutes"']
    for name, run in runs.items():
        empty = " --database postgresql://USER@HOST/EMPTY" if name.startswith("PostgreSQL") else ""
        lines.append(f"scripts/service_kills.py --points {run['points']} --seed {run['seed']}{empty}")
    lines += ["```", "", *WORDS.splitlines(), ""]
    lines += [f"| | {' | '.join(runs)} |", f"|---{'|---:' * len(runs)}|"]
    for title, value in ROWS.items():
        lines.append(f"| {title} | {' | '.join(str(value(run)) for run in runs.values())} |")
    return "\n".join([*lines, "", *AFTER.splitlines(), ""])


def main() -> int:
    """Kill and check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--database", metavar="URL", help="An empty one; SQLite in a new folder.")
    parser.add_argument("--device", metavar="SPEC", help="Of the workers.")
    parser.add_argument("--pause", type=float, default=3.0, help="Seconds between submissions.")
    parser.add_argument("--no-report", action="store_true", help="Print only.")
    arguments = parser.parse_args()
    kind = "PostgreSQL" if arguments.database and "://" in arguments.database else "SQLite"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        service = Service(arguments.database or str(folder / "t.sqlite3"), folder, arguments.device, port)
        wrong, figures = under_kills(service, arguments)
        if wrong:
            print((folder / "service.log").read_text()[-5000:], file=sys.stderr)
    print(json.dumps(figures, indent=2))
    print("WRONG: " + "; ".join(wrong[:20]) if wrong else "Nothing was lost.")
    if not arguments.no_report and not wrong:
        runs = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
        runs |= {f"{kind}, seed {arguments.seed}": figures}
        runs = dict(sorted(runs.items(), key=lambda item: (item[0].startswith("Postgre"), item[0])))
        FIGURES.write_text(json.dumps(runs, indent=2) + "\n")
        REPORT.write_text(page(runs))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
