"""Sparse rows: the reference against finite differences and dense rows, and its helpers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from mmsbgen.base.errors import InputError
from mmsbgen.families.mmsb import MMSB
from mmsbgen.families.mmsb.numbers.sparse_rows import NONE, expanded, filled, kept, totals
from mmsbgen.families.mmsb.reference import block_equations, equations, sparse_draws, sparse_equations
from mmsbgen.families.mmsb.reference.sparse_equations import SparseStep
from mmsbgen.families.mmsb.sparse.sparse_sizes import least_of

K, DEGREE = 7, 4
STEP = SparseStep(half_step=0.05, alpha=0.1, delta=1e-4, floor=0.0)
ALL = np.ones(K, bool)


def dense(seed: int, floor: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """phi ``[K]`` of a vertex, rows of its neighbours, strengths, and the sum of the other rows' mass a community."""
    rng = np.random.default_rng(seed)
    phi = rng.gamma(0.7, size=K) + 0.05
    rows = rng.dirichlet(np.full(K, 0.5), DEGREE) * (1 - K * floor) + floor
    return phi, rows, rng.uniform(0.1, 0.9, K), float(rng.uniform(3, 6))


@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_is_that_of_the_first_order_likelihood(seed: int) -> None:
    """log p of the links, and of the non-links to first order, differentiated by phi: the drift over the row sum."""
    phi, rows, beta, others = dense(seed)
    pi, w = phi / phi.sum(), beta - STEP.delta
    sums = pi + rows.sum(axis=0) + others

    def likelihood(at: np.ndarray) -> float:
        own = at / at.sum()
        return float(np.log(STEP.delta + rows @ (w * own)).sum() - (w * own * others).sum())

    small = 1e-6
    slope = np.array([(likelihood(phi + small * e) - likelihood(phi - small * e)) / (2 * small) for e in np.eye(K)])
    row = sparse_equations.update((pi, ALL), phi.sum(), (rows, np.tile(ALL, (DEGREE, 1))), beta, sums, STEP)
    flow = np.log((row.phi - STEP.dust) / STEP.decay / phi) / STEP.half_step
    np.testing.assert_allclose(flow, slope, rtol=1e-6, atol=1e-8)


def test_with_all_entries_links_count_as_with_dense_rows() -> None:
    phi, rows, beta, _ = dense(9)
    pi = phi / phi.sum()
    # No mass is left to non-links, and dense rows have no partners.
    row = sparse_equations.update(
        (pi, ALL), phi.sum(), (rows, np.tile(ALL, (DEGREE, 1))), beta, pi + rows.sum(axis=0), STEP
    )
    drift, _ = block_equations.link_drift(pi, beta, np.zeros(K), rows, STEP.delta, 0.0)
    moved = phi * np.exp(STEP.half_step * drift / phi.sum()) * STEP.decay + STEP.dust
    np.testing.assert_allclose(row.phi, moved, rtol=1e-12)
    np.testing.assert_array_equal(row.gradient.non_links, 0.0)


def test_only_communities_of_the_row_and_of_neighbours_are_candidates() -> None:
    floor = 1e-3
    own, near = np.full(K, floor), np.full((1, K), floor)
    own[2], near[0, 5] = 1 - (K - 1) * floor, 1 - (K - 1) * floor
    masks = own > floor, near > floor
    row = sparse_equations.update((own, masks[0]), 1.0, (near, masks[1]), np.full(K, 0.5), np.full(K, 3.0), STEP)
    assert row.candidates.tolist() == [2, 5]
    kept = row.phi[np.argmax(row.phi)][None]
    values, total = sparse_equations.finished(kept, K, STEP)
    assert values.sum() == pytest.approx(1.0)
    assert total == pytest.approx(kept.sum() + (K - 1) * STEP.dust)


def test_less_than_the_least_of_a_neighbour_counts_as_the_floor() -> None:
    step = replace(STEP, floor=1e-3, least=4e-3)
    own, near = np.full(K, step.floor), np.full((1, K), step.floor)
    own[2], near[0, :4] = 0.9, [np.nextafter(step.least, 0.0), step.least, 3e-3, 0.8]
    given = np.full(K, 0.5), np.full(K, 3.0)
    found = sparse_equations.update((own, own > 0.1), 1.0, (near, near > step.floor), *given, step)
    near[near < step.least] = step.floor
    right = sparse_equations.update((own, own > 0.1), 1.0, (near, near > step.floor), *given, replace(step, least=0.0))
    assert found.candidates.tolist() == right.candidates.tolist() == [1, 2, 3]
    np.testing.assert_array_equal(found.phi, right.phi)


def test_large_graphs_leave_out_small_entries_of_neighbours() -> None:
    at, above = (MMSB.problem(N=n, degree=20) for n in (10**6, 10**6 + 1))
    assert (least_of(at), least_of(above)) == (0.0, 4e-3)


@given(st.data())
def test_filled_rows_have_the_same_values(data: st.DataObject) -> None:
    k = data.draw(st.integers(1, 40))
    r = data.draw(st.sampled_from([1, 2, 8]))
    n = data.draw(st.integers(1, 5))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    communities = np.full((n, r), NONE, np.uint32)
    values = np.zeros((n, r))
    for row in range(n):
        count = rng.integers(1, min(r, k) + 1)
        communities[row, :count] = rng.choice(k, count, replace=False)
        values[row, :count] = np.sort(rng.random(count))[::-1] + 0.1
    found, sizes = filled(communities, values, k, 0.01)
    assert found.shape == (n, min(r, k))
    assert all(np.unique(row).size == row.size for row in found)
    again = np.full((n, k), 0.01)
    np.put_along_axis(again, found, sizes, axis=1)
    np.testing.assert_array_equal(again, expanded(communities, values, k, 0.01))
    np.testing.assert_allclose(totals(communities, values, k, 0.01), again.sum(axis=0))
    assert kept(communities, k).sum() == (communities != NONE).sum()


def test_more_entries_than_bits_of_a_word_are_refused() -> None:
    """Kernels that compare two rows have a bit of 64 for each entry."""
    assert MMSB.problem(K=4096, entries=64)["entries"] == 64
    with pytest.raises(InputError, match="entries"):
        MMSB.problem(K=4096, entries=65)


def test_entrants_come_at_the_rate_of_the_transition() -> None:
    """Against the sum over the count n of the transition, given which both ends are Gamma variables.

    P(x < b, x' > c) = sum_n NB(n) P(Gamma(alpha + n) < b / s) P(Gamma(alpha + n) > c / s), s = 1 - exp(-tau).
    """
    k, tau, vertices = 300, 0.05, np.arange(20_000)
    step = SparseStep(tau, 1 / k, 1e-4, 0.0)
    noise = sparse_draws.SparseNoise(0.02, 5, 3)
    bounds = np.repeat([0.02, 0.1], vertices.size // 2)
    found = sparse_draws.entrants(vertices, bounds, k, step, noise)
    n, s, alpha = np.arange(300), -np.expm1(-tau), 1 / k
    weight = special.gammaln(alpha + n) - special.gammaln(n + 1) - special.gammaln(alpha)
    weight = np.exp(weight + alpha * np.log(s) - tau * n)
    for part, bound in enumerate((0.02, 0.1)):
        below = weight * special.gammainc(alpha + n, bound / s) / special.gammainc(alpha, bound)
        rate = k * (below * special.gammaincc(alpha + n, noise.threshold / s)).sum()
        size = k * (below * s * (alpha + n) * special.gammaincc(alpha + n + 1, noise.threshold / s)).sum() / rate
        mine = found.row // (vertices.size // 2) == part
        count = mine.sum()
        assert abs(count - rate * 10_000) < 4 * np.sqrt(rate * 10_000)
        assert abs(found.phi[mine].mean() - size) < 4 * found.phi[mine].std() / np.sqrt(count)
    assert found.phi.min() > noise.threshold
    assert found.community.mean() == pytest.approx(149.5, abs=4 * 87 / np.sqrt(found.row.size))


def test_steps_with_noise_keep_the_prior() -> None:
    """Rows of the exact prior, of which at most three entries of some six are kept, before and after eight steps."""
    k, r, n = 100, 3, 4000
    step, rng = SparseStep(0.05, 1 / k, 1e-4, 0.0), np.random.default_rng(8)
    phi = np.exp(np.log(rng.gamma(step.alpha + 1, size=(n, k))) + np.log(rng.random((n, k))) / step.alpha)

    def looks() -> np.ndarray:
        known = np.where(mask, phi, 0.0)
        sums = known.sum(axis=1)
        shares = known / sums[:, None]
        return np.stack([mask.sum(axis=1), sums, shares.max(axis=1), (shares**2).sum(axis=1)])

    noise = sparse_draws.SparseNoise(0.002, 5, 0)
    mask = sparse_draws.kept(phi, r, noise)
    before = looks()
    for sweep in range(8):
        noise = sparse_draws.SparseNoise(0.002, 5, sweep)
        smallest = np.where(mask, phi, np.inf).min(axis=1)
        bounds = sparse_draws.bound_of(smallest, mask.sum(axis=1) == r, noise.threshold)
        row, community = np.nonzero(mask)
        split = equations.Step("split", step.half_step, step.alpha, seed=5, iteration=sweep)
        zero = np.zeros(row.size)
        moved = equations.split_step(phi[row, community], zero, zero, community, row, split, 0.0).phi
        entered = sparse_draws.entrants(np.arange(n), bounds, k, step, noise)
        new = ~mask[entered.row, entered.community]
        phi = np.zeros((n, k))
        phi[row, community] = moved
        phi[entered.row[new], entered.community[new]] = entered.phi[new]
        mask = sparse_draws.kept(phi, r, noise)
        phi = np.where(mask, np.maximum(phi, noise.threshold), 0.0)
    assert (mask.sum(axis=1) == r).mean() > 0.8
    after = looks()
    error = np.hypot(before.std(axis=1), after.std(axis=1)) / np.sqrt(n)
    assert np.all(np.abs(after.mean(axis=1) - before.mean(axis=1)) < 4 * error)
    # Without the entrants of one step, the number of entries alone would tell.
    assert entered.row.size / n > 20 * error[0]
