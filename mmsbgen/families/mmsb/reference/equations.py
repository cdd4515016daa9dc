"""The kernels' reference in NumPy float64; it defines the results of every variant on every backend.

Equation numbers refer to ``docs/statistics.md``.  Shapes use N vertices, K communities, m vertices of the mini-batch,
n partners.  Rows have K elements, without the padding of stored rows.  Functions whose results are compared with a
device also return a bound on the rounding error for unit roundoff ``u``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.families.mmsb.numbers import counter_random
from mmsbgen.families.mmsb.numbers.partner_rule import PartnerRule
from mmsbgen.families.mmsb.numbers.row_layout import BETA_FLOOR, CLIP, DELTA, FLOOR, Z_FLOOR, Purpose

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Step:
    """The step that updates a row: its name, size and prior.

    ``half_step`` is eps/2 of eq. (3.4), the time tau of the split step; ``name`` is published, reflected or split.
    """

    name: str
    half_step: float
    alpha: float
    noise: bool = True
    seed: int = 0
    iteration: int = 0
    delta: float = DELTA


def drift(
    own: Floats,
    beta: Floats,
    rows: Floats,
    weights: Floats,
    delta: float = DELTA,
    u: float = 0.0,
    least: float = Z_FLOOR,
) -> tuple[Floats, Floats]:
    """D_k = sum_b weight_b (q_k / Z_b - 1) of each vertex, eq. (3.2) times its row sum, without cancellation.

    Args:
        own: ``[..., K]``, the vertices' memberships.
        beta: ``[K]``, community strengths.
        rows: ``[..., n, K]``, the partners' memberships.
        weights: ``[..., n]``, negative for non-links, 0 for pairs that do not count.
        delta: probability of a link across communities.
        u: unit roundoff of the arithmetic whose error is to be bounded.
        least: lower bound of a non-link's Z; 1 - max beta for rows of 16 bits, whose sum may exceed 1.

    Returns:
        D ``[..., K]`` and the bound ``[..., K]`` on its rounding error.
    """
    strength = beta - delta
    w = own * strength
    dots = _dots(rows, w)
    # The error of Z dominates: it is large for one-hot rows and beta near 1.
    chain_k, chain_n = u * (8 + 2 * np.sqrt(own.shape[-1])), u * (8 + 2 * np.sqrt(max(1, weights.shape[-1])))
    dots_error = chain_k * _dots(rows, np.abs(w))
    scale, relative = over_z(weights, dots, dots_error, weights >= 0, delta, u, least)
    acc = _weighed(scale, rows)
    taken = (scale * dots).sum(axis=-1, keepdims=True)
    result = strength * acc - taken

    # Rounding errors of a sum of positive terms grow like a random walk.
    scale_error = np.abs(scale) * relative
    acc_error = _weighed(scale_error + chain_n * np.abs(scale), rows)
    size = (np.abs(scale) * np.abs(dots)).sum(axis=-1, keepdims=True)
    taken_error = (scale_error * np.abs(dots) + np.abs(scale) * dots_error).sum(axis=-1, keepdims=True) + chain_n * size
    error = np.abs(strength) * acc_error + taken_error + 2 * u * (np.abs(strength * acc) + size)
    return result, error


def over_z(
    weights: Floats, dots: Floats, dots_error: Floats, links: Bools, delta: float, u: float, least: float = Z_FLOOR
) -> tuple[Floats, Floats]:
    """``weights`` of pairs over Z, eq. (2.2), and the relative error of that: all arrays broadcast.

    ``dots`` are sum_k (beta_k - delta) pi_ak pi_bk, with the bound of their error; ``least`` as in :func:`drift`.
    """
    z = np.where(links, delta + dots, np.maximum((1.0 - delta) - dots, least))
    floored = np.maximum(z, Z_FLOOR)
    return weights / floored, (dots_error + 2 * u * np.where(links, np.abs(z), 1.0)) / floored + 4 * u


def _dots(rows: Floats, w: Floats) -> Floats:
    """Sums over k of ``rows`` ``[..., n, K]`` times ``w`` ``[..., K]``: ``[..., n]``."""
    return (rows @ w[..., None])[..., 0]


def _weighed(scale: Floats, rows: Floats) -> Floats:
    """Sums of ``rows`` ``[..., n, K]`` times ``scale`` ``[..., n]``: ``[..., K]``."""
    return (scale[..., None, :] @ rows)[..., 0, :]


@dataclass(frozen=True)
class RowEnd:
    """New phi ``[..., K]``, its rounding error bound, the probability of a different draw, and clipped elements."""

    phi: Floats
    error: Floats
    flips: Floats
    clips: int
    """Number of clipped elements in all rows."""


def end_row(
    phi: Floats,
    pi: Floats,
    drift_k: Floats,
    drift_error: Floats,
    vertex: int | Ints,
    step: Step,
    u: float = 0.0,
    row_sum: float | Floats | None = None,
) -> RowEnd:
    """One step of rows ``[..., K]``, all coordinates at once, from values of the previous iteration.

    ``published`` lacks the factor phi of the gradient; ``reflected`` is eq. (3.4); ``split`` is eq. (3.9): the
    exact flow at frozen gradient over eps/2, then the exact Cox-Ingersoll-Ross transition of the prior.
    ``row_sum`` is the stored sum of phi; it differs slightly from the actual sum of rows of 16 bits.  Of several rows,
    ``vertex`` and ``row_sum`` are ``[..., 1]``.
    """
    k = np.arange(phi.shape[-1])
    tau, row_sum = step.half_step, phi.sum(axis=-1, keepdims=True) if row_sum is None else row_sum
    if step.name == "split":
        return split_step(phi, drift_k / row_sum, drift_error / row_sum, k, vertex, step, u)
    gain = drift_k / row_sum if step.name == "published" else pi * drift_k
    gain_error = drift_error / row_sum if step.name == "published" else pi * drift_error
    moved = phi + tau * (step.alpha - phi + gain)
    error = tau * gain_error + 8 * u * (phi + tau * (step.alpha + phi + np.abs(gain)))
    if step.noise:
        xi = counter_random.pair_normals(step.seed, k, vertex, step.iteration, Purpose.phi_uniform)
        scale = np.sqrt(2.0 * tau * phi)
        moved = moved + scale * xi
        error = error + scale * 96 * u * (1 + np.abs(xi))
    return RowEnd(np.maximum(np.abs(moved), FLOOR), error, np.zeros_like(phi), 0)


def split_step(
    phi: Floats, rate_of_flow: Floats, flow_error: Floats, k: Ints, vertex: int | Ints, step: Step, u: float
) -> RowEnd:
    """The split step of coordinates ``k``, eq. (3.9); ``rate_of_flow`` is D_k / S, with its error bound."""
    tau = step.half_step
    decay, spread = np.exp(-tau), -np.expm1(-tau)
    flow = np.clip(tau * rate_of_flow, -CLIP, CLIP)
    clips = int(np.count_nonzero(flow != tau * rate_of_flow))
    moved = phi * np.exp(flow)
    relative = tau * flow_error + u * (8 + 4 * np.abs(flow))
    if not step.noise:
        phi_next = moved * decay + step.alpha * spread
        return RowEnd(np.maximum(phi_next, FLOOR), phi_next * (relative + 8 * u), np.zeros_like(phi), clips)
    rate = moved * decay / spread
    u1, u2 = counter_random.uniforms(step.seed, k, vertex, step.iteration, Purpose.phi_uniform)
    n = counter_random.poisson(rate, u1, step.seed, k, vertex, step.iteration)
    shape = step.alpha + n
    # If n is 0, u1 is uniform in (0, exp(-rate)), so u1 exp(rate) is another uniform.
    v = np.where(n > 0, u1, u1 * np.exp(np.minimum(rate, 20.0)))
    phi_next = spread * counter_random.gamma(shape, u2, v, step.seed, k, vertex, step.iteration)
    # For a fixed n the draw is smooth in its inputs; U^(1/shape) has the condition number 1/shape.
    error = phi_next * u * (256 + 16 / np.minimum(shape, 1.0))
    # Except in the tail of GS or after a rejection, where it is the negative logarithm of a number near 1.
    first = np.exp((np.log1p(step.alpha / np.e) + np.log(u2)) / step.alpha)
    later = (n == 0) & (np.abs(phi_next / spread - first) > 1e-6 * first)
    error = error + np.where(later, 8 * u * spread, 0.0)
    # Marsaglia and Tsang's cube, 1 + w with w above -1, has cancellation if the draw is far below its mean.
    error = error + np.where(n > 0, 8 * u * spread * shape, 0.0)
    # Rounding changes n if the uniform is close to a bound: one of the rate, or exp(-x) if n is 0.
    x = np.where(n == 0, np.minimum(phi_next / spread, 20.0), 0.0)
    flips = np.minimum(1.0, rate * relative + 16 * u * (1 + rate + x / np.minimum(shape, 1.0)))
    return RowEnd(np.maximum(phi_next, FLOOR), error, flips, clips)


def theta_counts(
    rows_a: Floats,
    rows_b: Floats,
    beta: Floats,
    weights: Floats,
    delta: float = DELTA,
    u: float = 0.0,
    least: float = Z_FLOOR,
) -> tuple[Floats, Floats]:
    """Weighted sums of rho (eq. 3.5) over pairs, ``[2, K]`` (non-links, links), and the rounding error bound.

    ``rows_a``, ``rows_b`` are ``[P, K]``; ``weights`` ``[P]``, negative for non-links; ``least`` as in :func:`drift`.
    """
    both = rows_a * rows_b
    dots = both @ (beta - delta)
    link = weights >= 0
    dots_error = u * (8 + 2 * np.sqrt(beta.size)) * (both @ np.abs(beta - delta))
    scale, relative = over_z(np.abs(weights), dots, dots_error, link, delta, u, least)
    counts = np.stack([(1.0 - beta) * (scale * ~link @ both), beta * (scale * link @ both)])
    chain = u * (8 + 2 * np.sqrt(max(1, weights.size)))
    scale_error = scale * (relative + chain)
    error = np.stack([(1.0 - beta) * (scale_error * ~link @ both), beta * (scale_error * link @ both)])
    # The absolute rounding error of 1 - beta is u.
    error[0] += u * (scale * ~link @ both)
    return counts, error + 1e-30


@dataclass(frozen=True)
class ThetaStep:
    """Step of theta.

    ``name``: ``reflected`` (3.8), ``published`` (a factor is missing), ``gain`` (towards the counts) or
    ``wright-fisher`` (3.10).  ``step`` is eps, or the gain.
    """

    name: str
    step: float
    eta: tuple[float, float] = (1.0, 1.0)
    noise: bool = True
    seed: int = 0
    iteration: int = 0


def update_theta(theta: Floats, counts: Floats, step: ThetaStep) -> Floats:
    """The next theta ``[2, K]`` (non-link, link) from summed counts ``[2, K]``; eq. (3.7), (3.8), (3.10)."""
    total = theta.sum(axis=0)
    eta = np.asarray(step.eta)[:, None]
    if step.name == "wright-fisher":
        return _wright_fisher(theta, counts, step)
    if step.name == "gain":
        moved = theta + step.step * (eta + counts - theta)
        return np.maximum(np.abs(moved), FLOOR)
    if step.name == "published":
        gain = counts / theta - counts.sum(axis=0) / total
    else:
        beta = theta[1] / total
        link = (1.0 - beta) * counts[1] - beta * counts[0]
        gain = np.stack([-link, link])
    moved = theta + 0.5 * step.step * (eta - theta + gain)
    if step.noise:
        k = np.arange(theta.shape[1])
        xi = np.stack([counter_random.normals(step.seed, k, i, step.iteration, Purpose.theta_normal) for i in (0, 1)])
        moved = moved + np.sqrt(step.step * theta) * xi
    floored: Floats = np.maximum(np.abs(moved), FLOOR)
    return floored


def _wright_fisher(theta: Floats, counts: Floats, step: ThetaStep) -> Floats:
    expected = np.asarray(step.eta)[:, None] + counts
    total = theta.sum(axis=0)
    beta, total = theta[1] / total, np.maximum(total, 0.25 * expected.sum(axis=0))
    link = total * beta + 0.5 * step.step * (expected[1] * (1.0 - beta) - expected[0] * beta)
    if step.noise:
        k = np.arange(theta.shape[1])
        xi = counter_random.normals(step.seed, k, 0, step.iteration, Purpose.theta_normal)
        link = link + np.sqrt(step.step * total * beta * (1.0 - beta)) * xi
    non_link = np.abs(total - np.abs(link))
    floored: Floats = np.maximum(np.abs([non_link, total - non_link]), FLOOR)
    return floored


def beta_of(theta: Floats) -> Floats:
    """beta_k = theta_k1 / (theta_k0 + theta_k1), eq. (1) of the paper, clipped away from 0 and 1."""
    beta: Floats = np.clip(theta[1] / theta.sum(axis=0), BETA_FLOOR, 1 - BETA_FLOOR)
    return beta


def held_out(rows_a: Floats, rows_b: Floats, beta: Floats, delta: float = DELTA) -> tuple[Floats, Floats]:
    """p(y=1) of pairs ``[H]`` by eq. (2.2), and as in the published programs (without delta (1 - sum))."""
    both = rows_a * rows_b
    dots = both @ (beta - delta)
    return dots + delta, dots + delta * both.sum(axis=1)


def explained(rows_a: Floats, rows_b: Floats, beta: Floats, delta: float = DELTA) -> Floats:
    """Share ``[P, K]`` of each community in the probability of each link, eq. (3.5).

    The rest to 1 is the probability that the two vertices acted in different communities.
    """
    both = rows_a * rows_b
    across = delta * np.maximum(1.0 - both.sum(axis=1), 0.0)
    parts = both * beta
    shares: Floats = parts / np.maximum(parts.sum(axis=1) + across, Z_FLOOR)[:, None]  # eq. (2.2)
    return shares


def log_likelihoods(p: Floats, mean: Floats, published: Floats, labels: Ints) -> Floats:
    """Six sums: links and non-links of the sample, of the running mean, and as published (floored at 1e-30)."""
    link = labels != 0
    return np.array(
        [
            np.log(p[link]).sum(),
            np.log1p(-p[~link]).sum(),
            np.log(mean[link]).sum(),
            np.log1p(-mean[~link]).sum(),
            np.log(np.maximum(published[link], 1e-30)).sum(),
            np.log1p(-p[~link]).sum(),
        ]
    )


def sample_partners(
    vertex: int, n_total: int, neighbours: Ints, held: frozenset[int], rule: PartnerRule
) -> tuple[Ints, Floats]:
    """Partners of one vertex and their signed weights, unbiased for the sum over all pairs that are not held out.

    ``neighbours`` are its neighbours in the training graph, ascending; ``held`` are the other vertices of its held-out
    pairs.
    """
    linked = set(neighbours.tolist())
    whole = rule.n == n_total - 1
    # Links have their own stratum unless all other vertices are drawn with the same probability.
    strata = rule.name in ("block", "shared") or (rule.name == "stratified" and rule.n_link > 0 and not whole)
    degree = neighbours.size
    at_links: Ints = np.zeros(0, np.int64)
    link_weight = 1.0

    def draws(count: int, first: int, purpose: int, owner: int, bound: int) -> Ints:
        return counter_random.below(rule.seed, np.arange(first, first + count), owner, rule.iteration, purpose, bound)

    if rule.shared:
        at_links = np.arange(degree if strata else 0)
        others = draws(rule.n, 0, Purpose.shared_partner, 0xFFFFFFFF, n_total)
        if rule.n == n_total and rule.name != "block":
            others = np.arange(n_total)
        weight = n_total / rule.n
    else:
        if n_links := min(degree, rule.n_link) if strata else 0:
            at_links = np.arange(degree)
            if degree > n_links:
                at_links = draws(n_links, 0, Purpose.link_partner, vertex, degree)
                link_weight = degree / n_links
        if whole:
            others = np.arange(n_total - 1)
        else:
            others = draws(rule.n - n_links, n_links, Purpose.partner, vertex, n_total - 1)
        others = others + (others >= vertex)
        weight = (n_total - 1) / (rule.n - n_links)
    signed = np.empty(others.size)
    for i, other in enumerate(others.tolist()):
        link = other in linked
        signed[i] = weight if link else -weight
        if other in held or other == vertex or (link and strata):
            signed[i] = 0.0
    return np.concatenate([neighbours[at_links], others]), np.concatenate([np.full(at_links.size, link_weight), signed])


def initial_rows(seed: int, vertices: Sequence[int] | Ints, k: int) -> tuple[Floats, Floats]:
    """Rows from Dirichlet(1, ..., 1) ``[len(vertices), k]`` and the sums of their exponential variables."""
    index = np.arange(k)
    words = counter_random.philox(seed, index[None, :] >> 2, np.asarray(vertices)[:, None], 0, Purpose.init << 24)
    lanes: Any = np.choose(index[None, :] & 3, np.broadcast_arrays(*words))
    rows = -np.log(counter_random.unit(lanes))
    sums = rows.sum(axis=1)
    return rows / sums[:, None], sums
