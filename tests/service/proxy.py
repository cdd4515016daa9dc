"""nginx as the documentation sets it up, before a service."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from sybil import Document

from tests.docs.blocks import blocks
from tests.service.running import Service

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "serve-behind-nginx.md"
_BODIES = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def nginx() -> str | None:
    """The path of nginx, None where it is not installed."""
    return shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")


def shipped() -> str:
    """The configuration that the page has users copy."""
    document = Document(PAGE.read_text(encoding="utf-8"), str(PAGE))
    (found,) = [block.text for _, block in blocks(document) if block.first.startswith("# /etc/nginx/")]
    return found


def changed(text: str, changes: Mapping[str, str]) -> str:
    """The text with each key replaced by its value; each must be there once."""
    for old, new in changes.items():
        assert text.count(old) == 1, f"{old!r} is there {text.count(old)} times"
        text = text.replace(old, new)
    return text


def free_port() -> int:
    """A port of the loopback address that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def command(program: str, folder: Path, text: str) -> list[str | Path]:
    """What runs nginx by the text of a server; the folder has all of its files, so that nothing needs root."""
    (folder / "mmsbgen.conf").write_text(text)
    user = "user root;" if os.geteuid() == 0 else ""
    places = "".join(f"{name}_temp_path {folder}/{name}; " for name in _BODIES)
    # As many connections as on Debian.
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/log; {user}\n"
        f"events {{ worker_connections 768; }}\n"
        f"http {{ access_log off; {places} include {folder}/mmsbgen.conf; }}\n"
    )
    return [program, "-p", folder, "-c", folder / "nginx.conf", "-e", folder / "log"]


@contextlib.contextmanager
def proxied(
    service: Service, program: str, folder: Path, changes: Mapping[str, str] | None = None
) -> Iterator[Service]:
    """The service as seen through nginx, which takes plain HTTP on a free port until the block ends."""
    port = free_port()
    own = {
        "listen 443 ssl;": f"listen 127.0.0.1:{port};",
        "    ssl_certificate /etc/ssl/tuner.example.org.pem;\n": "",
        "    ssl_certificate_key /etc/ssl/private/tuner.example.org.key;\n": "",
        "127.0.0.1:8000": f"127.0.0.1:{urlsplit(service.url).port}",
    }
    folder.mkdir()
    running = command(program, folder, changed(shipped(), {**own, **(changes or {})}))
    process = subprocess.Popen(running, stdin=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
                break
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"nginx did not start: {(folder / 'log').read_text()}")
            time.sleep(0.05)
        yield replace(service, url=f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(30)
