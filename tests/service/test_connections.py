"""Connections: how many there may be, and that a body which no answer needs holds none."""

from __future__ import annotations

import contextlib
import socket
import time
from collections import Counter
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.service.running import Service, serving

EDGES = b"1 2\n2 3\n1 3\n"


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("connections")
    with serving(str(folder / "t.sqlite3"), folder / "data", "--write-rate", "10000/second") as service:
        yield service


def connected(service: Service) -> socket.socket:
    """A connection that has sent nothing."""
    place = urlsplit(service.url)
    return socket.create_connection((place.hostname, place.port), timeout=30)


@pytest.mark.slow
def test_connections_are_limited(narrow: Service) -> None:
    with contextlib.ExitStack() as crowd, narrow.client() as kept:
        assert kept.get("/api/v1/kernels").status_code == 200
        for _ in range(256):
            crowd.enter_context(connected(narrow))
        time.sleep(0.5)
        refused = kept.get("/api/v1/kernels")
        assert (refused.status_code, refused.headers["connection"]) == (503, "close")
        with narrow.client() as another:
            assert another.post("/api/v1/jobs/detect", params={"n_communities": 2}, content=EDGES).status_code == 503
    with narrow.client() as client:
        deadline = time.monotonic() + 10
        while client.get("/api/v1/kernels").status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.mark.parametrize("header", [b"", b"Expect: 100-continue\r\n"])
def test_a_request_that_needs_no_body_is_answered_and_its_connection_ended(narrow: Service, header: bytes) -> None:
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n" + header
    with connected(narrow) as one:
        one.sendall(head + b"\r\n")
        answer = b""
        while data := one.recv(4096):
            answer += data
    assert b"HTTP/1.1 400" in answer
    assert b"a GET request has no body here" in answer


@pytest.mark.slow
def test_followers_are_limited(narrow: Service) -> None:
    with narrow.client() as client, contextlib.ExitStack() as open_streams:
        job = client.post("/api/v1/jobs/tune", json={"problem": {"K": 99}}).json()["id"]
        head = f"GET /api/v1/jobs/{job}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        followers = [open_streams.enter_context(connected(narrow)) for _ in range(115)]
        for one in followers:
            one.sendall(head)
        codes = Counter(one.recv(12).decode() for one in followers)
        assert codes == {"HTTP/1.1 200": 32, "HTTP/1.1 429": 83}, "however close together they come"
        refused = client.get(f"/api/v1/jobs/{job}/events")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "10")
        client.post(f"/api/v1/jobs/{job}/cancel")
    with narrow.client() as client:
        deadline = time.monotonic() + 10
        while "mmsbgen_streams 0.0" not in client.get("/metrics").text:
            assert time.monotonic() < deadline
            time.sleep(0.1)
