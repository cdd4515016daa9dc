"""Who can reach the scheduler and the workers that a tune starts: whoever does could have them run any code."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import urllib.error
import urllib.request

import psutil
import pytest

_STRANGER = """
import asyncio, sys
from distributed.core import rpc
from distributed.security import Security

address, way = sys.argv[1:]
security = Security.temporary() if way == "another certificate" else Security()

async def ask():
    async with rpc(address, timeout=5, connection_args=security.get_connection_args("client")) as other:
        return await other.identity()

try:
    print("let in", asyncio.run(ask())["type"])
except OSError as error:
    print("refused", error)
"""


def listening(process: psutil.Process) -> set[tuple[str, int]]:
    """Addresses and ports on which a process and all that it started wait for connections."""
    found = set()
    for one in [process, *process.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            for connection in one.net_connections("inet"):
                if connection.status == psutil.CONN_LISTEN:
                    found.add((connection.laddr.ip, connection.laddr.port))
    return found


def speaks_http(port: int) -> bool:
    """Whether any page is to be had there."""
    for page in ("", "health", "info/main/workers.html", "metrics", "json/counts.json"):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=5):
                return True
        except (OSError, urllib.error.HTTPError):
            continue
    return False


_RUN = """
import sys
from mmsbgen.tuner.fleet.cluster import local_workers

if __name__ == "__main__":
    with local_workers(["fake"]) as client:
        (worker,) = client.scheduler_info()["workers"]
        print(client.scheduler.address, worker, flush=True)
        assert client.submit(sum, [1, 2]).result() == 3
        sys.stdin.read()
"""


@pytest.mark.slow
def test_what_a_tune_starts_takes_nobody_else_on_this_machine_or_others() -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", _RUN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    scheduler, worker = run.stdout.readline().split()
    try:
        heard = listening(psutil.Process(run.pid))
        ports = {int(address.rpartition(":")[2]) for address in (scheduler, worker)}
        assert ports < {port for _, port in heard}
        assert {address for address, _ in heard} == {"127.0.0.1"}
        assert not any(speaks_http(port) for _, port in heard)
        for address in (scheduler, worker):
            for way in ("no certificate", "another certificate"):
                words = [sys.executable, "-c", _STRANGER, address.replace("tls", "tcp") if way[0] == "n" else address]
                done = subprocess.run([*words, way], capture_output=True, text=True, timeout=120)
                assert done.stdout.startswith("refused"), f"{address}, {way}: {done.stdout} {done.stderr}"
    finally:
        _, said = run.communicate(timeout=120)
    assert run.returncode == 0, said
