"""Declarations of the kernels of stages 2 and 4 of an iteration, and of pairs: held-out ones, and links explained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from mmsbgen.families.mmsb.axes import common_axes as axes
from mmsbgen.families.mmsb.axes import demands
from mmsbgen.families.mmsb.axes import small_spaces as usual
from mmsbgen.families.mmsb.numbers.storage import STORAGES
from mmsbgen.families.mmsb.reference import pair_workloads, workloads
from mmsbgen.families.mmsb.stages import graph_workloads
from mmsbgen.kernels.family import Argument, KernelSpec, Launch, Workload
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Axis, Config, Space, Traits

# Stage 2 ------------------------------------------------------------------------------------------------------

PARTNER_TEAM = Axis("team", ("draw", "item", "block"), "a work-item a draw, a work-item a vertex, a block a vertex")


PARTNER_SPACE = Space((PARTNER_TEAM, axes.BLOCK_SIZE), axes.COMMON)


def _launch_partners(problem: Problem, config: Config, count: int, traits: Traits) -> Launch:
    block = int(config["block_size"])
    if config["team"] == "block":
        return Launch(max(1, count), block)
    items = count * problem.integer("n") if config["team"] == "draw" else count
    return Launch(max(1, -(-items // block)), block)


SAMPLE_PARTNERS = KernelSpec(
    name="sample_partners",
    template="mmsb/stages/sample_partners.jinja",
    doc="draw every vertex's partners and look each pair up",
    arguments=(
        Argument("vertices", "u32", "in", "[R, stride] vertices of the mini-batches of R iterations"),
        Argument("sizes", "u32", "in", "[R] how many each has"),
        *usual.LINKS,
        *usual.edge_set("link", "training links"),
        *usual.edge_set("held", "held-out pairs"),
        Argument("partners", "u32", "out", "[R, stride, n] the partners"),
        Argument("weights", "real", "out", "[R, stride, n] weight, negative for a non-link, 0 to ignore"),
        Argument("n_vertices", "u32", "scalar", "R * stride"),
        Argument("stride", "u32", "scalar", "places that each iteration has"),
        Argument("n_partners", "u32", "scalar", "draws of each vertex"),
        Argument("n_link_partners", "u32", "scalar", "of which at most so many are links (stratified)"),
        Argument("n_total", "u32", "scalar", "N"),
        *usual.RANDOM,
    ),
    parameters=("N", "m", "n", "dtype", "partners"),
    space=PARTNER_SPACE,
    default=usual.defaults(PARTNER_SPACE, {"team": "block", "block_size": 32}, {"team": "item", "block_size": 1}),
    variables=lambda problem, config, traits: axes.common(
        problem, config, traits, team=config["team"], stratified=problem["partners"] == "stratified"
    ),
    launch=_launch_partners,
    traffic=lambda p: p.integer("m") * p.integer("n") * (4 + 4 + axes.element_size(p) + 4 * 32),
    workload=graph_workloads.sample_partners,
    check_problem=workloads.small,
    used_with=usual.LISTED,
)

# Rows, and pairs of rows --------------------------------------------------------------------------------------

ROW_AXES = (axes.TEAM, axes.VECTOR_WIDTH, axes.BLOCK_SIZE, axes.REDUCTION)


def _explain_bytes(problem: Problem, config: Config, traits: Traits) -> int:
    """Local memory in bytes: two sums, and a value with its index for every partial sum."""
    sums = axes.sum_bytes(problem, config, traits, values=2)
    return sums + sums // (4 * axes.element_size(problem)) * (axes.element_size(problem) + 4)


def _row_space(needed: Callable[[Problem, Config, Traits], int]) -> Space:
    return Space(ROW_AXES, (*axes.ROW_TEAM, axes.local_memory(needed)))


PAIR_SPACE = _row_space(partial(axes.sum_bytes, values=2))


def _row_kernel(
    folder: str,
    name: str,
    doc: str,
    arguments: tuple[Argument, ...],
    parameters: tuple[str, ...],
    workload: Callable[[Problem, int], Workload],
    traffic: Callable[[Problem], int],
    used_with: Mapping[str, tuple[str, ...]],
    *,
    units: str = "pairs",
    space: Space = PAIR_SPACE,
    sums: int = 1,
    rows: int = 2,
    sub_groups: dict[str, Any] | None = None,
) -> KernelSpec:
    """A kernel in which a team reads ``rows`` rows at a time and adds up ``sums`` times."""
    return usual.kernel(
        folder,
        name,
        doc,
        arguments,
        parameters,
        workload,
        traffic,
        space=space,
        default=usual.defaults(space, usual.TEAM_GPU, usual.TEAM_CPU, sub_groups=sub_groups),
        variables=lambda problem, config, traits: axes.row_team(problem, config, traits, unrolled=False),
        launch=axes.launch_teams,
        carry=axes.of_row,
        check_problem=workloads.small,
        used_with=used_with,
        demand=lambda p, c, t: demands.rows_of_team(
            p, c, t, moved=traffic(p), units=p.integer(units), sums=sums, rows=rows
        ),
    )


UPDATE_PI = _row_kernel(
    "stages",
    "update_pi",
    "normalise the new rows and make them the vertices' rows",
    (
        Argument("pi", "real", "inout", "[N + m, LD] rows by slot"),
        usual.ROW_SUMS,
        Argument("slots", "u32", "inout", "[N] slot of a vertex's row"),
        Argument("spares", "u32", "inout", "[m] slots of the new rows; then the old ones"),
        usual.VERTICES,
        usual.N_VERTICES,
        usual.FIRST_VERTEX,
    ),
    ("K", "N", "m", "dtype"),
    workloads.update_pi,
    lambda p: 2 * p.integer("m") * usual.row_bytes(p),
    usual.LISTED | {"storage": STORAGES[:1]},
    units="m",
    space=_row_space(partial(axes.sum_bytes, values=1)),
    sums=0,
    rows=1,
)


def _pair_traffic(problem: Problem) -> int:
    """Bytes of both rows of every pair."""
    return 2 * problem.integer("pairs") * usual.stored_row_bytes(problem)


PERPLEXITY_PAIRS = _row_kernel(
    "stages",
    "perplexity_pairs",
    "probability of a link for every held-out pair",
    (usual.PI, usual.SLOTS, *usual.EVALUATED),
    ("K", "N", "pairs", "dtype", "storage"),
    pair_workloads.perplexity_pairs,
    _pair_traffic,
    usual.DENSE,
    # On an H200 within 1 % of the fastest of 29 at every K from 128 to 4096; a block per pair takes 1.04 to 1.5 times.
    sub_groups=usual.SUB_GROUP_A_ROW,
)

EXPLAIN_LINKS = _row_kernel(
    "state",
    "explain_links",
    "the community that explains each link best, and its share",
    (usual.PI, usual.SLOTS, *usual.BEST),
    ("K", "N", "pairs", "dtype", "storage"),
    pair_workloads.explain_links,
    _pair_traffic,
    usual.SHARED,
    space=_row_space(_explain_bytes),
    sums=2,
)

EXPLAIN_AT = _row_kernel(
    "state",
    "explain_at",
    "how much of each link some communities explain",
    (Argument("pi", "real", "in", "[N + m, LD] rows by slot"), usual.SLOTS, *usual.PLACES),
    ("K", "N", "pairs", "dtype"),
    pair_workloads.explain_at,
    lambda p: 2 * p.integer("pairs") * usual.row_bytes(p),
    usual.SHARED,
)


# Six columns in double precision, with one number per work-item.
SUM_SPACE = Space((axes.BLOCK_SIZE,), (*axes.COMMON, axes.local_memory(lambda p, c, t: 6 * 8 * int(c["block_size"]))))

PERPLEXITY_SUM = KernelSpec(
    name="perplexity_sum",
    template="mmsb/stages/perplexity_sum.jinja",
    doc="log-likelihoods of the held-out pairs, one row of six sums a block",
    arguments=(
        Argument("probabilities", "double", "in", "[P] p(y = 1)"),
        Argument("published", "double", "in", "[P] p(y = 1) as published"),
        Argument("sums", "double", "in", "[P] sum of p(y = 1) over samples"),
        Argument("labels", "u32", "in", "[P] 1 for a link"),
        Argument("partial", "double", "out", "[blocks, 6] sums of every block"),
        usual.N_PAIRS,
        Argument("n_samples", "double", "scalar", "samples in the running sum"),
    ),
    parameters=("pairs",),
    space=SUM_SPACE,
    default=usual.defaults(SUM_SPACE, usual.ITEMS_GPU, {"block_size": 16}),
    variables=axes.common,
    launch=axes.launch_blocks,
    traffic=lambda p: 28 * p.integer("pairs"),
    workload=pair_workloads.perplexity_sum,
    check_problem=workloads.small,
)
