"""Reference of the kernels for vertices with shared partners, in NumPy float64.

Together these functions implement the rules ``block``, ``shared`` and ``shared-uniform`` of
:func:`mmsbgen.families.mmsb.reference.equations.sample_partners`, followed by
:func:`mmsbgen.families.mmsb.reference.equations.drift`.
"""

from __future__ import annotations

import numpy as np

from mmsbgen.families.mmsb.numbers import counter_random
from mmsbgen.families.mmsb.numbers.row_layout import DELTA, Purpose
from mmsbgen.families.mmsb.reference import equations
from mmsbgen.families.mmsb.reference.equations import Bools, Floats, Ints

#: Vertex word in the counter of shared draws; no vertex of a graph has this number.
EVERYONE = 0xFFFFFFFF


def shared_partners(n: int, n_total: int, seed: int, iteration: int, whole: bool = False) -> tuple[Ints, Ints, Ints]:
    """The draws of an iteration ``[n]``, the distinct vertices in order of first draw, and their counts.

    With ``whole`` and n = N, as for stars, every vertex is taken once.
    """
    draws = counter_random.below(seed, np.arange(n), EVERYONE, iteration, Purpose.shared_partner, n_total)
    if whole and n == n_total:
        draws = np.arange(n)
    distinct, first, counts = np.unique(draws, return_index=True, return_counts=True)
    order = np.argsort(first)
    return draws, distinct[order], counts[order]


def shared_sum(
    own: Floats,
    beta: Floats,
    rows: Floats,
    weights: Floats,
    delta: float = DELTA,
    u: float = 0.0,
    linked: Bools | None = None,
) -> tuple[Floats, Floats]:
    """acc_k = sum_b c_b pi_bk over non-links, c_b = -weight_b / (1 - delta - d_b): ``[..., K]``, and its error bound.

    Args:
        own: ``[..., K]``, the vertices' memberships.
        beta: ``[K]``, community strengths.
        rows: ``[n, K]``, the partners' memberships.
        weights: ``[..., n]``, not negative; 0 for pairs that do not count.
        delta: probability of a link across communities.
        u: unit roundoff of the arithmetic.
        linked: ``[..., n]``, partners with c_b = weight_b / (delta + d_b); none by default.
    """
    linked = np.zeros(weights.shape, bool) if linked is None else linked
    w = own * (beta - delta)
    dots = w @ rows.T
    dots_error = u * (8 + 2 * np.sqrt(own.shape[-1])) * (np.abs(w) @ rows.T)
    scale, relative = equations.over_z(weights, dots, dots_error, linked, delta, u)
    chain = u * (8 + 2 * np.sqrt(max(1, weights.shape[-1])))
    return np.where(linked, scale, -scale) @ rows, (scale * (relative + chain)) @ rows


def non_link_counts(own: Floats, beta: Floats, acc: Floats, u: float = 0.0) -> tuple[Floats, Floats]:
    """Counts of a vertex's non-links for theta, (1 - beta_k) pi_ak (-acc_k), ``[..., K]``, and their error bound."""
    counts = (1.0 - beta) * own * -acc
    return counts, u * (own * np.abs(acc) + 10 * np.abs(counts))


def link_drift(
    own: Floats, beta: Floats, acc: Floats, rows: Floats, delta: float = DELTA, u: float = 0.0
) -> tuple[Floats, Floats]:
    """D_k of a vertex and its error bound, from ``acc`` ``[K]`` of :func:`shared_sum` and its links' rows ``[d, K]``.

    D_k = (beta_k - delta) acc_k - sum_b c_b d_b; the non-links' part of the last sum is sum_k w_k acc_k.
    """
    strength = beta - delta
    w = own * strength
    links, error = equations.drift(own, beta, rows, np.ones(len(rows)), delta, u)
    size = float(np.abs(w) @ np.abs(acc))
    chain_k, chain_n = u * (8 + 2 * np.sqrt(own.size)), u * (8 + 2 * np.sqrt(len(rows)))
    more = (chain_k + chain_n + 2 * u) * size + (chain_n + 2 * u) * np.abs(strength * acc)
    return links + strength * acc - w @ acc, error + more
