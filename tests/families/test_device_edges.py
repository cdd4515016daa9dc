"""Edge cases on OpenCL devices: smallest sizes, odd graphs, sizes beyond 32 bits, and the same bits every time."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from mmsbgen.backends import Device
from mmsbgen.families import family
from mmsbgen.families.mmsb.axes.small_spaces import edge_set_arguments
from mmsbgen.families.mmsb.numbers.partner_rule import PartnerRule
from mmsbgen.families.mmsb.numbers.row_layout import DELTA, row_length
from mmsbgen.families.mmsb.numbers.storage import STORAGES, storage_named
from mmsbgen.families.mmsb.reference import equations
from mmsbgen.families.mmsb.stages import stage_workloads
from mmsbgen.graph.edgeset import EdgeSet
from mmsbgen.kernels.build import BoundKernel, build, check, release, traits_of, upload
from mmsbgen.kernels.problem import Problem

MMSB = family()
PHI = MMSB.kernel("update_phi")


def expect_right(device: Device, kernel: str, problem: Problem, **axes: Any) -> None:
    spec = MMSB.kernel(kernel)
    config = dict(spec.default(spec.check_problem(problem), traits_of(device.info))) | axes
    assert check(device, spec, problem, config) is None, dict(problem)


#: The covering sample has each kernel with K = 1 and with n = 1, other sizes as they are.
SMALLEST: list[dict[str, int]] = [
    {"m": 1},
    {"N": 2, "m": 2},
    {"N": 2, "m": 1, "n": 1, "pairs": 1},
    {"N": 9, "n": 8},
    {"N": 9, "n": 1000},
]


@pytest.mark.parametrize(
    ("kernel", "partners"),
    [
        (name, partners)
        for name, spec in MMSB.written_in("opencl").items()
        for partners in (("uniform", "stratified", "block") if "partners" in spec.parameters else ("uniform",))
    ],
)
def test_smallest_sizes(opencl_device: Device, kernel: str, partners: str) -> None:
    for sizes in SMALLEST:
        expect_right(opencl_device, kernel, MMSB.problem(**({"K": 20} | sizes), partners=partners))


def drawn_partners(device: Device, links: Any, held: Any, n_total: int, rule: PartnerRule) -> Any:
    """Partners and weights of all vertices of a graph as the device draws them: ``[N, n]`` each."""
    spec = MMSB.kernel("sample_partners")
    problem = MMSB.problem(N=n_total, m=n_total, n=rule.n, partners=rule.name)
    offsets, neighbours = stage_workloads.adjacency(n_total, links)
    link_set, held_set = (
        edge_set_arguments(name, EdgeSet.build(pairs)) for name, pairs in (("link", links), ("held", held))
    )
    values = link_set | held_set
    values |= {
        "sizes": np.array([n_total], np.uint32),
        "stride": np.uint32(n_total),
        "vertices": np.arange(n_total, dtype=np.uint32),
        "neighbour_offsets": offsets,
        "neighbours": neighbours,
        "partners": np.zeros(n_total * rule.n, np.uint32),
        "weights": np.zeros(n_total * rule.n, np.float32),
        "n_vertices": np.uint32(n_total),
        "n_partners": np.uint32(rule.n),
        "n_link_partners": np.uint32(rule.n_link),
        "n_total": np.uint32(n_total),
        "seed": np.uint64(rule.seed),
        "iteration": np.uint32(rule.iteration),
    }
    bound = build(device, spec, problem, spec.default(problem, traits_of(device.info)))
    placed = {k: device.upload(v) if isinstance(v, np.ndarray) else v for k, v in values.items()}
    bound.launch(n_total, placed).wait()
    outputs = [device.download(placed[name]).reshape(n_total, rule.n) for name in ("partners", "weights")]
    release(placed)
    return outputs


@pytest.mark.parametrize("rule", [("uniform", 0), ("stratified", 2), ("stratified", 0)], ids=str)
@pytest.mark.parametrize("n", [5, 8])
def test_isolated_vertex_and_vertex_linked_to_all(opencl_device: Device, rule: tuple[str, int], n: int) -> None:
    """Vertex 0 is linked to all but the isolated vertex 8; with n = N - 1 all others come once."""
    n_total = 9
    links = np.array([(0, i) for i in range(1, 8)] + [(2, 3)])
    held = np.array([(1, 2)])
    asked = PartnerRule(rule[0], n, rule[1], seed=5, iteration=2)
    partners, weights = drawn_partners(opencl_device, links, held, n_total, asked)
    linked = {tuple(pair) for pair in links.tolist()}
    for vertex, other, weight in zip(np.repeat(range(n_total), n), partners.ravel(), weights.ravel(), strict=True):
        pair = (min(vertex, other), max(vertex, other))
        assert vertex != other
        if pair == (1, 2):
            assert weight == 0
        elif weight != 0:
            assert (weight > 0) == (pair in linked)
    assert np.all(weights[8] < 0)
    if n == n_total - 1:
        assert all(sorted(row.tolist()) == [i for i in range(n_total) if i != a] for a, row in enumerate(partners))
        assert set(np.unique(np.abs(weights))) == {0.0, 1.0}


# Bits ---------------------------------------------------------------------------------------------------------


def several_configs(device: Device, problem: Problem, count: int) -> list[dict[str, Any]]:
    """Configurations of update_phi that are far apart: of each placement and each team."""
    valid = [
        config
        for config in PHI.space.configs(problem, traits_of(device.info))
        # What is done with more rows is unrolled, and wide draws of sub-groups take 5 seconds of compiling; the
        # covering sample has both.
        if config["rows_in_flight"] <= 2 and config["vector_width"] <= (1 if config["team"] == "subgroup" else 4)
    ]
    generator = np.random.default_rng(1)
    groups = [
        [c for c in valid if (c["placement"], c["team"]) == kind]
        for kind in sorted({(c["placement"], c["team"]) for c in valid})
    ]
    chosen = itertools.islice(itertools.cycle(groups), count)
    return [group[generator.integers(len(group))] for group in chosen]


def phi_after_one_step(bound: BoundKernel) -> tuple[Any, Any]:
    """phi of the mini-batch and the raw rows after one step from the workload's state."""
    device, workload = bound.device, PHI.workload(bound.problem, 3)
    placed = upload(device, workload)
    bound.launch(workload.count, placed).wait()
    rows = device.download(placed["pi"])[workload.arguments["spares"]]
    sums = device.download(placed["row_sums"])[workload.arguments["spares"]]
    release(placed)
    phi = rows.astype(np.float64) * (sums.astype(np.float64)[:, None] if bound.config["normalise"] else 1.0)
    return phi, rows


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_same_configuration_same_bits(opencl_device: Device, dtype: str) -> None:
    """In double precision no draw of the split step flips either: configurations differ by rounding alone."""
    # 257: the last chunk of a row is a ragged one.
    problem = PHI.check_problem(MMSB.problem(K=257 if dtype == "float32" else 100, dtype=dtype))
    results = []
    for config in several_configs(opencl_device, problem, 8 if dtype == "float64" else 5):
        bound = build(opencl_device, PHI, problem, config)
        (phi, first), (_, second) = (phi_after_one_step(bound) for _ in range(2))
        assert first.tobytes() == second.tobytes(), config
        results.append(phi)
    if dtype == "float64":
        for other in results[1:]:
            assert np.allclose(other, results[0], rtol=1e-6, atol=1e-20)


# Beyond 32 bits -----------------------------------------------------------------------------------------------


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_states_of_more_than_two_to_the_31_elements(opencl_device: Device) -> None:
    """Rows behind element 2^31 are read and written: update_phi and gather_rows, few rows of the state touched.

    It has 8.6 GB in float32, and half of that in 16 bits where a buffer of so many bytes is too large.
    """
    k, m, n = 1024, 3, 5
    n_total = (1 << 31) // row_length(k) + 4000
    info = opencl_device.info
    sizes = {name: (n_total + m) * row_length(k) * storage_named(name).dtype.itemsize for name in STORAGES[:2]}
    free = _available_memory()
    name = next((name for name, size in sizes.items() if size <= info.max_allocation and size * 1.15 <= free), None)
    if name is None:
        least = min(sizes.values())
        pytest.skip(f"a buffer of {least} bytes does not fit: {info.max_allocation} allowed, {free} free")
    storage = storage_named(name)
    problem = MMSB.problem(K=k, N=n_total, m=m, n=n, noise="off", storage=name)
    generator = np.random.default_rng(0)
    with opencl_device.alloc((n_total + m, row_length(k)), storage.dtype) as pi:
        last = n_total + m - 200
        stored = storage.nearest(generator.dirichlet(np.full(k, 0.3), 200).astype(np.float32))
        rows = storage.values(stored)
        opencl_device.write(pi, stored, last)
        slots = np.arange(n_total, dtype=np.uint32)
        vertices = np.array([n_total - 20, n_total - 21, n_total - 22], np.uint32)
        partners = generator.integers(last, n_total, (m, n)).astype(np.uint32)
        weights = generator.uniform(1, 2, (m, n)).astype(np.float32) * np.float32([1, -1, 1, -1, -1])
        beta, sums = generator.uniform(0.1, 0.9, k).astype(np.float32), np.full(n_total + m, 2.0, np.float32)
        values: dict[str, Any] = {
            "row_sums": sums,
            "slots": slots,
            "spares": np.arange(n_total, n_total + m, dtype=np.uint32),
            "beta": beta,
            "vertices": vertices,
            "partners": partners,
            "weights": weights,
            "clip_counts": np.zeros(m, np.uint32),
        }
        placed = {name: opencl_device.upload(value) for name, value in values.items()} | {"pi": pi}
        scalars: dict[str, Any] = {
            "n_vertices": np.uint32(m),
            "first_vertex": np.uint32(0),
            "n_partners": np.uint32(n),
            "seed": np.uint64(1),
        }
        scalars |= {"iteration": np.uint32(0), "alpha": np.float32(1 / k), "delta": np.float32(DELTA)}
        scalars |= {"half_step": np.float32(0.01), "decay": np.float32(np.exp(-0.01))}
        scalars |= {"spread": np.float32(-np.expm1(-0.01))}
        bound = build(opencl_device, PHI, problem, PHI.default(problem, traits_of(info)))
        bound.launch(m, placed | scalars).wait()
        written = storage.values(opencl_device.download_range(pi, n_total, n_total + m)).astype(np.float64)
        new_sums = opencl_device.download(placed["row_sums"])[n_total:]
        for i, vertex in enumerate(vertices.tolist()):
            own = rows[vertex - last].astype(np.float64)
            theirs = rows[partners[i] - last].astype(np.float64)
            drift, _ = equations.drift(own, beta.astype(np.float64), theirs, weights[i].astype(np.float64))
            step = equations.Step("split", 0.01, 1 / k, noise=False)
            end = equations.end_row(own * 2, own, drift, drift * 0, vertex, step)
            assert np.allclose(written[i] * new_sums[i], end.phi, rtol=1e-4 + storage.step)
        gather = MMSB.kernel("gather_rows")
        out = {
            "rows": opencl_device.alloc((30, row_length(k)), np.float32),
            "sums": opencl_device.alloc(30, np.float32),
        }
        config = dict(gather.default(problem, traits_of(info))) | {"accumulate": False}
        bound = build(opencl_device, gather, problem, config)
        first = {"first": np.uint32(n_total - 60), "n_rows": np.uint32(30)}
        bound.launch(30 * row_length(k), placed | out | first).wait()
        copied = opencl_device.download(out["rows"])
        assert np.array_equal(copied, rows[n_total - 60 - last : n_total - 30 - last])
        release(out | {name: buffer for name, buffer in placed.items() if name != "pi"})


def _available_memory() -> int:
    """Bytes that processes may still take, by the kernel's and the control group's count."""
    with open("/proc/meminfo") as lines:
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    try:
        with open("/sys/fs/cgroup/memory.max") as limit, open("/sys/fs/cgroup/memory.current") as current:
            text = limit.read().strip()
            return min(free, int(text) - int(current.read())) if text != "max" else free
    except OSError:
        return free


@pytest.mark.parametrize("length", [64, 100, 257, 1024])
@pytest.mark.parametrize(
    ("kernel", "axes"),
    [
        ("block_shared", {"team": "item", "panel": 64, "partners_in_flight": 2}),
        ("update_phi", {"team": "item", "placement": "THREAD", "reduction": "none", "rows_in_flight": 8}),
        ("block_links", {"team": "item", "placement": "THREAD", "reduction": "none", "rows_in_flight": 8}),
    ],
    ids=["block_shared", "update_phi", "block_links"],
)
def test_private_memory_that_the_space_allows_is_there(
    opencl_device: Device, kernel: str, axes: dict[str, Any], length: int
) -> None:
    """Of scalar work-items of float64, whose arrays Intel's runtime multiplies by 17, the largest tile allowed."""
    spec, traits = MMSB.kernel(kernel), traits_of(opencl_device.info)
    problem = MMSB.problem(K=length, N=3000, m=64, n=64, dtype="float64")
    config = {
        "vector_width": 1,
        "block_size": 2,
        "prefetch": 0,
        "normalise": True,
        "groups": 64,
        "counts": "global",
        "lookahead": True,
    } | axes
    tiles = [{"tile": tile} for tile in (16, 8, 4, 2, 1)] if kernel == "block_shared" else [{}]
    names = [axis.name for axis in spec.space.axes]
    candidates = [{name: value for name, value in (config | tile).items() if name in names} for tile in tiles]
    allowed = [config for config in candidates if spec.space.refusal(config, problem, traits) is None]
    bound = build(opencl_device, spec, problem, allowed[0])
    assert bound.resources()["max_block_size"] >= 2


def test_sums_of_sparse_rows_do_not_depend_on_the_order_of_entries(opencl_device: Device) -> None:
    """Of vertices without links, whose flow is zero: what is kept is summed by rank, however candidates are listed."""
    spec, problem = MMSB.kernel("sparse_rows"), MMSB.problem(K=100, N=64, entries=16)
    traits, n, found = traits_of(opencl_device.info), 64, []
    config = spec.default(problem, traits) | ({"team": "subgroup", "block_size": 64} if traits.sub_group_size else {})
    workload = spec.workload(problem, 1)
    given = workload.arguments
    given |= {
        "neighbour_offsets": np.zeros_like(given["neighbour_offsets"]),
        "beta": np.full_like(given["beta"], DELTA),
    }
    bound = build(opencl_device, spec, problem, config)
    for order in (np.arange(16), np.random.default_rng(1).permutation(16)):
        full = given["communities"][:, -1] != 2**32 - 1
        rows = {name: np.where(full[:, None], given[name][:, order], given[name]) for name in ("communities", "values")}
        placed = {k: opencl_device.upload(v) if isinstance(v, np.ndarray) else v for k, v in (given | rows).items()}
        bound.launch(n, placed).wait()
        found.append([opencl_device.download(placed[name]) for name in ("row_sums", "new_values")])
        release(placed)
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
