"""Stages that take long are told, and only those."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mmsbgen import detect
from mmsbgen.base.progress import Stage, listening, stage
from mmsbgen.cli.shared import progress_display
from mmsbgen.cli.shared.progress_display import StageDisplay, line
from mmsbgen.db.exchange.jsonl import Bundle
from tests.devices import PROCESSOR

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages are long after a tenth of a second, and lines come as often."""
    monkeypatch.setattr(progress_display, "FIRST", 0.1)
    monkeypatch.setattr(progress_display, "BETWEEN_LINES", 0.1)
    monkeypatch.setattr(progress_display, "LOOK", 0.02)


def test_nobody_needs_to_listen() -> None:
    with stage("alone", 3) as one:
        one.tell(1)
    assert one.done == 1


def test_each_part_of_a_task_is_logged_by_its_name(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"), stage("making results") as told:
        told.rename("making memberships")
        told.rename("making memberships")
        told.rename("making communities")
    parts = [record.getMessage().partition(":")[0] for record in caplog.records]
    assert parts == ["making results", "making memberships", "making communities"]


def test_rate_and_time_left_come_of_what_is_done() -> None:
    one = Stage("reading", 100.0, "B", began=time.monotonic() - 10)
    assert (one.rate, one.left) == (None, None)
    one.tell(50)
    assert one.rate == pytest.approx(5, rel=0.05)
    assert one.left == pytest.approx(10, rel=0.05)
    one.tell(50e6, 200e6)
    assert line(one) == "reading: 25% done, 5 MB/s, about 30 s left"
    one.note, one.early = "AUC 0.9", True
    assert line(one) == "reading: 25% done, 5 MB/s, AUC 0.9, at most 30 s left"
    one.rename("writing")
    assert (one.name, one.done, one.seconds < 1) == ("writing", 0, True)
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
    inner = [text for text in told if text.startswith("inner: ")]
    assert len(inner) >= 2
    assert not [text for text in told if "short" in text]
    assert "% done" in inner[-1]
    assert "B/s, about" in inner[-1]


@pytest.mark.slow
def test_a_quiet_display_says_nothing(soon: None, capsys: pytest.CaptureFixture[str]) -> None:
    quiet, muted = StageDisplay(lambda: True), StageDisplay()
    muted.muted = True
    for display in (quiet, muted):
        with listening(display), stage("long"):
            time.sleep(0.3)
    assert capsys.readouterr().err == ""


def test_a_stage_that_lets_nobody_speak_is_told_as_it_begins(capsys: pytest.CaptureFixture[str]) -> None:
    with listening(StageDisplay()), stage("a library's work", alone=True):
        pass
    assert capsys.readouterr().err == "a library's work ...\n"


def test_a_stage_that_fails_ends_and_its_error_goes_on() -> None:
    display = StageDisplay()
    with pytest.raises(ZeroDivisionError), listening(display), stage("one"), stage("two"):
        raise ZeroDivisionError
    assert display._thread is None


_DRAWING = """
import time
from mmsbgen import detect
from mmsbgen.cli.shared import console, progress_display
progress_display.FIRST = 0.1
from mmsbgen.base.progress import listening, stage
with listening(progress_display.StageDisplay()), stage("reading a graph", 100, "B") as one:
    for done in range(30):
        one.tell(done)
        time.sleep(0.05)
        if done == 20:
            console.say("a message")
"""


@pytest.mark.slow
def test_on_a_terminal_a_bar_is_drawn_below_messages_and_gone_in_the_end(tmp_path: Path) -> None:
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
    assert "\x1b[2Ka message\r\n" in text
    assert text.rstrip().endswith("\x1b[2K") or text.endswith("\x1b[?25h") or "\x1b[2K" in text[-40:], repr(text[-80:])


class Heard:
    """Keeps every stage that it hears of."""

    def __init__(self) -> None:
        self.stages: list[Stage] = []
        self.open = 0

    def begin(self, stage: Stage) -> None:
        self.stages.append(stage)
        self.open += 1

    def end(self, stage: Stage) -> None:
        assert stage in self.stages
        self.open -= 1

    def of(self, name: str) -> Stage:
        """The one stage with this in its name, which knew how much there was and told when all was done."""
        (found,) = [one for one in self.stages if name in one.name]
        assert found.total is not None
        assert found.done == found.total > 0
        return found


@pytest.fixture
def heard() -> Iterator[Heard]:
    listener = Heard()
    with listening(listener):
        yield listener
    assert listener.open == 0


def test_graphs_and_covers_tell_how_far_they_are(heard: Heard) -> None:
    from mmsbgen.graph import EdgeSet, load_edge_list, split
    from mmsbgen.scores import evaluate, read_cover

    graph = load_edge_list(DATA / "lfr-n1000-k28.txt.gz")
    assert heard.of("reading lfr-n1000-k28.txt.gz").unit == "B"
    EdgeSet.build(split(graph, seed=0).training_links)
    heard.of("building the edge set of")
    assert "holding pairs out" in [one.name for one in heard.stages]
    heard.stages.clear()
    cover = read_cover(DATA / "lfr-n1000-k28.cmty.txt.gz")
    heard.of("reading lfr-n1000-k28.cmty.txt.gz")
    evaluate(cover, cover[1:])
    assert heard.of("Omega index").total == 1000


@pytest.mark.slow
def test_records_tell_how_far_they_are(heard: Heard, tmp_path: Path) -> None:
    from mmsbgen.backends.fake import FakeDevice
    from mmsbgen.db.records.tuning_records import RunRecord, TrialRecord
    from mmsbgen.db.store.tuning_store import open_store
    from mmsbgen.families import family
    from mmsbgen.kernels.record_key import key_of

    run, key = RunRecord(strategy="random"), key_of(FakeDevice().info, family().kernel("draws"), family().problem())
    trials = [TrialRecord(run=run.uuid, key=key, config={"n": n}, status="ok", times=(1.0,)) for n in range(1200)]
    with open_store(tmp_path / "one.sqlite3") as store:
        store.begin_run(run)
        store.add_bundle(Bundle([run], [], trials))
        heard.of("storing trials")
        assert store.export_jsonl(tmp_path / "all.jsonl") == 1200
        assert heard.of("reading").unit == "trials"
    heard.stages.clear()
    with open_store(tmp_path / "two.sqlite3") as other:
        assert other.import_jsonl(tmp_path / "all.jsonl") == 1200
    assert heard.of(f"reading {tmp_path / 'all.jsonl'}").unit == "lines"
    heard.of("storing trials")


@pytest.mark.opencl
@pytest.mark.slow
def test_starts_and_numbers_of_communities_tell_how_far_they_are(heard: Heard) -> None:
    found = detect(DATA / "fb_3980.txt.gz", "auto", device=PROCESSOR, random_state=0)
    names = [one.name for one in heard.stages]
    for name in ("compiling shared_partners", "making the start 'communities'", "trying the start 'ego'"):
        assert name in names
    tried = [one for one in heard.stages if one.name.startswith(f"trying K={found.memberships.k},")]
    assert tried
    assert all(one.done == one.total for one in tried)
