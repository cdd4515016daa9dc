"""Commands on small disks of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MMSBGEN = f"{sys.executable} -c 'from mmsbgen.cli import main; main()'"


def in_a_file_system_of_its_own(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a shell script where it may mount; what it mounts is gone with it."""
    unshare = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("this system lets no test mount a file system")
    return subprocess.run([*unshare, "sh", "-c", script], capture_output=True, text=True, timeout=250, cwd=folder)
