"""Candidates that ruin the context of a CUDA device: each costs itself only, and the next finds a device that works."""

from __future__ import annotations

import re

import pytest

from mmsbgen.backends import Device
from mmsbgen.backends.nvidia.cuda_compile import compile_cuda, find_compiler
from mmsbgen.base.errors import MissingDependencyError
from mmsbgen.db.store.tuning_store import Store
from mmsbgen.families import resolve_family
from mmsbgen.kernels.build import compiler_options
from mmsbgen.kernels.render import render
from mmsbgen.kernels.space import Traits
from mmsbgen.tuner.measure import measurer as measurer_module
from mmsbgen.tuner.measure.measurer import Measurer, TrialLimits
from mmsbgen.tuner.run.tune import tune

LIMITS = TrialLimits(run_s=10.0)
SAID = {
    "illegal address": "illegal memory access",
    "misaligned address": "misaligned address",
    "assert": "assert",
    "trap": "launch failure|illegal instruction|trap",
    "endless": rf"not done after {LIMITS.run_s:g} s \(running\)",
}
"""What the row of each says, a pattern."""
WORKS = ("slow", "none")


@pytest.fixture
def faulty_cuda(faulty: str) -> str:
    """The reference of the family, importable here and in child processes as the one for OpenCL is."""
    return faulty.replace("faulty_family:FAULTY", "faulty_cuda_family:FAULTY_CUDA")


@pytest.mark.slow
def test_every_candidate_compiles(faulty_cuda: str) -> None:
    """Nothing that ruins a context is seen by the compiler, so what the device says of it is tested."""
    family, gpu = resolve_family(faulty_cuda), Traits("cuda", "gpu", sub_group_size=32)
    spec = family.kernel("twice")
    assert {*SAID, *WORKS} == set(spec.space.axes[0].values)
    try:
        compiler = find_compiler("nvcc")
    except MissingDependencyError:
        compiler = find_compiler()
    for fault in spec.space.axes[0].values:
        source = render(spec, family.problem(), {"fault": fault, "block_size": 64}, gpu)
        compiled = compile_cuda(source.text, "sm_90", compiler_options(gpu), compiler=compiler)
        assert "twice" in compiled.resources


@pytest.mark.cuda
def test_a_run_survives_ruined_contexts_and_finds_the_best(cuda_device: Device, store: Store, faulty_cuda: str) -> None:
    report = tune(
        cuda_device.info.spec,
        faulty_cuda,
        ["twice"],
        resolve_family(faulty_cuda).problem(),
        store=store,
        strategy="exhaustive",
        limits=LIMITS,
        fixed={"block_size": 64},
        roof_bytes=32 << 20,
    )
    assert report.status == "finished"
    (kernel,) = report.kernels
    stored = {str(trial.config["fault"]): trial for trial in store.trials(run=report.run) if trial.round == 0}
    assert stored.keys() == {*SAID, *WORKS}
    for fault, trial in stored.items():
        wanted = ("ok",) if fault in WORKS else ("timeout",) if fault == "endless" else ("launch_error", "crashed")
        assert trial.status in wanted, f"{fault}: {trial.status} {trial.message}"
    for fault, message in SAID.items():
        assert re.search(message, stored[fault].message), f"{fault}: {stored[fault].message}"
    assert kernel.best is not None
    assert kernel.best.config["fault"] == "none"
    assert kernel.best.round == 2


@pytest.mark.cuda
@pytest.mark.parametrize("fault", [fault for fault in SAID if fault != "endless"])
def test_a_child_with_a_ruined_context_is_replaced(
    cuda_device: Device, faulty_cuda: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    children: list[None] = []
    monkeypatch.setattr(measurer_module, "prepare", lambda: children.append(None))
    problem = resolve_family(faulty_cuda).problem(n=1 << 16)
    with Measurer(cuda_device.info.spec, faulty_cuda, LIMITS) as measurer:
        measurer.load("twice", problem)
        good = {"fault": "none", "block_size": 64}
        assert measurer.measure(good).status == "ok"
        assert measurer.measure({"fault": fault, "block_size": 64}).status in ("launch_error", "crashed")
        outcome = measurer.measure(good)
        assert (outcome.status, outcome.message) == ("ok", "")
        assert len(children) >= 2
    # The context of this process, which was open all the while, is as it was.
    with cuda_device.zeros(16, "float32") as buffer:
        assert not cuda_device.download(buffer).any()
