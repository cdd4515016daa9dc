"""Search spaces: every configuration is valid or refused with a reason, and every valid one renders."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mmsbgen.base.errors import ConfigError
from mmsbgen.families import family
from mmsbgen.families.mmsb.axes.row_space import places, shared_bytes
from mmsbgen.kernels.family import KernelSpec
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.render import render
from mmsbgen.kernels.space import Axis, Config, Constraint, Space, Traits

MMSB = family()
CUDA = Traits("cuda", "gpu", sub_group_size=32)
#: No sub-groups: work-items add up in local memory.
NVIDIA_OPENCL = Traits("opencl", "gpu")
POCL, INTEL = (
    Traits("opencl", "cpu", max_block_size=4096, local_memory=1 << 18, sub_group_size=16, platform=name)
    for name in ("Portable Computing Language", "Intel(R) OpenCL")
)

problems = st.builds(
    MMSB.problem,
    K=st.one_of(st.integers(1, 5000), st.sampled_from([1, 3, 7, 64, 100, 257, 1024, 2**20])),
    N=st.integers(2, 2**32 - 2),
    m=st.integers(1, 10**6),
    n=st.integers(1, 10**6),
    dtype=st.sampled_from(["float32", "float64"]),
    step=st.sampled_from(["split", "reflected", "published"]),
    theta_step=st.sampled_from(["reflected", "published", "gain"]),
    noise=st.sampled_from(["on", "off"]),
    partners=st.sampled_from(["uniform", "stratified", "block"]),
    products=st.sampled_from(["single", "half"]),
)
sizes = {"max_block_size": st.integers(1, 8192), "local_memory": st.integers(1024, 1 << 20)}
cpus = st.builds(Traits, st.just("opencl"), st.just("cpu"), sub_group_size=st.sampled_from([0, 4, 8, 16]), **sizes)
gpus = st.builds(Traits, st.just("opencl"), st.just("gpu"), sub_group_size=st.sampled_from([0, 8, 16, 32, 64]), **sizes)
cudas = st.builds(Traits, st.just("cuda"), st.just("gpu"), sub_group_size=st.just(32), **sizes)
devices = st.one_of(cpus, gpus, cudas)
#: Those for tensor cores have a test of their own.
EVERYWHERE = list(MMSB.written_in("opencl").values())
kernels = st.sampled_from(EVERYWHERE)


@st.composite
def variants(draw: st.DrawFn) -> tuple[KernelSpec, Problem, dict[str, Any], Traits]:
    """Any combination of axis values, valid or not, half of them next to the default."""
    spec, problem, traits = draw(kernels), draw(problems), draw(devices)
    config = {axis.name: draw(st.sampled_from(axis.values)) for axis in spec.space.axes}
    if draw(st.booleans()):
        kept = draw(st.sets(st.sampled_from(sorted(config))))
        config = dict(spec.default(problem, traits)) | {name: config[name] for name in kept}
    return spec, problem, config, traits


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(variants())
def test_every_configuration_is_refused_with_a_reason_or_renders(
    variant: tuple[KernelSpec, Problem, dict[str, Any], Traits],
) -> None:
    spec, problem, config, traits = variant
    reason = spec.space.refusal(config, problem, traits)
    if reason is None:
        text = render(spec, problem, config, traits).text
        assert f"void {spec.name}(" in text
        assert text.count("{") == text.count("}")
        assert spec.launch(problem, config, 1000, traits).block <= traits.max_block_size
        assert spec.launch(problem, config, 1000, traits).grid >= 1
    else:
        name, _, words = reason.partition(": ")
        assert name in {constraint.name for constraint in spec.space.constraints}
        assert len(words) > 10
        with pytest.raises(ConfigError, match="is refused"):
            spec.space.check(config, problem, traits)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(kernels, problems, devices)
@example(MMSB.kernel("block_links"), MMSB.problem(K=2**20, m=10**6), Traits("opencl", "cpu", max_block_size=1))
@example(MMSB.kernel("block_links"), MMSB.problem(K=131073, m=10**6), POCL)
def test_there_is_a_default_for_every_problem_and_device(spec: KernelSpec, problem: Problem, traits: Traits) -> None:
    config = spec.default(problem, traits)
    assert spec.space.refusal(config, problem, traits) is None
    assert spec.traffic(problem) > 0


@pytest.mark.parametrize("traits", [CUDA, NVIDIA_OPENCL], ids=["CUDA", "OpenCL"])
@pytest.mark.parametrize(("partners", "n"), [("uniform", 32), ("uniform", 1), ("shared", 64), ("shared-uniform", 64)])
@pytest.mark.parametrize("k", [1, 20, 100, 1024, 5000])
def test_defaults_on_gpus_use_their_lanes(k: int, partners: str, n: int, traits: Traits) -> None:
    for spec in EVERYWHERE:
        config = spec.default(MMSB.problem(K=k, partners=partners, n=n), traits)
        assert int(config["block_size"]) >= 32, spec.name
        if "placement" in config:
            assert config["team"] != "item", f"{spec.name}: each lane would read a row of its own"


def test_a_device_without_double_precision_is_told_so() -> None:
    old = Traits("opencl", "gpu", fp64=False)
    for spec in EVERYWHERE:
        with pytest.raises(ConfigError, match="no double precision"):
            spec.default(MMSB.problem(), old)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(problems, devices, st.data())
def test_configurations_of_a_space_are_those_that_nothing_refuses(
    problem: Problem, traits: Traits, data: st.DataObject
) -> None:
    spec = data.draw(st.sampled_from([MMSB.kernel(name) for name in ("sample_partners", "update_pi", "gather_rows")]))
    valid = spec.space.configs(problem, traits)
    assert spec.default(problem, traits) in valid
    for config in spec.space.product():
        assert (config in valid) == (spec.space.refusal(config, problem, traits) is None)


GEN: dict[str, Any] = {
    "placement": "RRR",
    "team": "block",
    "vector_width": 4,
    "block_size": 32,
    "rows_in_flight": 1,
    "prefetch": 0,
    "normalise": True,
    "reduction": "shuffle",
}


def test_thread_local_arrays_of_a_block_share_one_stack_on_cpus() -> None:
    """1024 work-items with two rows of 4 KB each overflow PoCL's stack of 8 MB."""
    spec, problem = MMSB.kernel("update_phi"), MMSB.problem(K=1024)
    config: dict[str, Any] = {
        "placement": "THREAD",
        "team": "item",
        "reduction": "none",
        "rows_in_flight": 1,
        "prefetch": 0,
    }
    config |= {"vector_width": 8, "normalise": True}
    cpu = Traits("opencl", "cpu", max_block_size=4096)
    assert spec.space.refusal(config | {"block_size": 256}, problem, cpu) is None
    refusal = spec.space.refusal(config | {"block_size": 1024}, problem, cpu)
    assert refusal == "private memory: 8388608 bytes of thread-local arrays; at most 2097152"


def test_what_keeps_intels_compiler_busy_is_refused_there_alone() -> None:
    """Vectors of work-items that draw rows of 16 bits, unrolled: seconds to 64 turns of rows, minutes from 256 on."""
    spec = MMSB.kernel("update_phi")
    config: dict[str, Any] = {"placement": "SSS", "team": "item", "reduction": "none", "vector_width": 1}
    config |= {"block_size": 4, "rows_in_flight": 4, "prefetch": 0, "normalise": True}
    asked: dict[str, Any] = {"K": 64, "n": 11, "storage": "bfloat16"}

    def refusal(traits: Traits, problem: dict[str, Any] | None = None, **axes: Any) -> str | None:
        values = config | axes
        return spec.space.refusal(values, spec.check_problem(MMSB.problem(**asked | (problem or {}))), traits)

    reason = refusal(INTEL)
    assert reason is not None
    assert reason.startswith("compiler: Intel's compiler takes minutes")
    assert "bfloat16 in 64 unrolled turns with rows_in_flight=4" in reason
    assert refusal(INTEL, rows_in_flight=1) is None
    assert refusal(INTEL, {"K": 16}) is None
    for problem in ({"storage": "float32"}, {"step": "reflected"}, {"noise": "off"}):
        assert refusal(INTEL, problem) is None
    for axes in ({"block_size": 1}, {"vector_width": 2}, {"placement": "THREAD"}):
        assert refusal(INTEL, **axes) is None
    for elsewhere in (POCL, Traits("opencl", "cpu", max_block_size=4096, local_memory=1 << 18)):
        assert refusal(elsewhere) is None


def test_sub_groups_that_keep_intels_compiler_busy_are_refused_there_alone() -> None:
    spec, problem = MMSB.kernel("theta_partial"), MMSB.problem(K=257, storage="float16")
    config: dict[str, Any] = {"team": "subgroup", "reduction": "shuffle", "block_size": 48, "vector_width": 16}
    config |= {"accumulators": "private", "pairs_in_flight": 4}
    reason = spec.space.refusal(config, problem, INTEL)
    assert reason is not None
    assert "Intel's compiler" in reason
    assert "float16 with vector_width=16 and pairs_in_flight=4" in reason
    assert spec.space.refusal(config | {"vector_width": 4}, problem, INTEL) is None
    assert spec.space.refusal(config, MMSB.problem(K=257), INTEL) is None
    assert spec.space.refusal(config, problem, POCL) is None


def test_local_sums_that_intels_compiler_dies_of_are_refused_there_alone() -> None:
    spec, problem = MMSB.kernel("block_links"), MMSB.problem(K=1024, step="reflected", partners="block")
    config = dict(spec.default(problem, INTEL)) | {"team": "block", "reduction": "local", "vector_width": 1}
    config |= {"placement": "SRR", "block_size": 1024, "rows_in_flight": 2}
    reason = spec.space.refusal(config, problem, INTEL)
    assert reason == "compiler: Intel's compiler can die of local sums over 1024 work-items here; at most 512"
    assert spec.space.refusal(config | {"block_size": 512}, problem, INTEL) is None
    assert spec.space.refusal(config | {"reduction": "shuffle"}, problem, INTEL) is None
    for elsewhere in (POCL, CUDA):
        assert spec.space.refusal(config, problem, elsewhere) is None


def test_tiles_of_short_rows_that_intels_compiler_makes_vectors_of() -> None:
    """It would allow a single work-item a block for thread-local arrays of so many bytes."""
    spec = MMSB.kernel("block_shared")
    config: dict[str, Any] = {"team": "item", "tile": 8, "partners_in_flight": 2, "panel": 1024, "block_size": 4}
    short, long = (spec.check_problem(MMSB.problem(K=k, n=1025, partners="block")) for k in (1, 257))
    for width in (8, 16):
        reason = spec.space.refusal(config | {"vector_width": width}, short, INTEL)
        assert reason == "tile: 565760 bytes of thread-local arrays a vector of work-items; at most 393216"
        assert spec.space.refusal(config | {"vector_width": width}, long, INTEL) is None
        assert spec.space.refusal(config | {"vector_width": width}, short, POCL) is None


@pytest.mark.parametrize("kernel", ["update_pi", "theta_partial", "perplexity_pairs", "perplexity_sum"])
def test_sums_need_local_memory(kernel: str) -> None:
    """A block of 1024 that adds up in local memory does not go into 4 KB."""
    spec, problem = MMSB.kernel(kernel), MMSB.problem(K=16384)
    large, small = (Traits("opencl", "gpu", local_memory=size, sub_group_size=32) for size in (1 << 16, 1 << 12))
    wanted = {"block_size": 1024, "team": "block", "reduction": "local", "vector_width": 1}
    config = dict(spec.default(problem, large)) | {
        name: wanted[name] for name in wanted if name in spec.default(problem, large)
    }
    if "accumulators" in config:
        config["accumulators"] = "global"
    assert spec.space.refusal(config, problem, large) is None
    assert "bytes of local memory a block, the device has 4096" in str(spec.space.refusal(config, problem, small))


@pytest.mark.parametrize(
    ("k", "changes", "reason"),
    [
        (8192, {}, None),  # 64 chunks a work-item
        (8208, {}, "65 chunks a work-item to unroll; at most 64"),
        (1024, {"team": "item", "reduction": "none"}, "256 chunks a work-item to unroll"),
        (1024, {"block_size": 48}, "shuffles need a team that is a whole number of sub-groups"),
        (1024, {"block_size": 48, "reduction": "local"}, None),
        (1024, {"block_size": 512}, "512 work-items for a row of 256 vectors: most would idle"),
        (1024, {"vector_width": 8}, "vectors of up to 4 elements, not 8"),
        (1024, {"placement": "NAIVE", "team": "subgroup"}, "NAIVE is one block a vertex"),
        (1024, {"placement": "SSS", "rows_in_flight": 4}, None),
        (4096, {"placement": "SSS", "rows_in_flight": 4}, "needs 98"),
        (1024, {"team": "subgroup", "block_size": 128, "placement": "SSS"}, "needs 49152"),
    ],
)
def test_constraints_of_update_phi(k: int, changes: dict[str, Any], reason: str | None) -> None:
    spec, traits = MMSB.kernel("update_phi"), Traits("cuda", "gpu", local_memory=48 * 1024 - 1, sub_group_size=32)
    refusal = spec.space.refusal(GEN | changes, MMSB.problem(K=k), traits)
    if reason is None:
        assert refusal is None
    else:
        assert refusal is not None
        assert reason in refusal


def test_more_rows_in_flight_than_partners() -> None:
    refusal = MMSB.kernel("update_phi").space.refusal(GEN | {"rows_in_flight": 4}, MMSB.problem(n=3), CUDA)
    assert refusal == "rows in flight: 4 rows in flight for 3 partners"


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.sampled_from(["SRR", "RSR", "RRS", "SSS", "SHARED"]), st.sampled_from([1, 2, 4]), st.integers(16, 2000))
def test_local_memory_is_what_the_source_declares(placement: str, rows: int, k: int) -> None:
    problem = MMSB.problem(K=k)
    config: Config = GEN | {"placement": placement, "rows_in_flight": rows, "block_size": 64}
    spec = MMSB.kernel("update_phi")
    if spec.space.refusal(config, problem, CUDA) is not None:
        return
    text = render(spec, problem, config, CUDA).text
    length = -(-k // 16) * 16 // 4
    assert "#define LOCAL __shared__" in text
    vectors = text.count("LOCAL rowv ") + text.count("LOCAL realv ")
    declared = 16 * length * vectors + 4 * 2 * rows * (2 if "team_sums[2]" in text else 0)
    assert declared == shared_bytes(problem, config, CUDA)
    assert vectors == sum(
        rows if name == "probs" else 1
        for name, place in zip(("probs", "grads", "pi"), places(config), strict=True)
        if place == "S"
    )


def test_values_of_another_type_are_not_taken() -> None:
    space = Space((Axis("size", (1, 2), ""), Axis("flag", (False, True), "")))
    problem = MMSB.problem()
    assert space.refusal({"size": 1, "flag": True}, problem, CUDA) is None
    assert space.refusal({"size": True, "flag": True}, problem, CUDA) == "size=True is not one of 1, 2"
    assert space.refusal({"size": 1, "flag": 1}, problem, CUDA) == "flag=1 is not one of False, True"
    assert "axes flag: unknown or missing" in str(space.refusal({"size": 1}, problem, CUDA))
    assert "axes more: unknown or missing" in str(space.refusal({"size": 1, "flag": True, "more": 1}, problem, CUDA))


def test_the_first_refusal_is_given_with_its_constraint() -> None:
    never = Constraint("never", lambda config, problem, traits: "because")
    space = Space((Axis("size", (1,), ""),), (never,))
    with pytest.raises(ConfigError, match="configuration size=1 is refused: never: because"):
        space.check({"size": 1}, MMSB.problem(), CUDA)
    assert space.configs(MMSB.problem(), CUDA) == []
    pairs = Space((Axis("size", (1, 2), ""), Axis("flag", (False, True), "")), (never,))
    assert list(pairs.judged(MMSB.problem(), CUDA)) == [({"size": 1, "flag": False}, "never: because", 4)]
    assert list(Space(()).judged(MMSB.problem(), CUDA)) == [({}, None, 1)]
    (only,) = pairs.judged(MMSB.problem(), CUDA, {"size": (2,)})
    assert only == ({"size": 2, "flag": False}, "never: because", 2)


@pytest.mark.parametrize("name", list(MMSB.kernels))
def test_all_judged_at_once_are_refused_for_the_same_reasons(name: str) -> None:
    spec = MMSB.kernel(name)
    problem = spec.check_problem(MMSB.problem(K=100, dtype="float64"))
    few = tuple(Axis(axis.name, axis.values[:: -(-len(axis.values) // 3)], "") for axis in spec.space.axes)
    space = Space(few, spec.space.constraints)
    for traits in (CUDA, Traits("opencl", "cpu", local_memory=1 << 15)):
        product = list(space.product())
        reasons = [space.refusal(config, problem, traits) for config in product]
        at = 0
        for config, reason, count in space.judged(problem, traits):
            assert config == product[at]
            assert reasons[at : at + count] == [reason] * count
            assert reason is not None or count == 1
            at += count
        assert at == len(product)


def test_a_constraint_may_read_more_where_a_value_asks_for_it() -> None:
    def check(config: Config, problem: Problem, traits: Traits) -> str | None:
        if not config["flag"]:
            return "a whole configuration" if dict(config)["size"] == 3 else None
        return f"size {config['size']}" if config.get("size") in (1, 2) and "more" not in config else None

    space = Space((Axis("size", (1, 2, 3), ""), Axis("flag", (False, True), "")), (Constraint("odd", check),))
    assert [reason for _, reason, _ in space.judged(MMSB.problem(), CUDA)] == [
        None,
        "odd: size 1",
        None,
        "odd: size 2",
        "odd: a whole configuration",
        None,
    ]
