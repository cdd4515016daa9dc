"""Reference of sweeps over sparse rows with noise, in NumPy float64 (docs/statistics.md, Sparse rows).

Of a row, the values of the kept coordinates are known, and of each other one that it is below the row's bound.  A step
draws what is not known from the prior below the bound, then moves all coordinates by the split step with noise.  The
new row keeps those above the threshold, at most the R largest.  So the step keeps the prior, whatever R and the
threshold are.  What is not kept is drawn without regard to the links.

Few of K coordinates come from below the bound to above the threshold.  Of those that the vertex and its neighbours do
not keep, only these *entrants* are drawn: the process is reversible, so a coordinate that ends above the threshold
began below the bound with the chance that it ends there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mmsbgen.families.mmsb.numbers import counter_random
from mmsbgen.families.mmsb.numbers.row_layout import FLOOR, MAX_DRAWS, Purpose
from mmsbgen.families.mmsb.numbers.sparse_rows import EVERY, MOST_BOUND, PARTS
from mmsbgen.families.mmsb.reference import equations
from mmsbgen.families.mmsb.reference.equations import Bools, Floats, Ints
from mmsbgen.families.mmsb.reference.sparse_equations import SparseGradient, SparseRow, SparseStep


@dataclass(frozen=True)
class SparseNoise:
    """What the draws of a sweep depend on: the threshold of phi, the seed and the iteration."""

    threshold: float
    seed: int
    iteration: int


def bound_of(smallest: Floats, full: Bools, threshold: float) -> Floats:
    """Bounds ``[V]`` of what rows do not keep, from the smallest phi of each, and whether the rows are ``full``.

    With R entries it is the smallest of them: all others were smaller.
    """
    bound: Floats = np.where(full, np.clip(smallest, threshold, MOST_BOUND), threshold)
    return bound


def hidden(bound: Floats, alpha: float, k: Ints, vertex: int | Ints, noise: SparseNoise) -> Floats:
    """Draws of Gamma(alpha, 1) below ``bound`` for coordinates ``k`` of ``vertex``; all broadcast."""
    limits: Floats = np.broadcast_arrays(np.asarray(bound, np.float64), k, vertex)[0]
    at, ks, owners = (np.ravel(each) for each in np.broadcast_arrays(limits, k, vertex))
    found, pending = np.full(at.size, FLOOR), np.arange(at.size)
    for draw in range(MAX_DRAWS):
        if not pending.size:
            break
        tag = (Purpose.hidden << 24) + draw
        r = counter_random.philox(noise.seed, ks[pending], owners[pending], noise.iteration, tag)
        x = np.exp(np.maximum(np.log(at[pending]) + np.log(counter_random.unit(r[0])) / alpha, -80.0))
        accepted = counter_random.unit(r[1]) <= np.exp(-x)
        found[pending[accepted]] = x[accepted]
        pending = pending[~accepted]
    floored: Floats = np.maximum(found, FLOOR).reshape(limits.shape)
    return floored


def _incomplete(bound: Floats, alpha: float) -> Floats:
    """P(Gamma(alpha) < bound) times Gamma(1 + alpha), by its series, ``[V]``."""
    term, total, n = np.ones_like(bound), np.ones_like(bound), 0
    while np.any(term > 1e-9 * total):
        n += 1
        term = term * bound / (alpha + n)
        total = total + term
    found: Floats = np.exp(alpha * np.log(bound) - bound) * total
    return found


@dataclass(frozen=True)
class Entrants:
    """Entrants: row ``[E]``, community ``[E]`` and phi ``[E]``; ``flips`` ``[V]`` is how many rounding changes.

    That is an expectation below 1 where no draw is so close to a bound that rounding may decide it.
    """

    row: Ints
    community: Ints
    phi: Floats
    flips: Floats


def entrants(vertices: Ints, bound: Floats, k: int, step: SparseStep, noise: SparseNoise, u: float = 0.0) -> Entrants:
    """The coordinates of ``vertices`` ``[V]`` that go from below ``bound`` ``[V]`` to above the threshold in a step.

    Each of K coordinates ends above the threshold c with a chance that is at most

        q = (exp(-c) (1 - c^alpha) + alpha / e) / (Gamma(1 + alpha) P(Gamma(alpha) < bound)),

    the mass of an envelope of the prior's density above c: x^(alpha - 1) exp(-c) up to 1, then exp(-x).  The distances
    of those it falls on are geometric.  Each is accepted by the prior's density over the envelope, and if the process
    runs back from it to below the bound.  ``alpha`` is below 1, and so small that q is.
    """
    alpha, c = step.alpha, noise.threshold
    tail = -np.expm1(alpha * np.log(c))
    lower, upper = np.exp(-c) * tail, alpha / np.e
    chance = np.minimum((lower + upper) / _incomplete(bound, alpha), 0.999)
    inverse = 1.0 / np.log1p(-chance)
    size, flips = -(-k // PARTS), np.zeros(vertices.size)
    row, part = (each.ravel() for each in np.indices((vertices.size, PARTS)))
    at = part * size
    stop = np.minimum(at + size, k)
    rows, communities, values = [], [], []
    draw = 0
    while row.size:
        tag = (Purpose.entrant << 24) + draw
        r = counter_random.philox(noise.seed, part, vertices[row], noise.iteration, tag)
        skip = np.log(counter_random.unit(r[0])) * inverse[row]
        close = (np.abs(skip - np.round(skip)) <= 32 * u * (1 + skip)) & (skip < stop - at + 1)
        np.add.at(flips, row, close)
        inside = np.floor(skip) < stop - at
        row, part, at, stop = (each[inside] for each in (row, part, at, stop))
        at = at + np.floor(skip[inside]).astype(np.int64)
        v, w = (counter_random.unit(word[inside]) for word in r[1:3])
        share = lower / (lower + upper)
        low = v < share
        v = np.where(low, v / share, (v - share) / (1.0 - share))
        with np.errstate(divide="ignore"):
            phi = np.where(low, np.exp(np.log1p(-np.minimum(v, 1 - 2.0**-24) * tail) / alpha), 1.0 - np.log(v))
        relative = _relative(phi, u)
        density = np.where(low, np.exp(c - phi), np.exp((alpha - 1.0) * np.log(phi)))
        # Where the process was a step before.
        back = equations.split_step(
            phi, 0.0 * phi, 0.0 * phi + relative / step.half_step, at, vertices[row], _split(step, noise), u
        )
        taken = (w <= density) & (back.phi < bound[row])
        close = np.abs(w - density) <= (relative * np.minimum(phi, 1.0) + 8 * u) * density
        close |= np.abs(back.phi - bound[row]) <= 2 * back.error + relative * bound[row]
        np.add.at(flips, row, back.flips + close)
        rows.append(row[taken])
        communities.append(at[taken])
        values.append(phi[taken])
        at = at + 1
        draw += 1
    row, community = (np.concatenate([*each, np.zeros(0, np.int64)]) for each in (rows, communities))
    found: Floats = np.concatenate([*values, np.zeros(0)])
    order = np.lexsort((community, row))
    return Entrants(row[order], community[order], found[order], flips)


def _relative(phi: Floats, u: float) -> Floats:
    """Bound of the relative error of a draw that is the exponential of a logarithm with a few rounding errors."""
    found: Floats = 32 * u * (1 + np.abs(np.log(np.maximum(phi, FLOOR))))
    return found


def _split(step: SparseStep, noise: SparseNoise) -> equations.Step:
    return equations.Step(
        "split", step.half_step, step.alpha, seed=noise.seed, iteration=noise.iteration, delta=step.delta
    )


@dataclass(frozen=True)
class DrawnRow(SparseRow):
    """Result for one vertex with noise.

    ``flips`` ``[C]`` are the chances that rounding changes a draw, ``entrant_flips`` how many entrants it changes, as
    of :class:`Entrants`.
    """

    flips: Floats
    entrant_flips: float


def drawn(
    vertex: int,
    own: tuple[Floats, Bools],
    row_sum: float,
    r: int,
    found: SparseGradient,
    step: SparseStep,
    noise: SparseNoise,
    u: float = 0.0,
) -> DrawnRow:
    """The step with noise of one vertex, before its row is cut; arguments as of :func:`.sparse_equations.gradient`.

    ``found`` is its gradient, for every community if these are at most :data:`EVERY`, and ``r`` is R.
    """
    pi, mine = own
    at, k = found.candidates, pi.size
    known = mine[at]
    full = np.array([np.count_nonzero(mine) == r])
    bound = bound_of(np.array([pi[mine].min() * row_sum]), full, noise.threshold)
    phi = np.where(known, pi[at] * row_sum, 0.0)
    phi[~known] = hidden(bound, step.alpha, at[~known], vertex, noise)
    rate_error = found.rate_error + np.where(known, 0.0, _relative(phi, u) / step.half_step)
    row = equations.split_step(phi, found.rate, rate_error, at, vertex, _split(step, noise), u)
    if k <= EVERY:
        return DrawnRow(at, row.phi, row.error, found, row.flips, 0.0)
    more = entrants(np.array([vertex]), bound, k, step, noise, u)
    new = ~np.isin(more.community, at)
    at, entered = np.concatenate([at, more.community[new]]), more.phi[new]
    order = np.argsort(at)
    parts = (row.phi, entered), (row.error, _relative(entered, u) * entered), (row.flips, np.zeros(entered.size))
    phi, error, flips = (np.concatenate(part)[order] for part in parts)
    return DrawnRow(at[order], phi, error, found, flips, float(more.flips[0]))


def kept(phi: Floats, r: int, noise: SparseNoise) -> Bools:
    """Which of the coordinates ``[..., C]`` a row keeps: the R largest of those above the threshold, and one at least.

    Of equal ones the first are kept.
    """
    order = np.argsort(-phi, axis=-1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(phi.shape[-1]), phi.shape), axis=-1)
    mask: Bools = (rank == 0) | ((rank < r) & (phi > noise.threshold))
    return mask
