"""The climb at the end of a search, on made-up devices whose times drift and scatter."""

from __future__ import annotations

import functools
import math
import random
import time
from collections.abc import Sequence

import pytest

from mmsbgen.db.records.tuning_records import (
    DeviceRecord,
    KernelRecord,
    Key,
    ProblemRecord,
    ToolchainRecord,
    TrialRecord,
)
from mmsbgen.families.mmsb import MMSB
from mmsbgen.kernels.space import Config, Traits
from mmsbgen.tuner.measure.timing import Timing
from mmsbgen.tuner.search.candidates import BudgetSpentError, Candidates, candidates
from mmsbgen.tuner.search.coordinate_descent import CoordinateDescent, neighbours
from mmsbgen.tuner.search.surrogate import coordinates

CPU = Traits("opencl", "cpu", max_block_size=4096, local_memory=1 << 20, compute_units=2)
KEY = Key(
    DeviceRecord(
        backend="opencl",
        platform="P",
        vendor="V",
        name="D",
        architecture="a",
        driver="1",
        kind="cpu",
        compute_units=2,
        memory_bytes=1 << 30,
    ),
    ToolchainRecord("c", "1", ""),
    KernelRecord("mmsb", "update_phi", "t"),
    ProblemRecord("mmsb", {}),
)


@functools.cache
def space() -> Candidates:
    """What the device may try: made at the first use, as every process that runs tests imports this file."""
    return candidates(MMSB.kernel("update_phi"), MMSB.problem(), CPU, {"normalise": True})


def truth(config: Config) -> float:
    """Seconds: one hill, whose top is 16-wide, 4 rows, blocks of 32, prefetching."""
    return 1e-3 * (
        1
        + 0.2 * (config["placement"] != "THREAD")
        + 0.1 * abs(math.log2(int(config["block_size"]) / 32))
        + 0.1 * abs(math.log2(int(config["vector_width"]) / 16))
        + 0.1 * abs(math.log2(int(config["rows_in_flight"]) / 4))
        + 0.05 * (config["prefetch"] == 0)
        + 0.3 * (config["team"] != "item")
    )


class Drifting:
    """A device that gets slower and faster: what is timed in turns has one speed, what is tried has each its own."""

    def __init__(self, seed: int, budget: int) -> None:
        self.draw = random.Random(seed)
        self.trials: list[TrialRecord] = []
        self.budget = budget

    def attempt(self, configs: Sequence[Config]) -> None:
        for config in configs:
            if len(self.trials) >= self.budget:
                raise BudgetSpentError
            speed = self.draw.uniform(0.85, 1.15)
            times = tuple(truth(config) * speed * self.draw.uniform(1, 1.02) for _ in range(7))
            self.trials.append(TrialRecord(run="0" * 32, key=KEY, config=dict(config), status="ok", times=times))

    def turns(self, configs: Sequence[Config], rounds: int) -> list[Timing]:
        speeds = [self.draw.uniform(0.85, 1.15) for _ in range(rounds)]
        return [
            Timing(tuple(truth(config) * speed * self.draw.uniform(1, 1.02) for speed in speeds)) for config in configs
        ]


@pytest.mark.parametrize("seed", range(5))
def test_it_ends_at_the_top_from_wherever_the_search_has_ended(seed: int) -> None:
    device = Drifting(seed, budget=400)
    device.attempt(random.Random(seed).sample(space().configs, 10))
    climb = CoordinateDescent(space().configs, device.trials, device.turns, device.attempt)
    first = climb.finalists(None, climb=True)[0]
    assert truth(first.config) == min(map(truth, space().configs))
    assert len(device.trials) < 200


def test_a_budget_that_ends_ends_it() -> None:
    device = Drifting(3, budget=25)
    device.attempt(random.Random(3).sample(space().configs, 10))
    before = min(truth(trial.config) for trial in device.trials)
    finalists = CoordinateDescent(space().configs, device.trials, device.turns, device.attempt).finalists(
        None, climb=True
    )
    assert len(device.trials) == 25
    assert truth(finalists[0].config) <= before
    assert 1 < len(finalists) <= 5


def test_without_a_climb_the_best_are_compared_and_nothing_is_tried() -> None:
    device = Drifting(0, budget=40)
    device.attempt(random.Random(5).sample(space().configs, 40))
    worst = max(device.trials, key=lambda trial: truth(trial.config))
    finalists = CoordinateDescent(space().configs, device.trials, device.turns, device.attempt).finalists(
        worst, climb=False
    )
    assert finalists[-1] is worst
    assert truth(finalists[0].config) == min(truth(trial.config) for trial in device.trials)
    assert len(device.trials) == 40


def test_no_comparison_begins_when_no_time_is_left() -> None:
    device = Drifting(0, budget=400)
    device.attempt(random.Random(5).sample(space().configs, 40))
    compared: list[int] = []

    def turns(configs: Sequence[Config], rounds: int) -> list[Timing]:
        compared.append(len(configs))
        return device.turns(configs, rounds)

    for seconds, begins in ((-1.0, False), (60.0, True)):
        late = CoordinateDescent(
            space().configs, device.trials, turns, device.attempt, deadline=time.monotonic() + seconds
        )
        finalists = late.finalists(None, climb=True)
        assert bool(compared) == begins
        if not begins:
            least = sorted(device.trials, key=lambda trial: min(trial.times))
            assert finalists == least[: len(finalists)]
            assert 3 <= len(finalists) <= 5
            assert len(device.trials) == 40


def test_what_does_not_work_is_no_finalist() -> None:
    failed = TrialRecord(run="0" * 32, key=KEY, config=space().configs[0], status="crashed")
    device = Drifting(0, budget=1)
    assert CoordinateDescent(space().configs, [failed], device.turns, device.attempt).finalists(None, climb=True) == []


def test_neighbours_differ_by_one_step_as_far_as_constraints_let_them() -> None:
    index = space().configs.index(space().default)
    centre, found = (
        space().default,
        [space().configs[i] for i in neighbours(space().configs, coordinates(space().configs), index)],
    )
    assert centre not in found
    single = [config for config in found if sum(config[name] != centre[name] for name in centre) == 1]
    assert single
    for name in ("block_size", "vector_width", "rows_in_flight"):
        values = sorted({int(config[name]) for config in space().configs})
        place = values.index(int(centre[name]))
        next_to = {*values[max(0, place - 1) : place], *values[place + 1 : place + 2]}
        assert next_to <= {int(config[name]) for config in found}
    for name in ("placement", "team"):
        assert {config[name] for config in space().configs} == {centre[name], *(config[name] for config in found)}
