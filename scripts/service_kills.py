"""Kill -9 of the service and of its workers at random moments under load: no job and no record may be lost.

    scripts/service_kills.py                 20 moments on SQLite, report in docs/reports/service-kills.md
    scripts/service_kills.py --points 3 --no-report --database postgresql://...

A client submits detections and uploads records all the while, each with a key of its own, again until it is answered.
The service, or one of the two workers beside it, or all of them are killed; a killed service is started again.  A job
that has lost two attempts is let end first: a third would fail it, as it is meant to.  At the end every job that was
asked for must be done, once, with its files, and every record there.  Exit code 1 otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
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

import httpx
import psutil
from _hostile import API, TOKEN, bundle_lines

from mmsbgen.db import paging
from mmsbgen.db.store import open_store
from mmsbgen.jobs import Queue

REPORT = Path(__file__).resolve().parents[1] / "docs" / "reports" / "service-kills.md"
EDGES = "".join(f"{12 * part + a} {12 * part + b}\n" for part in range(6) for a in range(12) for b in range(a))
OPTIONS = {"n_communities": 6, "iterations": 20, "seed": 1}
LEASE_S = 4


@dataclass
class Service:
    """A service that can be killed and started again on the same port."""

    database: str
    folder: Path
    device: str | None
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

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
        with contextlib.suppress(psutil.Error):
            return [child for child in psutil.Process(self.process.pid).children() if "worker" in child.cmdline()]
        return []

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
    runs: dict[str, int] = field(default_factory=dict)
    retried: int = 0
    wrong: list[str] = field(default_factory=list)
    enough: threading.Event = field(default_factory=threading.Event)

    def work(self, pause: float) -> None:
        """Submit until it is enough."""
        number = 0
        while not self.enough.is_set():
            number += 1
            self.submit(f"key-{number}")
            self.upload()
            self.enough.wait(pause)

    def submit(self, key: str) -> None:
        """One detection."""
        answer = self.until_answered(f"{API}/jobs/detect", EDGES.encode(), {"Idempotency-Key": key})
        if answer is not None:
            self.jobs[key] = answer.json()["id"]

    def upload(self) -> None:
        """One run with three trials."""
        lines = bundle_lines()
        run = re.search(rb'"uuid":"([0-9a-f]{32})"', b"".join(lines))
        assert run is not None
        answer = self.until_answered(f"{API}/records", b"".join(lines), {})
        if answer is not None:
            self.runs[run[1].decode()] = 3

    def until_answered(self, path: str, body: bytes, headers: dict[str, str]) -> httpx.Response | None:
        """The answer to a request that is repeated where the connection ends or the queue is full."""
        headers = {**headers, "Authorization": f"Bearer {TOKEN}"}
        for _ in range(600):
            try:
                params, url = OPTIONS if path.endswith("detect") else {}, f"{self.service.url}{path}"
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


def near_the_limit(service: Service) -> bool:
    """Whether a job has lost two attempts: a third would fail it, as it is meant to."""
    for state in ("queued", "running"):
        answer = httpx.get(f"{service.url}{API}/jobs", params={"state": state, "limit": 200}, timeout=30)
        if any(job["losses"] >= 2 for job in answer.json()["jobs"]):
            return True
    return False


def kill_some(service: Service, chance: random.Random) -> str:
    """Kill at a random moment; returns what."""
    time.sleep(chance.uniform(0.2, 4.0))
    # Last before the kill: a lease that ran out meanwhile made a loss of what was only a dead worker.
    deadline = time.monotonic() + 60
    while near_the_limit(service) and time.monotonic() < deadline:
        time.sleep(0.3)
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


def check(service: Service, client: Client) -> tuple[list[str], Counter[int]]:
    """What was lost or doubled, and how many attempts jobs took."""
    wrong, attempts = list(client.wrong), Counter[int]()
    with open_store(service.database) as store:
        queue = Queue(store)
        ids = list(client.jobs.values())
        if len(set(ids)) != len(ids):
            wrong.append("two keys have one job")
        if sum(queue.counts().values()) != len(ids):
            wrong.append(f"{sum(queue.counts().values())} jobs for {len(ids)} keys")
        results = set()
        for name in ids:
            job = queue.get(name)
            ends = [event for event in queue.events(name) if event.data.get("state") in ("done", "failed", "cancelled")]
            if job.state != "done" or len(ends) != 1:
                wrong.append(f"{name} is {job.state} with {len(ends)} ends: {job.error}")
                continue
            attempts[job.attempt] += 1
            results.add(b"".join(queue.read(name, "output", "communities.txt")))
        if len(results) > 1:
            wrong.append(f"the same detection gave {len(results)} results")
        for run, count in client.runs.items():
            if paging.run(store, run) is None or len(store.trials(run=run)) != count:
                wrong.append(f"the run {run} is not whole")
    return wrong, attempts


def main() -> int:
    """Kill and check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--database", metavar="URL", help="An empty one; SQLite in a new folder.")
    parser.add_argument("--device", metavar="SPEC", help="Of the workers.")
    parser.add_argument("--pause", type=float, default=1.5, help="Seconds between submissions.")
    parser.add_argument("--no-report", action="store_true", help="Print only.")
    arguments = parser.parse_args()
    chance, killed = random.Random(arguments.seed), Counter[str]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        service = Service(arguments.database or str(folder / "t.sqlite3"), folder, arguments.device, port)
        service.start()
        client = Client(service)
        asking = threading.Thread(target=client.work, args=(arguments.pause,), daemon=True)
        began = time.monotonic()
        asking.start()
        try:
            for point in range(arguments.points):
                killed[kill_some(service, chance)] += 1
                print(f"{point + 1}: {dict(killed)}, {len(client.jobs)} jobs, {len(client.runs)} runs", file=sys.stderr)
            client.enough.set()
            asking.join(120)
            deadline = time.monotonic() + 600
            while httpx.get(f"{service.url}{API}/jobs", timeout=30).json()["counts"]["done"] < len(client.jobs):
                if time.monotonic() > deadline:
                    break
                time.sleep(0.5)
        finally:
            service.stop()
        wrong, attempts = check(service, client)
        seconds = time.monotonic() - began
    command = f"scripts/service_kills.py --points {arguments.points} --seed {arguments.seed}"
    kind = "PostgreSQL" if arguments.database and "://" in arguments.database else "SQLite"
    text = "\n".join(
        [
            "# The service killed at random moments",
            "",
            f"`{command}` on {kind}, {seconds:.0f} s: "
            + ", ".join(f"{count} times {what}" for what, count in sorted(killed.items()))
            + " killed with signal 9 while a client submitted detections and uploaded records.",
            "",
            f"{len(client.jobs)} jobs were accepted and {len(client.runs)} uploads; {client.retried} requests were "
            "repeated because their connection ended.",
            "",
            f"Jobs done, by the number of attempts: {dict(sorted(attempts.items()))}.",
            "",
            "Nothing was lost: every job is done, once, with the same result; every record is there."
            if not wrong
            else "WRONG: " + "; ".join(wrong[:20]),
            "",
        ]
    )
    print(text)
    if not arguments.no_report and not wrong:
        REPORT.write_text(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
