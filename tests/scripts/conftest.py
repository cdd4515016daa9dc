"""Makes the modules under scripts/ importable, as they are for the scripts themselves."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture(scope="session", autouse=True)
def _scripts_on_the_path() -> None:
    sys.path.insert(0, str(SCRIPTS))


@pytest.fixture(scope="session")
def scripts() -> Path:
    """The folder of the scripts."""
    return SCRIPTS
