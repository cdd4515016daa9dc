"""Kernels of graph programs: the same right result in every configuration, on every shape; CUDA C compiles; a tune."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmsbgen.backends import Device
from mmsbgen.backends.nvidia.cuda_compile import compile_cuda, find_compiler
from mmsbgen.db.selection.index import Index
from mmsbgen.db.store.tuning_store import Store, open_store
from mmsbgen.families import family
from mmsbgen.families.graph.generated import SHAPES, features, generated, workload
from mmsbgen.families.graph.inputs import state_of_core
from mmsbgen.families.graph.reference import cores
from mmsbgen.kernels.build import build, check, check_built, release, traits_of, upload
from mmsbgen.kernels.family import KernelSpec
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.render import render
from mmsbgen.kernels.runtime import look_up
from mmsbgen.kernels.space import Traits, describe
from mmsbgen.tuner.measure.timing import Patience
from mmsbgen.tuner.run.tune import tune
from tests.devices import HASTY
from tests.families.graph.shapes import arcs, shapes

GRAPH = family("graph")
WRITES = {
    "bfs": "level",
    "parents": "parent",
    "sssp": "dist",
    "widest": "width",
    "components": "label",
    "cores": "core",
    "triangles": "found",
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "tuning.sqlite3") as opened:
        yield opened


def sample(spec: KernelSpec, problem: Problem, traits: Traits) -> list[dict[str, Any]]:
    """The default, and every value of every axis next to it where that is valid; pairs are in the covering sample."""
    default = dict(spec.default(problem, traits))
    near = [default | {axis.name: value} for axis in spec.space.axes for value in axis.values]
    valid = [config for config in near if spec.space.refusal(config, problem, traits) is None]
    return list({describe(config): config for config in [default, *valid]}.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPH.kernels)
@pytest.mark.parametrize(("device", "each"), [("processor", True), ("pocl_device", False)], ids=["values", "pocl"])
def test_every_value_is_right_on_every_shape(
    name: str, device: str, each: bool, request: pytest.FixtureRequest
) -> None:
    """On PoCL the default; its covering sample, in families/test_device, has every value on generated graphs."""
    opened: Device = request.getfixturevalue(device)
    spec, problem = GRAPH.kernel(name), GRAPH.problem()
    graphs = {s: graph.both_ways if name == "cores" and graph.directed else graph for s, graph in shapes().items()}
    workloads = {shape: workload(name, graph, problem, 0) for shape, graph in graphs.items()}
    for config in sample(spec, problem, traits_of(opened.info))[: None if each else 1]:
        bound = build(opened, spec, problem, config)
        for shape, given in workloads.items():
            placed = upload(opened, given)
            bound.launch(given.count, placed).wait()
            got = {key: opened.download(placed[key]) for key in spec.written}
            release(placed)
            assert given.verify(got, config) is None, (shape, describe(config))


@pytest.mark.slow
def test_one_core_alone_however_rounds_are_made(opencl_device: Device) -> None:
    """With a frontier at the start: by launches of each kind, and by fused loops."""
    spec, problem = GRAPH.kernel("cores"), GRAPH.problem()
    launched = {"loop": "launches", "block_size": 8, "per_item": 1, "team": "item", "walk": 0, "frontier": "queue"}
    traits = traits_of(opencl_device.info)
    for change in ({}, {"frontier": "scan"}, {"frontier": "bins", "team": "merge"}, {"loop": "whole", "team": "grid"}):
        config = dict(spec.default(problem, traits)) | launched | change
        assert spec.space.refusal(config, problem, traits) is None
        bound = build(opencl_device, spec, problem, config)
        for shape, graph in shapes().items():
            both = graph.both_ways
            numbers = cores(both)
            k = int(numbers.max()) + (shape in ("bipartite", "clique"))
            if np.all(both.degrees >= k):
                continue  # which is seen without a kernel
            given = workload("cores", both, problem, 0)
            placed = upload(opencl_device, replace(given, arguments=given.arguments | state_of_core(both, k)))
            bound.launch(given.count, placed).wait()
            assert np.array_equal(opencl_device.download(placed["core"]) > 0, numbers >= k), (shape, config)
            release(placed)


@pytest.mark.smoke
@pytest.mark.parametrize("name", GRAPH.kernels)
def test_the_default_keeps_within_its_arrays(name: str, pocl_device: Device) -> None:
    for shape in SHAPES:
        problem = GRAPH.problem(shape=shape, dtype="float32")
        spec = GRAPH.kernel(name)
        assert check(pocl_device, spec, problem, spec.default(problem, traits_of(pocl_device.info))) is None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("weights", ["none", "real"])
def test_ranks_with_and_without_weights(dtype: str, weights: str, opencl_device: Device) -> None:
    problem = GRAPH.problem(dtype=dtype, weights=weights, n=300, mean_degree=5)
    spec = GRAPH.kernel("pagerank")
    bound = build(opencl_device, spec, problem, spec.default(problem, traits_of(opencl_device.info)))
    assert check_built(opencl_device, bound) is None


def test_a_wrong_result_is_seen(pocl_device: Device) -> None:
    graph = shapes()["path"]
    for name, written in WRITES.items():
        given = workload(name, graph, GRAPH.problem(), 0)
        wrong = {written: np.full_like(given.arguments[written], 3)}
        assert "are off" in str(given.verify(wrong, {}))


def test_generated_graphs_are_what_their_problem_says() -> None:
    for shape in SHAPES:
        graph = generated(GRAPH.problem(n=2000, mean_degree=6, shape=shape), 3)
        assert graph.n_vertices == 2000
        assert not graph.n_loops
        assert graph.weights is not None
        assert 1 <= graph.weights.min() <= graph.weights.max() <= 255
    assert features(arcs([(0, leaf) for leaf in range(1, 300)], 300)) == {
        "n": 300,
        "mean_degree": 2,
        "largest_degree": 299,
        "shape": "power-law",
    }


def test_a_path_too_long_for_the_reference_is_refused() -> None:
    assert GRAPH.inputs_refusal(GRAPH.problem(n=20_000, shape="path")) is None
    assert GRAPH.inputs_refusal(GRAPH.problem(n=20_001, shape="grid")) is None
    assert "give an n of at most 20000, or another shape" in str(
        GRAPH.inputs_refusal(GRAPH.problem(n=20_001, shape="path"))
    )


def test_a_users_graph_is_named_by_its_links(tmp_path: Path) -> None:
    """Directions do not count."""
    names = []
    for number, text in enumerate(("0 1\n1 2\n", "1 0\n2 1\n", "0 1\n0 2\n")):
        file = tmp_path / f"{number}.txt"
        file.write_text(text)
        names.append(GRAPH.dataset(file).name("bfs"))
    assert len(names[0]) == 16
    assert names[0] == names[1] != names[2]


@pytest.mark.slow
def test_a_users_graph_is_what_kernels_are_measured_on(processor: Device, tmp_path: Path) -> None:
    file = tmp_path / "star.txt"
    file.write_text("".join(f"0 {leaf}\n" for leaf in range(1, 90)))
    data = GRAPH.dataset(file)
    problem = GRAPH.problem(**data.values)
    assert (problem["n"], problem["largest_degree"]) == (90, 89)
    for name, spec in GRAPH.kernels.items():
        given = data.workload(name, problem, 0)
        bound = build(processor, spec, problem, spec.default(problem, traits_of(processor.info)))
        placed = upload(processor, given)
        bound.launch(given.count, placed).wait()
        assert given.verify({key: processor.download(placed[key]) for key in spec.written}, bound.config) is None
        release(placed)


@pytest.mark.slow
def test_cuda_c_of_every_kernel_compiles() -> None:
    traits = Traits("cuda", "gpu", local_memory=48 * 1024, sub_group_size=32, launch_memory=227 * 1024)
    compiler = find_compiler("nvrtc")  # it belongs to the development install
    known = set()
    for dtype in ("float32", "float64"):
        problem = GRAPH.problem(dtype=dtype, weights="real")
        for spec in GRAPH.kernels.values():
            every = spec.space.configs(problem, traits)
            at = np.random.default_rng(len(every)).choice(len(every), 2)
            configs = [(problem, spec.default(problem, traits)), *((problem, every[one]) for one in at)]
            if spec.name == "messages":
                configs.append((problem.replace(product="max"), configs[0][1]))
            for values, config in configs:
                source = render(spec, values, config, traits)
                if source.text in known:  # whole numbers have no precision
                    continue
                known.add(source.text)
                compiled = compile_cuda(source.text, "sm_90", HASTY, compiler=compiler)
                assert set(compiled.resources) == set(spec.entry_points(config))
                assert [line for line in compiled.log.splitlines() if ": warning" in line] == []


@pytest.mark.slow
def test_a_search_is_tuned_on_generated_graphs_and_selected(store: Store, processor: Device) -> None:
    problem = GRAPH.problem(n=3000, mean_degree=6, largest_degree=60)
    report = tune(
        processor.info.spec,
        "graph",
        ["bfs"],
        problem,
        store=store,
        patience=Patience(repetitions=3, enough_s=0.0),
        budget_trials=6,
        roof_bytes=1 << 24,
    )
    (kernel,) = report.kernels
    assert kernel.statuses["ok"] == sum(kernel.statuses.values()) - kernel.statuses.get("invalid", 0)
    assert kernel.best is not None
    chosen = look_up(Index(store), processor.info, GRAPH, "bfs", problem.only(GRAPH.kernel("bfs").parameters))
    assert (chosen.tier, dict(chosen.config)) == ("exact", dict(kernel.best.config))
    like_it = GRAPH.problem(n=3300, mean_degree=5, largest_degree=80).only(GRAPH.kernel("bfs").parameters)
    assert look_up(Index(store), processor.info, GRAPH, "bfs", like_it).tier == "problem"
    # What a graph of another kind is fastest with may be slow here.
    for shape in ("large", "grid"):
        assert look_up(Index(store), processor.info, GRAPH, "bfs", like_it.replace(shape=shape)).tier == "default"
