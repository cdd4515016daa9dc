"""What the repository may hold: every version of a large file stays in its history."""

from __future__ import annotations

import subprocess
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
MOST_BYTES = 200_000
MOST_PNG_BYTES = 100_000
#: Files that were here before this limit, with their bytes: none may grow, none may be added.
LARGER = {
    "docs/reports/quality.json": 322589,
    "docs/reports/tuning-h200-cuda.jsonl.gz": 269_674,
    "docs/reports/tuning-h200.jsonl.gz": 670_177,
    "mmsbgen/db/shipped/nvidia-h200.jsonl": 1_238_191,
}


@pytest.fixture(scope="module")
def tracked() -> list[str]:
    """Files that git knows and that are there."""
    try:
        done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is no checkout, or git is not here")
    return [name for name in done.stdout.split("\0") if (ROOT / name).is_file()]


def test_no_file_is_large(tracked: list[str]) -> None:
    sizes = {name: (ROOT / name).stat().st_size for name in tracked if not name.startswith("tests/data/")}
    large = {name: size for name, size in sizes.items() if size > LARGER.get(name, MOST_BYTES)}
    assert not large, f"over {MOST_BYTES} bytes: keep a report's page without its raw data, or make the file smaller"
    gone = [name for name in LARGER if sizes.get(name, 0) <= MOST_BYTES]
    assert not gone, "take these out of LARGER"


def test_pictures_are_small(tracked: list[str]) -> None:
    large = [name for name in tracked if name.endswith(".png") and (ROOT / name).stat().st_size > MOST_PNG_BYTES]
    assert not large, f"over {MOST_PNG_BYTES} bytes: write an SVG, or a PNG of fewer colours"


def test_notebooks_have_no_outputs(tracked: list[str]) -> None:
    for name in tracked:
        if name.endswith(".ipynb"):
            cells = nbformat.read(ROOT / name, as_version=4).cells
            assert not any(cell.get("outputs") for cell in cells), f"{name}: clear its outputs"
