"""What tests of the tuner share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mmsbgen.db.store.tuning_store import Store, open_store
from mmsbgen.tuner.run import finals
from mmsbgen.tuner.run import tune as tune_module


@pytest.fixture(autouse=True)
def short_finals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finalists are compared for a tenth of the seconds that users wait, which are most of a small tune."""
    monkeypatch.setattr(finals, "FINAL_S", finals.FINAL_S / 10)
    monkeypatch.setattr(tune_module, "COMPARE_S", tune_module.COMPARE_S / 10)


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
