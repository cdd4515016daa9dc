"""Several chains on one split: pooled link probabilities, files, interruption."""

from __future__ import annotations

import json
import signal
from dataclasses import replace

import numpy as np
import pytest

from mmsbgen import MMSB, detect
from mmsbgen.base.errors import InputError
from mmsbgen.detection.detect import perform
from mmsbgen.detection.request import Request
from mmsbgen.export.run_folder import read_run
from tests.detection.detections import FAST, RING, cli
from tests.devices import PROCESSOR

OPTIONS = FAST | {"n_communities": 3, "chains": 3, "validation": 0.2, "test": 0.2}
PAIRS = [(0, 1), (0, 15), (3, 5), (7, 22)]

pytestmark = pytest.mark.opencl


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("chains")


@pytest.fixture(scope="module")
def found(folder):
    return detect(RING, out=folder, **OPTIONS)


def test_probabilities_are_the_geometric_mean_of_the_chains(found):
    best, others = found.memberships, found.memberships.others
    assert len(others) == 2
    at = np.array(PAIRS)
    each = [one.link_probabilities(at) for one in (replace(best, others=()), *others)]
    assert np.allclose(found.predict_links(PAIRS), np.prod(each, axis=0) ** (1 / 3))
    assert len({tuple(p) for p in each}) == 3, "chains differ"
    first = detect(RING, **OPTIONS | {"chains": 1}).memberships.link_probabilities(at)
    assert any(np.allclose(p, first) for p in each), "the first chain is that of a single run"
    scores = [one["validation"]["log_likelihood"] for one in found.record["chains"]]
    assert found.trace[-1]["sample_log_likelihood"] == pytest.approx(max(scores), rel=1e-6)


def test_the_record_has_every_chain_and_the_pooled_metrics(found):
    record = json.loads(json.dumps(found.record))
    chains = record["chains"]
    assert [one["seed"] for one in chains] == [0, 1, 2]
    assert record["seed"] == record["options"]["seed"] == 0
    assert record["held_out"]["test"]["links"] == chains[0]["test"]["links"] == 12
    own = {one["test"]["log_likelihood"] for one in chains}
    assert len(own) == 3
    assert record["held_out"]["test"]["log_likelihood"] not in own
    assert record["seconds"] >= sum(one["seconds"] for one in chains) - 1e-9


def test_saved_results_pool_as_the_run(found, folder, tmp_path):
    at = np.array(PAIRS)
    read = read_run(folder)[0].memberships
    assert np.array_equal(read.link_probabilities(at), found.memberships.link_probabilities(at))
    model = MMSB(3, **{name: value for name, value in OPTIONS.items() if name != "n_communities"}).fit(RING)
    assert np.allclose(model.predict_link_proba(PAIRS), found.predict_links(PAIRS), atol=2e-3)
    for chain in (True, False):
        loaded = MMSB.load(model.save(tmp_path / "model", chain=chain))
        assert np.allclose(loaded.predict_link_proba(PAIRS), model.predict_link_proba(PAIRS), atol=2e-3)
        assert loaded.get_communities("top", 1) == model.get_communities("top", 1)
    with pytest.raises(InputError, match="partial_fit goes on with one chain"):
        model.partial_fit()


def test_an_interruption_keeps_the_chains_that_are_done_and_resumes_to_the_same(found, folder, tmp_path):
    def stop(text: str) -> None:
        if text.startswith("Chain 3"):
            signal.raise_signal(signal.SIGINT)

    given = {name: value for name, value in OPTIONS.items() if name != "device"}
    stopped = perform(RING, Request(given, PROCESSOR, out=tmp_path, on_message=stop))
    assert stopped.interrupted
    assert stopped.record["interrupted"] is True
    assert len(stopped.record["chains"]) == 2
    assert len(stopped.memberships.others) == 1
    done = perform(RING, Request({}, PROCESSOR, out=tmp_path, resume=tmp_path))
    assert not done.interrupted
    assert not (tmp_path / "checkpoint.npz").exists()
    with np.load(tmp_path / "memberships.npz") as there, np.load(folder / "memberships.npz") as right:
        assert sorted(there) == sorted(right)
        for name in right:
            assert np.array_equal(there[name], right[name]), name


def test_the_command_line_says_over_how_many_chains(ring):
    said = cli(ring, "-k", 3, "-n", 4, "--test", 0.2, "--chains", 2, "-v").output
    assert "pooled over 2 chains, whose own AUC is" in said
    assert "Invalid value for '--chains'" in cli(ring, "-k", 3, "--chains", 0, code=2).output
