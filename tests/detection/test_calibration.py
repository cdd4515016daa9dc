"""Calibrated link probabilities of a run: from Python, from its files, from a saved model, and in its record."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mmsbgen import MMSB, detect
from mmsbgen.export.run_folder import read_run
from mmsbgen.graph import split
from mmsbgen.sampler.diagnostics import held_out
from mmsbgen.sampler.run.calibrate import FEWEST_LINKS
from tests.detection.detections import FAST, RING
from tests.devices import PROCESSOR

pytestmark = pytest.mark.opencl

N, K = 300, 5
OPTIONS = {"n_communities": K, "device": PROCESSOR, "random_state": 1, "validation": 0.1, "test": 0.05}


def planted() -> tuple[np.ndarray, np.ndarray]:
    """Links of cliques within looser communities, and the probability ``[N, N]`` of every link.

    Nine tenths of the pairs of a clique are linked, and a fifth of the others in a community, which the model, with one
    strength a community, cannot say.
    """
    vertex = np.arange(N)
    same = vertex[:, None] % K == vertex % K
    clique = same & (vertex[:, None] < N // 3) & (vertex < N // 3)
    right = np.where(clique, 0.9, np.where(same, 0.2, 0.01))
    u, v = np.triu_indices(N, 1)
    linked = np.random.default_rng(0).random(u.size) < right[u, v]
    return np.stack([u[linked], v[linked]], axis=1), right


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("calibrated")


@pytest.fixture(scope="module")
def found(folder):
    return detect(planted()[0], out=folder, **OPTIONS)


@pytest.fixture(scope="module")
def model():
    return MMSB(K, **{name: value for name, value in OPTIONS.items() if name != "n_communities"}).fit(planted()[0])


@pytest.fixture(scope="module")
def pairs():
    return np.stack(np.triu_indices(N, 1), axis=1)


def test_probabilities_are_nearer_to_the_right_ones(found, pairs):
    """The calibration error over all pairs, of probabilities that are known, from .1 on and by tenths of the pairs.

    Two thirds of the 280 validation links are of such a probability, 19 in each of ten bins on average.  The share's
    standard error f (1 - f) / sqrt(19) is at most .057, and the mean of the absolute value .8 of that.
    """
    right = planted()[1][tuple(pairs.T)]

    def ece(p):
        bins = np.array_split(np.argsort(p)[np.searchsorted(np.sort(p), 0.1) :], 10)
        return np.mean([abs(p[one].mean() - right[one].mean()) for one in bins])

    before, after = (ece(found.predict_links(pairs, calibrated=one)) for one in (False, True))
    assert after < 0.046
    assert after < before


def test_ranks_and_auc_stay(found, pairs):
    before, after = (found.predict_links(pairs, calibrated=one) for one in (False, True))
    assert not np.allclose(before, after, rtol=0.1)
    assert np.array_equal(np.argsort(before, kind="stable"), np.argsort(after, kind="stable"))
    linked = np.random.default_rng(0).random(len(pairs)) < 0.5
    assert held_out.auc(before, linked) == held_out.auc(after, linked)


def test_saved_results_predict_as_the_run(found, folder, pairs, tmp_path):
    read = read_run(folder)[0].memberships
    at = np.searchsorted(found.memberships.ids, pairs)
    for calibrated in (True, False):
        live = found.predict_links(pairs, calibrated=calibrated)
        assert np.array_equal(read.link_probabilities(at, calibrated=calibrated), live)


def test_models_predict_as_the_run_and_as_their_files(found, model, pairs, tmp_path):
    assert np.allclose(model.predict_link_proba(pairs), found.predict_links(pairs), atol=0.02), "of one byte an entry"
    for chain, predict in ((True, model.predict_link_proba), (False, model.detection_.predict_links)):
        loaded = MMSB.load(model.save(tmp_path / "model", chain=chain))
        for one in (True, False):
            assert np.array_equal(loaded.predict_link_proba(pairs, calibrated=one), predict(pairs, calibrated=one))


def test_all_of_pi_in_the_file_predicts_as_the_run(found, tmp_path, pairs):
    detect(planted()[0], out=tmp_path, whole=True, **OPTIONS)
    read = read_run(tmp_path, top=K)[0].memberships
    at = np.searchsorted(found.memberships.ids, pairs)
    assert np.allclose(read.link_probabilities(at), found.predict_links(pairs), atol=0.02)


def test_the_curve_does_not_depend_on_how_many_shares_are_kept(found, pairs):
    few = detect(planted()[0], top=1, **OPTIONS)
    assert np.allclose(few.predict_links(pairs), found.predict_links(pairs), atol=0.05), "of one byte an entry"


def test_the_record_has_the_curve_and_the_error_on_test_pairs(found, folder):
    note = json.loads((folder / "run.json").read_text())["calibration"]
    assert note == found.record["calibration"]
    assert note["calibrated"] is True
    links = found.record["held_out"]["validation"]["links"]
    assert note["text"] == f"Link probabilities are calibrated on {links} validation links."
    curve, test = note["curve"], note["test"]
    model = np.array(curve["model"])
    assert found.memberships.calibrated(model) == pytest.approx(curve["calibrated"], rel=1e-9)
    assert 0 < test["ece_error"] < 0.1
    assert test["ece"] < 2.5 * test["ece_by_chance"]
    assert test["ece"] < test["ece_before"]
    assert sum(one["p"] >= 0.1 for one in test["bins"]) == len(test["bins"])


def test_held_out_metrics_are_of_calibrated_probabilities(found, model):
    told = found.record["held_out"]["test"]
    test = split(found.graph, validation=0.1, test=0.05, seed=1).test
    p, before = (model.predict_link_proba(found.graph.ids[test.pairs], calibrated=one) for one in (True, False))
    assert told["auc"] == pytest.approx(held_out.auc(before, test.labels), abs=1e-9)
    links, others = (held_out.log_likelihoods(p, test.labels)[kind].mean() for kind in (test.labels, ~test.labels))
    density = found.graph.density
    assert told["log_likelihood"] == pytest.approx(density * links + (1 - density) * others, rel=1e-6)
    assert model.score() == pytest.approx(told["log_likelihood"], rel=1e-6)


def test_few_validation_links_leave_probabilities_as_they_are(tmp_path):
    found = detect(RING, n_communities=3, validation=0.2, out=tmp_path, **FAST)
    note = json.loads((tmp_path / "run.json").read_text())["calibration"]
    assert note["calibrated"] is False
    assert note["curve"] is None
    assert note["text"] == (
        f"Link probabilities are not calibrated: {FEWEST_LINKS} validation links are needed whose two vertices have "
        "training links, and there are 12; --validation holds out more."
    )
    some = [(0, 1), (0, 15), (3, 5)]
    assert np.array_equal(found.predict_links(some), found.predict_links(some, calibrated=False))
    assert read_run(tmp_path)[0].memberships.curve is None
