"""Kernels of matrix factorisation: right in every configuration, and in the order that each schedule states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmsbgen.backends import Device
from mmsbgen.backends.nvidia.cuda_compile import compile_cuda, find_compiler
from mmsbgen.base.errors import MissingDependencyError
from mmsbgen.db.selection.index import Index
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.families import family
from mmsbgen.families.mf import reference
from mmsbgen.families.mf.generated import generated_ratings, start_rows
from mmsbgen.families.mf.layout import Cells, balanced, by_row
from mmsbgen.families.mf.workloads import features
from mmsbgen.kernels.build import BoundKernel, build, check, release, traits_of, upload
from mmsbgen.kernels.family import KernelSpec, Workload
from mmsbgen.kernels.render import render
from mmsbgen.kernels.roof import RoofKind
from mmsbgen.kernels.runtime import look_up
from mmsbgen.kernels.space import Config, Traits, describe
from mmsbgen.tuner.measure.timing import Patience
from mmsbgen.tuner.run.earlier_trials import known_roofs
from mmsbgen.tuner.run.tune import tune
from tests.devices import HASTY

MF = family("mf")
KS = (16, 1, 17, 15, 40)


#: The others have no entry point and no axis that these have not, but for tiles; schedules are tested by their orders.
LARGEST = ("sgd_blocks", "sgd_hybrid", "sgd_adds", "als_rows", "als_cg", "square_error")


def every_value_once(spec: KernelSpec, traits: Traits) -> list[tuple[int, Config]]:
    """The default, and configurations at random until each value of each axis has been there; each with a K."""
    found: list[tuple[int, Config]] = []
    rng = np.random.default_rng(5)
    config: Config | None = spec.default(spec.check_problem(MF.problem(K=KS[0])), traits)
    seen: set[tuple[str, Any]] = set()
    while config is not None:
        found.append((KS[len(found) % len(KS)], config))
        seen |= set(config.items())
        problem = spec.check_problem(MF.problem(K=KS[len(found) % len(KS)]))
        tried = [{axis.name: rng.choice(axis.values).item() for axis in spec.space.axes} for _ in range(200)]
        fit = [each for each in tried if spec.space.refusal(each, problem, traits) is None]
        config = max(fit, key=lambda each: len(set(each.items()) - seen), default=None)
        config = config if config is not None and set(config.items()) - seen else None
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGEST)
def test_every_value_of_every_axis_is_right(name: str, opencl_device: Device) -> None:
    """On PoCL each K once; its covering sample, in families/test_device, has every value."""
    spec = MF.kernel(name)
    # Blocks of every size on Intel's runtime only: PoCL has none of several work-items.
    most = len(KS) if "Portable" in opencl_device.info.platform else None
    for number, (k, config) in enumerate(every_value_once(spec, traits_of(opencl_device.info))[:most]):
        odd = {"dtype": "float64", "bias": "off", "feedback": "implicit"} if number % 3 == 1 else {}
        odd |= {"storage": "bfloat16"} if number % 3 == 2 else {}
        problem = MF.problem(K=k, **odd).only(spec.parameters)
        if spec.space.refusal(config, spec.check_problem(problem), traits_of(opencl_device.info)) is None:
            assert check(opencl_device, spec, problem, config) is None, (k, odd, describe(config))


@pytest.mark.smoke
@pytest.mark.parametrize("name", MF.kernels)
def test_the_default_is_right(name: str, pocl_device: Device) -> None:
    spec, problem = MF.kernel(name), MF.problem()
    assert check(pocl_device, spec, problem, spec.default(problem, traits_of(pocl_device.info))) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGEST)
def test_many_factors_are_right(name: str, pocl_device: Device) -> None:
    spec, problem = MF.kernel(name), MF.problem(K=130 if name in ("als_rows", "als_cg") else 300)
    assert check(pocl_device, spec, problem, spec.default(problem, traits_of(pocl_device.info))) is None


def outputs(device: Device, bound: BoundKernel, given: Workload) -> dict[str, Any]:
    placed = upload(device, given.prepared(bound.config))
    bound.launch(given.count, placed).wait()
    got = {name: device.download(placed[name]) for name in bound.spec.written}
    release(placed)
    return got


def test_as_many_steps_as_factors_come_to_the_solution() -> None:
    rng, offsets, others = np.random.default_rng(2), np.array([0, 0, 9, 10]), np.array([*range(9), 4])
    q, start, ratings = rng.standard_normal((9, 4)), rng.standard_normal((3, 4)), rng.uniform(1, 5, 10)
    for implicit in (False, True):
        given = np.arange(3), offsets, others, ratings, q
        exact, _ = reference.solved_rows(*given, 0.3, implicit=implicit, weighted=False)
        one, near = (
            reference.stepped_rows(*given, start, 0.3, steps, implicit=implicit, weighted=False, eps=2.0**-52)[0]
            for steps in (1, 4)
        )
        np.testing.assert_allclose(near, exact, rtol=1e-9)
        assert np.abs(one - exact)[1].max() > 1e-3


def test_ratings_by_row_keep_their_order() -> None:
    rows = np.random.default_rng(0).integers(0, 200_000, 50_000).astype(np.uint32)
    order, offsets = by_row(rows, 200_000)
    assert np.array_equal(order, np.argsort(rows, kind="stable"))
    assert np.array_equal(np.diff(offsets.astype(np.int64)), np.bincount(rows, minlength=200_000))


@pytest.mark.slow
def test_groups_are_balanced() -> None:
    degrees = np.bincount(generated_ratings(943, 1682, 100_000, 0)[1], minlength=1682)
    loads = np.bincount(balanced(degrees, 16), degrees, 16)
    assert loads.max() <= loads.mean() + degrees.max()
    assert loads.min() >= loads.mean() - degrees.max()
    assert np.all(np.diff(balanced(degrees, 16).astype(int)) >= 0)


def test_a_wrong_order_is_seen() -> None:
    users, items, ratings = generated_ratings(20, 15, 120, 3)
    start = reference.Factors(*(np.arange(n, dtype=np.uint32).reshape(shape) for n, shape in
                                ((40, (20, 2)), (30, (15, 2)), (20, (20,)), (15, (15,)))))  # fmt: skip
    r = ratings.astype(np.uint32)
    right = reference.witness(start, users, items, r, bias=True)
    first = next(at for at in range(1, 120) if users[at] == users[0])
    swapped = np.arange(120)
    swapped[[0, first]] = first, 0
    wrong = reference.witness(start, users[swapped], items[swapped], r[swapped], bias=True)
    assert not np.array_equal(right.p, wrong.p)


def test_the_reference_sweeps_as_a_loop_does() -> None:
    users, items, ratings = generated_ratings(12, 9, 60, 4)
    p, q = start_rows(1, "user", 12, 5, bias=True), start_rows(1, "item", 9, 5, bias=True)
    start, how = reference.Factors(p, q, np.zeros(12), np.zeros(9)), reference.Steps(0.05, 0.1, 0.2, 0.3, 3.5)
    got, _ = reference.sweep(start, users, items, ratings, how)
    p, q, b, c = p.copy(), q.copy(), np.zeros(12), np.zeros(9)
    for u, v, r in zip(users, items, ratings, strict=True):
        e = r - (3.5 + b[u] + c[v] + p[u] @ q[v])
        p[u], q[v] = p[u] + 0.05 * (e * q[v] - 0.1 * p[u]), q[v] + 0.05 * (e * p[u] - 0.2 * q[v])
        b[u], c[v] = b[u] + 0.05 * (e - 0.3 * b[u]), c[v] + 0.05 * (e - 0.3 * c[v])
    for found, exact in zip((got.p, got.q, got.b, got.c), (p, q, b, c), strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-12)


def test_a_penalty_alone_shrinks_rows_and_a_step_of_zero_changes_nothing() -> None:
    users, items, _ = generated_ratings(30, 20, 200, 5)
    p, q = start_rows(2, "user", 30, 4, bias=True), start_rows(2, "item", 20, 4, bias=True)
    start = reference.Factors(p, q * 0, np.zeros(30), np.zeros(20))
    mean = np.full(200, 3.0)
    got, _ = reference.sweep(start, users, items, mean, reference.Steps(0.1, 0.2, 0.2, 0.2, 3.0))
    degrees = np.bincount(users, minlength=30)
    np.testing.assert_allclose(got.p, p * (0.98**degrees)[:, None], rtol=1e-12)
    still, _ = reference.sweep(start, users, items, mean + 1, reference.Steps(0.0, 0.2, 0.2, 0.2, 3.0))
    assert np.array_equal(still.p, p)


def test_start_rows_do_not_depend_on_how_many_there_are() -> None:
    few, many = (start_rows(7, "user", rows, 6, bias=bias) for rows, bias in ((10, True), (300, True)))
    assert np.array_equal(few, many[:10])
    assert not np.array_equal(few, start_rows(7, "item", 10, 6, bias=True))
    uniform = start_rows(7, "user", 1000, 16, bias=False)
    assert 0 <= uniform.min() < 0.01 < 0.49 < uniform.max() < 0.5


@pytest.mark.slow
def test_generated_ratings_have_the_shape_and_the_skew_asked_for() -> None:
    users, items, ratings = generated_ratings(943, 1682, 100_000, 0)
    assert np.unique(users.astype(np.int64) * 1682 + items).size == 100_000
    assert set(np.unique(ratings)) == {1, 2, 3, 4, 5}
    assert 500 <= int(str(features(Cells(users, items, ratings, 943, 1682))["degree"])) <= 943
    again = generated_ratings(943, 1682, 100_000, 0)
    assert all(np.array_equal(a, b) for a, b in zip(again, (users, items, ratings), strict=True))
    even = generated_ratings(200, 300, 10_000, 0, skew=0.0)
    assert np.bincount(even[1]).max() < 100
    assert MF.inputs_refusal(MF.problem(users=10, items=10, ratings=90)) is not None


@pytest.mark.slow
def test_a_users_ratings_are_what_kernels_are_measured_on(processor: Device, tmp_path: Path) -> None:
    file = tmp_path / "ratings.csv"
    file.write_text(
        "user,item,rating\n" + "".join(f"{u},{v},{u % 5 - 7}\n" for u in range(30) for v in range(u, u + 9))
    )
    data = MF.dataset(file)
    problem = MF.problem(K=4, **data.values)
    assert [problem[name] for name in ("users", "items", "ratings", "degree")] == [30, 38, 270, 9]
    for name, spec in MF.kernels.items():
        given, config = data.workload(name, problem, 0), spec.default(problem, traits_of(processor.info))
        got = outputs(processor, build(processor, spec, problem, config), given)
        assert given.verify(got, config) is None, name
    assert len(data.name("als_rows")) == 16


@pytest.mark.slow
def test_kernels_are_tuned_on_generated_ratings(processor: Device, tmp_path: Path) -> None:
    problem = MF.problem(K=16, users=300, items=200, ratings=5000, degree=150)
    with open_store(tmp_path / "tuning.sqlite3") as store:
        report = tune(
            processor.info.spec,
            "mf",
            ["sgd_tiles", "sgd_locks", "als_rows"],
            problem,
            store=store,
            patience=Patience(repetitions=3, enough_s=0.0),
            budget_trials=1,
            roof_bytes=1 << 22,
        )
        # Both rows of a rating are read and written back: 500 of 64 bytes.
        kinds = [RoofKind("update", 64, 1 << 14), RoofKind("launch")]
        assert report.roofs is not None
        assert [*report.roofs.others] == kinds
        assert {kernel.roof for kernel in report.kernels} == {"update in 16 KiB", ""}
        known = known_roofs(store, processor.info, 64, 1 << 22, None, kinds)
        assert known is not None
        assert known.others == report.roofs.others
        tiles, rates = report.kernels[0], report.roofs.others
        assert tiles.best is not None
        assert tiles.best.roof_gbps == rates[kinds[0]]
        # As many launches as there are steps of tiles.
        launches, barriers = tiles.best.extra["rounds"]
        assert (
            (launches, barriers) == (tiles.best.config["tiles"], 0)
            if tiles.best.config["barrier"] == "launch"
            else (1, 0)
        )
        assert tiles.best.median_s is not None
        assert tiles.barrier_fraction == pytest.approx((launches - 1) / rates[kinds[1]] / 1e9 / tiles.best.median_s)
        for name, kernel in zip(("sgd_tiles", "sgd_locks", "als_rows"), report.kernels, strict=True):
            assert kernel.best is not None
            chosen = look_up(Index(store), processor.info, MF, name, problem.only(MF.kernel(name).parameters))
            assert (chosen.tier, dict(chosen.config)) == ("exact", dict(kernel.best.config))


@pytest.mark.slow
def test_cuda_c_of_every_kernel_compiles() -> None:
    traits = Traits("cuda", "gpu", local_memory=48 * 1024, sub_group_size=32, launch_memory=227 * 1024)
    for name in ("nvrtc", "nvcc"):
        try:
            compiler = find_compiler(name)  # type: ignore[arg-type]
            break
        except MissingDependencyError:
            continue
    else:
        pytest.skip("neither NVRTC nor nvcc is here")
    for number, spec in enumerate(MF.kernels.values()):
        for k, config in every_value_once(spec, traits)[:: 4 if spec.name in LARGEST else 99]:
            odd = {"dtype": "float64", "bias": "off", "feedback": "implicit"} if number % 2 else {"storage": "bfloat16"}
            problem = MF.problem(K=k, **odd).only(spec.parameters)
            if spec.space.refusal(config, problem, traits) is not None:
                continue
            compiled = compile_cuda(render(spec, problem, config, traits).text, "sm_90", HASTY, compiler=compiler)
            assert set(compiled.resources) == set(spec.entry_points(config))
            unused = "was declared but never referenced"
            assert [line for line in compiled.log.splitlines() if ": warning" in line and unused not in line] == []
