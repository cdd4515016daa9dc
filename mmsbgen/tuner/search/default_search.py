"""The default strategy: a few trials by the model or by other records, then search by expected improvement.

The budget is in trials, in seconds, or in both; the search goes by the share that is spent.  With a budget in seconds,
the expected cost of a candidate is weighed against its expected improvement.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mmsbgen.kernels.space import Config
from mmsbgen.tuner.search.cost_model import features
from mmsbgen.tuner.search.surrogate import (
    MODELLED,
    coordinates,
    expected_improvement,
    fitted,
    posterior,
)

if TYPE_CHECKING:
    from mmsbgen.tuner.search.candidates import Candidates, Evaluate

#: Share of the budget for the sample; its size where only time bounds the search; and random draws for each member of
#: the sample, of which one is chosen.
_FIRST = 0.2
_FIRST_OF_ANY = 20
_DRAWN = 24
#: Share of the space, best by the model, from which the sample is drawn.
_LIKED = 0.5
#: Trials that a search without a budget in trials or seconds assumes.
_PLANNED = 100
#: Most configurations chosen at a time, so that they can be compiled in parallel; and trials of the budget for each of
#: them, as a short search should learn from every single one.
_TOGETHER = 4
_FOR_EACH = 12
#: Most configurations announced in advance, for runs with many compilers.
_HINTED = 32
#: Measurements used by the surrogate, best first: fitting takes cubic time in their number.
_REMEMBERED = 256
#: Log seconds above the best at which values are clipped.
_CARED_FOR = 0.2
#: Power of the expected cost by which the expected improvement is divided.
_THRIFT = 0.5
#: Configurations tried first by the slowdowns that records of this device let one expect, and weights of what is
#: expected afterwards.
_TRANSFERRED = 3
_WEIGHTS = (0.0, 0.5, 1.0)


def default_search(space: Candidates, evaluate: Evaluate, budget: int | None, rng: random.Random) -> None:
    """Try the whole space if the budget allows; else a few first trials, then search by expected improvement."""
    if budget is not None and len(space.configs) <= budget:
        evaluate(rng.sample(space.configs, len(space.configs)))
        return
    seen = _Seen(space, evaluate, budget)
    seen.try_all([space.configs.index(space.default)])
    if space.expected is not None and space.expected.same_device:
        order = [int(index) for index in np.argsort(space.expected.slowdowns, kind="stable")]
        seen.try_all([index for index in order if index not in seen.seconds][:_TRANSFERRED])
    else:
        _sample(seen, budget, rng)
    while len(seen.seconds) < len(space.configs):
        seen.try_all(seen.promising(seen.together()))


def _sample(seen: _Seen, budget: int | None, rng: random.Random) -> None:
    """Try a fifth of the budget, among what the model likes."""
    total = len(seen.configs)
    first = min(total, _FIRST_OF_ANY if budget is None else max(2, int(budget * _FIRST)))
    liked = seen.liked(rng, most=max(4 * first, int(total * _LIKED)))
    sample = list(seen.seconds)
    while len(sample) < first and (len(sample) < 2 or seen.part() < _FIRST):
        # With a budget in seconds, the number of trials in a fifth of it is unknown.
        count = min(first - len(sample), first if seen.cost is None else seen.together())
        for _ in range(count):
            sample.append(seen.farthest(rng.sample(liked, min(_DRAWN, len(liked))), sample))
        seen.try_all(sample[-count:])


class _Seen:
    """The measurements so far, and every configuration as a point of axis coordinates and model features."""

    def __init__(self, space: Candidates, evaluate: Evaluate, budget: int | None) -> None:
        self.configs = space.configs
        self.evaluate = evaluate
        self.budget = budget
        self.tell: Callable[[Sequence[Config]], None] | None = getattr(evaluate, "likely", None)
        self.cost: Callable[[Config], float] | None = getattr(evaluate, "cost", None)
        self.seconds: dict[int, float] = {}
        self.work = np.ones(len(space.configs))
        self.points = coordinates(space.configs)
        known = space.expected
        self.weights = (0.0,) if known is None else _WEIGHTS
        self.expected = np.minimum(np.zeros(len(space.configs)) if known is None else known.slowdowns, _CARED_FOR)
        if space.model is not None:
            estimates = space.model(space.configs)
            self.work = np.array([estimate.work for estimate in estimates])
            self.points = np.hstack([self.points, MODELLED * features(estimates)])

    def try_all(self, indices: Sequence[int]) -> None:
        """Measure configurations and record the results."""
        found = self.evaluate([self.configs[index] for index in indices])
        self.seconds.update(zip(indices, found, strict=True))

    def part(self) -> float:
        """Share of the budget that is spent."""
        told: Callable[[], float] | None = getattr(self.evaluate, "part", None)
        return told() if told is not None else len(self.seconds) / (self.budget or _PLANNED)

    def together(self) -> int:
        """Number of configurations to choose at a time, which grows with the budget."""
        return max(1, min(_TOGETHER, int(self.trials() / _FOR_EACH)))

    def trials(self) -> float:
        """Number of trials in the budget, estimated if it is in seconds."""
        part = self.part()
        return self.budget or (len(self.seconds) / part if part > 0 else _PLANNED)

    def liked(self, rng: random.Random, most: int) -> list[int]:
        """The ``most`` best configurations by the model; ties in random order."""
        order = rng.sample(range(len(self.configs)), len(self.configs))
        return sorted(order, key=lambda index: float(self.work[index]))[:most]

    def farthest(self, drawn: Sequence[int], chosen: Sequence[int]) -> int:
        """The one of ``drawn`` farthest from those ``chosen``, or of all others if every drawn one was chosen."""
        fresh = [i for i in drawn if i not in chosen] or [i for i in range(len(self.configs)) if i not in chosen]
        tried = self.points[list(chosen)]
        apart = [float(((tried - self.points[i]) ** 2).sum(axis=1).min()) for i in fresh]
        return fresh[apart.index(max(apart))]

    def promising(self, count: int) -> list[int]:
        """The untried configurations with the largest expected improvement on the best, largest first.

        What was expected from other records is the mean of the process, with the weight of the largest likelihood.
        Each is chosen as though those before it had turned out as expected (the kriging believer).  With a budget in
        seconds, the improvement is divided by the square root of the expected cost.  Division by the cost itself
        (Snoek, Larochelle and Adams, 2012) would try cheap configurations only.
        """
        known = sorted(self.seconds, key=lambda index: self.seconds[index])[:_REMEMBERED]
        finite = [s for s in self.seconds.values() if math.isfinite(s)]
        worst = 2 * max(finite, default=1.0)
        values = np.log([min(self.seconds[index], worst) for index in known])
        # Differences between slow configurations are clipped: they would hide those between the fastest ones.
        values = np.minimum(values, values.min() + _CARED_FOR)
        dear = self._dear(known)
        chosen: list[int] = []
        tries = [(fitted(self.points, known, values - w * self.expected[known]), w) for w in self.weights]
        fit, weight = max(tries, key=lambda one: one[0].likelihood)
        while len(chosen) < min(count, len(self.configs) - len(self.seconds)):
            at = [*known, *chosen]
            mean, deviation = posterior(self.points, at, values - weight * self.expected[at], fit)
            mean += weight * self.expected
            gain = expected_improvement(mean, deviation, float(values.min())) / dear
            gain[[*self.seconds, *chosen]] = -math.inf
            if not chosen and self.tell is not None:
                self.tell([self.configs[index] for index in np.argsort(-gain)[:_HINTED] if gain[index] > -math.inf])
            chosen.append(int(np.argmax(gain)))
            values = np.append(values, mean[chosen[-1]])
        return chosen

    def _dear(self, known: Sequence[int]) -> npt.NDArray[Any] | float:
        """Divisor of the expected improvement of each configuration, from its expected cost."""
        if self.cost is None:
            return 1.0
        spent = np.log([max(self.cost(self.configs[index]), 1e-6) for index in known])
        mean, _ = posterior(self.points, known, spent, fitted(self.points, known, spent))
        found: npt.NDArray[Any] = np.exp(_THRIFT * (mean - mean.min()))
        return found
