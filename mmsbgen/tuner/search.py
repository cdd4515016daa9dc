"""Strategies: in which order a space is tried.

A strategy proposes configurations to an :data:`Evaluate`, which answers with seconds and ends the search by
raising :class:`BudgetSpentError`.  The same seed and the same answers give the same order.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.errors import InputError
from mmsbgen.family import KernelSpec
from mmsbgen.problem import Problem, Value
from mmsbgen.space import Config, Traits, describe
from mmsbgen.tuner import kernel_tuner_strategies

__all__ = ["STRATEGIES", "BudgetSpentError", "Candidates", "Evaluate", "candidates", "check_strategy", "search"]

Evaluate = Callable[[Sequence[Config]], list[float]]
"""Seconds of each configuration, infinity for one that failed; asking again for the same costs nothing."""

OWN_STRATEGIES = ("default", "exhaustive", "random")
STRATEGIES = (*OWN_STRATEGIES, *kernel_tuner_strategies.NAMES)
_COVER_TRIES = 48
_RIDGE = 0.3


class BudgetSpentError(Exception):
    """No further configuration may be measured."""


@dataclass(frozen=True)
class Candidates:
    """The valid configurations of a kernel for a problem on a device, and why the others are refused.

    ``refusals`` counts refused configurations by the name of the constraint; ``examples`` has one reason each.
    """

    configs: list[dict[str, Value]]
    default: dict[str, Value]
    refusals: Counter[str]
    examples: Mapping[str, str]

    @property
    def total(self) -> int:
        """How many configurations there are, refused ones included."""
        return len(self.configs) + self.refusals.total()


def candidates(
    spec: KernelSpec, problem: Problem, traits: Traits, fixed: Mapping[str, Value] | None = None
) -> Candidates:
    """The part of a kernel's space that is searched: valid here, with ``fixed`` axes and modes left as they are.

    Raises :class:`InputError` when ``fixed`` has a value that the axis lacks, or when nothing is valid.
    """
    default = dict(spec.default(problem, traits))
    kept = {name: default[name] for name in spec.modes} | dict(fixed or {})
    configs: list[dict[str, Value]] = []
    refusals: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for axis in spec.space.axes:
        if axis.name in kept and kept[axis.name] not in axis.values:
            allowed = ", ".join(map(str, axis.values))
            raise InputError(f"{spec.name}: {axis.name}={kept[axis.name]} is not one of {allowed}")
    for config in spec.space.product():
        if any(config[name] != value for name, value in kept.items() if name in config):
            continue
        reason = spec.space.refusal(config, problem, traits)
        if reason is None:
            configs.append(config)
            continue
        name, _, why = reason.partition(": ")
        refusals[name] += 1
        examples.setdefault(name, f"{why} ({describe(config)})")
    if not configs:
        reasons = "; ".join(f"{name}: {why}" for name, why in examples.items())
        raise InputError(f"{spec.name} has no valid configuration for this problem on this device: {reasons}")
    if default not in configs:
        default = configs[0]
    return Candidates(configs, default, refusals, examples)


def check_strategy(name: str) -> None:
    """Raise :class:`InputError` for a strategy that does not exist or whose library is missing."""
    if name not in STRATEGIES:
        raise InputError(f"no strategy {name!r}; there are {', '.join(STRATEGIES)}")
    if name not in OWN_STRATEGIES:
        kernel_tuner_strategies.require()


def search(name: str, space: Candidates, evaluate: Evaluate, *, budget: int | None, seed: int) -> None:
    """Run a strategy until it is done or the budget is spent; ``budget`` is how many may be measured, if limited.

    Every strategy begins with the default configuration.
    """
    check_strategy(name)
    try:
        evaluate([space.default])
        if name == "exhaustive":
            evaluate(space.configs)
        elif name == "random":
            evaluate(random.Random(seed).sample(space.configs, len(space.configs)))
        elif name == "default":
            _default(space, evaluate, budget, random.Random(seed))
        else:
            kernel_tuner_strategies.run(name, space.configs, evaluate, budget=budget, seed=seed)
    except BudgetSpentError:
        pass


def _default(space: Candidates, evaluate: Evaluate, budget: int | None, rng: random.Random) -> None:
    """All there is when the budget allows; else a sample that covers every value, then a search around the best."""
    if budget is None or len(space.configs) <= budget:
        evaluate(rng.sample(space.configs, len(space.configs)))
        return
    seen = _Seen(space, evaluate)
    seen.try_one(space.configs.index(space.default))
    for index in _covering(space.configs, rng, most=max(1, budget // 2)):
        seen.try_one(index)
    for turn in range(len(space.configs)):
        best = seen.promising(among_neighbours=turn % 4 != 3)
        if best is None:
            return
        seen.try_one(best)


def _covering(configs: Sequence[Config], rng: random.Random, most: int) -> Iterator[int]:
    """Indices of configurations that together have every value of every axis, the most uncovered values first."""
    missing = {(name, value) for config in configs for name, value in config.items()}
    for _ in range(most):
        if not missing:
            return
        drawn = rng.sample(range(len(configs)), min(_COVER_TRIES, len(configs)))
        gains = [len(missing & set(configs[i].items())) for i in drawn]
        if max(gains) == 0:
            wanted = min(missing, key=repr)
            drawn = [rng.choice([i for i, config in enumerate(configs) if config[wanted[0]] == wanted[1]])]
            gains = [1]
        index = drawn[gains.index(max(gains))]
        missing -= set(configs[index].items())
        yield index


class _Seen:
    """What was measured so far, with a linear model of log time over axis values that ranks the rest."""

    def __init__(self, space: Candidates, evaluate: Evaluate) -> None:
        self.configs = space.configs
        self.evaluate = evaluate
        self.seconds: dict[int, float] = {}
        names = list(space.configs[0])
        values = {name: sorted({config[name] for config in space.configs}, key=repr) for name in names}
        self.codes = np.array([[values[name].index(config[name]) for name in names] for config in space.configs])
        sizes = [len(values[name]) for name in names]
        starts = np.cumsum([0, *sizes[:-1]])
        self.features = np.zeros((len(space.configs), sum(sizes)))
        self.features[np.arange(len(space.configs))[:, None], self.codes + starts] = 1.0

    def try_one(self, index: int) -> None:
        """Measure one configuration, unless that was done."""
        if index not in self.seconds:
            (self.seconds[index],) = self.evaluate([self.configs[index]])

    def promising(self, *, among_neighbours: bool) -> int | None:
        """The untried configuration that the model likes best, among those one axis away from the best if asked.

        Where the best has no such neighbour left, those of the second best count, and so on.
        """
        untried = np.ones(len(self.configs), bool)
        untried[list(self.seconds)] = False
        if not untried.any():
            return None
        pool = untried
        if among_neighbours:
            for index in sorted(self.seconds, key=lambda i: self.seconds[i])[:8]:
                near = untried & ((self.codes != self.codes[index]).sum(axis=1) == 1)
                if math.isfinite(self.seconds[index]) and near.any():
                    pool = near
                    break
        predicted = np.where(pool, self._predict(), np.inf)
        return int(np.argmin(predicted))

    def _predict(self) -> npt.NDArray[Any]:
        """Log seconds of every configuration, by ridge regression on axis values; a failure is twice the worst."""
        tried = list(self.seconds)
        finite = [t for t in self.seconds.values() if math.isfinite(t)]
        if not finite:
            return np.zeros(len(self.configs))
        worst = 2 * max(finite)
        y = np.log([min(self.seconds[i], worst) for i in tried])
        x = self.features[tried]
        mean = y.mean()
        weights = np.linalg.solve(x.T @ x + _RIDGE * np.eye(x.shape[1]), x.T @ (y - mean))
        predicted: npt.NDArray[Any] = self.features @ weights + mean
        return predicted
