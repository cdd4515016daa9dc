"""Hostile clients: malformed requests and uploads, which a real service must answer 4xx and which change nothing.

docs/service.md has a run of 10,000 requests and 200 uploads.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from mmsbgen.db.exchange.jsonl import lines
from mmsbgen.db.store.tuning_store import open_store
from tests.service.hostile import API, Malformed, Uploads, bundle_lines
from tests.service.running import TOKEN, Service, serving

pytestmark = pytest.mark.slow

FREE = ("--rate", "100000/second", "--write-rate", "100000/second")
LIMITS = ("--max-vertices", "100000", "--max-links", "100000", "--max-graph", "32")
AT_ONCE = 48
"""Requests that are sent at the same time."""
ANSWER_S, INCOMPLETE_S = 60.0, 4.0
"""How long to wait for the answer to a complete request, and to one that stops in the middle."""


def complete(request: bytes) -> bool:
    """Whether a service has all of a request, so that it must answer."""
    head, end, body = request.partition(b"\r\n\r\n")
    lengths = map(int, re.findall(rb"\r\nContent-Length: (\d+)", head))
    return bool(end) and b"chunked" not in head and len(body) >= max(lengths, default=0)


def sent(url: str, request: bytes) -> str:
    """The status of the answer; ``ended`` for a connection that ends without one, ``silent`` where nothing comes."""
    place, answer, without = urlsplit(url), b"", "ended"
    with socket.create_connection((place.hostname or "", place.port or 80), timeout=ANSWER_S) as opened:
        with contextlib.suppress(ConnectionError):
            opened.sendall(request)
        opened.settimeout(ANSWER_S if complete(request) else INCOMPLETE_S)
        try:
            while b"\r\n" not in answer and (got := opened.recv(65536)):
                answer += got
        except TimeoutError:
            without = "silent"
        except ConnectionError:
            pass
    return answer[9:12].decode("latin-1") if answer.startswith(b"HTTP/1.1 ") else without


def state_of(service: Service) -> dict[str, object]:
    """Everything that hostile clients must not have changed."""
    with open_store(service.database, read_only=True) as store:
        records = hashlib.sha256("\n".join(lines(store.bundle())).encode()).hexdigest()
    with service.client(token=None) as client:
        counts = client.get(f"{API}/jobs").json()["counts"]
    return {"records": records, "files": sorted(service.data.rglob("*")), "jobs": counts}


def hostile(service: Service, requests: int, uploads: int) -> list[str]:
    """Send them all; returns those that were answered other than by 4xx, and complete requests without an answer."""
    wrong = []
    malformed, made = Malformed(0), Uploads(0)
    sending = [malformed.one() for _ in range(requests)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for request, answer in zip(sending, pool.map(partial(sent, service.url), sending), strict=True):
            if not answer.startswith("4") and (complete(request) or answer not in ("ended", "silent")):
                wrong.append(f"{answer} {request[:300]!r}")
    with service.client() as client:
        for number in range(uploads):
            name, route, headers, body = made.one(number)
            try:
                status, text = (answer := client.post(route, headers=headers, content=body)).status_code, answer.text
            except httpx.TransportError as error:
                status, text = 0, repr(error)
            if not 400 <= status < 500:
                wrong.append(f"{name}: {route} {body[:200]!r} {text[:200]}")
    return wrong


def test_hostile_clients_change_nothing(tmp_path: Path) -> None:
    database = str(tmp_path / "tuning.sqlite3")
    (tmp_path / "good.jsonl").write_bytes(b"".join(bundle_lines()))
    with open_store(database) as store:
        store.import_jsonl(tmp_path / "good.jsonl")
    with serving(database, tmp_path / "data", *FREE, *LIMITS) as service:
        before = state_of(service)
        assert not hostile(service, requests=400, uploads=24)
        assert state_of(service) == before
        assert service.process.poll() is None
        assert "Traceback" not in service.log.read_text()


def test_schemathesis_finds_no_error_of_the_service(tmp_path: Path) -> None:
    with serving(str(tmp_path / "tuning.sqlite3"), tmp_path / "data", *FREE, "--max-jobs", "1000000") as service:
        command = [sys.executable, "-m", "schemathesis.cli", "run", f"{service.url}{API}/openapi.json"]
        command += ["--url", service.url, "--checks", "not_a_server_error", "--max-examples", "3"]
        command += ["-H", f"Authorization: Bearer {TOKEN}", "--request-timeout", "60", "--generation-database", "none"]
        command += ["--continue-on-failure", "--exclude-path-regex", "/events$"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        assert "Traceback" not in service.log.read_text()
