"""Means and standard deviations over the samples of a chain, and intervals that have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import plural

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
#: Least parameter of a Beta law; quantiles of smaller ones are 0 or 1 in double precision.
_LEAST = 1e-3
#: Halvings of the range in which a quantile of several chains lies.
_HALVINGS = 40
#: What the arrays are, by their names in files, and those that stand for them in files with all of pi.
ARRAYS = {
    "mean": "posterior mean of pi, at the entries that `communities` names",
    "sd": "posterior standard deviation of pi, at the same entries",
    "beta_mean": "posterior mean of the strengths",
    "beta_sd": "posterior standard deviation of the strengths",
    "mean_codes": "posterior mean of all of pi, round(255 sqrt(mean))",
    "sd_codes": "posterior standard deviation of all of pi, round(255 sqrt(sd))",
    "prior_sum": "sum of the parameters of the Dirichlet prior, K alpha",
}
WHOLE_ARRAYS = {
    "pi_mean": "posterior mean of all of pi",
    "pi_sd": "posterior standard deviation of all of pi",
    **{name: ARRAYS[name] for name in ("beta_mean", "beta_sd", "prior_sum")},
}


@dataclass(frozen=True)
class Posterior:
    """Means and standard deviations over the samples of one chain, with columns as its memberships have them.

    ``mean`` and ``sd`` ``[N, r]`` are of the stored entries of pi, ``beta_mean`` and ``beta_sd`` ``[W]`` of the
    strengths.  ``mean_codes`` and ``sd_codes`` ``[N, W]`` hold all of pi in one byte an entry, or nothing.
    ``prior_sum`` is K alpha.
    """

    mean: Array
    sd: Array
    beta_mean: Floats
    beta_sd: Floats
    mean_codes: npt.NDArray[np.uint8] = field(default_factory=lambda: np.zeros((0, 0), np.uint8))
    sd_codes: npt.NDArray[np.uint8] = field(default_factory=lambda: np.zeros((0, 0), np.uint8))
    prior_sum: float = 1.0

    def __repr__(self) -> str:
        return f"<Posterior: {plural(len(self.mean), 'vertex', 'vertices')}, {self.mean.shape[1]} entries of each>"

    def arrays(self) -> dict[str, Array]:
        """The arrays for a file."""
        return {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Array], prefix: str, indices: Array, width: int) -> Self | None:
        """The inverse of :meth:`arrays`, for names with a ``prefix``; None if there are none.

        Raises ValueError or KeyError for arrays that do not fit memberships with ``indices`` ``[N, r]`` and ``width``
        columns.
        """
        if f"{prefix}beta_sd" not in arrays:
            return None
        given: dict[str, Any] = {field.name: arrays[f"{prefix}{field.name}"] for field in fields(cls)}
        made = cls(**given | {"prior_sum": float(given["prior_sum"])})
        all_of_pi = ((0, 0), (len(indices), width))
        if (
            made.mean.shape != indices.shape
            or made.sd.shape != indices.shape
            or not made.beta_mean.shape == made.beta_sd.shape == (width,)
            or not made.mean_codes.shape == made.sd_codes.shape
            or made.mean_codes.shape not in all_of_pi
        ):
            raise ValueError("its posterior means do not fit its memberships")
        return made


class MomentRows(NamedTuple):
    """Posterior means and variances ``[P, W]`` of some rows of pi."""

    mean: Floats
    variance: Floats


def link_moments(a: MomentRows, b: MomentRows, posterior: Posterior, delta: float) -> tuple[Floats, Floats]:
    """Posterior mean and variance ``[P]`` of p(link), eq. (2.2), of pairs with the rows ``a`` and ``b``.

    Rows of different vertices and strengths count as independent; entries of one row are correlated as in a Dirichlet
    law with the same total variance.  With c = beta - delta, p = delta + sum_k a_k b_k c_k, so that

        E[p] = delta + sum_k E[a_k] E[b_k] E[c_k],
        E[(p - delta)^2] = sum_kl E[a_k a_l] E[b_k b_l] E[c_k c_l].
    """
    c, w = posterior.beta_mean - delta, posterior.beta_sd**2
    terms = a.mean * b.mean * c
    total, squares = terms.sum(axis=1), (terms**2).sum(axis=1)
    same = ((a.mean**2 + a.variance) * (b.mean**2 + b.variance) * (c**2 + w)).sum(axis=1)
    # E[a_k a_l] = f E[a_k] E[a_l] for k != l.
    factor = _together(a) * _together(b)
    variance = same - squares + (factor - 1.0) * (total**2 - squares)
    return delta + total, variance.clip(min=0.0)


def _together(rows: MomentRows) -> Floats:
    """E[a_k a_l] over E[a_k] E[a_l] in a Dirichlet law with the means and the total variance of each row."""
    most = 1.0 - (rows.mean**2).sum(axis=1)
    share = np.divide(rows.variance.sum(axis=1), most, out=np.zeros(len(most)), where=most > 1e-12)
    factor: Floats = (1.0 - share).clip(0.0, 1.0)
    return factor


def checked_level(interval: float) -> float:
    """The probability of an interval; raises :class:`InputError` unless it is between 0 and 1."""
    if not (isinstance(interval, int | float | np.number) and 0 < interval < 1):
        raise InputError(f"interval={interval!r}: it is the probability of the interval, such as 0.9")
    return float(interval)


def beta_interval(moments: Sequence[tuple[Floats, Floats]], level: float) -> Floats:
    """Equal-tailed intervals ``[..., 2]`` of quantities between 0 and 1 with these means and variances, one a chain.

    Each chain's law is the Beta law with its moments; with several chains it is their mixture in equal parts.
    """
    from scipy import special

    laws = [_beta(mean, variance) for mean, variance in moments]
    tails = (1 - level) / 2, (1 + level) / 2
    return np.stack([_quantile(special, laws, tail) for tail in tails], axis=-1)


def _beta(mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Parameters of the Beta law with this mean and variance; the widest there is, if the variance is too large."""
    mean = np.asarray(mean, np.float64).clip(1e-12, 1 - 1e-12)
    most = mean * (1 - mean)
    precision = most / np.asarray(variance, np.float64).clip(1e-12 * most, most) - 1.0
    return np.maximum(mean * precision, _LEAST), np.maximum((1 - mean) * precision, _LEAST)


def _quantile(special: Any, laws: list[tuple[Floats, Floats]], at: float) -> Floats:
    each: Floats = np.stack([special.betaincinv(a, b, at) for a, b in laws])
    low: Floats = each.min(axis=0)
    high: Floats = each.max(axis=0)
    if len(laws) == 1:
        return low
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        above = np.mean([special.betainc(a, b, middle) for a, b in laws], axis=0) >= at
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    found: Floats = (low + high) / 2
    return found
