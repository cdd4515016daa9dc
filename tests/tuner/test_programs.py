"""Kernels whose call is a program, whose inputs are restored between calls, or depend on the configuration."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmsbgen.backends import Device
from mmsbgen.base.errors import InputError, LaunchError
from mmsbgen.db.selection.index import Index
from mmsbgen.db.store.tuning_store import Store
from mmsbgen.families import resolve_family
from mmsbgen.kernels.build import build, check, release, upload
from mmsbgen.kernels.family import Array, KernelFamily
from mmsbgen.kernels.runtime import Runtime, look_up
from mmsbgen.tuner.measure import trial_process
from mmsbgen.tuner.measure.measurer import Measurer, TrialLimits
from mmsbgen.tuner.measure.timing import Patience
from mmsbgen.tuner.measure.trial_process import TrialBench
from mmsbgen.tuner.run.tune import tune

REFERENCE = "program_family:PROGRAMS"
HASTY = Patience(repetitions=5, enough_s=0.0)
QUEUE, SCAN = ({"block_size": 64, "method": method} for method in ("queue", "scan"))


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> KernelFamily:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return resolve_family(REFERENCE)


@pytest.fixture(params=[pytest.param("processor", marks=pytest.mark.opencl), "cuda_device"])
def device(request: pytest.FixtureRequest) -> Device:
    found: Device = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def measurer(programs: KernelFamily, device: Device) -> Iterator[Measurer]:
    with Measurer(device.info.spec, REFERENCE, TrialLimits(run_s=20.0)) as opened:
        yield opened


def test_a_loop_over_a_frontier_is_timed_from_its_start_each_time(measurer: Measurer) -> None:
    """1,000 launches a call: one that found an empty frontier would take a thousandth."""
    measurer.load("levels", resolve_family(REFERENCE).problem(n=1000))
    for config in (QUEUE, SCAN):
        outcome = measurer.measure(config, patience=HASTY)
        assert (outcome.status, outcome.message) == ("ok", "")
        assert outcome.timing is not None
        assert outcome.timing.batch == 1
        assert min(outcome.timing.times) > statistics.median(outcome.timing.times) / 10
        assert min(outcome.timing.times) > 1e-3
    in_turns = measurer.turns([QUEUE, SCAN], 3)
    assert all(min(timing.times) > 1e-3 for timing in in_turns)
    assert measurer.recheck([QUEUE, SCAN]) == [None, None]


def test_a_kernel_that_changes_its_inputs_says_what_a_second_call_finds(measurer: Measurer) -> None:
    measurer.load("undeclared", resolve_family(REFERENCE).problem(n=1000))
    with pytest.raises(InputError, match='undeclared changes its input x.*repeats="same"'):
        measurer.measure({"block_size": 64})


def test_what_repeated_calls_leave_has_to_be_finite(measurer: Measurer) -> None:
    problem = resolve_family(REFERENCE).problem(n=1000)
    patience = Patience(repetitions=12, enough_s=0.0)
    measurer.load("continued", problem)
    outcome = measurer.measure({"block_size": 64}, patience=patience)
    assert outcome.status == "wrong_result"
    assert "1000 of 1000 values of x are not finite" in outcome.message
    measurer.load("restored", problem)
    assert measurer.measure({"block_size": 64}, patience=patience).status == "ok"


def test_a_target_that_is_not_reached_fails_the_configuration(measurer: Measurer) -> None:
    measurer.load("capped", resolve_family(REFERENCE).problem(n=2000))
    outcome = measurer.measure(QUEUE, patience=HASTY)
    assert outcome.status == "launch_error"
    assert "vertices are left after 400 levels" in outcome.message


def test_a_program_without_end_costs_only_itself(programs: KernelFamily, device: Device) -> None:
    with Measurer(device.info.spec, REFERENCE, TrialLimits(run_s=2.0)) as measurer:
        measurer.load("endless", programs.problem(n=1000))
        assert measurer.measure(SCAN, patience=HASTY).status == "timeout"
        measurer.load("levels", programs.problem(n=1000))
        assert measurer.measure(SCAN, patience=HASTY).status == "ok"


def test_inputs_of_a_layout_are_made_once_and_told_apart_in_time(programs: KernelFamily, device: Device) -> None:
    before = device.allocated
    bench = TrialBench(device, lambda phase: None)
    bench.load(REFERENCE, "product", programs.problem(n=600), 0, None)
    outcomes = {
        (layout, block): bench.measure({"block_size": block, "layout": layout}, None, HASTY, 0, True)
        for block, layout in itertools.product((16, 64), ("rows", "columns"))
    }
    assert {outcome.status for outcome in outcomes.values()} == {"ok"}, outcomes
    made = {at: outcome.prepare_s for at, outcome in outcomes.items()}
    assert made["rows", 16] == made["rows", 64]
    assert made["columns", 16] == made["columns", 64]
    assert made["rows", 16] != made["columns", 16]
    assert min(filter(None, made.values())) > 0
    bench.unload()
    assert device.allocated == before


def test_programs_are_tuned_stored_selected_and_run(programs: KernelFamily, store: Store, device: Device) -> None:
    problem = programs.problem(n=100)
    report = tune(
        device.info.spec,
        REFERENCE,
        None,
        problem,
        store=store,
        strategy="exhaustive",
        patience=HASTY,
        roof_bytes=1 << 24,
    )
    assert {kernel.kernel: dict(kernel.statuses) for kernel in report.kernels} == {
        "levels": {"ok": 4},
        "product": {"ok": 4},
    }
    laid_out = {trial.config["layout"]: trial.extra["prepare_s"] for trial in store.trials(kernel="product")}
    assert set(laid_out) == {"rows", "columns"}
    assert min(laid_out.values()) > 0
    runtime = Runtime(device, programs, Index(store))
    kernel = runtime.kernel("levels", problem)
    assert kernel.choice.tier == "exact"
    best = next(one for one in report.kernels if one.kernel == "levels").best
    assert best is not None
    assert kernel.config == best.config
    workload = kernel.spec.workload(problem, 7)
    placed = upload(device, workload)
    kernel.launch(workload.count, placed).wait()
    assert workload.verify({"levels": device.download(placed["levels"])}, kernel.config) is None
    release(placed)


@pytest.mark.parametrize("config", [QUEUE, SCAN], ids=["queue", "scan"])
def test_a_program_is_checked_on_the_small_problem(
    programs: KernelFamily, config: dict[str, Any], device: Device
) -> None:
    assert check(device, programs.kernel("levels"), programs.problem(n=2000), config, seed=3) is None


def test_a_program_that_fails_in_the_middle_is_not_tried_again(programs: KernelFamily, device: Device) -> None:
    """Its first launches have changed the inputs."""
    problem = programs.problem(n=1000)
    kernel = Runtime(device, programs).kernel("capped", problem)
    workload = kernel.spec.workload(problem, 0)
    placed = upload(device, workload)
    with pytest.raises(LaunchError, match=r"capped .*400 levels.*Before another run, choose another configuration"):
        kernel.launch(workload.count, placed)
    reached = device.download(placed["levels"])
    assert int(np.sort(np.unique(reached))[-2]) == 400
    release(placed)


def test_arrays_of_different_shapes_are_not_exchanged(programs: KernelFamily, device: Device) -> None:
    problem = programs.problem(n=100)
    bound = build(device, programs.kernel("levels"), problem, QUEUE)
    workload = bound.spec.workload(problem, 0)
    placed = upload(device, workload)
    placed["next_size"], spare = device.zeros(2, np.uint32), placed["next_size"]
    with pytest.raises(InputError, match="size and next_size cannot be exchanged"):
        bound.launch(workload.count, placed)
    release(placed | {"spare": spare})


def test_a_users_data_are_what_is_measured_and_their_features_find_the_nearest(
    programs: KernelFamily, store: Store, device: Device, tmp_path: Path
) -> None:
    """A star has two levels, where a generated graph of its size has hundreds."""
    spec, found = device.info.spec, {}
    for name, leaves, chain in (("star", 300, 1), ("comb", 1, 100)):
        sources = np.concatenate([np.repeat(np.arange(chain), leaves), np.arange(max(0, chain - 1))])
        targets = np.concatenate([chain + np.arange(chain * leaves), 1 + np.arange(max(0, chain - 1))])
        both, others = np.concatenate([sources, targets]), np.concatenate([targets, sources])
        order = np.argsort(both, kind="stable")
        begins = np.concatenate([[0], np.cumsum(np.bincount(both))]).astype(np.uint32)
        file = tmp_path / f"{name}.npz"
        np.savez(file, begins=begins, targets=others[order].astype(np.uint32))
        problem = programs.problem(**programs.dataset(file).values)
        report = tune(
            spec,
            REFERENCE,
            ["levels"],
            problem,
            store=store,
            data=file,
            patience=HASTY,
            budget_trials=4,
            roof_bytes=1 << 24,
        )
        (kernel,) = report.kernels
        assert dict(kernel.statuses) == {"ok": 4}
        assert kernel.best is not None
        found[name] = kernel.best
    assert found["star"].median_s < found["comb"].median_s / 10
    like_the_star = programs.problem(n=290, degree=289)
    chosen = look_up(Index(store), device.info, programs, "levels", like_the_star)
    assert (chosen.tier, dict(chosen.config)) == ("problem", dict(found["star"].config))
    assert "degree=300" in chosen.reason


def test_trials_of_other_data_are_not_reused(
    programs: KernelFamily, store: Store, device: Device, tmp_path: Path
) -> None:
    begins, targets = program_graph(50)
    reused = []
    for name in ("first", "second", "first"):
        np.savez(tmp_path / f"{name}.npz", begins=begins, targets=targets)
        file = tmp_path / f"{name}.npz"
        problem = programs.problem(**programs.dataset(file).values)
        report = tune(
            device.info.spec,
            REFERENCE,
            ["levels"],
            problem,
            store=store,
            data=file,
            patience=replace(HASTY, hopeless=(math.inf,)),  # a trial that load stops early is not reused
            strategy="exhaustive",
            roof_bytes=1 << 24,
        )
        reused.append(report.kernels[0].reused)
    assert reused == [0, 0, 4]


def program_graph(n: int) -> tuple[Array, Array]:
    """A path of ``n`` vertices: first neighbours and neighbours."""
    ends = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)
    both = np.concatenate([ends, ends[:, ::-1]])
    both = both[np.lexsort((both[:, 1], both[:, 0]))]
    begins = np.concatenate([[0], np.cumsum(np.bincount(both[:, 0], minlength=n))])
    return begins.astype(np.uint32), both[:, 1].astype(np.uint32)


def test_a_tune_for_energy_refuses_inputs_that_are_restored(
    programs: KernelFamily, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_process, "meter_of", lambda device: None)
    bench = TrialBench(device, lambda phase: None)
    bench.load(REFERENCE, "levels", programs.problem(n=100), 0, None)
    with pytest.raises(InputError, match="its inputs are restored: tune for time"):
        bench.energy(QUEUE)
    bench.unload()


def test_a_family_without_a_reader_says_so(programs: KernelFamily) -> None:
    unread = replace(programs, read=None)
    with pytest.raises(InputError, match="programs has no reader of data"):
        unread.dataset(Path("x"))
