"""Declarations of the kernels that replace block_shared on tensor cores, with factors of 16 bits.

Dots use float16 factors for accuracy, since Z = 1 - delta - dot is small for dots near 1.  Sums use bfloat16 scales and
rows for range, since scales reach N / Z.  All sums are accumulated in single precision.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from mmsbgen.families.mmsb.axes import small_spaces as usual
from mmsbgen.families.mmsb.axes.common_axes import COMMON, common
from mmsbgen.families.mmsb.blocks import block_workloads, tensor_workloads
from mmsbgen.families.mmsb.numbers.row_layout import half_room, half_row, room, row_length
from mmsbgen.kernels.family import Argument, Launch, named
from mmsbgen.kernels.kit import teams
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Axis, Config, Constraint, Space, Traits

TILE_ROWS = Axis("tile_rows", (64, 128), "vertices of a block's tile")
TILE_COLUMNS = Axis("tile_columns", (64, 128, 256), "partners or coordinates of a block's tile")
DEPTH = Axis("depth", (32, 64), "terms of the sums that are copied at a time")
STAGES = Axis("stages", (2, 3, 4, 6), "such slices in flight or in use")
INSTRUCTION = Axis(
    "instruction",
    ("mma", "wgmma"),
    "who multiplies: every warp its fragments, or four warps together out of shared memory (sm_90)",
)

KNOWN = (
    *usual.KNOWN,
    Argument("own_factors", "u32", "in", "[m, row / 2] pi (beta - delta), two float16 a word"),
    Argument("shared_factors", "u32", "in", "[room, row / 2] partners' rows, two float16 a word"),
    Argument("shared_rows", "u32", "in", "[room, row / 2] partners' rows, two bfloat16 a word"),
    Argument("scales", "u32", "in", "[m, room / 2] what a partner's row counts, two bfloat16 a word"),
)
#: Largest number of sums per work-item; more would not stay in registers.
_MOST_SUMS = 128


def _tensor(config: Config, problem: Problem, traits: Traits) -> str | None:
    if traits.dialect != "cuda" or problem["dtype"] != "float32":
        return "tensor cores are for float32, on CUDA"
    return "blocks are of whole warps of 32" if int(config["block_size"]) % 32 else None


def _warps(config: Config) -> tuple[int, int]:
    """Numbers of warps along the rows and the columns of a block's tile."""
    warps = int(config["block_size"]) // 32
    if config["instruction"] == "wgmma":
        return warps, 1
    return (1, warps) if warps < 4 else (2, warps // 2)


def _four_warps(config: Config, traits: Traits) -> str | None:
    """An error message if wgmma cannot multiply such tiles, else None."""
    if not traits.warp_groups:
        return "wgmma is an instruction of sm_90 alone"
    if 2 * int(config["tile_rows"]) != int(config["block_size"]):
        return "wgmma has 64 rows of a tile for every four warps"
    if int(config["depth"]) != 64 or int(config["stages"]) < 3:
        return "wgmma takes slices of 64, one multiplied, one waited for and one copied"
    return None


def _tiles(config: Config, problem: Problem, traits: Traits) -> str | None:
    if int(config["block_size"]) not in (64, 128, 256):
        return "a tile is shared by 2, 4 or 8 warps"
    if config["instruction"] == "wgmma" and (reason := _four_warps(config, traits)):
        return reason
    rows, columns = _warps(config)
    high, wide = int(config["tile_rows"]) // rows, int(config["tile_columns"]) // columns
    if high % 16 or wide % 16:
        return f"a warp's part of {high} by {wide} is not made of fragments of 16 by 16"
    sums = high * wide // 32
    return f"{sums} sums a work-item; at most {_MOST_SUMS}" if sums > _MOST_SUMS else None


def _ring(config: Config, problem: Problem, traits: Traits) -> str | None:
    needed, most = tile_bytes(problem, config, traits), max(traits.local_memory, traits.launch_memory)
    return f"needs {needed} bytes of local memory a block, the device has {most}" if needed > most else None


def tile_bytes(problem: Problem, config: Config, traits: Traits) -> int:
    """Shared memory of a block: the ring of slices."""
    sides = int(config["tile_rows"]) + int(config["tile_columns"])
    return 2 * int(config["stages"]) * sides * int(config["depth"])


_TENSOR = Constraint("tensor cores", _tensor)
_ROWS = Space((teams.BLOCK_SIZE,), (*COMMON, _TENSOR))
TILES = Space(
    (TILE_ROWS, TILE_COLUMNS, DEPTH, STAGES, INSTRUCTION, teams.BLOCK_SIZE),
    (*COMMON, _TENSOR, Constraint("tiles", _tiles), Constraint("local memory", _ring)),
)


def _variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    return common(
        problem,
        config,
        traits,
        room=room(problem),
        HROOM=half_room(problem),
        HD=half_row(problem),
        stars=False,
        labels=False,
    )


def _tiles_across(problem: Problem, config: Config, b_layout: str) -> int:
    """Number of tiles along the columns: the coordinates of a row, or the partners."""
    width = row_length(problem.integer("K")) if b_layout == "rows" else half_room(problem)
    return -(-width // int(config["tile_columns"]))


def _tiled(kind: str, b_layout: str) -> Any:
    def variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
        rows, columns = _warps(config)
        return _variables(problem, config, traits) | {
            "kind": kind,
            "b_layout": b_layout,
            "TM": int(config["tile_rows"]),
            "TN": int(config["tile_columns"]),
            "DEPTH": int(config["depth"]),
            "stages": int(config["stages"]),
            "instruction": config["instruction"],
            "warps_m": rows,
            "warps_n": columns,
            "tiles": _tiles_across(problem, config, b_layout),
        }

    return variables


def launch_rows(extra: bool, per_row: int) -> Any:
    """Launch function with ``per_row`` work-items per vertex, and per partner if ``extra``; 0 means a block each."""

    def launch(problem: Problem, config: Config, count: int, traits: Traits) -> Launch:
        block = int(config["block_size"])
        rows = count + (half_room(problem) if extra else 0)
        return Launch(max(1, rows if per_row == 0 else -(-rows * per_row // block)), block)

    return launch


def _launch_tiles(b_layout: str) -> Any:
    def launch(problem: Problem, config: Config, count: int, traits: Traits) -> Launch:
        tiles = _tiles_across(problem, config, b_layout)
        grid = max(1, -(-count // int(config["tile_rows"])) * tiles)
        return Launch(grid, int(config["block_size"]), tile_bytes(problem, config, traits))

    return launch


def _rows_default(size: int) -> Any:
    return teams.first_valid([{"block_size": size}, {"block_size": 32}], _ROWS.refusal)


def tile(rows: int, columns: int, depth: int, stages: int, block: int, instruction: str = "mma") -> dict[str, Any]:
    """A configuration of :data:`TILES`."""
    sizes = {"tile_rows": rows, "tile_columns": columns, "depth": depth, "stages": stages, "block_size": block}
    return sizes | {"instruction": instruction}


_tiles_default = teams.first_valid(
    [
        tile(128, 128, 64, 3, 256, "wgmma"),
        tile(128, 128, 64, 2, 256),
        tile(128, 128, 32, 3, 256),
        tile(64, 64, 32, 2, 128),
        tile(64, 64, 32, 2, 64),
    ],
    TILES.refusal,
)


def _halves(problem: Problem) -> int:
    """Bytes of a padded row of 16-bit factors."""
    return 2 * half_row(problem)


_kernel = partial(
    usual.kernel,
    "blocks",
    variables=_variables,
    check_problem=tensor_workloads.small,
    used_with=usual.TENSOR,
    dialects=("cuda",),
)


BLOCK_FACTORS = _kernel(
    tensor_workloads.block_factors,
    "the factors of a block's products, 16 bits wide",
    named(
        KNOWN,
        "pi:in slots beta vertices shared n_shared own_factors:out shared_factors:out shared_rows:out",
        "n_vertices first_vertex delta",
    ),
    "K N m n dtype",
    lambda p: (
        (p.integer("m") + p.integer("n")) * usual.row_bytes(p) + (p.integer("m") + 2 * p.integer("n")) * _halves(p)
    ),
    space=_ROWS,
    default=_rows_default(128),
    launch=launch_rows(extra=True, per_row=0),
)

BLOCK_SCALES = _kernel(
    tensor_workloads.block_scales,
    "what each shared partner's row counts for each vertex of a block: dots on tensor cores, reweighed",
    named(KNOWN, "own_factors shared_factors shared_weights scales:out n_vertices delta"),
    "K N m n dtype",
    lambda p: (p.integer("m") + p.integer("n")) * _halves(p) + 2 * p.integer("m") * half_room(p),
    space=TILES,
    default=_tiles_default,
    variables=_tiled("f16", "columns"),
    launch=_launch_tiles("columns"),
)

BLOCK_STRIKE = _kernel(
    tensor_workloads.block_strike,
    "set the scales of pairs that must not inform to 0",
    named(
        KNOWN,
        "vertices n_shared drawn places neighbour_offsets neighbours held_offsets held_neighbours scales:inout",
        "n_vertices first_vertex",
    ),
    "N m n dtype",
    lambda p: p.integer("m") * (block_workloads.MEAN_DEGREE + 1) * 12,
    space=_ROWS,
    default=_rows_default(256),
    launch=launch_rows(extra=False, per_row=32),
)

BLOCK_SUMS = _kernel(
    tensor_workloads.block_sums,
    "the shared partners' part of the gradient of every vertex of a block, on tensor cores",
    named(
        KNOWN,
        "pi",
        Argument("spares", "u32", "in", "[m] free slots; they receive the sums"),
        "scales shared_rows n_shared n_vertices",
    ),
    "K N m n dtype",
    lambda p: p.integer("n") * _halves(p) + 2 * p.integer("m") * half_room(p) + p.integer("m") * usual.row_bytes(p),
    space=TILES,
    default=_tiles_default,
    variables=_tiled("bf16", "rows"),
    launch=_launch_tiles("rows"),
)

#: In the order of their launches, after shared_partners and before block_links.
KERNELS = (BLOCK_FACTORS, BLOCK_SCALES, BLOCK_STRIKE, BLOCK_SUMS)
