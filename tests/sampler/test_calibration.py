"""Calibration: the curve that is fitted, where it is left out, and what is said of how well it holds."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmsbgen.graph import Split, split
from mmsbgen.graph.building import build_graph
from mmsbgen.sampler.calibration.curve import CalibrationCurve, fitted, from_array, log_odds, probabilities, to_array
from mmsbgen.sampler.calibration.reliability import reliability
from mmsbgen.sampler.diagnostics.held_out import auc
from mmsbgen.sampler.diagnostics.memberships import Memberships, largest
from mmsbgen.sampler.run.calibrate import FEWEST_LINKS, calibrate

N, K, DELTA = 800, 6, 1e-3


def memberships(seed: int) -> Memberships:
    """Memberships of N vertices, most of them in one or two of K communities."""
    pi = np.random.default_rng(seed).dirichlet(np.full(K, 0.15), N)
    return Memberships(np.arange(N), *largest(pi, K), np.linspace(0.2, 0.6, K), DELTA)


def truth(p):
    """The probability of a link where the model says ``p``: underconfident at the top, overconfident at the bottom."""
    return probabilities(1.5 + 1.6 * log_odds(p))


def drawn(m: Memberships, seed: int, validation: float, test: float = 0.0) -> Split:
    """A graph with links of probability ``truth`` of the model's, and its split."""
    pairs = np.stack(np.triu_indices(N, 1), axis=1)
    right = truth(m.link_probabilities(pairs))
    links = pairs[np.random.default_rng(seed).random(len(pairs)) < right]
    graph = build_graph(links[:, 0], links[:, 1], np.arange(N), name="drawn", directed=False)
    return split(graph, validation=validation, test=test, seed=seed)


@pytest.mark.parametrize(("validation", "chains"), [(0.02, 1), (0.3, 1), (0.02, 2)])
def test_a_known_curve_is_found(validation, chains):
    """Within the error that the validation links alone allow, whatever share of the links they are.

    Log odds of a share from n links, drawn at a known rate, and m weighted non-links have the variance 1/n + 1/m, and m
    is larger than n here.  The prior ties points within a unit together, so that n are the links within half a unit.
    """
    m = memberships(0)
    if chains == 2:
        m = replace(m, others=(memberships(1),))
    parts = drawn(m, 3, validation)
    found, note = calibrate(m, parts, seed=0)
    assert note["calibrated"] is True
    p = np.array([0.05, 0.1, 0.2, 0.3])
    held = log_odds(m.link_probabilities(parts.validation.pairs[parts.validation.labels]))
    near = np.array([np.count_nonzero(np.abs(held - x) < 0.5) for x in log_odds(p)])
    assert (near >= 10).all()
    errors = log_odds(found.calibrated(p)) - log_odds(truth(p))
    assert (np.abs(errors) < 4 * np.sqrt(2 / near)).all()


def test_calibrated_probabilities_add_up_to_the_links():
    """Over all pairs, within four standard errors of the number of links that the validation links allow."""
    m = memberships(0)
    parts = drawn(m, 4, 0.05)
    found, _ = calibrate(m, parts, seed=0)
    pairs = np.stack(np.triu_indices(N, 1), axis=1)
    before, after = (found.link_probabilities(pairs, calibrated=c).sum() for c in (False, True))
    assert after == pytest.approx(parts.graph.n_links, rel=4 / math.sqrt(parts.validation.n_links))
    assert abs(before - parts.graph.n_links) > 2 * abs(after - parts.graph.n_links)


def test_ranks_stay():
    m = memberships(0)
    parts = drawn(m, 5, 0.05)
    found, _ = calibrate(m, parts, seed=0)
    pairs = parts.validation
    before, after = (found.link_probabilities(pairs.pairs, calibrated=c) for c in (False, True))
    assert (before != after).any()
    assert auc(before, pairs.labels) == auc(after, pairs.labels)
    assert np.array_equal(np.argsort(before, kind="stable"), np.argsort(after, kind="stable"))


@given(st.integers(0, 2**32 - 1), st.floats(-2.0, 2.0), st.integers(1, 300))
@settings(max_examples=40, deadline=None)
def test_the_curve_increases_whatever_the_links_say(seed, slope, count):
    rng = np.random.default_rng(seed)
    p = probabilities(rng.normal(-3, 4, 3 * count))
    links = rng.random(p.size) < probabilities(slope * log_odds(p))
    links[0] = True
    for shape in (None, *(CalibrationCurve(np.array([-9.0, end]), np.array([-8.0, -7.0])) for end in (-4.0, 2.0))):
        curve = fitted(p, links, np.exp(rng.normal(0, 2, p.size)), shape)
        x = np.sort(np.concatenate([curve.points, np.linspace(-30, 15, 400)]))
        assert (np.diff(curve(probabilities(x))) >= 0).all()
        assert (np.diff(curve.values) >= 0.04 * np.diff(curve.points)).all()
        assert np.isfinite(curve.values).all()
        assert np.array_equal(from_array(to_array(curve)).values, curve.values)


def test_a_shape_counts_where_few_links_speak():
    """Above .1 the curve follows the shape, moved as a whole by what the links say; below it does not."""
    x = np.linspace(-6, 3, 40)
    shape = CalibrationCurve(x, x + np.maximum(x, -1.0) * 2)
    rng = np.random.default_rng(0)
    p = probabilities(rng.uniform(-6, 3, 40))
    links = rng.random(40) < p
    with_shape, without = fitted(p, links, np.ones(40), shape), fitted(p, links, np.ones(40))

    def rise(curve, low, high):
        return float(np.diff(curve.corrections(np.array([low, high])))[0])

    assert rise(with_shape, -1.0, 2.0) > rise(without, -1.0, 2.0) + 2.0, "of 6 in the shape"
    flat = CalibrationCurve(x, x + np.minimum(x, -3.0) * 0.4)
    assert rise(fitted(p, links, np.ones(40), flat), -6.0, -3.0) == pytest.approx(rise(without, -6.0, -3.0), abs=0.1)


def test_without_pairs_that_say_otherwise_the_curve_is_the_model():
    """A few links and non-links in the ratio that the model has them: no correction beyond their error."""
    p = np.repeat([0.2, 0.5, 0.8], 10)
    links = np.concatenate([np.arange(10) < 10 * one for one in (0.2, 0.5, 0.8)])
    assert fitted(p, links, np.ones(30))(p) == pytest.approx(p, abs=1e-2)


def test_few_validation_links_leave_the_model_as_it_is():
    m = memberships(0)
    parts = drawn(m, 6, 0.0005, test=0.02)
    assert 0 < parts.validation.n_links < FEWEST_LINKS
    found, note = calibrate(m, parts, seed=0)
    assert found is m
    assert note["calibrated"] is False
    assert note["curve"] is None
    assert f"{FEWEST_LINKS} validation links are needed" in note["text"]
    assert f"there are {parts.validation.n_links};" in note["text"]
    assert note["test"]["ece"] == note["test"]["ece_before"] > 0.1, "test pairs still tell how far it is off"
    _, note = calibrate(m, drawn(m, 6, 0.0), seed=0)
    assert note["calibrated"] is False
    assert note["test"] is None


def test_links_of_unknown_vertices_do_not_count():
    """As their non-links, which are not drawn."""
    m, links = memberships(0), drawn(memberships(0), 6, 0.1)
    known = links.validation.pairs[links.validation.labels]
    unknown = np.unique(known[:, 1])[::40]
    count = np.count_nonzero(~np.isin(known, unknown).any(axis=1))
    assert FEWEST_LINKS < count < len(known)
    found, note = calibrate(replace(m, unlinked=unknown), links, seed=0)
    assert note["text"] == f"Link probabilities are calibrated on {count} validation links."
    assert found.curve is not None


def test_test_pairs_confirm_the_calibration():
    m = memberships(0)
    _, note = calibrate(m, drawn(m, 7, 0.05, test=0.05), seed=0)
    test = note["test"]
    assert test["ece_before"] > 0.1
    assert test["ece"] < 3 * test["ece_by_chance"] < 0.1
    assert len(test["bins"]) == 10
    assert [one["p"] for one in test["bins"]] == sorted(one["p"] for one in test["bins"])


def test_a_graph_without_non_links_is_calibrated():
    """A clique: every pair is a link, and so says the curve."""
    clique = np.stack(np.triu_indices(60, 1), axis=1)
    graph = build_graph(clique[:, 0], clique[:, 1], np.arange(60), name="clique", directed=False)
    m = Memberships(np.arange(60), np.zeros((60, 1), np.int32), np.ones((60, 1)), np.array([0.9]), DELTA)
    found, note = calibrate(m, split(graph, validation=0.05, test=0.05, seed=0), seed=0)
    assert note["calibrated"] is True
    assert (found.link_probabilities(clique) > 0.95).all()


# How well it holds --------------------------------------------------------------------------------------------


def test_the_error_of_a_known_case():
    """p is .5 and .2 for 100 pairs each; .8 and .1 of them are links, and non-links of the second stand for two."""
    p = np.repeat([0.5, 0.2], 100)
    links = np.concatenate([np.arange(100) < 80, np.arange(100) < 10])
    weights = np.where(np.repeat([False, True], 100) & ~links, 2.0, 1.0)
    found = reliability(p, p / 2, links, weights, seed=0)
    second = 10 / 190
    assert found["ece"] == pytest.approx((100 * 0.3 + 190 * (0.2 - second)) / 290)
    assert found["ece_before"] == pytest.approx((100 * 0.55 + 190 * (0.1 - second)) / 290)
    assert [one["observed"] for one in found["bins"]] == pytest.approx([second, 0.8])
    assert found["bins"][1]["error"] == pytest.approx(0.8 * 0.2 * math.sqrt(1 / 80 + 1 / 20))
    assert (found["links"], found["non_links"]) == (90, 110)
    assert reliability(p, p, np.arange(200) < 19, weights, seed=0) is None
    assert reliability(p / 10, p, links, weights, seed=0) is None


@pytest.mark.slow
def test_errors_are_those_of_repeated_samples():
    """Of 150 samples of a perfect model: ECE is what chance gives, and shares lie within two errors in 95 %.

    The standard error of a mean over samples is below 3 %, that of the share of bins 1 %.  Bins of few links are not
    quite normal, which adds a few percent to each.
    """
    rng = np.random.default_rng(0)
    ece, chance, inside = [], [], []
    for _ in range(150):
        p = rng.uniform(0.1, 0.9, 400)
        kept = (links := rng.random(400) < p) | (rng.random(400) < 0.5)
        found = reliability(p[kept], p[kept], links[kept], np.where(links[kept], 1.0, 2.0), seed=0)
        ece.append(found["ece"])
        chance.append(found["ece_by_chance"])
        inside += [abs(one["p"] - one["observed"]) < 2 * one["error"] for one in found["bins"]]
    assert np.mean(chance) == pytest.approx(np.mean(ece), rel=0.1)
    assert np.mean(inside) == pytest.approx(0.95, abs=0.04)


@pytest.mark.slow
def test_the_standard_error_is_that_of_repeated_samples():
    """Of a model that is off by .2, so that ECE is not a sum of chances: the bootstrap's error is known to 7 %."""
    rng = np.random.default_rng(1)
    found = []
    for seed in range(120):
        p = rng.uniform(0.1, 0.7, 400)
        found.append(reliability(p, p, rng.random(400) < p + 0.2, np.ones(400), seed))
    spread = np.std([one["ece"] for one in found], ddof=1)
    assert np.mean([one["ece_error"] for one in found]) == pytest.approx(spread, rel=0.25)


@pytest.mark.parametrize("array", [np.zeros(3), np.zeros((2, 2)), np.array([[0.0, 1.0], [1.0, math.nan]])])
def test_an_array_that_is_no_curve_is_refused(array):
    with pytest.raises(ValueError, match="no increasing curve"):
        from_array(array)
