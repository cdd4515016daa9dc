"""Declarations of the kernels of stages 2 and 4 of an iteration, and of pairs: held-out ones, and links explained."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mmsbgen.families.mmsb.axes import common_axes as axes
from mmsbgen.families.mmsb.axes import small_spaces as usual
from mmsbgen.families.mmsb.numbers.storage import STORAGES
from mmsbgen.families.mmsb.reference import pair_workloads, workloads
from mmsbgen.families.mmsb.stages import stage_workloads
from mmsbgen.kernels.family import Argument, KernelSpec, Launch
from mmsbgen.kernels.kit import reals, teams
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Axis, Config, Space, Traits

# Stage 2 ------------------------------------------------------------------------------------------------------

PARTNER_TEAM = Axis("team", ("draw", "item", "block"), "a work-item a draw, a work-item a vertex, a block a vertex")


PARTNER_SPACE = Space((PARTNER_TEAM, teams.BLOCK_SIZE), axes.COMMON)


def _launch_partners(problem: Problem, config: Config, count: int, traits: Traits) -> Launch:
    block = int(config["block_size"])
    if config["team"] == "block":
        return Launch(max(1, count), block)
    items = count * problem.integer("n") if config["team"] == "draw" else count
    return Launch(max(1, -(-items // block)), block)


SAMPLE_PARTNERS = usual.kernel(
    "stages",
    stage_workloads.sample_partners,
    "draw every vertex's partners and look each pair up",
    usual.arguments(
        Argument("vertices", "u32", "in", "[R, stride] vertices of the mini-batches of R iterations"),
        Argument("sizes", "u32", "in", "[R] how many each has"),
        "neighbour_offsets neighbours",
        *usual.edge_set("link", "training links"),
        *usual.edge_set("held", "held-out pairs"),
        Argument("partners", "u32", "out", "[R, stride, n] the partners"),
        Argument("weights", "real", "out", "[R, stride, n] weight, negative for a non-link, 0 to ignore"),
        Argument("n_vertices", "u32", "scalar", "R * stride"),
        Argument("stride", "u32", "scalar", "places that each iteration has"),
        Argument("n_partners", "u32", "scalar", "draws of each vertex"),
        Argument("n_link_partners", "u32", "scalar", "of which at most so many are links (stratified)"),
        "n_total seed iteration",
    ),
    "N m n dtype partners",
    lambda p: p.integer("m") * p.integer("n") * (4 + 4 + reals.real_bytes(p) + 4 * 32),
    space=PARTNER_SPACE,
    default=usual.defaults(PARTNER_SPACE, {"team": "block", "block_size": 32}, {"team": "item", "block_size": 1}),
    variables=lambda problem, config, traits: axes.common(
        problem, config, traits, team=config["team"], stratified=problem["partners"] == "stratified"
    ),
    launch=_launch_partners,
    check_problem=workloads.small,
    used_with=usual.LISTED,
)

# Rows, and pairs of rows --------------------------------------------------------------------------------------

ROW_AXES = (teams.TEAM, teams.VECTOR_WIDTH, teams.BLOCK_SIZE, teams.REDUCTION)


def _explain_bytes(problem: Problem, config: Config, traits: Traits) -> int:
    """Local memory in bytes: two sums, and a value with its index for every partial sum."""
    sums = teams.sum_bytes(problem, config, traits, values=2)
    return sums + sums // (4 * reals.real_bytes(problem)) * (reals.real_bytes(problem) + 4)


def _row_space(needed: Callable[[Problem, Config, Traits], int]) -> Space:
    return Space(ROW_AXES, (*axes.ROW_TEAM, teams.local_memory(needed)))


PAIR_SPACE = _row_space(partial(teams.sum_bytes, values=2))


def _row_kernel(
    *given: Any,
    units: str = "pairs",
    space: Space = PAIR_SPACE,
    sums: int = 1,
    rows: int = 2,
    sub_groups: dict[str, Any] | None = None,
    **more: Any,
) -> KernelSpec:
    """A kernel in which a team reads ``rows`` rows at a time and adds up ``sums`` times."""
    return usual.kernel(
        *given,
        space=space,
        default=usual.defaults(space, usual.TEAM_GPU, usual.TEAM_CPU, sub_groups=sub_groups),
        variables=lambda problem, config, traits: axes.row_team(problem, config, traits, unrolled=False),
        launch=teams.launch_teams,
        carry=axes.of_row,
        check_problem=workloads.small,
        demand=lambda p, c, t: axes.rows_of_team(
            p, c, t, moved=given[-1](p), units=p.integer(units), sums=sums, rows=rows
        ),
        **more,
    )


UPDATE_PI = _row_kernel(
    "stages",
    workloads.update_pi,
    "normalise the new rows and make them the vertices' rows",
    usual.arguments("pi row_sums", *usual.EXCHANGED, "vertices n_vertices first_vertex"),
    "K N m dtype",
    lambda p: 2 * p.integer("m") * usual.row_bytes(p),
    used_with=usual.LISTED | {"storage": STORAGES[:1]},
    units="m",
    space=_row_space(partial(teams.sum_bytes, values=1)),
    sums=0,
    rows=1,
)


def _pair_traffic(problem: Problem) -> int:
    """Bytes of both rows of every pair."""
    return 2 * problem.integer("pairs") * usual.stored_row_bytes(problem)


PERPLEXITY_PAIRS = _row_kernel(
    "stages",
    pair_workloads.perplexity_pairs,
    "probability of a link for every held-out pair",
    usual.arguments(usual.PI, "slots", *usual.EVALUATED),
    "K N pairs dtype storage",
    _pair_traffic,
    used_with=usual.DENSE,
    # On an H200 within 1 % of the fastest of 29 at every K from 128 to 4096; a block per pair takes 1.04 to 1.5 times.
    sub_groups=usual.SUB_GROUP_A_ROW,
)

EXPLAIN_LINKS = _row_kernel(
    "state",
    pair_workloads.explain_links,
    "the community that explains each link best, and its share",
    usual.arguments(usual.PI, "slots", *usual.BEST),
    "K N pairs dtype storage",
    _pair_traffic,
    used_with=usual.SHARED,
    space=_row_space(_explain_bytes),
    sums=2,
)

EXPLAIN_AT = _row_kernel(
    "state",
    pair_workloads.explain_at,
    "how much of each link some communities explain",
    usual.arguments("pi:in slots", *usual.PLACES),
    "K N pairs dtype",
    lambda p: 2 * p.integer("pairs") * usual.row_bytes(p),
    used_with=usual.SHARED,
)


# Six columns in double precision, with one number per work-item.
SUM_SPACE = Space((teams.BLOCK_SIZE,), (*axes.COMMON, teams.local_memory(lambda p, c, t: 6 * 8 * int(c["block_size"]))))

PERPLEXITY_SUM = usual.kernel(
    "stages",
    pair_workloads.perplexity_sum,
    "log-likelihoods of the held-out pairs, one row of six sums a block",
    usual.arguments(
        Argument("probabilities", "double", "in", "[P] p(y = 1)"),
        Argument("published", "double", "in", "[P] p(y = 1) as published"),
        Argument("sums", "double", "in", "[P] sum of p(y = 1) over samples"),
        Argument("labels", "u32", "in", "[P] 1 for a link"),
        Argument("partial", "double", "out", "[blocks, 6] sums of every block"),
        "n_pairs",
        Argument("n_samples", "double", "scalar", "samples in the running sum"),
    ),
    "pairs",
    lambda p: 28 * p.integer("pairs"),
    space=SUM_SPACE,
    default=usual.defaults(SUM_SPACE, usual.ITEMS_GPU, {"block_size": 16}),
    launch=teams.launch_blocks,
    check_problem=workloads.small,
)
