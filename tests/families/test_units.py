"""The reference by unit: it accepts what kernels leave at sizes that are timed, and sees one wrong number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from mmsbgen.backends import Device
from mmsbgen.families.mmsb import MMSB
from mmsbgen.families.mmsb.blocks.tensor_workloads import as_words, float16
from mmsbgen.kernels.build import build, release, traits_of, upload
from mmsbgen.kernels.family import Array, Workload, all_units
from mmsbgen.tuner.measure.full_size import FullSizeCheck

#: More than the small check has of everything, and few enough that all units are judged.
SIZES: dict[str, Any] = {"K": 21, "N": 900, "m": 300, "n": 70, "pairs": 500}
PARTNERS = {"block": ("shared_partners", "block_"), "shared": ("star_", "draw_shared")}
#: Outputs of which a difference of one is allowed.
COUNTED = {"clip_counts", "fixed_sums"}
UNITED = [
    name for name in MMSB.written_in("opencl") if MMSB.kernel(name).workload(MMSB.problem(K=3, N=20, m=4), 0).units
]


def problem_of(kernel: str, **sizes: Any) -> Any:
    partners = next((name for name, begins in PARTNERS.items() if kernel.startswith(begins)), "uniform")
    return MMSB.problem(**SIZES | {"partners": partners} | sizes)


@contextmanager
def launched(
    device: Device, kernel: str, turns: int = 1, **sizes: Any
) -> Iterator[tuple[Any, Workload, dict[str, Any]]]:
    """The default configuration after some launches, its workload and its arguments on the device."""
    spec, problem = MMSB.kernel(kernel), problem_of(kernel, **sizes)
    workload = spec.workload(problem, 0)
    bound, placed = (
        build(device, spec, problem, spec.default(problem, traits_of(device.info))),
        upload(device, workload),
    )
    try:
        for turn in range(turns):
            replaced = workload.rotations[turn - 1] if turn else {}
            others = {name: device.upload(array) for name, array in replaced.items()}
            bound.launch(workload.count, placed | others).wait()
            release(others)
        yield bound, workload, placed
    finally:
        release(placed)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", MMSB.written_in("opencl"))
def test_launches_at_sizes_that_are_timed_are_right(processor: Device, kernel: str) -> None:
    sizes = [{"partners": "stratified"}] if kernel == "sample_partners" else [{}]
    sizes += [{"partners": "shared-uniform"}] if kernel in ("star_rows", "star_shared") else []
    sizes += [{"storage": "bfloat16"}] if kernel in ("update_phi", "init_pi", "theta_partial") else []
    # Enough entries at the floor that they show in the sums of columns.
    sizes += [{"K": 60, "N": 60_000}] if kernel == "sparse_rows" else []
    for more in sizes:
        with launched(processor, kernel, **more) as (bound, workload, placed):
            check = FullSizeCheck(processor, bound.spec, workload, placed)
            assert check.first(bound)() is None
            assert check.first(bound)() is None, "by what is known by now"
        turns = min(3, 1 + len(workload.rotations))
        with launched(processor, kernel, turns, **more) as (bound, workload, placed):
            check = FullSizeCheck(processor, bound.spec, workload, placed)
            assert check.last(bound, turns - 1)() is None


@pytest.mark.opencl
@pytest.mark.slow
@pytest.mark.parametrize("kernel", UNITED)
def test_one_wrong_number_of_the_last_unit_is_seen(processor: Device, kernel: str) -> None:
    with launched(processor, kernel) as (bound, workload, placed):
        for units in workload.units:
            for name, places in units.places(np.array([units.count - 1])).items():
                if name in COUNTED:
                    continue
                place = int(np.ravel(places)[0])
                before = processor.download_range(placed[name], place, place + 1)
                wrong = before.copy()
                wrong.reshape(-1)[0] += 1
                processor.write(placed[name], wrong, place)
                said = FullSizeCheck(processor, bound.spec, workload, placed).first(bound)()
                assert said is not None, name
                assert said.startswith(f"result {units.count - 1} of {units.count}: ") or units.count == 1
                processor.write(placed[name], before, place)


@pytest.mark.opencl
@pytest.mark.slow
@pytest.mark.parametrize("kernel", UNITED)
def test_one_unit_that_is_as_before_is_seen(processor: Device, kernel: str) -> None:
    with launched(processor, kernel) as (bound, workload, placed):
        for units in (each for each in workload.units if each.changed):
            left_out = units.count // 3
            for name, places in units.places(np.array([left_out])).items():
                for place in np.ravel(places).tolist():
                    processor.write(placed[name], workload.arguments[name][place : place + 1], place)
            said = FullSizeCheck(processor, bound.spec, workload, placed).first(bound)()
            assert said == f"result {left_out} of {units.count} was left out"
            break


def nearest_bfloat16(numbers: Array) -> Array:
    """Words of two bfloat16."""
    bits = np.ascontiguousarray(numbers, np.float32).view(np.uint32).astype(np.uint64) + 0x8000
    return as_words((bits >> 16).astype(np.uint16))


def float16_toward_zero(numbers: Array) -> Array:
    """Words of two float16."""
    near = numbers.astype(np.float16)
    beyond = np.abs(near.astype(np.float64)) > np.abs(numbers)
    return as_words(np.where(beyond, np.nextafter(near, np.float16(0)), near))


def bits(words: Array) -> Array:
    """The bits of 32-bit words ``[m, .]``, the lowest first."""
    return np.unpackbits(words.view(np.uint8), axis=1, bitorder="little").astype(bool)


@pytest.mark.parametrize(
    ("kernel", "partners"), [("block_factors", "block"), ("star_factors", "shared"), ("star_factors", "shared-uniform")]
)
def test_factors_for_tensor_cores_are_judged_by_unit(kernel: str, partners: str) -> None:
    """Of numbers by NumPy, as these kernels run on no device here."""
    workload = MMSB.kernel(kernel).workload(problem_of(kernel, partners=partners), 0)
    given, k = workload.arguments, SIZES["K"]
    m, width = len(given["own_factors"]), given["own_factors"].shape[1] * 2
    pi, slots, first = given["pi"][:, :k].astype(np.float64), given["slots"], int(given["first_vertex"])
    count = int(given["n_shared"][-1])
    drawn = given["drawn"].reshape(-1, given["drawn"].shape[-1])[-1, :count]
    own, rows = np.zeros((m, width)), np.zeros((len(given["shared_rows"]), width))
    own[:, :k] = pi[slots[given["vertices"][first:]]] * (given["beta"][:k].astype(np.float64) - float(given["delta"]))
    rows[:count, :k] = pi[slots[drawn]]
    got = {"own_factors": float16_toward_zero(own), "shared_factors": float16_toward_zero(rows)}
    got["shared_rows"] = nearest_bfloat16(rows)
    if "labelled" in given:
        scales, linked = np.ones((m, len(rows))), bits(given["labelled"][first:])[:, :count]
        labelled = given["shared_weights"][-1, :count] / (float(given["delta"]) + own @ rows[:count].T)
        scales[:, :count] = np.where(linked, labelled, 1.0)
        assert linked.any() == (partners == "shared-uniform")
        got["scales"] = nearest_bfloat16(scales)
    assert all_units(workload.units)(got, {}) is None
    for name, words in got.items():
        wrong = words.copy()
        wrong[5, 0] ^= 0x00400040
        assert all_units(workload.units)({**got, name: wrong}, {}) is not None, name


@pytest.mark.parametrize("kernel", ["block_scales", "star_scales"])
def test_scales_for_tensor_cores_are_judged_by_unit(kernel: str) -> None:
    workload = MMSB.kernel(kernel).workload(problem_of(kernel), 0)
    given = workload.arguments
    weights = given["shared_weights"].reshape(-1, given["shared_weights"].shape[-1])[-1].astype(np.float64)
    dots = float16(given["own_factors"]) @ float16(given["shared_factors"]).T
    right = np.zeros_like(dots)
    right[:, : weights.size] = -weights / np.maximum(1.0 - float(given["delta"]) - dots[:, : weights.size], 1e-6)
    if "marked" in given:
        right[bits(given["marked"][int(given["first_vertex"]) :])] = 0.0
    got = {"scales": nearest_bfloat16(right)}
    assert all_units(workload.units)(got, {}) is None
    got["scales"][7, 3] ^= 0x00100010
    assert all_units(workload.units)(got, {}) is not None


@pytest.mark.parametrize("kernel", ["block_sums", "star_sums"])
def test_sums_on_tensor_cores_are_judged_by_unit(kernel: str) -> None:
    workload = MMSB.kernel(kernel).workload(problem_of(kernel), 0)
    given, k = workload.arguments, SIZES["K"]
    scales, rows = (
        (np.ascontiguousarray(given[name]).view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        for name in ("scales", "shared_rows")
    )
    pi = given["pi"].copy()
    pi[given["spares"]] = 0.0
    pi[given["spares"], :k] = (scales.astype(np.float64) @ rows.astype(np.float64))[:, :k]
    assert all_units(workload.units)({"pi": pi}, {}) is None
    pi[given["spares"][9], 2] *= np.float32(1.01)
    assert all_units(workload.units)({"pi": pi}, {}) is not None
