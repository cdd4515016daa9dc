"""Workers killed with kill -9 at random moments lose nothing; docs/reports/jobs.md has the same with more kills."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.opencl, pytest.mark.slow]

KILLS = {"sqlite": 5, "postgresql": 2}


@pytest.mark.timeout(400)
def test_killed_workers_lose_no_job_and_no_record(scripts: Path, url: str, tmp_path: Path, pocl_device: object) -> None:
    kind = "postgresql" if "://" in url else "sqlite"
    words = ["--database", url, "--kills", str(KILLS[kind]), "--most", "3", "--iterations", "600"]
    command = [sys.executable, "-W", "error", str(scripts / "jobs_check.py"), *words]
    done = subprocess.run([*command, "--output", str(tmp_path / "found.json")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["server"], found["kills"], found["faults"]) == (kind, KILLS[kind], [])
    assert found["states"] == {"done": sum(found["jobs"].values())}
    assert found["attempts"] == found["lost"] + found["states"]["done"]
    assert found["lost"] >= (kind == "sqlite"), "five kills meet a job at least once"
