"""Declaration of block_links: links of a block's vertices, the step of their rows, and counts for theta."""

from __future__ import annotations

from typing import Any

from mmsbgen.families.mmsb.axes import common_axes as axes
from mmsbgen.families.mmsb.axes import row_space
from mmsbgen.families.mmsb.axes import small_spaces as usual
from mmsbgen.families.mmsb.axes.row_space import row_config
from mmsbgen.families.mmsb.blocks import block_workloads
from mmsbgen.families.mmsb.numbers.row_layout import MOST_GROUPS
from mmsbgen.kernels.family import Argument
from mmsbgen.kernels.kit import teams
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Axis, Config, Constraint, Space, Traits

COUNTS = Axis("counts", ("global", "registers"), "where a team adds up what it counts for theta")
#: Each team of block_links is a group and processes several vertices.
GROUPS = Axis(
    "groups",
    (block_workloads.FEWEST_GROUPS, 64, 256, 512, 1024, 2048),
    "teams, each of which counts for theta what it sees",
)
LOOKAHEAD = Axis(
    "lookahead", (False, True), "whether the next vertices are looked up, and their rows asked for, during one's work"
)
#: Largest number of groups by kind of device. It fills a device; more would only add work to the sum of counts.
_MOST_GROUPS = {"cpu": 256, "gpu": MOST_GROUPS}


def most_groups(problem: Problem, traits: Traits) -> int:
    """Largest number of groups of counts that block_links may write, by kind of device and memory."""
    most = _MOST_GROUPS.get(traits.kind, MOST_GROUPS)
    return max(block_workloads.FEWEST_GROUPS, min(most, block_workloads.kept_groups(problem)))


def _groups(config: Config, problem: Problem, traits: Traits) -> str | None:
    groups, most = int(config["groups"]), most_groups(problem, traits)
    if groups > most:
        return f"{groups} groups, each with two rows of counts; at most {most} at this K on this kind of device"
    return None


def _counts(config: Config, problem: Problem, traits: Traits) -> str | None:
    if config["counts"] == "registers" and (config["placement"] not in axes.GEN or traits.kind == "cpu"):
        return "counts stay in registers beside unrolled loops on GPUs"
    return None


#: Largest block with local sums for Intel's compiler. Of sampled configurations it crashed in 3 of 78 with 768
#: work-items (not every time), in 6 of 70 with 1024, in none of 94 with 512.
_MOST_LOCAL = 512


def _compiles(config: Config, problem: Problem, traits: Traits) -> str | None:
    # Seen with Intel's runtime 2026.22: a segmentation fault in the pass that keeps values across barriers.
    block = int(config["block_size"])
    if "Intel" not in traits.platform or config["reduction"] != "local" or block <= _MOST_LOCAL:
        return None
    return f"Intel's compiler can die of local sums over {block} work-items here; at most {_MOST_LOCAL}"


LINKS_SPACE = Space(
    (*row_space.ROW_AXES, GROUPS, COUNTS, LOOKAHEAD),
    (
        *row_space.ROW_CONSTRAINTS,
        Constraint("groups", _groups),
        Constraint("counts", _counts),
        Constraint("compiler", _compiles),
    ),
)


def links_groups(config: Config) -> int:
    """Groups of counts that block_links writes with a configuration."""
    return int(config["groups"])


def _links_variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    found, groups = row_space.row_variables(problem, config, traits), links_groups(config)
    return found | {
        # Where groups fill whole blocks, their number is that of the work-items: one program serves all numbers.
        "groups": None if found["any_block"] and groups % int(config["block_size"]) == 0 else groups,
        "place_counts": "R" if config["counts"] == "registers" else "G",
        "lookahead": config["lookahead"],
        "early_sum": config["lookahead"],
    }


def _links_config(
    placement: str, team: str, width: int, block: int, rows: int, counts: str = "global", lookahead: bool = False
) -> dict[str, Any]:
    return row_config(placement, team, width, block, rows) | {"counts": counts, "lookahead": lookahead}


#: Defaults on CPUs for long and short rows, measured on com-DBLP.  _LONG_ROWS is within 3 to 4 % of the fastest of 34
#: and 30 on two platforms at K = 1024, and the fastest of eight at K = 300.  At K = 1024 _SHORT_ROWS without look-ahead
#: takes 1.75 times as long.  On one platform _SHORT_ROWS is the fastest of eight at K = 20 and 100.
_LONG_ROWS = _links_config("GLOBAL", "item", 16, 1, 8, lookahead=True)
_SHORT_ROWS = _links_config("THREAD", "item", 16, 1, 2, lookahead=True)
_LONG = 256
_LINKS_ANYWHERE = [each | {"counts": "global", "lookahead": False} for each in row_space.ANYWHERE]
_LINKS_GPU = [
    _links_config("RRR", "block", 4, 128, 4, "registers", lookahead=True),
    _links_config("RRR", "block", 4, 128, 2, "registers", lookahead=True),
    _links_config("RRR", "block", 4, 128, 2, "registers"),
    _links_config("RRR", "block", 4, 64, 2),
    _links_config("RRR", "block", 4, 128, 2),
    _links_config("RRR", "subgroup", 4, 128, 2),
    _links_config("SHARED", "block", 4, 64, 1),
    _links_config("GLOBAL", "block", 4, 256, 1),
    _links_config("RRR", "block", 4, 32, 2),
]


def _links_default(problem: Problem, traits: Traits) -> Config:
    """Default configuration; on GPUs teams as in update_phi, with as many rows in flight as registers allow."""
    if traits.kind == "cpu":
        candidates = [_LONG_ROWS if problem.integer("K") >= _LONG else _SHORT_ROWS, *_LINKS_ANYWHERE]
    else:
        # On an H200 within 13 % of the best of those tried at each K from 128 to 4096, with and without draws.
        vectors = axes.row_vectors(problem, {"vector_width": 4})
        block = 32 if vectors <= 32 else min(128, max(64, axes.block_for(problem, 4, 2)))
        rows = 8 if vectors <= 32 else 4 if vectors <= 256 else 2
        first = _links_config("RRR", "block", 4, block, rows, "registers", lookahead=vectors > 32)
        candidates = [first, *_LINKS_GPU, *_LINKS_ANYWHERE]
    enough = min(max(16, problem.integer("m") // 2), most_groups(problem, traits))
    if traits.kind == "cpu":
        enough = min(enough, 64)
    groups = max(int(g) for g in GROUPS.values if int(g) <= enough)
    return teams.first_valid([config | {"groups": groups} for config in candidates], LINKS_SPACE.refusal)(
        problem, traits
    )


BLOCK_LINKS = usual.kernel(
    "blocks",
    block_workloads.block_links,
    "the links' part of the gradient of every vertex of a block, the end of its row, and counts for theta",
    usual.arguments(
        "pi row_sums slots spares beta vertices neighbour_offsets neighbours clip_counts",
        Argument("counts", "real", "out", "[groups, 2, LD] scaled sums of rho: non-links, links"),
        "non_link_scale link_scale n_vertices first_vertex half_step decay spread alpha delta seed iteration",
    ),
    "K N m dtype step noise",
    lambda p: p.integer("m") * (3 + block_workloads.MEAN_DEGREE) * usual.row_bytes(p),
    space=LINKS_SPACE,
    default=_links_default,
    variables=_links_variables,
    launch=lambda problem, config, count, traits: teams.launch_teams(problem, config, links_groups(config), traits),
    check_problem=block_workloads.small,
    used_with=usual.SHARED,
)
