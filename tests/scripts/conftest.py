"""The modules under scripts/ made importable, as they are for the scripts themselves."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Most tests of scripts start a process: none belongs to the quick round."""
    item.add_marker("slow")


@pytest.fixture(scope="session", autouse=True)
def _scripts_on_the_path() -> None:
    sys.path.insert(0, str(SCRIPTS))


@pytest.fixture(scope="session")
def scripts() -> Path:
    """The folder of the scripts."""
    return SCRIPTS
