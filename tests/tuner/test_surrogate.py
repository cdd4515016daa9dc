from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from mmsbgen.tuner.search.surrogate import Posteriors, coordinates, expected_improvement, fitted


def test_numbers_lie_by_their_logarithm_and_words_apart() -> None:
    points = coordinates([{"a": 0, "b": "x", "c": 1}, {"a": 1, "b": "y", "c": 1}, {"a": 3, "b": "z", "c": 1}])
    assert points[:, 0] == pytest.approx([0, 0.5, 1])
    for i in range(3):
        for j in range(i):
            assert np.linalg.norm(points[i, 1:] - points[j, 1:]) == pytest.approx(1)
    assert points.shape == (3, 4)


def test_truth_values_are_words() -> None:
    points = coordinates([{"a": False}, {"a": True}])
    assert np.linalg.norm(points[0] - points[1]) == pytest.approx(1)


def test_a_single_configuration_has_no_coordinates() -> None:
    assert coordinates([{"a": 1}]).shape == (1, 0)


def test_the_posterior_goes_through_a_smooth_curve_and_doubts_where_nothing_is_known() -> None:
    points = np.linspace(0, 1, 41)[:, None]
    truth = np.sin(5 * points[:, 0])
    known = [0, 6, 12, 18, 24]
    mean, deviation = Posteriors(points)(known, truth[known], fitted(points, known, truth[known]))
    between = mean[3], truth[3]
    assert between[0] == pytest.approx(between[1], abs=0.1)
    assert deviation[40] > 3 * deviation[12]
    # Three hundredths of the variance are taken for noise.
    assert np.abs(mean[known] - truth[known]).max() < np.sqrt(0.03) * truth[known].std()


def test_what_is_kept_changes_no_prediction() -> None:
    """Measurements come in, guesses are replaced, and the length scale changes there and back."""
    rng = np.random.default_rng(0)
    points, values = rng.random((50, 3)), rng.random(50)
    kept = Posteriors(points)
    for known in ([3, 1, 4], [3, 1, 4, 15, 9], [3, 1, 4, 2, 6, 5], [3, 1], [8, 9, 7]):
        for length in (0.5, 2.0):
            fit = fitted(points, known, values[known])._replace(length=length)
            right = direct(points, known, values[known], length)
            for found, wanted in zip(kept(known, values[known], fit), right, strict=True):
                assert found == pytest.approx(wanted, abs=1e-4)


def direct(points: Any, known: Sequence[int], values: Any, length: float) -> tuple[Any, Any]:
    """Mean and standard deviation by the formula, in one step and in double precision."""

    def covariance(a: Any, b: Any) -> Any:
        scaled = np.sqrt(3) * np.linalg.norm(a[:, None] - b[None], axis=2) / length
        return (1 + scaled) * np.exp(-scaled)

    at, centre, scale = points[list(known)], values.mean(), values.std()
    weights = np.linalg.solve(covariance(at, at) + 0.03 * np.eye(len(at)), covariance(at, points))
    variance = 1 - (covariance(at, points) * weights).sum(axis=0)
    return centre + scale * ((values - centre) / scale) @ weights, scale * np.sqrt(variance)


def test_equal_values_are_no_error() -> None:
    points = np.arange(6.0)[:, None]
    mean, deviation = Posteriors(points)([0, 1], np.zeros(2), fitted(points, [0, 1], np.zeros(2)))
    assert np.isfinite(mean).all()
    assert (deviation > 0).all()


def test_expected_improvement_of_a_normal_variable() -> None:
    rng = np.random.default_rng(1)
    drawn = rng.normal(0.3, 0.7, 400_000)
    gain = np.maximum(0, 0.1 - drawn)
    # Four standard errors of the mean of the draws.
    tolerance = 4 * gain.std() / np.sqrt(len(drawn))
    found = expected_improvement(np.array([0.3]), np.array([0.7]), 0.1)
    assert found[0] == pytest.approx(gain.mean(), abs=tolerance)
