"""Declarations of the kernels for stars whose vertices share their partners, in single precision.

The data pass is the one of blocks (:mod:`mmsbgen.families.mmsb.blocks.block_kernels`), over the vertices of a star.
Partners are drawn for several iterations in advance.  Theta is updated from the star's own pairs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mmsbgen.families.mmsb.axes import small_spaces as usual
from mmsbgen.families.mmsb.axes.common_axes import element_size, launch_blocks
from mmsbgen.families.mmsb.blocks import block_kernels, tensor_kernels
from mmsbgen.families.mmsb.numbers.problem_sizes import room
from mmsbgen.families.mmsb.stars import star_workloads
from mmsbgen.kernels.family import Argument, named
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config, Traits

KNOWN = (
    *tensor_kernels.KNOWN,
    Argument("shared_round", "u32", "scalar", "place of the iteration among those whose partners are drawn"),
    Argument("drawn", "u32", "in", "[R, room] the shared partners of R iterations"),
    Argument("places", "u32", "in", "[R, N] where a vertex is among them, if it is"),
    Argument("shared_weights", "real", "in", "[R, room] their weights; 0 from n_shared on"),
    Argument("n_shared", "u32", "in", "[R] how many there are"),
    Argument("marked", "u32", "in", "[R, stride, room / 32] a bit for each pair that must not be weighed"),
    Argument("labelled", "u32", "in", "[R, stride, room / 32] a bit for each link with a scale of its own"),
)

#: Value of ``partners`` for which links are labelled among the shared partners, without a stratum of their own.
LABELS = "shared-uniform"


DRAW_SHARED = replace(
    block_kernels.SHARED_PARTNERS,
    name="draw_shared",
    doc="draw the partners that the vertices of a star share, of several iterations ahead",
    arguments=named(
        KNOWN,
        Argument("draws", "u32", "out", "[R, room] every draw"),
        Argument("times", "u32", "out", "[R, room] how often each distinct vertex was drawn"),
        "drawn:out",
        Argument("places", "u32", "inout", "[R, N] where a vertex is among them; anything for others"),
        "shared_weights:out n_shared:out",
        Argument("n_partners", "u32", "scalar", "n, draws of an iteration; all vertices once where it is N"),
        Argument("n_rounds", "u32", "scalar", "R, iterations ahead"),
        "n_total seed iteration",
    ),
    variables=lambda p, c, t: block_kernels.SHARED_PARTNERS.variables(p, c, t) | {"stars": True},
    launch=launch_blocks,
    traffic=lambda p: star_workloads.ROUNDS * p.integer("n") * (5 * 4 + element_size(p)),
    workload=star_workloads.draw_shared,
    used_with=usual.STARS_SHARED,
)


def _sum_variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    return block_kernels.BLOCK_SHARED.variables(problem, config, traits) | {
        "stars": True,
        "labels": problem["partners"] == LABELS,
        "room": room(problem),
    }


STAR_SHARED = replace(
    block_kernels.BLOCK_SHARED,
    name="star_shared",
    doc="the shared partners' part of the gradient of every vertex of a star: two dense products",
    arguments=named(
        KNOWN,
        "pi slots spares beta vertices shared_weights n_shared drawn places neighbour_offsets neighbours",
        "held_offsets held_neighbours n_vertices first_vertex shared_round n_total delta",
    ),
    parameters=("K", "N", "m", "n", "dtype", "partners"),
    variables=_sum_variables,
    workload=star_workloads.star_shared,
    used_with=usual.STARS_SHARED | usual.SINGLE,
)
