"""Conjugate toys: chains with data whose posterior is known in closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from mmsbgen.backends import Device
from mmsbgen.families.mmsb.numbers.row_layout import DELTA, FLOOR
from mmsbgen.families.mmsb.reference import equations
from tests.statistics.laws import Floats, Moments, exact_dirichlet, observe
from tests.statistics.toys import BlockRows, ListedRows, Strengths

#: Links of a vertex to vertices that act in communities 0, 1 and 2 alone.
K, COUNTS, EPS = 10, (12, 6, 2), 1e-3
POSTERIOR = np.full(K, 1 / K)
POSTERIOR[:3] += COUNTS
MEAN, SD = exact_dirichlet(POSTERIOR)
ANCHORS = np.repeat(np.eye(K)[:3], COUNTS, axis=0)
BETA = 0.5


def flat(m: int) -> tuple[Floats, Floats]:
    return np.full((m, K), 1 / K), np.ones(m)


def expect_posterior(found: Moments, known: float = 0.025) -> None:
    """Mean and standard deviation within 5 %, by so many chains that four standard errors are ``known``, less."""
    linked, rest = slice(0, 3), slice(3, K)
    assert np.all(4 * found.mean_error[linked] < known * MEAN[linked])
    assert np.all(4 * found.sd_error[linked] < known * SD[linked])
    np.testing.assert_allclose(found.mean[linked], MEAN[linked], rtol=0.05)
    np.testing.assert_allclose(found.sd[linked], SD[linked], rtol=0.05)
    # The factor phi before the gradient shows in the communities without links: 0.0026 without it, 0.0048 with it.
    error = found.mean_error[rest].mean() / np.sqrt(K - 3)
    assert found.mean[rest].mean() == pytest.approx(MEAN[3], abs=0.05 * MEAN[3] + 4 * error)


def test_the_toy_is_what_it_is_called() -> None:
    """The figures that the issue's toy has, and that responsibilities are the partners' communities."""
    np.testing.assert_allclose(SD[:3], [0.105, 0.097, 0.064], atol=5e-4)
    assert MEAN[3] == pytest.approx(0.0048, abs=5e-5)
    own = np.random.default_rng(1).dirichlet(np.full(K, 0.5))
    drift, _ = equations.drift(own, np.full(K, BETA), ANCHORS, np.ones(20), DELTA)
    np.testing.assert_allclose(own * (drift + 20), [*COUNTS, *[0] * 7], atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [ListedRows, BlockRows])
def test_memberships(chain_device: Device, kind: type[ListedRows | BlockRows]) -> None:
    data = {"linked": np.arange(20)} if kind is BlockRows else {"partners": np.arange(20), "weights": np.ones(20)}
    with kind(chain_device, *flat(2304), EPS, anchors=ANCHORS, beta=np.full(K, BETA), seed=31, **data) as chains:
        chains.advance(2000)
        found = Moments(MEAN)
        observe(chains.advance, lambda: chains.rows()[0], found, looks=12, apart=150)
        clips, updates = chains.clips(), chains.iteration * chains.m * K
    expect_posterior(found)
    # Bounded flows are of links at memberships of nearly nothing, which hold no mass.
    assert clips < 1e-3 * updates


@pytest.mark.slow
def test_memberships_by_the_reference() -> None:
    """All chains in one row: the drift is scaled so that each coordinate feels the sum of its own chain's phi."""
    m, q = 900, np.where(np.eye(K)[:3] > 0, BETA, DELTA)
    phi = np.maximum(np.random.default_rng(32).dirichlet(POSTERIOR, m), FLOOR)
    found = Moments(MEAN)
    for iteration in range(1500):
        sums = phi.sum(axis=1, keepdims=True)
        pi = phi / sums
        drift = (np.array(COUNTS) / (pi @ q.T)) @ q - len(ANCHORS)
        step = equations.Step("split", EPS / 2, 1 / K, seed=32, iteration=iteration)
        whole = phi.ravel()
        end = equations.end_row(whole, pi.ravel(), (drift * phi.sum() / sums).ravel(), whole * 0, 0, step)
        phi = end.phi.reshape(m, K)
        if iteration >= 500 and iteration % 50 == 0:
            found.add(phi / phi.sum(axis=1, keepdims=True))
    expect_posterior(found, known=0.045)


# Strengths ----------------------------------------------------------------------------------------------------

LINKS, NON_LINKS = 30, 70
EXACT = stats.beta(1 + LINKS, 1 + NON_LINKS)


def strengths(device: Device, eps: float, burn_in: int, looks: int, apart: int) -> Moments:
    with Strengths(device, 256, LINKS, NON_LINKS, eps, seed=33) as chains:
        chains.advance(burn_in)
        found = Moments([EXACT.mean()])
        observe(chains.advance, lambda: chains.beta()[:, None], found, looks, apart)
    return found


def test_strengths(chain_device: Device) -> None:
    """theta by the reflected step: mean 0.3039 and sd 0.0453; both within 5 % at eps = 1e-3."""
    found = strengths(chain_device, 1e-3, 3000, looks=60, apart=50)
    assert 4 * found.sd_error[0] < 0.04 * EXACT.std()
    assert found.mean[0] == pytest.approx(EXACT.mean(), rel=0.05)
    assert found.sd[0] == pytest.approx(EXACT.std(), rel=0.05)


def test_strengths_spread_too_far_at_large_steps(chain_device: Device) -> None:
    """eps times the pairs that inform is 1 at eps = 1e-2: the mean stays, the sd is a quarter too large."""
    found = strengths(chain_device, 1e-2, 500, looks=100, apart=10)
    assert found.mean[0] == pytest.approx(EXACT.mean(), rel=0.05)
    excess: Any = found.sd[0] / EXACT.std()
    assert 4 * found.sd_error[0] < 0.08 * EXACT.std()
    assert excess == pytest.approx(1.25, abs=0.08)
