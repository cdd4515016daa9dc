"""Kernels on OpenCL devices, held against the reference: a sample with every pair of values."""

from __future__ import annotations

import importlib.util
import queue
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mmsbgen.backends import Device, open_device
from mmsbgen.base.errors import InputError
from mmsbgen.families import family, names, resolve_family
from mmsbgen.kernels.build import traits_of
from mmsbgen.kernels.space import Traits
from tests.families.covering import Sample, Variant, covering, groups, pairs, row_of

MMSB = family()
OWN = [str(path) for path in sorted((Path(__file__).parents[1] / "data/own").glob("*.py"))]
#: What a sample may grow to, a kernel on average: a variant takes half a second of a core, nearly all of it compiling.
MOST_A_KERNEL = 20
PROCESSES = 2


@pytest.fixture(scope="module")
def worker_module() -> ModuleType:
    """The worker that scripts/gpu_check.py uses."""
    path = Path(__file__).parents[2] / "scripts" / "_variant_worker.py"
    spec = importlib.util.spec_from_file_location("_variant_worker", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def first_traits() -> Traits | None:
    """Those of Intel's runtime, which checks all pairs as it compiles four times as fast; None without it."""
    try:
        with open_device("intel") as device:
            return traits_of(device.info)
    except InputError:
        return None


@pytest.fixture
def reference(request: pytest.FixtureRequest) -> str:
    """The family whose kernels are checked."""
    return getattr(request, "param", "mmsb")


@pytest.fixture
def workers(opencl_device: Device, worker_module: ModuleType, reference: str) -> Iterator[list[Any]]:
    """Processes with the device open."""
    made = [worker_module.Worker(opencl_device.info.spec, family=reference) for _ in range(PROCESSES)]
    yield made
    for worker in made:
        worker.close()


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("reference", [*names(), *OWN], ids=lambda name: Path(name).stem, indirect=True)
def test_all_of_a_covering_sample_is_right(
    opencl_device: Device, workers: list[Any], reference: str, first_traits: Traits | None, tell: Callable[[str], None]
) -> None:
    """All of a covering sample is checked, the same in every run however long it takes.

    Intel's runtime runs every pair of values.  PoCL runs every value of each kernel, and pairs that Intel's refuses;
    scripts/gpu_check.py runs any number of others.

    Values are those of the axes, the problem's (K, types, steps, noise, partners and how many) and the kernel's name.
    Kernels that share what their axes set are covered together, and of block sizes five go with all other values;
    the other sizes come at least once in each such group (tests/families/covering.py).
    """
    traits, chosen = traits_of(opencl_device.info), resolve_family(reference)
    kernels = list(chosen.written_in(traits.dialect))
    pending: queue.SimpleQueue[Variant | None] = queue.SimpleQueue()
    samples: list[Sample] = []
    begin = time.monotonic()
    checked: list[Variant] = []
    wrong: list[str] = []

    def work(worker: Any) -> None:
        while (variant := pending.get()) is not None:
            result = worker.check(variant.spec.name, variant.problem, variant.config)
            checked.append(variant)
            if result.status != "ok":
                wrong.append(f"{variant}: {result.status}: {result.message}")

    with ThreadPoolExecutor(PROCESSES) as pool:
        futures = [pool.submit(work, worker) for worker in workers]
        try:  # a group is sampled while variants of those before are checked
            for group in groups(kernels):
                alike = first_traits in (None, traits)
                elsewhere = frozenset() if alike else covering(chosen, group, first_traits).covered
                samples.append(covering(chosen, group, traits, elsewhere=elsewhere))
                for variant in samples[-1].variants:
                    pending.put(variant)
        finally:
            for _ in workers:
                pending.put(None)
        for future in futures:
            future.result()
    variants = [variant for sample in samples for variant in sample.variants]
    assert len(kernels) <= len(variants) <= MOST_A_KERNEL * len(kernels) or reference in OWN
    name, seconds = f"{chosen.name} on {opencl_device.info.platform}", time.monotonic() - begin
    covered = {pair for variant in checked for pair in pairs(row_of(variant))}
    tell(f"{name}: {len(checked)} variants checked in {seconds:.0f} s, {len(covered)} pairs of values")
    assert not wrong, "\n".join(wrong)
    assert sorted(map(str, checked)) == sorted(map(str, variants))
    assert covered == set().union(*(sample.covered for sample in samples))


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
