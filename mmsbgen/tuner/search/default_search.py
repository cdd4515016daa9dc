"""The default strategy: a few trials by the model or by other records, then search by expected improvement.

The budget is in trials, in seconds, or in both; the search goes by the share that is spent.  With a budget in seconds,
the expected cost of a candidate is weighed against its expected improvement.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.kernels.space import Config
from mmsbgen.tuner.search.candidates import Candidates, Evaluate, features
from mmsbgen.tuner.search.surrogate import MODELLED, Posteriors, coordinates, correlations, expected_improvement, fitted

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
#: Most configurations announced in advance, for runs with many compilers; those among which the next are chosen; and
#: the share of the largest expected improvement for which a compiled one is tried before another is waited for.
_HINTED = 64
_LIKELY = 512
_WORTH = 0.1
#: Least gain of what may be announced.
_LEAST_GAIN = 1e-200
#: Measurements used by the surrogate, best first: fitting takes cubic time in their number.
_REMEMBERED = 256
#: Log seconds above the best at which values are clipped.
_CARED_FOR = 0.2
#: Cost of what would not end in time, in seconds.
_NEVER_S = 1e30
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
    if space.expected:
        order = [int(index) for index in np.argsort(space.expected, kind="stable")]
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
        self.cost: Callable[[Config], tuple[float, float]] | None = getattr(evaluate, "cost", None)
        self.ready: Callable[[Sequence[Config]], list[bool]] | None = getattr(evaluate, "ready", None)
        self.left: Callable[[], float] | None = getattr(evaluate, "left", None)
        self.wait_for_one: Callable[[], bool] | None = getattr(evaluate, "wait_for_one", None)
        self.side_by_side: int = getattr(evaluate, "side_by_side", 1)
        self.seconds: dict[int, float] = {}
        self.work = np.ones(len(space.configs))
        self.points = coordinates(space.configs)
        self.weights = _WEIGHTS if space.expected else (0.0,)
        self.expected = np.minimum(space.expected or np.zeros(len(space.configs)), _CARED_FOR)
        if space.estimates:
            self.work = np.array([estimate.work for estimate in space.estimates])
            self.points = np.hstack([self.points, MODELLED * features(space.estimates)])
        self.posterior = Posteriors(self.points)

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
        return max(self.side_by_side, min(_TOGETHER, int(self.trials() / _FOR_EACH)))

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
        known = [*self.seconds]
        if len(known) > _REMEMBERED:
            known = sorted(known, key=lambda index: self.seconds[index])[:_REMEMBERED]
        finite = [s for s in self.seconds.values() if math.isfinite(s)]
        worst = 2 * max(finite, default=1.0)
        values = np.log([min(self.seconds[index], worst) for index in known])
        # Differences between slow configurations are clipped: they would hide those between the fastest ones.
        values = np.minimum(values, values.min() + _CARED_FOR)
        chosen: list[int] = []
        tries = [(fitted(self.points, known, values - w * self.expected[known]), w) for w in self.weights]
        fit, weight = max(tries, key=lambda one: one[0].likelihood)
        cost: _Cost | None = None
        while len(chosen) < min(count, len(self.configs) - len(self.seconds)):
            at = [*known, *chosen]
            mean, deviation = self.posterior(at, values - weight * self.expected[at], fit)
            mean = mean + weight * self.expected
            gain = expected_improvement(mean, deviation, float(values.min()))
            gain[[*self.seconds, *chosen]] = -math.inf
            cost = cost or self._cost(known, gain)
            order = cost.order(gain)[:_LIKELY]
            if not chosen and self.tell is not None:
                self.tell([self.configs[index] for index in self._spread(order, gain, fit.length)])
            first = self._first(order, gain, cost, waits=not chosen)
            if first is None:
                break
            chosen.append(first)
            values = np.append(values, mean[first])
            if len(chosen) == count < _TOGETHER * 2 and sum(~cost.ready[chosen]) % self.side_by_side:
                count += 1  # a compiler would idle
        return chosen

    def _spread(self, order: npt.NDArray[Any], gain: npt.NDArray[Any], length: float) -> list[int]:
        """Some of ``order`` to announce.

        A measurement changes the gain of those like it.  So each is announced by the gain that is left after those
        before it.
        """
        points, left = self.points[order], np.where(np.isfinite(gain[order]), np.maximum(gain[order], _LEAST_GAIN), 0.0)
        chosen: list[int] = []
        while len(chosen) < _HINTED and left.max() > 0:
            best = int(np.argmax(left))
            chosen.append(int(order[best]))
            left *= 1 - correlations(points[best : best + 1], points, length)[0] ** 2
            left[best] = 0.0
        return chosen

    def _first(self, order: npt.NDArray[Any], gain: npt.NDArray[Any], cost: _Cost, *, waits: bool) -> int | None:
        """The first of ``order``, or where compiling overlaps with measuring, the first that is compiled.

        If none is, it waits for one or, unless it ``waits``, returns None.
        """
        if self.cost is None or self.wait_for_one is None:
            return int(order[0])
        while (ready := cost.first_ready(order, gain)) is None:
            if not waits:
                return None
            if not self.wait_for_one():
                return int(order[0])
            cost.look()
            order = cost.order(gain)[:_LIKELY]
        return ready

    def _cost(self, known: Sequence[int], gain: npt.NDArray[Any]) -> _Cost:
        """The expected cost of each configuration; ``gain`` is what trying it may gain."""
        if self.cost is None:
            return _Cost(self, np.arange(0), np.ones(len(gain)), np.ones(len(gain)))
        both = np.array([self.cost(self.configs[index]) for index in known])
        total, run = np.log(np.maximum(both.sum(axis=1), 1e-6)), np.log(np.maximum(both[:, 1], 1e-6))
        fit = fitted(self.points, known, total)
        whole, alone = (np.exp(self.posterior(known, some, fit)[0]) for some in (total, run))
        if self.left is not None and (too_dear := whole > self.left()).sum() < len(gain) - len(known):
            whole[too_dear] = _NEVER_S
        likely = np.union1d(np.argsort(-gain)[:_LIKELY], np.argsort(-gain / whole)[:_LIKELY])
        return _Cost(self, likely, whole, alone)


class _Cost:
    """Expected seconds of trials: where a program is compiled already, only of running it.

    That is asked for the ``likely`` configurations.
    """

    def __init__(self, seen: _Seen, likely: npt.NDArray[Any], whole: npt.NDArray[Any], alone: npt.NDArray[Any]) -> None:
        self._seen, self._likely, self._whole, self._alone = seen, likely, whole, alone
        self.ready = np.zeros(len(whole), bool)
        self.look()

    def look(self) -> None:
        """See which programs are compiled."""
        if self._seen.ready is not None:
            self.ready[self._likely] = self._seen.ready([self._seen.configs[index] for index in self._likely])

    def first_ready(self, order: npt.NDArray[Any], gain: npt.NDArray[Any]) -> int | None:
        """The first of ``order`` that is compiled and worth trying."""
        able = order[self.ready[order] & (gain[order] >= _WORTH * gain[order[0]])]
        return int(able[0]) if able.size else None

    def order(self, gain: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Configurations by their gain over their cost, best first."""
        found: npt.NDArray[Any] = np.argsort(-gain / np.where(self.ready, self._alone, self._whole) ** _THRIFT)
        return found
