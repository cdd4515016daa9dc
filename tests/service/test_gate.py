from __future__ import annotations

import asyncio
import contextlib
import gzip
import signal
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from click.testing import CliRunner

from mmsbgen.base.errors import InputError
from mmsbgen.cli import main
from mmsbgen.service.http.tokens import given_token, kept_token
from tests.service.running import TOKEN, Service, serving

EDGES = b"1 2\n2 3\n1 3\n"
LIMITS = ("--max-upload", "1", "--max-graph", "2", "--max-vertices", "50", "--max-links", "60", "--max-jobs", "2")


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with small limits."""
    folder = tmp_path_factory.mktemp("narrow")
    options = (*LIMITS, "--allow-host", "tuner.example", "--write-rate", "10000/second")
    with serving(str(folder / "t.sqlite3"), folder / "data", *options) as service:
        yield service


def raw(service: Service, *parts: bytes, pause: float = 0.0) -> bytes:
    """What the service answers to bytes; it may end the connection before all are sent."""
    place = urlsplit(service.url)
    with socket.create_connection((place.hostname, place.port), timeout=30) as opened:
        with contextlib.suppress(OSError):
            for part in parts:
                opened.sendall(part)
                time.sleep(pause)
        answer = b""
        with contextlib.suppress(ConnectionError, TimeoutError):
            while data := opened.recv(65536):
                answer += data
                if b"\r\n\r\n" in answer and len(parts) == 1:
                    break
        return answer


@pytest.mark.parametrize(
    "path", ["/api/v1/records", "/api/v1/jobs/tune", "/api/v1/jobs/detect", f"/api/v1/jobs/{'0' * 32}/cancel"]
)
@pytest.mark.parametrize("header", [None, "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer", TOKEN])
def test_what_changes_something_needs_the_token(sqlite_service: Service, path: str, header: str | None) -> None:
    with sqlite_service.client(token=None) as client:
        answer = client.post(path, headers={"Authorization": header} if header else {}, content=b"{}")
        # So many wrong ones are not even looked at.
        assert answer.status_code in ((401,) if header is None else (401, 429))
        assert answer.status_code == 429 or answer.headers["www-authenticate"].startswith("Bearer")
        assert client.get("/api/v1/jobs").status_code == 200, "reading needs none here"


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "POST"])
def test_other_methods_are_refused(sqlite_service: Service, method: str) -> None:
    with sqlite_service.client() as client:
        assert client.request(method, "/api/v1/trials").status_code == 405
        assert client.request(method, "/index.html").status_code == 405
    with sqlite_service.client(token=None) as client:
        assert client.request(method, "/api/v1/trials").status_code in (401, 429)


@pytest.mark.parametrize(
    ("host", "passes"),
    [
        ("127.0.0.1:1", True),
        ("localhost", True),
        ("[::1]:8000", True),
        ("TUNER.example:80", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("10.0.0.1", False),
        ("", False),
        ("localhost.evil.example:8000", False),
    ],
)
def test_names_of_other_sites_are_refused(narrow: Service, host: str, passes: bool) -> None:
    with narrow.client() as client:
        answer = client.get("/api/v1/devices", headers={"Host": host})
    assert answer.status_code == (200 if passes else 421)
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("X-Forwarded-For", said) for said in ("192.0.2.7", "192.0.2.7,", "192.0.2.7, localhost", "127.0.0.1", "")),
        *(("Forwarded", "for=192.0.2.7"), ("X-Real-IP", "192.0.2.7"), ("Via", "1.1 proxy")),
        *(("X-Forwarded-Host", "tuner.example.org"), ("x-forwarded-proto", "https")),
    ],
)
@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.2"])
def test_what_a_proxy_on_this_machine_passes_on_needs_the_token(
    narrow: Service, source: str, name: str, value: str
) -> None:
    through = httpx.HTTPTransport(local_address=source)
    with narrow.client(token=None, transport=through) as client:
        for path in ("/api/v1/kernels", "/metrics"):
            assert client.get(path, headers={name: value, "Host": "localhost"}).status_code == 401
        assert client.get("/metrics").status_code == 200, "of a client on this machine"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("peer", "client"),
    [
        *((peer, "192.0.2.7") for peer in ("127.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.1", "::ffff:127.9.9.9")),
        *((peer, peer) for peer in ("128.0.0.1", "::2", "::ffff:128.0.0.1", "::ffff:10.0.0.1")),
    ],
)
def test_proxies_on_this_machine_are_believed(peer: str, client: str) -> None:
    """Also where the service listens on ``::``, which gives addresses of IPv4 as those of IPv6."""
    from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

    from mmsbgen.service.server import PROXIES

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["client"][0])

    seen: list[str] = []
    scope: Any = {"type": "http", "client": (peer, 1), "headers": [(b"x-forwarded-for", b"192.0.2.7")]}
    asyncio.run(ProxyHeadersMiddleware(app, PROXIES)(scope, None, None))  # type: ignore[arg-type]
    assert seen == [client]


def test_no_other_site_may_ask(narrow: Service) -> None:
    with narrow.client() as client:
        headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
        for answer in (client.options("/api/v1/records", headers=headers), client.get("/health", headers=headers)):
            assert not [name for name in answer.headers if name.startswith("access-control")]
            assert answer.headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.slow
def test_sizes_are_limited_while_bytes_come(narrow: Service) -> None:
    bomb = gzip.compress(bytes(300 << 20), 9)
    assert len(bomb) < 1 << 20
    links = b"".join(b"%d %d\n" % (a, b) for a in range(12) for b in range(a))
    vertices = b"".join(b"%d %d\n" % (a, a + 1) for a in range(60))
    params = {"n_communities": 2}
    with narrow.client() as client:
        for path in ("/api/v1/jobs/detect", "/api/v1/records"):
            too_long = client.post(path, params=params, content=bytes((1 << 20) + 1))
            assert (too_long.status_code, "at most 1048576" in too_long.json()["detail"]) == (413, True)
            chunks = client.post(path, params=params, content=(bytes(1 << 16) for _ in range(40)))
            assert chunks.status_code == 413
        packed = client.post("/api/v1/jobs/detect", params=params, content=bomb)
        assert (packed.status_code, "2097152 bytes unpacked" in packed.json()["detail"]) == (413, True)
        for graph, message in ((links, "66 links"), (vertices, "61 vertices")):
            answer = client.post("/api/v1/jobs/detect", params=params, content=graph)
            assert (answer.status_code, message in answer.json()["detail"]) == (413, True), answer.text
        body = client.post("/api/v1/jobs/tune", content=b" " * 70_000)
        assert body.status_code == 413
        assert client.get("/api/v1/jobs").json()["jobs"] == []
    assert not list((narrow.data / "uploads").iterdir())
    memory = int(Path(f"/proc/{narrow.process.pid}/status").read_text().split("VmHWM:")[1].split()[0])
    assert memory < 400 << 10, f"{memory} KiB"


def test_heads_are_limited(narrow: Service) -> None:
    assert b" 200 " in raw(narrow, b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    long = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 20_000 + b"\r\n\r\n"
    assert b" 431 " in raw(narrow, long)
    endless = [b"GET /health HTTP/1.1\r\nHost: localhost\r\n", *[b"X: " + b"x" * 4000 + b"\r\n"] * 50]
    assert b" 400 " in raw(narrow, *endless, pause=0.005)
    assert b" 431 " in raw(narrow, b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    for wrong in (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET \xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /api/v1/records HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /api/v1/records HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
    ):
        assert b"HTTP/1.1 4" in raw(narrow, wrong), wrong


def test_jobs_at_once_are_limited(narrow: Service) -> None:
    with narrow.client() as client:
        made = []
        for n in range(2):
            answer = client.post("/api/v1/jobs/tune", json={"problem": {"K": 64 + n}})
            assert answer.status_code == 202
            made.append(answer.json()["id"])
        for path, params in (("tune", {}), ("detect", {"n_communities": 2})):
            body = b"{}" if path == "tune" else EDGES
            headers = {"Content-Type": "application/json"}
            refused = client.post(f"/api/v1/jobs/{path}", params=params, content=body, headers=headers)
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "60"), refused.text
        client.post(f"/api/v1/jobs/{made[0]}/cancel")
        again = client.post("/api/v1/jobs/detect", params={"n_communities": 2}, content=EDGES)
        assert again.status_code == 202
        for job in (made[1], again.json()["id"]):
            client.post(f"/api/v1/jobs/{job}/cancel")


def test_a_repeated_request_is_answered_where_there_is_no_room(narrow: Service) -> None:
    with narrow.client() as client:
        requests: tuple[tuple[str, dict[str, Any]], ...] = (
            ("tune", {"json": {}, "headers": {"Idempotency-Key": "full-tune"}}),
            (
                "detect",
                {"params": {"n_communities": 2}, "content": EDGES, "headers": {"Idempotency-Key": "full-detect"}},
            ),
        )
        made = [client.post(f"/api/v1/jobs/{kind}", **wanted).json()["id"] for kind, wanted in requests]
        assert client.post("/api/v1/jobs/tune", json={}).status_code == 429
        again = [client.post(f"/api/v1/jobs/{kind}", **wanted) for kind, wanted in requests]
        assert [(answer.status_code, answer.json().get("id")) for answer in again] == [(202, job) for job in made]
        other = client.post("/api/v1/jobs/tune", json={"seed": 1}, headers={"Idempotency-Key": "full-tune"})
        assert other.status_code == 409
        for job in made:
            client.post(f"/api/v1/jobs/{job}/cancel")


@pytest.mark.slow
def test_the_right_token_passes_after_many_wrong_ones(narrow: Service) -> None:
    with narrow.client() as client:
        wrong = {"Authorization": "Bearer wrong-wrong-wrong"}
        codes = {client.post("/api/v1/jobs/tune", headers=wrong).status_code for _ in range(70)}
        assert codes == {401, 429}, "two minutes' worth and more, wherever in one it began"
        assert client.post("/api/v1/jobs/tune", content=b"{").status_code == 422


@pytest.mark.slow
def test_rates_are_limited(tmp_path: Path) -> None:
    options = ("--rate", "20/minute", "--write-rate", "3/minute")
    with serving(str(tmp_path / "t.sqlite3"), tmp_path / "data", *options) as service, service.client() as client:
        writes = [client.post("/api/v1/jobs/tune", content=b"{").status_code for _ in range(5)]
        assert (writes[:3], writes[3:]) == ([422] * 3, [429] * 2)
        reads = [client.get("/health") for _ in range(20)]
        assert (reads[0].status_code, reads[-1].status_code) == (200, 429)
        assert 1 <= int(reads[-1].headers["retry-after"]) <= 60


@pytest.mark.slow
def test_other_machines_need_a_token_that_was_chosen(tmp_path: Path) -> None:
    command = ["serve", "--host", "0.0.0.0", "--port", "0", "--database", str(tmp_path / "t.sqlite3")]
    refused = CliRunner().invoke(main, command)
    assert refused.exit_code == 2
    assert "--host 0.0.0.0 lets other machines in, which needs a token that you choose" in refused.stderr
    assert not (tmp_path / "t.sqlite3").exists()
    with serving(str(tmp_path / "t.sqlite3"), tmp_path / "data", "--host", "0.0.0.0") as service:
        with service.client(token=None) as client:
            for path in ("/api/v1/devices", "/api/v1/jobs", "/metrics", "/api/v1/openapi.json"):
                assert client.get(path).status_code == 401, path
            assert client.get("/health").status_code == client.get("/ready").status_code == 200
            assert client.get("/").status_code == 200, "the page has no data in it"
            assert client.get("/health", headers={"Host": "evil.example"}).status_code == 421
            assert client.get("/health", headers={"Host": "10.1.2.3:8000"}).status_code == 200
        with service.client() as client:
            assert client.get("/api/v1/devices").status_code == 200
        assert "Slow clients can take all connections unless a proxy is before it" in service.log.read_text()


@pytest.mark.slow
def test_the_token_is_made_once_and_kept_to_ourselves(tmp_path: Path) -> None:
    with serving(str(tmp_path / "t.sqlite3"), tmp_path / "data", token=None) as service:
        file = tmp_path / "data" / "service-token"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        token = file.read_text().strip()
        assert token not in service.log.read_text()
        assert "proxy" not in service.log.read_text(), "this machine alone reaches it"
        with service.client(token=token) as client:
            assert client.post("/api/v1/jobs/tune", json={}).status_code == 202
    assert kept_token(tmp_path / "data") == (token, file, False)
    file.chmod(0o644)
    with pytest.raises(InputError, match="open to every user of this machine: chmod 600"):
        kept_token(tmp_path / "data")


@pytest.mark.parametrize("token", ["short", "x" * 600, "with a blank in it, and a comma", "ä" * 20, ""])
def test_tokens_that_are_none(tmp_path: Path, token: str) -> None:
    file = tmp_path / "token"
    file.write_text(token)
    file.chmod(0o600)
    with pytest.raises(InputError, match="it must have 16 to 512 letters"):
        given_token(file, {})
    with pytest.raises(InputError, match="cannot be read"):
        given_token(tmp_path / "none", {})


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_ends_in_an_orderly_way_while_followed(tmp_path: Path, number: int) -> None:
    with serving(str(tmp_path / "t.sqlite3"), tmp_path / "data") as service, service.client() as client:
        job = client.post("/api/v1/jobs/tune", json={}).json()["id"]
        with client.stream("GET", f"/api/v1/jobs/{job}/events") as followed:
            lines = followed.iter_lines()
            while not next(lines).startswith("data:"):
                pass
            began = time.monotonic()
            service.process.send_signal(number)
            assert all("end" not in line for line in lines)
        assert service.process.wait(20) == 0
        assert time.monotonic() - began < 8
    assert "Traceback" not in service.log.read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--rate", "fast"), "--rate 'fast': write it as 100/second"),
        (("--port", "1", "--host", "192.0.2.1"), "lets other machines in"),
        (("--database", "mysql://x/y"), "databases of kind 'mysql' are not supported"),
        (("--database", "sqlite://"), "a database in memory"),
        (("--token-file", "/nonexistent/token"), "cannot be read"),
    ],
)
def test_wrong_options(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    command = ["serve", "--data", str(tmp_path), "--database", str(tmp_path / "t.sqlite3"), "--port", "0", *options]
    done = CliRunner().invoke(main, command)
    assert (done.exit_code, message in done.stderr) == (2, True), done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_has_one_service(sqlite_service: Service, tmp_path: Path) -> None:
    command = ["serve", "--data", str(sqlite_service.data), "--database", str(tmp_path / "t.sqlite3"), "--port", "0"]
    done = CliRunner().invoke(main, command)
    assert (done.exit_code, "another service uses the folder" in done.stderr) == (2, True), done.stderr


def test_a_port_that_is_taken_is_said(sqlite_service: Service, tmp_path: Path) -> None:
    port = str(urlsplit(sqlite_service.url).port)
    command = ["serve", "--data", str(tmp_path), "--database", str(tmp_path / "t.sqlite3"), "--port", port]
    done = CliRunner().invoke(main, command)
    assert (done.exit_code, "cannot listen on 127.0.0.1" in done.stderr) == (2, True), done.stderr
    assert list(tmp_path.iterdir()) == [], "no token, lock or database"


@pytest.mark.slow
def test_an_upload_that_is_broken_off_is_no_error_of_the_service(tmp_path: Path) -> None:
    with serving(str(tmp_path / "t.sqlite3"), tmp_path / "data") as service, service.client() as client:
        place = urlsplit(service.url)
        for path in ("jobs/detect?n_communities=2", "records"):
            head = f"POST /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
            with socket.create_connection((place.hostname, place.port), timeout=30) as opened:
                opened.sendall(f"{head}Content-Length: 5000\r\n\r\n1 2\n".encode())
        deadline = time.monotonic() + 30
        while client.get("/metrics").text.count('outcome="refused"') < 4:  # its number, and when it was made
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert 'status="500"' not in client.get("/metrics").text
        assert not list((service.data / "uploads").iterdir())
    assert "Traceback" not in service.log.read_text()
