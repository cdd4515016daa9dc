"""R-hat and effective sample sizes: those of ArviZ, and those of laws that are known."""

from __future__ import annotations

import logging
import warnings
from types import ModuleType

import numpy as np
import pytest
from scipy import stats

from mmsbgen.sampler.posterior import r_hat
from mmsbgen.sampler.posterior.r_hat import effective, mixing, normal_scores


@pytest.fixture(scope="module")
def arviz() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # it announces its next version
        import arviz

    logging.getLogger("arviz").setLevel(logging.ERROR)  # it says so where one chain is given
    return arviz


def chains(rng: np.random.Generator, c: int, t: int, q: int, rho: float) -> np.ndarray:
    """Autoregressive chains ``[C, T, Q]`` of standard normal draws, begun in their law."""
    draws = rng.standard_normal((c, t, q))
    for at in range(1, t):
        draws[:, at] = rho * draws[:, at - 1] + np.sqrt(1 - rho**2) * draws[:, at]
    return draws


@pytest.mark.slow
@pytest.mark.parametrize("rho", [-0.6, 0.0, 0.5, 0.9, 0.99])
@pytest.mark.parametrize(("c", "t"), [(1, 23), (1, 102), (2, 4), (2, 61), (3, 150), (4, 83)])
def test_they_are_those_of_arviz(arviz: ModuleType, c: int, t: int, rho: float) -> None:
    """Of chains that agree, of such that do not, and of long-tailed draws; quantiles that are draws may round."""
    rng = np.random.default_rng(int(1000 * (rho + 1)) + 10 * c + t)
    draws = chains(rng, c, t, 4, rho)
    draws[:, :, 1] += np.arange(c)[:, None]
    draws[:, :, 2] = np.exp(3 * draws[:, :, 2])
    draws[:, :, 3] = np.round(draws[:, :, 3], 1)
    found, groups = mixing(draws), {"posterior": {"x": draws}}
    # From version 1 on groups are one argument.
    data = arviz.from_dict(**groups) if hasattr(arviz, "InferenceData") else arviz.from_dict(groups)
    if c > 1:  # ArviZ gives none of one chain
        np.testing.assert_allclose(found.r_hat, arviz.rhat(data)["x"].values, rtol=1e-12)
    np.testing.assert_allclose(found.ess_bulk, arviz.ess(data, method="bulk")["x"].values, rtol=1e-9)
    if all((c * t - 1) * p % 1 for p in (0.05, 0.95)):
        tail = arviz.ess(data, method="tail", prob=(0.05, 0.95))["x"].values
        np.testing.assert_allclose(found.ess_tail[:3], tail[:3], rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_the_effective_sample_size_of_autoregressive_chains(rho: float) -> None:
    """C T (1 - rho) / (1 + rho) for the mean, which the mean of 64 estimates meets within four standard errors."""
    draws = chains(np.random.default_rng(3), 4, 2000, 64, rho)
    found, right = effective(draws), 8000 * (1 - rho) / (1 + rho)
    # Geyer's sequence ends where noise begins, which leaves a bias of some per cent.
    assert found.mean() == pytest.approx(right, rel=0.05, abs=4 * found.std() / 8)
    # The variance of the mean of all draws is that of so many independent ones.
    means = draws.mean(axis=(0, 1))
    assert np.mean(means**2) == pytest.approx(1 / right, rel=4 * np.sqrt(2 / 64))
    # Means of halves differ as much as they must: R-hat^2 is 1 + 1/ESS - 1/T of a half in the mean.
    excess = r_hat.r_hat(r_hat.split(draws)) ** 2 - 1
    of_half = right / 8
    assert excess.mean() == pytest.approx(1 / of_half - 1 / 1000, abs=4 * np.sqrt(2 / 7 / 64) / of_half)


def test_r_hat_of_chains_at_different_places() -> None:
    """Two normal laws d apart: the variance of both together is that of one times 1 + d^2 / 4."""
    draws = np.random.default_rng(4).standard_normal((2, 20000, 1))
    draws[1] += 1.0
    assert r_hat.r_hat(draws)[0] == pytest.approx(np.sqrt(1 + 2 * 0.25), abs=0.02)
    assert mixing(draws).r_hat[0] > 1.1
    # The same mean, other spreads: only draws folded at the median tell.
    draws = np.random.default_rng(5).standard_normal((2, 4000, 1)) * np.array([1.0, 3.0])[:, None, None]
    assert r_hat.r_hat(normal_scores(draws))[0] < 1.01
    assert mixing(draws).r_hat[0] > 1.1
    # One chain that drifts disagrees with itself.
    assert mixing(np.linspace(0, 1, 100)[None, :, None]).r_hat[0] > 1.5


def test_equal_draws_share_their_rank() -> None:
    draws = np.random.default_rng(6).integers(0, 7, (3, 20, 5)).astype(float)
    ranks = stats.rankdata(draws.reshape(60, 5), axis=0)
    right = stats.norm.ppf((ranks - 0.375) / 60.25).reshape(3, 20, 5)
    np.testing.assert_allclose(normal_scores(draws), right, atol=1e-12)


def test_what_cannot_be_told_is_nan() -> None:
    draws = np.random.default_rng(7).random((2, 8, 3))
    draws[:, :, 1] = 0.25
    draws[1, 3, 2] = np.nan
    assert [np.isnan(values).tolist() for values in mixing(draws)] == [[False, True, True]] * 3
    assert all(np.isnan(values).all() for values in mixing(draws[:, :3]))
    assert [values.size for values in mixing(draws[:, :, :0])] == [0, 0, 0]
    # Nearly all draws are equal, so that the 5 % quantile is below none.
    draws[0, 0, 1] = 0.5
    assert np.isfinite(mixing(draws).ess_tail[1])


def test_quantities_are_diagnosed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = np.random.default_rng(8).random((2, 10, 7)).astype(np.float32)
    whole, told = mixing(draws), []
    monkeypatch.setattr(r_hat, "_ELEMENTS", 3 * 20)
    for part, right in zip(mixing(draws, told.append), whole, strict=True):
        np.testing.assert_array_equal(part, right)
    assert told == [3 / 7, 6 / 7, 1.0]
