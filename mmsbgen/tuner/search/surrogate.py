"""A Gaussian process over configurations that selects the next measurement.

It predicts log seconds and their uncertainty from the measurements so far; the point with the largest expected
improvement is next (Jones, Schonlau and Welch, 1998).  It is implemented here because libraries for it would be the
package's largest dependency.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mmsbgen.kernels.space import Config

Matrix = npt.NDArray[Any]

#: Values tried for the length scale of the kernel, and the noise variance relative to the process's.
_LENGTHS = (0.3, 0.5, 0.8, 1.2, 2.0, 3.0)
_NOISE = 0.03
#: Scale of the cost model's features, where an axis has length 1.
MODELLED = 0.5


class SurrogateFit(NamedTuple):
    """Length scale of the kernel, and the log marginal likelihood."""

    length: float
    likelihood: float


def coordinates(configs: Sequence[Config]) -> Matrix:
    """Configurations as points ``[configurations, dimensions]`` with axes of length 1.

    Numbers are placed by their logarithm.  Two different words are at distance 1 from each other.  Axes with a single
    value are left out.
    """
    columns: list[Matrix] = []
    for name in configs[0]:
        values = [config[name] for config in configs]
        if len(set(values)) == 1:
            continue
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            place = np.log2(np.array(values, np.float64) + 1)
            columns.append((place - place.min()) / np.ptp(place))
        else:
            columns += [
                np.array([value == word for value in values], np.float64) / math.sqrt(2)
                for word in sorted(set(values), key=repr)
            ]
    return np.array(columns).T.reshape(len(configs), len(columns))


def fitted(points: Matrix, known: Sequence[int], values: Matrix) -> SurrogateFit:
    """Length scale with the largest marginal likelihood of ``values`` at the points ``known``."""
    centre, scale = float(values.mean()), float(values.std()) or 1.0
    target = (values - centre) / scale
    at = points[list(known)]
    between = _distances(at, at)
    best: SurrogateFit | None = None
    for length in _LENGTHS:
        factor = np.linalg.cholesky(_matern(between, length) + _NOISE * np.eye(len(target)))
        white = np.linalg.solve(factor, target)
        likelihood = float(-0.5 * white @ white - np.log(np.diag(factor)).sum()) - len(target) * math.log(scale)
        if best is None or likelihood > best.likelihood:
            best = SurrogateFit(length, likelihood)
    assert best is not None
    return best


def posterior(points: Matrix, known: Sequence[int], values: Matrix, fit: SurrogateFit) -> tuple[Matrix, Matrix]:
    """Mean and standard deviation at every point, given ``values`` at the points ``known``.

    The kernel is Matern's with smoothness 3/2.
    """
    centre, scale = float(values.mean()), float(values.std()) or 1.0
    at = points[list(known)]
    factor = np.linalg.cholesky(_matern(_distances(at, at), fit.length) + _NOISE * np.eye(len(known)))
    white = np.linalg.solve(factor, (values - centre) / scale)
    across = np.linalg.solve(factor, _matern(_distances(at, points), fit.length))
    variance = np.maximum(1e-9, 1 - (across**2).sum(axis=0))
    return centre + scale * (white @ across), scale * np.sqrt(variance)


def expected_improvement(mean: Matrix, deviation: Matrix, best: float) -> Matrix:
    """Expected amount by which a measurement falls below ``best``, for each mean and standard deviation."""
    gap = (best - mean) / deviation
    density = np.exp(-(gap**2) / 2) / math.sqrt(2 * math.pi)
    below = 0.5 * (1 + np.vectorize(math.erf)(gap / math.sqrt(2)))
    found: Matrix = deviation * (gap * below + density)
    return found


def _distances(a: Matrix, b: Matrix) -> Matrix:
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T
    found: Matrix = np.sqrt(np.maximum(squares, 0.0))
    return found


def _matern(distances: Matrix, length: float) -> Matrix:
    scaled = math.sqrt(3) * distances / length
    found: Matrix = (1 + scaled) * np.exp(-scaled)
    return found
