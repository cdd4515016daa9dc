"""Declarations of the kernels for community shares of links, for refinement and communities of memberships."""

from __future__ import annotations

from mmsbgen.families.mmsb.axes import demands
from mmsbgen.families.mmsb.axes.common_axes import (
    ROW_TEAM,
    element_size,
    launch_teams,
    local_memory,
    of_row,
    row_team,
    sum_bytes,
)
from mmsbgen.families.mmsb.axes.small_spaces import (
    BEST,
    PI,
    PLACES,
    SHARED,
    SLOTS,
    TEAM_CPU,
    TEAM_GPU,
    defaults,
    row_bytes,
)
from mmsbgen.families.mmsb.reference import workloads
from mmsbgen.families.mmsb.stages import explain_workloads
from mmsbgen.families.mmsb.stages.partner_kernels import PAIR_SPACE, ROW_AXES, pair_traffic
from mmsbgen.kernels.family import Argument, KernelSpec
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config, Space, Traits


def _explain_bytes(problem: Problem, config: Config, traits: Traits) -> int:
    """Local memory in bytes: two sums, and a value with its index for every partial sum."""
    sums = sum_bytes(problem, config, traits, values=2)
    return sums + sums // (4 * element_size(problem)) * (element_size(problem) + 4)


EXPLAIN_SPACE = Space(ROW_AXES, (*ROW_TEAM, local_memory(_explain_bytes)))

EXPLAIN_LINKS = KernelSpec(
    name="explain_links",
    template="mmsb/state/explain_links.jinja",
    doc="the community that explains each link best, and its share",
    arguments=(
        PI,
        SLOTS,
        *BEST,
    ),
    parameters=("K", "N", "pairs", "dtype", "storage"),
    space=EXPLAIN_SPACE,
    default=defaults(EXPLAIN_SPACE, TEAM_GPU, TEAM_CPU),
    variables=lambda problem, config, traits: row_team(problem, config, traits, unrolled=False),
    launch=launch_teams,
    traffic=pair_traffic,
    workload=explain_workloads.explain_links,
    carry=of_row,
    check_problem=workloads.small,
    used_with=SHARED,
    demand=lambda p, c, t: demands.rows_of_team(
        p, c, t, moved=pair_traffic(p), units=p.integer("pairs"), sums=2, rows=2
    ),
)

EXPLAIN_AT = KernelSpec(
    name="explain_at",
    template="mmsb/state/explain_at.jinja",
    doc="how much of each link some communities explain",
    arguments=(
        Argument("pi", "real", "in", "[N + m, LD] rows by slot"),
        SLOTS,
        *PLACES,
    ),
    parameters=("K", "N", "pairs", "dtype"),
    space=PAIR_SPACE,
    default=defaults(PAIR_SPACE, TEAM_GPU, TEAM_CPU),
    variables=lambda problem, config, traits: row_team(problem, config, traits, unrolled=False),
    launch=launch_teams,
    traffic=lambda p: 2 * p.integer("pairs") * row_bytes(p),
    workload=explain_workloads.explain_at,
    carry=of_row,
    check_problem=workloads.small,
    used_with=SHARED,
    demand=lambda p, c, t: demands.rows_of_team(
        p, c, t, moved=2 * p.integer("pairs") * row_bytes(p), units=p.integer("pairs"), sums=1, rows=2
    ),
)
