"""Breadth-first searches from up to 32 sources at once: each vertex has a bit for each source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mmsbgen.families.graph.declare import ARCS_IN, ARCS_OUT, STEP, N
from mmsbgen.families.graph.round_kernels import BLOCK, BLOCKS, PER_ITEM, shape
from mmsbgen.kernels.family import Argument, KernelSpec
from mmsbgen.kernels.host_program import Launches
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Axis, Config, Space, Traits

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
        space=Space((BLOCK, PER_ITEM, _WALK, _TO_PULL), (BLOCKS,)),
        default=_default,
        variables=lambda problem, config, traits: {
            "real": "float",
            "per_item": int(config["per_item"]),
            "buffer": 64,
        },
        launch=shape,
        entries=_entries,
        program=_search,
        **given,
    )
