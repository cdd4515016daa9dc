"""R-hat and effective sample sizes of draws (Vehtari, Gelman, Simpson, Carpenter and Bürkner 2021).

All functions take draws ``[C, T, Q]``: T draws by each of C chains, of Q quantities.  Every chain is split into halves,
so that one chain is enough.  NaN stands for a quantity that never changes or is NaN, and for fewer than four draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
#: Fewest draws of a chain that say anything.
LEAST_DRAWS = 4
#: Numbers diagnosed at a time.
_ELEMENTS = 1 << 20


class Mixing(NamedTuple):
    """Diagnostics ``[Q]`` of Q quantities.

    ``r_hat`` is the larger of the rank-normalised split R-hat of the draws and of their distances to the median.
    ``ess_bulk`` is the effective sample size of ranks, ``ess_tail`` the smaller one of the 5 % and 95 % quantiles.
    """

    r_hat: Floats
    ess_bulk: Floats
    ess_tail: Floats


def mixing(draws: npt.NDArray[np.floating[Any]], tell: Callable[[float], None] = lambda share: None) -> Mixing:
    """R-hat and effective sample sizes of draws ``[C, T, Q]``; ``tell`` is called with the share of Q that is done."""
    chains, count, width = draws.shape
    found = np.full((len(Mixing._fields), width), np.nan)
    step = max(1, _ELEMENTS // max(1, chains * count))
    for first in range(0, width if count >= LEAST_DRAWS else 0, step):
        part = slice(first, first + step)
        found[:, part] = _mixing(draws[:, :, part].astype(np.float64))
        tell(min(1.0, (first + step) / width))
    return Mixing(*found)


def _mixing(draws: Floats) -> Mixing:
    halves = split(draws)
    ranks = normal_scores(halves)
    folded = normal_scores(np.abs(halves - np.median(halves, axis=(0, 1))))
    low, high = np.quantile(draws, (0.05, 0.95), axis=(0, 1))
    tails = [effective(split((draws <= at).astype(np.float64))) for at in (low, high)]
    varies = np.ptp(draws, axis=(0, 1)) > 0
    found = Mixing(np.fmax(r_hat(ranks), r_hat(folded)), effective(ranks), np.minimum(*tails))
    return Mixing(*(np.where(varies, values, np.nan) for values in found))


def split(draws: Floats) -> Floats:
    """The halves of every chain as chains, ``[2 C, T // 2, Q]``; of an odd number the middle draw is left out."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def normal_scores(draws: Floats) -> Floats:
    """The normal quantiles of the ranks of ``draws`` ``[C, T, Q]`` among all of a quantity, eq. (14) of the paper."""
    from scipy.special import ndtri
    from scipy.stats import rankdata  # takes half a second

    flat = draws.reshape(-1, draws.shape[2])
    found: Floats = ndtri((rankdata(flat, axis=0) - 0.375) / (len(flat) + 0.25))
    return found.reshape(draws.shape)


def r_hat(chains: Floats) -> Floats:
    """The potential scale reduction ``[Q]`` of ``chains`` ``[C, T, Q]``, eq. (4)."""
    count = chains.shape[1]
    between = count * chains.mean(axis=1).var(axis=0, ddof=1)
    within = chains.var(axis=1, ddof=1).mean(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Floats = np.sqrt((between / within + count - 1) / count)
    return found


def effective(chains: Floats) -> Floats:
    """The effective sample size ``[Q]`` of ``chains`` ``[C, T, Q]``, eq. (10); C T for what never changes.

    Autocorrelations are summed to the end of Geyer's initial positive sequence, made monotone.
    """
    n_chains, count, width = chains.shape
    covariances = _autocovariances(chains)
    within = covariances[0] * count / (count - 1)
    total = covariances[0] + (chains.mean(axis=1).var(axis=0, ddof=1) if n_chains > 1 else 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = 1.0 - (within - covariances) / total
    rho[0] = 1.0
    n_pairs = max(1, (count - 1) // 2)
    even, odd = rho[: 2 * n_pairs : 2], rho[1 : 2 * n_pairs : 2]
    pairs = even + odd
    # The pairs before the first that is not positive; the last one is never counted as a whole.
    stops = np.where((pairs <= 0).any(axis=0), (pairs <= 0).argmax(axis=0), n_pairs - 1)
    counted = np.arange(n_pairs)[:, None] < stops
    sums = np.where(counted, np.minimum.accumulate(pairs, axis=0), 0.0).sum(axis=0)
    each = np.arange(width)
    end = even[stops, each]
    tau = 2 * sums - 1 + np.where((end > 0) | (pairs[stops, each] >= 0), end, 0.0)
    size = n_chains * count
    found: Floats = np.where(total > 0, size / np.maximum(tau, 1 / math.log10(size)), size)
    return found


def _autocovariances(chains: Floats) -> Floats:
    """Autocovariances ``[T, Q]`` by lag, divided by T, in the mean over the chains."""
    count = chains.shape[1]
    centred = chains - chains.mean(axis=1, keepdims=True)
    # Zeros behind the draws keep the two ends of a chain apart.
    spectrum = np.fft.rfft(centred, n=2 * count, axis=1)
    power = (spectrum.real**2 + spectrum.imag**2).mean(axis=0)
    found: Floats = np.fft.irfft(power, n=2 * count, axis=0)[:count] / count
    return found
