"""Reference of the kernels over sparse rows, in NumPy float64 (docs/statistics.md, Sparse rows).

A sparse row keeps at most R entries; every other coordinate has the value ``floor``.  The equations are those of
blocks of all vertices, with two differences.  Non-links count to first order, from the sums of columns.  Products of
two floors are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mmsbgen.families.mmsb.numbers.row_layout import CLIP, FLOOR, Z_FLOOR
from mmsbgen.families.mmsb.reference.equations import Floats, Ints
from mmsbgen.kernels.family import Array


@dataclass(frozen=True)
class SparseStep:
    """Scalars of a sweep: eps/2, concentration of phi, delta, the floor, and the weight of non-links.

    Neighbours' entries below ``least`` count as the floor.
    """

    half_step: float
    alpha: float
    delta: float
    floor: float
    non_link_weight: float = 1.0
    least: float = 0.0

    @property
    def decay(self) -> float:
        """exp(-eps / 2)."""
        return float(np.exp(-self.half_step))

    @property
    def dust(self) -> float:
        """What the prior adds to a coordinate in a step without noise: alpha (1 - exp(-eps / 2))."""
        return float(-self.alpha * np.expm1(-self.half_step))


@dataclass(frozen=True)
class SparseGradient:
    """The gradient of one vertex.

    ``candidates`` ``[C]`` are ascending; ``rate`` ``[C]`` is D_k / S, with its error; ``clips`` is the number of flows
    that a step bounds.  ``links`` and ``non_links`` ``[K]`` are the contributions to theta's counts, with their errors.
    """

    candidates: Ints
    rate: Floats
    rate_error: Floats
    clips: int
    links: Floats
    links_error: Floats
    non_links: Floats
    non_links_error: Floats


@dataclass(frozen=True)
class SparseRow:
    """Result for one vertex, before the cut: phi of all candidates, with bounds of its rounding errors.

    ``candidates`` ``[C]`` ascending, ``phi`` and ``error`` ``[C]``; ``gradient`` is what moved them.
    """

    candidates: Ints
    phi: Floats
    error: Floats
    gradient: SparseGradient


def gradient(
    own: tuple[Floats, Array],
    row_sum: float,
    rows: tuple[Floats, Array],
    beta: Floats,
    column_sums: Floats,
    step: SparseStep,
    u: float = 0.0,
    every: bool = False,
) -> SparseGradient:
    """D_k / S of one vertex for the communities that it or a neighbour keeps, or for ``every`` community.

    Args:
        own: expanded row ``[K]`` of the vertex, and which coordinates are kept.
        row_sum: sum of its phi.
        rows: expanded rows ``[d, K]`` of its neighbours by training links, and which coordinates are kept.
        beta: community strengths ``[K]``.
        column_sums: sums of the columns ``[K]`` of all rows, before the sweep.
        step: the scalars.
        u: unit roundoff of the kernel's arithmetic, for the error bounds.
        every: whether all communities are candidates.
    """
    pi, mine = own
    theirs = rows[1] & (rows[0] >= step.least)
    others = np.where(theirs, rows[0], step.floor)
    w = beta - step.delta
    # Products of two floors are left out.
    seen = theirs | mine
    d = np.where(seen, others * (w * pi), 0.0).sum(axis=1)
    terms = seen.sum(axis=1)
    z = np.maximum(d + step.delta, Z_FLOOR)
    c, c_error = 1.0 / z, (terms + 16) * u / z
    degree, g = len(others), step.non_link_weight
    acc, linked = c @ others, others.sum(axis=0)
    chain = 8 + degree
    acc_error = (c_error + chain * u * c) @ others
    non = np.maximum(column_sums - pi - linked, 0.0)
    non_error = (chain + 8) * u * (column_sums + pi + linked)
    taken_links, taken_non = c @ d, g * (w * pi * non)[mine].sum()
    taken = taken_links - taken_non
    taken_error = ((2 * terms + chain + 32) * u * c * d).sum()
    taken_error += (g * np.abs(w) * pi * (non_error + (8 + mine.sum()) * u * non))[mine].sum() + 4 * u * taken_non
    seen = mine | theirs.any(axis=0) if degree else mine
    at = np.arange(pi.size) if every else np.flatnonzero(seen)
    drift = w[at] * (acc[at] - g * non[at]) - taken
    drift_error = np.abs(w[at]) * (acc_error[at] + g * non_error[at] + 4 * u * (acc[at] + g * non[at]))
    drift_error += taken_error + 2 * u * np.abs(drift)
    flow = step.half_step * drift / row_sum
    links, non_links = np.where(mine, pi * beta * acc, 0.0), np.where(mine, pi * non, 0.0)
    return SparseGradient(
        at,
        drift / row_sum,
        drift_error / row_sum,
        int(np.count_nonzero(np.abs(flow) > CLIP)),
        links,
        np.where(mine, pi * beta * acc_error + 8 * u * links, 0.0),
        non_links,
        np.where(mine, pi * non_error + 8 * u * non_links, 0.0),
    )


def update(
    own: tuple[Floats, Array],
    row_sum: float,
    rows: tuple[Floats, Array],
    beta: Floats,
    column_sums: Floats,
    step: SparseStep,
    u: float = 0.0,
) -> SparseRow:
    """The step without noise of one vertex, before its row is cut; arguments as of :func:`gradient`."""
    found = gradient(own, row_sum, rows, beta, column_sums, step, u)
    flow = step.half_step * found.rate
    flow_error = step.half_step * found.rate_error + 4 * u * np.abs(flow)
    moved = own[0][found.candidates] * row_sum * np.exp(np.clip(flow, -CLIP, CLIP)) * step.decay
    phi = np.maximum(moved + step.dust, FLOOR)
    error = moved * np.expm1(np.minimum(flow_error, 1.0)) + 32 * u * phi
    return SparseRow(found.candidates, phi, error, found)


def finished(phi: Floats, k: int, step: SparseStep) -> tuple[Floats, float]:
    """The kept entries of pi and the new row sum, from the kept entries of ``phi``."""
    total, rest = float(phi.sum()), k - phi.size
    values = phi / total * (1.0 - rest * step.floor)
    return np.maximum(values, step.floor), total + rest * step.dust
