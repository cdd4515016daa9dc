"""Generated graphs and the workloads of tuning, on them or on a user's graph."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.errors import InputError
from mmsbgen.families.graph import inputs, reference
from mmsbgen.families.graph.declare import NONE
from mmsbgen.families.graph.messages.message_kernels import simple, workload_of_messages
from mmsbgen.families.graph.ranks.tiles import arranged
from mmsbgen.families.graph.row_inputs import workload_of_rows, workload_of_solver
from mmsbgen.families.graph.sweeps import MOST_SOURCES
from mmsbgen.graph.arc_sources import as_arcs
from mmsbgen.graph.arcs import Arcs, arcs_of_pairs
from mmsbgen.kernels.family import Array, Dataset, Expected, Judge, Workload
from mmsbgen.kernels.kit import reals
from mmsbgen.kernels.problem import Problem, Value
from mmsbgen.kernels.space import Config

SHAPES = ("power-law", "large", "grid", "path")
#: Arcs from which on a graph is large.
_MANY_ARCS = 1 << 24
_RANK_ROUNDS = 20
#: The reference takes a round for each vertex of a path.
_LONGEST_PATH = 20_000


def inputs_refusal(problem: Problem) -> str | None:
    """An error message if the reference would take too long on the generated graph, else None."""
    n = problem.integer("n")
    if problem["shape"] != "path" or n <= _LONGEST_PATH:
        return None
    return (
        f"n={n} vertices are too many for shape=path, on which the reference takes a round for each vertex: give an n "
        f"of at most {_LONGEST_PATH}, or another shape"
    )


def generated(problem: Problem, seed: int) -> Arcs:
    """An undirected graph of about the sizes of a problem, with weights 1 to 255."""
    n, degree = problem.integer("n"), problem.integer("mean_degree")
    rng = np.random.default_rng(seed)
    links = max(1, n * degree // 2)
    if problem["shape"] == "grid":
        side = int(np.ceil(np.sqrt(n)))
        every = np.arange(n)
        right, below = every[(every % side != side - 1) & (every + 1 < n)], every[every + side < n]
        first, second = np.concatenate([right, below]), np.concatenate([right + 1, below + side])
    elif problem["shape"] == "path":
        chords = rng.integers(0, n, n // 64)
        first = np.concatenate([np.arange(n - 1), chords])
        second = np.concatenate([np.arange(1, n), np.minimum(chords + 3, n - 1)])
    else:
        # The expected degree of rank r falls as r^-1/2: as many links at the hub as sqrt(n).
        pick = rng.random((2, links)) ** 2 * n
        first, second = pick.astype(np.int64).clip(0, n - 1)
        numbers = rng.permutation(n)
        first, second = numbers[first], numbers[second]
    keep = first != second
    first, second = np.minimum(first, second)[keep], np.maximum(first, second)[keep]
    # np.unique takes twenty times as long.
    pairs = np.sort(first.astype(np.int64) * n + second)
    pairs = pairs[np.diff(pairs, prepend=-1) > 0]
    first, second = pairs // n, pairs % n
    weights = rng.integers(1, 256, first.size).astype(np.float64)
    return arcs_of_pairs(
        np.concatenate([first, second]),
        np.concatenate([second, first]),
        np.arange(n),
        np.concatenate([weights, weights]),
        directed=False,
    )


def features(arcs: Arcs) -> dict[str, Value]:
    """The problem parameters of a graph."""
    n, largest = arcs.n_vertices, int(arcs.degrees.max(initial=0))
    mean = round(arcs.n_arcs / max(1, n))
    shape = "grid" if largest <= 8 * max(mean, 1) else "large" if arcs.n_arcs >= _MANY_ARCS else "power-law"
    return {"n": max(1, n), "mean_degree": max(1, mean), "largest_degree": max(1, largest), "shape": shape}


def read(file: Path) -> Dataset:
    """A user's graph file, whose links count both ways.

    Weights in the file are not read, and an edge list with a third column is refused.  Kernels that need weights get
    generated ones.
    """
    arcs = as_arcs(file)
    if arcs.n_vertices == 0:
        raise InputError(f"{file} has no vertex; give a graph to measure on")
    identity = sha256(arcs.offsets.tobytes() + arcs.targets.tobytes()).hexdigest()[:16]
    return Dataset(
        features(arcs),
        lambda kernel, problem, seed: workload(kernel, arcs, problem, seed),
        name=lambda kernel: identity,
    )


def workload(kernel: str, arcs: Arcs, problem: Problem, seed: int) -> Workload:
    """Inputs and check of a kernel on a graph; searches begin at a vertex of the largest degree."""
    real = reals.real_type(problem)
    arcs = arcs.both_ways if kernel == "solve" else arcs
    weighted = kernel in ("sssp", "widest") or problem.get("weights") == "real"
    if weighted and arcs.weights is None:
        a, b = np.minimum(arcs.sources, arcs.targets), np.maximum(arcs.sources, arcs.targets)
        mixed = (a.astype(np.uint64) * 2654435761 + b.astype(np.uint64) * 40503 + np.uint64(seed)) >> np.uint64(7)
        weights = (mixed % np.uint64(255) + np.uint64(1)).astype(np.float64)
        arcs = Arcs(arcs.offsets, arcs.targets, arcs.ids, weights, arcs.directed)
    elif not weighted and arcs.weights is not None:
        arcs = Arcs(arcs.offsets, arcs.targets, arcs.ids, None, arcs.directed)
    source = int(np.argmax(arcs.degrees))
    arcs = simple(arcs) if kernel in ("messages", "triangles") else arcs
    if kernel == "messages":
        arguments, judge = workload_of_messages(arcs, real, problem.integer("features"), problem["product"] == "max")
    elif kernel == "solve":
        arguments, judge = workload_of_solver(arcs, real, problem.integer("features"))
    elif kernel == "propagate":
        arguments, judge = workload_of_rows(arcs, real, problem.integer("features"), problem["rule"])
    else:
        arguments, judge = _ARGUMENTS[kernel](arcs, source, real)
    return Workload(inputs.of_graph(arcs, real) | arguments, arcs.n_vertices, judge, repeats="restored")


def _equal(name: str, value: Array) -> Judge:
    exact = np.where(np.isinf(value), -1.0, value.astype(np.float64))

    def judge(got: Any, config: Config) -> str | None:
        found = np.where(np.isinf(got[name]), -1.0, got[name])
        return Expected(exact, np.zeros_like(exact)).errors(found)

    return judge


def _parents(arcs: Arcs, source: int, real: Any) -> tuple[dict[str, Any], Judge]:
    level = reference.levels(arcs, source)
    given = {"level": level, "parent": np.full(level.size, NONE, np.uint32), "n": np.uint32(level.size)}
    return given, _equal("parent", reference.parents(arcs, level))


def _triangles(arcs: Arcs, source: int, real: Any) -> tuple[dict[str, Any], Judge]:
    exact = reference.triangles(arcs)
    return inputs.state_of_triangles(arcs), _equal("found", np.stack([exact % 2**32, exact // 2**32], axis=1))


def _pagerank(arcs: Arcs, source: int, real: Any) -> tuple[dict[str, Any], Judge]:
    """A fixed number of rounds, whose rounding errors are bounded."""
    uniform: NDArray[Any] = np.full(arcs.n_vertices, 1.0 / arcs.n_vertices)
    exact = reference.ranks(arcs, 0.85, uniform, uniform, uniform, _RANK_ROUNDS)
    # Each round rounds a sum of up to `degree` terms and four products; alpha < 1 keeps their errors from growing.
    largest = int(arcs.reversed.degrees.max(initial=0))
    tolerance = exact * (np.finfo(real).eps * _RANK_ROUNDS * (largest + 8))
    expected = Expected(exact, tolerance)
    state = inputs.state_of_pagerank(arcs, real, 0.85, 0.0, _RANK_ROUNDS)
    return state | arranged(arcs, real), lambda got, config: expected.errors(got["rank"])


def _searches(arcs: Arcs, source: int, real: Any) -> tuple[dict[str, Any], Judge]:
    """From as many vertices as there may be, one of them twice."""
    starts = np.random.default_rng(source).integers(0, arcs.n_vertices, MOST_SOURCES)
    starts[:2] = source
    return inputs.state_of_searches(arcs, starts), _equal("level", reference.levels(arcs, starts))


_ARGUMENTS = {
    "searches": _searches,
    "bfs": lambda a, s, real: (inputs.state_of_bfs(a, s), _equal("level", reference.levels(a, s))),
    "parents": _parents,
    "sssp": lambda a, s, real: (inputs.state_of_sssp(a, s, real), _equal("dist", reference.distances(a, s, real))),
    "widest": lambda a, s, real: (inputs.state_of_widest(a, s, real), _equal("width", reference.widths(a, s, real))),
    "components": lambda a, s, real: (inputs.state_of_components(a), _equal("label", reference.components(a))),
    "cores": lambda a, s, real: (inputs.state_of_cores(a), _equal("core", reference.cores(a))),
    "triangles": _triangles,
    "pagerank": _pagerank,
}
