"""What ``mmsbgen detect`` says of an interrupted run reads the same graph again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mmsbgen.cli.runs.detect import _interrupted
from mmsbgen.graph import ReadingOptions


def test_the_hint_to_go_on_has_the_options_of_reading(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found: Any = SimpleNamespace(record={"iterations": 3}, checkpoint=tmp_path / "checkpoint.npz")
    reading = ReadingOptions("text", ("from id", "to"), "threshold=2", tmp_path / "ids.txt")
    with pytest.raises(SystemExit):
        _interrupted(found, Path("g.csv"), reading)
    how = f"g.csv --format text --columns 'from id,to' --weights threshold=2 --vertices {tmp_path}/ids.txt --resume"
    assert f"Go on with: mmsbgen detect {how}" in capsys.readouterr().err
