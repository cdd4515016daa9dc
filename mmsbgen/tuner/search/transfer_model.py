"""The slowdowns that a device's records of other problems let one expect, before anything was measured for this one.

A Gaussian process is fitted to recorded slowdowns.  It sees the axes, the cost model's features, and the parameters of
the problem.  Records of other devices did not change what a search finds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.base.errors import InputError
from mmsbgen.db.records.tuning_records import Key
from mmsbgen.db.selection.index import Index
from mmsbgen.db.selection.transfer import Group
from mmsbgen.kernels.family import KernelFamily
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.record_key import recorded_traits
from mmsbgen.kernels.space import Config
from mmsbgen.tuner.search.candidates import Candidates, Estimate, features, model_of
from mmsbgen.tuner.search.surrogate import MODELLED, coordinates, fitted, posterior

#: Records used of a key: half of them its fastest, the others evenly from the rest; fewest of a key; most keys.
_OF_KEY = 48
_LEAST = 8
_KEYS = 10
#: Log seconds above the best of a key at which values are clipped.
_CARED_FOR = 0.5
#: Configurations whose slowdowns are computed at a time, which bounds memory.
_AT_A_TIME = 8192


def expected_slowdowns(
    family: KernelFamily, key: Key, groups: Sequence[Group], configs: Sequence[Config]
) -> tuple[float, ...]:
    """What a device's records of other problems, nearest first, let one expect of ``configs``; empty without enough.

    Records of its other drivers count too.
    """
    others = [group for group in groups if group.key != key and group.key.device.identity == key.device.identity]
    spec, here = family.kernel(key.kernel.name), _context(family, key)
    known: list[Config] = []
    estimates: list[Estimate] = []
    contexts: list[Config] = []
    values: list[float] = []

    def model(where: Key, problem: Problem, some: Sequence[Config]) -> list[Estimate]:
        found = model_of(spec, problem, recorded_traits(where.device))(some)
        least = min(one.work for one in found)
        return [replace(one, work=one.work / least) for one in found]

    keys = 0
    for group in sorted(others, key=lambda group: _distance(here, _context(family, group.key))):
        try:
            problem = family.problem(**group.key.problem.params)
        except InputError:
            continue
        traits = recorded_traits(group.key.device)
        some = [one for one in _some(group) if spec.space.refusal(one[0], problem, traits) is None]
        if len(some) < _LEAST:
            continue
        configs_there = [config for config, _ in some]
        known += configs_there
        estimates += model(group.key, problem, configs_there)
        contexts += [_context(family, group.key)] * len(some)
        values += [min(value - some[0][1], _CARED_FOR) for _, value in some]
        keys += 1
        if keys == _KEYS:
            break
    if not known:
        return ()
    count, log_slowdowns = len(known), np.array(values)
    estimates += model(key, family.problem(**key.problem.params), configs)
    contexts += [here] * len(configs)
    points = np.hstack([coordinates([*known, *configs]), MODELLED * features(estimates), coordinates(contexts)])
    at, fit = points[:count], fitted(points, range(count), log_slowdowns)
    parts: list[npt.NDArray[Any]] = [
        posterior(np.vstack([at, points[first : first + _AT_A_TIME]]), range(count), log_slowdowns, fit)[0][count:]
        for first in range(count, len(points), _AT_A_TIME)
    ]
    return tuple(np.concatenate(parts).tolist())


def with_expected(space: Candidates, family: KernelFamily, key: Key, index: Index, budget: int | None) -> Candidates:
    """The space with what the records of ``index`` let one expect; unchanged where the budget suffices for all."""
    if budget is not None and len(space.configs) <= budget:
        return space
    return replace(space, expected=expected_slowdowns(family, key, index.groups(key), space.configs))


def _some(group: Group) -> list[tuple[dict[str, Any], float]]:
    """Configurations of a group with their least log seconds, fastest first: :data:`_OF_KEY` at most."""
    best: dict[str, float] = {}
    for one in group.candidates:
        best[one.config_json] = min(one.median_s, best.get(one.config_json, math.inf))
    order = sorted(best, key=lambda text: best[text])
    fastest, rest = order[: _OF_KEY // 2], order[_OF_KEY // 2 :]
    kept = [*fastest, *rest[:: max(1, math.ceil(len(rest) / (_OF_KEY // 2)))]]
    return [(json.loads(text), math.log(best[text])) for text in kept]


def _context(family: KernelFamily, key: Key) -> dict[str, Any]:
    """What the process sees of the problem; parameters that a key leaves out have their defaults."""
    asked = family.kernel(key.kernel.name).parameters
    return {p.name: key.problem.params.get(p.name, p.default) for p in family.parameters if p.name in asked}


def _distance(here: Config, there: Config) -> float:
    """Sum of absolute differences in logs of numbers, and of 2 for every other difference."""
    total = 0.0
    for name in here.keys() | there.keys():
        a, b = here.get(name), there.get(name)
        if a == b:
            continue
        numbers = [x for x in (a, b) if isinstance(x, int | float) and not isinstance(x, bool) and x > 0]
        total += abs(math.log(numbers[0] / numbers[1])) if len(numbers) == 2 else 2.0
    return total
