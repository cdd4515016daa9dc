"""Kernels that go over all vertices or links: components, parents of a search, triangles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mmsbgen.families.graph.declare import ARCS_IN, ARCS_OUT, NONE, N, real_of
from mmsbgen.families.graph.launched_rounds import SHARING
from mmsbgen.families.graph.round_kernels import BLOCK, BLOCKS, PER_ITEM, shape
from mmsbgen.kernels.family import Argument, KernelSpec, Launch
from mmsbgen.kernels.host_program import Launches
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Axis, Config, Constraint, Space, Traits


def plain_default(problem: Problem, traits: Traits) -> Config:
    """A work-item a vertex on GPUs, many in a row on processors."""
    return {"block_size": 64, "per_item": 1} if traits.kind == "gpu" else {"block_size": 1, "per_item": 256}


def plain_variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    """What templates need that go over all vertices once."""
    return {"real": real_of(problem), "per_item": int(config["per_item"]), "weighted": problem.get("weights") == "real"}


_LABEL = Argument("label", "u32", "inout", "[n] its own number; least vertex of its component")
_BOTH = Argument("both_listed", "u32", "in", "[1] whether every arc is there in both directions")
_HOOK = (
    Argument("only_lesser", "u32", "scalar", "whether only arcs to lesser vertices count"),
    Argument("first_arc", "u32", "scalar", "first arc of each vertex"),
    Argument("most_arcs", "u32", "scalar", "end of its arcs"),
    Argument("skipped", "u32", "scalar", "label of vertices that are passed over"),
)
_SAMPLE = Axis("first_arcs", (0, 1, 2, 4), "arcs a vertex after which the largest component is passed over; 0: all")
_BALANCE = Axis(
    "balance", ("rows", "merge"), "whether blocks take equal numbers of vertices, or after the first arcs, of arcs"
)
_MOST_SAMPLED = 1024


def _hook(on: Launches) -> None:
    """Hook and flatten; where arcs are listed both ways, those of the largest component are mostly left out."""
    block, n, sampled = int(on.config["block_size"]), np.uint32(on.count), int(on.config["first_arcs"])
    grid = -(-on.count // (block * int(on.config["per_item"])))
    both = bool(on.read("both_listed")[0])

    def hook(only_lesser: bool, first: int, most: int, skipped: int) -> None:
        values = {"only_lesser": only_lesser, "first_arc": first, "most_arcs": most, "skipped": skipped}
        by_arcs = most == NONE and on.config["balance"] == "merge"
        entry, blocks = ("hook_arcs", on.traits.compute_units * SHARING) if by_arcs else ("hook", grid)
        on.launch(entry, blocks, block, n=n, **{name: np.uint32(value) for name, value in values.items()})
        on.launch("flatten", grid, block, n=n)

    if not both or sampled == 0:
        hook(both, 0, NONE, NONE)
        return
    hook(False, 0, sampled, NONE)
    labels = on.read("label", on.count)
    some = labels[:: max(1, labels.size // _MOST_SAMPLED)]
    found, times = np.unique(some, return_counts=True)
    hook(False, sampled, NONE, int(found[np.argmax(times)]))


def _component_entries(config: Config) -> Mapping[str, tuple[Argument, ...]]:
    hook = (*ARCS_OUT, _LABEL, *_HOOK, N)
    return {"hook": hook, "flatten": (_LABEL, N)} | ({"hook_arcs": hook} if config["balance"] == "merge" else {})


def components_kernel(**given: Any) -> KernelSpec:
    """Components by hooking."""
    return KernelSpec(
        name="components",
        template="graph/components.jinja",
        doc="least vertex of each vertex's component",
        arguments=(*ARCS_OUT, _LABEL, _BOTH),
        space=Space((BLOCK, PER_ITEM, _SAMPLE, _BALANCE), (BLOCKS,)),
        default=lambda problem, traits: {**plain_default(problem, traits), "first_arcs": 2, "balance": "rows"},
        variables=plain_variables,
        launch=shape,
        entries=_component_entries,
        program=_hook,
        **given,
    )


def parents_kernel(**given: Any) -> KernelSpec:
    """Parents of a breadth-first search."""
    return KernelSpec(
        name="parents",
        template="graph/searches/parents.jinja",
        doc="least neighbour one level nearer to the source",
        arguments=(
            *ARCS_IN,
            Argument("level", "u32", "in", "[n] arcs from the source; NONE where it does not reach"),
            Argument("parent", "u32", "out", "[n]; the source's is itself, NONE where it does not reach"),
            N,
        ),
        space=Space((BLOCK, PER_ITEM), (BLOCKS,)),
        default=plain_default,
        variables=plain_variables,
        launch=shape,
        **given,
    )


_TEAM_OF = Axis("lanes", (1, 4, 8, 32), "work-items that share a link")
_SEARCH = Axis(
    "search", ("merge", "halving"), "whether two sorted lists are read side by side, or one is looked up in the other"
)
_PER_TEAM = Axis("per_team", (1, 16, 256), "links in a row that a team takes")


def _triangle_lanes(config: Config, problem: Problem, traits: Traits) -> str | None:
    block, lanes = int(config["block_size"]), int(config["lanes"])
    if block % lanes:
        return f"a block of {block} is not a whole number of teams of {lanes}"
    if lanes > 1 and config["search"] == "merge":
        return "one work-item reads lists side by side: lanes must be 1"
    return None


def _triangle_default(problem: Problem, traits: Traits) -> Config:
    if traits.kind == "gpu":
        return {"block_size": 256, "lanes": 4, "search": "halving", "per_team": 1}
    return {"block_size": 1, "lanes": 1, "search": "merge", "per_team": 256}


def triangles_kernel(**given: Any) -> KernelSpec:
    """Triangles by lists of the neighbours that come later in an order by degrees."""
    return KernelSpec(
        name="triangles",
        template="graph/triangles.jinja",
        doc="triangles that each vertex is in",
        arguments=(
            Argument("later_offsets", "u32", "in", "[n + 1] first later neighbour of each vertex"),
            Argument("later", "u32", "in", "[L] later neighbours of each vertex, sorted by number"),
            Argument("earlier", "u32", "in", "[L] the vertex that each of them is a neighbour of"),
            Argument("found", "u32", "inout", "[n, 2] triangles, lower and higher 32 bits; 0 before"),
            N,
        ),
        space=Space((BLOCK, _PER_TEAM, _TEAM_OF, _SEARCH), (BLOCKS, Constraint("lanes", _triangle_lanes))),
        default=_triangle_default,
        variables=lambda problem, config, traits: {
            "real": "float",
            "T": int(config["lanes"]),
            "teams": int(config["block_size"]) // int(config["lanes"]),
            "per_team": int(config["per_team"]),
        },
        launch=_triangle_shape,
        **given,
    )


def _triangle_shape(problem: Problem, config: Config, count: int, traits: Traits) -> Launch:
    block, lanes = int(config["block_size"]), int(config["lanes"])
    return Launch(max(1, -(-count * lanes // (block * int(config["per_team"])))), block)
