"""Texts that several ranks read together: the graph and the split of one process, and one error for all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.detection import reading_ranks
from tests.detection.test_ranks import AS_ROOT, HANGS_S


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_read_the_graph_of_one_process(tmp_path: Path, ranks: int) -> None:
    """Rank 0 alone reads texts without a link.  The bad line is not among those of rank 0."""
    launcher = (Path(sys.executable).parent / "mpirun", "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none")
    command = [*launcher, "-n", str(ranks), sys.executable, "-m", reading_ranks.__name__, tmp_path]
    found = subprocess.run(command, capture_output=True, text=True, env=os.environ | AS_ROOT, timeout=HANGS_S)
    alike, bad, *_ = [*found.stdout.splitlines(), "", ""]
    texts = len(reading_ranks.TEXTS)
    assert alike == f"{texts} alike, {texts - 2} read together", found.stderr
    assert bad.startswith(f"{tmp_path}/bad.txt, line 121: '5 6 7' has 3 fields")
    assert found.returncode == 2
