"""The kernels of algorithms in rounds: entry points, axes, and the program that launches them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from mmsbgen.families.graph.declare import ARCS_IN, ARCS_OUT, STEP, N, Rounds
from mmsbgen.families.graph.launched_rounds import LaunchedRounds, fused_entries, scalars
from mmsbgen.kernels.family import Argument, KernelSpec, Launch
from mmsbgen.kernels.host_program import Launches
from mmsbgen.kernels.kit import reals, teams
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Axis, Config, Constraint, Space, Traits

#: Up to so many cores, one work-item without atomics is faster than all with them.
_FEW_UNITS = 4
#: Blocks of a fused loop zero counters together.
_FEWEST_ITEMS = 8
_WARP, _RESIDENT = 32, 2048

BLOCK = Axis("block_size", (1, 8, 64, 256, 1024), "work-items of a block")
PER_ITEM = Axis("per_item", (1, 16, 64, 256), "vertices in a row that a work-item takes")
PER_UNIT = Axis("blocks_per_unit", (1, 2, 4, 8), "blocks of a fused loop for each compute unit; 1 without")
LOOP = Axis(
    "loop",
    ("launches", "phases", "whole"),
    "rounds by launches, or many in one: of one kind (phases), or of all (whole)",
)
_TEAM = Axis(
    "team",
    ("item", "warp", "grid", "merge"),
    "who takes the arcs of a vertex that pushes: a work-item; in a fused loop a warp, or many warps if there are many; "
    "by launches all blocks, which take equal numbers of arcs (merge)",
)
_WALK = Axis("walk", (0, 64, 1024, 16384, 1 << 30), "largest frontier that one work-item (fused: one block) has alone")
_FRONTIER = Axis(
    "frontier",
    ("queue", "scan", "bins"),
    "whether rounds list the next frontier, a scan finds it, or work-items have bins for it and a scan is for overflow",
)
_DIRECTION = Axis("direction", ("push", "auto", "pull"), "arcs out of the frontier, or arcs into what is left")
_TO_PULL = Axis("to_pull", (4, 15, 60), "a round pulls if its arcs are more than this fraction of those left")
_VISITED = Axis(
    "visited", ("state", "bitmap"), "what tells a fused pull who is reached: the state, or a bit for each vertex"
)
_WIDTH = Axis("width", (0, 1, 4, 16, 64), "width of a window of distances in mean weights; 0: one window has all")

_ALONE: dict[str, Any] = {
    "block_size": 1,
    "per_item": 1,
    "frontier": "queue",
    "direction": "push",
    "to_pull": 15,
    "team": "item",
}


def _walks_alone(config: Config, problem: Problem, traits: Traits) -> str | None:
    """One work-item alone needs no other axis; each such configuration is there once."""
    if config["walk"] != _WALK.values[-1]:
        return None
    if config["loop"] != "launches":
        return "one block alone is a loop of one block: walk must be less"
    odd = [name for name, value in _ALONE.items() if config.get(name, value) != value]
    return f"one work-item does all: {odd[0]} must be {_ALONE[odd[0]]}" if odd else None


def _fused(config: Config, problem: Problem, traits: Traits) -> str | None:
    if config["loop"] == "launches":
        if config["team"] not in ("item", "merge"):
            return "only fused loops have it: team must be item or merge"
        return None if config["blocks_per_unit"] == 1 else "only fused loops have it: blocks_per_unit must be 1"
    if config["team"] == "merge":
        return "sums of degrees need launches of their own: team must be item, warp or grid"
    if config["per_item"] != 1 or config["frontier"] != "queue":
        return "fused loops spread a listed frontier over all items: per_item must be 1, and frontier queue"
    if config["loop"] == "phases" and config.get("direction", "auto") != "auto":
        return "rounds of one direction are one phase: loop must be whole"
    return fits(config, traits) or _of_one_group(config, traits)


def fits(config: Config, traits: Traits) -> str | None:
    """Why blocks of this size cannot be those of a fused loop, or None."""
    block = int(config["block_size"])
    if traits.dialect == "cuda":
        if block < _WARP:
            return f"its teams are warps: block_size must be at least {_WARP}"
        threads = block * int(config["blocks_per_unit"])
        return (
            f"{threads} work-items on a multiprocessor, which has at most {_RESIDENT}" if threads > _RESIDENT else None
        )
    if block < _FEWEST_ITEMS:
        return f"block_size must be at least {_FEWEST_ITEMS}"
    if config["blocks_per_unit"] != 1:
        return "groups of OpenCL cannot wait for each other, so there is one: blocks_per_unit must be 1"
    return None


def _of_one_group(config: Config, traits: Traits) -> str | None:
    if traits.dialect == "cuda":
        return None
    if config["walk"] != 0:
        return "a group of OpenCL is always alone: walk must be 0"
    return "OpenCL 1.2 has no warps: team must be item or grid" if config["team"] == "warp" else None


def _direction(config: Config, problem: Problem, traits: Traits) -> str | None:
    if config["direction"] != "auto" and config["to_pull"] != 15:
        return "only direction=auto changes it: to_pull must be 15"
    if config["direction"] == "pull" and config["frontier"] == "scan":
        return "rounds that pull list the frontier: frontier must be queue"
    if config["direction"] == "pull" and config["team"] != "item":
        return "nothing pushes: team must be item"
    return None


def _visited(config: Config, problem: Problem, traits: Traits) -> str | None:
    if config["visited"] == "state":
        return None
    if traits.dialect != "cuda" or config["loop"] == "launches":
        return "warps of a fused loop make the bits: visited must be state"
    return "nothing pulls: visited must be state" if config["direction"] == "push" else None


def round_space(a: Rounds) -> Space:
    """The axes of an algorithm with their constraints."""
    axes = [LOOP, BLOCK, PER_ITEM, _WALK, _FRONTIER, _TEAM, PER_UNIT]
    checks: list[tuple[str, Callable[..., str | None]]] = [("loop", _fused), ("walk", _walks_alone)]
    if a.pulls:
        axes += [_DIRECTION, _TO_PULL, _VISITED]
        checks += [("direction", _direction), ("visited", _visited)]
    if a.refill == "window":
        axes.append(_WIDTH)
    return Space(tuple(axes), (teams.BLOCK_FITS, *(Constraint(name, check) for name, check in checks)))


def round_default(a: Rounds, problem: Problem, traits: Traits) -> Config:
    """The configuration without records."""
    gpu, cuda = traits.kind == "gpu", traits.dialect == "cuda"
    # On an H100 a barrier of few blocks is what a round of few vertices needs, and large rounds fill the device.
    large = cuda and problem["shape"] == "large"
    found: dict[str, Any] = {
        "loop": "whole" if cuda else "launches",
        "team": "grid" if cuda else "item",
        "blocks_per_unit": (2 if a.refill == "least" else 8) if large else 1,
        "block_size": 256 if cuda else 64 if gpu else 1,
        "per_item": 1 if gpu else 64,
        "walk": 64 if gpu else 1024,
        "frontier": "queue",
    }
    if a.pulls:
        found |= {"direction": "auto", "to_pull": 15, "visited": "bitmap" if cuda else "state"}
    if a.refill == "window":
        found["width"] = 16 if cuda else 4 if gpu else 1
    if a.refill and not gpu and traits.compute_units <= _FEW_UNITS:
        found |= {"walk": _WALK.values[-1], "per_item": 1}
    return found


_WEIGHTS = Argument("weights", "real", "in", "[A] weight of each arc")
_SEEN = Argument("visited", "u32", "inout", "[2 ceil(n / 32)] a bit for each vertex, before and after a round")
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
    return teams.launch_of(count, block * int(config["per_item"]), block)


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
    return (*ARCS_OUT, *weights, *((*ARCS_IN, _SEEN) if a.pulls else ()), *a.state, _QUEUE, _NEXT, _COUNTS, *more)


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
            "real": reals.real_name(problem),
            "per_item": int(config["per_item"]),
            "fused_entries": fused_entries(a, config) if config["loop"] != "launches" else {},
            **_sizes(config, traits),
        },
        launch=shape,
        entries=partial(rounds_entries, a),
        program=partial(_program, a),
        **given,
    )
