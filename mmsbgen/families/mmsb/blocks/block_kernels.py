"""Declarations of the kernels of block mini-batches."""

from __future__ import annotations

from typing import Any

from mmsbgen.families.mmsb.axes import common_axes as axes
from mmsbgen.families.mmsb.axes import small_spaces as usual
from mmsbgen.families.mmsb.blocks import block_workloads
from mmsbgen.families.mmsb.numbers.row_layout import ROW_MULTIPLE, room, row_length
from mmsbgen.kernels.family import Argument, Launch
from mmsbgen.kernels.kit import reals, teams
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Axis, Config, Constraint, Space, Traits

# Stage 2 ------------------------------------------------------------------------------------------------------


_SHARED_SPACE = Space((teams.BLOCK_SIZE,), (*axes.COMMON, teams.local_memory(lambda p, c, t: 4 * int(c["block_size"]))))

SHARED_PARTNERS = usual.kernel(
    "blocks",
    block_workloads.shared_partners,
    "draw the partners that all vertices of a block share",
    usual.arguments(
        "slots",
        Argument("draws", "u32", "out", "[n] every draw"),
        Argument("times", "u32", "out", "[n] how often each distinct vertex was drawn"),
        Argument("drawn", "u32", "out", "[n] the distinct vertices, in the order of their first draws"),
        Argument("places", "u32", "inout", "[N] where a vertex is among them; anything for others"),
        Argument("shared", "u32", "out", "[room] slots of their rows"),
        "shared_weights:out",
        Argument("n_shared", "u32", "out", "[1] how many distinct vertices there are"),
        Argument("n_partners", "u32", "scalar", "n, draws of the block"),
        "n_total seed iteration",
    ),
    "N n dtype",
    lambda p: p.integer("n") * (5 * 4 + reals.real_bytes(p)),
    space=_SHARED_SPACE,
    default=usual.defaults(_SHARED_SPACE, {"block_size": 512}, {"block_size": 1}),
    variables=lambda problem, config, traits: axes.common(problem, config, traits, room=room(problem), stars=False),
    launch=lambda problem, config, count, traits: Launch(1, int(config["block_size"])),
    check_problem=block_workloads.small,
    used_with=usual.SHARED,
)

# Stage 3, non-links -------------------------------------------------------------------------------------------

TILE_TEAM = Axis("team", ("item", "block"), "who has a tile of vertices: one work-item, or a block")
TILE = Axis("tile", (1, 2, 4, 8, 16), "vertices of a tile")
IN_FLIGHT = Axis("partners_in_flight", (1, 2, 4, 8), "partners of a work-item between two sums")
PANEL = Axis("panel", (64, 256, 1024), "shared partners whose weights a tile keeps at a time")

#: Coordinates of rows that a block processes at a time; the row length is a multiple.
_SLICE = ROW_MULTIPLE
#: Largest number of sums per work-item, by kind of device; more would not stay in registers.
_MOST_SUMS = {"cpu": 32, "gpu": 64}
#: Limit in bytes of a block's thread-local arrays on a CPU.
_PRIVATE_BYTES = 1 << 20


def _sizes(config: Config) -> tuple[int, int, int, int]:
    names = ("tile", "partners_in_flight", "block_size", "vector_width")
    return tuple(int(config[name]) for name in names)  # type: ignore[return-value]


def _tile(config: Config, problem: Problem, traits: Traits) -> str | None:
    tile, partners, block, width = _sizes(config)
    pairs, most = tile * partners, _MOST_SUMS.get(traits.kind, 64)
    if pairs > most:
        return f"{pairs} sums a work-item; at most {most}"
    if config["team"] == "block":
        vectors = axes.row_vectors(problem, config)
        if block > max(vectors, 32):
            return f"{block} work-items for rows of {vectors} vectors: most would idle"
        return None
    if traits.kind != "cpu":
        return "a tile a work-item is for CPUs"
    if pairs % width:
        return f"sums of {pairs} pairs do not fill vectors of {width}"
    each = tile * (int(config["panel"]) * reals.real_bytes(problem) + usual.row_bytes(problem))
    # Intel's runtime 2026.22 combines work-items into vectors at any vector width if rows have at most two vectors.
    short = "Intel" in traits.platform and axes.row_vectors(problem, config) <= 2
    if reason := teams.vectorised_memory(each, {**config, "vector_width": 1} if short else config):
        return reason
    needed = block * each
    return f"{needed} bytes of thread-local arrays; at most {_PRIVATE_BYTES}" if needed > _PRIVATE_BYTES else None


def _panel(config: Config, problem: Problem, traits: Traits) -> str | None:
    panel = int(config["panel"])
    smaller = max((int(value) for value in PANEL.values if int(value) < panel), default=0)
    if 0 < problem.integer("n") <= smaller:
        return f"a panel of {smaller} holds all {problem.integer('n')} partners"
    return None


def tile_bytes(problem: Problem, config: Config, traits: Traits) -> int:
    """Local memory of a block in bytes: its scales, and a slice of its own rows and of partners' rows."""
    if config["team"] == "item":
        return 0
    tile, partners, block, _ = _sizes(config)
    panel = int(config["panel"])
    elements = panel * tile + _SLICE * tile + block * partners * (_SLICE + 1)
    return elements * reals.real_bytes(problem)


_TILE_SPACE = Space(
    (TILE_TEAM, TILE, IN_FLIGHT, PANEL, teams.VECTOR_WIDTH, teams.BLOCK_SIZE),
    (
        *axes.COMMON,
        *(c for c in axes.ROW_TEAM if c.name == "vector width"),
        Constraint("tile", _tile),
        Constraint("panel", _panel),
        teams.local_memory(tile_bytes),
    ),
)


def _tile_variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    tile, partners, block, width = _sizes(config)
    return axes.common(
        problem,
        config,
        traits,
        team=config["team"],
        T=block if config["team"] == "block" else 1,
        tile=tile,
        partners=partners,
        panel=int(config["panel"]),
        slice=_SLICE,
        stars=False,
        labels=False,
        flight=min(partners, row_length(problem.integer("K")) // width),
    )


def _launch_tiles(problem: Problem, config: Config, count: int, traits: Traits) -> Launch:
    tile, _, block, _ = _sizes(config)
    tiles = -(-count // tile)
    return Launch(max(1, tiles if config["team"] == "block" else -(-tiles // block)), block)


def _tiles(team: str, tile: int, partners: int, width: int, block: int) -> list[dict[str, Any]]:
    names = ("team", "tile", "partners_in_flight", "vector_width", "block_size")
    values = dict(zip(names, (team, tile, partners, width, block), strict=True))
    return [values | {"panel": panel} for panel in (1024, 256, 64)]


_ANY_TILE = [*_tiles("block", 4, 1, 1, 32), *_tiles("block", 1, 1, 1, 1)]
_TILES_CPU = [*_tiles("item", 4, 4, 16, 1), *_tiles("item", 2, 4, 8, 1), *_ANY_TILE]
_TILES_GPU = [
    *_tiles("block", 16, 2, 4, 128),
    *_tiles("block", 8, 2, 4, 128),
    *_tiles("block", 8, 2, 1, 128),
    *_tiles("block", 8, 2, 1, 32),
    *_ANY_TILE,
]


def _tile_default() -> usual.Chooser:
    cpu, gpu = (teams.first_valid(candidates, _TILE_SPACE.refusal) for candidates in (_TILES_CPU, _TILES_GPU))
    return lambda problem, traits: (cpu if traits.kind == "cpu" else gpu)(problem, traits)


BLOCK_SHARED = usual.kernel(
    "blocks",
    block_workloads.block_shared,
    "the shared partners' part of the gradient of every vertex of a block: two dense products",
    usual.arguments(
        "pi slots spares beta vertices shared shared_weights n_shared drawn places neighbour_offsets neighbours",
        "held_offsets held_neighbours n_vertices first_vertex delta",
    ),
    "K N m n dtype",
    lambda p: (2 * p.integer("m") + p.integer("n")) * usual.row_bytes(p),
    space=_TILE_SPACE,
    default=_tile_default(),
    variables=_tile_variables,
    launch=_launch_tiles,
    check_problem=block_workloads.small,
    used_with=usual.SHARED | {"products": ("single",)},
)
