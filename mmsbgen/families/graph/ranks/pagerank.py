"""PageRank by rounds that pull."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.families.graph import inputs
from mmsbgen.families.graph.declare import ARCS_IN, IN_WEIGHTS, N
from mmsbgen.families.graph.ranks import tiles
from mmsbgen.families.graph.round_kernels import BLOCK, LOOP, PER_ITEM, PER_UNIT, fits, shape
from mmsbgen.families.graph.sweeps import plain_default, plain_variables
from mmsbgen.kernels.family import Argument, KernelSpec
from mmsbgen.kernels.host_program import Launches
from mmsbgen.kernels.kit import reals, teams
from mmsbgen.kernels.problem import Problem, Value
from mmsbgen.kernels.space import Axis, Config, Constraint, Space, Traits

#: Places of ``settings``.
ALPHA, TOLERANCE, MOST_ROUNDS, LOST, ROUNDS, CHANGE = range(6)

_SUMS = Axis("sums", (1, 2, 4), "sums of a vertex that are added up side by side")

_SHARES = (
    Argument("share", "real", "inout", "[n] rank over the weight of all arcs out"),
    Argument("share_next", "real", "inout", "[n] the same after this round"),
)
_RANKS = (
    *ARCS_IN,
    IN_WEIGHTS,
    *_SHARES,
    Argument("rank", "real", "inout", "[n]"),
    Argument("inverse_out", "real", "in", "[n] 1 / weight of all arcs out; 0 without any"),
    Argument("restart", "real", "in", "[n] where walks begin again, sums to 1"),
    Argument("dangling_to", "real", "in", "[n] where walks go on that have no arc, sums to 1"),
    Argument("slots", "real", "inout", "[n + 4096, 2] change and rank without arcs out, of each block"),
)
_HUBS = (
    Argument("hubs", "u32", "in", "[1 + H] their number, then the vertices with many arcs in"),
    Argument("partial", "real", "inout", "[64 H] sums of parts of their arcs"),
    Argument("arrived", "u32", "inout", "[1] blocks that came to barriers"),
)
_PLACES = Argument("places", "u32", "in", "[n] place of each vertex's share: by falling number of arcs out")
_SOURCE_PLACES = Argument("source_places", "u32", "in", "[A] place of the share that each arc brings")
_PLACED = Argument("source_places", "u32", "inout", "[A] place of the share that each arc brings")
_ARRANGES = (_PLACED, Argument("arranged", "u32", "in", "[1] how arcs are arranged, for the host; 0 before they are"))
_SETTINGS = Argument("settings", "real", "inout", "[6] alpha, tolerance, rounds, dangling rank; then rounds, change")
_ALPHA = Argument("alpha", "real", "scalar", "probability that a walk goes on")
_FUSED = (
    Argument("tolerance", "real", "scalar", "rounds end at a change below"),
    Argument("first_dangling", "real", "scalar", "rank of all vertices without arcs out"),
    Argument("most_rounds", "u32", "scalar", "rounds of this launch"),
)
_LOOP = Axis("loop", LOOP.values[::2], "rounds by launches, or many in one (whole)")
_LANES = Axis(
    "lanes",
    (1, 4, 8, 32, 0),
    "work-items that share the arcs in of a vertex in a fused loop; 0: those of a warp share those of 32 vertices",
)
_ORDER = Axis(
    "order", ("given", "degree"), "whether shares lie as vertices are numbered, or those read most come first"
)
_CACHING = Axis(
    "caching", ("all", "shares"), "what caches keep in a fused loop: all that is read, or shares and no arcs"
)
_BALANCE = Axis(
    "balance",
    ("rows", "merge", "tiles"),
    "whether a fused loop goes over vertices, or equal chunks of arcs, sorted by vertices or by tiles of shares",
)
_HELD = Axis("held", (0, 64, 104, 208), "KiB of the first shares that each block of a fused loop keeps in local memory")
#: Memory of a multiprocessor that the driver takes for each block.
_OF_DRIVER = 1024
#: Blocks that have a row of slots, twice; vertices of the rounds of one launch, so that the host can stop it.
MOST_BLOCKS, MOST_AT_ONCE = 2048, 1 << 28
#: Blocks for each compute unit that find the places of arcs.
_PIECES = 16
_DANGLING = Argument("dangling", "real", "scalar", "rank of all vertices without arcs out")


def _rank(on: Launches) -> None:
    """Rounds until the sum of changes is below the tolerance."""
    settings = on.read("settings")
    if on.config["order"] == "degree":
        _arrange(on)
    if on.config["loop"] == "whole":
        _rank_fused(on, settings)
        return
    block, per_item = int(on.config["block_size"]), int(on.config["per_item"])
    blocks = -(-on.count // (block * per_item))
    lost, change, rounds = settings[LOST], np.inf, 0
    while rounds < settings[MOST_ROUNDS] and not change < settings[TOLERANCE]:
        given = {"n": np.uint32(on.count), "alpha": settings[ALPHA], "dangling": settings.dtype.type(lost)}
        on.launch("rank", blocks, block, **given)
        on.swap("share", "share_next")
        change, lost = on.read("slots", blocks).sum(axis=0, dtype=np.float64)
        rounds += 1
    settings[[ROUNDS, CHANGE]] = rounds, change
    on.write("settings", settings)


def _arrange(on: Launches) -> None:
    """Arcs once a graph, shares at the begin of each call."""
    grid, block, n = on.traits.compute_units * _PIECES, int(on.config["block_size"]), np.uint32(on.count)
    was = int(on.read("arranged")[0])
    if was == 0:
        on.launch("arrange", grid, block, n=n)
    wanted = max(1, was)
    if on.config["balance"] != "rows":
        # By nothing but vertices, or by tiles of so many places, which are 0 if none are held; and which weights.
        tiled = on.config["balance"] == "tiles"
        wanted = 2 + 2 * tiled * (1 + _held(on.problem, on.config)) + (on.problem["dtype"] == "float64")
        if wanted != was:
            tiles.sort_arcs(on, tiles.TILES + 1 if tiled else 1)
    on.write("arranged", np.full(1, wanted, np.uint32))
    on.launch("place", grid, block, n=n)
    on.swap("share", "share_next")


def _rank_fused(on: Launches, settings: NDArray[Any]) -> None:
    """The same by few launches, each of so many rounds that the host can stop them."""
    block = int(on.config["block_size"])
    grid = on.traits.compute_units * int(on.config["blocks_per_unit"]) if on.traits.dialect == "cuda" else 1
    grid, held = min(grid, MOST_BLOCKS), int(on.config["held"]) * 1024
    if grid > 1:
        grid = min(grid, on.resident_blocks("ranks", block, held))
    # The barrier counts arrivals in 32 bits.
    rounds, at_once = 0, min(1 << 16, max(1, MOST_AT_ONCE // on.count))
    settings[CHANGE] = np.inf
    while rounds < settings[MOST_ROUNDS] and not settings[CHANGE] < settings[TOLERANCE]:
        most = np.uint32(min(at_once, settings[MOST_ROUNDS] - rounds))
        given = {"n": np.uint32(on.count), "alpha": settings[ALPHA], "tolerance": settings[TOLERANCE]}
        on.write("arrived", np.zeros(1, np.uint32))
        on.launch_cooperative("ranks", grid, block, held, **given, first_dangling=settings[LOST], most_rounds=most)
        settings = on.read("settings")
        if int(settings[ROUNDS]) % 2:
            on.swap("share", "share_next")
        rounds += int(settings[ROUNDS])
        on.barriers += int(settings[ROUNDS]) * (grid > 1)  # one or more a round
    settings[ROUNDS] = rounds
    on.write("settings", settings)


def _rank_entries(config: Config) -> dict[str, tuple[Argument, ...]]:
    given: tuple[Argument, ...] = _RANKS
    entries: dict[str, tuple[Argument, ...]] = {}
    if config["order"] == "degree":
        entries["arrange"] = (*ARCS_IN, _PLACES, *_ARRANGES, N)
        entries["place"] = (_PLACES, *_SHARES, N)
        given = (ARCS_IN[0], _SOURCE_PLACES, _PLACES, *_RANKS[len(ARCS_IN) :])
    if config["loop"] == "launches":
        return entries | {"rank": (*given, N, _ALPHA, _DANGLING)}
    hubs: tuple[Argument, ...] = _HUBS
    if config["balance"] != "rows":
        sort = (*given[:2], IN_WEIGHTS, *tiles.SORTS, N)
        entries |= {"count": sort, "fill": sort}
        hubs = (*tiles.ADDS, _HUBS[-1])
    return entries | {"ranks": (*given, *hubs, _SETTINGS, N, _ALPHA, *_FUSED)}


def _rank_variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    fused: dict[str, Any] = {
        "hub": inputs.HUB,
        "parts": inputs.PARTS,
        "slots": MOST_BLOCKS,
        "held": _held(problem, config),
    }
    fused |= {"tiles": None, "chunk": tiles.CHUNK, "part": tiles.PART}
    if config["balance"] != "rows":
        fused |= {"hub": tiles.CUT, "tiles": tiles.TILES if config["balance"] == "tiles" else 0}
    arranged = {"arranged": config["order"] == "degree", "streamed": config["caching"] == "shares"}
    return plain_variables(problem, config, traits) | arranged | (fused if config["loop"] == "whole" else {})


def _held(problem: Problem, config: Config) -> int:
    """The shares that a block holds."""
    return int(config["held"]) * 1024 // reals.real_bytes(problem)


def _rank_held(config: Config, problem: Problem, traits: Traits) -> str | None:
    if config["held"] == 0:
        return None
    if config["loop"] == "launches" or traits.dialect != "cuda" or config["order"] == "given":
        return "only fused loops of CUDA hold shares, of order=degree: held must be 0"
    sums = 2 * int(config["block_size"]) * reals.real_bytes(problem)
    block = int(config["held"]) * 1024 + sums
    if (block + _OF_DRIVER) * int(config["blocks_per_unit"]) > traits.launch_memory + _OF_DRIVER:
        return (
            f"{config['blocks_per_unit']} blocks need {block} bytes each of the {traits.launch_memory} of local memory"
        )
    return None


def _rank_balance(config: Config, problem: Problem, traits: Traits) -> str | None:
    if config["balance"] == "rows":
        return None
    if config["loop"] == "launches" or config["order"] == "given":
        return "only fused loops of order=degree have chunks: balance must be rows"
    if problem.integer("n") >= 1 << 31:
        return "bit 31 of a place tells where sums end, and n needs it: balance must be rows"
    return None


def _rank_caching(config: Config, problem: Problem, traits: Traits) -> str | None:
    if config["caching"] == "all" or (config["loop"] == "whole" and traits.dialect == "cuda"):
        return None
    return "only fused loops of CUDA tell caches what to keep: caching must be all"


def _rank_loop(config: Config, problem: Problem, traits: Traits) -> str | None:
    if config["loop"] == "launches":
        odd = [name for name in ("lanes", "blocks_per_unit") if config[name] != 1]
        return f"only fused loops have it: {odd[0]} must be 1" if odd else None
    if config["per_item"] != 1:
        return "fused loops spread vertices over all items: per_item must be 1"
    if config["lanes"] != 1 and traits.dialect != "cuda":
        return "OpenCL 1.2 has no warps: lanes must be 1"
    return fits(config, traits)


def _rank_default(problem: Problem, traits: Traits) -> Config:
    found: dict[str, Value]
    if traits.dialect != "cuda":
        found = {**plain_default(problem, traits), "loop": "launches", "sums": 1, "lanes": 1, "blocks_per_unit": 1}
        return found | {"order": "given", "caching": "all", "balance": "rows", "held": 0}
    found = {"loop": "whole", "block_size": 256, "per_item": 1, "sums": 4, "blocks_per_unit": 4}
    found |= {"lanes": 0, "order": "given", "caching": "all", "balance": "rows", "held": 0}
    if problem["shape"] != "large":
        return found | {"lanes": 1 if problem["shape"] == "grid" else 0}
    # Shares are more than caches keep: those read most come first, and stay in local memory where there is much.
    found |= {"order": "degree", "caching": "shares"}
    held = found | {"block_size": 1024, "blocks_per_unit": 1, "held": 104}
    return held if _rank_held(held, problem, traits) is None else found


def pagerank_kernel(**given: Any) -> KernelSpec:
    """PageRank by rounds that pull."""
    arranged = (replace(one, role="kept") for one in _ARRANGES)
    checks = {"loop": _rank_loop, "caching": _rank_caching, "balance": _rank_balance, "held": _rank_held}
    return KernelSpec(
        name="pagerank",
        template="graph/ranks/ranks.jinja",
        doc="rank of each vertex: how often a random walk that begins again now and then visits it",
        arguments=(*_RANKS, *_HUBS, _PLACES, *arranged, *tiles.LAYOUT, _SETTINGS),
        space=Space(
            (_LOOP, BLOCK, PER_ITEM, _SUMS, _LANES, PER_UNIT, _ORDER, _CACHING, _BALANCE, _HELD),
            (teams.BLOCK_FITS, *(Constraint(name, check) for name, check in checks.items())),
        ),
        default=_rank_default,
        variables=_rank_variables,
        launch=shape,
        entries=_rank_entries,
        program=_rank,
        **given,
    )
