"""Names of files that are empty, too long, or could write to a terminal or a log."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import mmsbgen
from mmsbgen.base.errors import InputError
from mmsbgen.base.progress import stage
from mmsbgen.cli import main
from mmsbgen.cli.shared import console, progress_display
from mmsbgen.cli.shared.common import MmsbgenGroup, print_table
from mmsbgen.cli.shared.console import shown
from mmsbgen.cli.shared.logs import log_options

PLACES = [
    ["detect", "NAME"],
    ["detect", "graph.txt", "-o", "NAME"],
    ["detect", "graph.txt", "--resume", "NAME"],
    ["detect", "graph.txt", "--vertices", "NAME"],
    ["evaluate", "NAME", "graph.txt"],
    ["evaluate", "graph.txt", "graph.txt", "--graph", "NAME"],
    ["convert", "NAME", "-o", "x.csv"],
    ["convert", "results", "-o", "NAME"],
    ["report", "NAME"],
    ["report", "results", "-o", "NAME"],
    ["tune", "--graph", "NAME"],
    ["db", "import", "NAME"],
    ["db", "export", "NAME"],
    ["db", "report", "-o", "NAME"],
    ["serve", "--data", "NAME"],
    ["serve", "--token-file", "NAME"],
    ["worker", "--data", "NAME"],
    ["devices", "--log-file", "NAME"],
    ["--config", "NAME", "devices"],
]


def call(words: list[str], name: str) -> Result:
    result = CliRunner().invoke(main, [name if word == "NAME" else word for word in words])
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    assert os.listdir() == ["graph.txt"]
    return result


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "graph.txt").write_text("1 2\n2 3\n")


@pytest.mark.parametrize("words", PLACES, ids=" ".join)
def test_a_name_that_is_too_long_is_refused(words: list[str]) -> None:
    said = call(words, "x" * 300).stderr
    assert "File name too long" in said
    assert said.count("x" * 50) <= 6, "it is not shown again and again"


@pytest.mark.parametrize("words", PLACES, ids=" ".join)
def test_a_name_with_line_ends_or_control_characters_is_refused(words: list[str]) -> None:
    said = call(words, "a\nERROR forged \x1b[31m\x9bred\u202e\u2028.txt").stderr
    assert r"a\nERROR forged \x1b[31m\x9bred\u202e\u2028.txt" in said
    assert "rename it" in said
    assert shown(said) == said


def test_any_other_name_is_taken() -> None:
    """Bytes that are no UTF-8, blanks, and letters of any script."""
    for name in ("caf\udce9 [red] 東京 \U0001f600.txt", "a\tb"):
        result = CliRunner().invoke(main, ["evaluate", name, "graph.txt"])
        assert "no such file" in result.stderr


def test_from_python_too(tmp_path: Path) -> None:
    for where in ("out", "resume"):
        with pytest.raises(InputError, match="File name too long"):
            mmsbgen.detect([(1, 2), (2, 3)], 2, **{where: tmp_path / ("x" * 300)})
    assert os.listdir() == ["graph.txt"]


HOSTILE = "one\x1b[2Jtwo\r\nERROR mmsbgen: forged\x07\x9b1m\u202e\udcff"
SEEN = "one\\x1b[2Jtwo\\r\nERROR mmsbgen: forged\\x07\\x9b1m\\u202e\\udcff"


def test_text_is_shown_without_what_a_terminal_obeys() -> None:
    assert shown(HOSTILE) == SEEN
    assert shown("plain\ttext\n東京 \U0001f469\u200d\U0001f52c") == "plain\ttext\n東京 \U0001f469\u200d\U0001f52c"


@click.group(cls=MmsbgenGroup)
@log_options
def program() -> None:
    """A command line that says what others have written."""


@program.command()
@log_options
def say() -> None:
    logging.getLogger("mmsbgen.talk").warning("%s", HOSTILE)
    print_table({"what": "left"}, [{"what": "one\x1b[2Jtwo"}])
    raise InputError(HOSTILE)


def test_errors_tables_and_logs_show_it_so(tmp_path: Path) -> None:
    result = CliRunner().invoke(program, ["say", "--log-file", str(tmp_path / "log")])
    assert result.exit_code == 2
    assert f"Error: {SEEN}\n" in result.stderr
    assert "one\\x1b[2Jtwo" in result.stdout
    written = (tmp_path / "log").read_text()
    for text in (result.output, written):
        assert not {"\x1b", "\r", "\x07", "\x9b", "\u202e"} & set(text)
    lines = written.splitlines()
    assert sum(": one" in line for line in lines) == 2, "the warning and the error"
    assert not any(line.startswith("ERROR") for line in lines), "a line that is written is no record of its own"
    assert not any(line.startswith("ERROR mmsbgen: forged") for line in result.stderr.splitlines()[:2])


def test_stages_show_it_so(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Without a terminal, and on one, where names are no markup."""
    monkeypatch.setenv("TERM", "xterm")  # a dumb terminal shows no stages
    # Not the cached console: another test may have made it without a terminal, and then it never draws.
    monkeypatch.setattr(console, "stderr", console.stderr.__wrapped__)
    monkeypatch.setattr(progress_display, "FIRST", 0.0)
    monkeypatch.setattr(progress_display, "LOOK", 0.001)
    for is_terminal in (False, True):
        monkeypatch.setattr("sys.stderr.isatty", lambda is_terminal=is_terminal: is_terminal)
        display = progress_display.StageDisplay()
        with progress_display.listening(display), stage("reading [/red] one\x1b[2Jtwo", alone=True):
            said, begin = "", time.monotonic()
            while "two" not in said and time.monotonic() - begin < 20:
                time.sleep(0.01)
                said += capsys.readouterr().err
        assert "reading [/red] one\\x1b[2Jtwo" in said
