from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from mmsbgen.families import family
from mmsbgen.families.mmsb import MMSB
from mmsbgen.kernels.family import Demand, Launch
from mmsbgen.kernels.space import Config, Traits
from mmsbgen.tuner.search.candidates import Estimate, features, model_of

GPU = Traits("cuda", "gpu", sub_group_size=32, compute_units=100)
PROBLEM = MMSB.problem(K=256, m=4096)
SPEC = MMSB.kernel("update_phi")


def of(demand: Callable[[Config], Demand], configs: list[Config], grid: int = 1000) -> list[Estimate]:
    spec = replace(
        SPEC,
        demand=lambda problem, config, traits: demand(config),
        launch=lambda problem, config, count, traits: Launch(grid, int(config["block_size"])),
    )
    return model_of(spec, PROBLEM, GPU)(configs)


def test_local_memory_and_registers_leave_room_for_fewer_blocks() -> None:
    free, local, private = of(
        lambda c: Demand(10**9, local=int(c["local"]), private=int(c["private"])),
        [
            {"block_size": 128, "local": 0, "private": 0},
            {"block_size": 128, "local": 48 << 10, "private": 0},
            {"block_size": 128, "local": 0, "private": 900},
        ],
        grid=100_000,
    )
    assert free.resident == 2048
    assert local.resident == 4 * 128
    assert private.resident == 128
    assert free.work < local.work < private.work


def test_a_last_wave_with_a_single_block_doubles_the_time() -> None:
    full, over = (of(lambda c: Demand(10**9), [{"block_size": 1024}], grid=grid)[0] for grid in (200, 201))
    assert full.waves == 1
    assert over.waves == pytest.approx(400 / 201)


def test_too_few_bytes_in_flight_do_not_reach_the_roof() -> None:
    few, enough, more = of(
        lambda c: Demand(10**9, wanted=int(c["wanted"])),
        [{"block_size": 256, "wanted": 2}, {"block_size": 256, "wanted": 64}, {"block_size": 256, "wanted": 128}],
    )
    assert few.work > enough.work == more.work


def test_a_kernel_that_declares_no_demand_is_modelled_by_its_launch() -> None:
    spec = MMSB.kernel("init_pi")
    assert spec.demand is None
    found = model_of(spec, PROBLEM, GPU)([{"block_size": size} for size in (1, 1024)])
    assert found[0].demand.moved == max(1, spec.traffic(PROBLEM))
    assert found[0].work > found[1].work


def test_features_lie_between_0_and_1_and_constant_ones_are_left_out() -> None:
    found = of(
        lambda c: Demand(10**9, near=int(c["near"])), [{"block_size": 64, "near": n} for n in (0, 10**9, 10**10)]
    )
    table = features(found)
    assert table.shape == (3, 2)  # work and near bytes
    assert table.min() == 0
    assert table.max() == 1
    assert features(found[:1]).shape == (1, 0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_every_kernel_has_an_estimate_of_every_configuration(kind: str) -> None:
    traits = {
        "cpu": Traits("opencl", "cpu", max_block_size=4096, local_memory=1 << 20, compute_units=2),
        "gpu": GPU,
    }[kind]
    for name, spec in family().kernels.items():
        configs = spec.space.configs(PROBLEM, traits)[::17]
        found = model_of(spec, PROBLEM, traits)(configs)
        numbers = np.array([[e.work, e.resident, e.waves, e.in_flight] for e in found])
        assert np.isfinite(numbers).all(), name
        assert (numbers > 0).all(), name
        assert all(0 < e.demand.busy <= 1 for e in found), name
