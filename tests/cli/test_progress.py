"""Stages that take long are told, and only those."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mmsbgen.cli import _progress
from mmsbgen.cli._progress import StageDisplay, line
from mmsbgen.progress import Stage, listening, stage


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages are long after a tenth of a second, and lines come as often."""
    monkeypatch.setattr(_progress, "FIRST", 0.1)
    monkeypatch.setattr(_progress, "BETWEEN_LINES", 0.1)
    monkeypatch.setattr(_progress, "LOOK", 0.02)


def test_nobody_needs_to_listen() -> None:
    with stage("alone", 3) as one:
        one.tell(1)
    assert one.done == 1


def test_rate_and_time_left_come_of_what_is_done() -> None:
    one = Stage("reading", 100.0, "B", began=time.monotonic() - 10)
    assert (one.rate, one.left) == (None, None)
    one.tell(50)
    assert one.rate == pytest.approx(5, rel=0.05)
    assert one.left == pytest.approx(10, rel=0.05)
    one.tell(50e6, 200e6)
    assert line(one) == "reading: 25% done, 5 MB/s, about 30 s left"
    assert line(Stage("thinking", began=time.monotonic() - 7)) == "thinking: 7 s so far"


def test_a_long_stage_is_told_and_a_short_one_is_not(soon: None, capsys: pytest.CaptureFixture[str]) -> None:
    with listening(StageDisplay()):
        with stage("short"):
            pass
        with stage("outer"), stage("inner", 10, "B") as one:
            for done in range(1, 5):
                one.tell(done)
                time.sleep(0.1)
        with stage("short again"):
            pass
    told = capsys.readouterr().err.splitlines()
    assert len(told) >= 2
    assert all(text.startswith("inner: ") for text in told)
    assert "% done" in told[-1]
    assert "B/s, about" in told[-1]


def test_a_quiet_display_says_nothing(soon: None, capsys: pytest.CaptureFixture[str]) -> None:
    quiet, muted = StageDisplay(lambda: True), StageDisplay()
    muted.muted = True
    for display in (quiet, muted):
        with listening(display), stage("long"):
            time.sleep(0.3)
    assert capsys.readouterr().err == ""


def test_a_stage_that_fails_ends_and_its_error_goes_on() -> None:
    display = StageDisplay()
    with pytest.raises(ZeroDivisionError), listening(display), stage("one"), stage("two"):
        raise ZeroDivisionError
    assert display._thread is None


_DRAWING = """
import time
from mmsbgen.cli import _progress
_progress.FIRST = 0.1
from mmsbgen.progress import listening, stage
with listening(_progress.StageDisplay()), stage("reading a graph", 100, "B") as one:
    for done in range(30):
        one.tell(done)
        time.sleep(0.05)
"""


def test_on_a_terminal_a_bar_is_drawn_and_gone_in_the_end(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    run = subprocess.Popen(
        [sys.executable, "-c", _DRAWING], stdin=theirs, stdout=theirs, stderr=theirs, env=os.environ | {"TERM": "xterm"}
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # how Linux tells that the other end is closed
            break
        if not part:
            break
        seen += part
    os.close(ours)
    assert run.wait(60) == 0, seen
    text = seen.decode()
    assert "reading a graph" in text
    assert "% done" in text
    assert "━" in text
    assert text.rstrip().endswith("\x1b[2K") or text.endswith("\x1b[?25h") or "\x1b[2K" in text[-40:], repr(text[-80:])
