"""A service behind nginx, by the configuration that the documentation has."""

from __future__ import annotations

import contextlib
import select
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.service.proxy import changed, command, free_port, proxied, shipped
from tests.service.running import TOKEN, Service, serving

pytestmark = pytest.mark.slow

EDGES = b"1 2\n2 3\n1 3\n"
UPLOADS = ("/api/v1/jobs/detect", "/api/v1/records")
CROWD = 300
BYTE_S = 1.5
"""Seconds between two bytes of a slow connection; nginx has less patience with a body."""
SOON = {"client_header_timeout 15s;": "client_header_timeout 2s;", "client_body_timeout 8s;": "client_body_timeout 1s;"}
BODY = "Host: localhost\r\nContent-Length: 60000\r\n"
SLOW = {
    "nothing": b"",
    "headers": b"GET /health HTTP/1.1\r\nX: ",
    "a body that is not taken": f"GET /health HTTP/1.1\r\n{BODY}\r\n".encode(),
    "an upload": f"POST /api/v1/records HTTP/1.1\r\n{BODY}Authorization: Bearer {TOKEN}\r\n\r\n".encode(),
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("served")
    options = ("--allow-host", "tuner.example.org", "--write-rate", "20/hour")
    with serving(str(folder / "t.sqlite3"), folder / "data", *options) as opened:
        yield opened


@pytest.fixture(scope="module")
def behind(service: Service, nginx_program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The service through nginx, whose deadlines come soon."""
    with proxied(service, nginx_program, tmp_path_factory.mktemp("nginx") / "nginx", SOON) as opened:
        yield opened


def connected(service: Service, source: str) -> socket.socket:
    """A connection from one of this machine's many addresses."""
    place = urlsplit(service.url)
    return socket.create_connection((place.hostname, place.port), timeout=30, source_address=(source, 0))


def client_at(service: Service, source: str, token: str | None = TOKEN) -> httpx.Client:
    """A client at one of this machine's many addresses."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    through = httpx.HTTPTransport(local_address=source)
    return httpx.Client(base_url=service.url, headers=headers, timeout=60, trust_env=False, transport=through)


def ended(crowd: list[socket.socket]) -> list[bytes]:
    """What each connection got, when all were ended by the other side; each sends a byte now and then."""
    got = {one: b"" for one in crowd}
    left, deadline, last = set(crowd), time.monotonic() + 60, time.monotonic()
    while left:
        assert time.monotonic() < deadline, f"{len(left)} connections are still there"
        for one in select.select(list(left), [], [], 0.2)[0]:
            data = b""
            with contextlib.suppress(ConnectionError):
                data = one.recv(4096)
            got[one] += data
            if not data:
                left.discard(one)
        if time.monotonic() - last > BYTE_S:
            last = time.monotonic()
            for one in left:
                with contextlib.suppress(OSError):
                    one.sendall(b"A")  # a method may have it, so that nothing is answered
    return list(got.values())


@pytest.mark.parametrize("what", SLOW)
def test_slow_connections_of_an_address_keep_nobody_out(behind: Service, what: str) -> None:
    with contextlib.ExitStack() as opened:
        crowd = [opened.enter_context(connected(behind, "127.0.0.2")) for _ in range(CROWD)]
        began = time.monotonic()
        for one in crowd:
            with contextlib.suppress(OSError):
                one.sendall(SLOW[what])
        with behind.client() as other:
            assert other.get("/api/v1/kernels").status_code == 200
            seconds = time.monotonic() - began
            for _ in range(2):
                assert other.get("/api/v1/kernels").status_code == 200
            job = other.post("/api/v1/jobs/detect", params={"n_communities": 2}, content=EDGES)
            assert job.status_code == 202
            assert other.post(f"/api/v1/jobs/{job.json()['id']}/cancel").status_code == 200
        answers = Counter(answer[9:12] for answer in ended(crowd))
    taken = CROWD - answers[b"429"]
    if "Content-Length" in SLOW[what].decode():
        # Each holds its place for a second or more, and a busy machine may take longer to send them all.
        assert 32 <= taken <= 32 * (1 + int(seconds))
    else:
        assert taken == CROWD, "nginx counts a connection only when its headers are complete"
    assert set(answers) <= {b"429", b"408", b""}, "none was served"
    with behind.client() as client:
        assert client.get("/api/v1/kernels").status_code == 200
        assert "/api/v1/records" not in client.get("/metrics").text, "no upload that is incomplete reaches the service"


def test_uploads_pass(behind: Service) -> None:
    links = b"".join(b"%d %d\n" % (a, b) for a in range(600) for b in range(a))
    assert len(links) > 1 << 20, "more than nginx takes by default"
    with client_at(behind, "127.0.2.1") as client:
        for content in (links, (links[at : at + 65536] for at in range(0, len(links), 65536))):
            answer = client.post("/api/v1/jobs/detect", params={"n_communities": 2}, content=content)
            assert (answer.status_code, answer.json()["links"]) == (202, 600 * 599 // 2)
            client.post(f"/api/v1/jobs/{answer.json()['id']}/cancel")
        assert client.post("/api/v1/records", content=bytes((64 << 20) + 1)).status_code == 413


def test_events_come_as_they_happen(behind: Service) -> None:
    with client_at(behind, "127.0.2.2") as client, client_at(behind, "127.0.2.3") as follower:
        job = client.post("/api/v1/jobs/tune", json={"problem": {"K": 99}}).json()["id"]
        with follower.stream("GET", f"/api/v1/jobs/{job}/events") as followed:
            lines = followed.iter_lines()
            assert any("queued" in line for line in lines), "while the job waits"
            client.post(f"/api/v1/jobs/{job}/cancel")
            assert "event: end" in list(lines)


def test_rates_are_those_of_each_client(behind: Service) -> None:
    """Whatever a client says of its own address."""
    with client_at(behind, "127.0.2.4") as one, client_at(behind, "127.0.2.5") as another:
        for number in range(20):
            said = {"X-Forwarded-For": f"192.0.2.{number}"}
            assert one.post("/api/v1/jobs/tune", content=b"{", headers=said).status_code == 422
        assert one.post("/api/v1/jobs/tune", content=b"{", headers={"X-Forwarded-For": "::1"}).status_code == 429
        assert another.post("/api/v1/jobs/tune", content=b"{").status_code == 422


@pytest.mark.parametrize("path", UPLOADS)
def test_an_upload_without_the_right_token_is_refused_before_its_body(behind: Service, path: str) -> None:
    """So that nginx stores nothing."""
    head = f"POST {path}?n_communities=2 HTTP/1.1\r\nHost: tuner.example.org\r\nConnection: close\r\n"
    for size in ("Content-Length: 60000000", "Transfer-Encoding: chunked"):
        # With the right one nginx waits for the body.
        for token, answers in ((None, {b"401"}), ("wrong", {b"401"}), (TOKEN, {b"", b"408"})):
            said = f"Authorization: Bearer {token}\r\n" if token else ""
            with connected(behind, "127.0.2.6") as one:
                one.sendall(f"{head}{said}{size}\r\n\r\n".encode())
                answer = b""
                with contextlib.suppress(ConnectionError):
                    answer = one.recv(4096)
                assert answer[9:12] in answers, (token, size)
    with client_at(behind, "127.0.2.6") as client:
        empty = client.post(path, params={"n_communities": 2}, content=b"")
        assert empty.headers["content-type"] == "application/problem+json", "of the service"


def test_only_uploads_may_be_large(behind: Service) -> None:
    from mmsbgen.service.http import middleware

    assert set(UPLOADS) == middleware.UPLOADS
    with client_at(behind, "127.0.2.7") as client:
        for path in ("/api/v1/jobs/tune", "/api/v1/records/", "/health"):
            for content in (bytes((64 << 10) + 1), (bytes(1 << 10) for _ in range(65))):
                assert client.post(path, content=content).status_code == 413, path
        assert client.post("/api/v1/jobs/tune", content=b" " * (64 << 10)).status_code == 422


def test_reading_through_it_needs_the_token(behind: Service, service: Service) -> None:
    name = {"Host": "tuner.example.org"}
    for path in ("/api/v1/kernels", "/metrics"):
        with behind.client(token=None) as remote, service.client(token=None) as local:
            for said in ({}, {"X-Forwarded-For": "127.0.0.1"}):
                assert remote.get(path, headers=name | said).status_code == 401
            assert local.get(path).status_code == 200
            assert local.get(path, headers=name).status_code == 401, "of a proxy that names no client"
            for client in ("192.0.2.7", "2001:db8::7", "unknown", "127.0.0.1, 192.0.2.7", "192.0.2.7, ::1"):
                assert local.get(path, headers={"X-Forwarded-For": client}).status_code == 401
        with behind.client() as remote:
            assert remote.get(path, headers=name).status_code == 200
    with behind.client(token=None) as remote:
        assert remote.get("/", headers=name).status_code == remote.get("/health", headers=name).status_code == 200


def test_the_file_is_right_as_it_is(nginx_program: str, tmp_path: Path) -> None:
    from distributed.security import Security  # makes a certificate

    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = Security.temporary()
    key.write_text(made.tls_client_key)
    certificate.write_text(made.tls_client_cert)
    text = changed(
        shipped(),
        {
            "listen 443 ssl;": f"listen 127.0.0.1:{free_port()} ssl;",
            "/etc/ssl/tuner.example.org.pem": str(certificate),
            "/etc/ssl/private/tuner.example.org.key": str(key),
        },
    )
    testing = [*command(nginx_program, tmp_path, text), "-t"]
    done = subprocess.run(testing, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "[warn]" not in done.stderr
