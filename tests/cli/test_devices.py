"""``mmsbgen devices`` on a terminal of 80 characters."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from mmsbgen.backends.base import Device
from mmsbgen.cli import main


def test_a_narrow_terminal_shows_every_name_whole(monkeypatch: pytest.MonkeyPatch, pocl_device: Device) -> None:
    monkeypatch.setattr("mmsbgen.backends.discover", lambda: ([pocl_device.info], []))
    monkeypatch.setenv("COLUMNS", "80")
    lines = CliRunner().invoke(main, ["devices"]).stdout.split("\n\n")[0].splitlines()
    assert lines[0].split("  ")[0] == pocl_device.info.spec
    assert max(map(len, lines)) <= 80
    assert f"driver {pocl_device.info.driver}" in lines[-1]
