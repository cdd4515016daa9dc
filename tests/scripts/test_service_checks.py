"""The checks of the service, short; the whole ones are run by hand and reported in docs/reports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


def run(name: str, *arguments: object) -> str:
    command = [sys.executable, str(SCRIPTS / name), "--no-report", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_hostile_clients_change_nothing() -> None:
    told = run("service_check.py", "--requests", 400, "--uploads", 24, "--schemathesis", "--examples", 3)
    assert "| malformed requests | 400 |" in told
    assert "records, files and jobs were what they were" in told


@pytest.mark.slow
@pytest.mark.opencl
def test_a_killed_service_loses_nothing_on_sqlite() -> None:
    assert "Nothing was lost" in run("service_kills.py", "--points", 2, "--seed", 1, "--device", "pocl")


@pytest.mark.slow
@pytest.mark.opencl
@pytest.mark.postgres
def test_a_killed_service_loses_nothing_on_postgresql(postgres_url: str) -> None:
    arguments = ("--points", 1, "--seed", 2, "--device", "pocl", "--database", postgres_url)
    assert "Nothing was lost" in run("service_kills.py", *arguments)
