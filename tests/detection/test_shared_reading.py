"""Texts that several ranks read together: the graph and the split of one process, and one error for all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mmsbgen.base.errors import InputError
from mmsbgen.detection.ranks import reading
from tests.detection import reading_ranks
from tests.detection.test_ranks import AS_ROOT, HANGS_S


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "error"),
    [
        (2, "bad.txt, line 121: '5 6 7' has 3 fields"),
        (3, "bad.txt, line 61: '5 6 7' has 3 fields"),
    ],
)
def test_ranks_read_the_graph_of_one_process(tmp_path: Path, ranks: int, error: str) -> None:
    """The bad line is not among those of rank 0."""
    launcher = (Path(sys.executable).parent / "mpirun", "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none")
    command = [*launcher, "-n", str(ranks), sys.executable, "-m", reading_ranks.__name__, tmp_path]
    found = subprocess.run(command, capture_output=True, text=True, env=os.environ | AS_ROOT, timeout=HANGS_S)
    alike, bad, *_ = [*found.stdout.splitlines(), "", ""]
    texts, together = len(reading_ranks.TEXTS), len(reading_ranks.TOGETHER)
    assert alike == f"{texts} alike, {together} read together", found.stderr
    assert bad.startswith(f"{tmp_path}/{error}")
    assert found.returncode == 2


def test_a_file_that_changes_before_all_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks would have parts of two files."""
    file = tmp_path / "g.txt"
    file.write_text("1 2\n" * 9)
    monkeypatch.setattr(reading.SharedText, "told", lambda self, own: [own])
    world: Any = SimpleNamespace(rank=0, comm=None, hosts=[("here", 1)])
    with pytest.raises(InputError, match=r"g\.txt changed while it was read"):
        reading.SharedText(world).read(file, [0, 36], (35, 0))
