"""Kernels that go over all vertices or links: components, parents of a search, triangles, many searches at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mmsbgen.families.graph.declare import ARCS_IN, ARCS_OUT, NONE, STEP, N
from mmsbgen.families.graph.launched_rounds import SHARING
from mmsbgen.families.graph.round_kernels import BLOCK, PER_ITEM, shape
from mmsbgen.kernels.family import Argument, KernelSpec, Launch
from mmsbgen.kernels.host_program import Launches
from mmsbgen.kernels.kit import reals, teams
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Axis, Config, Constraint, Space, Traits


def plain_default(problem: Problem, traits: Traits) -> Config:
    """A work-item a vertex on GPUs, many in a row on processors."""
    return {"block_size": 64, "per_item": 1} if traits.kind == "gpu" else {"block_size": 1, "per_item": 256}


def plain_variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    """What templates need that go over all vertices once."""
    return {
        "real": reals.real_name(problem),
        "per_item": int(config["per_item"]),
        "weighted": problem.get("weights") == "real",
    }


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
        space=Space((BLOCK, PER_ITEM, _SAMPLE, _BALANCE), (teams.BLOCK_FITS,)),
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
        space=Space((BLOCK, PER_ITEM), (teams.BLOCK_FITS,)),
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
    if int(config["lanes"]) > 1 and config["search"] == "merge":
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
        space=Space(
            (BLOCK, _PER_TEAM, _TEAM_OF, _SEARCH),
            (teams.BLOCK_FITS, teams.splits("lanes"), Constraint("lanes", _triangle_lanes)),
        ),
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


#: Sources of one run.
MOST_SOURCES = 32
#: Places of ``counts``, as in the template.
_NEXT, _STEP, _ODD = range(3)
#: Rounds, and thousands of vertices, that one work-item takes in a launch, so that the host can stop it.
_MOST_WORK = 1 << 14

_WALK = Axis("walk", (0, 64, 1024, 16384), "largest frontier that one work-item has alone")
_TO_PULL = Axis("to_pull", (2, 8, 32), "a round pulls if more than one vertex in so many is in the frontier")

_STARTS = Argument("starts", "u32", "in", "[S] vertices that searches begin at")
_LEVEL = Argument("level", "u32", "inout", "[S, n] arcs from each source; NONE where it does not reach")
_SEEN = Argument("seen", "u32", "inout", "[n] a bit for each source that reached a vertex")
_HERE = Argument("here", "u32", "inout", "[n] those that reached it in the last round")
_THERE = Argument("there", "u32", "inout", "[n] those that reach it in this round")
_QUEUE = Argument("queue", "u32", "inout", "[n] the frontier: vertices with bits in here")
_NEXT_QUEUE = Argument("next", "u32", "inout", "[n] the next frontier")
_COUNTS = Argument("counts", "u32", "inout", "[3] size of the next frontier, and what walk leaves")
_SOURCES = Argument("n_sources", "u32", "scalar", "sources")
_SIZE = Argument("size", "u32", "scalar", "vertices of the frontier")
_SIZE_NEXT = Argument("size_next", "u32", "scalar", "vertices of the next frontier that have no levels yet")
_LIMITS = (
    Argument("first_step", "u32", "scalar", "this round"),
    Argument("most", "u32", "scalar", "largest frontier"),
    Argument("most_work", "u32", "scalar", "rounds, and thousands of vertices"),
)


def _entries(config: Config) -> Mapping[str, tuple[Argument, ...]]:
    bits, lists = (_SEEN, _HERE, _THERE), (_QUEUE, _NEXT_QUEUE, _COUNTS)
    return {
        "begin": (_STARTS, _LEVEL, *bits, _QUEUE, _COUNTS, _SOURCES, N),
        "push": (*ARCS_OUT, *bits, *lists, _SIZE),
        "pull": (*ARCS_IN, _LEVEL, *bits, _NEXT_QUEUE, _COUNTS, _SOURCES, STEP, N),
        "settle": (_LEVEL, *bits, _QUEUE, _NEXT_QUEUE, STEP, _SIZE, _SIZE_NEXT, N),
        "walk": (*ARCS_OUT, _LEVEL, *bits, *lists, *_LIMITS, _SIZE, N),
    }


def _search(on: Launches) -> None:
    """Rounds until no vertex has a bit that is new."""
    block, per_item = int(on.config["block_size"]), int(on.config["per_item"])
    most, to_pull = int(on.config["walk"]), int(on.config["to_pull"])
    n = np.uint32(on.count)

    def launch(entry: str, count: int, **scalars: np.generic) -> None:
        on.launch(entry, max(1, -(-count // (block * per_item))), block, **scalars)

    def counted() -> Any:
        return on.read("counts")

    on.write("counts", np.zeros(3, np.uint32))
    launch("begin", on.count, n=n)
    size, step = int(counted()[_NEXT]), 0
    while size:
        given = {"size": np.uint32(size), "n": n}
        if size <= most:
            limits = {"first_step": step, "most": most, "most_work": _MOST_WORK}
            on.launch("walk", 1, block, **given, **{name: np.uint32(value) for name, value in limits.items()})
            counts = counted()
            size, step = int(counts[_NEXT]), int(counts[_STEP])
            if counts[_ODD]:
                on.swap("queue", "next")
                on.swap("here", "there")
            continue
        pulls = size * to_pull > on.count
        on.write("counts", np.zeros(3, np.uint32))
        if pulls:
            launch("pull", on.count, step=np.uint32(step), n=n)
        else:
            launch("push", size, **given)
        found = int(counted()[_NEXT])
        pushed = 0 if pulls else found
        launch("settle", max(size, pushed), step=np.uint32(step), size_next=np.uint32(pushed), **given)
        on.swap("queue", "next")
        on.swap("here", "there")
        size, step = found, step + 1


def _default(problem: Problem, traits: Traits) -> Config:
    if traits.kind == "gpu":
        return {"block_size": 256, "per_item": 1, "walk": 64, "to_pull": 8}
    return {"block_size": 1, "per_item": 256, "walk": 1024, "to_pull": 8}


def searches_kernel(**given: Any) -> KernelSpec:
    """Searches that share what they read."""
    return KernelSpec(
        name="searches",
        template="graph/searches/searches.jinja",
        doc="arcs on a shortest path from each of many vertices to all others",
        arguments=(*ARCS_OUT, *ARCS_IN, _STARTS, _LEVEL, _SEEN, _HERE, _THERE, _QUEUE, _NEXT_QUEUE, _COUNTS, _SOURCES),
        space=Space((BLOCK, PER_ITEM, _WALK, _TO_PULL), (teams.BLOCK_FITS,)),
        default=_default,
        variables=lambda problem, config, traits: {"real": "float", "per_item": int(config["per_item"]), "buffer": 64},
        launch=shape,
        entries=_entries,
        program=_search,
        **given,
    )
