"""Records made by hand, and a real PostgreSQL server."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mmsbgen.db.records import DeviceRecord, KernelRecord, Key, ProblemRecord, RunRecord, ToolchainRecord, TrialRecord
from mmsbgen.db.store import Store, open_store


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "postgres: needs the PostgreSQL server programs")


class Make:
    """Makes records with sensible values for all that a test does not care about."""

    run = RunRecord(uuid="0" * 31 + "1", strategy="exhaustive", host="here", versions={"python": "3.11"})

    @staticmethod
    def device(**changes: Any) -> DeviceRecord:
        device = DeviceRecord(
            backend="cuda",
            platform="CUDA",
            vendor="NVIDIA",
            name="H200",
            architecture="sm_90",
            driver="580.1",
            kind="gpu",
            compute_units=132,
            memory_bytes=2**37,
        )
        return replace(device, **changes)

    @classmethod
    def key(
        cls,
        *,
        template: str = "aaaa",
        kernel: str = "gather",
        options: str = "-O3",
        params: dict[str, Any] | None = None,
        **device: Any,
    ) -> Key:
        return Key(
            cls.device(**device),
            ToolchainRecord("nvrtc", "13.0", options),
            KernelRecord("rows", kernel, template),
            ProblemRecord("rows", params or {"width": 1024, "count": 4096, "dtype": "float32"}),
        )

    @classmethod
    def trial(cls, key: Key | None = None, time: float | None = 1e-3, **changes: Any) -> TrialRecord:
        values: dict[str, Any] = {"config": {"block": 64}, "status": "ok", "times": () if time is None else (time,)}
        return TrialRecord(**{"run": cls.run.uuid, "key": key or cls.key(), **values, **changes})


@pytest.fixture
def make() -> Make:
    return Make()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a PostgreSQL server of our own, without a database name."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl")) or [Path(shutil.which("pg_ctl") or "missing")]
    program = programs[-1]
    if not program.exists():
        message = "PostgreSQL server programs (initdb, pg_ctl) are missing: apt-get install postgresql"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    prefix: list[str] = []
    if os.geteuid() == 0:  # the server refuses to run as root
        prefix = ["runuser", "-u", "postgres", "--"]
        os.chown(folder, pwd.getpwnam("postgres").pw_uid, -1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def call(name: str, *arguments: str) -> None:
        command = [*prefix, str(program.with_name(name)), "-D", str(folder / "data"), *arguments]
        done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        if done.returncode:
            log = folder / "log"
            pytest.fail(f"{name} failed: {done.stdout}{done.stderr}{log.read_text() if log.exists() else ''}")

    options = f"-p {port} -h 127.0.0.1 -k {folder} -c fsync=off -c full_page_writes=off"
    try:
        call("initdb", "-U", "tester", "--auth=trust", "--encoding=UTF8", "--no-sync")
        call("pg_ctl", "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield f"postgresql://tester@127.0.0.1:{port}"
        finally:
            call("pg_ctl", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """The URL of a new, empty database."""
    import psycopg

    name = f"t{uuid.uuid4().hex}"
    with psycopg.connect(f"{postgres_server}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type]
    return f"{postgres_server}/{name}"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for a new database, on each kind of server."""
    if request.param == "sqlite":
        return str(tmp_path / "tuning.sqlite3")
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def store(url: str, make: Make) -> Iterator[Store]:
    """A new store that has one run."""
    with open_store(url) as opened:
        opened.begin_run(make.run)
        yield opened


@pytest.fixture
def memory(make: Make) -> Iterator[Store]:
    """A store in memory that has one run."""
    with open_store("sqlite://") as opened:
        opened.begin_run(make.run)
        yield opened
