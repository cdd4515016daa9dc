"""Options that say where something is written do not take the current folder for an empty name."""

from __future__ import annotations

import os

import pytest
from click.testing import CliRunner

from mmsbgen.cli import main


@pytest.mark.parametrize(
    "command",
    [
        ["report", "results", "-o", ""],
        ["convert", "results", "-o", ""],
        ["db", "report", "-o", ""],
        ["db", "export", ""],
        ["worker", "--data", ""],
        ["serve", "--data", ""],
        ["devices", "--log-file", ""],
    ],
    ids=" ".join,
)
def test_an_empty_name_is_refused(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 2
    assert "the name is empty: give one" in done.stderr
    assert os.listdir(tmp_path) == []
