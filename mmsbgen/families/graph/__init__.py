"""Graph programs: algorithms on graphs whose kernels are generated, tuned and checked as all others are."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mmsbgen.families.graph import generated
from mmsbgen.families.graph.declare import BFS, CORES, SSSP, WIDEST, Rounds
from mmsbgen.families.graph.messages import message_kernels
from mmsbgen.families.graph.ranks.pagerank import pagerank_kernel
from mmsbgen.families.graph.round_kernels import rounds_kernel
from mmsbgen.families.graph.row_inputs import WORKLOAD_ROUNDS
from mmsbgen.families.graph.row_kernels import MOST_FEATURES, propagate_kernel, row_length, solve_kernel
from mmsbgen.families.graph.sweeps import components_kernel, parents_kernel, searches_kernel, triangles_kernel
from mmsbgen.kernels.family import KernelFamily, KernelSpec, Workload
from mmsbgen.kernels.kit import reals
from mmsbgen.kernels.problem import Parameter, Problem
from mmsbgen.kernels.roof import RoofKind

__all__ = ["GRAPH", "SIZES", "declared_kernel"]

PARAMETERS = (
    Parameter("n", 317080, "vertices", minimum=1, maximum=2**32 - 2),
    Parameter("mean_degree", 7, "arcs a vertex", maximum=2**31, soft=True),
    Parameter("largest_degree", 343, "largest degree", maximum=2**32 - 1, soft=True, weight=0.25),
    Parameter("shape", "power-law", "kind of graph; large: power-law, of 2^24 arcs or more", choices=generated.SHAPES),
    Parameter("dtype", "float64", "type of weights, distances and ranks", choices=("float32", "float64")),
    Parameter("weights", "none", "whether kernels that may read weights do", choices=("none", "real")),
    Parameter(
        "features", 16, "F, numbers of a vertex's row, or states of its messages", minimum=1, maximum=MOST_FEATURES
    ),
    Parameter("product", "sum", "whether messages sum up or maximise over states", choices=("sum", "max")),
    Parameter("rule", "seeded", "what propagate makes of the sums", choices=("seeded", "published", "layered")),
)
#: Parameters on which no source depends.
SIZES = ("n", "mean_degree", "largest_degree", "shape")


def _workload(kernel: str, problem: Problem, seed: int) -> Workload:
    return generated.workload(kernel, generated.generated(problem, seed), problem, seed)


def _given(
    kernel: str,
    *more: str,
    traffic: Callable[[Problem], int] | None = None,
    bytes_a_vertex: int = 12,
    small_degree: int = 6,
) -> dict[str, Any]:
    def moved(problem: Problem) -> int:
        return problem.integer("n") * (bytes_a_vertex + 4 * problem.integer("mean_degree"))

    return {
        "parameters": (*SIZES, *more),
        "traffic": traffic or moved,
        "workload": partial(_workload, kernel),
        "check_problem": lambda problem: problem.replace(n=700, mean_degree=small_degree),
    }


def declared_kernel(rounds: Rounds) -> KernelSpec:
    """The kernel of an algorithm in rounds that somebody else declares; the tuner has no inputs for it."""
    return rounds_kernel("own_rounds", "an algorithm of somebody's own", rounds, **_given("sssp", "dtype", "weights"))


def _rows(problem: Problem) -> int:
    # In a round a row is read for each arc, and two are written or read for each vertex.
    an_arc = 2 if problem["rule"] == "layered" else 1
    a_round = problem.integer("n") * ((an_arc * problem.integer("mean_degree") + 2) * _row_bytes(problem) + 16)
    return WORKLOAD_ROUNDS * a_round


def _solver(problem: Problem) -> int:
    # A step reads a row for each arc, and reads or writes eleven rows of each vertex.
    return problem.integer("n") * (problem.integer("mean_degree") + 11) * _row_bytes(problem)


def _messages(problem: Problem) -> int:
    # In a round messages are read for the beliefs and again to make new ones, which are compared with old ones.
    size, arcs = reals.real_bytes(problem), problem.integer("mean_degree")
    a_round = problem.integer("n") * (arcs * (4 * size * problem.integer("features") + 4) + 8)
    return message_kernels.WORKLOAD_ROUNDS * a_round


def _counts(problem: Problem) -> RoofKind:
    """A link's two arcs are read, 8 bytes, and one of its ends is counted down, which reads 4 bytes and writes them."""
    return RoofKind("counts", 4, 4 * problem.integer("n"))


def _row_bytes(problem: Problem) -> int:
    return row_length(problem.integer("features")) * reals.real_bytes(problem)


GRAPH = KernelFamily(
    name="graph",
    doc="algorithms on graphs: breadth-first search, distances, components, cores, triangles, PageRank",
    parameters=PARAMETERS,
    kernels={
        spec.name: spec
        for spec in (
            rounds_kernel("bfs", "arcs on a shortest path from a vertex to all others", BFS, **_given("bfs")),
            parents_kernel(**_given("parents")),
            searches_kernel(**_given("searches", bytes_a_vertex=160)),
            rounds_kernel("sssp", "least sum of weights on a path from a vertex", SSSP, **_given("sssp", "dtype")),
            rounds_kernel(
                "widest", "largest least weight of a path from a vertex", WIDEST, **_given("widest", "dtype")
            ),
            components_kernel(**_given("components")),
            rounds_kernel("cores", "core number of each vertex", CORES, **_given("cores"), roof=_counts),
            triangles_kernel(**_given("triangles", bytes_a_vertex=16)),
            # So many arcs that there are several chunks of them.
            pagerank_kernel(**_given("pagerank", "dtype", "weights", bytes_a_vertex=60, small_degree=60)),
            propagate_kernel(**_given("propagate", "dtype", "weights", "features", "rule", traffic=_rows)),
            solve_kernel(**_given("solve", "dtype", "weights", "features", traffic=_solver)),
            message_kernels.messages_kernel(**_given("messages", "dtype", "features", "product", traffic=_messages)),
        )
    },
    row_bytes=lambda problem: 4 * row_length(int(problem.get("features", 16))),
    tuned=(
        "bfs",
        "searches",
        "sssp",
        "widest",
        "cores",
        "pagerank",
        "components",
        "triangles",
        "propagate",
        "messages",
    ),
    inputs_refusal=generated.inputs_refusal,
    read=generated.read,
)
