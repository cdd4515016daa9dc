from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from mmsbgen.backends.base import Event
from mmsbgen.backends.fake import FakeDevice
from mmsbgen.tuner.measure.timing import Patience, time_launches, time_turns


class Scripted(Event):
    def __init__(self, clock: float, took: float) -> None:
        self.begin, self.end = clock - took, clock

    def wait(self) -> None:
        return None

    def seconds_since(self, first: Event) -> float:
        assert isinstance(first, Scripted)
        return self.end - first.begin


class Clock(FakeDevice):
    """A device on which time passes as the script says."""

    def __init__(self, kind: str, took: Callable[[int], float]) -> None:
        super().__init__()
        self.info = replace(self.info, kind=kind)
        self.now = 0.0
        self.took = took
        self.turns: list[int] = []

    def launch(self, turn: int) -> Event:
        self.turns.append(turn)
        self.now += self.took(turn)
        return Scripted(self.now, self.took(turn))

    def mark(self) -> Event:
        return Scripted(self.now, 0.0)


def test_the_warm_up_is_not_kept_and_inputs_rotate() -> None:
    device = Clock("cpu", lambda turn: 3.0 if turn == 0 else 0.1)
    timing = time_launches(device, device.launch, Patience())
    assert timing.times == pytest.approx([0.1] * 7)
    assert device.turns == list(range(8))
    assert not timing.given_up


def test_slow_kernels_are_repeated_less() -> None:
    device = Clock("cpu", lambda turn: 2.0)
    assert len(time_launches(device, device.launch, Patience(repetitions=7, limit_s=1.0)).times) == 3


def test_fast_kernels_are_repeated_until_the_time_is_enough_or_the_most() -> None:
    device = Clock("cpu", lambda turn: 0.01)
    assert len(time_launches(device, device.launch, Patience(enough_s=0.2)).times) == 20
    assert len(time_launches(device, device.launch, Patience(enough_s=9.0, limit_s=9.0, most=30)).times) == 30


@pytest.mark.parametrize(("took", "launches", "kept"), [(0.4, 3, 2), (9.0, 1, 1)])
def test_hopeless_configurations_are_given_up_but_told(took: float, launches: int, kept: int) -> None:
    device = Clock("cpu", lambda turn: took)
    timing = time_launches(device, device.launch, Patience(hopeless=(math.inf, 3.0)), best_s=0.1)
    assert timing.given_up
    assert timing.times == pytest.approx([took] * kept)
    assert len(device.turns) == launches


def test_what_is_slower_than_the_best_beyond_the_noise_is_not_timed_further() -> None:
    device = Clock("cpu", lambda turn: 0.1 + 0.01 * (turn % 3))
    timing = time_launches(device, device.launch, Patience(), best_s=0.09)
    assert not timing.given_up
    assert len(timing.times) == 5
    assert len(time_launches(device, device.launch, Patience(), best_s=0.105).times) == 7


def test_more_repetitions_need_less_to_be_hopeless() -> None:
    device = Clock("cpu", lambda turn: 0.13)
    timing = time_launches(device, device.launch, Patience(hopeless=(math.inf, 2.0, 1.5, 1.2)), best_s=0.1)
    assert timing.given_up
    assert len(timing.times) == 4


@pytest.mark.parametrize(
    ("kind", "seconds", "batch"), [("gpu", 1e-4, 10), ("gpu", 1e-2, 1), ("gpu", 1e-6, 1), ("cpu", 1e-4, 1)]
)
def test_short_kernels_on_gpus_are_launched_back_to_back(kind: str, seconds: float, batch: int) -> None:
    device = Clock(kind, lambda turn: seconds)
    timing = time_launches(device, device.launch, Patience())
    assert timing.batch == batch
    assert timing.times == pytest.approx([seconds] * len(timing.times))
    assert device.profiling


def test_a_batch_is_queued_before_its_first_launch_begins() -> None:
    held: list[int] = []

    class Holding(Clock):
        holds = True

        @contextlib.contextmanager
        def held(self) -> Iterator[None]:
            before = len(self.turns)
            yield
            held.append(len(self.turns) - before)

    device = Holding("gpu", lambda turn: 2e-5)
    timing = time_launches(device, device.launch, Patience(repetitions=3, enough_s=0.0))
    assert held == [50] * len(timing.times)


def test_the_shortest_kernels_are_batched_where_they_can_be_held() -> None:
    device = Clock("gpu", lambda turn: 1e-6)
    device.holds = True
    assert time_launches(device, device.launch, Patience()).batch == 128


@pytest.mark.parametrize(("kind", "first_s"), [("gpu", 9.5e-6), ("cpu", 8e-3)])
def test_a_short_kernel_is_not_given_up_by_its_first_launch(kind: str, first_s: float) -> None:
    """On a GPU it has the overhead of two events; on a processor others run, and its program comes from a disk."""
    clock = Clock(kind, lambda turn: first_s if turn == 0 else 1.5e-6)
    clock.holds = kind == "gpu"
    timing = time_launches(clock, clock.launch, Patience(hopeless=(math.inf, 1.05)), best_s=1.9e-6)
    assert not timing.given_up
    assert timing.times == pytest.approx([1.5e-6] * len(timing.times))


def test_finalists_have_batches_of_one_size() -> None:
    turns = Turns(lambda order, name: {"a": 1e-4, "b": 2.5e-4}[name])
    turns.device.info = replace(turns.device.info, kind="gpu")
    assert [timing.batch for timing in time_turns(turns.device, [turns.launcher(name) for name in "ab"], 3)] == [10, 10]


class Turns:
    """Kernels on one device that write down in which order they are launched."""

    def __init__(self, took: Callable[[list[str], str], float]) -> None:
        self.order: list[str] = []
        self.device = Clock("cpu", lambda turn: took(self.order, self.order[-1][0]))

    def launcher(self, name: str) -> Callable[[int], Event]:
        def launch(turn: int) -> Event:
            self.order.append(f"{name}{turn}")
            return self.device.launch(turn)

        return launch


def test_finalists_take_turns() -> None:
    turns, rounds = Turns(lambda order, name: {"a": 0.1, "b": 0.2, "c": 0.3}[name]), 30
    timings = time_turns(turns.device, [turns.launcher(name) for name in "abc"], rounds)
    assert turns.order[:3] == ["a0", "b0", "c0"]
    assert [list(timing.times) for timing in timings] == [pytest.approx([each] * rounds) for each in (0.1, 0.2, 0.3)]
    seen = [turns.order[first : first + 4] for first in range(3, len(turns.order), 4)]
    assert len(seen) == rounds
    for turn, (_, *kept) in enumerate(seen, 1):
        assert {name[1:] for name in kept} == {str(turn)}, "all have the same inputs"
    assert len({tuple(name[0] for name in kept) for _, *kept in seen}) == 6, "each order comes up"


def test_no_finalist_pays_for_being_the_first_to_see_its_inputs() -> None:
    def took(order: list[str], name: str) -> float:
        return 0.1 if order[-1][1:] in {other[1:] for other in order[:-1]} else 0.5

    turns = Turns(took)
    for timing in time_turns(turns.device, [turns.launcher(name) for name in "ab"], 20):
        assert timing.times == pytest.approx([0.1] * 20)


def test_no_finalist_always_follows_the_same_other() -> None:
    def took(order: list[str], name: str) -> float:
        return 0.11 if order[-2:-1] and order[-2][0] == "a" else 0.1

    turns = Turns(took)
    a, b, c = (timing.times for timing in time_turns(turns.device, [turns.launcher(name) for name in "abc"], 200))
    assert min(times.count(pytest.approx(0.1)) for times in (b, c)) > 40, "b does not always come after a"
    assert len(a) == 200
