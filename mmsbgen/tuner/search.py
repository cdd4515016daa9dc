"""Strategies: in which order a space is tried.

A strategy proposes configurations to an :data:`Evaluate`, which answers with seconds and ends the search by
raising :class:`BudgetSpentError`.  The same seed and the same answers give the same order.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mmsbgen.errors import InputError
from mmsbgen.family import KernelSpec
from mmsbgen.problem import Problem, Value
from mmsbgen.space import Config, Traits, describe
from mmsbgen.tuner import kernel_tuner_strategies
from mmsbgen.tuner.model import Model, features, model_of
from mmsbgen.tuner.surrogate import coordinates, expected_improvement, fitted, posterior

__all__ = [
    "STRATEGIES",
    "BudgetSpentError",
    "Candidates",
    "Evaluate",
    "Fixed",
    "candidates",
    "check_strategy",
    "fixed_values",
    "search",
]

Fixed = Mapping[str, Value | tuple[Value, ...]]
"""Axes that keep one value, or that take only some of theirs."""

Evaluate = Callable[[Sequence[Config]], list[float]]
"""Seconds of each configuration, infinity for one that failed; asking again for the same costs nothing.

Where it has a method ``likely``, that is told which configurations may be asked for soon.
"""

OWN_STRATEGIES = ("default", "exhaustive", "random")
STRATEGIES = (*OWN_STRATEGIES, *kernel_tuner_strategies.NAMES)
#: Part of the budget that goes to the sample, and how many are drawn for each of its places.
_FIRST = 0.2
_DRAWN = 24
#: The sample where only time bounds the search.
_FIRST_OF_ANY = 20
#: Configurations chosen at a time, so that they can be compiled side by side.
_TOGETHER = 4
#: Configurations that may be asked for soon, as a run with many compilers is told.
_HINTED = 32
#: Measurements that the search looks at, best first: fitting takes the cube of their number.
_REMEMBERED = 256
#: Log seconds above the best that are told apart.
_CARED_FOR = 1.0
#: Length of the model's numbers where an axis has length 1.
_MODELLED = 0.5


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
    model: Model | None = None
    """The model by bytes and occupancy of the kernel, where there is one."""

    @property
    def total(self) -> int:
        """How many configurations there are, refused ones included."""
        return len(self.configs) + self.refusals.total()


def candidates(spec: KernelSpec, problem: Problem, traits: Traits, fixed: Fixed | None = None) -> Candidates:
    """The part of a kernel's space that is searched: valid here, within ``fixed``, with modes left as they are.

    Raises :class:`InputError` when ``fixed`` has a value that the axis lacks, or when nothing is valid.
    """
    default = dict(spec.default(problem, traits))
    asked = {name: default[name] for name in spec.modes} | dict(fixed or {})
    kept = {name: values if isinstance(values, tuple) else (values,) for name, values in asked.items()}
    configs: list[dict[str, Value]] = []
    refusals: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for axis in spec.space.axes:
        for value in kept.get(axis.name, ()):
            if value not in axis.values:
                allowed = ", ".join(map(str, axis.values))
                raise InputError(f"{spec.name}: {axis.name}={value} is not one of {allowed}")
    for config in spec.space.product():
        if any(config[name] not in values for name, values in kept.items() if name in config):
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
    return Candidates(configs, default, refusals, examples, model_of(spec, problem, traits))


def fixed_values(wanted: Mapping[str, Sequence[object]], specs: Iterable[KernelSpec]) -> dict[str, tuple[Value, ...]]:
    """The values of axes that texts or JSON mean, in the types that the axes have.

    Raises :class:`InputError` for an axis or a value that none of ``specs`` has.
    """
    known: dict[str, dict[str, Value]] = {}
    for spec in specs:
        for axis in spec.space.axes:
            known.setdefault(axis.name, {}).update({str(value).lower(): value for value in axis.values})
    fixed: dict[str, tuple[Value, ...]] = {}
    for name, values in wanted.items():
        if name not in known:
            raise InputError(f"{name}: no such axis; there are {', '.join(sorted(known))}")
        words = [str(value).strip().lower() for value in values]
        odd = [word for word in words if word not in known[name]]
        if odd:
            raise InputError(f"{name}={odd[0]}: the values are {', '.join(map(str, known[name].values()))}")
        fixed[name] = tuple(known[name][word] for word in words)
    return fixed


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
    """All there is when the budget allows; else a sample of what the model likes, then a search by expected gain."""
    if budget is not None and len(space.configs) <= budget:
        evaluate(rng.sample(space.configs, len(space.configs)))
        return
    seen = _Seen(space, evaluate)
    first = min(len(space.configs), _FIRST_OF_ANY if budget is None else max(2, int(budget * _FIRST)))
    likely = seen.likely(rng, most=max(4 * first, len(space.configs) // 4))
    sample = [space.configs.index(space.default)]
    while len(sample) < first:
        sample.append(seen.farthest(rng.sample(likely, min(_DRAWN, len(likely))), sample))
    seen.try_all(sample)
    while len(seen.seconds) < len(space.configs):
        seen.try_all(seen.promising(_TOGETHER))


class _Seen:
    """What was measured so far, in coordinates of axes and of the model by bytes and occupancy."""

    def __init__(self, space: Candidates, evaluate: Evaluate) -> None:
        self.configs = space.configs
        self.evaluate = evaluate
        self.tell: Callable[[Sequence[Config]], None] | None = getattr(evaluate, "likely", None)
        self.seconds: dict[int, float] = {}
        self.work = np.ones(len(space.configs))
        self.points = coordinates(space.configs)
        if space.model is not None:
            estimates = space.model(space.configs)
            self.work = np.array([estimate.work for estimate in estimates])
            self.points = np.hstack([self.points, _MODELLED * features(estimates)])

    def try_all(self, indices: Sequence[int]) -> None:
        """Measure configurations; what the budget does not end before is told, one after the other."""
        found = self.evaluate([self.configs[index] for index in indices])
        self.seconds.update(zip(indices, found, strict=True))

    def likely(self, rng: random.Random, most: int) -> list[int]:
        """Those that the model likes best; ties in any order."""
        order = rng.sample(range(len(self.configs)), len(self.configs))
        return sorted(order, key=lambda index: float(self.work[index]))[:most]

    def farthest(self, drawn: Sequence[int], chosen: Sequence[int]) -> int:
        """Of these, the one that has least in common with those chosen before."""
        fresh = [i for i in drawn if i not in chosen] or [i for i in range(len(self.configs)) if i not in chosen]
        tried = self.points[list(chosen)]
        apart = [float(((tried - self.points[i]) ** 2).sum(axis=1).min()) for i in fresh]
        return fresh[apart.index(max(apart))]

    def promising(self, count: int) -> list[int]:
        """The untried configurations with the largest expected improvement on the best, likeliest first.

        Each is chosen as though those before it had turned out as expected (the kriging believer).
        """
        known = sorted(self.seconds, key=lambda index: self.seconds[index])[:_REMEMBERED]
        finite = [s for s in self.seconds.values() if math.isfinite(s)]
        worst = 2 * max(finite, default=1.0)
        values = np.log([min(self.seconds[index], worst) for index in known])
        # How bad the hopeless ones are tells nothing of the best, and would drown what little sets those apart.
        values = np.minimum(values, values.min() + _CARED_FOR)
        chosen: list[int] = []
        fit = fitted(self.points, known, values)
        while len(chosen) < min(count, len(self.configs) - len(self.seconds)):
            mean, deviation = posterior(self.points, [*known, *chosen], values, fit)
            gain = expected_improvement(mean, deviation, float(values.min()))
            gain[[*self.seconds, *chosen]] = -math.inf
            if not chosen and self.tell is not None:
                self.tell([self.configs[index] for index in np.argsort(-gain)[:_HINTED] if gain[index] > -math.inf])
            chosen.append(int(np.argmax(gain)))
            values = np.append(values, mean[chosen[-1]])
        return chosen
