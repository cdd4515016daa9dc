"""Declarations of the kernels of local moving, which finds the communities that a chain starts from."""

from __future__ import annotations

from functools import partial
from typing import Any

from mmsbgen.families.mmsb.axes import common_axes as axes
from mmsbgen.families.mmsb.axes import small_spaces as usual
from mmsbgen.families.mmsb.sparse.sparse_sizes import degree_of
from mmsbgen.families.mmsb.sparse.sparse_sweeps import SPARSE_TEAM, team_lanes
from mmsbgen.families.mmsb.sparse.sparse_workloads import small
from mmsbgen.families.mmsb.starts import label_workloads
from mmsbgen.kernels.family import Argument, Launch, named
from mmsbgen.kernels.kit import teams
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Axis, Config, Space, Traits

SLOTS = Axis("slots", (0, 64, 256, 1024), "places of a team's table of labels in local memory")


def _local_bytes(problem: Problem, config: Config, traits: Traits) -> int:
    return int(config["block_size"]) // team_lanes(config, traits) * int(config["slots"]) * 8


_LIMITS = (*axes.COMMON, teams.SUB_GROUPS, teams.local_memory(_local_bytes))
SPACE = Space((SPARSE_TEAM, SLOTS, teams.BLOCK_SIZE), _LIMITS)


def _variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    lanes = team_lanes(config, traits)
    teams, slots = int(config["block_size"]) // lanes, int(config["slots"])
    return axes.common(problem, config, traits, T=lanes, teams=teams, slots=slots, uses_sub_groups=lanes > 1)


KNOWN = (
    *usual.KNOWN,
    Argument("vertices", "u32", "in", "[V] distinct vertices"),
    Argument("volumes", "u32", "in", "[N] link ends of each vertex"),
    Argument("labels", "u32", "in", "[N] label of each vertex"),
    Argument("label_volumes", "u32", "in", "[N] link ends of the vertices of each label"),
    Argument("weights", "u32", "in", "[2 E] weights of the links, if they have any"),
    Argument("weighted", "u32", "scalar", "whether links have weights; without, each counts 1"),
    Argument("label_places", "u64", "in", "[L + 1] begin of each label's table, in pairs of numbers"),
    Argument("first_label", "u32", "scalar", "first label whose table is there"),
)
BEST_LABELS = usual.kernel(
    "starts",
    label_workloads.best_labels,
    "the neighbouring community to which a move of each vertex raises modularity most",
    named(
        KNOWN,
        "vertices neighbour_offsets neighbours weights labels label_volumes volumes",
        Argument("costs", "double", "in", "[N] resolution times the share of all link ends that the vertex has"),
        Argument("table_places", "u64", "in", "[V] begin of each vertex's table, if it has too many links for slots"),
        Argument("tables", "u32", "inout", "[S] tables: four numbers a link"),
        Argument("best", "u32", "out", "[V] the label; that of the vertex if it stays"),
        "n_vertices weighted",
        Argument("no_gain", "double", "scalar", "gain, relative to the weight, that is none"),
    ),
    "N degree",
    lambda problem: problem.integer("N") * (degree_of(problem) * 20 + 52),
    space=SPACE,
    default=usual.defaults(
        SPACE, usual.ITEMS_GPU, usual.ITEMS_CPU, sub_groups={"team": "subgroup", "slots": 256, "block_size": 128}
    ),
    variables=_variables,
    launch=teams.launch_teams,
    check_problem=small,
)


LANES = Axis("lanes", (1, 8, 32), "work-items that share one vertex or one label")
LANES_SPACE = Space((LANES, teams.BLOCK_SIZE), (*axes.COMMON, teams.splits("lanes")))


def _launch_lanes(problem: Problem, config: Config, count: int, traits: Traits) -> Launch:
    return teams.launch_items(problem, config, count * int(config["lanes"]), traits)


def _of_lanes(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    return axes.common(problem, config, traits, lanes=int(config["lanes"]))


MOVE_LABELS = usual.kernel(
    "starts",
    label_workloads.move_labels,
    "vertices get the labels that best_labels has found",
    named(
        KNOWN,
        "vertices",
        Argument("best", "u32", "in", "[V] their new labels"),
        "volumes labels:inout label_volumes:inout n_vertices",
    ),
    "N",
    lambda problem: problem.integer("N") * 28,
    check_problem=small,
)

# Kernels whose lanes need no sub-group.
_with_lanes = partial(
    usual.kernel,
    "starts",
    space=LANES_SPACE,
    default=usual.defaults(LANES_SPACE, {"lanes": 32, "block_size": 128}, {"lanes": 1, "block_size": 64}),
    variables=_of_lanes,
    launch=_launch_lanes,
    check_problem=small,
)
JOIN_LINKS = _with_lanes(
    label_workloads.join_links,
    "contraction: the weights between labels, in a table for each label",
    named(
        KNOWN,
        "vertices neighbour_offsets neighbours weights labels label_places",
        Argument("joined", "u32", "inout", "[2 S] tables: the other labels plus 1, then weights; zero before"),
        Argument("counts", "u32", "inout", "[L] number of other labels in each table; zero before"),
        "n_vertices weighted first_label",
    ),
    "N degree",
    lambda problem: problem.integer("N") * (degree_of(problem) * 20 + 12),
)
GATHER_LINKS = _with_lanes(
    label_workloads.gather_links,
    "contraction: the links of each label from its table",
    named(
        KNOWN,
        "label_places",
        Argument("joined", "u32", "in", "[2 S] tables: the other labels plus 1, then weights"),
        Argument("row_places", "u64", "in", "[L] begin of the links of each label that is there"),
        Argument("counts", "u32", "inout", "[L] number of each label's links; zero after, for labels that are there"),
        Argument("joined_ends", "u32", "out", "[A] the other labels, in any order"),
        Argument("joined_weights", "u32", "out", "[A] weights of the links"),
        Argument("n_labels", "u32", "scalar", "number of labels whose tables are there"),
        "first_label",
    ),
    "N degree",
    lambda problem: problem.integer("N") * (degree_of(problem) * 16 + 20),
)

KERNELS = (BEST_LABELS, MOVE_LABELS, JOIN_LINKS, GATHER_LINKS)
