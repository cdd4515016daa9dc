"""Declaration of star_rows: the links of a star's vertices, if they have a stratum, and the step of their rows."""

from __future__ import annotations

from typing import Any

from mmsbgen.families.mmsb.axes import common_axes as axes
from mmsbgen.families.mmsb.axes import row_space
from mmsbgen.families.mmsb.axes import small_spaces as usual
from mmsbgen.families.mmsb.axes.row_space import row_config
from mmsbgen.families.mmsb.blocks import block_workloads
from mmsbgen.families.mmsb.stars import star_workloads
from mmsbgen.families.mmsb.stars.star_shared import LABELS
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config, Constraint, Space, Traits


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
    return axes.first_valid(found, SPACE.refusal)(problem, traits)


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
    launch=axes.launch_teams,
    check_problem=block_workloads.small,
    used_with=usual.STARS_SHARED,
    carry=axes.of_row,
)
