"""Rows of 16 bits: how they are rounded, that kernels round so, and that the check of it sees what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mmsbgen.backends import Device
from mmsbgen.base.errors import ConfigError, InputError
from mmsbgen.families import family
from mmsbgen.families.mmsb.numbers.storage import HALF_SCALE, STORAGES, Storage, random_bits, storage_named
from mmsbgen.families.mmsb.reference import equations
from mmsbgen.kernels.build import build, check, release, traits_of, upload
from mmsbgen.kernels.family import Workload
from mmsbgen.kernels.render import render
from mmsbgen.kernels.space import Traits

MMSB = family()
PHI = MMSB.kernel("update_phi")
NARROW = STORAGES[1:]
#: Kernels that read or write rows of pi.
KERNELS = [name for name, spec in MMSB.kernels.items() if "storage" in spec.parameters]
ALL_BITS = np.arange(1 << 16, dtype=np.uint32)
OPENCL, CUDA = Traits("opencl", "cpu", max_block_size=4096), Traits("cuda", "gpu", sub_group_size=32)


@pytest.fixture(params=NARROW)
def storage(request: pytest.FixtureRequest) -> Storage:
    return storage_named(request.param)


def magnitudes() -> np.ndarray:
    """float32 values over all magnitudes of pi, with those that 16 bits hold exactly and their neighbours."""
    rng = np.random.default_rng(1)
    drawn = np.exp(rng.uniform(np.log(1e-16), 0.0, 200)).astype(np.float32)
    powers = (2.0 ** -np.arange(0.0, 40.0)).astype(np.float32)
    return np.concatenate([drawn, powers, np.nextafter(powers, np.float32(0)), np.float32([0.0, 1e-20])])


def test_the_mean_over_all_random_bits_is_the_value(storage: Storage) -> None:
    """Exactly, but for what lies below the last of the 16 bits: a 65536th of a step of half precision."""
    for x in magnitudes():
        stored = storage.values(storage.rounded(np.full(ALL_BITS.shape, x), ALL_BITS)).astype(np.float64)
        least = 0.0 if storage.name == "bfloat16" else 2.0**-24 / HALF_SCALE / 2**16
        assert abs(stored.mean() - float(x)) <= least + 2.0**-50 * float(x), x


def test_a_stored_value_is_a_neighbour_and_rises_with_the_value(storage: Storage) -> None:
    x = np.sort(magnitudes())
    for bits in (0, 1, 7, 1 << 15, (1 << 16) - 1):
        stored = storage.rounded(x, bits)
        assert np.all(np.diff(stored.astype(np.int64)) >= 0)
        below, above = storage.rounded(x, 0), storage.rounded(x, (1 << 16) - 1)
        assert np.all(above.astype(np.int64) - below <= 1)
        assert np.all((stored == below) | (stored == above))
        assert np.all(storage.values(below) <= x)
    step = storage.values(above).astype(np.float64) - storage.values(below)
    normal = x >= (1e-30 if storage.name == "bfloat16" else 2.0**-29)
    assert np.all(step[normal] <= storage.step * x[normal].astype(np.float64) * (1 + 1e-6))


def test_every_element_of_the_type_is_stored_as_it_is(storage: Storage) -> None:
    """Between 0 and 1, whatever the bits: so a checkpoint restores what it read."""
    elements = np.arange(int(storage.nearest(np.ones(1, np.float32))[0]) + 1, dtype=np.uint16)
    values = storage.values(elements)
    assert values[0] == 0.0
    assert values[-1] == 1.0
    for bits in (0, 1 << 15, (1 << 16) - 1):
        assert np.array_equal(storage.rounded(values, bits), elements)


def test_float16_is_ieee_half_precision_of_the_scaled_value() -> None:
    x = np.abs(np.random.default_rng(2).normal(size=1000)).astype(np.float32) * np.float32(1e-3)
    half = (x * np.float32(HALF_SCALE)).astype(np.float16)
    nearest = storage_named("float16").nearest(x).view(np.float16)
    # Ties go up here and to even there; a drawn value is no tie.
    assert np.array_equal(half, nearest)


def test_coordinates_have_bits_of_their_own() -> None:
    """Fair and uncorrelated: coordinates share words, but no bits; so do vertices and iterations."""
    bits = random_bits(5, 1024, np.arange(64), 3)
    other = random_bits(5, 1024, np.arange(64), 4)
    n = bits.size
    assert np.array_equal(random_bits(5, 13, np.array([7]), 3)[0], bits[7, :13])
    centred = (bits.astype(np.float64) + 0.5) / 65536 - 0.5
    assert abs(centred.mean()) < 5 * np.sqrt(1 / 12 / n)
    after = (other.astype(np.float64) + 0.5) / 65536 - 0.5
    for a, b in [(centred[:, :-1], centred[:, 1:]), (centred[:-1], centred[1:]), (centred, after)]:
        assert abs((a * b).mean()) < 5 / 12 / np.sqrt(a.size)
    ones = (bits[..., None] >> np.arange(16)) & 1
    assert np.all(np.abs(ones.mean(axis=(0, 1)) - 0.5) < 5 * 0.5 / np.sqrt(n))


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_agree_with_the_reference(opencl_device: Device, kernel: str, name: str) -> None:
    spec, problem = MMSB.kernel(kernel), MMSB.problem(K=100, storage=name)
    config = dict(spec.default(spec.check_problem(problem), traits_of(opencl_device.info)))
    assert check(opencl_device, spec, problem, config) is None


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
def test_words_do_not_depend_on_the_width_of_vectors(opencl_device: Device, width: int, storage: Storage) -> None:
    """A step without partners that count: the same rows bit for bit in a configuration of any width."""
    axes: dict[str, Any] = {"placement": "THREAD", "team": "item", "block_size": 1, "rows_in_flight": 1, "prefetch": 0}
    axes |= {"normalise": True, "reduction": "none"}
    problem = PHI.check_problem(MMSB.problem(K=37, storage=storage.name, noise="off", step="reflected"))

    def rows(config: dict[str, Any]) -> Any:
        workload = PHI.workload(problem, 0)
        workload.arguments["weights"][:] = 0
        return outputs(opencl_device, problem, config, workload)["pi"]

    wide = rows(axes | {"vector_width": width})
    # Sums may differ by rounding, and with them a value next to where its bits carry: few of 7 * 37.
    assert np.count_nonzero(wide != rows(axes | {"vector_width": 8})) <= 2


def outputs(device: Device, problem: Any, config: dict[str, Any], workload: Workload) -> dict[str, Any]:
    bound, placed = build(device, PHI, problem, config), upload(device, workload)
    try:
        bound.launch(workload.count, placed).wait()
        return {a.name: device.download(placed[a.name]) for a in PHI.arguments if a.role == "inout"}
    finally:
        release(placed)


@pytest.mark.opencl
def test_the_check_sees_one_wrong_neighbour(pocl_device: Device, storage: Storage) -> None:
    """Both neighbours of one element, rows rounded by other bits, sums, and rows that are not the mini-batch's."""
    problem = PHI.check_problem(MMSB.problem(K=64, storage=storage.name, noise="off"))
    config = dict(PHI.default(problem, traits_of(pocl_device.info)))
    workload = PHI.workload(problem, 0)
    right = outputs(pocl_device, problem, config, workload)
    assert workload.verify(right, config) is None
    rows = workload.arguments["spares"]

    def judged(pi: Any) -> str:
        return workload.verify(right | {"pi": pi}, config) or ""

    for by in (-1, 1):
        pi = right["pi"].copy()
        at = tuple(np.argwhere(pi[rows] > 100)[0])
        pi[rows[at[0]], at[1]] = int(pi[rows[at[0]], at[1]]) + by
        assert "1 of" in judged(pi)
    # Without noise the iteration decides on nothing but the bits that round.
    later = PHI.workload(problem, 0)
    later.arguments["iteration"] += np.uint32(1)
    assert "are off" in judged(outputs(pocl_device, problem, config, later)["pi"])
    wrong_sum = right["row_sums"].copy()
    wrong_sum[rows[0]] *= np.float32(1.01)
    assert workload.verify(right | {"row_sums": wrong_sum}, config)
    outside = right["pi"].copy()
    outside[np.setdiff1d(np.arange(len(outside)), rows)[0], 0] ^= 1
    assert "outside the mini-batch" in judged(outside)


@pytest.mark.opencl
@pytest.mark.parametrize("noise", ["on", "off"])
@pytest.mark.parametrize("k", [1, 64])
def test_the_check_sees_wrong_sums_of_rows(pocl_device: Device, storage: Storage, k: int, noise: str) -> None:
    """Also of rows with one element, which is 1 whatever phi is; with draws too, and those that are no numbers."""
    problem = PHI.check_problem(MMSB.problem(K=k, n=11, storage=storage.name, noise=noise, step="split"))
    config, workload = dict(PHI.default(problem, traits_of(pocl_device.info))), PHI.workload(problem, 0)
    right = outputs(pocl_device, problem, config, workload)
    assert workload.verify(right, config) is None
    for by in (1.02, 1000.0, 0.0, np.nan):
        wrong = right["row_sums"].copy()
        wrong[workload.arguments["spares"]] *= np.float32(by)
        with np.errstate(all="ignore"):
            assert workload.verify(right | {"row_sums": wrong}, config), by
    assert workload.verify(right | {"pi": np.zeros_like(right["pi"])}, config)


@pytest.mark.parametrize("step", ["split", "reflected", "published"])
@pytest.mark.parametrize("noise", [True, False])
def test_a_coordinate_that_is_stored_as_0_can_grow(step: str, noise: bool) -> None:
    """No step divides by it: it goes on from 0 as the prior has it, alpha eps/2 a step in the mean."""
    phi = np.full(20_000, 0.0)
    how = equations.Step(step, 0.01, 0.2, noise, seed=3)
    after = equations.end_row(phi, phi, phi, phi, 0, how, row_sum=1.0).phi
    mean = 0.2 * -np.expm1(-0.01) if step == "split" else 0.2 * 0.01
    assert np.all(np.isfinite(after))
    assert after.mean() == pytest.approx(mean, abs=5 * after.std() / np.sqrt(phi.size) + 1e-12)


def test_what_does_not_go_together_is_refused(storage: Storage) -> None:
    with pytest.raises(InputError, match=f"storage={storage.name} goes with dtype=float32"):
        MMSB.problem(storage=storage.name, dtype="float64")
    with pytest.raises(InputError, match="share partners keep their rows in float32"):
        MMSB.problem(storage=storage.name, partners="block")
    problem = MMSB.problem(storage=storage.name)
    whole = dict(PHI.default(problem, OPENCL))
    for axes, why in [
        ({"normalise": False}, "normalise them"),
        ({"placement": "GLOBAL", "prefetch": 0}, "GLOBAL adds"),
    ]:
        with pytest.raises(ConfigError, match=why):
            render(PHI, problem, whole | axes, OPENCL)
    assert "update_pi" in MMSB.worth_tuning(MMSB.problem())
    assert "update_pi" not in MMSB.worth_tuning(problem)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["block_links", "star_rows"])
def test_rows_that_only_update_phi_ends_are_refused_elsewhere(kernel: str, storage: Storage) -> None:
    spec, problem = MMSB.kernel(kernel), MMSB.problem(K=64, storage=storage.name)
    with pytest.raises(ConfigError, match=f"rows of {storage.name} are ended by update_phi alone"):
        spec.default(problem, OPENCL)
    assert not spec.space.configs(problem.replace(K=4), CUDA)


def test_a_problem_at_the_default_is_what_it_was_before() -> None:
    """Records of float32 rows keep their keys; those of 16 bits have keys of their own, near to none of these."""
    plain = MMSB.problem()
    assert MMSB.problem(storage="float32") == plain
    assert "storage" not in plain.only(PHI.parameters).key
    assert '"storage":"bfloat16"' in MMSB.problem(storage="bfloat16").only(PHI.parameters).key


def test_loads_on_cuda_are_of_16_bytes_and_rows_are_counted_as_stored() -> None:
    problem, whole = MMSB.problem(K=1024, storage="bfloat16"), MMSB.problem(K=1024)
    config = {**PHI.default(problem, CUDA), "vector_width": 8}
    assert "struct __align__(16) storedv { u32 s[4]; };" in render(PHI, problem, config, CUDA).text
    with pytest.raises(ConfigError, match="vectors of up to 4 elements"):
        render(PHI, whole, config, CUDA)
    assert (MMSB.row_bytes(problem), MMSB.row_bytes(whole)) == (2048, 4096)
    assert 2 * PHI.traffic(problem) == PHI.traffic(whole)
