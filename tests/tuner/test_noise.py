from __future__ import annotations

import itertools
import math
import random
import statistics

import pytest

from mmsbgen.tuner.measure.noise import Noise, judge, median_interval


def drawn(rng: random.Random, median: float, count: int) -> list[float]:
    """Times with the one-sided noise of a machine that does other things too; ``median`` is that of the law."""
    return [median * math.exp(0.1 * (rng.expovariate(1) - math.log(2))) for _ in range(count)]


def test_too_little_is_known_for_a_limit_at_first() -> None:
    noise = Noise()
    assert noise.limits() is None
    noise.add([1.0, 1.1])
    assert noise.limits() is None


def test_more_repetitions_give_closer_limits() -> None:
    noise, rng = Noise(), random.Random(1)
    for _ in range(20):
        noise.add(drawn(rng, rng.uniform(1e-6, 1.0), 9))
    limits = noise.limits()
    assert limits is not None
    assert limits[0] == math.inf, "180 ratios say nothing of one in a thousand"
    assert all(a >= b >= 1 for a, b in itertools.pairwise(limits))
    assert 1.1 < limits[1] < 1.5
    assert limits[-1] < 1.02


def test_one_as_fast_as_the_best_is_hardly_ever_given_up() -> None:
    """One in a thousand over all looks, the best being the least of 50 medians that are all the same in truth.

    So many at most in 40 searches, by five standard deviations.
    """
    rng = random.Random(2)
    wrongly = tried = 0
    for _ in range(40):
        noise = Noise()
        for _ in range(50):
            noise.add(drawn(rng, 1.0, 7))
        limits = noise.limits()
        assert limits is not None
        assert noise.best_s is not None
        for _ in range(250):
            times = drawn(rng, 1.0, 10)
            wrongly += any(min(times[: r + 1]) > limit * noise.best_s for r, limit in enumerate(limits))
            tried += 1
    allowed = tried * 1e-3
    assert wrongly <= allowed + 5 * math.sqrt(allowed)


def test_the_best_is_taken_for_as_slow_as_it_may_be() -> None:
    noise = Noise()
    assert noise.best_s is None
    for times in ([2.0, 2.1, 2.2], [1.0, 1.1, 1.4], [1.2, 1.2, 1.3]):
        noise.add(times)
    assert noise.best_s == 1.4


def test_one_that_is_twice_as_slow_is_given_up_after_two_repetitions() -> None:
    noise, rng = Noise(), random.Random(3)
    for _ in range(30):
        noise.add(drawn(rng, 1.0, 9))
    limits = noise.limits()
    assert limits is not None
    given_up = sum(min(drawn(rng, 2.0, 2)) > limits[1] for _ in range(200))
    assert given_up > 190


@pytest.mark.parametrize("count", [5, 9, 15, 40])
def test_the_interval_holds_the_median_as_often_as_it_says(count: int) -> None:
    rng = random.Random(count)
    held = 0
    for _ in range(2000):
        low, high = median_interval(drawn(rng, 1.0, count))
        held += low <= 1.0 <= high
    # The confidence is at least 90 %; five standard deviations of a share of 2000.
    assert held / 2000 > 0.9 - 5 * math.sqrt(0.09 / 2000)


def test_the_interval_of_few_values_is_all_of_them() -> None:
    assert median_interval([2.0]) == (2.0, 2.0)
    assert median_interval([3.0, 1.0, 2.0]) == (1.0, 3.0)


def test_a_clear_winner_is_told_with_its_margin_and_noise() -> None:
    rng = random.Random(4)
    verdict = judge([drawn(rng, 1.0, 15), drawn(rng, 1.3, 15), drawn(rng, 1.6, 15)], [9, 1, 0])
    assert verdict.decided
    assert (verdict.winner, verdict.rival, verdict.tied) == (0, 1, (0,))
    assert verdict.margin == pytest.approx(0.3, abs=verdict.noise)
    assert 0 < verdict.noise < 0.15


def test_what_slows_a_whole_round_says_nothing() -> None:
    """The machine's rate moves by a factor of four, the two by one percent."""
    rng = random.Random(5)
    rate = [rng.uniform(1, 4) for _ in range(15)]
    steady = [rng.uniform(0.999, 1.001) for _ in range(30)]
    verdict = judge([[r * s for r, s in zip(rate, steady, strict=False)], [1.01 * r for r in rate]], [1, 0])
    assert verdict.decided
    assert verdict.winner == 0
    assert verdict.margin == pytest.approx(0.01, abs=0.002)


def test_within_the_noise_the_simpler_one_wins_and_it_is_said() -> None:
    rng = random.Random(6)
    rows = [drawn(rng, 1.0, 15), drawn(rng, 1.001, 15), drawn(rng, 2.0, 15)]
    verdict = judge(rows, [(0, 2), (0, 1), (0, 0)])
    assert not verdict.decided
    assert verdict.winner == 1
    assert set(verdict.tied) == set(verdict.near) == {0, 1}
    assert abs(verdict.margin) <= verdict.noise + 0.001
    assert statistics.median(rows[2]) > 1.5


def test_a_simpler_one_is_not_preferred_at_any_price() -> None:
    """So noisy that neither can be told from the other, yet the median is a tenth behind."""
    slow = [0.6, 0.7, 0.8, 0.9, 1.1, 1.2, 1.3, 1.4, 1.5]
    verdict = judge([[1.0] * 9, slow], [1, 0])
    assert not verdict.decided
    assert verdict.winner == 0
    assert (verdict.tied, verdict.near) == ((0, 1), (0,))
    assert verdict.margin == pytest.approx(0.1)


def test_the_preferred_one_is_near_by_the_margin_that_is_told() -> None:
    """The third is as often behind the second as before it, though its median of the rounds is 2 % behind."""
    rows = [[1.02, 1.1, 1.04, 1.04, 1.1], [1.04, 1.0, 1.1, 1.02, 1.02], [1.1, 1.0, 1.1, 1.04, 1.02]]
    verdict = judge(rows, [2, 1, 0])
    assert (verdict.winner, verdict.near, verdict.margin) == (2, (1, 2), 0.0)


def test_one_finalist_is_no_comparison() -> None:
    with pytest.raises(ValueError, match="two"):
        judge([[1.0]], [0])
