"""Rounds over rows: every length of a row, on every shape; change-driven rounds keep their invariants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mmsbgen.backends import Device
from mmsbgen.families import family
from mmsbgen.families.graph.generated import generated, workload
from mmsbgen.families.graph.inputs import of_graph
from mmsbgen.families.graph.row_inputs import after_rounds, matrix_in, state_of_rows
from mmsbgen.families.graph.row_kernels import COUNTS, PASSES, ROUNDS, row_length
from mmsbgen.graph import Arcs
from mmsbgen.kernels.build import BoundKernel, build, check_built, release, traits_of, upload
from mmsbgen.kernels.family import Workload
from mmsbgen.kernels.space import Config
from tests.families.graph.shapes import shapes

GRAPH = family("graph")
SPEC = GRAPH.kernel("propagate")
#: Lengths at the ends of vectors, of teams and of walks.
FEATURES = (1, 3, 31, 32, 33, 128, 130)
Array = NDArray[Any]


def built(device: Device, config: Config | None = None, **values: Any) -> BoundKernel:
    problem, traits = GRAPH.problem(**values), traits_of(device.info)
    return build(device, SPEC, problem, config or SPEC.default(problem, traits))


def run(bound: BoundKernel, given: Workload) -> dict[str, Array]:
    placed = upload(bound.device, given)
    bound.launch(given.count, placed).wait()
    got = {name: bound.device.download(placed[name]) for name in SPEC.written}
    release(placed)
    return got


def odd_config(features: int, seed: int, device: Device) -> Config:
    """A valid configuration at random, of several lanes where the row has as many vectors."""
    problem, traits = GRAPH.problem(features=features), traits_of(device.info)
    configs = [one for one in SPEC.space.configs(problem, traits) if int(one["block_size"]) > 1]
    wide = [one for one in configs if int(one["lanes"]) > 1] or configs
    return wide[int(np.random.default_rng(seed).integers(len(wide)))]


def some(examples: tuple[Any, ...], place: int, device: Device) -> tuple[Any, ...]:
    """All examples; of PoCL, which compiles slowly, half of them: the others are for the next ``place``."""
    return examples[place % 2 :: 2] if "Portable" in device.info.platform else examples


@pytest.mark.slow
@pytest.mark.parametrize("features", FEATURES)
def test_every_length_on_every_shape(features: int, processor: Device) -> None:
    for weights, config in (("none", None), ("real", odd_config(features, 1, processor))):
        bound = built(processor, config, features=features, weights=weights, dtype="float32")
        for shape, graph in shapes().items():
            given = workload("propagate", graph, bound.problem, 0)
            assert given.verify(run(bound, given), bound.config) is None, shape


@pytest.mark.slow
def test_published_rounds_as_they_are_printed(opencl_device: Device) -> None:
    for features in (3, 33):
        bound = built(opencl_device, features=features, rule="published", dtype="float32")
        for shape, graph in shapes().items():
            given = workload("propagate", graph, bound.problem, 0)
            assert given.verify(run(bound, given), bound.config) is None, shape


@pytest.mark.slow
@pytest.mark.parametrize(("place", "features"), [(0, 1), (1, 3), (2, 33), (3, 128)])
def test_each_number_walks_on_its_own_layer(place: int, features: int, opencl_device: Device) -> None:
    for config in some((None, odd_config(features, 2, opencl_device)), place, opencl_device):
        bound = built(opencl_device, config, features=features, rule="layered", dtype="float32")
        for shape, graph in shapes().items():
            given = workload("propagate", graph, bound.problem, 0)
            assert given.verify(run(bound, given), bound.config) is None, shape


@pytest.mark.slow
@pytest.mark.parametrize(("place", "features"), [(0, 1), (1, 3), (2, 33), (3, 130)])
def test_the_solver_finds_means_of_neighbours(place: int, features: int, opencl_device: Device) -> None:
    spec = GRAPH.kernel("solve")
    both = ("none", None), ("real", odd_config(features, 3, opencl_device))
    for weights, config in some(both, place, opencl_device):
        problem = GRAPH.problem(features=features, weights=weights, dtype="float32")
        config = config or spec.default(problem, traits_of(opencl_device.info))
        bound = build(opencl_device, spec, problem, config)
        for shape, graph in shapes().items():
            given = workload("solve", graph, bound.problem, 0)
            placed = upload(opencl_device, given)
            bound.launch(given.count, placed).wait()
            got = {name: opencl_device.download(placed[name]) for name in spec.written}
            release(placed)
            assert given.verify(got, config) is None, shape
            assert got["settings"][ROUNDS] < 1000, shape


@pytest.mark.slow
@pytest.mark.parametrize("features", [1024, 16])
def test_it_keeps_within_its_arrays(features: int, opencl_device: Device) -> None:
    for values in ({"dtype": "float64"}, {"dtype": "float32", "weights": "real"}, {"rule": "layered"}):
        assert check_built(opencl_device, built(opencl_device, features=features, n=300, **values)) is None


def walks(
    graph: Arcs, columns: int, tolerance: float, rounds: int, changes: float, real: Any = np.float32
) -> tuple[Workload, Array, Array]:
    """Restart walks from some vertices: the inputs, the factors ``[N]`` and the rows that seeds add ``[N, F]``."""
    n, degrees = graph.n_vertices, graph.degrees
    scale = np.divide(0.85, degrees, out=np.zeros(n), where=degrees > 0)
    vertices = np.random.default_rng(5).choice(n, columns, replace=False)
    seeds = 0.15 * np.eye(columns)
    given = graph, real, scale, vertices, seeds
    state = state_of_rows(*given, tolerance=tolerance, most_rounds=rounds, changes=changes)
    for name in ("sent", "row"):
        state[name] = np.zeros((n, row_length(columns)), real)
    start = np.zeros((n, columns))
    start[vertices] = seeds
    arguments = of_graph(graph, real) | state
    return Workload(arguments, n, lambda got, config: None, repeats="restored"), scale, start


@pytest.fixture(scope="module")
def graph() -> Arcs:
    found = generated(GRAPH.problem(n=4000, mean_degree=8), 2)
    return Arcs(found.offsets, found.targets, found.ids)


def test_what_is_not_sent_is_kept_for_later(graph: Arcs, processor: Device) -> None:
    """After every round rows are sums of what was sent, and only what moved by more than the tolerance is to send."""
    columns, tolerance = 5, 1e-3
    bound = built(processor, features=columns, dtype="float32")
    weights, driven = matrix_in(graph), 0
    for rounds in range(1, 12):
        given, scale, start = walks(graph, columns, tolerance, rounds, changes=4)
        got = run(bound, given)
        step = int(got["settings"][ROUNDS])
        row, sent = (got[name][:, :columns].astype(np.float64) for name in ("row", "sent"))
        exact = scale[:, None] * (weights @ sent) + start
        most = int(graph.degrees.max()) + 8
        assert np.all(np.abs(row - exact) <= most * np.finfo(np.float32).eps * exact)
        still = got["moved"] != step
        assert np.abs(row - sent)[still].max() <= tolerance
        reads = int(got["counts"][step % COUNTS[0], 2])
        driven += 0 < reads < graph.n_arcs
    assert driven >= 3


def test_changes_alone_are_enough(graph: Arcs, processor: Device) -> None:
    """At tolerance 0 the bits of full rounds; else the error is within alpha eps / (1 - alpha), with less work."""
    columns = 5
    bound = built(processor, features=columns, dtype="float32")
    rows = [run(bound, walks(graph, columns, 0.0, 9, changes)[0])["row"] for changes in (0, 1.001)]
    assert np.array_equal(*rows)
    tolerance, work = 1e-3, []
    for changes in (0, 2):
        given, scale, start = walks(graph, columns, tolerance, 1000, changes)
        got = run(bound, given)
        exact = after_rounds(graph, scale, start, 200)
        assert np.abs(got["row"][:, :columns] - exact).max() <= 0.85 / 0.15 * tolerance
        work.append(got["settings"][PASSES])
    assert work[0] == int(work[0])
    assert work[1] < 0.7 * work[0]


def test_a_second_call_counts_anew(graph: Arcs, processor: Device) -> None:
    """More rounds than are counted side by side, in buffers that hold the state of a call before."""
    bound = built(processor, features=2, dtype="float32")
    given, _, _ = walks(graph, 2, 1e-30, 70, changes=0)
    placed = upload(processor, given)
    found = []
    for _ in range(2):
        bound.launch(given.count, placed).wait()
        found.append(processor.download(placed["settings"])[5:])
    release(placed)
    assert found[0][[0, 2]].tolist() == [70, 70]
    assert np.array_equal(*found)


def test_rounds_end_at_the_most_and_say_how_far_rows_still_move(graph: Arcs, opencl_device: Device) -> None:
    bound = built(opencl_device, features=2, dtype="float64")
    given, scale, start = walks(graph, 2, 1e-12, 7, changes=0, real=np.float64)
    got = run(bound, given)
    last, before = (after_rounds(graph, scale, start, rounds) for rounds in (7, 6))
    assert got["settings"][5:8] == pytest.approx([7, np.abs(last - before).max(), 7], rel=1e-6)
    assert got["row"] == pytest.approx(last, abs=1e-15)
