"""Commands whose standard error or output nobody reads any more, or whose disk is full: they go on to their end."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from mmsbgen.cli.shared.common import MmsbgenGroup
from mmsbgen.cli.shared.logs import log_options

COMMAND = [sys.executable, "-c", "from mmsbgen.cli import main; main(prog_name='mmsbgen')"]
RENDER = ["render", "theta_end", "--backend", "opencl"]
DATA = Path(__file__).parents[1] / "data"
OPTIONS = ["-k", "6", "--device", "pocl", "--mini-batch", "random-node", "-n", "50"]
DETECT = ["detect", DATA / "netscience.txt.gz", *OPTIONS]


def unread(*words: object, stdout: bool = False) -> subprocess.CompletedProcess[bytes]:
    """Run a command whose standard error, and with ``stdout`` its output too, is a pipe without a reader."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run(
            [*COMMAND, *map(str, words)], stdout=writer if stdout else subprocess.PIPE, stderr=writer, timeout=120
        )
    finally:
        os.close(writer)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code"),
    [((*RENDER, "-vv"), 0), (("detect", "no such file", "-vv"), 2), (("no such command",), 2), (("--help",), 0)],
)
@pytest.mark.parametrize("stdout", [False, True])
def test_the_exit_code_is_that_of_the_command(words: tuple[str, ...], code: int, stdout: bool) -> None:
    done = unread(*words, stdout=stdout)
    assert done.returncode == code
    if not stdout:
        assert bool(done.stdout) == (code == 0)


@pytest.mark.slow
@pytest.mark.opencl
def test_a_run_goes_on_to_its_results(tmp_path: Path, pocl_device: object) -> None:
    done = unread(*DETECT, "-vv", "--checkpoint", "-o", tmp_path / "out", stdout=True)
    assert done.returncode == 0
    names = ["checkpoint.npz", "communities.txt", "memberships.npz", "run.json"]
    assert sorted(os.listdir(tmp_path / "out")) == names


@pytest.mark.slow
def test_a_log_on_a_full_disk_or_without_standard_error_ends_nothing() -> None:
    command = [*COMMAND, *RENDER, "-vv"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=full, timeout=60)
        assert (done.returncode, b"theta" in done.stdout) == (0, True)
        # A result that cannot be written is no success.
        done = subprocess.run([*COMMAND, *RENDER], stdout=full, stderr=subprocess.PIPE, timeout=60)
        assert (done.returncode, b"\nError: cannot write to standard output: No space" in done.stderr) == (2, True)
    done = subprocess.run(["sh", "-c", '"$@" 2>&-', "sh", *command], stdout=subprocess.PIPE, timeout=60)
    assert (done.returncode, b"theta" in done.stdout) == (0, True)


@click.group(cls=MmsbgenGroup)
def program() -> None:
    """A command line that logs."""


@program.command()
@log_options
def talk() -> None:
    logging.getLogger("some.library").warning("%d vertices", "many")
    click.echo("done")


def test_a_message_that_a_library_formats_wrongly_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    found = CliRunner().invoke(program, ["talk"])
    assert (found.exit_code, found.stdout) == (0, "done\n")
