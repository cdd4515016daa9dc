"""Whole runs with sparse rows: results, files and resumed runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mmsbgen
from mmsbgen.base.errors import InputError
from mmsbgen.export.run_folder import read_run
from tests.detection.detections import cli
from tests.devices import PROCESSOR

pytestmark = [pytest.mark.opencl, pytest.mark.slow]
DATA = Path(__file__).parents[1] / "data"


@pytest.fixture(scope="module")
def grqc() -> str:
    return str(DATA / "CA-GrQc.txt.gz")


def test_a_run_by_default_and_its_files(grqc: str, tmp_path: Path) -> None:
    found = mmsbgen.detect(grqc, 300, random_state=0, iterations=30, device=PROCESSOR, out=tmp_path / "out")
    assert found.record["options"]["rows"] == "sparse"
    assert found.record["verdict"]["kind"] == "found"
    assert found.record["held_out"]["validation"]["auc"] > 0.93
    pairs = found.graph.links[:200]
    live = found.memberships.link_probabilities(pairs)
    saved = read_run(tmp_path / "out")[0].memberships.link_probabilities(pairs)
    np.testing.assert_allclose(saved, live, rtol=1e-6)
    loaded = mmsbgen.Detection.load(tmp_path / "out", graph=grqc)
    assert loaded.communities == found.communities
    assert loaded.verdict == found.verdict
    assert loaded.graph is not None
    names = np.asarray(found.memberships.ids)[pairs]
    np.testing.assert_allclose(loaded.predict_links(names), live, rtol=1e-6)
    with pytest.raises(InputError, match="has no "):
        mmsbgen.Detection.load(tmp_path)


def test_a_fitted_model_predicts_as_its_memberships(grqc: str) -> None:
    """The estimator reads whole rows from the chain, the memberships what is stored: both are all that there is."""
    model = mmsbgen.MMSB(n_communities=300, random_state=0, iterations=20, rows="sparse", device=PROCESSOR).fit(grqc)
    found = mmsbgen.detect(grqc, 300, random_state=0, iterations=20, rows="sparse", device=PROCESSOR)
    pairs = found.graph.links[:300]
    names = np.asarray(found.memberships.ids)[pairs]
    np.testing.assert_allclose(model.predict_link_proba(names), found.memberships.link_probabilities(pairs), rtol=1e-3)


def test_a_run_without_refinement(grqc: str) -> None:
    found = mmsbgen.detect(grqc, 300, random_state=0, iterations=4, device=PROCESSOR, refine=False)
    assert len(found.communities) > 50


def test_a_resumed_run_has_the_same_bits(grqc: str, tmp_path: Path) -> None:
    options = ("--rows", "sparse", "-k", 60, "--start", "communities")
    cli(grqc, *options, "-n", 40, "-o", tmp_path / "whole", "--checkpoint")
    cli(grqc, *options, "-n", 20, "-o", tmp_path / "half", "--checkpoint")
    resumed = cli(
        grqc, "--resume", tmp_path / "half" / "checkpoint.npz", "-n", 40, "-o", tmp_path / "rest", "--checkpoint"
    )
    assert "bit for bit" in resumed.stderr
    with np.load(tmp_path / "whole" / "checkpoint.npz") as one, np.load(tmp_path / "rest" / "checkpoint.npz") as other:
        for name in ("entry_communities", "entry_values", "theta", "beta", "row_sums"):
            np.testing.assert_array_equal(one[name], other[name])
