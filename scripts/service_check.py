"""Hostile clients: malformed requests and uploads against a real service, which must answer 4xx and change nothing.

    scripts/service_check.py                    10,000 malformed requests, 200 hostile uploads; report in docs/reports
    scripts/service_check.py --schemathesis     besides, schemathesis against the schema, as long as --seconds

Every answer must be a 4xx (a body that is cut off may end the connection), and after all of them the database, down to
its bytes for SQLite, the folder of the service and the counts of jobs must be what they were.  Exit code 1 otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from _hostile import API, TOKEN, Malformed, Uploads, bundle_lines

from mmsbgen.db.exchange.jsonl import lines
from mmsbgen.db.store.tuning_store import open_store

REPORT = Path(__file__).resolve().parents[1] / "docs" / "reports" / "service-hostile.md"


_PATIENCE_S = 20.0
"""A request that stops in the middle is answered when the service has waited long enough."""


@dataclass
class Tally:
    """What came of the requests of one kind."""

    statuses: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def note(self, what: str, status: int | None) -> None:
        """Count an answer; None stands for a connection that the service ended without one."""
        self.statuses[str(status) if status else "ended"] += 1
        if status is not None and not 400 <= status < 500:
            self.wrong.append(f"{status} {what[:300]}")

    @property
    def count(self) -> int:
        """How many there were."""
        return self.statuses.total()


@contextlib.contextmanager
def serving(database: str, data: Path, *options: str) -> Iterator[str]:
    """A service whose rates let the check through; its URL."""
    command = [sys.executable, "-c", "from mmsbgen.cli import main; main()", "serve", "--port", "0", "--workers", "0"]
    rates = ["--rate", "1000000/second", "--write-rate", "1000000/second"]
    log = data.parent / "service.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [*command, "--database", database, "--data", str(data), *rates, *options],
            stderr=file,
            env=os.environ | {"MMSBGEN_TOKEN": TOKEN},
        )
    try:
        deadline = time.monotonic() + 60
        while not (found := re.search(r"serves (http://\S+)/ from", log.read_text())):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the service did not start: {log.read_text()}")
            time.sleep(0.05)
        httpx.get(f"{found[1]}/ready", timeout=60, trust_env=False).raise_for_status()
        yield found[1]
        if process.poll() is not None:
            raise SystemExit(f"the service ended: {log.read_text()}")
    finally:
        process.terminate()
        process.wait()
    if "Traceback" in log.read_text():
        raise SystemExit(f"the service had errors of its own: {log.read_text()}")


def sent(url: str, data: bytes) -> int | None:
    """The status of the answer to some bytes; None where there was none."""
    place = urlsplit(url)
    answer = b""
    with socket.create_connection((place.hostname or "", place.port or 80), timeout=_PATIENCE_S) as opened:
        with contextlib.suppress(OSError):
            opened.sendall(data)
        with contextlib.suppress(OSError):
            while b"\r\n" not in answer and (got := opened.recv(65536)):
                answer += got
    return int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") else None


def state_of(database: str, data: Path, url: str) -> dict[str, object]:
    """Everything that hostile clients must not have changed."""
    with open_store(database, read_only=True) as store:
        records = hashlib.sha256("\n".join(lines(store.bundle())).encode()).hexdigest()
    files = sorted(str(path.relative_to(data)) for path in data.rglob("*"))
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
        counts = client.get(f"{API}/jobs").json()["counts"]
    return {"records": records, "files": files, "jobs": counts}


def attack(url: str, requests: int, uploads: int, seed: int) -> dict[str, Tally]:
    """Send all of it."""
    found: dict[str, Tally] = {}
    malformed = Malformed(seed)
    tally = found["malformed requests"] = Tally()
    for _ in range(requests):
        request = malformed.one()
        tally.note(repr(request[:300]), sent(url, request))
    made = Uploads(seed)
    with httpx.Client(
        base_url=url, trust_env=False, timeout=120, headers={"Authorization": f"Bearer {TOKEN}"}
    ) as client:
        for number in range(uploads):
            name, route, headers, body = made.one(number)
            tally = found.setdefault(f"hostile uploads: {name}", Tally())
            try:
                answer = client.post(route, headers=headers, content=body)
                tally.note(f"{route} {body[:200]!r} {answer.text[:200]}", answer.status_code)
            except httpx.TransportError:
                tally.note(route, None)
    return found


def schemathesis(url: str, seconds: float, examples: int) -> str:
    """Run schemathesis; returns the end of what it said.  Raises SystemExit where it found an error of the service."""
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{url}{API}/openapi.json", "--url", url]
    command += ["--checks", "not_a_server_error", "--max-examples", str(examples), "--continue-on-failure"]
    command += ["-H", f"Authorization: Bearer {TOKEN}", "--request-timeout", "60", "--generation-database", "none"]
    command += ["--exclude-path-regex", "/events$"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    if done.returncode:
        raise SystemExit(f"schemathesis found errors:\n{done.stdout[-6000:]}{done.stderr[-2000:]}")
    return done.stdout[-1500:]


def main() -> int:
    """Check and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--uploads", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--database", metavar="URL", help="An empty one; SQLite in a new folder.")
    parser.add_argument("--schemathesis", action="store_true", help="Besides, run schemathesis.")
    parser.add_argument("--seconds", type=float, default=600, help="Most for schemathesis.")
    parser.add_argument("--examples", type=int, default=100, help="Of an operation, for schemathesis.")
    parser.add_argument("--no-report", action="store_true", help="Print only.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        database = arguments.database or str(folder / "t.sqlite3")
        (folder / "good.jsonl").write_bytes(b"".join(bundle_lines()))
        with open_store(database) as store:
            store.import_jsonl(folder / "good.jsonl")
        began = time.monotonic()
        limits = ("--max-vertices", "100000", "--max-links", "100000", "--max-graph", "32")
        with serving(database, folder / "data", *limits) as url:
            before = state_of(database, folder / "data", url)
            found = attack(url, arguments.requests, arguments.uploads, arguments.seed)
            after = state_of(database, folder / "data", url)
        seconds = time.monotonic() - began
        told = ""
        if arguments.schemathesis:
            # Its requests may be good ones, so it gets a database of its own.
            with serving(str(folder / "s.sqlite3"), folder / "data2", "--max-jobs", "1000000") as url:
                told = schemathesis(url, arguments.seconds, arguments.examples)
    for name in before:
        if before[name] != after[name]:
            print(f"{name} changed: {before[name]} -> {after[name]}", file=sys.stderr)
    text = report(found, before == after, seconds, told, arguments)
    print(text)
    wrong = [line for tally in found.values() for line in tally.wrong]
    print("\n".join(wrong[:20]), file=sys.stderr)
    if not arguments.no_report and not wrong and before == after:
        REPORT.write_text(text)
    return 1 if wrong or before != after else 0


def report(found: dict[str, Tally], same: bool, seconds: float, told: str, arguments: argparse.Namespace) -> str:
    """The report as markdown."""
    rows = [
        f"| {name} | {tally.count} | {', '.join(f'{s}: {n}' for s, n in sorted(tally.statuses.items()))} "
        f"| {len(tally.wrong)} |"
        for name, tally in found.items()
    ]
    command = f"scripts/service_check.py --requests {arguments.requests} --uploads {arguments.uploads}"
    command += f" --seed {arguments.seed}{' --schemathesis' if arguments.schemathesis else ''}"
    parts = [
        "# Hostile clients",
        "",
        f"`{command}`, {seconds:.0f} s for requests and uploads. 'ended' is a connection that the service ended, as "
        "what came was no request, or was cut off.",
        "",
        "| what | sent | answers | not 4xx |",
        "|---|---:|---|---:|",
        *rows,
        "",
        f"Afterwards records, files and jobs were {'what they were' if same else 'NOT what they were'}.",
    ]
    if told:
        summary = [line.strip("✅⚠️= ") for line in told.splitlines() if line.strip()][-12:]
        parts += ["", "schemathesis against the schema, `--checks not_a_server_error`:", "", "```text", *summary, "```"]
    return "\n".join([*parts, ""])


if __name__ == "__main__":
    sys.exit(main())
