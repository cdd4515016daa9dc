"""Declarations of the kernels that replace star_shared on tensor cores, based on those of blocks.

Excluded and labelled pairs are looked up for several iterations in advance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mmsbgen.families.mmsb.axes import small_spaces as usual
from mmsbgen.families.mmsb.axes.common_axes import first_valid
from mmsbgen.families.mmsb.blocks import tensor_kernels
from mmsbgen.families.mmsb.blocks.block_workloads import MEAN_DEGREE
from mmsbgen.families.mmsb.numbers.problem_sizes import half_room
from mmsbgen.families.mmsb.stars import star_shared, star_workloads
from mmsbgen.kernels.family import Argument, KernelSpec, Launch, named
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config, Traits

_TENSOR = usual.STARS_SHARED | usual.HALF

#: Number of tiles that fills a GPU of about a hundred multiprocessors.
_ENOUGH = 200


def _stars(block: KernelSpec) -> Callable[[Problem, Config, Traits], dict[str, Any]]:
    """Template variables of a block kernel, for stars."""

    def variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
        labels = problem.get("partners") == star_shared.LABELS
        return block.variables(problem, config, traits) | {"stars": True, "labels": labels}

    return variables


def _tiles_default(block: KernelSpec) -> usual.Chooser:
    """A default chooser: the largest tiles with enough of them to fill a GPU, else the small ones."""
    tile = tensor_kernels.tile
    large = [
        *(tile(128, 128, 64, 3, 256, "wgmma"), tile(128, 128, 64, 2, 256)),
        *(tile(64, 128, 64, 3, 128, "wgmma"), tile(64, 128, 64, 3, 128)),
    ]
    small = [tile(64, 64, 64, stages, 128, "wgmma") for stages in (6, 4)]
    small += [tile(64, 64, *rest) for rest in ((64, 4, 128), (64, 2, 128), (32, 2, 128), (32, 2, 64))]

    def choose(problem: Problem, traits: Traits) -> Config:
        count = problem.integer("m")
        enough = [each for each in large if block.launch(problem, each, count, traits).grid >= _ENOUGH]
        return first_valid([*enough, *small], tensor_kernels.TILES.refusal)(problem, traits)

    return choose


def _launch_factors(problem: Problem, config: Config, count: int, traits: Traits) -> Launch:
    """A warp per vertex and partner, and with labelled links one per 32 words of bits."""
    block, length = int(config["block_size"]), half_room(problem)
    labelling = -(-count * length // 1024) if problem.get("partners") == star_shared.LABELS else 0
    return Launch(max(1, -(-(labelling + count + length) * 32 // block)), block)


STAR_MARKS = replace(
    tensor_kernels.BLOCK_STRIKE,
    name="star_marks",
    template="mmsb/stars/star_marks.jinja",
    doc="which pairs of a star's vertices and their partners must not be weighed, of several iterations ahead",
    arguments=named(
        star_shared.KNOWN,
        "vertices",
        Argument("sizes", "u32", "in", "[R] vertices of each iteration's star"),
        "drawn places n_shared neighbour_offsets neighbours held_offsets held_neighbours marked:out labelled:out",
        "n_vertices",
        Argument("stride", "u32", "scalar", "places that each iteration has"),
        "n_total",
    ),
    parameters=("N", "m", "n", "dtype", "partners"),
    variables=_stars(tensor_kernels.BLOCK_STRIKE),
    # By vertex, what is read and written by the look-up of its pairs.
    traffic=lambda p: p.integer("m") * ((MEAN_DEGREE + 1) * 12 + half_room(p) // 4),
    workload=star_workloads.star_marks,
    used_with=_TENSOR,
)

STAR_FACTORS = replace(
    tensor_kernels.BLOCK_FACTORS,
    name="star_factors",
    template="mmsb/stars/star_factors.jinja",
    doc="the factors of the products of a star's vertices and their partners, 16 bits wide, and labelled links' scales",
    arguments=named(
        star_shared.KNOWN,
        "pi:in slots beta vertices drawn shared_weights n_shared labelled own_factors:out shared_factors:out",
        "shared_rows:out scales:inout n_vertices first_vertex shared_round delta",
    ),
    parameters=("K", "N", "m", "n", "dtype", "partners"),
    variables=_stars(tensor_kernels.BLOCK_FACTORS),
    launch=_launch_factors,
    workload=star_workloads.star_factors,
    used_with=_TENSOR,
)

STAR_SCALES = replace(
    tensor_kernels.BLOCK_SCALES,
    name="star_scales",
    doc="what each shared partner's row counts for each vertex of a star: dots on tensor cores, reweighed",
    arguments=named(
        star_shared.KNOWN,
        "own_factors shared_factors shared_weights marked labelled scales:inout n_vertices first_vertex shared_round",
        "delta",
    ),
    parameters=("K", "N", "m", "n", "dtype", "partners"),
    default=_tiles_default(tensor_kernels.BLOCK_SCALES),
    variables=_stars(tensor_kernels.BLOCK_SCALES),
    workload=star_workloads.star_scales,
    used_with=_TENSOR,
)

STAR_SUMS = replace(
    tensor_kernels.BLOCK_SUMS,
    name="star_sums",
    doc="the shared partners' part of the gradient of every vertex of a star, on tensor cores",
    arguments=named(star_shared.KNOWN, "pi spares scales shared_rows n_shared n_vertices shared_round"),
    default=_tiles_default(tensor_kernels.BLOCK_SUMS),
    variables=_stars(tensor_kernels.BLOCK_SUMS),
    workload=star_workloads.star_sums,
    used_with=_TENSOR,
)

#: Kernels in launch order, before star_rows. AHEAD runs in advance, for several iterations.
KERNELS = (STAR_FACTORS, STAR_SCALES, STAR_SUMS)
AHEAD = STAR_MARKS
