"""The NumPy reference against the model: derivatives of log Z, identities, limiting cases, and the prior's law."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mmsbgen.families.mmsb.numbers.row_layout import DELTA, FLOOR
from mmsbgen.families.mmsb.reference import equations
from mmsbgen.families.mmsb.reference.equations import Step, ThetaStep

STEP = 1e-30  # of complex-step derivatives: exact to rounding, also at memberships of 0


def likelihood(pi_a: Any, pi_b: Any, beta: Any, y: int) -> Any:
    """p(y) of one pair as the model has it: the sum over both vertices' communities (docs/statistics.md)."""
    same, other = (beta, DELTA) if y else (1 - beta, 1 - DELTA)
    chance = np.where(np.eye(beta.size, dtype=bool), same, other)
    return pi_a @ chance @ pi_b


def log_z(phi: Any, pi_b: Any, beta: Any, y: int) -> Any:
    return np.log(likelihood(phi / phi.sum(), pi_b, beta, y))


def log_z_of_theta(theta: Any, pi_a: Any, pi_b: Any, y: int) -> Any:
    return np.log(likelihood(pi_a, pi_b, theta[1] / theta.sum(axis=0), y))


def derivative(function: Any, at: Any, index: Any) -> float:
    moved = np.asarray(at, dtype=complex).copy()
    moved[index] += 1j * STEP
    return float(np.imag(function(moved)) / STEP)


def rows(kind: str, count: int, k: int, rng: np.random.Generator) -> Any:
    if kind == "one-hot":
        return np.eye(k)[rng.integers(0, k, count)]
    return rng.dirichlet(np.full(k, 0.3), count)


def strengths(kind: str, k: int, rng: np.random.Generator) -> Any:
    beta = rng.uniform(0.05, 0.95, k)
    if kind == "extreme":
        beta[:] = np.where(np.arange(k) % 2, 1e-6, 1 - 1e-6)
    return beta


@pytest.mark.parametrize("own_kind", ["spread", "one-hot"])
@pytest.mark.parametrize("partner_kind", ["spread", "one-hot"])
@pytest.mark.parametrize("beta_kind", ["inner", "extreme"])
@pytest.mark.parametrize("k", [1, 2, 7])
def test_drift_is_the_derivative_of_log_z(own_kind: str, partner_kind: str, beta_kind: str, k: int) -> None:
    """Eq. (3.2): S times d/dphi_k of sum |w| log Z is D_k, for links (w > 0), non-links (w < 0) and w = 0."""
    rng = np.random.default_rng([k, own_kind == "one-hot", partner_kind == "one-hot"])
    own, partners, beta = rows(own_kind, 1, k, rng)[0], rows(partner_kind, 9, k, rng), strengths(beta_kind, k, rng)
    weights = rng.uniform(0.5, 3.0, 9) * np.array([1, -1, 1, -1, -1, 0, 1, -1, -1])
    phi = own * 2.5
    d, error = equations.drift(own, beta, partners, weights, u=2.0**-53)
    for i in range(k):
        slope = sum(
            abs(w) * derivative(lambda x, b=b, w=w: log_z(x, b, beta, int(w > 0)), phi, i)
            for b, w in zip(partners, weights, strict=True)
        )
        assert d[i] == pytest.approx(phi.sum() * slope, rel=1e-9, abs=1e-9 + 4 * error[i])


@pytest.mark.parametrize("kind", ["spread", "one-hot"])
@pytest.mark.parametrize("beta_kind", ["inner", "extreme"])
@pytest.mark.parametrize("k", [1, 2, 7])
def test_theta_counts_give_the_derivative_of_log_z(kind: str, beta_kind: str, k: int) -> None:
    """Eq. (3.6), (3.7): theta_ki d/dtheta_ki of sum |w| log Z, from the two vectors of sums of rho."""
    rng = np.random.default_rng([k, kind == "one-hot"])
    a, b, beta = rows(kind, 8, k, rng), rows(kind, 8, k, rng), strengths(beta_kind, k, rng)
    theta = np.stack([1 - beta, beta]) * rng.uniform(1, 3, k)
    weights = rng.uniform(0.5, 3.0, 8) * np.array([1, -1, 1, -1, -1, 1, 1, -1])
    counts, _ = equations.theta_counts(a, b, beta, weights)
    link = (1 - beta) * counts[1] - beta * counts[0]
    for i in range(k):
        for column, value in ((0, -link[i]), (1, link[i])):
            slope = sum(
                abs(w) * derivative(lambda t, x=x, y=y, w=w: log_z_of_theta(t, x, y, int(w > 0)), theta, (column, i))
                for x, y, w in zip(a, b, weights, strict=True)
            )
            assert value == pytest.approx(theta[column, i] * slope, rel=1e-8, abs=1e-9)


@pytest.mark.parametrize("kind", ["spread", "one-hot"])
@pytest.mark.parametrize("beta_kind", ["inner", "extreme"])
def test_responsibilities_minus_memberships_sum_to_nothing(kind: str, beta_kind: str) -> None:
    """Eq. (3.3): sum_k pi_ak D_k = 0, so that the row sum feels its prior alone."""
    rng = np.random.default_rng(1)
    own, partners, beta = rows(kind, 1, 40, rng)[0], rows(kind, 30, 40, rng), strengths(beta_kind, 40, rng)
    weights = rng.uniform(1, 100, 30) * rng.choice([1.0, -1.0], 30)
    d, error = equations.drift(own, beta, partners, weights, u=2.0**-53)
    assert abs(own @ d) <= 4 * own @ error


def test_both_columns_of_theta_move_opposite_ways() -> None:
    """Eq. (3.7): the data moves probability between the columns and leaves their sum to the prior."""
    rng = np.random.default_rng(2)
    theta, counts = rng.gamma(2.0, size=(2, 9)) + 1, rng.gamma(1.0, size=(2, 9))
    moved = equations.update_theta(theta, counts, ThetaStep("reflected", 1e-3, noise=False))
    prior = equations.update_theta(theta, np.zeros((2, 9)), ThetaStep("reflected", 1e-3, noise=False))
    assert np.allclose((moved - prior).sum(axis=0), 0, atol=1e-15)
    assert np.all(moved != prior)


@pytest.mark.parametrize("kind", ["spread", "one-hot"])
@pytest.mark.parametrize("k", [1, 2, 7])
def test_probabilities_of_link_and_non_link_sum_to_one(kind: str, k: int) -> None:
    rng = np.random.default_rng(k)
    a, b, beta = rows(kind, 20, k, rng), rows(kind, 20, k, rng), strengths("extreme", k, rng)
    p, published = equations.held_out(a, b, beta)
    for x, y, link, without in zip(a, b, p, published, strict=True):
        assert link == pytest.approx(likelihood(x, y, beta, 1), rel=1e-12)
        assert 1 - link == pytest.approx(likelihood(x, y, beta, 0), rel=1e-12, abs=1e-15)
        assert without == pytest.approx(likelihood(x, y, beta, 1) - DELTA * (1 - x @ y), rel=1e-9, abs=1e-16)


# Limiting cases -----------------------------------------------------------------------------------------------


def a_row(k: int = 12) -> tuple[Any, Any]:
    phi = np.random.default_rng(3).gamma(1.0, size=k) + 0.5
    return phi, phi / phi.sum()


@pytest.mark.parametrize("name", ["published", "reflected", "split"])
def test_without_weights_only_the_prior_acts(name: str) -> None:
    """No partner counts: the drift is exactly 0, and without noise the row goes to alpha as its prior says."""
    rng = np.random.default_rng(4)
    phi, pi = a_row()
    d, error = equations.drift(pi, strengths("inner", 12, rng), rows("spread", 5, 12, rng), np.zeros(5))
    assert np.all(d == 0)
    tau, alpha = 0.01, 0.25
    end = equations.end_row(phi, pi, d, error, 0, Step(name, tau, alpha, noise=False))
    exact = alpha + (phi - alpha) * np.exp(-tau)
    assert np.allclose(end.phi, exact, rtol=1e-13 if name == "split" else tau**2)
    assert end.clips == 0


def test_published_step_lacks_the_factor_phi() -> None:
    rng = np.random.default_rng(5)
    phi, pi = a_row()
    d, error = rng.normal(size=12) * 0.1, np.zeros(12)
    prior, published, reflected = (
        equations.end_row(phi, pi, drift, error, 0, Step(name, 1e-3, 0.1, noise=False)).phi
        for name, drift in (("reflected", d * 0), ("published", d), ("reflected", d))
    )
    assert np.allclose(reflected - prior, phi * (published - prior), rtol=1e-9)


def test_steps_agree_to_first_order() -> None:
    """Without noise, reflected and split follow the same flow; their difference is of second order."""
    rng = np.random.default_rng(6)
    phi, pi = a_row()
    d, error = rng.normal(size=12), np.zeros(12)
    gaps = []
    for tau in (1e-3, 1e-4):
        split, reflected = (
            equations.end_row(phi, pi, d, error, 0, Step(name, tau, 0.1, noise=False)).phi
            for name in ("split", "reflected")
        )
        gaps.append(np.abs(split - reflected).max())
    assert gaps[1] < gaps[0] / 80


def test_flow_is_bounded_on_both_sides_and_counted() -> None:
    phi, pi = a_row()
    d = np.zeros(12)
    d[:3], d[3] = 1e9, -1e9
    end = equations.end_row(phi, pi, d, np.zeros(12), 0, Step("split", 1e-2, 0.1, noise=False))
    assert end.clips == 4
    assert end.phi[0] / phi[0] == pytest.approx(np.exp(3 - 0.01), rel=1e-3)


def test_noise_of_the_reflected_step_has_its_size() -> None:
    phi = np.full(40_000, 5.0)
    end = equations.end_row(phi, phi / phi.sum(), phi * 0, phi * 0, 0, Step("reflected", 0.005, 5.0, seed=1))
    assert end.phi.std() == pytest.approx(np.sqrt(0.01 * 5.0), rel=0.02)


# The prior's law ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("k", "n_rows"), [(10, 12_000), (50, 3_000)])
def test_split_step_keeps_the_prior(k: int, n_rows: int) -> None:
    """No data, alpha = 1/K: after some steps the rows have mean sum 1 and Dirichlet's mean largest membership.

    The coordinates of all rows are one long row here, since without data they do not see each other.
    """
    phi = np.random.default_rng(7).exponential(size=k * n_rows)
    for iteration in range(8):
        step = Step("split", 1.0, 1 / k, seed=11, iteration=iteration)
        phi = equations.end_row(phi, phi, phi * 0, phi * 0, 0, step).phi
    table = phi.reshape(n_rows, k)
    sums = table.sum(axis=1)
    assert sums.mean() == pytest.approx(1.0, abs=max(0.05, 4 / np.sqrt(n_rows)))
    assert sums.var() == pytest.approx(1.0, rel=0.15)
    largest = (table / sums[:, None]).max(axis=1).mean()
    exact = np.random.default_rng(8).gamma(1 / k, size=(200_000, k))
    exact = np.maximum(exact, FLOOR)
    assert largest == pytest.approx((exact.max(axis=1) / exact.sum(axis=1)).mean(), abs=0.02)


@pytest.mark.slow
def test_reflected_step_flattens_the_prior() -> None:
    """Why split is the default: the reflected step has a mean sum of 2.1 instead of 1 at K = 10, eps = 0.01."""
    phi = np.random.default_rng(9).gamma(0.1, size=20_000)
    for iteration in range(600):
        step = Step("reflected", 0.005, 0.1, seed=12, iteration=iteration)
        phi = equations.end_row(phi, phi, phi * 0, phi * 0, 0, step).phi
    assert 1.8 < phi.mean() * 10 < 2.4


def test_start_is_dirichlet_and_does_not_depend_on_the_order_of_vertices() -> None:
    one, sums = equations.initial_rows(5, [3, 1, 2], 37)
    other, _ = equations.initial_rows(5, [1, 2, 3], 37)
    assert np.array_equal(one[0], other[2])
    assert np.allclose(one.sum(axis=1), 1)
    assert sums.mean() == pytest.approx(37, rel=0.5)
