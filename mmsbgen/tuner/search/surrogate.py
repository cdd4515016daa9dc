"""A Gaussian process over configurations that selects the next measurement.

It predicts log seconds and their uncertainty from the measurements so far; the point with the largest expected
improvement is next (Jones, Schonlau and Welch, 1998).  Before the first measurement, slowdowns are expected from
records of other problems.  It is implemented here because libraries for it would be the package's largest dependency.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

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

Matrix = npt.NDArray[Any]

#: Values tried for the length scale of the kernel, and the noise variance relative to the process's.
_LENGTHS = (0.3, 0.5, 0.8, 1.2, 2.0, 3.0)
_NOISE = 0.03
#: Scale of the cost model's features, where an axis has length 1.
MODELLED = 0.5


class SurrogateFit(NamedTuple):
    """Length scale of the kernel, and the log marginal likelihood."""

    length: float
    likelihood: float


def coordinates(configs: Sequence[Config]) -> Matrix:
    """Configurations as points ``[configurations, dimensions]`` with axes of length 1.

    Numbers are placed by their logarithm.  Two different words are at distance 1 from each other.  Axes with a single
    value are left out.
    """
    columns: list[Matrix] = []
    for name in configs[0]:
        values = [config[name] for config in configs]
        if len(set(values)) == 1:
            continue
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            place = np.log2(np.array(values, np.float64) + 1)
            columns.append((place - place.min()) / np.ptp(place))
        else:
            columns += [
                np.array([value == word for value in values], np.float64) / math.sqrt(2)
                for word in sorted(set(values), key=repr)
            ]
    return np.array(columns).T.reshape(len(configs), len(columns))


def fitted(points: Matrix, known: Sequence[int], values: Matrix) -> SurrogateFit:
    """Length scale with the largest marginal likelihood of ``values`` at the points ``known``."""
    centre, scale = float(values.mean()), float(values.std()) or 1.0
    target = (values - centre) / scale
    at = points[list(known)]
    between = _distances(at, at)
    best: SurrogateFit | None = None
    for length in _LENGTHS:
        factor = np.linalg.cholesky(_matern(between, length) + _NOISE * np.eye(len(target)))
        white = _solved_below(factor, target)
        likelihood = float(-0.5 * white @ white - np.log(np.diag(factor)).sum()) - len(target) * math.log(scale)
        if best is None or likelihood > best.likelihood:
            best = SurrogateFit(length, likelihood)
    assert best is not None
    return best


class Posteriors:
    """Predictions at ``points``: what was computed for some measurements is kept for the same ones and others.

    With n measurements, one more takes O(n) operations a point instead of O(n^2).
    """

    def __init__(self, points: Matrix) -> None:
        self.points, self._narrow = points, points.astype(np.float32)
        self._kept: dict[float, tuple[list[int], Matrix, Matrix]] = {}
        """By length scale: measured points, the factor of their covariance, and its solution for all points."""

    def __call__(self, known: Sequence[int], values: Matrix, fit: SurrogateFit) -> tuple[Matrix, Matrix]:
        """Mean and standard deviation at every point, given ``values`` at the points ``known``.

        The kernel is Matern's with smoothness 3/2.
        """
        centre, scale = float(values.mean()), float(values.std()) or 1.0
        factor, across = self._solved(list(known), fit.length)
        white = _solved_below(factor, (values - centre) / scale)
        variance = np.maximum(1e-9, 1 - np.einsum("ij,ij->j", across, across))
        return centre + scale * (white.astype(across.dtype) @ across), scale * np.sqrt(variance)

    def _solved(self, known: list[int], length: float) -> tuple[Matrix, Matrix]:
        before, _, solved = self._kept.pop(length, ([], None, None))
        same = next((at for at, (a, b) in enumerate(zip(before, known, strict=False)) if a != b), None)
        same = min(len(before), len(known)) if same is None else same
        at = self.points[known]
        factor = np.linalg.cholesky(_matern(_distances(at, at), length) + _NOISE * np.eye(len(known)))
        across = np.empty((len(known), len(self.points)), np.float32)
        if solved is not None:
            across[:same] = solved[:same]
        further = _matern(_distances(at[same:].astype(np.float32), self._narrow), length)
        further -= factor[same:, :same].astype(np.float32) @ across[:same]
        np.matmul(np.linalg.inv(factor[same:, same:]).astype(np.float32), further, out=across[same:])
        if len(self._kept) > 2:  # they may take tens of megabytes
            del self._kept[next(iter(self._kept))]
        self._kept[length] = known, factor, across
        return factor, across


def expected_improvement(mean: Matrix, deviation: Matrix, best: float) -> Matrix:
    """Expected amount by which a measurement falls below ``best``, for each mean and standard deviation."""
    from scipy.special import ndtr  # takes a quarter of a second, and short searches do not come here

    gap = (best - mean) / deviation
    density = np.exp(-(gap**2) / 2) / math.sqrt(2 * math.pi)
    found: Matrix = deviation * (gap * ndtr(gap) + density)
    return found


def correlations(a: Matrix, b: Matrix, length: float) -> Matrix:
    """The process's correlations between points ``a`` and points ``b``."""
    return _matern(_distances(a, b), length)


def _solved_below(factor: Matrix, values: Matrix) -> Matrix:
    """The solution for a lower triangular ``factor``, in O(n^2): a general solver takes O(n^3)."""
    from scipy.linalg import solve_triangular

    found: Matrix = solve_triangular(factor, values, lower=True, check_finite=False)
    return found


def _distances(a: Matrix, b: Matrix) -> Matrix:
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T
    found: Matrix = np.sqrt(np.maximum(squares, 0.0))
    return found


def _matern(distances: Matrix, length: float) -> Matrix:
    scaled = math.sqrt(3) * distances / length
    found: Matrix = (1 + scaled) * np.exp(-scaled)
    return found


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
        Posteriors(np.vstack([at, points[first : first + _AT_A_TIME]]))(range(count), log_slowdowns, fit)[0][count:]
        for first in range(count, len(points), _AT_A_TIME)
    ]
    return tuple(np.concatenate(parts).tolist())


def with_expected(space: Candidates, family: KernelFamily, key: Key, index: Index, budget: int | None) -> Candidates:
    """The space with what the records of ``index`` let one expect; unchanged where the budget suffices for all.

    A Gaussian process is fitted to the slowdowns that the device's records of other problems have.  It sees the axes,
    the cost model's features, and the parameters of the problem.  Records of other devices did not change what a search
    finds.
    """
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
