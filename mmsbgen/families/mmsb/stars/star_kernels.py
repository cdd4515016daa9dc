"""Declaration of the kernel that draws star-shaped mini-batches on the device."""

from __future__ import annotations

from mmsbgen.families.mmsb.axes import common_axes as axes
from mmsbgen.families.mmsb.axes import small_spaces as usual
from mmsbgen.families.mmsb.reference import workloads
from mmsbgen.families.mmsb.stages import graph_workloads
from mmsbgen.kernels.family import Argument
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config, Space, Traits


def _ranks(problem: Problem, config: Config, traits: Traits) -> int:
    block = int(config["block_size"])
    return 8 * block if block > 1 else 0


_SPACE = Space((axes.BLOCK_SIZE,), (*axes.COMMON, axes.local_memory(_ranks)))


DRAW_STARS = usual.kernel(
    "stars",
    graph_workloads.draw_stars,
    "draw the mini-batches of several iterations ahead: a vertex and its links, or some of its non-links",
    usual.arguments(
        Argument("centres", "u32", "in", "[R] centre of each iteration's star"),
        Argument("sizes", "u32", "in", "[R] its vertices with the centre; 0 for none"),
        Argument("star_weights", "real", "in", "[R] weight of its pairs, negative for non-links"),
        "neighbour_offsets neighbours",
        *usual.edge_set("link", "training links"),
        *usual.edge_set("held", "held-out pairs"),
        Argument("vertices", "u32", "out", "[R, stride] the centre, then the others"),
        Argument("pairs_a", "u32", "out", "[R, stride] the centre"),
        Argument("pairs_b", "u32", "out", "[R, stride] the others"),
        Argument("pair_weights", "real", "out", "[R, stride] their weights"),
        Argument("n_rounds", "u32", "scalar", "R, iterations ahead"),
        Argument("stride", "u32", "scalar", "places that each iteration has"),
        "n_total seed iteration",
    ),
    "N m dtype",
    lambda p: workloads.ROUNDS * p.integer("m") * (4 + 4 + 4 + axes.element_size(p) + 2 * 32),
    space=_SPACE,
    default=usual.defaults(_SPACE, {"block_size": 512}, {"block_size": 1}),
    launch=axes.launch_blocks,
    check_problem=workloads.small,
    used_with=usual.STARS,
)
