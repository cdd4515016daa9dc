from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_script_tells_what_held(scripts: Path) -> None:
    command = [sys.executable, scripts / "check_attacks.py", "--share", "0.004", "--attack", "queued"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "queued  yes   30 jobs: {202: 20, 429: 10}" in done.stdout
