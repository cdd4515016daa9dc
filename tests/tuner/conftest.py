"""What tests of the tuner share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mmsbgen.db.store.tuning_store import Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty tuning database."""
    with open_store(tmp_path / "tuning.sqlite3") as opened:
        yield opened


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> str:
    """The reference of the family that fails in every way, importable here and in child processes."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return "faulty_family:FAULTY"
