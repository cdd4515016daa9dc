"""The notebooks run from their first cell to their last, and show what they showed when they were written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.docs.blocks import same
from tests.docs.test_pages import DOCS, ROOT

NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))


def _texts(cell: Any) -> str:
    """What a code cell printed, and a word for each picture; warnings and errors too."""
    parts = []
    for output in cell.get("outputs", ()):
        if output["output_type"] == "stream":
            parts.append(output["text"])
        else:
            data = output.get("data", {})
            parts.append("<picture>" if "image/png" in data else data.get("text/plain", ""))
    return "\n".join(parts)


@pytest.mark.slow
@pytest.mark.opencl
@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_it_runs(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, update_golden: bool) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    shown = nbformat.read(path, as_version=4)
    ran = nbformat.read(path, as_version=4)
    client = NotebookClient(ran, timeout=120, record_timing=False, resources={"metadata": {"path": str(path.parent)}})
    client.execute(env=dict(os.environ))
    if update_golden:
        ran.metadata.pop("widgets", None)
        ran.metadata["language_info"] = {"name": "python"}
        nbformat.write(ran, path)
        return
    cells = [cell for cell in ran.cells if cell.cell_type == "code"]
    assert len(cells) > 3
    for number, (before, now) in enumerate(zip(shown.cells, ran.cells, strict=True)):
        assert same(_texts(before), _texts(now), numbers_vary=True), f"cell {number}: {_texts(now)}"


def test_there_are_two() -> None:
    assert {path.stem for path in NOTEBOOKS} >= {"communities", "tuning-database"}
