from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_the_attacks_tell_what_held() -> None:
    command = [sys.executable, "-m", "tests.service.attacks", "--share", "0.004", "--attack", "queued"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "queued  yes   30 jobs: {202: 20, 429: 10}" in done.stdout
