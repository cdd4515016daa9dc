"""Exact laws that chains are compared with, draws from them, and estimates with standard errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import integrate, special

from mmsbgen.families.mmsb.numbers.row_layout import FLOOR

Floats = npt.NDArray[np.float64]


def exact_dirichlet(concentrations: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation of every coordinate of a Dirichlet law."""
    total = concentrations.sum()
    mean = concentrations / total
    return mean, np.sqrt(mean * (1 - mean) / (total + 1))


def mean_largest(k: int, alpha: float) -> float:
    """The mean of the largest coordinate of Dirichlet(alpha, ..., alpha) in ``k`` dimensions, by quadrature.

    Gamma(alpha) variables are their sum, of mean k alpha, times independent Dirichlet coordinates; the mean of the
    largest of them is the integral of 1 - F^k.
    """

    def tail(log_x: float) -> float:
        x = np.exp(log_x)
        return float(-np.expm1(k * np.log(special.gammainc(alpha, x))) * x)

    value, error = integrate.quad(tail, -60.0, 6.0, limit=400, epsabs=1e-10)
    assert error < 1e-6
    return float(value) / (k * alpha)


def dirichlet_rows(rng: np.random.Generator, alpha: float, m: int, k: int) -> tuple[Floats, Floats]:
    """``m`` rows of Gamma(alpha, 1) coordinates, floored: memberships ``[m, k]`` and sums ``[m]``.

    Small shapes by U^(1/alpha) in logarithms, as a library may underflow to 0 for a whole row.
    """
    log_phi = np.log(rng.gamma(alpha + 1, size=(m, k))) + np.log(rng.random((m, k))) / alpha
    phi = np.maximum(np.exp(np.maximum(log_phi, -200.0)), FLOOR)
    sums = phi.sum(axis=1)
    return phi / sums[:, None], sums


class Moments:
    """Mean and standard deviation of some quantities over independent chains and over time, with their errors.

    :meth:`add` takes ``[M, Q]``: Q quantities of M chains.  Standard errors come from the spread between chains, so
    that nothing need be known of the chains' memory.
    """

    def __init__(self, centre: Any) -> None:
        self.centre = np.asarray(centre, np.float64)
        self.count = 0
        self._first: Any = 0.0
        self._second: Any = 0.0

    def add(self, values: Any) -> None:
        """One look at all chains."""
        off = np.asarray(values, np.float64) - self.centre
        self._first = self._first + off
        self._second = self._second + off * off
        self.count += 1

    @property
    def chains(self) -> int:
        """M."""
        return len(self._first)

    @property
    def mean(self) -> Floats:
        """Means ``[Q]``."""
        return np.asarray(self.centre + self._first.mean(axis=0) / self.count)

    @property
    def mean_error(self) -> Floats:
        """Their standard errors ``[Q]``."""
        return np.asarray((self._first / self.count).std(axis=0, ddof=1) / np.sqrt(self.chains))

    @property
    def sd(self) -> Floats:
        """Standard deviations ``[Q]``."""
        return np.sqrt(self._second.mean(axis=0) / self.count - (self.mean - self.centre) ** 2)

    @property
    def sd_error(self) -> Floats:
        """Their standard errors ``[Q]``, by linearising the root."""
        shift = self.mean - self.centre
        each = self._second / self.count - 2 * shift * self._first / self.count
        return np.asarray(each.std(axis=0, ddof=1) / np.sqrt(self.chains) / (2 * self.sd))


def observe(advance: Callable[[int], None], look: Callable[[], Any], moments: Moments, looks: int, apart: int) -> None:
    """``looks`` looks at the chains, ``apart`` iterations from one to the next."""
    for _ in range(looks):
        advance(apart)
        moments.add(look())
