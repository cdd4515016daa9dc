"""Cases: what pictures are drawn from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mmsbgen.db.records import DeviceRecord, KernelRecord, Key, ProblemRecord, RunRecord, ToolchainRecord, TrialRecord
from mmsbgen.families import family
from mmsbgen.report.cases import cases_of, comparable, device_label, problem_texts
from mmsbgen.space import Traits

GPU = DeviceRecord(
    backend="cuda",
    platform="CUDA",
    vendor="NVIDIA",
    name="NVIDIA H200",
    architecture="sm_90",
    driver="580",
    kind="gpu",
    compute_units=132,
    memory_bytes=2**37,
    extra={"local_memory": 232448, "max_block_size": 1024, "sub_group_sizes": [32], "vector_width_float": 4},
)
RUN = RunRecord(strategy="default", host="here")
PHI = family().kernel("update_phi")


def _trial(seconds: float, *, k: int = 1024, digest: str = "a", minute: int = 0, **changes: Any) -> TrialRecord:
    device = changes.pop("device", GPU)
    step = changes.pop("step", "split")
    problem = family().problem(K=k, step=step)
    kernel, params = KernelRecord("mmsb", "update_phi", digest), ProblemRecord("mmsb", problem.only(PHI.parameters))
    traits = Traits("cuda", "gpu", sub_group_size=32, compute_units=132)
    config = {**PHI.default(problem, traits), **changes}
    return TrialRecord(
        run=RUN.uuid,
        key=Key(device, ToolchainRecord("nvcc", "13"), kernel, params),
        config=config,
        status="ok",
        times=(seconds,),
        bytes_moved=PHI.traffic(problem),
        roof_gbps=4000.0,
        created_at=f"2026-11-2{minute}T12:00:00Z",
    )


def test_a_case_has_its_best_default_and_worst() -> None:
    trials = [_trial(2e-4), _trial(1e-4, block_size=128), _trial(9e-4, vector_width=1, placement="SSS")]
    (case,) = cases_of(trials)
    assert (case.best_s, case.default_s, case.worst_s) == (1e-4, 2e-4, 9e-4)
    assert case.fastest_by("placement", "block_size") == {("RRR", 64): 2e-4, ("RRR", 128): 1e-4, ("SSS", 64): 9e-4}
    assert case.fastest_by("no such axis") == {}
    moved = PHI.traffic(family().problem(K=1024))
    assert case.roof_s == pytest.approx(moved / 4e12)
    assert case.roof_fraction == pytest.approx(case.roof_s / 1e-4)


def test_a_case_counts_the_last_word_on_a_finalist() -> None:
    first = _trial(1e-4)
    (case,) = cases_of([first, replace(first, round=1, times=(3e-4,)), _trial(2e-4, block_size=128)])
    assert case.default_s == 3e-4
    assert len(case.times) == 2


def test_the_newest_state_of_a_template_counts() -> None:
    old, new = _trial(1e-5, digest="old", minute=0), _trial(2e-4, digest="new", minute=1)
    (case,) = cases_of([new, old])
    assert case.best_s == 2e-4
    assert case.date == "2026-11-21"


def test_a_default_that_is_another_by_now() -> None:
    (case,) = cases_of([_trial(3e-4, minute=0, block_size=128), _trial(1e-4, minute=1, block_size=256)])
    assert case.default_s == 3e-4, "the run began with the default of its day"


@pytest.mark.parametrize(
    ("platform", "name", "label"),
    [
        ("Portable Computing Language", "pthread-skylake-avx512-AMD EPYC", "AMD EPYC, 2 cores (PoCL)"),
        (
            "Portable Computing Language",
            "cpu-haswell-Intel(R) Core(TM) i7-4790",
            "Intel(R) Core(TM) i7-4790, 2 cores (PoCL)",
        ),
        ("Intel(R) OpenCL", "AMD EPYC", "AMD EPYC, 2 cores (Intel OpenCL)"),
    ],
)
def test_devices_are_named_for_readers(platform: str, name: str, label: str) -> None:
    device = replace(GPU, backend="opencl", platform=platform, name=name, kind="cpu", compute_units=2)
    assert device_label(device) == label
    assert device_label(GPU) == "NVIDIA H200"


def test_cases_of_every_kernel_and_of_other_programs() -> None:
    ours, foreign = _trial(1e-4), _trial(2e-4)
    kernel, problem = KernelRecord("other", "saxpy", "x"), ProblemRecord("other", {"n": 7})
    foreign = replace(foreign, key=replace(foreign.key, kernel=kernel, problem=problem), config={"block": 32})
    found = cases_of([ours, foreign, replace(foreign, config={"block": 64}, times=(1e-4,))])
    assert {(case.kernel.name, len(case.times)) for case in found} == {("update_phi", 1), ("saxpy", 2)}
    (other,) = (case for case in found if case.kernel.name == "saxpy")
    assert (other.spec, other.variant, other.size, other.default_s) == (None, "", 0, 2e-4)
    assert [case.kernel.name for case in comparable(found)] == ["update_phi"], "nobody says how saxpy is drawn"


def test_a_problem_of_another_version_has_the_default_of_its_first_run() -> None:
    trial = _trial(1e-4)
    params = {**trial.key.problem.params, "no longer a parameter": 1}
    (case,) = cases_of([replace(trial, key=replace(trial.key, problem=ProblemRecord("mmsb", params)))])
    assert case.default_s == 1e-4


def test_problems_are_told_by_what_they_differ_in() -> None:
    assert problem_texts([{"K": 1, "m": 2}, {"K": 3, "m": 2, "storage": "float16"}]) == ["K=1", "K=3 storage=float16"]
    assert problem_texts([{"K": 1, "m": 2}]) == ["K=1 m=2"]
