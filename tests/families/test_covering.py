"""The covering sample has every pair of values that it claims, and nothing that a kernel refuses."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest

from mmsbgen.base.errors import InputError
from mmsbgen.families import family
from mmsbgen.kernels.family import KernelSpec
from mmsbgen.kernels.space import Traits
from tests.families.covering import BLOCKS, FACTORS, GROUPS, KS, covering, factors, groups, pairs, sampled

MMSB = family()
#: As PoCL, without sub-groups, and as Intel's runtime, by their sub-groups.
CPU = {
    lanes: Traits("opencl", "cpu", max_block_size=4096, local_memory=1 << 18, sub_group_size=lanes, platform=name)
    for lanes, name in ((0, "Portable Computing Language"), (16, "Intel(R) OpenCL"))
}
#: Groups whose variants are few enough to go through all of them.
SMALL = [group for group in groups(MMSB.written_in("opencl")) if not {"update_phi", "block_shared"} & set(group)]
LARGE = [group for group in groups(MMSB.written_in("opencl")) if group not in SMALL]


def problems(spec: KernelSpec) -> Iterator[dict[str, Any]]:
    names = {name: values for name, values in factors(spec).items() if name in FACTORS}
    for values in itertools.product(*names.values()):
        yield dict(zip(names, values, strict=True))


def is_valid(spec: KernelSpec, values: dict[str, Any], traits: Traits) -> bool:
    try:
        problem = MMSB.problem(**{name: value for name, value in values.items() if name in FACTORS})
    except InputError:
        return False
    config = {axis.name: values[axis.name] for axis in spec.space.axes}
    return spec.space.refusal(config, spec.check_problem(problem), traits) is None


@pytest.mark.slow
@pytest.mark.parametrize("lanes", list(CPU))
@pytest.mark.parametrize("group", SMALL, ids=" ".join)
def test_all_pairs_that_enumeration_finds(group: tuple[str, ...], lanes: int) -> None:
    sample = covering(MMSB, group, CPU[lanes])
    found = set()
    for spec in map(MMSB.kernel, group):
        for values in problems(spec):
            try:
                problem = spec.check_problem(MMSB.problem(**values))
            except InputError:
                continue
            for config in spec.space.configs(problem, CPU[lanes]):
                found.update(pairs({"kernel": spec.name} | values | config))
    assert sample.covered == found


@pytest.mark.slow
@pytest.mark.parametrize("lanes", list(CPU))
@pytest.mark.parametrize("group", LARGE, ids=" ".join)
def test_all_pairs_that_drawing_finds(group: tuple[str, ...], lanes: int) -> None:
    sample = covering(MMSB, group, CPU[lanes])
    rng = random.Random(1)
    valid = 0
    for spec in map(MMSB.kernel, group):
        values = factors(spec)
        for _ in range(10000):
            row = {name: rng.choice(among) for name, among in values.items()}
            if is_valid(spec, row, CPU[lanes]):
                valid += 1
                assert sample.covered.issuperset(pairs(row)), row
    assert valid > 1000


@pytest.mark.slow
def test_what_is_covered_elsewhere_is_left_out_but_no_value_of_a_kernel() -> None:
    """And no pair that only this platform takes; the sample gets smaller by half."""
    group = ("update_phi", "block_links", "star_rows")
    first, alone = covering(MMSB, group, CPU[16]), covering(MMSB, group, CPU[0])
    second = covering(MMSB, group, CPU[0], elsewhere=first.covered)
    assert first.covered | second.covered >= alone.covered
    assert {pair for pair in alone.covered if "kernel" in (pair[0][0], pair[1][0])} <= second.covered
    assert {pair for pair in alone.covered if pair[0] == pair[1]} <= second.covered
    assert len(second.variants) < len(alone.variants) / 2


@pytest.mark.slow
def test_what_is_claimed() -> None:
    """Each K with each placement, type and kernel; noise on and off; small, odd and large blocks; nothing twice."""
    sample = covering(MMSB, GROUPS[0], CPU[16])
    rows = {(v.spec.name, v.problem["K"], v.config["placement"], v.config["block_size"]) for v in sample.variants}
    axes = {axis.name: axis.values for axis in MMSB.kernel("update_phi").space.axes}
    assert {(k, p) for _, k, p, _ in rows} == set(itertools.product(KS, axes["placement"]))
    assert {(name, k) for name, k, _, _ in rows} == set(itertools.product(GROUPS[0], KS))
    assert {(name, p) for name, _, p, _ in rows} == set(itertools.product(GROUPS[0], axes["placement"]))
    assert {(p, b) for _, _, p, b in rows} >= set(itertools.product(axes["placement"], BLOCKS))
    assert {b for *_, b in rows} == set(axes["block_size"])
    assert len({str(variant) for variant in sample.variants}) == len(sample.variants)
    again = sampled(MMSB, GROUPS[0], CPU[16])
    assert list(map(str, again.variants)) == list(map(str, sample.variants))


def test_every_kernel_is_in_one_group() -> None:
    for dialect in ("opencl", "cuda"):
        names = [name for group in groups(MMSB.written_in(dialect)) for name in group]
        assert sorted(names) == sorted(MMSB.written_in(dialect))
