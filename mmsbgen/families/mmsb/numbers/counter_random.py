"""Counter-based random numbers in NumPy: the reference of the templates in ``templates/mmsb/draws``.

Philox4x32-7 (Salmon, Moraes, Dror, Shaw 2011).  The key is the seed; the counter is (index, vertex, iteration,
purpose and draw).  The words therefore do not depend on the launch shape, and no two purposes share words.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.families.mmsb.numbers.row_layout import MAX_DRAWS, PHILOX_ROUNDS, Purpose

Words = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]

_MASK = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)


def philox(
    seed: int, index: Any, vertex: Any, iteration: Any, tag: Any, rounds: int = PHILOX_ROUNDS
) -> tuple[Words, Words, Words, Words]:
    """Four arrays of 32-bit random words (dtype uint64) for broadcastable counters.

    ``tag`` is the last counter word: purpose in the upper byte, number of the draw in the lower three.
    """
    counters = np.broadcast_arrays(*(np.asarray(c, dtype=np.uint64) for c in (index, vertex, iteration, tag)))
    c0, c1, c2, c3 = (np.array(c) for c in counters)
    k0, k1 = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF
    for _ in range(rounds):
        p0, p1 = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (
            (p1 >> _SHIFT) ^ c1 ^ np.uint64(k0),
            p1 & _MASK,
            (p0 >> _SHIFT) ^ c3 ^ np.uint64(k1),
            p0 & _MASK,
        )
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


def unit(words: Words) -> Floats:
    """The upper 23 bits of 32-bit words as numbers in (0, 1), exact in single and in double precision."""
    return ((words >> np.uint64(9)).astype(np.float64) + 0.5) * 2.0**-23


def uniforms(seed: int, k: Any, vertex: Any, iteration: int, purpose: int) -> tuple[Floats, Floats]:
    """The two uniforms of coordinates ``k``: words 0 and 1 of call ``k // 2`` where k is even, 2 and 3 where odd."""
    k, vertex = np.broadcast_arrays(np.asarray(k, dtype=np.uint64), np.asarray(vertex, dtype=np.uint64))
    r = philox(seed, k >> np.uint64(1), vertex, iteration, purpose << 24)
    odd = (k & np.uint64(1)).astype(bool)
    return unit(np.where(odd, r[2], r[0])), unit(np.where(odd, r[3], r[1]))


def normals(seed: int, k: Any, vertex: Any, iteration: int, purpose: int) -> Floats:
    """Standard normals of coordinates ``k`` by Box and Muller; the sine of each pair is not used."""
    u1, u2 = uniforms(seed, k, vertex, iteration, purpose)
    return np.sqrt(-2.0 * np.log(u1)) * np.cos(2.0 * np.pi * u2)


def pair_normals(seed: int, k: Any, vertex: Any, iteration: Any, purpose: int) -> Floats:
    """Standard normals of coordinates ``k`` by Box and Muller: 2j and 2j + 1 have the cosine and the sine of one angle.

    Both use the two uniforms that :func:`uniforms` returns for coordinate j.
    """
    k = np.asarray(k, dtype=np.uint64)
    u1, u2 = uniforms(seed, k >> np.uint64(1), vertex, iteration, purpose)
    angle, odd = 2.0 * np.pi * u2, (k & np.uint64(1)).astype(bool)
    return np.sqrt(-2.0 * np.log(u1)) * np.where(odd, np.sin(angle), np.cos(angle))


def below(seed: int, j: Any, vertex: Any, iteration: Any, purpose: int, bound: Any) -> npt.NDArray[np.int64]:
    """Draw ``j`` of ``vertex``, an integer in [0, bound): ``floor(r * bound / 2**64)`` for 64 random bits r.

    ``bound`` is below 2**32; the relative bias of any value is at most bound / 2**64.
    """
    j = np.asarray(j, dtype=np.uint64)
    r = philox(seed, j >> np.uint64(1), vertex, iteration, purpose << 24)
    odd = (j & np.uint64(1)).astype(bool)
    high, low = np.where(odd, r[2], r[0]), np.where(odd, r[3], r[1])
    bound = np.asarray(bound, dtype=np.uint64)
    drawn: npt.NDArray[np.int64] = ((high * bound + (low * bound >> _SHIFT)) >> _SHIFT).astype(np.int64)
    return drawn


def permuted(seed: int, vertex: int, iteration: int, n: int) -> npt.NDArray[np.int64]:
    """The random permutation of ``range(n)`` drawn for (``seed``, ``vertex``, ``iteration``), ``[n]``.

    Eight rounds of an unbalanced Feistel network over the smallest power of two that is at least ``n`` and 256, with
    murmur3's finaliser as the round function.  Values outside ``range(n)`` pass through it again (cycle walking; Black
    and Rogaway 2002).  The first elements are a sample without replacement; each can be computed on its own.
    """
    words = [word for call in range(2) for word in philox(seed, call, vertex, iteration, Purpose.mini_batch_pair << 24)]
    bits = max(8, int(n - 1).bit_length())
    low = np.uint64(bits - bits // 2)
    masks = np.uint64((1 << (bits // 2)) - 1), np.uint64((1 << int(low)) - 1)
    every = np.arange(1 << bits, dtype=np.uint64)
    left, right = every >> low, every & masks[1]
    for number, key in enumerate(words):
        if number % 2:
            right = (right ^ _finalised(left + key)) & masks[1]
        else:
            left = (left ^ _finalised(right + key)) & masks[0]
    after: npt.NDArray[np.int64] = (left << low | right).astype(np.int64)
    drawn = after[:n]
    while np.any(outside := drawn >= n):
        drawn = np.where(outside, after[drawn], drawn)
    return drawn


def _finalised(h: Words) -> Words:
    """The finaliser of murmur3 on the lower 32 bits."""
    h = h & _MASK
    h ^= h >> np.uint64(16)
    h = h * np.uint64(0x85EBCA6B) & _MASK
    h ^= h >> np.uint64(13)
    h = h * np.uint64(0xC2B2AE35) & _MASK
    return h ^ h >> np.uint64(16)


def _stirling(k: Floats) -> Floats:
    return 0.5 * np.log(2.0 * np.pi * k) + (1 / 12 - (1 / 360) / (k * k)) / k


def poisson(rate: Any, u: Any, seed: int, k: Any, vertex: Any, iteration: int) -> Floats:
    """Poisson draws, float64, for broadcastable ``rate``, ``u``, ``k`` and ``vertex``.

    Rates below 10 use inversion of the uniform ``u``.  Larger rates use PTRS (Hoermann 1993, "The transformed rejection
    method for generating Poisson random variables") with separate random words.
    """
    rate, u, k, vertex = np.broadcast_arrays(np.asarray(rate, np.float64), u, k, vertex)
    out: Floats = np.floor(rate + 0.5)
    low = rate < 10.0
    if np.any(low):
        out[low] = _poisson_inversion(rate[low], u[low])
    pending = np.flatnonzero(~low)
    flat_rate, flat_k, flat_vertex, flat = rate.ravel(), k.ravel(), vertex.ravel(), out.reshape(-1)
    for draw in range(MAX_DRAWS):
        if not pending.size:
            break
        r = philox(seed, flat_k[pending], flat_vertex[pending], iteration, (Purpose.phi_poisson << 24) + draw)
        value, taken = _ptrs(flat_rate[pending], unit(r[0]) - 0.5, unit(r[1]))
        flat[pending[taken]] = value[taken]
        pending = pending[~taken]
    return out


def _poisson_inversion(rate: Floats, u: Floats) -> Floats:
    n, p = np.zeros_like(rate), np.exp(-rate)
    total = p.copy()
    going = u > total
    while np.any(going):
        n[going] += 1.0
        p[going] *= rate[going] / n[going]
        total[going] += p[going]
        # The sum of rounded terms may stay below the largest u; the remaining terms are then negligible.
        going = (u > total) & (p > 1e-9)
    return n


def _ptrs(rate: Floats, u: Floats, v: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
    b = 0.931 + 2.53 * np.sqrt(rate)
    a = -0.059 + 0.02483 * b
    us = 0.5 - np.abs(u)
    n = np.floor((2.0 * a / us + b) * u + rate + 0.43)
    squeeze = (us >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2.0))
    refused = (n < 0) | ((us < 0.013) & (v > us))
    left = np.log(v * (1.1239 + 1.1328 / (b - 3.4)) / (a / (us * us) + b))
    safe = np.maximum(n, 1.0)
    x = (rate - safe) / safe
    right = np.where(n > 0, safe * (np.log1p(x) - x) - _stirling(safe), -rate)
    return n, squeeze | (~refused & (left <= right))


def gamma(shape: Any, u: Any, v: Any, seed: int, k: Any, vertex: Any, iteration: int) -> Floats:
    """Gamma(shape, 1) draws, float64; they may underflow to 0, so callers apply a floor.

    Shapes of at least 1 use Marsaglia and Tsang (2000).  Smaller shapes use GS of Ahrens and Dieter (1974) in
    logarithms; its first attempt uses the uniforms ``u`` and ``v``.
    """
    shape, u, v, k, vertex = np.broadcast_arrays(np.asarray(shape, np.float64), u, v, k, vertex)
    flat_shape, flat_k, flat_vertex = shape.ravel(), np.ravel(k), np.ravel(vertex)
    first = np.ravel(u), np.ravel(v)
    out: Floats = np.where(shape < 1, shape, shape - 1 / 3)
    g = out.reshape(-1)
    pending = np.arange(flat_shape.size)
    for draw in range(MAX_DRAWS):
        if not pending.size:
            break
        r = philox(seed, flat_k[pending], flat_vertex[pending], iteration, (Purpose.phi_gamma << 24) + draw)
        uniform = (unit(r[1]), unit(r[0])) if draw else (first[0][pending], first[1][pending])
        small = flat_shape[pending] < 1
        value, accepted = np.empty(pending.size), np.empty(pending.size, bool)
        at = pending[small]
        value[small], accepted[small] = _ahrens_dieter(flat_shape[at], uniform[0][small], uniform[1][small])
        at = pending[~small]
        value[~small], accepted[~small] = _marsaglia_tsang(flat_shape[at], tuple(w[~small] for w in r))
        g[pending[accepted]] = value[accepted]
        pending = pending[~accepted]
    return out


def _ahrens_dieter(shape: Floats, u: Floats, v: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
    b = 1.0 + shape / np.e
    log_p = np.log1p(shape / np.e) + np.log(u)
    body = log_p <= 0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        x = np.where(body, np.exp(log_p / shape), -np.log((b - b * u) / shape))
        accepted = np.where(body, v <= np.exp(-x), np.log(v) <= (shape - 1.0) * np.log(x))
    return x, accepted


def _marsaglia_tsang(shape: Floats, r: tuple[Words, ...]) -> tuple[Floats, npt.NDArray[np.bool_]]:
    d = shape - 1 / 3
    z = np.sqrt(-2.0 * np.log(unit(r[0]))) * np.cos(2.0 * np.pi * unit(r[1]))
    cz = z / np.sqrt(9.0 * d)
    w = cz * (3.0 + cz * (3.0 + cz))
    with np.errstate(invalid="ignore", divide="ignore"):
        accepted = np.log(unit(r[2])) < 0.5 * z * z + d * (np.log1p(w) - w)
    return d * (1.0 + w), accepted & (cz > -1.0)
