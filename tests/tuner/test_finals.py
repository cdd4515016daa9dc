"""How long finalists are timed, and which are metered."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from mmsbgen.kernels.space import Config
from mmsbgen.tuner.measure.timing import Timing
from mmsbgen.tuner.run.finals import METER_S, in_time, metered, timed_in_turns


@pytest.mark.parametrize(("seconds", "kept"), [(math.inf, [3, 9, 1, 2]), (60.0, [3, 1, 2]), (10.0, [3])])
def test_the_slowest_finalists_are_left_out_where_time_is_short(seconds: float, kept: list[int]) -> None:
    trials: list[Any] = [SimpleNamespace(median_s=float(median)) for median in (3, 9, 1, 2)]
    assert [trial.median_s for trial in in_time(trials, seconds)] == kept


def test_without_a_budget_of_seconds_all_are_metered_the_winner_first() -> None:
    assert list(metered(4, 2, None)) == [2, 0, 1, 3]


@pytest.mark.parametrize(
    ("whole", "left", "places"),
    [
        (60.0, 30.0, [1, 0, 2]),  # time enough for all
        (60.0, -1.0, [1]),  # the winner takes less than a tenth of the kernel's time
        (5.0, -1.0, []),  # and here more
        (5.0, METER_S + 1.0, [1, 0, 2]),  # but there is time left
    ],
)
def test_where_seconds_count_metering_takes_a_small_part_of_them(whole: float, left: float, places: list[int]) -> None:
    now = time.monotonic()
    assert list(metered(3, 1, (now + left - whole, now + left))) == places


@pytest.mark.parametrize(
    ("first", "second", "rounds"),
    [
        ([1.0] * 100, [1.2, 1.3] * 50, 25),  # one is clearly faster
        ([1.0] * 100, [1.0001] * 100, 25),  # hardly any noise
        ([1.0, 1.1] * 50, [1.1, 1.0] * 50, 100),
    ],
)
def test_finals_end_when_a_quarter_of_the_rounds_decides(first: list[float], second: list[float], rounds: int) -> None:
    asked = []

    def turns(configs: Sequence[Config], rounds: int) -> list[Timing]:
        begin = sum(asked)
        asked.append(rounds)
        return [Timing(tuple(each[begin : begin + rounds]), 2) for each in (first, second)]

    found = timed_in_turns([{}, {}], 100, turns)
    assert [timing.times for timing in found] == [tuple(first[:rounds]), tuple(second[:rounds])]
    assert sum(asked) == rounds


def test_finals_end_with_their_seconds_though_the_device_became_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round takes twice as long as was planned, so that half of them fit."""
    clock = [0.0]
    monkeypatch.setattr("mmsbgen.tuner.run.finals.time.monotonic", lambda: clock[0])

    def turns(configs: Sequence[Config], rounds: int) -> list[Timing]:
        clock[0] += 2.0 * rounds
        return [Timing(tuple([1.0, 1.1] * rounds)[:rounds]), Timing(tuple([1.1, 1.0] * rounds)[:rounds])]

    assert len(timed_in_turns([{}, {}], 100, turns, seconds=100.0)[0].times) == 50
    assert clock == [100.0]


def test_metering_ends_with_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes :data:`METER_S`: with time for two and a half, two are metered."""
    clock = [100.0]
    monkeypatch.setattr("mmsbgen.tuner.run.finals.time.monotonic", lambda: clock[0])
    found = []
    for place in metered(5, 0, (90.0, 100.0 + 2.5 * METER_S)):
        found.append(place)
        clock[0] += METER_S
    assert found == [0, 1]
