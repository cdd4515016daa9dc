"""Chains without data: rows keep Gamma(K alpha, 1) sums and Dirichlet(alpha) memberships at any K and step size."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from mmsbgen.backends import Device
from mmsbgen.families.mmsb.reference import equations
from tests.conftest import open_or_skip
from tests.statistics.laws import Floats, dirichlet_rows, mean_largest
from tests.statistics.toys import BlockRows, ListedRows

#: Chains: row sums have standard deviation 1, so that four standard errors of their mean are the 5 % asked for.
M = 6400


def expect_prior(pi: Floats, sums: Floats) -> None:
    """Mean row sum 1 within 5 %, mean largest membership within 0.02; both within four standard errors."""
    m, k = pi.shape
    largest = pi.max(axis=1)
    assert sums.mean() == pytest.approx(1.0, abs=min(0.05, 4 * sums.std() / np.sqrt(m)))
    assert largest.mean() == pytest.approx(mean_largest(k, 1 / k), abs=min(0.02, 4 * largest.std() / np.sqrt(m)))
    # Gamma(1) is the exponential law; by Dvoretzky, Kiefer, Wolfowitz a right chain fails once in a million.
    distance = stats.kstest(sums, "expon").statistic
    assert distance < np.sqrt(np.log(2e6) / (2 * m))
    # Every coordinate's mean is the same.
    means = pi.mean(axis=0)
    variance = (1 / k) * (1 - 1 / k) / 2
    assert np.abs(means - 1 / k).max() < 5 * np.sqrt(variance / m)


@pytest.mark.parametrize("k", [10, 50, 300])
def test_mean_largest_membership(k: int) -> None:
    """The quadrature that the tests below compare with, against draws."""
    rng = np.random.default_rng(k)
    largest = rng.dirichlet(np.full(k, 1 / k), 20_000).max(axis=1)
    assert mean_largest(k, 1 / k) == pytest.approx(largest.mean(), abs=4 * largest.std() / np.sqrt(20_000))


def flat(k: int) -> tuple[Floats, Floats]:
    """A start far from the prior: all memberships the same, sums of 2."""
    return np.full((M, k), 1 / k), np.full(M, 2.0)


@pytest.mark.slow
@pytest.mark.parametrize("k", [10, 50, 300])
def test_the_reference_finds_the_prior(k: int) -> None:
    """All rows are one long row, since without data coordinates do not see each other."""
    pi, sums = flat(k)
    phi = (pi * sums[:, None]).ravel()
    for iteration in range(5):
        step = equations.Step("split", 2.0, 1 / k, seed=21, iteration=iteration)
        phi = equations.end_row(phi, phi, phi * 0, phi * 0, 0, step).phi
    table = phi.reshape(M, k)
    expect_prior(table / table.sum(axis=1, keepdims=True), table.sum(axis=1))


@pytest.mark.parametrize("kind", [ListedRows, BlockRows])
@pytest.mark.parametrize(("k", "eps"), [(10, 0.03), (50, 0.03), (300, 0.1), (300, 2.0)])
def test_chains_find_the_prior(chain_device: Device, kind: type[ListedRows | BlockRows], k: int, eps: float) -> None:
    """From a start that is far from it; a time of 7 leaves a thousandth of what sums had too much."""
    with kind(chain_device, *flat(k), eps, seed=22) as chains:
        chains.advance(round(7 / (eps / 2)))
        expect_prior(*chains.rows())
        assert chains.clips() == 0


@pytest.mark.slow
@pytest.mark.opencl
def test_chains_find_the_prior_on_intel() -> None:
    """The cheapest of these laws on the other OpenCL runtime."""
    with open_or_skip("intel") as device:
        test_chains_find_the_prior(device, ListedRows, 10, 0.03)


@pytest.mark.parametrize(("k", "eps", "steps"), [(10, 1e-3, 1000), (50, 1e-3, 200), (300, 0.01, 100)])
def test_chains_keep_the_prior(chain_device: Device, k: int, eps: float, steps: int) -> None:
    """Small steps from draws of the prior: coordinates have large Poisson rates, or lie at the floor."""
    start = dirichlet_rows(np.random.default_rng(k), 1 / k, M, k)
    expect_prior(*start)
    with ListedRows(chain_device, *start, eps, seed=23) as chains:
        chains.advance(steps)
        expect_prior(*chains.rows())


@pytest.mark.parametrize("storage", ["bfloat16", "float16"])
@pytest.mark.parametrize(("k", "eps", "find"), [(50, 0.1, True), (300, 0.03, False)])
def test_chains_of_rows_in_16_bits(chain_device: Device, storage: str, k: int, eps: float, find: bool) -> None:
    """The same law where every row is rounded in every step, most of its coordinates to 0 in half precision.

    Stochastic rounding moves no mean; what it adds to a coordinate's variance in a step is below a quarter of a squared
    step of the type, phi^2 / 2^16, next to eps phi of the noise.
    """
    start = flat(k) if find else dirichlet_rows(np.random.default_rng(k), 1 / k, M, k)
    with ListedRows(chain_device, *start, eps, seed=25, storage=storage) as chains:
        chains.advance(round(7 / (eps / 2)) if find else 40)
        pi, sums = chains.rows()
        assert np.abs(pi.sum(axis=1) - 1).max() <= chains.storage.step * (1 + 1e-6)
        expect_prior(pi, sums)
        assert chains.clips() == 0


def test_the_reflected_step_flattens_the_prior(chain_device: Device) -> None:
    """Why split is the default: sums of 10.6 and a largest membership of 0.19 where 1 and 0.63 are right."""
    with ListedRows(chain_device, *flat(50), 0.03, step="reflected", seed=24) as chains:
        chains.advance(467)
        pi, sums = chains.rows()
    assert 9.5 < sums.mean() < 11.5
    assert pi.max(axis=1).mean() == pytest.approx(0.19, abs=0.03)
