"""Declarations of the kernels of star mini-batches, many of them based on those of blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mmsbgen.families.mmsb.axes import common_axes as axes
from mmsbgen.families.mmsb.axes import row_space
from mmsbgen.families.mmsb.axes import small_spaces as usual
from mmsbgen.families.mmsb.axes.row_space import row_config
from mmsbgen.families.mmsb.blocks import block_kernels, block_workloads, tensor_kernels
from mmsbgen.families.mmsb.blocks.block_workloads import MEAN_DEGREE
from mmsbgen.families.mmsb.numbers.row_layout import half_room, room
from mmsbgen.families.mmsb.reference import workloads
from mmsbgen.families.mmsb.stages import stage_workloads
from mmsbgen.families.mmsb.stars import star_workloads
from mmsbgen.kernels.family import Argument, KernelSpec, Launch, named
from mmsbgen.kernels.kit import reals, teams
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config, Constraint, Space, Traits


def _ranks(problem: Problem, config: Config, traits: Traits) -> int:
    block = int(config["block_size"])
    return 8 * block if block > 1 else 0


_SPACE = Space((teams.BLOCK_SIZE,), (*axes.COMMON, teams.local_memory(_ranks)))


DRAW_STARS = usual.kernel(
    "stars",
    stage_workloads.draw_stars,
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
    lambda p: workloads.ROUNDS * p.integer("m") * (4 + 4 + 4 + reals.real_bytes(p) + 2 * 32),
    space=_SPACE,
    default=usual.defaults(_SPACE, {"block_size": 512}, {"block_size": 1}),
    launch=teams.launch_blocks,
    check_problem=workloads.small,
    used_with=usual.STARS,
)


#: Those of blocks, but arrays of partners have an axis of iterations: of one name, the last counts.
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
    launch=teams.launch_blocks,
    traffic=lambda p: star_workloads.ROUNDS * p.integer("n") * (5 * 4 + reals.real_bytes(p)),
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


_TENSOR = usual.STARS_SHARED | usual.HALF

#: Number of tiles that fills a GPU of about a hundred multiprocessors.
_ENOUGH = 200


def _stars(block: KernelSpec) -> Callable[[Problem, Config, Traits], dict[str, Any]]:
    """Template variables of a block kernel, for stars."""

    def variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
        labels = problem.get("partners") == LABELS
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
        return teams.first_valid([*enough, *small], tensor_kernels.TILES.refusal)(problem, traits)

    return choose


def _launch_factors(problem: Problem, config: Config, count: int, traits: Traits) -> Launch:
    """A warp per vertex and partner, and with labelled links one per 32 words of bits."""
    block, length = int(config["block_size"]), half_room(problem)
    labelling = -(-count * length // 1024) if problem.get("partners") == LABELS else 0
    return Launch(max(1, -(-(labelling + count + length) * 32 // block)), block)


STAR_MARKS = replace(
    tensor_kernels.BLOCK_STRIKE,
    name="star_marks",
    template="mmsb/stars/star_marks.jinja",
    doc="which pairs of a star's vertices and their partners must not be weighed, of several iterations ahead",
    arguments=named(
        KNOWN,
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
        KNOWN,
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
        KNOWN,
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
    arguments=named(KNOWN, "pi spares scales shared_rows n_shared n_vertices shared_round"),
    default=_tiles_default(tensor_kernels.BLOCK_SUMS),
    variables=_stars(tensor_kernels.BLOCK_SUMS),
    workload=star_workloads.star_sums,
    used_with=_TENSOR,
)

#: Kernels on tensor cores in launch order, before star_rows. AHEAD runs in advance, for several iterations.
KERNELS = (STAR_FACTORS, STAR_SCALES, STAR_SUMS)
AHEAD = STAR_MARKS


def _with_links(problem: Problem) -> bool:
    return problem["partners"] != LABELS


def _no_links(config: Config, problem: Problem, traits: Traits) -> str | None:
    if _with_links(problem):
        return None
    if int(config["rows_in_flight"]) > 1 or (config["placement"] in axes.GEN and str(config["placement"])[0] == "S"):
        return "no rows of links are read: one row in flight, kept nowhere"
    return None


SPACE = Space(row_space.ROW_AXES, (*row_space.ROW_CONSTRAINTS, Constraint("links", _no_links)))


def _variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    return row_space.row_variables(problem, config, traits) | {"with_links": _with_links(problem), "early_sum": True}


_GPU = [row_config("RRR", "block", 4, block, rows) for block in (128, 64) for rows in (4, 2)]
#: First choice without links: a warp per row needs no barriers. It is used while a row fits in the warp's registers.
_WARP_A_ROW = row_config("RRR", "subgroup", 4, 128, 1)
_LONGEST_OF_A_WARP = 1024
_GPU += [row_config("RRR", "block", 4, 64, 1), row_config("RRR", "block", 4, 128, 1), _WARP_A_ROW]
_GPU += [row_config("SHARED", "block", 4, 64, 1), row_config("GLOBAL", "block", 4, 256, 1)]
_GPU += [row_config("RRR", "block", 4, 32, rows) for rows in (2, 1)]


def _default(problem: Problem, traits: Traits) -> Config:
    if traits.kind == "cpu":
        found = row_space.ANYWHERE
    else:
        found = _GPU + row_space.ANYWHERE
        if problem.integer("K") <= _LONGEST_OF_A_WARP and not _with_links(problem):
            found = [_WARP_A_ROW, *found]
    return teams.first_valid(found, SPACE.refusal)(problem, traits)


def _rows(problem: Problem) -> int:
    """Number of rows read or written per vertex."""
    return 3 + (block_workloads.MEAN_DEGREE if _with_links(problem) else 0)


STAR_ROWS = usual.kernel(
    "stars",
    star_workloads.star_rows,
    "the links' part of the gradient of every vertex of a star that shares partners, and the end of its row",
    usual.arguments(
        "pi row_sums slots spares beta vertices neighbour_offsets neighbours clip_counts n_vertices first_vertex",
        "half_step decay spread alpha delta seed iteration",
    ),
    "K N m dtype step noise partners",
    lambda p: p.integer("m") * _rows(p) * usual.row_bytes(p),
    space=SPACE,
    default=_default,
    variables=_variables,
    launch=teams.launch_teams,
    check_problem=block_workloads.small,
    used_with=usual.STARS_SHARED,
    carry=axes.of_row,
)
