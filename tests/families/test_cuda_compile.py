"""CUDA variants compile on machines without a GPU; what they use is reported."""

from __future__ import annotations

import random
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mmsbgen.backends.nvidia.cuda_compile import CudaCompiler, KernelResources, compile_cuda, find_compiler
from mmsbgen.base.errors import CompileError, ConfigError, MissingDependencyError
from mmsbgen.families import family
from mmsbgen.families.mmsb.axes.row_space import shared_bytes
from mmsbgen.families.mmsb.stars.star_loop import STAGES, fitted, star_loop
from mmsbgen.kernels.family import KernelSpec
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.render import overlapping, render
from mmsbgen.kernels.space import Config, Traits
from tests.families.covering import FACTORS, Item, claimed, covering, groups

MMSB = family()
TRAITS = Traits("cuda", "gpu", local_memory=48 * 1024, sub_group_size=32, launch_memory=227 * 1024)
#: The share of all that is compiled for sm_80 too.
ALSO_OLDER = 18
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
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kernels", groups(MMSB.kernels), ids=" ".join)
def test_a_covering_sample_compiles(
    kernels: tuple[str, ...], compiler: CudaCompiler, tell: Callable[[str], None]
) -> None:
    """Every pair of values that is claimed, for sm_90, and some for sm_80; without a warning.

    Kernels that share what their axes set are covered together, as in the samples that run.  Of unused helpers
    compilers may warn.
    """
    sample = covering(MMSB, kernels, TRAITS, _claimed).variants
    tasks = [(variant, "sm_90") for variant in sample] + [(variant, "sm_80") for variant in sample[::ALSO_OLDER]]

    def build(task: tuple[Any, str]) -> tuple[str, KernelResources | None, str]:
        variant, arch = task
        source = render(variant.spec, variant.problem, variant.config, TRAITS)
        try:
            compiled = compile_cuda(source.text, arch, compiler=compiler)
        except CompileError as error:
            return f"{variant} for {arch}", None, str(error)
        warnings = [line for line in compiled.log.splitlines() if ": warning" in line and _UNUSED not in line]
        return f"{variant} for {arch}", compiled.resources[variant.spec.name], "\n".join(warnings)

    with ThreadPoolExecutor(2) as pool:
        built = list(pool.map(build, tasks))
    wrong = [f"{name}: {log}" for name, used, log in built if used is None or log]
    used = [resources for _, resources, _ in built if resources is not None]
    spilling = sum(r.spill_stores > 0 for r in used)
    most, shared = (max((getattr(r, name) for r in used), default=0) for name in ("registers", "shared_bytes"))
    tell(
        f"{' '.join(kernels)}: {len(used)} of {len(tasks)} compile; up to {most} registers a thread, "
        f"{shared} bytes shared a block; {spilling} spill"
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


def _ptx(text: str, folder: Path) -> str:
    try:
        nvcc = find_compiler("nvcc").path  # type: ignore[attr-defined]
    except MissingDependencyError as error:
        pytest.skip(str(error))
    (folder / "kernel.cu").write_text(text)
    command = [nvcc, "--ptx", "--gpu-architecture=sm_90a", "--std=c++17", "--output-file", "ptx", "kernel.cu"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return (folder / "ptx").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    "kernel", ["update_phi", "sample_partners", "block_factors", "block_links", "exchange_slots", "theta_partial"]
)
def test_an_overlapping_kernel_reads_nothing_before_it_waits(kernel: str, tmp_path: Path) -> None:
    """No access to arrays comes before the wait in PTX, and none goes by the cache that sees no writes of others."""
    spec, problem = MMSB.kernel(kernel), MMSB.problem()
    source = render(spec, problem, spec.default(problem, TRAITS), TRAITS)
    plain, ptx = _ptx(source.text, tmp_path), _ptx(overlapping(source).text, tmp_path)
    before, _, after = ptx[ptx.index(f".entry {kernel}(") :].partition("griddepcontrol.wait;")
    assert not re.search(r"\b(ld|st|atom|red|cp\.async)\.", re.sub(r"\bld\.param\.", "", before))
    assert re.search(r"\bst\.global\.", after)
    assert re.search(r"\bld\.global\.nc\.", plain)
    assert not re.search(r"\bld\.global\.nc\.", ptx)


def _accesses(ptx: str, kernel: str, names: Sequence[str]) -> dict[str, dict[str, Counter[str]]]:
    """Before and after the wait: kinds of access to global memory, and the arrays whose addresses they use.

    Addresses are followed from the parameters through 64-bit arithmetic, twice over the text because of loops.
    """
    of: dict[str, set[str]] = defaultdict(set)
    for _ in range(2):
        found: dict[str, dict[str, Counter[str]]] = {when: defaultdict(Counter) for when in ("before", "after")}
        when = "before"
        for line in ptx[ptx.index(f".entry {kernel}(") :].splitlines():
            if "griddepcontrol.wait" in line:
                when = "after"
            elif loaded := re.search(r"ld\.param\.\S+\s+(%\w+),\s*\[\w+param_(\d+)\]", line):
                of[loaded[1]].add(names[int(loaded[2])])
            elif access := re.search(r"\b(ld\.global|st\.global|cp\.async\.c|atom|red)\S*\s+(.*);", line):
                address = re.findall(r"\[(%\w+)", access[2])[-1 if access[1] == "cp.async.c" else 0]
                found[when][access[1]].update(of[address] or {"unknown"})
            elif made := re.search(r"^\s*(?:@!?%p\d+\s+)?(?!ld|mul|setp)[a-z]\S*\s+(%rd\d+),\s*(.*);", line):
                of[made[1]].update(*(of[source] for source in re.findall(r"%rd\d+", made[2])))
    return found


#: What kernels read before they wait; none of it is written by the launch before, but rows of pi other than one's own.
EARLY = {
    "star_factors": {"n_shared", "drawn", "vertices"},
    "star_scales": {"marked", "shared_weights"},
    "star_sums": {"spares", "n_shared", "shared_rows"},
    "star_rows": {"vertices", "slots", "spares", "row_sums", "pi", "beta"},
}


def _some(spec: KernelSpec, problem: Problem, traits: Traits) -> list[Config]:
    """The default, tiles of all widths by either instruction, a configuration of each placement."""
    seen: dict[Any, Config] = {}
    every = list(spec.space.configs(problem, traits))
    random.Random(spec.name).shuffle(every)
    for config in every:
        kind = [config.get(axis) for axis in ("instruction", "tile_columns", "placement")]
        seen.setdefault(str(kind), config)
    return [spec.default(problem, traits), *seen.values()]


@pytest.mark.slow
@pytest.mark.parametrize("partners", ["shared", "shared-uniform"])
@pytest.mark.parametrize("kernel", list(EARLY))
def test_a_kernel_that_begins_early_reads_what_it_may_and_writes_nothing_before_it_waits(
    kernel: str, partners: str, tmp_path: Path
) -> None:
    """In PTX, of several configurations; and no work-item ends, or goes another way, before the wait."""
    spec, hopper = MMSB.kernel(kernel), replace(TRAITS, warp_groups=True, launch_memory=227 * 1024)
    problem = spec.check_problem(MMSB.problem(K=100, n=256, partners=partners, products="half"))
    may = EARLY[kernel] | ({"slots"} if partners == "shared-uniform" else set())
    for config in _some(spec, problem, hopper):
        ptx = _ptx(overlapping(render(spec, problem, config, hopper)).text, tmp_path)
        found = _accesses(ptx, kernel, [argument.name for argument in spec.arguments])
        assert set(found["before"]) <= {"ld.global", "cp.async.c"}, config
        assert set().union(*found["before"].values()) <= may, config
        assert "unknown" not in set().union(*found["after"].values()), config
        assert found["after"]["st.global"], config
        before, _, after = ptx[ptx.index(f".entry {kernel}(") :].partition("griddepcontrol.wait;")
        assert not re.search(r"\b(ret|exit);", before), config
        assert "griddepcontrol.wait" not in after, config
        assert not re.search(r"\bld\.global\.nc\.", ptx), config
        labels = set(re.findall(r"\bbra(?:\.uni)?\s+(\$\w+);", before))
        assert all(f"{label}:" in before for label in labels), config
        if config.get("instruction") == "wgmma" or "instruction" not in config:
            assert found["before"], config
        if kernel == "star_rows":
            # Of pi the own row alone, no more than of the strengths; a spare row would be as much again.
            loads = found["before"]["ld.global"]
            assert loads["pi"] <= loads["beta"], config
