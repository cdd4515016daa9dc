"""The notebooks run from their first cell to their last, without a warning and with pictures."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.docs.test_pages import DOCS, ROOT

NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.opencl
@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_it_runs(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    ran = nbformat.read(path, as_version=4)
    client = NotebookClient(ran, timeout=120, record_timing=False, resources={"metadata": {"path": str(path.parent)}})
    client.execute(env=dict(os.environ))
    outputs = [output for cell in ran.cells for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not [output for output in outputs if output.get("name") == "stderr"]


def test_there_are_two() -> None:
    assert {path.stem for path in NOTEBOOKS} >= {"communities", "tuning-database"}
