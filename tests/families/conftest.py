"""A pairwise-covering sample of a kernel's variants, the same in every run."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from mmsbgen.errors import InputError
from mmsbgen.families.mmsb.storage import STORAGES
from mmsbgen.family import KernelFamily, KernelSpec
from mmsbgen.problem import Problem
from mmsbgen.space import Axis, Space, Traits

KS = (1, 3, 7, 64, 100, 257, 1024)
#: Values over which problems vary; a kernel takes those of its own parameters.
FACTORS: dict[str, tuple[Any, ...]] = {
    "K": KS,
    "dtype": ("float32", "float64"),
    "storage": STORAGES,
    "n": (11, 1, 3),
    "step": ("split", "reflected", "published"),
    "theta_step": ("reflected", "published", "gain"),
    "noise": ("on", "off"),
    "partners": ("uniform", "stratified", "shared", "shared-uniform", "block"),
}
_SHAPING = ("K", "dtype", "storage")  # which configurations are valid depends on these
#: Rows of 16 bits at these K only, each in one type: enumerating all configurations for each again would take long.
_NARROW_AT = {100: "float16", 1024: "bfloat16"}
#: Axes whose values go with nearly all others: they are drawn, as enumerating each configuration with each takes long.
_DRAWN_AXES = ("groups", "counts", "prefetch", "normalise")
_TRIES = 24

Item = tuple[str, Any]


class Variant(NamedTuple):
    """One kernel to build and check."""

    spec: KernelSpec
    problem: Problem
    config: dict[str, Any]

    def __str__(self) -> str:
        values = dict(self.problem.only(self.spec.parameters)) | self.config
        return f"{self.spec.name} " + " ".join(f"{name}={value}" for name, value in values.items())


def covering(family: KernelFamily, spec: KernelSpec, traits: Traits, limit: int = 10**6) -> list[Variant]:
    """Variants such that every pair of axis values that some valid configuration has is in one of them.

    Beyond that, pairs of axis values and problem values, then pairs of problem values are covered as far as
    ``limit`` variants go; each single value is covered in any case.
    """
    rng = random.Random(f"{spec.name} {traits.dialect} {traits.kind}")
    shaping = {name: FACTORS[name] for name in _SHAPING if name in spec.parameters}
    free = {name: FACTORS[name] for name in FACTORS if name in spec.parameters and name not in _SHAPING}
    drawn = {axis.name: axis.values for axis in spec.space.axes if axis.name in _DRAWN_AXES}
    free |= drawn
    kept = tuple(
        Axis(axis.name, axis.values[:1] if axis.name in drawn else axis.values, axis.doc) for axis in spec.space.axes
    )
    space = Space(kept, spec.space.constraints)
    rows = []
    for values in itertools.product(*shaping.values()):
        shape = dict(zip(shaping, values, strict=True))
        if "storage" in shape and shape["storage"] not in (STORAGES[0], _NARROW_AT.get(shape["K"])):
            continue
        try:
            problem = spec.check_problem(family.problem(**shape))
        except InputError:
            continue  # values that make no problem together
        for config in space.configs(problem, traits):
            rows.append(tuple((shape | {name: config[name] for name in config if name not in drawn}).items()))
    axes = {axis.name for axis in spec.space.axes}
    columns = list(zip(*rows, strict=True))
    items = {item for column in columns for item in column}
    wanted = {_ordered(*pair) for two in itertools.combinations(columns, 2) for pair in set(zip(*two, strict=True))}
    wanted |= {_ordered((name, value), item) for name, values in free.items() for value in values for item in items}
    wanted |= {_ordered((a, x), (b, y)) for a, b in itertools.combinations(free, 2) for x in free[a] for y in free[b]}
    wanted |= {(item, item) for item in items} | {((a, x), (a, x)) for a in free for x in free[a]}

    def rank(pair: tuple[Item, Item]) -> int:
        names = {pair[0][0], pair[1][0]}
        return 0 if names <= axes else 1 if len(names) == 1 else 2 if names & axes else 3

    having: dict[Item, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        for item in row:
            having[item].append(index)
    chosen: list[Variant] = []
    # The order of a set differs from process to process.
    for pair in sorted(sorted(wanted, key=repr), key=lambda pair: (rank(pair), rng.random())):
        if pair not in wanted:
            continue
        if len(chosen) >= limit and rank(pair) > 1:
            break
        best: tuple[int, tuple[Item, ...]] | None = None
        for candidate in _candidates(pair, rows, having, free, rng):
            variant = _variant(family, spec, candidate)
            if spec.space.refusal(variant.config, spec.check_problem(variant.problem), traits) is not None:
                continue
            gain = sum(other in wanted for other in _pairs(candidate))
            if best is None or gain > best[0]:
                best = gain, candidate
        wanted.discard(pair)  # where no candidate was valid it cannot be had
        if best is not None:
            wanted -= set(_pairs(best[1]))
            chosen.append(_variant(family, spec, best[1]))
    return chosen


def _candidates(
    pair: tuple[Item, Item],
    rows: list[tuple[Item, ...]],
    having: dict[Item, list[int]],
    free: dict[str, tuple[Any, ...]],
    rng: random.Random,
) -> Iterator[tuple[Item, ...]]:
    fixed = {name: value for name, value in pair if name in free}
    bound = [item for item in set(pair) if item[0] not in free]
    if len(bound) == 2:
        other = set(having[bound[1]])
        where = [index for index in having[bound[0]] if index in other]
    else:
        where = having[bound[0]] if bound else list(range(len(rows)))
    for _ in range(_TRIES if where else 0):
        draws = {name: rng.choice(values) for name, values in free.items()} | fixed
        yield rows[rng.choice(where)] + tuple(draws.items())


def _variant(family: KernelFamily, spec: KernelSpec, row: tuple[Item, ...]) -> Variant:
    axes = {axis.name for axis in spec.space.axes}
    problem = family.problem(**{name: value for name, value in row if name not in axes})
    return Variant(spec, problem, {name: value for name, value in row if name in axes})


def _ordered(a: Item, b: Item) -> tuple[Item, Item]:
    return (a, b) if a[0] <= b[0] else (b, a)


def _pairs(row: tuple[Item, ...]) -> Iterator[tuple[Item, Item]]:
    for a, b in itertools.combinations(row, 2):
        yield _ordered(a, b)
    for item in row:
        yield item, item


@pytest.fixture(scope="session")
def covering_sample() -> Callable[..., list[Variant]]:
    """The function :func:`covering`."""
    return covering
