"""Declarations of the kernels that do star_shared's work on tensor cores, as those of blocks do.

One launch writes the factors and marks the pairs that must not be weighed by the products.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mmsbgen.families.mmsb import star_workloads, tensor_kernels
from mmsbgen.families.mmsb.axes import first_valid
from mmsbgen.families.mmsb.block_workloads import MEAN_DEGREE
from mmsbgen.families.mmsb.shared import (
    BETA,
    DELTA,
    FIRST_VERTEX,
    HALF,
    HELD,
    LINKS,
    N_VERTICES,
    SLOTS,
    SPARES,
    STARS_SHARED,
    VERTICES,
    Chooser,
)
from mmsbgen.families.mmsb.star_shared import (
    DRAWN,
    LABELS,
    N_SHARED,
    N_TOTAL,
    PLACES,
    SHARED_ROUND,
    SHARED_WEIGHTS,
)
from mmsbgen.families.mmsb.tensor_workloads import half_room
from mmsbgen.family import Argument, KernelSpec, Launch
from mmsbgen.problem import Problem
from mmsbgen.space import Config, Traits

__all__ = ["KERNELS"]

_TENSOR = STARS_SHARED | HALF
_PI = Argument("pi", "real", "in", "[N + m, LD] rows by slot")
_OWN = Argument("own_factors", "u32", "in", "[m, row / 2] pi (beta - delta), two float16 a word")
_PARTNERS = Argument("shared_factors", "u32", "in", "[room, row / 2] partners' rows, two float16 a word")
_ROWS = Argument("shared_rows", "u32", "in", "[room, row / 2] partners' rows, two bfloat16 a word")
_SCALES = Argument("scales", "u32", "inout", "[m, room / 2] what a partner's row counts, two bfloat16 a word")
_MARKED = Argument("marked", "u32", "in", "[m, room / 32] a bit for each pair whose scale is there already")

#: Tiles that fill a GPU of some hundred multiprocessors.
_ENOUGH = 200


def _stars(block: KernelSpec) -> Callable[[Problem, Config, Traits], dict[str, Any]]:
    """The variables of a block's kernel, for stars."""

    def variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
        labels = problem.get("partners") == LABELS
        return block.variables(problem, config, traits) | {"stars": True, "labels": labels}

    return variables


def _tiles_default(block: KernelSpec) -> Chooser:
    """The largest of some tiles of which there are enough, else the smallest."""
    tile = tensor_kernels.tile
    large = [
        *(tile(128, 128, 64, 3, 256, "wgmma"), tile(128, 128, 64, 2, 256)),
        *(tile(64, 128, 64, 3, 128, "wgmma"), tile(64, 128, 64, 3, 128)),
    ]
    small = [tile(64, 64, 64, 4, 128, "wgmma")]
    small += [tile(64, 64, *rest) for rest in ((64, 4, 128), (64, 2, 128), (32, 2, 128), (32, 2, 64))]

    def choose(problem: Problem, traits: Traits) -> Config:
        count = problem.integer("m")
        enough = [each for each in large if block.launch(problem, each, count, traits).grid >= _ENOUGH]
        return first_valid([*enough, *small], tensor_kernels.TILES.refusal)(problem, traits)

    return choose


def _launch_factors(problem: Problem, config: Config, count: int, traits: Traits) -> Launch:
    """A vertex a warp for its marks, then a row a warp."""
    warps = int(config["block_size"]) // 32
    return Launch(-(-count // warps) + -(-(half_room(problem) + count) // warps), warps * 32)


STAR_FACTORS = replace(
    tensor_kernels.BLOCK_FACTORS,
    name="star_factors",
    template="mmsb/star_factors.jinja",
    doc="the factors of the products of a star's vertices and their partners, 16 bits wide, and pairs not to weigh",
    arguments=(
        _PI,
        SLOTS,
        BETA,
        VERTICES,
        DRAWN,
        PLACES,
        SHARED_WEIGHTS,
        N_SHARED,
        *LINKS,
        *HELD,
        replace(_OWN, role="out"),
        replace(_PARTNERS, role="out"),
        replace(_ROWS, role="out"),
        replace(_SCALES, role="inout"),
        replace(_MARKED, role="out"),
        N_VERTICES,
        FIRST_VERTEX,
        SHARED_ROUND,
        N_TOTAL,
        DELTA,
    ),
    parameters=("K", "N", "m", "n", "dtype", "partners"),
    variables=_stars(tensor_kernels.BLOCK_FACTORS),
    launch=_launch_factors,
    traffic=lambda p: (
        tensor_kernels.BLOCK_FACTORS.traffic(p) + p.integer("m") * ((MEAN_DEGREE + 1) * 12 + half_room(p) // 8)
    ),
    workload=star_workloads.star_factors,
    used_with=_TENSOR,
)

STAR_SCALES = replace(
    tensor_kernels.BLOCK_SCALES,
    name="star_scales",
    doc="what each shared partner's row counts for each vertex of a star: dots on tensor cores, reweighed",
    arguments=(_OWN, _PARTNERS, SHARED_WEIGHTS, _MARKED, _SCALES, N_VERTICES, SHARED_ROUND, DELTA),
    default=_tiles_default(tensor_kernels.BLOCK_SCALES),
    variables=_stars(tensor_kernels.BLOCK_SCALES),
    workload=star_workloads.star_scales,
    used_with=_TENSOR,
)

STAR_SUMS = replace(
    tensor_kernels.BLOCK_SUMS,
    name="star_sums",
    doc="the shared partners' part of the gradient of every vertex of a star, on tensor cores",
    arguments=(
        Argument("pi", "real", "inout", "[N + m, LD] rows by slot"),
        SPARES,
        replace(_SCALES, role="in"),
        _ROWS,
        N_SHARED,
        N_VERTICES,
        SHARED_ROUND,
    ),
    default=_tiles_default(tensor_kernels.BLOCK_SUMS),
    variables=_stars(tensor_kernels.BLOCK_SUMS),
    workload=star_workloads.star_sums,
    used_with=_TENSOR,
)

#: In the order of their launches, before star_rows.
KERNELS = (STAR_FACTORS, STAR_SCALES, STAR_SUMS)
