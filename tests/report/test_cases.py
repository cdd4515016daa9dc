"""Cases: what pictures are drawn from."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from mmsbgen.db.records.tuning_records import PROGRAM, KernelRecord, ProblemRecord, TrialRecord
from mmsbgen.families import family
from mmsbgen.report.tuning.cases import cases_of, device_label, problem_texts
from tests.records import GPU, PHI, trial


def test_a_case_has_its_best_default_and_worst() -> None:
    trials = [trial(2e-4), trial(1e-4, block_size=64), trial(9e-4, vector_width=1, placement="SSS")]
    (case,) = cases_of(trials)
    assert (case.best_s, case.default_s, case.worst_s) == (1e-4, 2e-4, 9e-4)
    assert case.fastest_by("placement", "block_size") == {("RSS", 128): 2e-4, ("RSS", 64): 1e-4, ("SSS", 128): 9e-4}
    assert case.fastest_by("no such axis") == {}
    moved = PHI.traffic(family().problem(K=1024))
    assert case.roof_s == pytest.approx(moved / 4e12)
    assert case.best.roof_fraction == pytest.approx(case.roof_s / 1e-4)


def test_a_case_counts_the_last_word_on_a_finalist() -> None:
    first = trial(1e-4)
    (case,) = cases_of([first, replace(first, round=1, times=(3e-4,)), trial(2e-4, block_size=64)])
    assert case.default_s == 3e-4
    assert len(case.times) == 2


def test_the_newest_state_of_a_template_counts() -> None:
    old, new = trial(1e-5, digest="old", minute=0), trial(2e-4, digest="new", minute=1)
    (case,) = cases_of([new, old])
    assert case.best_s == 2e-4


def test_the_newest_program_of_each_configuration_counts() -> None:
    def of(program: str, seconds: float, minute: int, **axes: int) -> TrialRecord:
        return replace(trial(seconds, digest=PROGRAM, minute=minute, **axes), extra={"program": program})

    old, new = of("old", 1e-5, 0), replace(of("new", 2e-4, 1), run=uuid.uuid4().hex)
    only = of("another", 3e-4, 0, block_size=64)
    (case,) = cases_of([new, replace(old, round=1), old, only])
    assert (case.best_s, case.worst_s) == (2e-4, 3e-4)
    assert case.trials == [new, only]


def test_a_default_that_is_another_by_now() -> None:
    (case,) = cases_of([trial(3e-4, minute=0, block_size=64), trial(1e-4, minute=1, block_size=256)])
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
    ours, foreign = trial(1e-4), trial(2e-4)
    kernel, problem = KernelRecord("other", "saxpy", "x"), ProblemRecord("other", {"n": 7})
    foreign = replace(foreign, key=replace(foreign.key, kernel=kernel, problem=problem), config={"block": 32})
    found = cases_of([ours, foreign, replace(foreign, config={"block": 64}, times=(1e-4,))])
    assert {(case.kernel.name, len(case.times)) for case in found} == {("update_phi", 1), ("saxpy", 2)}
    (other,) = (case for case in found if case.kernel.name == "saxpy")
    assert (other.spec, other.variant, other.size, other.default_s) == (None, "", 0, 2e-4)


def test_a_problem_of_another_version_has_the_default_of_its_first_run() -> None:
    old = trial(1e-4)
    params = {**old.key.problem.params, "no longer a parameter": 1}
    (case,) = cases_of([replace(old, key=replace(old.key, problem=ProblemRecord("mmsb", params)))])
    assert case.default_s == 1e-4


def test_problems_are_told_by_what_they_differ_in() -> None:
    assert problem_texts([{"K": 1, "m": 2}, {"K": 3, "m": 2, "storage": "float16"}]) == ["K=1", "K=3 storage=float16"]
    assert problem_texts([{"K": 1, "m": 2}]) == ["K=1 m=2"]
