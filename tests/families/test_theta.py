"""theta_partial and theta_end: edges of their launches, their bits, and which configurations they have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mmsbgen.backends import Device
from mmsbgen.families import family
from mmsbgen.kernels.build import build, release, traits_of, upload
from mmsbgen.kernels.family import KernelSpec
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Traits

MMSB = family()
PARTIAL, END = MMSB.kernel("theta_partial"), MMSB.kernel("theta_end")
CUDA = Traits("cuda", "gpu", sub_group_size=32)
BLOCK_TEAM: dict[str, Any] = {"team": "block", "block_size": 16, "vector_width": 4, "reduction": "local"}


def run(device: Device, spec: KernelSpec, problem: Problem, changes: dict[str, Any], **axes: Any) -> dict[str, Any]:
    """All arrays after one launch on the workload's arguments with some changed."""
    bound = build(device, spec, problem, dict(spec.default(problem, traits_of(device.info))) | axes)
    workload = spec.workload(problem, 5)
    workload.arguments |= changes
    placed = upload(device, workload)
    bound.launch(workload.count, placed).wait()
    arrays = {n: device.download(placed[n]) for n, v in workload.arguments.items() if isinstance(v, np.ndarray)}
    release(placed)
    return arrays


@pytest.mark.parametrize("n_pairs", [0, 1, 5])
@pytest.mark.parametrize("axes", [{"pairs_in_flight": 1}, BLOCK_TEAM | {"pairs_in_flight": 4}], ids=str)
def test_groups_without_pairs_count_nothing(opencl_device: Device, axes: dict[str, Any], n_pairs: int) -> None:
    problem = PARTIAL.check_problem(MMSB.problem(K=100))
    blank = np.full_like(PARTIAL.workload(problem, 5).arguments["counts"], np.nan)
    given = {"counts": blank, "n_pairs": np.uint32(n_pairs)}
    counts = run(opencl_device, PARTIAL, problem, given, **axes)["counts"]
    assert np.all(counts[:n_pairs].sum(axis=(1, 2)) > 0)
    assert np.all(counts[n_pairs:] == 0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("share", [1, 8, 32])
def test_theta_end_has_the_beta_of_update_beta(opencl_device: Device, share: int, dtype: str) -> None:
    """Padding and the floors included: a row of strengths begins as nothing, one community has no links at all."""
    problem = END.check_problem(MMSB.problem(K=100, dtype=dtype, theta_step="gain"))
    counts = END.workload(problem, 5).arguments["counts"]
    counts[:, 0, 3] = counts[:, 1, 4] = 1e12
    given = {"counts": counts, "beta": np.full(112, np.nan, counts.dtype)}
    after = run(opencl_device, END, problem, given, share=share, block_size=64)
    again = run(opencl_device, MMSB.kernel("update_beta"), problem, {"theta": after["theta"]})
    assert after["beta"].tobytes() == again["beta"].tobytes()
    assert (after["beta"][3], after["beta"][4]) == (counts.dtype.type(1e-6), counts.dtype.type(1 - 1e-6))
    assert np.all(after["beta"][100:] == 0.5)


@pytest.mark.parametrize(
    ("spec", "axes"),
    [(PARTIAL, BLOCK_TEAM | {"pairs_in_flight": 2}), (END, {"share": 1}), (END, {"share": 16})],
    ids=["theta_partial", "theta_end alone", "theta_end shared"],
)
def test_same_configuration_same_bits(opencl_device: Device, spec: KernelSpec, axes: dict[str, Any]) -> None:
    problem = spec.check_problem(MMSB.problem(K=257))
    first, second = (run(opencl_device, spec, problem, {}, **axes) for _ in range(2))
    assert all(first[name].tobytes() == second[name].tobytes() for name in first)


@pytest.mark.parametrize(
    ("k", "dtype", "block", "accumulators", "pairs"),
    [
        (20, "float32", 32, "registers", 4),
        (256, "float32", 32, "registers", 4),
        (1024, "float32", 128, "registers", 4),
        (1024, "float64", 128, "registers", 4),
        (8192, "float32", 512, "registers", 2),
        (8192, "float64", 512, "registers", 1),
        (65536, "float32", 512, "global", 1),
    ],
)
def test_default_teams_on_gpus(k: int, dtype: str, block: int, accumulators: str, pairs: int) -> None:
    config = PARTIAL.default(MMSB.problem(K=k, dtype=dtype), CUDA)
    assert (config["team"], config["block_size"]) == ("block", block)
    assert (config["accumulators"], config["pairs_in_flight"]) == (accumulators, pairs)


@pytest.mark.parametrize(("m", "share"), [(4096, 32), (100, 16), (3, 1)])
def test_default_shares_on_gpus(m: int, share: int) -> None:
    assert END.default(MMSB.problem(m=m), CUDA) == {"share": share, "block_size": 256}


def test_more_pairs_in_flight_than_a_group_has() -> None:
    config = dict(PARTIAL.default(MMSB.problem(), CUDA)) | {"pairs_in_flight": 4}
    assert PARTIAL.space.refusal(config, MMSB.problem(m=4), CUDA) is None
    refusal = PARTIAL.space.refusal(config, MMSB.problem(m=3), CUDA)
    assert refusal == "pairs in flight: 4 pairs in flight for 3 of a group"


@pytest.mark.parametrize(
    ("changes", "m", "reason"),
    [
        ({"block_size": 48}, 4096, "share: a block of 48 is not a whole number of teams of 32"),
        ({}, 100, "share: 32 work-items for 25 groups: some would idle"),
    ],
)
def test_shares_that_are_refused(changes: dict[str, Any], m: int, reason: str) -> None:
    config = {"share": 32, "block_size": 256} | changes
    assert END.space.refusal(config, MMSB.problem(m=m), CUDA) == reason
