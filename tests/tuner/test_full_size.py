"""Faults that show only at the size that is timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mmsbgen.backends import Device
from mmsbgen.backends.fake import FakeDevice
from mmsbgen.db.selection.index import Index
from mmsbgen.db.store.tuning_store import Store
from mmsbgen.families import resolve_family
from mmsbgen.kernels.build import BoundKernel, build, upload
from mmsbgen.kernels.family import Workload
from mmsbgen.tuner.measure import full_size
from mmsbgen.tuner.measure.full_size import FullSizeCheck
from mmsbgen.tuner.measure.measurer import Measurer
from mmsbgen.tuner.measure.timing import Patience
from mmsbgen.tuner.measure.trial_process import TrialBench
from mmsbgen.tuner.run.tune import tune

BLOCK = 16
HASTY = Patience(repetitions=3, enough_s=0.0)


class Doubled:
    """A device on which ``y`` of the kernel ``each`` can be set as a launch would leave it."""

    def __init__(self, family: str, n: int) -> None:
        self.device, spec = FakeDevice(), resolve_family(family).kernel("each")
        problem = resolve_family(family).problem(n=n)
        self.workload: Workload = spec.workload(problem, 0)
        self.bound: BoundKernel = build(self.device, spec, problem, {"fault": "none", "block_size": BLOCK})
        self.placed = upload(self.device, self.workload)
        self.check = FullSizeCheck(self.device, spec, self.workload, self.placed)

    def leave(self, wrong: dict[int, float] | None = None, turn: int = 0) -> None:
        """Right results of a turn, but for the units of ``wrong``."""
        x = (self.workload.rotations[turn - 1] if turn else self.workload.arguments)["x"]
        y = 2 * x
        for unit, value in (wrong or {}).items():
            y[unit] = value
        self.device.write(self.placed["y"], y)


@pytest.fixture
def large(faulty: str) -> Doubled:
    return Doubled(faulty, 1 << 20)


def test_right_results_pass(large: Doubled) -> None:
    for turn in (0, 1, 2):
        large.leave(turn=turn)
        assert large.check.last(large.bound, turn)() is None
    large.leave()
    assert large.check.first(large.bound)() is None
    assert large.check.last(large.bound, 1)() is not None, "the results of another turn"


@pytest.mark.parametrize("unit", [0, BLOCK - 1, 1 << 19, (1 << 19) + BLOCK - 1, (1 << 20) - BLOCK, (1 << 20) - 1])
def test_the_first_the_middle_and_the_last_block_are_always_judged(large: Doubled, unit: int) -> None:
    large.leave({unit: 1.0})
    for said in (large.check.first(large.bound)(), large.check.last(large.bound, 0)()):
        assert said is not None
        assert said.startswith(f"result {unit} of {1 << 20}: 1 of 1 elements are off")


def test_one_result_that_was_left_out_is_found_anywhere(large: Doubled) -> None:
    large.leave({123_456: 0.0})
    assert large.check.first(large.bound)() == f"result 123456 of {1 << 20} was left out"


@pytest.mark.parametrize("order", [("right", "wrong", "right"), ("wrong", "right", "right")])
def test_one_wrong_result_among_many_is_found_by_what_others_have_there(large: Doubled, order: tuple[str, ...]) -> None:
    def launch(which: str) -> Callable[[], None]:
        return lambda: large.leave({123_456: 1.0} if which == "wrong" else None)

    found = large.check.together((large.bound, launch(which)) for which in order)
    for which, said in zip(order, found, strict=True):
        assert (said is None) == (which == "right")
        assert said is None or said.startswith(f"result 123456 of {1 << 20}: ")


def test_no_number_is_found_by_what_others_have_there(large: Doubled) -> None:
    launches = [large.leave, lambda: large.leave({123_456: np.nan})]
    first, second = large.check.together((large.bound, launch) for launch in launches)
    assert first is None
    assert "not finite" in str(second)


def test_what_was_evaluated_is_kept_until_all_is(faulty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However little time there is for further units, some are evaluated each time; all that is kept is compared."""
    monkeypatch.setattr(full_size, "_REFERENCE_S", 0.0)
    monkeypatch.setattr(full_size, "_JUDGED_S", 60.0)
    monkeypatch.setattr("faulty_family.REFERENCE_S", 0.0)
    small = Doubled(faulty, 100)
    small.leave()
    for _ in range(8):
        assert small.check.first(small.bound)() is None
    for unit in range(100):
        small.leave({unit: 1.0})
        assert f"result {unit} of 100" in str(small.check.first(small.bound)())


@pytest.fixture
def measured(processor: Device, faulty: str) -> Iterator[Callable[..., Any]]:
    """Measures a fault of a kernel at a million numbers."""
    with Measurer(processor.info.spec, faulty) as measurer:

        def measure(kernel: str, fault: str, n: int = 1 << 20, **load: Any) -> Any:
            measurer.load(kernel, resolve_family(faulty).problem(n=n), **load)
            return measurer.measure({"fault": fault, "block_size": 64}, patience=HASTY)

        yield measure


@pytest.mark.opencl
@pytest.mark.slow
def test_faults_at_full_size_are_wrong_results(measured: Callable[..., Any]) -> None:
    assert measured("each", "none").status == "ok"
    left_out = measured("each", "one left out")
    assert (left_out.status, left_out.timing) == ("wrong_result", None)
    assert left_out.message == f"at full size: result {(1 << 20) // 3} of {1 << 20} was left out"
    later = measured("each", "first launch only")
    assert later.status == "wrong_result"
    assert later.message.startswith("at full size: result 0 of ")


@pytest.mark.opencl
@pytest.mark.slow
def test_results_above_the_roof_of_their_cache_are_wrong(measured: Callable[..., Any]) -> None:
    """And those above a slower roof are not."""
    above = measured("lying", "none", roof_gbps=1.0)
    assert above.status == "wrong_result"
    assert "GB/s are above the roof of" in above.message
    assert measured("lying", "none").status == "ok", "no roof is known"
    for n in (1000, 1 << 16, 1 << 20):
        assert measured("each", "none", n, roof_gbps=1e-9).status == "ok", n


@pytest.mark.opencl
@pytest.mark.slow
def test_a_finalist_with_one_wrong_result_is_withdrawn(processor: Device, store: Store, faulty: str) -> None:
    report = tune(
        processor.info.spec,
        faulty,
        ["each"],
        resolve_family(faulty).problem(),
        store=store,
        strategy="exhaustive",
        fixed={"fault": ("one wrong", "none")},
        patience=HASTY,
        roof_bytes=32 << 20,
        compilers=0,
    )
    (kernel,) = report.kernels
    wrong = [trial for trial in kernel.trials if trial.config["fault"] == "one wrong"]
    assert [trial.status for trial in wrong] == ["wrong_result"] * 2
    assert all(f"result {(1 << 20) // 3} of" in trial.message for trial in wrong)
    assert kernel.best is not None
    assert kernel.best.config["fault"] == "none"
    assert {failure.config["fault"] for failure in store.quarantined()} == {"one wrong"}
    barred = {failure.config_digest for failure in store.quarantined()}
    assert barred == {trial.config_digest for trial in wrong}
    chosen = Index(store).select(kernel.key, valid=lambda config: True, default={})
    assert chosen.config["fault"] == "none"


@pytest.mark.opencl
@pytest.mark.slow
def test_inputs_are_restored_from_copies_on_a_gpu(
    processor: Device, faulty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "info", replace(processor.info, kind="gpu"))
    bench = TrialBench(processor, lambda phase: None)
    bench.load(faulty, "each", resolve_family(faulty).problem(n=1 << 16), 0, None)
    held = processor.allocated
    for fault, status in (("none", "ok"), ("one left out", "wrong_result"), ("none", "ok")):
        config = {"fault": fault, "block_size": 16}
        assert bench.measure(config, None, HASTY, 0, True).status == status
    assert processor.allocated == held, "the small check has left nothing"
    bench.unload()
    assert held - processor.allocated == 4 * (1 << 16) * (2 + 2 + 1), "x, y, two rotations of x, and y as it was"
