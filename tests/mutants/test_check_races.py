from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from mmsbgen.families import family
from tests.conftest import IN_CI


@pytest.mark.slow
def test_no_kernel_lacks_a_barrier_and_a_missing_one_is_seen() -> None:
    if shutil.which("oclgrind") is None:
        message = "Oclgrind is missing: apt-get install oclgrind"
        if IN_CI:
            pytest.fail(message)
        pytest.skip(message)
    command = [sys.executable, "-m", "tests.mutants.check_races"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stdout + done.stderr
    told = Counter(
        line.rpartition(" (")[0].partition(": ")[2] for line in done.stderr.splitlines() if line.endswith(" s)")
    )
    faults = {"seen": 5}
    sound = {"none": len(family().written_in("opencl")) - 3, "harmless": 3}
    assert told == faults | sound
