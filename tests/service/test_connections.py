"""Connections: how many there may be, of one address and in all, and how long they may take."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn
from fastapi import HTTPException
from uvicorn.server import ServerState

from mmsbgen.service.http import bounded_protocol, middleware
from mmsbgen.service.http.bounded_protocol import bounded
from tests.service.running import Service, serving

EDGES = b"1 2\n2 3\n1 3\n"


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("connections")
    with serving(str(folder / "t.sqlite3"), folder / "data", "--write-rate", "10000/second") as service:
        yield service


def connected(service: Service, source: str) -> socket.socket:
    """A connection from one of this machine's many addresses."""
    place = urlsplit(service.url)
    return socket.create_connection((place.hostname, place.port), timeout=30, source_address=(source, 0))


@pytest.mark.slow
def test_connections_are_limited(narrow: Service) -> None:
    with contextlib.ExitStack() as crowd, narrow.client() as kept:
        assert kept.get("/api/v1/kernels").status_code == 200
        for number in range(256):
            crowd.enter_context(connected(narrow, f"127.0.0.{2 + number // 50}"))
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


def test_headers_have_a_deadline_however_slowly_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def slowly(port: int, head: bytes, rest: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        answer = b""

        async def hear() -> None:
            nonlocal answer
            with contextlib.suppress(ConnectionError):
                while data := await reader.read(4096):
                    answer += data

        hearing = asyncio.create_task(hear())
        writer.write(head)
        for byte in rest:
            await asyncio.sleep(0.01)
            writer.write(bytes([byte]))
        await asyncio.wait_for(hearing, 5)
        writer.close()
        return answer

    async def ask() -> list[bytes]:
        config = uvicorn.Config(app, http=bounded(3), ws="none", lifespan="off", log_config=None)
        state = ServerState()
        protocol: Any = config.http
        server = await asyncio.get_running_loop().create_server(lambda: protocol(config, state, {}), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        post = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 60\r\n\r\n"
        get = post.replace(b"POST", b"GET").replace(b"60", b"0").replace(b"close", b"keep-alive")
        async with server:
            first = await asyncio.gather(
                slowly(port, b"", b""), slowly(port, get[:5], get[5:]), slowly(port, post, b"x" * 60)
            )
            again = slowly(port, get, get[:60])
            crowd = [slowly(port, post, b"x" * 60) for _ in range(4)]
            return [*first, await again, *await asyncio.gather(*crowd)]

    monkeypatch.setattr(bounded_protocol, "HEAD_SECONDS", 0.3)
    nothing, head, body, second, *crowd = asyncio.run(ask())
    assert (nothing, head) == (b"", b"")
    assert b" 200 " in body, "a body has another deadline"
    assert second.count(b" 200 ") == 1, "the headers of a second request too"
    assert [answer.count(b" 200 ") for answer in crowd] == [1, 1, 1, 0], "of one address three are allowed"


def test_bodies_have_a_deadline_however_slowly_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    async def byte() -> dict[str, Any]:
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def read() -> None:
        nonlocal got
        receive = middleware._bounded(byte, 1 << 20)
        while True:
            got += len((await receive())["body"])

    got = 0
    monkeypatch.setattr(middleware, "_BODY_SECONDS", 0.3)
    with pytest.raises(HTTPException, match=r"did not come in 0\.3 s"):
        asyncio.run(read())
    assert 1 < got <= 15


@pytest.mark.parametrize("header", [b"", b"Expect: 100-continue\r\n"])
def test_a_request_that_needs_no_body_is_answered_and_its_connection_ended(narrow: Service, header: bytes) -> None:
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n" + header
    with connected(narrow, "127.0.0.1") as one:
        one.sendall(head + b"\r\n")
        answer = b""
        while data := one.recv(4096):
            answer += data
    assert b"HTTP/1.1 400" in answer
    assert b"a GET request has no body here" in answer


@pytest.mark.slow
def test_one_address_cannot_keep_the_others_out(narrow: Service) -> None:
    """Its connections send a byte of a body now and then, or nothing."""
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n"
    with contextlib.ExitStack() as crowd:
        slow = [crowd.enter_context(connected(narrow, "127.0.0.9")) for _ in range(300)]
        for one in slow:
            with contextlib.suppress(OSError):
                one.sendall(head)
        for _ in range(3):
            with narrow.client() as client:
                assert client.get("/api/v1/kernels").status_code == 200
            for one in slow:
                with contextlib.suppress(OSError):
                    one.sendall(b" ")
            time.sleep(1)
        answers = [bytes(0)] * len(slow)
        for number, one in enumerate(slow):
            one.settimeout(10)
            with contextlib.suppress(ConnectionError):  # TimeoutError: it was not ended
                while data := one.recv(4096):
                    answers[number] += data
        assert sum(b" 400 " in answer for answer in answers) == 64
        assert not any(b" 200 " in answer for answer in answers)


@pytest.mark.slow
def test_followers_are_limited(narrow: Service) -> None:
    with narrow.client() as client, contextlib.ExitStack() as open_streams:
        job = client.post("/api/v1/jobs/tune", json={"problem": {"K": 99}}).json()["id"]
        head = f"GET /api/v1/jobs/{job}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        followers = [open_streams.enter_context(connected(narrow, f"127.0.0.{2 + n // 40}")) for n in range(115)]
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
