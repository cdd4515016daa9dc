"""Counter-based random numbers of the reference: known answers, laws, and independence of coordinates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from mmsbgen.families.mmsb.numbers import counter_random
from mmsbgen.families.mmsb.numbers.row_layout import FLOOR, Purpose

SEED = 0x1234_5678_9ABC_DEF0
#: Each test below has one chance in a million to fail for a right generator; seeds are fixed besides.
ALPHA = 1e-6
COUNT = 20_000


@pytest.mark.parametrize(
    ("rounds", "key", "counter", "answer"),
    [
        (7, (0, 0), (0, 0, 0, 0), (0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48)),
        (10, (0, 0), (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (10, (2**32 - 1,) * 2, (2**32 - 1,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            10,
            (0xA4093822, 0x299F31D0),
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_known_answers_of_random123(
    rounds: int, key: tuple[int, int], counter: tuple[int, ...], answer: tuple[int, ...]
) -> None:
    index, vertex, iteration, tag = counter
    words = counter_random.philox(key[0] | key[1] << 32, index, vertex, iteration, tag, rounds=rounds)
    assert [int(word) for word in words] == list(answer)


def test_uniforms_are_exact_in_single_precision() -> None:
    every = counter_random.unit(np.array([0, 511, 512, 2**31, 2**32 - 1], dtype=np.uint64))
    assert np.array_equal(every.astype(np.float32).astype(np.float64), every)
    assert every.min() > 0
    assert every.max() < 1


def coordinates() -> tuple[Any, Any]:
    """Counters of ``COUNT`` draws: coordinates k of several vertices."""
    index = np.arange(COUNT)
    return index % 200, index // 200


def poissons(rate: float) -> Any:
    k, vertex = coordinates()
    u, _ = counter_random.uniforms(SEED, k, vertex, 3, Purpose.phi_uniform)
    return counter_random.poisson(np.full(COUNT, rate), u, SEED, k, vertex, 3)


def gammas(shape: float) -> Any:
    k, vertex = coordinates()
    v, u = counter_random.uniforms(SEED, k, vertex, 3, Purpose.phi_uniform)
    return counter_random.gamma(np.full(COUNT, shape), u, v, SEED, k, vertex, 3)


@pytest.mark.parametrize("rate", [1e-3, 0.1, 1.0, 5.0, 9.99, 10.0, 30.0, 300.0, 1e4, 1e5])
def test_poisson_has_its_law(rate: float) -> None:
    drawn = poissons(rate)
    assert np.array_equal(drawn, np.round(drawn))
    assert drawn.min() >= 0
    # Classes of about equal chance, of at least 20 expected draws each.
    edges = np.unique(stats.poisson.ppf(np.linspace(0, 1, 41)[1:-1], rate))
    chances = np.diff(np.concatenate([[0.0], stats.poisson.cdf(edges, rate), [1.0]]))
    counts = np.histogram(drawn, np.concatenate([[-1.0], edges, [np.inf]]) + 0.5)[0]
    keep = chances * COUNT >= 20
    assert abs(drawn.mean() - rate) < 5 * np.sqrt(rate / COUNT)
    if np.count_nonzero(keep) > 1:
        observed = np.append(counts[keep], counts[~keep].sum())
        expected = np.append(chances[keep], chances[~keep].sum()) * COUNT
        few = expected > 0
        p = stats.chisquare(observed[few], expected[few] * observed[few].sum() / expected[few].sum()).pvalue
        assert p > ALPHA


@pytest.mark.parametrize("shape", [1 / 4096, 1 / 1024, 0.01, 0.1, 0.5, 0.999, 1.0, 1.5, 10.0, 1e3, 1e5])
def test_gamma_has_its_law(shape: float) -> None:
    """Kolmogorov and Smirnov's distance, with draws and law censored at the floor of phi."""
    drawn = np.sort(np.maximum(gammas(shape), FLOOR))
    above = drawn > FLOOR
    law = stats.gamma.cdf(drawn[above], shape)
    steps = np.arange(1, COUNT + 1)[above] / COUNT
    distance = max(
        np.max(np.abs(steps - law), initial=0.0),
        np.max(np.abs(steps - 1 / COUNT - law), initial=0.0),
        abs(1 - above.mean() - stats.gamma.cdf(FLOOR, shape)),
    )
    assert distance < np.sqrt(-np.log(ALPHA / 2) / (2 * COUNT))
    if shape == 1 / 1024:
        assert 1 - above.mean() == pytest.approx(0.956, abs=0.01)  # most draws are below the floor


def test_normals_have_their_law() -> None:
    k, vertex = coordinates()
    assert stats.kstest(counter_random.normals(SEED, k, vertex, 3, Purpose.phi_uniform), "norm").pvalue > ALPHA


def test_normals_by_pairs_have_their_law_and_do_not_know_each_other() -> None:
    k, vertex = coordinates()
    drawn = counter_random.pair_normals(SEED, k, vertex, 3, Purpose.phi_uniform)
    assert stats.kstest(drawn, "norm").pvalue > ALPHA
    rows = counter_random.pair_normals(SEED, np.arange(512)[None, :], np.arange(256)[:, None], 3, Purpose.phi_uniform)
    cosine, sine = rows[:, 0::2].ravel(), rows[:, 1::2].ravel()
    # The two of a pair: no correlation of values, of sizes, nor of one's value and the other's size.
    bound = stats.norm.isf(ALPHA / 8) / np.sqrt(cosine.size)
    for first, second in ((cosine, sine), (cosine**2, sine**2), (cosine, sine**2), (cosine**2, sine)):
        assert abs(correlation(first, second)) < bound
    assert stats.kstest(np.arctan2(sine, cosine) / (2 * np.pi) + 0.5, "uniform").pvalue > ALPHA
    assert stats.kstest(cosine**2 + sine**2, "chi2", (2,)).pvalue > ALPHA
    assert np.unique(np.round(np.abs(rows), 12)).size == rows.size  # no draw is another's again


def test_bounded_draws_are_even() -> None:
    for bound in (1, 2, 7, 100, 2**32 - 1):
        drawn = counter_random.below(SEED, np.arange(COUNT), 5, 1, Purpose.partner, bound)
        assert drawn.min() >= 0
        assert drawn.max() < bound
        counts = np.bincount(np.minimum(drawn * 7 // bound, 6), minlength=7) if bound >= 7 else np.bincount(drawn)
        share = np.diff([-(-i * bound // 7) for i in range(8)]) / bound if bound >= 7 else np.full(bound, 1 / bound)
        if bound > 1:
            assert stats.chisquare(counts, share * COUNT).pvalue > ALPHA


def grid(iteration: int = 3, purpose: int = Purpose.phi_uniform) -> tuple[Any, Any]:
    return counter_random.uniforms(SEED, np.arange(256)[None, :], np.arange(256)[:, None], iteration, purpose)


def correlation(a: Any, b: Any) -> float:
    return float(np.corrcoef(np.ravel(a), np.ravel(b))[0, 1])


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 8, 32, 64])
def test_no_correlation_across_coordinates_and_vertices(lag: int) -> None:
    for values in grid():
        for first, second in ((values[:, :-lag], values[:, lag:]), (values[:-lag], values[lag:])):
            assert abs(correlation(first, second)) < 4 / np.sqrt(first.size)


def test_no_correlation_across_uniforms_iterations_and_purposes() -> None:
    u1, u2 = grid()
    others = [u2, grid(4)[0], grid(4)[1], grid(purpose=Purpose.theta_normal)[0], u1.T]
    for other in others:
        assert abs(correlation(u1, other)) < 4 / np.sqrt(u1.size)


def test_no_two_purposes_share_words() -> None:
    seen = {tuple(int(word) for word in counter_random.philox(SEED, 0, 0, 0, purpose << 24)) for purpose in Purpose}
    assert len(seen) == len(Purpose)
