"""The graph that detections of the tests are made on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.detection.detections import RING


@pytest.fixture
def ring(tmp_path) -> Path:
    path = tmp_path / "ring.txt"
    path.write_text("# a comment\n" + "".join(f"v{a}\tv{b}\n" for a, b in RING))
    return path
