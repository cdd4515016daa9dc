"""The kernels of algorithms in rounds: entry points, axes, and the program that launches them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from mmsbgen.families.graph.declare import ARCS_IN, ARCS_OUT, BFS, CORES, SSSP, STEP, WIDEST, N, Rounds, real_of
from mmsbgen.families.graph.fused_rounds import fused_entries, scalars
from mmsbgen.families.graph.launched_rounds import LaunchedRounds
from mmsbgen.families.graph.round_axes import round_default, round_space
from mmsbgen.kernels.family import Argument, KernelSpec, Launch
from mmsbgen.kernels.host_program import Launches
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config, Traits

_WEIGHTS = Argument("weights", "real", "in", "[A] weight of each arc")
_VISITED = Argument("visited", "u32", "inout", "[2 ceil(n / 32)] a bit for each vertex, before and after a round")
_QUEUE = Argument("queue", "u32", "inout", "[n] the frontier")
_NEXT = Argument("next", "u32", "inout", "[n] the next frontier")
_COUNTS = Argument("counts", "u32", "inout", "[192] sizes of lists, and what a launch leaves to the next")
_KEPT = Argument("kept", "u32", "inout", "[n] vertices that later frontiers come from")
_KEPT_NEXT = Argument("kept_next", "u32", "inout", "[n] those that stay")
_PENDING = Argument("pending", "u32", "inout", "[n] whether a vertex is in kept")
_LEAST = Argument("least", "real", "inout", "[5] least distance in kept, of three rounds; window of distances")
_MEAN = Argument("mean_weight", "real", "in", "[1]")


def _scalar(name: str, ctype: str, doc: str) -> Argument:
    return Argument(name, ctype, "scalar", doc)


_ENDS = Argument("ends", "u32", "inout", "[2 n] sums of degrees up to each vertex of a block, and before each block")
_STRIDE = _scalar("stride", "u32", "words of a bin, of which the first is its size")
_SIZE = _scalar("size", "u32", "vertices of the list")
_LIMIT = _scalar("limit", "real", "end of the window of distances")
_K = _scalar("k", "u32", "core number of the vertices of this round")


def shape(problem: Problem, config: Config, count: int, traits: Traits) -> Launch:
    """Blocks for ``count`` vertices."""
    block = int(config["block_size"])
    return Launch(max(1, -(-count // (block * int(config["per_item"])))), block)


def _sizes(config: Config, traits: Traits) -> dict[str, int]:
    """Sizes of buffers and of the vertices that many warps share."""
    if config["loop"] == "launches":
        return {"buffer": 64}
    cuda = traits.dialect == "cuda"
    return {"buffer": 128, "hub": 2048 if cuda else 4 * int(config["block_size"]), "parts": 64 if cuda else 1}


def _lists(a: Rounds) -> tuple[Argument, ...]:
    """The list that an empty frontier is refilled from."""
    return {"": (), "window": (_KEPT, _PENDING), "least": (_KEPT,)}[a.refill]


def _arguments(a: Rounds) -> tuple[Argument, ...]:
    more = {"": (), "window": (_KEPT, _KEPT_NEXT, _PENDING, _LEAST, _MEAN), "least": (_KEPT, _KEPT_NEXT)}[a.refill]
    weights = (_WEIGHTS,) if a.weighted else ()
    return (*ARCS_OUT, *weights, *((*ARCS_IN, _VISITED) if a.pulls else ()), *a.state, _QUEUE, _NEXT, _COUNTS, *more)


def rounds_entries(a: Rounds, config: Config) -> Mapping[str, tuple[Argument, ...]]:
    """The entry points of a configuration with their arguments."""
    if config["loop"] != "launches":
        return {name: (*_arguments(a), *scalars(a)) for name in fused_entries(a, config)}
    graph = (*ARCS_OUT, _WEIGHTS) if a.weighted else ARCS_OUT
    base = (*graph, *a.state, _QUEUE, _NEXT, _COUNTS)
    given = {"": (STEP,), "window": (STEP, _LIMIT), "least": (STEP, _K)}[a.refill]
    first = {"": (), "window": (_scalar("first_limit", "real", "end of the window"), _scalar("width", "real", "")),
             "least": (_scalar("first_k", "u32", "core number to begin with"),)}[a.refill]  # fmt: skip
    kept = (*_lists(a), _scalar("size_kept", "u32", "vertices in kept")) if a.refill else ()
    found: dict[str, tuple[Argument, ...]] = {}
    bin_of = (_STRIDE,) if config["frontier"] == "bins" else ()
    merged = (_ENDS, N) if config["team"] == "merge" else ()
    if config.get("direction") != "pull":
        found["push"] = (*base, *_lists(a), *merged, *given, _SIZE, *bin_of)
    if merged:
        found["measure"] = (*ARCS_OUT[:1], _QUEUE, _ENDS, N, _SIZE)
        found["carry"] = (_ENDS, _COUNTS, N, _SIZE)
    if config.get("direction") in ("auto", "pull"):
        found["pull"] = (*ARCS_OUT[:1], *ARCS_IN, *a.state, _NEXT, _COUNTS, STEP, N, *bin_of)
    if bin_of:
        found["concatenate"] = (*a.state, _QUEUE, _NEXT, _COUNTS, *given, _scalar("n_bins", "u32", "bins"), _STRIDE)
    if config["frontier"] != "queue" and a.active and ("push" in found or bin_of):
        found["collect"] = (*ARCS_OUT[:1], *a.state, _NEXT, _COUNTS, STEP, N)
    if a.refill == "window":
        lists = (_KEPT, _KEPT_NEXT, _PENDING) if config["frontier"] != "scan" else ()
        low = _scalar("low", "real", "begin of the window")
        found["split"] = (*a.state, _NEXT, _COUNTS, *lists, _LEAST, STEP, low, _LIMIT, _SIZE)
    if a.refill == "least":
        found["peel"] = (*a.state, _NEXT, _COUNTS, _KEPT, _KEPT_NEXT, _K, _SIZE)
    more = (_LEAST,) if a.refill == "window" else ()
    bounds = (
        ("first_step", "this round"),
        ("most", "largest frontier"),
        ("most_work", "rounds, and thousands of vertices"),
    )
    limits = (*(_scalar(name, "u32", doc) for name, doc in bounds), _SIZE)
    found["walk"] = (*base, *kept, *more, *limits, *first)
    return found


def _program(a: Rounds, on: Launches) -> None:
    LaunchedRounds(on, a).run()


def rounds_kernel(name: str, doc: str, a: Rounds, **given: Any) -> KernelSpec:
    """The kernel of an algorithm in rounds; ``given`` are the other fields of its declaration."""
    return KernelSpec(
        name=name,
        template="graph/rounds/rounds.jinja",
        doc=doc,
        arguments=_arguments(a),
        space=round_space(a),
        default=partial(round_default, a),
        variables=lambda problem, config, traits: {
            "a": a,
            "real": real_of(problem),
            "per_item": int(config["per_item"]),
            "fused_entries": fused_entries(a, config) if config["loop"] != "launches" else {},
            **_sizes(config, traits),
        },
        launch=shape,
        entries=partial(rounds_entries, a),
        program=partial(_program, a),
        **given,
    )


#: The declared algorithms in rounds by the names of their kernels.
ROUNDS = {"bfs": BFS, "sssp": SSSP, "widest": WIDEST, "cores": CORES}
