"""CUDA variants compile on machines without a GPU; what they use is reported."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mmsbgen.backends.nvidia.cuda_compile import CudaCompiler, KernelResources, compile_cuda, find_compiler
from mmsbgen.backends.nvidia.nvrtc import Nvrtc
from mmsbgen.base.errors import CompileError, ConfigError, MissingDependencyError
from mmsbgen.families import family, resolve_family
from mmsbgen.families.mmsb.axes.row_space import shared_bytes
from mmsbgen.families.mmsb.stars.star_loop import STAGES, fitted, star_loop
from mmsbgen.kernels.render import render
from mmsbgen.kernels.space import Traits
from tests.devices import HASTY
from tests.families.covering import FACTORS, Item, claimed, covering, groups

MMSB = family()
TRAITS = Traits("cuda", "gpu", local_memory=48 * 1024, sub_group_size=32, launch_memory=227 * 1024)
#: Those of Intel's runtime, on which every pair of values that it takes is compiled and run.
CPU = Traits("opencl", "cpu", max_block_size=8192, local_memory=1 << 18, sub_group_size=16, platform="Intel(R) OpenCL")
#: The share of all that is compiled for sm_80 too, and for sm_90 as it is for runs.
ALSO_OTHERWISE = 9
_UNUSED = "was declared but never referenced"


@pytest.fixture(scope="module")
def compiler() -> Iterator[CudaCompiler]:
    """NVRTC, which compiles within the process, or nvcc."""
    for name in ("nvrtc", "nvcc"):
        try:
            yield find_compiler(name)  # type: ignore[arg-type]
        except MissingDependencyError:
            continue
        return
    pytest.skip("neither NVRTC nor nvcc is here")


def _claimed(a: Item, b: Item) -> bool:
    """Those of the samples that run, but of a block size and a value of the problem: a constant in the source."""
    names = {a[0], b[0]}
    return claimed(a, b) and ("block_size" not in names or not names & set(FACTORS))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vector_add", "convolution", "matmul"])
def test_sources_of_users_compile(name: str, compiler: CudaCompiler) -> None:
    """The entry point has the source's own name, and an error has the line of the user's file."""
    found = resolve_family(str(Path(__file__).parents[1] / f"data/own/{name}.py"))
    spec, problem = found.kernel(name), found.problem()
    text = render(spec, problem, spec.default(problem, TRAITS), TRAITS).text
    assert compile_cuda(text, "sm_90", compiler=compiler).resources.keys() == {name}
    lines = (Path(__file__).parents[1] / f"data/own/{name}.cu").read_text().splitlines()
    at = next(number for number, line in enumerate(lines, 1) if "__global__" in line)
    with pytest.raises(CompileError, match=rf"{name}\.cu\({at}\): error"):
        compile_cuda(text.replace("__global__ void", "__global__ viod"), "sm_90", compiler=compiler)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kernels", groups(MMSB.kernels), ids=" ".join)
def test_a_covering_sample_compiles(
    kernels: tuple[str, ...], compiler: CudaCompiler, tell: Callable[[str], None]
) -> None:
    """Every value of each kernel, and every pair that OpenCL does not take, for sm_90, and some for sm_80; no warning.

    Kernels that share what their axes set are covered together, as in the samples that run.  Of unused helpers
    compilers may warn.  NVRTC compiles to its own assembly only, which takes a third of the time, where all assembly of
    ours was seen before with numbers of these types: what comes after refuses no more than that, and too much shared
    memory, which constraints count.
    """
    in_opencl = [name for name in kernels if name in MMSB.written_in("opencl")]
    sample = covering(MMSB, kernels, TRAITS, _claimed, covering(MMSB, in_opencl, CPU).covered).variants
    tasks = [(variant, "sm_90", HASTY) for variant in sample]
    tasks += [(variant, "sm_80", HASTY) for variant in sample[::ALSO_OTHERWISE]]
    tasks += [(variant, "sm_90", ()) for variant in sample[::ALSO_OTHERWISE]]
    seen: set[tuple[Any, ...]] = set()

    def build(task: tuple[Any, str, tuple[str, ...]]) -> tuple[KernelResources | None, str]:
        """The resources, None where there is no machine code, and what is wrong."""
        variant, arch, options = task
        source, resources = render(variant.spec, variant.problem, variant.config, TRAITS).text, None
        types = variant.spec.name, variant.problem.get("dtype"), variant.problem.get("storage")
        assembly = {(statement, *types) for statement in re.findall(r"\basm\b.*?\);", source, re.DOTALL)}
        assert bool(assembly) == ("asm" in source)
        new = assembly - seen
        seen.update(new)
        try:
            if isinstance(compiler, Nvrtc) and (arch, options) == ("sm_90", HASTY) and not new:
                _, log = compiler.compile(source, ["--gpu-architecture=compute_90", "--std=c++17", *HASTY])
            else:
                compiled = compile_cuda(source, arch, options, compiler=compiler)
                resources, log = compiled.resources[variant.spec.name], compiled.log
        except CompileError as error:
            return None, f"{variant} for {arch}: {error}"
        warnings = [line for line in log.splitlines() if ": warning" in line and _UNUSED not in line]
        return resources, f"{variant} for {arch}: {warnings}" if warnings else ""

    with ThreadPoolExecutor(2) as pool:
        built = list(pool.map(build, tasks))
    wrong = [said for _, said in built if said]
    optimised = [found for (found, _), (*_, options) in zip(built, tasks, strict=True) if found and not options]
    spilling = sum(r.spill_stores > 0 for r in optimised)
    most, shared = (max((getattr(r, name) for r in optimised), default=0) for name in ("registers", "shared_bytes"))
    tell(
        f"{' '.join(kernels)}: {len(built) - len(wrong)} of {len(tasks)} compile; of {len(optimised)} optimised ones "
        f"{spilling} spill, up to {most} registers a thread, {shared} bytes shared a block"
    )
    assert not wrong, "\n\n".join(wrong[:5])


@pytest.mark.parametrize("placement", ["RRR", "RSR", "SRS", "SSS", "SHARED", "NAIVE"])
def test_shared_memory_is_what_the_constraint_counts(placement: str, compiler: CudaCompiler) -> None:
    problem = MMSB.problem(K=1000)
    config = {
        "placement": placement,
        "team": "block",
        "vector_width": 4,
        "block_size": 64,
        "rows_in_flight": 2,
        "prefetch": 0,
        "normalise": True,
        "reduction": "shuffle",
    }
    source = render(MMSB.kernel("update_phi"), problem, config, TRAITS)
    used = compile_cuda(source.text, compiler=compiler).resources["update_phi"]
    assert used.shared_bytes == shared_bytes(problem, config, TRAITS)
    assert used.registers <= 255
    # NAIVE has its rows in thread-local memory by definition; a word more or less of it is the compiler's choice.
    assert placement == "NAIVE" or used.spill_stores == 0


LOOPS = [(k, step, "float32") for step in ("split", "reflected") for k in (5, 64, 1024)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("communities", "step", "storage"), [*LOOPS, (64, "split", "bfloat16"), (5, "split", "float16")]
)
def test_the_loop_over_iterations_compiles(communities: int, step: str, storage: str, compiler: CudaCompiler) -> None:
    """All stages in one kernel, each in a namespace of its own, with one block size; a few words spill around calls."""
    problem = MMSB.problem(K=communities, step=step, storage=storage)
    defaults = {name: MMSB.kernel(name).default(problem, TRAITS) for name in STAGES}
    configs = fitted(MMSB.kernels, problem, defaults, TRAITS)
    found = star_loop(MMSB.kernels, problem, configs, TRAITS)
    assert found.block_size == defaults["update_phi"]["block_size"]
    used = compile_cuda(found.source.text, compiler=compiler).resources["star_loop"]
    assert used.spill_stores <= 64
    names = [argument.name for argument in found.arguments]
    assert len(names) == len(set(names))


def test_stages_of_different_block_sizes_are_refused() -> None:
    problem = MMSB.problem(K=64)
    configs = {name: dict(MMSB.kernel(name).default(problem, TRAITS)) for name in STAGES}
    configs["exchange_slots"]["block_size"] = 1024
    with pytest.raises(ConfigError, match="one block size"):
        star_loop(MMSB.kernels, problem, configs, TRAITS)
