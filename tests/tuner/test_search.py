from __future__ import annotations

import math
import random
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from mmsbgen.base.errors import InputError
from mmsbgen.families.mmsb import MMSB
from mmsbgen.kernels.space import Config, Traits
from mmsbgen.tuner.search.candidates import BudgetSpentError, Candidates, candidates
from mmsbgen.tuner.search.default_search import _Seen
from mmsbgen.tuner.search.strategies import STRATEGIES, check_strategy, search

CPU = Traits("opencl", "cpu", max_block_size=4096, local_memory=1 << 20, compute_units=2)
PROBLEM = MMSB.problem()


@pytest.fixture(scope="module")
def space() -> Candidates:
    return candidates(MMSB.kernel("update_phi"), PROBLEM, CPU, {"normalise": True})


class Landscape:
    """Made-up seconds in the shape of a CPU's: smooth in each axis, with noise and some failures."""

    def __init__(self, budget: int | None = None) -> None:
        self.budget = budget
        self.seconds: dict[tuple[tuple[str, object], ...], float] = {}

    def __call__(self, configs: Sequence[Config]) -> list[float]:
        return [self.one(config) for config in configs]

    def one(self, config: Config) -> float:
        key = tuple(sorted(config.items()))
        if key not in self.seconds:
            if self.budget is not None and len(self.seconds) >= self.budget:
                raise BudgetSpentError
            self.seconds[key] = self.truth(config)
        return self.seconds[key]

    @staticmethod
    def truth(config: Config) -> float:
        noise = random.Random(repr(sorted(config.items()))).random()
        if noise < 0.03:
            return math.inf
        shared = str(config["placement"]).count("S")
        return (
            (1 + 0.1 * noise)
            * {"THREAD": 1.0, "NAIVE": 1.5}.get(str(config["placement"]), 1.2 + 0.1 * shared)
            * (1 + 4 / int(config["vector_width"]))
            * (1 + 1 / int(config["rows_in_flight"]))
            * {"item": 1, "subgroup": 2, "block": 3}[str(config["team"])]
            * (1 + 0.1 * math.log2(int(config["block_size"])))
        )


@pytest.mark.slow
def test_the_default_strategy_begins_with_the_default_and_with_what_the_model_likes(space: Candidates) -> None:
    seen = Landscape(budget=60)
    search("default", space, seen, budget=60, seed=3)
    assert len(seen.seconds) == 60
    order = list(seen.seconds)
    assert order[0] == tuple(sorted(space.default.items()))
    model = space.model
    assert model is not None
    work = {tuple(sorted(c.items())): e.work for c, e in zip(space.configs, model(space.configs), strict=True)}
    half = sorted(work.values())[len(work) // 2]
    assert all(work[key] <= half for key in order[1:12])
    assert len({value for key in order[:12] for name, value in key if name == "placement"}) > 4


@pytest.mark.slow
def test_a_model_that_is_wrong_costs_trials_and_not_the_result() -> None:
    """Nothing is ruled out: here the model likes the slowest best."""
    space = candidates(MMSB.kernel("theta_partial"), PROBLEM, CPU)
    model = space.model
    assert model is not None
    misled = replace(space, model=lambda configs: [replace(e, work=1 / e.work) for e in model(configs)])
    truth = {tuple(sorted(c.items())): e.work for c, e in zip(space.configs, model(space.configs), strict=True)}
    seen: dict[tuple[tuple[str, object], ...], float] = {}

    def ask(configs: Sequence[Config]) -> list[float]:
        for config in configs:
            key = tuple(sorted(config.items()))
            if key not in seen and len(seen) == 100:
                raise BudgetSpentError
            seen[key] = truth[key]
        return [truth[tuple(sorted(config.items()))] for config in configs]

    search("default", misled, ask, budget=100, seed=0)
    assert min(seen.values()) < 1.03 * min(truth.values())


@pytest.mark.slow
def test_the_default_strategy_finds_a_good_configuration_in_60_of_thousands(space: Candidates) -> None:
    assert len(space.configs) > 2000
    best = min(map(Landscape.truth, space.configs))
    found = []
    for seed in range(5):
        seen = Landscape(budget=60)
        search("default", space, seen, budget=60, seed=seed)
        found.append(min(seen.seconds.values()) / best)
    assert sorted(found)[3] < 1.1, found


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_strategy_is_a_function_of_its_seed(strategy: str, space: Candidates) -> None:
    orders = []
    generators = random.getstate(), np.random.default_rng, np.random.get_state()[1].tolist()
    for seed in (1, 1, 2):
        seen = Landscape(budget=40)

        def ask(configs: Sequence[Config], seen: Landscape = seen) -> list[float]:
            assert generators == (random.getstate(), np.random.default_rng, np.random.get_state()[1].tolist())
            return seen(configs)

        search(strategy, space, ask, budget=40, seed=seed)
        assert generators == (random.getstate(), np.random.default_rng, np.random.get_state()[1].tolist())
        orders.append(list(seen.seconds))
    assert orders[0] == orders[1]
    assert (orders[0] == orders[2]) is (strategy == "exhaustive")
    assert 1 < len(orders[0]) <= 40
    assert orders[0][0] == tuple(sorted(space.default.items()))


class Compiling(Landscape):
    """Beside a GPU: one of those announced is compiled at a time, the least likely first."""

    def __init__(self, budget: int) -> None:
        super().__init__(budget)
        self.announced: list[Config] = []
        self.compiled: list[Config] = []
        self.unready = 0
        """Configurations that were asked for before they were compiled, though others were announced."""

    def __call__(self, configs: Sequence[Config]) -> list[float]:
        self.unready += sum(config not in self.compiled for config in configs) if self.announced else 0
        return super().__call__(configs)

    def part(self) -> float:
        assert self.budget is not None
        return len(self.seconds) / self.budget

    def cost(self, config: Config) -> tuple[float, float]:
        return 1.0, 0.1

    def likely(self, configs: Sequence[Config]) -> None:
        self.announced = [config for config in configs if config not in self.compiled]

    def ready(self, configs: Sequence[Config]) -> list[bool]:
        return [config in self.compiled for config in configs]

    def wait_for_one(self) -> bool:
        self.compiled.append(self.announced.pop())
        return True


@pytest.mark.slow
def test_with_a_budget_of_seconds_what_is_compiled_is_measured_first(space: Candidates) -> None:
    evaluate = Compiling(budget=60)
    search("default", space, evaluate, budget=None, seed=0)
    assert len(evaluate.seconds) == 60
    assert len(evaluate.compiled) > 30
    assert evaluate.unready == 0


def test_what_is_announced_is_not_alike() -> None:
    """Nine are nearly the same, and any of them tells what the others gain; the last is half as promising."""
    points = np.concatenate([np.linspace(0, 0.01, 9), [3.0]])[:, None]
    gain = np.append(np.linspace(1.0, 0.9, 9), 0.5)
    seen = SimpleNamespace(points=points)
    order = _Seen._spread(cast(_Seen, seen), np.arange(10), gain, length=1.0)
    assert order[:2] == [0, 9]
    gain[0] = -math.inf  # tried
    assert set(_Seen._spread(cast(_Seen, seen), np.arange(10), gain, length=1.0)) == set(range(1, 10))


def test_searches_of_two_threads_are_those_of_each_alone() -> None:
    """Both wait in every measurement, so that their turns alternate; each also takes a lock there, as fleets do."""
    space = candidates(MMSB.kernel("theta_end"), PROBLEM, CPU)
    shared = threading.Lock()

    def order(seed: int, together: bool) -> list[str]:
        seen: list[str] = []

        def ask(configs: Sequence[Config]) -> list[float]:
            with shared:
                seen.extend(repr(sorted(config.items())) for config in configs)
                time.sleep(0.002 * together)
            return [1 + random.Random(text).random() for text in seen[-len(configs) :]]

        search("genetic_algorithm", space, ask, budget=30, seed=seed)
        return seen

    random.seed(5)
    np.random.seed(5)
    before = random.getstate(), np.random.get_state()[1].tolist()
    alone = [order(seed, False) for seed in (1, 2)]
    assert alone[0] != alone[1]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(2) as pool:
            pending = [pool.submit(order, seed, True) for seed in (1, 2)]
            assert [future.result(timeout=60) for future in pending] == alone
    finally:
        sys.setswitchinterval(interval)
    assert before == (random.getstate(), np.random.get_state()[1].tolist())


@pytest.mark.parametrize("strategy", ["default", "exhaustive", "random"])
def test_all_is_tried_when_the_budget_allows(strategy: str) -> None:
    space = candidates(MMSB.kernel("theta_end"), PROBLEM, CPU)
    seen: list[Config] = []

    def ask(configs: Sequence[Config]) -> list[float]:
        seen.extend(config for config in configs if config not in seen)
        return [1.0] * len(configs)

    search(strategy, space, ask, budget=1000, seed=0)
    assert len(seen) == len(space.configs)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_space_in_which_nothing_works_ends(strategy: str) -> None:
    space = candidates(MMSB.kernel("theta_end"), PROBLEM, CPU)
    search(strategy, space, lambda configs: [math.inf] * len(configs), budget=30, seed=0)


@pytest.mark.slow
def test_a_space_of_one_configuration() -> None:
    fixed = {
        "placement": "THREAD",
        "vector_width": 16,
        "block_size": 1,
        "rows_in_flight": 4,
        "prefetch": 0,
        "normalise": True,
    }
    space = candidates(MMSB.kernel("update_phi"), PROBLEM, CPU, fixed)
    assert len(space.configs) == 1
    for strategy in STRATEGIES:
        seen = Landscape()
        search(strategy, space, seen, budget=10, seed=0)
        assert len(seen.seconds) == 1, strategy


def test_refusals_are_counted_by_constraint_with_an_example(space: Candidates) -> None:
    assert space.total == sum(1 for config in MMSB.kernel("update_phi").space.product() if config["normalise"])
    assert set(space.refusals) == set(space.examples)
    assert space.refusals["team"] > 0
    assert "no sub-groups" in space.examples["team"]


def test_a_fixed_axis_keeps_its_value(space: Candidates) -> None:
    assert {config["normalise"] for config in space.configs} == {True}
    with pytest.raises(InputError, match=r"vector_width=3 is not one of 1, 2, 4, 8, 16"):
        candidates(MMSB.kernel("update_phi"), PROBLEM, CPU, {"vector_width": 3})


def test_an_empty_space_says_why() -> None:
    tiny = Traits("opencl", "cpu", max_block_size=1, fp64=False)
    with pytest.raises(InputError, match="no double precision"):
        candidates(MMSB.kernel("update_phi"), PROBLEM, tiny)


def test_an_unknown_strategy_is_named() -> None:
    with pytest.raises(InputError, match="no strategy 'clever'; there are default, exhaustive"):
        check_strategy("clever")
