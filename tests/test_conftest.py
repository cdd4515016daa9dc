"""What the tests themselves are run with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROPERTY = """
from hypothesis import given, strategies as st

@given(st.integers())
def test_print(number):
    print("example", number)
"""


def examples(folder: Path, ci: str | None) -> list[str]:
    """The examples of a property that is tested in a process of its own, with ``CI`` set to ``ci``."""
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    environment |= {} if ci is None else {"CI": ci}
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "test_print.py"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True, timeout=120)
    return [line for line in done.stdout.splitlines() if "example" in line]


@pytest.mark.parametrize(("ci", "same"), [("true", True), ("false", False), (None, False)])
def test_examples_are_the_same_each_time_in_ci_alone(tmp_path: Path, ci: str | None, same: bool) -> None:
    (tmp_path / "conftest.py").write_text((Path(__file__).parent / "conftest.py").read_text())
    (tmp_path / "test_print.py").write_text(PROPERTY)
    first, second = examples(tmp_path, ci), examples(tmp_path, ci)
    assert len(first) > 10
    assert (first == second) is same
