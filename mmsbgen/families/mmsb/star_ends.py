"""Declaration of star_ends: the sums over shared partners and the ends of the rows in one kernel, on tensor cores.

For partners among which links are labelled: where links have a stratum, their rows are read between the two.
"""

from __future__ import annotations

from typing import Any

from mmsbgen.families.mmsb import star_workloads, tensor_workloads
from mmsbgen.families.mmsb.axes import BLOCK_SIZE, COMMON, common, first_valid
from mmsbgen.families.mmsb.layout import row_length
from mmsbgen.families.mmsb.shared import (
    BETA,
    CLIP_COUNTS,
    DELTA,
    FIRST_VERTEX,
    HALF,
    N_VERTICES,
    RANDOM,
    ROW_SUMS,
    ROWS,
    SLOTS,
    STEP,
    VERTICES,
    row_bytes,
)
from mmsbgen.families.mmsb.star_shared import LABELS, N_SHARED, SHARED_ROUND
from mmsbgen.families.mmsb.tensor_kernels import DEPTH, STAGES, tile_bytes
from mmsbgen.families.mmsb.tensor_workloads import half_room, half_row
from mmsbgen.families.mmsb.update_phi import HOLDS
from mmsbgen.family import Argument, KernelSpec, Launch
from mmsbgen.problem import Problem
from mmsbgen.space import Axis, Config, Constraint, Space, Traits

__all__ = ["STAR_ENDS", "usable"]

_TILE_ROWS = Axis("tile_rows", (32, 64), "vertices of a block's tile")
_TILE_COLUMNS = Axis("tile_columns", (128, 256, 512), "coordinates of a block's tile; a cluster has whole rows")

#: Rows of a warp's part of a tile.
_HIGH = 32
#: A work-item's part of a tile; more would not stay in registers beside what the end of a row takes.
_MOST_SUMS = 128
#: Blocks of a cluster that every device with clusters has.
_MOST_BLOCKS = 8
#: Shared memory of the sums of rows.
_SUM_BYTES = 8192


def _blocks(problem: Problem, config: Config) -> int:
    """Blocks that have whole rows together."""
    return -(-row_length(problem.integer("K")) // int(config["tile_columns"]))


def _warps(config: Config) -> tuple[int, int]:
    """Warps of a block over the rows and over the columns of its tile."""
    down = int(config["tile_rows"]) // _HIGH
    return down, int(config["block_size"]) // 32 // down


def _tensor(config: Config, problem: Problem, traits: Traits) -> str | None:
    if traits.dialect != "cuda" or problem["dtype"] != "float32":
        return "tensor cores are for float32, on CUDA"
    return None


def _tile(config: Config, problem: Problem, traits: Traits) -> str | None:
    block, depth = int(config["block_size"]), int(config["depth"])
    if block not in (128, 256, 512):
        return "a tile is shared by 4, 8 or 16 warps"
    _, across = _warps(config)
    wide, rest = divmod(int(config["tile_columns"]), across)
    if rest or wide % 16:
        part = int(config["tile_columns"]) / across
        return f"a warp's part of {_HIGH} by {part:g} is not made of fragments of 16 by 16"
    if wide > _MOST_SUMS:
        return f"{wide} sums a work-item; at most {_MOST_SUMS}"
    if int(config["tile_rows"]) * depth // 8 % block:
        return f"a slice of {config['tile_rows']} rows by {depth} is not copied in equal parts by {block} work-items"
    return None


def _cluster(config: Config, problem: Problem, traits: Traits) -> str | None:
    blocks = _blocks(problem, config)
    if blocks > 1 and not traits.warp_groups:
        return f"rows in {blocks} blocks need clusters of blocks (sm_90)"
    return f"rows in {blocks} blocks; a cluster has at most {_MOST_BLOCKS}" if blocks > _MOST_BLOCKS else None


def _bytes(problem: Problem, config: Config, traits: Traits) -> int:
    """Shared memory of a block: the ring of slices, and where it was, the tile of the rows before."""
    tile = 4 * int(config["tile_rows"]) * int(config["tile_columns"])
    return max(tile_bytes(problem, config, traits), tile)


def _memory(config: Config, problem: Problem, traits: Traits) -> str | None:
    needed, most = _bytes(problem, config, traits), max(traits.local_memory, traits.launch_memory) - _SUM_BYTES
    return f"needs {needed} bytes of local memory a block, the device has {most}" if needed > most else None


SPACE = Space(
    (_TILE_ROWS, _TILE_COLUMNS, DEPTH, STAGES, BLOCK_SIZE),
    (
        *COMMON,
        Constraint("tensor cores", _tensor),
        Constraint("tile", _tile),
        Constraint("cluster", _cluster),
        Constraint("local memory", _memory),
    ),
)


def _variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    down, across = _warps(config)
    columns = int(config["tile_columns"])
    draws = problem["step"] == "split" and problem["noise"] == "on"
    each = columns // across // 2
    return common(
        problem,
        dict(config) | {"vector_width": 4},
        traits,
        kind="bf16",
        b_layout="rows",
        instruction="mma",
        TM=int(config["tile_rows"]),
        TN=columns,
        FM=_HIGH // 16,
        FN=columns // across // 8,
        C=_blocks(problem, config),
        DEPTH=int(config["depth"]),
        stages=int(config["stages"]),
        warps_m=down,
        warps_n=across,
        HROOM=half_room(problem),
        HD=half_row(problem),
        step=problem["step"],
        queue=each if draws else 0,
        holds=HOLDS,
        unrolled=True,
        chunks=columns // across // 8,
    )


def _launch(problem: Problem, config: Config, count: int, traits: Traits) -> Launch:
    grid = max(1, -(-count // int(config["tile_rows"]))) * _blocks(problem, config)
    return Launch(grid, int(config["block_size"]), _bytes(problem, config, traits))


def _tiled(rows: int, columns: int, depth: int, stages: int, block: int) -> dict[str, Any]:
    return {"tile_rows": rows, "tile_columns": columns, "depth": depth, "stages": stages, "block_size": block}


#: From small ones, that have short rows whole, to those of which the fewest blocks read the partners' rows.
_DEFAULTS = [
    *(_tiled(64, 128, 64, 3, 128), _tiled(64, 128, 32, 2, 128), _tiled(32, 128, 32, 2, 128)),
    *(_tiled(64, 256, 64, 3, 256), _tiled(64, 256, 32, 2, 256)),
    *(_tiled(64, 512, 32, 3, 256), _tiled(64, 512, 64, 3, 512)),
]


def _default(problem: Problem, traits: Traits) -> Config:
    """The smallest tile that has whole rows, else the largest one."""
    length = row_length(problem.integer("K"))
    whole = [each for each in _DEFAULTS if int(each["tile_columns"]) >= length]
    return first_valid(whole + _DEFAULTS[::-1], SPACE.refusal)(problem, traits)


def usable(problem: Problem, traits: Traits) -> bool:
    """Whether a device has a configuration of the kernel for a problem."""
    return next(iter(SPACE.configs(problem, traits)), None) is not None


STAR_ENDS = KernelSpec(
    name="star_ends",
    template="mmsb/star_ends.jinja",
    doc="the sums over shared partners, on tensor cores, and the ends of a star's rows, written where they were",
    arguments=(
        ROWS,
        ROW_SUMS,
        SLOTS,
        BETA,
        VERTICES,
        Argument("scales", "u32", "in", "[m, room / 2] what a partner's row counts, two bfloat16 a word"),
        Argument("shared_rows", "u32", "in", "[room, row / 2] partners' rows, two bfloat16 a word"),
        N_SHARED,
        CLIP_COUNTS,
        N_VERTICES,
        FIRST_VERTEX,
        SHARED_ROUND,
        *STEP,
        DELTA,
        *RANDOM,
    ),
    parameters=("K", "N", "m", "n", "dtype", "step", "noise"),
    space=SPACE,
    default=_default,
    variables=_variables,
    launch=_launch,
    traffic=lambda p: (
        2 * p.integer("m") * row_bytes(p) + 2 * p.integer("m") * half_room(p) + 2 * p.integer("n") * half_row(p)
    ),
    flops=lambda p: (2 * p.integer("n") + 12) * p.integer("m") * p.integer("K"),
    workload=star_workloads.star_ends,
    check_problem=tensor_workloads.small,
    used_with={"partners": (LABELS,)} | HALF,
    dialects=("cuda",),
)
