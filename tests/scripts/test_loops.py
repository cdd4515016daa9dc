"""Chains in two ways: what counts as agreement, what a GPU is given, and on one that its ways agree."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mmsbgen.backends.fake import FakeDevice, FakeKernel
from mmsbgen.backends.nvidia.cuda_compile import compile_cuda, find_compiler
from mmsbgen.base.errors import MissingDependencyError
from mmsbgen.families import family
from mmsbgen.kernels.build import traits_of
from mmsbgen.kernels.render import render
from tests.devices import H200, HASTY

KS = (1, 7, 64, 100, 1000, 1024, 2048)
PLAIN: dict[str, Any] = {"placement": "THREAD", "team": "item", "vector_width": 1, "block_size": 1}
PLAIN |= {"rows_in_flight": 1, "prefetch": 0, "normalise": True, "reduction": "none"}
OTHER: dict[str, Any] = {"placement": "NAIVE", "team": "block", "vector_width": 4, "block_size": 4}
OTHER |= {"rows_in_flight": 2, "prefetch": 0, "normalise": True, "reduction": "local"}


def module(name: str) -> ModuleType:
    return importlib.import_module(name)


@pytest.fixture(scope="module")
def compiler() -> Any:
    for name in ("nvrtc", "nvcc"):
        try:
            return find_compiler(name)  # type: ignore[arg-type]
        except MissingDependencyError:
            continue
    pytest.skip("neither NVRTC nor nvcc is here")


@pytest.mark.opencl
@pytest.mark.parametrize("k", [7, 1000])
@pytest.mark.parametrize("step", ["split", "reflected"])
@pytest.mark.parametrize(("dtype", "noise"), [("float64", True), ("float32", False)])
def test_rounding_lies_within_the_tolerance_and_another_seed_far_off(
    processor: Any, k: int, step: str, dtype: str, noise: bool
) -> None:
    chains = module("_chains")
    parts, tolerance = chains.small(), chains.TOLERANCES[dtype]

    def make(config: dict[str, Any], **others: Any) -> Callable[[], Any]:
        options = chains.star_options(k, step=step, dtype=dtype, noise=noise, **others)
        return partial(chains.chain, processor, parts, options, {"update_phi": config})

    found = chains.compared(make(PLAIN), make(OTHER), 70, tolerance)
    assert not found.same_bits
    assert found.wrong is None
    assert found.worst < 0.2
    assert chains.compared(make(PLAIN), make(PLAIN), 70, tolerance, launches=3) == (True, 0.0, 0.0)
    other = chains.compared(make(PLAIN), make(PLAIN, alpha=0.7), 70, tolerance)
    assert other.worst > 100
    assert "are off" in other.wrong


def test_what_is_no_number_is_off() -> None:
    chains = module("_chains")
    right, wrong = np.array([1.0, 2.0]), np.array([1.0, np.nan])
    assert chains.agreement((right,), (right,), chains.TOLERANCES["float64"]) == (True, 0.0, 0.0)
    assert chains.agreement((right,), (wrong,), chains.TOLERANCES["float64"]) == (False, np.inf, 0.5)


def test_every_chain_by_star_loop_compiles(compiler: Any) -> None:
    """The defaults of an H200 fit together at all K, in both types and steps."""
    loops, chains = module("_loops"), module("_chains")
    parts, device = chains.small(), FakeDevice(H200)
    options = list(loops.cases(KS))
    assert len(options) == len(KS) * len(loops.STEPS) * len(loops.TYPES)
    rendered = [chains.loop_configs(parts, one, device) for one in options]
    for configs, loop in rendered:
        assert {int(config["block_size"]) for config in configs.values()} == {loop.block_size}
    compile_cuda(rendered[-1][1].source.text, compiler=compiler)


@pytest.mark.slow
def test_the_sanitizer_runs_every_placement() -> None:
    cases = list(module("_sanitized").chosen(family(), traits_of(H200), 100))
    groups = {case.group for case in cases}
    assert groups == {"defaults", *(f"placements of {name}" for name in ("update_phi", "star_rows", "block_links"))}
    assert len([case for case in cases if case.group == "placements of block_links"]) == 12


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_packages_records_are_run_under_the_sanitizer_too(compiler: Any) -> None:
    """Those of a run by stars, by stars that share partners, and by blocks; none on a device that has no records."""
    sanitized, kernels = module("_sanitized"), family()
    cases = list(sanitized.recorded(kernels, H200, 1024))
    assert {case.spec.name for case in cases} >= {"update_phi", "star_sums", "star_rows", "block_sums", "block_links"}
    sums = next(case for case in cases if case.spec.name == "star_sums")
    assert sums.config != sums.spec.default(sums.problem, traits_of(H200))
    assert {case.problem["partners"] for case in cases if case.spec.name == "star_rows"} == {"shared", "shared-uniform"}
    for case in cases:
        source = render(case.spec, case.problem, case.config, traits_of(H200))
        compile_cuda(source.text, options=HASTY, compiler=compiler)
    processor = replace(H200, backend="opencl", kind="cpu", architecture="cpu-0", name="a processor", vendor="nobody")
    assert list(sanitized.recorded(kernels, processor, 1024)) == []


def test_the_sanitizers_chains_are_launched_as_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device that records: star_loop twice and of few blocks, then the same iterations by single launches."""
    monkeypatch.setattr(FakeKernel, "resident_blocks", lambda self, block: 132 * 8)
    sanitized, device = module("_sanitized"), FakeDevice(H200)
    found = []
    for group, what, run in sanitized.chains(device):
        device.launches.clear()
        assert run() is None
        found.append((group, what.split()[0], list(device.launches)))
    ((group, what, launches),) = found
    assert (group, what) == ("fused chain", "star_loop")
    loops = [launch for launch in launches if launch.kernel == "star_loop"]
    assert [launch.grid for launch in loops] == [(sanitized.BLOCKS,)] * 2
    assert sum(launch.kernel == "update_phi" for launch in launches) == sanitized.ITERATIONS


@pytest.mark.opencl
@pytest.mark.usefixtures("pocl_device")
def test_a_device_without_the_kernel_and_a_time_that_is_over_are_failures() -> None:
    loops = module("_loops")
    found = loops.check_loops("pocl", (7,), 100.0)
    assert found.asked == len(found.rows) == 4
    assert found.failed
    assert all("need CUDA" in row["wrong"] for row in found.rows)
    cut = loops.check_loops("pocl", (7,), 0.01)
    assert (cut.rows, cut.failed) == ([], True)
    assert cut.why.startswith("cut off after 0.01 s")


def test_a_device_that_does_not_open_is_told() -> None:
    found = module("_loops").check_loops("cuda:99", (7,), 100.0)
    assert found.failed
    assert "status 1" in found.why


@pytest.mark.cuda
def test_star_loop_agrees_on_a_gpu(cuda_device: Any) -> None:
    loops = module("_loops").check_loops(cuda_device.info.spec, (7, 1024), 240.0)
    assert not loops.failed, (loops.wrong, loops.why)


@pytest.mark.cuda
def test_the_chains_for_the_sanitizer_are_right_on_a_gpu(cuda_device: Any) -> None:
    found = {what: run() for _, what, run in module("_sanitized").chains(cuda_device)}
    assert len(found) == 1
    assert set(found.values()) == {None}
