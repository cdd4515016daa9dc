"""Arguments, small spaces and default configurations shared by several kernel declarations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from mmsbgen.families.mmsb.axes.common_axes import COMMON, common, stored_size
from mmsbgen.families.mmsb.numbers.row_layout import row_length
from mmsbgen.graph.edgeset import EdgeSet
from mmsbgen.kernels.family import Argument, KernelSpec, Workload, named
from mmsbgen.kernels.kit import reals, teams
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config, Space, Traits

Chooser = Callable[[Problem, Traits], Config]

PI = Argument("pi", "stored", "in", "[N + m, LD] rows by slot")
#: Arguments that several kernels have, by whose names :func:`arguments` takes them; rows in the real type.
KNOWN = (
    Argument("pi", "real", "inout", "[N + m, LD] rows by slot"),
    Argument("row_sums", "real", "inout", "[N + m] sums of phi by slot"),
    Argument("spares", "u32", "in", "[m] free slots; they receive the new rows"),
    Argument("slots", "u32", "in", "[N] slot of a vertex's row"),
    Argument("clip_counts", "u32", "inout", "[m] coordinates whose flow was bounded, added up"),
    Argument("half_step", "real", "scalar", "eps / 2"),
    Argument("decay", "real", "scalar", "exp(-eps / 2)"),
    Argument("spread", "real", "scalar", "1 - exp(-eps / 2)"),
    Argument("alpha", "real", "scalar", "concentration of phi"),
    Argument("beta", "real", "in", "[LD] community strengths"),
    Argument("vertices", "u32", "in", "[.., m] distinct vertices of the mini-batch, from first_vertex on"),
    Argument("n_vertices", "u32", "scalar", "vertices of the mini-batch"),
    Argument("first_vertex", "u32", "scalar", "place of the first of them"),
    Argument("neighbour_offsets", "u64", "in", "[N + 1] begin of each vertex's training links"),
    Argument("neighbours", "u32", "in", "[2 E] their other ends, ascending"),
    Argument("held_offsets", "u64", "in", "[N + 1] begin of each vertex's held-out pairs"),
    Argument("held_neighbours", "u32", "in", "[2 H] their other ends, ascending"),
    Argument("delta", "real", "scalar", "probability of a link across communities"),
    Argument("pairs_a", "u32", "in", "[P] one vertex of each pair"),
    Argument("pairs_b", "u32", "in", "[P] the other"),
    Argument("n_pairs", "u32", "scalar", "number of pairs"),
    Argument("n_total", "u32", "scalar", "N"),
    Argument("seed", "u64", "scalar", ""),
    Argument("iteration", "u32", "scalar", ""),
    Argument("non_link_scale", "real", "scalar", "of the counts of non-links"),
    Argument("link_scale", "real", "scalar", "of the counts of links"),
    Argument("shared", "u32", "in", "[room] slots of the shared partners' rows"),
    Argument("shared_weights", "real", "in", "[room] weights; 0 from n_shared on"),
    Argument("n_shared", "u32", "in", "[1] how many shared partners there are"),
    Argument("drawn", "u32", "in", "[n] the shared partners"),
    Argument("places", "u32", "in", "[N] where a vertex is among them, if it is"),
)
arguments = partial(named, KNOWN)
#: Slots and spares that a kernel exchanges.
EXCHANGED = arguments("slots:inout", Argument("spares", "u32", "inout", "[m] slots of the new rows; then the old ones"))
#: Values of ``partners``: with a list per vertex, shared by the vertices of a block, or shared by those of a star.
LISTED = {"partners": ("uniform", "stratified")}
SHARED: dict[str, tuple[str, ...]] = {"partners": ("block",)}
STARS_SHARED: dict[str, tuple[str, ...]] = {"partners": ("shared", "shared-uniform")}
STARS = {"partners": LISTED["partners"] + STARS_SHARED["partners"]}
#: With dense rows.
DENSE = {"partners": STARS["partners"] + SHARED["partners"]}
SINGLE: dict[str, tuple[str, ...]] = {"products": ("single",)}
#: Products on tensor cores.
HALF: dict[str, tuple[str, ...]] = {"products": ("half",)}
TENSOR = SHARED | HALF
#: Arguments of kernels over pairs, beside the rows: probabilities, the best community, and shares of some communities.
EVALUATED = arguments(
    "beta pairs_a pairs_b",
    Argument("probabilities", "double", "out", "[P] p(y = 1)"),
    Argument("published", "double", "out", "[P] p(y = 1) as the published programs have it"),
    Argument("sums", "double", "inout", "[P] sum of p(y = 1) over samples"),
    "n_pairs delta",
)
BEST = arguments(
    "beta pairs_a pairs_b",
    Argument("best", "u32", "out", "[P] the community, the first of equal ones"),
    Argument("shares", "real", "out", "[P] its share of p(y = 1)"),
    "n_pairs delta",
)
PLACES = arguments(
    "beta pairs_a pairs_b",
    Argument("places", "u32", "in", "[P, n_places] the communities that are asked for"),
    Argument("explained", "real", "out", "[P, n_places] their shares of p(y = 1)"),
    "n_pairs",
    Argument("n_places", "u32", "scalar", "communities a link"),
    "delta",
)
#: Arguments of kernels that take rows into the mean and the variance of their samples.
MOMENTS = (
    Argument("sums", "real", "inout", "[N, LD] sums of the samples"),
    Argument("squares", "real", "inout", "[N, LD] sums of their squared deviations from the mean"),
    Argument("over", "real", "scalar", "one over the number of samples before; 0 for the first"),
    Argument("weight", "real", "scalar", "samples before over samples with this one"),
    Argument("n_rows", "u32", "scalar", "N"),
)


def edge_set(prefix: str, what: str) -> tuple[Argument, ...]:
    """The four arguments of an edge set."""
    return (
        Argument(f"{prefix}_buckets", "u64", "in", f"[2 * buckets, 4] edge set of the {what}"),
        Argument(f"{prefix}_n_buckets", "u32", "scalar", ""),
        Argument(f"{prefix}_seed0", "u64", "scalar", ""),
        Argument(f"{prefix}_seed1", "u64", "scalar", ""),
    )


def edge_set_arguments(prefix: str, edges: EdgeSet) -> dict[str, Any]:
    """The four kernel arguments of an edge set."""
    return {
        f"{prefix}_buckets": edges.buckets,
        f"{prefix}_n_buckets": np.uint32(edges.n_buckets),
        f"{prefix}_seed0": np.uint64(edges.seeds[0]),
        f"{prefix}_seed1": np.uint64(edges.seeds[1]),
    }


def row_bytes(problem: Problem) -> int:
    """Bytes of a row of reals."""
    return row_length(problem.integer("K")) * reals.real_bytes(problem)


def stored_row_bytes(problem: Problem) -> int:
    """Bytes of a stored row of pi."""
    return row_length(problem.integer("K")) * stored_size(problem)


def config(space: Space, **values: Any) -> dict[str, Any]:
    """A configuration of ``space`` with the given values; other axes take their first value."""
    return {axis.name: values.get(axis.name, axis.values[0]) for axis in space.axes}


def defaults(
    space: Space, gpu: dict[str, Any], cpu: dict[str, Any] | None = None, *, sub_groups: dict[str, Any] | None = None
) -> Chooser:
    """A default chooser from values for GPUs and for CPUs.

    On GPUs it tries ``sub_groups``, then ``gpu``, then ``gpu`` with blocks of 32; on CPUs it tries ``cpu``.  The last
    candidate is always a scalar work-item per row.
    """
    last = config(space, team="item", reduction="none", block_size=1)
    first = [sub_groups] if sub_groups else []
    short = gpu | {"block_size": 32}
    on_gpu = teams.first_valid(
        [config(space, **values) for values in (*first, gpu, short, short | {"reduction": "local"})] + [last],
        space.refusal,
    )
    on_cpu = teams.first_valid([config(space, **(cpu or {})), last], space.refusal)
    return lambda problem, traits: (on_cpu if traits.kind == "cpu" else on_gpu)(problem, traits)


TEAM_GPU = {"team": "block", "reduction": "shuffle", "vector_width": 4, "block_size": 64}
SUB_GROUP_A_ROW = {"team": "subgroup", "reduction": "shuffle", "vector_width": 2, "block_size": 256}
TEAM_CPU = {"team": "item", "reduction": "none", "vector_width": 8, "block_size": 1}
ITEMS_GPU = {"block_size": 128, "vector_width": 1}
ITEMS_CPU = {"block_size": 64, "vector_width": 1}

SCALAR_SPACE = Space((teams.BLOCK_SIZE,), COMMON)


def kernel(
    folder: str,
    workload: Callable[[Problem, int], Workload],
    doc: str,
    arguments: tuple[Argument, ...],
    parameters: str,
    traffic: Callable[[Problem], int],
    **more: Any,
) -> KernelSpec:
    """A kernel of a folder of templates, with the name of its ``workload``; ``parameters`` are words of a text.

    Unless ``more`` says otherwise, a work-item has a unit.
    """
    name = workload.__name__
    usual: dict[str, Any] = {
        "template": f"mmsb/{folder}/{name}.jinja",
        "space": SCALAR_SPACE,
        "default": defaults(SCALAR_SPACE, ITEMS_GPU, ITEMS_CPU),
        "variables": common,
        "launch": teams.launch_items,
    }
    given = {"arguments": arguments, "parameters": tuple(parameters.split()), "traffic": traffic, "workload": workload}
    return KernelSpec(name=name, doc=doc, **usual | given | more)
