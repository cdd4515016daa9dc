"""What is logged where: levels, a file, libraries' messages, Python's warnings."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from mmsbgen.base.errors import InputError
from mmsbgen.cli import main
from mmsbgen.cli.shared.common import MmsbgenGroup
from mmsbgen.cli.shared.configuration import config_option
from mmsbgen.cli.shared.logs import log_options
from mmsbgen.graph import GraphWarning


@click.group(cls=MmsbgenGroup)
@config_option
@log_options
def program() -> None:
    """A command line that logs."""


@program.command()
@click.option("--fail", is_flag=True)
@log_options
def talk(fail: bool) -> None:
    for name in ("mmsbgen.talk", "some.library"):
        for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
            logging.getLogger(name).log(level, "said by %s", name)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("mind the gap", UserWarning, stacklevel=1)
        warnings.warn("two links are one", GraphWarning, stacklevel=1)
    if fail:
        raise InputError("7 is not a colour: give red")


def call(*words: object, **env: str) -> Result:
    before = (list(logging.getLogger().handlers), logging.getLogger().level, warnings.showwarning)
    result = CliRunner().invoke(program, [str(word) for word in words], env=env)
    assert (logging.getLogger().handlers, logging.getLogger().level, warnings.showwarning) == before
    return result


@pytest.mark.parametrize(
    ("words", "env", "levels"),
    [
        (["talk"], {}, "WE"),
        (["-v", "talk"], {}, "IWE"),
        (["talk", "-v"], {}, "IWE"),
        (["talk", "-vv"], {}, "DIWE"),
        (["talk", "-q"], {}, "E"),
        (["-q", "talk"], {}, "E"),
        (["talk", "--log", "error"], {}, "E"),
        (["talk"], {"MMSBGEN_LOG": "debug"}, "DIWE"),
        (["talk", "--log", "warning"], {"MMSBGEN_LOG": "debug"}, "WE"),
        (["--log", "INFO", "talk"], {"MMSBGEN_LOG": "debug"}, "IWE"),
        (["talk", "-v"], {"MMSBGEN_LOG": "error"}, "IWE"),
    ],
)
def test_the_level_decides_for_all_loggers_alike(words: list[str], env: dict[str, str], levels: str) -> None:
    result = call(*words, **env)
    assert result.exit_code == 0
    assert result.stdout == ""
    for name in ("mmsbgen.talk", "some.library"):
        shown = [line[0] for line in result.stderr.splitlines() if line.endswith(f"said by {name}")]
        assert "".join(shown) == levels
    assert ("WARNING py.warnings: UserWarning: mind the gap" in result.stderr) == ("W" in levels)
    assert ("\nWarning: two links are one\n" in result.stderr) == ("W" in levels)


def test_the_file_has_info_whatever_is_shown_and_errors_too(tmp_path: Path) -> None:
    file = tmp_path / "log"
    result = call("talk", "-q", "--fail", "--log-file", file)
    assert result.exit_code == 2
    assert result.stderr.count("7 is not a colour: give red") == 1
    text = file.read_text()
    for words in ("INFO mmsbgen.talk: said", "WARNING some.library", "mind the gap", "ERROR mmsbgen.cli: 7 is not"):
        assert words in text
    assert "DEBUG" not in text
    call("-vv", "--log-file", file, "talk")
    assert "DEBUG some.library" in file.read_text()
    assert file.read_text().startswith(text), "it is appended to"


def test_the_configuration_file_may_set_level_and_file(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(f'log = "info"\nlog-file = "{tmp_path / "log"}"\n')
    result = call("--config", tmp_path / "config.toml", "talk")
    assert "INFO mmsbgen.talk: said" in result.stderr
    assert "said by some.library" in (tmp_path / "log").read_text()
    assert "INFO" not in call("--config", tmp_path / "config.toml", "talk", MMSBGEN_LOG="warning").stderr


def test_a_log_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    result = call("talk", "--log-file", tmp_path / "no" / "log")
    assert result.exit_code == 2
    assert f"cannot be written to {tmp_path / 'no' / 'log'}: No such file or directory" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_line_that_cannot_be_parsed_leaves_no_handler(tmp_path: Path) -> None:
    for words in (["-v", "--log", "loud"], ["--log-file", tmp_path / "no" / "log"], ["talk", "-v", "--log", "loud"]):
        assert call(*words, "talk").exit_code == 2


def test_memory_that_runs_out_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from mmsbgen import backends

    def greedy() -> None:
        raise MemoryError("Unable to allocate 7.45 GiB")

    monkeypatch.setattr(backends, "discover", greedy)
    result = CliRunner().invoke(main, ["devices"])
    assert result.exit_code == 1
    assert result.stderr == "Error: the memory ran out (Unable to allocate 7.45 GiB): free some, or ask for less\n"


def test_a_bug_is_in_the_log_with_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mmsbgen import backends

    def broken() -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(backends, "discover", broken)
    CliRunner().invoke(main, ["devices", "--log-file", str(tmp_path / "log")])
    text = (tmp_path / "log").read_text()
    assert "CRITICAL" in text
    assert "Traceback" in text
    assert "ZeroDivisionError: a bug" in text
