"""The notebooks run from their first cell to their last, without a warning and with pictures."""

from __future__ import annotations

import os
import re
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
    _run(nbformat.read(path, as_version=4), path, monkeypatch, tmp_path)


@pytest.mark.slow
@pytest.mark.opencl
def test_communities_of_a_graph_of_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its ids are words, and it is small."""
    own = tmp_path / "own.csv"
    groups = [[f"{name} Müller {number}" for number in range(9)] for name in ("Ada", "Ben", "Cleo", "Dora")]
    links = [(a, b) for group in groups for a in group for b in group if a < b]
    links += [(one[0], other[1]) for one in groups for other in groups if one is not other]
    own.write_text("from,to\n" + "".join(f"{a},{b}\n" for a, b in links), encoding="utf-8")
    path = DOCS / "notebooks" / "communities.ipynb"
    notebook = nbformat.read(path, as_version=4)
    (given,) = [cell for cell in notebook.cells if "GRAPH = Path(" in cell.source]
    given.source = re.sub(r"GRAPH = Path\(.*\)", f"GRAPH = Path({str(own)!r})", given.source)
    _run(notebook, path, monkeypatch, tmp_path)


def _run(ran: nbformat.NotebookNode, path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    client = NotebookClient(ran, timeout=120, record_timing=False, resources={"metadata": {"path": str(path.parent)}})
    client.execute(env=dict(os.environ))
    outputs = [output for cell in ran.cells for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not [output for output in outputs if output.get("name") == "stderr"]


def test_there_are_two() -> None:
    assert {path.stem for path in NOTEBOOKS} >= {"communities", "tuning-database"}
