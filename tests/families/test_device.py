"""Kernels on OpenCL devices, held against the reference: a pairwise-covering sample of all variants."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mmsbgen.backends import Device
from mmsbgen.build import traits_of
from mmsbgen.families import family

MMSB = family()
#: Variants beyond those that cover the pairs of axes; what one platform may take altogether, shared by weight.
LIMIT = 24
SECONDS = 90.0
#: What a slow machine gets beyond that, for a quarter of the sample.
MOST_SECONDS = 240.0
PROCESSES = 2


@pytest.fixture(scope="module")
def worker_module() -> ModuleType:
    """The worker that scripts/check_variants.py uses."""
    path = Path(__file__).parents[2] / "scripts" / "_variant_worker.py"
    spec = importlib.util.spec_from_file_location("_variant_worker", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def workers(opencl_device: Device, worker_module: ModuleType) -> Iterator[list[Any]]:
    """Processes with the device open."""
    made = [worker_module.Worker(opencl_device.info.spec) for _ in range(PROCESSES)]
    yield made
    for worker in made:
        worker.close()


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_pair_of_axis_values(
    opencl_device: Device,
    workers: list[Any],
    covering_sample: Callable[..., list[Any]],
    tell: Callable[[str], None],
) -> None:
    """Kernels take turns, so that what a slow machine has no time for is missing from all of them alike."""
    traits = traits_of(opencl_device.info)
    samples = {
        name: covering_sample(MMSB, spec, traits, LIMIT) for name, spec in MMSB.written_in(traits.dialect).items()
    }
    order = sorted(
        (i / len(sample), name, variant) for name, sample in samples.items() for i, variant in enumerate(sample)
    )
    pending = iter([variant for _, _, variant in order])
    begin, enough = time.monotonic(), len(order) // 4
    wrong: list[str] = []
    checked = 0

    def going_on() -> bool:
        return time.monotonic() - begin < (SECONDS if checked >= enough else MOST_SECONDS)

    def work(worker: Any) -> None:
        nonlocal checked
        while going_on() and (variant := next(pending, None)) is not None:
            result = worker.check(variant.spec.name, variant.problem, variant.config)
            checked += 1
            if result.status != "ok":
                wrong.append(f"{variant}: {result.status}: {result.message}")

    with ThreadPoolExecutor(PROCESSES) as pool:
        for future in [pool.submit(work, worker) for worker in workers]:
            future.result()
    tell(f"{opencl_device.info.platform}: {checked} of {len(order)} variants of a covering sample checked")
    assert not wrong, "\n".join(wrong)
    assert checked >= enough, "too slow a machine for a sample worth its name"


@pytest.mark.parametrize(("team", "reduction", "length"), [("item", "none", 16), ("block", "local", 16384)])
@pytest.mark.parametrize("kernel", ["update_phi", "block_links", "star_rows"])
def test_largest_block_of_draws_that_the_space_allows_runs(
    opencl_device: Device, workers: list[Any], kernel: str, team: str, reduction: str, length: int
) -> None:
    """PoCL keeps what draws take of all work-items on one stack: 10 MB for 1024 with vectors of 16 doubles."""
    spec, traits = MMSB.kernel(kernel), traits_of(opencl_device.info)
    asked: dict[str, Any] = {"K": length, "N": 3000, "m": 64, "n": 8, "dtype": "float64", "step": "split"}
    problem = spec.check_problem(MMSB.problem(**asked))
    axes = {axis.name: axis.values for axis in spec.space.axes}
    fixed = {"placement": "RRR", "team": team, "reduction": reduction, "vector_width": 16, "rows_in_flight": 1}
    config = dict(spec.default(problem, traits)) | fixed
    if "prefetch" in axes:
        config["prefetch"] = 0
    configs = [config | {"block_size": size} for size in sorted(axes["block_size"], reverse=True)]
    allowed = [config for config in configs if spec.space.refusal(config, problem, traits) is None]
    assert allowed[0]["block_size"] < 1024
    result = workers[0].check(kernel, asked, allowed[0])
    assert result.status == "ok", result.message
