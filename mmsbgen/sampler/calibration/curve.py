"""A monotone curve from the model's link probabilities to the share of pairs that are linked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

#: Range of probabilities whose log odds are finite.
_LEAST, _MOST = 1e-300, 1.0 - 1e-16
#: Most points of a curve, and fewest links for each.
_POINTS, _LINKS_A_POINT = 64, 4
#: Prior variance of a correction of log odds: at the first point, and what is added from there on, per unit of log odds
#: and in all.
_VARIANCE, _PER_UNIT, _IN_ALL = 9.0, 0.3, 2.0
#: Least probability from which another curve gives the shape, and the part of the variance that is added there.
_SHAPED_FROM, _PART = 0.1, 1 / 3
#: Smallest slope in log odds, so that no two probabilities become one and AUC stays.
_SLOPE = 0.05
#: Most Newton steps, and the decrease of the objective that ends them.
_STEPS, _DECREASE = 50, 1e-8


@dataclass(frozen=True)
class CalibrationCurve:
    """A strictly increasing map of probabilities, piecewise linear in log odds, with slope 1 at both ends.

    ``points`` ``[J]`` are log odds of the model's link probabilities, ascending; ``values`` ``[J]`` what they become.
    """

    points: Floats
    values: Floats

    def __call__(self, p: Floats) -> Floats:
        """Calibrated probabilities ``[P]`` of the model's ``p`` ``[P]``."""
        x = log_odds(p)
        return probabilities(x + self.corrections(x))

    def corrections(self, x: Floats) -> Floats:
        """What is added to the log odds ``x`` ``[P]`` of the model's probabilities."""
        found: Floats = np.interp(x, self.points, self.values - self.points)
        return found


def to_array(curve: CalibrationCurve | None) -> Floats:
    """Points and values ``[2, J]`` of a curve for a file; J is 0 for none."""
    return np.zeros((2, 0)) if curve is None else np.stack([curve.points, curve.values])


def from_array(array: npt.NDArray[Any]) -> CalibrationCurve | None:
    """The inverse of :func:`to_array`; raises ValueError for an array that is no curve."""
    if array.ndim != 2 or len(array) != 2 or not np.isfinite(array).all() or (np.diff(array, axis=1) <= 0).any():
        raise ValueError("its calibration is no increasing curve")
    return CalibrationCurve(*array.astype(np.float64)) if array.size else None


def log_odds(p: Floats) -> Floats:
    """log(p / (1 - p)) ``[P]`` of probabilities ``[P]``."""
    inside = np.clip(p, _LEAST, _MOST)
    odds: Floats = np.log(inside) - np.log1p(-inside)
    return odds


def probabilities(odds: Floats) -> Floats:
    """The inverse of :func:`log_odds`."""
    found: Floats = np.exp(-np.logaddexp(0.0, -odds))
    return found


def fitted(
    p: Floats, links: Bools, rates: Floats, shape: CalibrationCurve | None = None, most_points: int = _POINTS
) -> CalibrationCurve:
    """The curve c that makes a sample of pairs likeliest, by logistic regression with a smooth prior.

    ``p`` ``[S]`` are the model's probabilities, ``links`` ``[S]`` says which pairs are links.  A pair comes into the
    sample ``rates`` ``[S]`` times as often if it is a link, so that the log odds of a link in the sample are those of
    c(p) plus log(rate) (Prentice and Pyke 1979).  Rates may differ from pair to pair.

    c corrects the model's log odds at quantiles of the links'.  By the prior of the regression, corrections are a
    random walk over these points, so that few pairs change little.  From a probability of 0.1 on, the walk has the
    points of ``shape`` and goes around its corrections, less far.  Where the estimate would fall, it is averaged
    (isotonic regression).  The curve has ``most_points`` at most.
    """
    x = log_odds(p)
    points = _points(x[links], most_points)
    mean, part = np.zeros(points.size), np.ones(points.size)
    begin = log_odds(np.array([_SHAPED_FROM]))
    if shape is not None and shape.points[-1] > begin:
        points = np.concatenate([points[points <= begin], shape.points[shape.points > begin]])
        mean = shape.corrections(np.maximum(points, begin)) - shape.corrections(begin)
        part = np.where(points > begin, _PART, 1.0)
    added = part[1:] * (_PER_UNIT * np.diff(points) + _IN_ALL / points.size)
    scales = np.sqrt(np.concatenate([[_VARIANCE], added]))
    walk = (np.eye(points.size) - np.eye(points.size, k=-1)) / scales[:, None]
    at = _Interpolation(x, points)
    correction = mean + _largest_posterior(at, links, x + at(mean) + np.log(rates), walk.T @ walk)
    tilt = _SLOPE * points
    return CalibrationCurve(points, _increasing(points + correction - tilt) + tilt)


def _points(x: Floats, most: int) -> Floats:
    """Points of a curve ``[J]``, 1 <= J <= ``most``: quantiles of the links' log odds ``x``, distinct."""
    count = max(1, min(most, x.size // _LINKS_A_POINT))
    points = np.quantile(x, (np.arange(count) + 0.5) / count)
    distinct: Floats = points[np.concatenate([[True], np.diff(points) > 1e-6])]
    return distinct


class _Interpolation:
    """Linear interpolation of values at ``points`` ``[J]``, at each of ``x`` ``[S]``; constant beyond the ends."""

    def __init__(self, x: Floats, points: Floats) -> None:
        self._left = np.clip(np.searchsorted(points, x, side="right") - 1, 0, max(0, points.size - 2))
        self._right = np.minimum(self._left + 1, points.size - 1)
        width = np.where(self._right > self._left, points[self._right] - points[self._left], 1.0)
        self._share = np.clip((x - points[self._left]) / width, 0.0, 1.0)
        self._size = points.size

    def __call__(self, values: Floats) -> Floats:
        """The interpolated values ``[S]``."""
        found: Floats = (1.0 - self._share) * values[self._left] + self._share * values[self._right]
        return found

    def sums(self, terms: Floats) -> Floats:
        """The transposed interpolation of ``terms`` ``[S]``: ``[J]``."""
        left, right = (1.0 - self._share) * terms, self._share * terms
        found = np.bincount(self._left, left, self._size) + np.bincount(self._right, right, self._size)
        return found.astype(np.float64)

    def products(self, weights: Floats) -> Floats:
        """The sum ``[J, J]`` of outer products of the interpolation's coefficients, each times its weight."""
        found = np.zeros((self._size, self._size))
        both = ((self._left, 1.0 - self._share), (self._right, self._share))
        for i, a in both:
            for j, b in both:
                np.add.at(found, (i, j), weights * a * b)
        return found


def _largest_posterior(at: _Interpolation, links: Bools, offset: Floats, precision: Floats) -> Floats:
    """The mode ``[J]`` of a logistic regression with offsets and a normal prior of mean 0, by Newton's method."""

    def objective(w: Floats) -> float:
        z = at(w) + offset
        return float((np.logaddexp(0.0, z) - links * z).sum() + 0.5 * w @ precision @ w)

    w = np.zeros(len(precision))
    before = objective(w)
    for _ in range(_STEPS):
        p = probabilities(at(w) + offset)
        slope = at.sums(p - links) + precision @ w
        step = np.linalg.solve(at.products(p * (1.0 - p)) + precision, slope)
        scale = 1.0
        while (after := objective(w - scale * step)) > before and scale > 1e-6:
            scale /= 2
        w = w - scale * step
        if before - after < _DECREASE * (1.0 + abs(before)):
            break
        before = after
    return w


def _increasing(values: Floats) -> Floats:
    """The nearest non-decreasing ``values`` ``[J]``: at j the largest over i <= j of the least mean of i to k >= j."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    first, last = np.arange(values.size)[:, None], np.arange(values.size)
    means = np.where(last >= first, (sums[last + 1] - sums[first]) / np.maximum(last - first + 1, 1), np.inf)
    least = np.minimum.accumulate(means[:, ::-1], axis=1)[:, ::-1]
    increasing: Floats = np.where(last >= first, least, -np.inf).max(axis=0)
    return increasing
