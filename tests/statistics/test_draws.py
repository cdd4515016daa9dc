"""One transition of the split step against its exact law, and noise that is not correlated.

The data flow phi' = phi G runs at frozen gradient; what follows is a noncentral chi-square variable: with
n ~ Poisson(rate), rate = phi e^-tau / (1 - e^-tau), phi' = (1 - e^-tau) Gamma(alpha + n) is (1 - e^-tau) / 2 times one
of 2 alpha degrees of freedom and noncentrality 2 rate.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import special, stats

from mmsbgen.backends import Device
from mmsbgen.families.mmsb.numbers import counter_random
from mmsbgen.families.mmsb.numbers.row_layout import FLOOR, Purpose
from mmsbgen.families.mmsb.reference import equations
from tests.statistics.laws import Floats
from tests.statistics.toys import ListedRows

#: Each comparison with a law has one chance in a million to fail for a right generator; seeds are fixed besides.
CHANCE = 1e-6
K, ROWS = 512, 1024
BETA = 0.5
#: Draws and law are censored here: the floor, with room for the rounding of a row's normalisation.
CENSOR = FLOOR * (1 + 1e-5)
#: Points of the law that are compared: fewer than there are draws, which can only make the distance smaller.
POINTS = 800


class Level(NamedTuple):
    """Where a transition starts: phi of all coordinates, and the flow tau G of even ones; odd ones have minus that."""

    phi: float
    flow: float


LEVELS = [
    Level(1e-19, 0.0),
    Level(1e-6, 0.5),
    Level(1e-3, -0.7),
    Level(0.02, 0.0),
    Level(0.3, 1.0),
    Level(1.0, 5.0),
    Level(20.0, 0.2),
    Level(0.008, -4.0),
]
SHAPES = [1 / 4096, 1 / 1024, 0.02, 0.1, 0.5, 1.0, 2.5]


def levels() -> list[tuple[Level, slice]]:
    each = ROWS // len(LEVELS)
    return [(level, slice(i * each, (i + 1) * each)) for i, level in enumerate(LEVELS)]


def start(tau: float) -> tuple[Floats, Floats, Floats, Floats]:
    """Memberships, sums, the anchor's row, and the weight of its link ``[ROWS, 1]`` that gives each level's flow."""
    pi, anchor = np.full((ROWS, K), 1 / K), np.where(np.arange(K) % 2, 0.0, 2 / K)
    drift, _ = equations.drift(pi[0], np.full(K, BETA), anchor[None], np.ones(1))
    assert drift[0] == pytest.approx(-drift[1], rel=1e-9)  # eq. (3.3): all pi_k D_k together are 0
    sums, weights = np.empty(ROWS), np.empty((ROWS, 1))
    for level, rows in levels():
        sums[rows] = K * level.phi
        weights[rows] = level.flow / tau * K * level.phi / drift[0]
    return pi, sums, anchor, weights


def transition(device: Device, alpha: float, tau: float, noise: bool, launches: int = 1) -> tuple[Floats, int]:
    """phi after one step, ``[launches * ROWS, K]`` with a level's rows in their place, and bounded coordinates.

    A negative weight would make the pair a non-link: the flow of negative levels comes from exchanging the anchor's
    communities instead.
    """
    pi, sums, anchor, weights = start(tau)
    anchors = np.stack([anchor, anchor[[*range(1, K), 0]]])
    options: dict[str, Any] = {"anchors": anchors, "beta": np.full(K, BETA), "alpha": alpha, "noise": noise, "seed": 41}
    partners = (weights < 0).astype(int)
    with ListedRows(device, pi, sums, 2 * tau, partners=partners, weights=abs(weights), **options) as rows:
        drawn = []
        for iteration in range(launches):
            # Always from the same rows: only the words differ.
            rows.iteration, rows._flip = iteration, False
            rows.advance(1)
            drawn.append(rows.phi())
        return np.stack(drawn, axis=1), rows.clips()


def moved(level: Level, parity: int) -> float:
    """phi after the flow, for even (0) and odd (1) coordinates; the exponent is bounded on both sides."""
    return float(level.phi * np.exp(np.clip(level.flow * (1 - 2 * parity), -3.0, 3.0)))


@pytest.mark.parametrize("tau", [5e-4, 0.015, 0.5])
def test_data_flow_is_exact_at_frozen_gradient(device: Device, tau: float) -> None:
    """Without draws: phi exp(tau G) e^-tau + alpha (1 - e^-tau), bounded flows counted."""
    alpha = 1 / 1024
    found, clips = transition(device, alpha, tau, noise=False)
    bounded = 0
    for level, rows in levels():
        bounded += K * (rows.stop - rows.start) * (abs(level.flow) > 3)
        for parity in (0, 1):
            right = moved(level, parity) * np.exp(-tau) - alpha * np.expm1(-tau)
            # Sums of K terms in single precision, and the flow's exponent of at most 5.
            np.testing.assert_allclose(found[rows, 0, parity::2], right, rtol=2e-5)
    assert clips == bounded


def law(alpha: float, tau: float, phi: float) -> tuple[Any, float, float, float]:
    """The distribution function of phi', its mean, variance and fourth central moment over the variance squared."""
    spread = -np.expm1(-tau)
    rate = phi * np.exp(-tau) / spread
    chi = stats.ncx2(2 * alpha, 2 * rate)
    mean, variance = spread * (alpha + rate), spread**2 * (alpha + 2 * rate)
    kurtosis = 3 + 12 * (2 * alpha + 8 * rate) / (2 * alpha + 4 * rate) ** 2
    return lambda x: chi.cdf(2 * np.asarray(x) / spread), mean, variance, kurtosis


@pytest.mark.parametrize("alpha", SHAPES)
def test_the_law_is_the_mixture_of_gammas(alpha: float) -> None:
    """The function that draws are compared with, against the sum over n that defines the step."""
    for tau, phi in ((0.5, 0.02), (0.015, 1e-3), (0.015, 0.3), (5e-4, 0.02)):
        cdf, mean, variance, _ = law(alpha, tau, phi)
        spread = -np.expm1(-tau)
        rate = phi * np.exp(-tau) / spread
        n = np.arange(int(rate + 12 * np.sqrt(rate) + 40))
        x = np.array([FLOOR, 1e-6, 1e-3, 0.5, 1.0, 2.0]) * np.array([1, 1, 1, mean, mean, mean])
        mixture = stats.poisson.pmf(n, rate) @ special.gammainc(alpha + n[:, None], x / spread)
        np.testing.assert_allclose(cdf(x), mixture, rtol=1e-6, atol=1e-9)
        chi = stats.ncx2(2 * alpha, 2 * rate)
        assert spread / 2 * chi.mean() == pytest.approx(mean, rel=1e-9)
        assert spread**2 / 4 * chi.var() == pytest.approx(variance, rel=1e-9)


def distance(drawn: Floats, cdf: Any, floor: float) -> float:
    """Kolmogorov and Smirnov's, at :data:`POINTS` of the draws, both sides censored at ``floor``."""
    count, above = drawn.size, np.sort(drawn[drawn > floor])
    below = count - above.size
    worst = abs(below / count - float(cdf(floor)))
    if above.size:
        at = np.unique(np.linspace(0, above.size - 1, POINTS).astype(int))
        chance = cdf(above[at])
        worst = max(worst, np.abs((below + at + 1) / count - chance).max(), np.abs((below + at) / count - chance).max())
    return float(worst)


def allowed(count: int) -> float:
    """The distance that draws of the right law exceed with :data:`CHANCE` at most (Dvoretzky, Kiefer, Wolfowitz)."""
    return float(np.sqrt(np.log(2 / CHANCE) / (2 * count)))


@pytest.mark.parametrize("tau", [5e-4, 0.015, 0.5])
@pytest.mark.parametrize("alpha", SHAPES)
def test_a_transition_is_noncentral_chi_square(device: Device, alpha: float, tau: float) -> None:
    """Moments within five standard errors, and Kolmogorov and Smirnov's distance; at any shape, in single precision."""
    # The smallest shapes leave a hundredth of the draws above the floor.
    found, _ = transition(device, alpha, tau, noise=True, launches=2 if alpha > 0.01 else 12)
    for level, rows in levels():
        for parity in (0, 1):
            drawn = found[rows, :, parity::2].ravel()
            cdf, mean, variance, kurtosis = law(alpha, tau, moved(level, parity))
            about = f"alpha {alpha:.3g}, tau {tau:.3g}, {level}, parity {parity}"
            assert abs(drawn.mean() - mean) < 5 * np.sqrt(variance / drawn.size), about
            second = ((drawn - mean) ** 2).mean()
            assert abs(second - variance) < 5 * variance * np.sqrt((kurtosis - 1) / drawn.size), about
            assert distance(drawn, cdf, CENSOR) < allowed(drawn.size), about
            # Shapes of a few thousandths leave little above the floor: how much, and the law of that by itself.
            share, above = 1 - float(cdf(CENSOR)), drawn[drawn > CENSOR]
            if share < 0.99:
                assert abs(above.size - share * drawn.size) < 5 * np.sqrt(share * (1 - share) * drawn.size), about
                rest = distance(above, lambda x, c=cdf, s=share: (c(x) - (1 - s)) / s, CENSOR)
                assert rest < allowed(above.size), about


# Correlation ---------------------------------------------------------------------------------------------------

LAGS = (1, 2, 3, 4, 8, 16, 32, 64, 128)


def correlation(a: Any, b: Any) -> float:
    return float(np.corrcoef(np.ravel(a), np.ravel(b))[0, 1])


def noise_of(device: Device, step: str) -> list[Floats]:
    """Draws of two iterations ``[512, 512]``, standardised, of a flat row without data."""
    tau, phi, size = 0.005, 1.0, 512
    pi, sums = np.full((size, size), 1 / size), np.full(size, size * phi)
    draws = []
    with ListedRows(device, pi, sums, 2 * tau, alpha=phi, step=step, seed=42) as rows:
        for iteration in range(2):
            rows.iteration, rows._flip = iteration, False
            rows.advance(1)
            draws.append((rows.phi() - phi) / np.sqrt(2 * tau * phi))
    return draws


@pytest.mark.parametrize("step", ["reflected", "split"])
def test_noise_is_not_correlated(device: Device, step: str) -> None:
    """Across coordinates, vertices, iterations, and both at once: below four standard errors."""
    first, second = noise_of(device, step)
    bound = 4 / np.sqrt(first.size)
    assert abs(first.mean()) < bound
    assert first.std() == pytest.approx(1.0, abs=5 / np.sqrt(2 * first.size) + 0.005)
    for lag in LAGS:
        bound = 4 / np.sqrt(first.size - lag * 512)
        assert abs(correlation(first[:, :-lag], first[:, lag:])) < bound, lag
        assert abs(correlation(first[:-lag], first[lag:])) < bound, lag
        assert abs(correlation(first[:-lag, :-lag], first[lag:, lag:])) < bound, lag
        assert abs(correlation(first[:, :-lag], second[:, lag:])) < bound, lag
    assert abs(correlation(first, second)) < bound
    assert abs(correlation(first, first.T[::-1])) < bound


def test_noise_of_the_reflected_step_is_the_generator_s(device: Device) -> None:
    """Coordinate by coordinate the normal deviate of (seed, k, vertex, iteration): none is used twice."""
    for iteration, found in enumerate(noise_of(device, "reflected")):
        index = np.arange(512)
        right = counter_random.pair_normals(42, index[None, :], index[:, None], iteration, Purpose.phi_uniform)
        # phi near 1 is known to 1e-7, and a standard deviation is 0.1.
        np.testing.assert_allclose(found, right, atol=2e-5 * (1 + np.abs(right).max()))


def test_shapes_above_one_do_not_fall_to_the_floor(device: Device) -> None:
    """Marsaglia and Tsang's cube near 0: an exponential draw is below 1e-6 with chance 1e-6, none at the floor."""
    tau, rows = 0.5, 2048
    with ListedRows(device, np.full((rows, K), 1 / K), np.full(rows, K * 1e-19), 2 * tau, alpha=1.0, seed=43) as chains:
        chains.advance(1)
        drawn = chains.phi().ravel() / -np.expm1(-tau)
    expected = 1e-6 * drawn.size
    assert np.count_nonzero(drawn < 1e-6) < expected + 5 * np.sqrt(expected) + 3
