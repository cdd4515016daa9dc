"""Schedules of SGD: what their orders are, and that kernels keep what they promise."""

from __future__ import annotations

import itertools
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mmsbgen.backends import Device
from mmsbgen.families import family
from mmsbgen.families.mf import layout, reference, schedules, sgd_programs
from mmsbgen.families.mf.generated import generated_ratings
from mmsbgen.families.mf.layout import Cells, CellSteps
from mmsbgen.families.mf.schedules import BARRIER, PROMISES, SCHEDULES, _degree_hybrid, automatic
from mmsbgen.families.mf.schedules import BLOCK as ITEMS
from mmsbgen.families.mf.sgd_programs import ratings_of_team
from mmsbgen.families.mf.workloads import sgd_workload
from mmsbgen.kernels.build import BoundKernel, build, traits_of
from mmsbgen.kernels.family import Workload
from mmsbgen.kernels.space import Traits
from tests.families.mf.test_mf_kernels import outputs

MF = family("mf")
ADVERSARIAL: dict[str, tuple[list[int], list[int]]] = {
    "one rating": ([0], [0]),
    "one item": (list(range(40)), [0] * 40),
    "one user": ([0] * 40, list(range(40))),
    "a matching": (list(range(30)), list(range(30))),
    "complete 5 x 7": ([at // 7 for at in range(35)], [at % 7 for at in range(35)]),
    "rows without ratings": ([9, 3, 9], [0, 0, 30]),
    "a grid, doubled": ([at for at in range(39) for _ in (0, 1)], [at + step for at in range(39) for step in (0, 1)]),
}
#: Users and items of ratings a to l: a set on which all can be told by hand.
SMALL = ([0, 1, 2, 4, 5, 0, 1, 4, 3, 5, 0, 1], [0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 3])
STEPPED = {
    "tiles": lambda cells: layout.tiles(cells, 4),
    "matchings": layout.matchings,
    "matching-nodes": partial(layout.matchings_of_blocks, block=3, apart=False),
    "subgraph": partial(layout.matchings_of_blocks, block=3, apart=True),
    "diagonals": layout.diagonals,
    "block-diagonals": partial(layout.diagonals, side=3),
}


def cells_of(users: list[int], items: list[int]) -> Cells:
    u, v = np.array(users, np.uint32), np.array(items, np.uint32)
    return Cells(u, v, np.arange(1, u.size + 1) % 7, int(u.max()) + 1, int(v.max()) + 1)


def generated(users: int, items: int, count: int, seed: int) -> Cells:
    return Cells(*generated_ratings(users, items, count, seed), users, items)


def told(steps: CellSteps) -> list[str]:
    """The ratings of each step by letters."""
    letters = np.array(list("abcdefghijkl"))[steps.order]
    return ["".join(sorted(letters[steps.cells[a] : steps.cells[b]])) for a, b in zip(steps.steps, steps.steps[1:])]  # noqa: B905


def test_diagonals_are_counted_before_they_are_placed() -> None:
    for cells in (cells_of(*SMALL), generated(200, 130, 3000, 1)):
        for side in (1, 3):
            assert layout.diagonal_count(cells, side) == layout.diagonals(cells, side).steps.size - 1
    sparse = generated(30_000, 20_000, 60_000, 1)
    assert automatic("gpu", sparse, deterministic=True) == ("tiles",)
    assert automatic("cpu", sparse, deterministic=False) == ("tiles",)


def test_few_ratings_of_a_row_are_added_at_once() -> None:
    """Of 1,000,000 ratings, 4000 of one row, 10,000 teams would have 40 of that row under way."""
    assert ratings_of_team(16, 1_000_000, 4000, 10_000, 0.02) == 4000 / 32
    assert ratings_of_team(16, 1_000_000, 4000, 10_000, 0.08) == 4000 / 8
    assert ratings_of_team(1024, 1_000_000, 4000, 10_000, 0.0) == 1024
    assert ratings_of_team(16, 1_000_000, 4000, 1000, 0.02) == 16
    assert ratings_of_team(1, 40, 40, 40, 50.0) == 40


def test_stretches_are_by_item_and_begin_with_different_ones() -> None:
    cells = generated(60, 90, 1000, 3)
    order = layout.by_stretches(cells, 4)
    for number, stretch in enumerate(order.reshape(4, 250)):
        assert np.array_equal(np.sort(stretch), np.arange(250) + 250 * number)
        shifted = (cells.items[stretch].astype(int) - number * 90 // 4) % 90
        assert np.all(np.diff(shifted) >= 0)
    assert layout.by_stretches(cells_of([0, 1], [0, 0]), 64).tolist() == [0, 1]


def test_a_sweep_waits_for_the_longest_cell_of_each_step_and_for_barriers() -> None:
    cells = cells_of(*SMALL)
    for name, longest, steps in (("diagonals", 9, 9), ("matchings", 5, 5), ("tiles", 12, 1)):
        (part,) = SCHEDULES[name].placed(cells, 1)
        assert part.waits == longest + BARRIER * steps
    assert SCHEDULES["adds"].placed(cells)[0].waits == 0


def test_communities_that_ids_tell_do_not_make_steps_of_tiles_long() -> None:
    """Users and items by community, whose order differs: neighbours alone would fill few cells of a step."""
    rng = np.random.default_rng(1)
    of_users, of_items = np.repeat(np.arange(10), 60), np.repeat(rng.permutation(10), 60)
    users, items = np.nonzero((of_users[:, None] == of_items) & (rng.random((600, 600)) < 0.5))
    by_id = Cells(users.astype(np.uint32), items.astype(np.uint32), np.ones(users.size), 600, 600)
    mixed = by_id._replace(items=rng.permutation(600).astype(np.uint32)[items])
    mixed = mixed._replace(users=rng.permutation(600).astype(np.uint32)[users])
    for tiles in (16, 64):
        longest = [SCHEDULES["tiles"].placed(each, tiles)[0].waits for each in (by_id, mixed)]
        assert longest[0] < 1.3 * longest[1]


class Kernels:
    """Kernels as they were built, for all tests of a module."""

    def __init__(self) -> None:
        self._built: dict[tuple[Any, ...], BoundKernel] = {}

    def built(self, device: Device, name: str, **more: Any) -> BoundKernel:
        """The default with other values of axes."""
        spec, problem = MF.kernel(name), MF.problem(K=3)
        default = dict(spec.default(problem, traits_of(device.info)))
        config = default | {axis: value for axis, value in more.items() if axis in default}
        key = name, id(device), tuple(config.items())
        if key not in self._built:
            self._built[key] = build(device, spec, problem, config)
        return self._built[key]


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    return Kernels()


def witnessed(device: Device, kernels: Kernels, schedule: str, cells: Cells, **more: Any) -> None:
    """Run each part of a sweep by the exact operator, and look at its order."""
    for part in SCHEDULES[schedule].placed(cells):
        given = sgd_workload(part.kernel, cells, MF.problem(K=3), 0, schedule)
        ways: list[dict[str, Any]] = [{"barrier": "launch"}]
        if part.kernel == "sgd_blocks":
            ways.append(keeping(device))
        for way in ways:
            bound = kernels.built(device, part.kernel, operator="witness", per_team=1, **way, **more)
            assert given.verify(outputs(device, bound, given), bound.config) is None, (schedule, part.kernel, way)


def keeping(device: Device) -> dict[str, Any]:
    """Axes of teams that keep rows: the default's; one that has all; or 256 of a block, which PoCL cannot have."""
    of_platform = {"CUDA": {}, "Portable Computing Language": {"rows_kept": ITEMS}}
    return {"barrier": "grid"} | of_platform.get(device.info.platform, {"block_size": 256, "rows_kept": 4})


def check_that_kept_rows_have_the_bits_of_launches(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "BLOCK", 25)
    cells, spec = generated(100, 60, 800, 1), MF.kernel("sgd_blocks")
    for at_once, numbers in ((1 << 16, {"dtype": "float64"}), (5, {"storage": "bfloat16"})):
        monkeypatch.setattr(sgd_programs, "_AT_ONCE", at_once)
        problem = MF.problem(K=15, **numbers)
        default = dict(spec.default(problem, traits_of(device.info)))
        kept, launched = default | keeping(device), default | {"barrier": "launch", "rows_kept": 0}
        assert kept["rows_kept"]
        given = sgd_workload("sgd_blocks", cells, problem, 0, "subgraph")
        got = [outputs(device, build(device, spec, problem, config), given) for config in (kept, launched)]
        for name in ("user_factors", "item_factors", "user_bias", "item_bias"):
            assert got[0][name].tobytes() == got[1][name].tobytes(), (numbers, name)


@pytest.mark.slow
def test_kept_rows_have_the_bits_of_launches(opencl_device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    check_that_kept_rows_have_the_bits_of_launches(opencl_device, monkeypatch)


@pytest.mark.parametrize(("dialect", "block"), [("cuda", 1024), ("opencl", 1024), ("opencl", 96)])
def test_defaults_are_valid_on_gpus(dialect: str, block: int) -> None:
    traits = Traits(dialect, "gpu", block, sub_group_size=32, compute_units=132)
    for k, dtype, degree in itertools.product((1, 16, 20, 32, 64, 128, 512, 1024), ("float32", "float64"), (9, 10**5)):
        problem = MF.problem(K=k, dtype=dtype, degree=degree, ratings=10**7, users=10**6, items=10**6)
        for spec in MF.kernels.values():
            assert spec.space.refusal(spec.default(problem, traits), problem, traits) is None, (spec.name, k)


def test_rows_are_kept_by_default_only_if_all_blocks_are_resident() -> None:
    """Multiprocessors hold 256 work-items whatever their registers, and the least have 64 KiB for rows."""
    spec, kept = MF.kernel("sgd_blocks"), 0
    for units, k in itertools.product((8, 40, 108, 132), (16, 128, 300, 600, 1000, 2000, 4096)):
        problem, traits = MF.problem(K=k), Traits("cuda", "gpu", sub_group_size=32, compute_units=units)
        config = spec.default(problem, traits)
        assert spec.space.refusal(config, problem, traits) is None
        if not config["rows_kept"]:
            continue
        kept += 1
        block, teams = int(config["block_size"]), int(config["block_size"]) // int(config["team"])
        blocks = -(-ITEMS // (teams * int(config["rows_kept"])))
        together, row = -(-blocks // units), 4 * layout.padded_width(k)
        assert together * block <= 256
        assert together * (teams * int(config["rows_kept"]) * row + 1024) <= 64 * 1024, (units, k)
    assert kept >= 8


def test_kept_rows_have_the_bits_of_launches_on_cuda(cuda_device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    check_that_kept_rows_have_the_bits_of_launches(cuda_device, monkeypatch)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_adversarial_ratings_are_done_in_the_stated_order(schedule: str, pocl_device: Device, kernels: Kernels) -> None:
    for shape in ADVERSARIAL.values():
        for tiles in (1, 4, 64) if schedule == "tiles" else (1,):
            witnessed(pocl_device, kernels, schedule, cells_of(*shape), tiles=tiles)


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pairs=st.sets(st.tuples(st.integers(0, 12), st.integers(0, 9)), min_size=1, max_size=80),
    tiles=st.sampled_from([1, 4, 64]),
    schedule=st.sampled_from(list(SCHEDULES)),
)
def test_random_ratings_are_done_in_the_stated_order(
    pairs: set[tuple[int, int]], tiles: int, schedule: str, opencl_device: Device, kernels: Kernels
) -> None:
    users, items = zip(*sorted(pairs, key=lambda pair: hash(pair)), strict=True)
    witnessed(opencl_device, kernels, schedule, cells_of(list(users), list(items)), tiles=tiles)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["locks", "nodes", "hybrid"])
def test_tickets_tell_the_order_of_many_teams_again_and_again(
    schedule: str, opencl_device: Device, kernels: Kernels
) -> None:
    """Also with lists at random, in stretches by item, and with several users locked at once."""
    cells = generated(60, 90, 1000, 3)
    for stretches, together in itertools.product((0, 64), (1, 4)) if schedule != "nodes" else [(0, 1)] * 4:
        witnessed(opencl_device, kernels, schedule, cells, retries=0, stretches=stretches, together=together)


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [{"dtype": "float64"}, {}, {"storage": "bfloat16"}])
def test_steps_have_the_bits_of_their_sequential_order(
    numbers: dict[str, str], pocl_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And those of another run of theirs.  One team that goes through all steps is that order, with kept rows too."""
    monkeypatch.setattr(schedules, "BLOCK", 50)
    cells, problem = generated(200, 130, 3000, 1), MF.problem(K=24, **numbers)
    spec = MF.kernel("sgd_steps")
    default = dict(spec.default(problem, traits_of(pocl_device.info)))
    parallel, alone = (build(pocl_device, spec, problem, default | {"barrier": way}) for way in ("launch", "grid"))
    blocked = MF.kernel("sgd_blocks")
    in_blocks = [
        build(pocl_device, blocked, problem, default | {"barrier": way, "rows_kept": kept})
        for way, kept in (("launch", 0), ("grid", 0), ("grid", ITEMS))
    ]
    tiled = MF.kernel("sgd_tiles")
    default = dict(tiled.default(problem, traits_of(pocl_device.info))) | {"tiles": 4}
    for schedule in STEPPED:
        if schedule == "tiles":
            given = sgd_workload("sgd_tiles", cells, problem, 0)
            bounds = [build(pocl_device, tiled, problem, default | {"barrier": way}) for way in ("launch", "grid")]
        elif SCHEDULES[schedule].kernels == ("sgd_blocks",):
            given, bounds = sgd_workload("sgd_blocks", cells, problem, 0, schedule), in_blocks
            # The same steps one after another, by a kernel that knows no blocks of items.
            assert given.verify(outputs(pocl_device, alone, given), alone.config) is None
        else:
            given = sgd_workload("sgd_steps", cells, problem, 0, schedule)
            bounds = [parallel, alone]
        got = [outputs(pocl_device, bound, given) for bound in (*bounds, bounds[0])]
        if schedule == "tiles":  # in one cell
            one = given.prepared(default).arguments | {"cells": np.array([0, 3000], np.uint32)}
            sequential = Workload(one, 3000, given.verify, repeats="restored")
            got.append(outputs(pocl_device, build(pocl_device, tiled, problem, default | {"tiles": 1}), sequential))
        for name in ("user_factors", "item_factors", "user_bias", "item_bias"):
            assert len({each[name].tobytes() for each in got}) == 1, (schedule, name)


def test_roundings_to_16_bits_keep_the_mean(pocl_device: Device) -> None:
    """A step of a thousandth is half of what 8 bits tell apart: to the nearest, nothing would change."""
    cells, problem, spec = generated(200, 130, 3000, 1), MF.problem(K=24, storage="bfloat16"), MF.kernel("sgd_tiles")
    config = spec.default(problem, traits_of(pocl_device.info))
    plain = sgd_workload("sgd_tiles", cells, problem, 0).prepared(config).arguments
    alone = plain | {name: 0 * plain[name] for name in ("item_factors", "user_bias", "item_bias")}
    alone |= {"ratings": np.full(3000, 3.5, np.float32), "step": np.float32(0.01), "reg_user": np.float32(0.1)}
    given = Workload(alone, 3000, lambda got, config: None, repeats="restored")
    got = outputs(pocl_device, build(pocl_device, spec, problem, config), given)["user_factors"]
    before, after = (np.abs(layout.widened(each).astype(np.float64)) for each in (plain["user_factors"], got))
    wanted = before * (0.999 ** np.bincount(cells.users, minlength=200))[:, None]
    assert after.sum() == pytest.approx(wanted.sum(), rel=1e-3)
    assert before.sum() > 1.01 * wanted.sum()


def check_that_not_a_number_is_kept(device: Device) -> None:
    """One rating that is no number: its user's and its item's rows are none then."""
    cells, problem, spec = cells_of([0], [0]), MF.problem(K=3, storage="bfloat16"), MF.kernel("sgd_adds")
    bound = build(device, spec, problem, spec.default(problem, traits_of(device.info)))
    plain = sgd_workload("sgd_adds", cells, problem, 0).prepared(bound.config).arguments
    plain = plain | {"ratings": np.full(1, np.nan, np.float32)}
    given = Workload(plain, 1, lambda got, config: None, repeats="restored")
    got = outputs(device, bound, given)
    for name in ("user_factors", "item_factors"):
        assert np.isnan(layout.widened(got[name])[0]).all()


def test_what_is_no_number_is_added_in_16_bits(opencl_device: Device) -> None:
    check_that_not_a_number_is_kept(opencl_device)


def test_what_is_no_number_is_added_in_16_bits_on_cuda(cuda_device: Device) -> None:
    check_that_not_a_number_is_kept(cuda_device)


def test_what_is_left_after_heavy_items_goes_on_from_them(pocl_device: Device, kernels: Kernels) -> None:
    """Locks on the heaviest items, then matchings of the others, are one order."""
    cells, problem = generated(40, 30, 400, 2), MF.problem(K=3)
    parts = [part for part in _degree_hybrid(cells, 1, block=4, heavy=3) if part.order.size]
    assert [part.kernel for part in parts] == ["sgd_locks", "sgd_blocks"]
    state: dict[str, Any] = {}
    orders, names = [], ("user_factors", "item_factors", "user_bias", "item_bias")
    for part in parts:
        bound = kernels.built(pocl_device, part.kernel, operator="witness", per_team=1, barrier="launch")
        own = sgd_workload(part.kernel, cells.at(part.order), problem, 0)
        plain = own.prepared(bound.config).arguments | dict(part.arrays)
        data = cells.at(part.order)
        plain |= {"users": data.users, "items": data.items, "ratings": data.ratings.astype(np.uint32)} | state
        start = start if state else [plain[name].copy() for name in names]  # noqa: F821
        got = outputs(pocl_device, bound, Workload(plain, part.count, own.verify, repeats="restored"))
        orders.append(part.order[np.argsort(got["tickets"])] if "tickets" in got else part.order)
        state = {name: got[name] for name in names}
    whole = cells.at(np.concatenate(orders))
    assert np.array_equal(np.sort(np.concatenate(orders)), np.arange(400))
    data = whole.users, whole.items, whole.ratings.astype(np.uint32)
    right = reference.witness(reference.Factors(*start), *data, bias=True)
    assert all(np.array_equal(state[name], getattr(right, field)) for name, field in zip(names, "pqbc", strict=True))


@pytest.mark.parametrize("schedule", STEPPED)
def test_steps_cover_all_ratings_and_cells_of_a_step_share_no_row(schedule: str) -> None:
    for cells in (generated(31, 23, 250, 2), cells_of(*ADVERSARIAL["rows without ratings"])):
        found = STEPPED[schedule](cells)
        assert np.array_equal(np.sort(found.order), np.arange(cells.users.size))
        assert (found.cells[0], found.cells[-1]) == (0, cells.users.size)
        assert (found.steps[0], found.steps[-1]) == (0, found.cells.size - 1)
        of_cell = np.repeat(np.arange(found.cells.size - 1), np.diff(found.cells.astype(np.int64)))
        of_step = np.repeat(np.arange(found.steps.size - 1), np.diff(found.steps.astype(np.int64)))[of_cell]
        for side in (cells.users[found.order], cells.items[found.order]):
            pairs = np.unique(np.stack([of_step, side, of_cell]), axis=1)
            assert np.unique(pairs[:2], axis=1).shape[1] == pairs.shape[1]


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 6)), min_size=1, max_size=40, unique=True))
def test_colours_are_those_of_greedy_matchings(pairs: list[tuple[int, int]]) -> None:
    users, items = (np.array(side, np.uint32) for side in zip(*pairs, strict=True))
    found, left, colour = layout.first_fit(users, items), list(range(len(pairs))), 0
    degree = max(np.bincount(users).max(), np.bincount(items).max())
    assert degree <= found.max() + 1 <= 2 * degree - 1
    while left:
        rows: set[tuple[str, int]] = set()
        for at in list(left):
            ends = {("u", pairs[at][0]), ("v", pairs[at][1])}
            if not ends & rows:
                rows |= ends
                left.remove(at)
                assert found[at] == colour
        colour += 1


def test_a_small_set_has_the_steps_told_by_hand() -> None:
    cells = cells_of(*SMALL)
    assert told(layout.matchings(cells)) == ["agi", "bfj", "chk", "dl", "e"]
    assert len(told(layout.matchings_of_blocks(cells, 2, apart=False))) == 5 + 4
    apart = told(layout.matchings_of_blocks(cells, 2, apart=True))
    assert apart == ["ag", "bf", "ch", "d", "e", "ik", "jl"]
    assert told(layout.diagonals(cells)) == ["k", "l", "f", "ag", "bi", "c", "hj", "d", "e"]
    assert len(told(layout.diagonals(cells, 2))) == 4


def test_schedules_meet_at_their_ends() -> None:
    cells = generated(40, 30, 400, 3)
    same = [layout.matchings(cells), *(layout.matchings_of_blocks(cells, 30, apart=apart) for apart in (False, True))]
    assert all(np.array_equal(one, other) for found in same[1:] for one, other in zip(found, same[0], strict=True))
    by_degree = layout.matchings_of_blocks(cells, 1, apart=True)
    assert np.all(np.diff(by_degree.order)[np.diff(cells.items[by_degree.order].astype(int)) == 0] > 0)
    assert layout.tiles(cells, 1).order.tolist() == list(range(400))
    all_light = [part for part in _degree_hybrid(cells, 1, block=8, heavy=0) if part.order.size]
    assert [part.kernel for part in all_light] == ["sgd_blocks"]
    assert np.array_equal(all_light[0].order, layout.matchings_of_blocks(cells, 8, apart=True).order)
    all_heavy = [part for part in _degree_hybrid(cells, 1, heavy=30) if part.order.size]
    assert [part.kernel for part in all_heavy] == ["sgd_locks"]


def test_lost_changes_are_allowed_and_wrong_ones_are_seen(pocl_device: Device, kernels: Kernels) -> None:
    cells, problem = generated(40, 30, 300, 4), MF.problem(K=3)
    given = sgd_workload("sgd_hogwild", cells, problem, 0)
    for operator in ("sgd", "witness"):
        bound = kernels.built(pocl_device, "sgd_hogwild", operator=operator)
        got, before = outputs(pocl_device, bound, given), given.prepared(bound.config).arguments
        assert given.verify(got, bound.config) is None
        degrees = np.bincount(cells.users)
        rare, old = int(np.flatnonzero(degrees == 1)[0]), before["user_bias"]
        change = got["user_bias"] - old
        for at, many in ((rare, 0), (rare, 2), (int(np.argmax(degrees)), 3)):
            wrong = got["user_bias"].copy()
            wrong[at] = old[at] + many * change[at]
            assert given.verify(got | {"user_bias": wrong}, bound.config) is not None, (operator, at, many)


@pytest.mark.parametrize(("widest", "resident", "grid"), [(5, 99, 2), (1000, 99, 12), (1000, 7, 7)])
def test_no_more_blocks_meet_than_have_work_or_are_resident(widest: int, resident: int, grid: int) -> None:
    sizes = np.ones(70_000, np.int64)
    sizes[9] = widest
    launches: list[tuple[int, int, int, int]] = []
    on = SimpleNamespace(
        config={"block_size": 128, "team": 32, "barrier": "grid", "blocks_per_unit": 4},
        traits=Traits("cuda", "gpu", compute_units=3),
        count=sizes.size,
        barriers=0,
        read=lambda name, rows: np.append(0, np.cumsum(sizes)).astype(np.uint32),
        write=lambda name, zero: launches.append((-1, *zero.tolist(), 0, 0)),
        resident_blocks=lambda entry, block: resident,
        launch_cooperative=lambda entry, blocks, block, first, size: launches.append((blocks, block, first, size)),
    )
    program = MF.kernel("sgd_steps").program
    assert program is not None
    program(on)  # type: ignore[arg-type]
    zeroed = (-1, 0, 0, 0)
    assert launches == [zeroed, (grid, 128, 0, 65_536), zeroed, (grid, 128, 65_536, 4_464)]


def test_every_schedule_says_what_it_promises() -> None:
    assert {each.promise for each in SCHEDULES.values()} == set(PROMISES)
    used = {name for each in SCHEDULES.values() for name in each.kernels}
    assert used == {name for name in MF.kernels if name.startswith("sgd_")}


@pytest.mark.parametrize(("resident", "barriers"), [(8, 10), (1, 0)])
def test_the_barriers_of_a_call_are_counted(resident: int, barriers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One a step, in all launches; a single block waits for nobody."""
    monkeypatch.setattr(sgd_programs, "_AT_ONCE", 4)
    launches: list[tuple[int, int]] = []
    on = SimpleNamespace(
        config={"barrier": "grid", "block_size": 64, "team": 32, "blocks_per_unit": 1},
        traits=Traits("cuda", "gpu", compute_units=4),
        barriers=0,
        resident_blocks=lambda entry, block: resident,
        write=lambda name, value: None,
        launch_cooperative=lambda entry, grid, block, first, size: launches.append((grid, int(size))),
    )
    sgd_programs._stepped(on, np.arange(0, 101, 10))  # type: ignore[arg-type]
    assert on.barriers == barriers
    assert launches == [(min(4, resident), size) for size in (4, 4, 2)]
