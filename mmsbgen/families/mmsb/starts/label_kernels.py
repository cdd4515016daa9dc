"""Declaration of the kernel of local moving, which finds the communities that a chain starts from."""

from __future__ import annotations

from typing import Any

from mmsbgen.families.mmsb.axes.common_axes import BLOCK_SIZE, COMMON, common, launch_teams, local_memory
from mmsbgen.families.mmsb.axes.small_spaces import ITEMS_CPU, ITEMS_GPU, LINKS, N_VERTICES, defaults
from mmsbgen.families.mmsb.sparse.sparse_kernels import SPARSE_TEAM, SUB_GROUPS, team_lanes
from mmsbgen.families.mmsb.sparse.sparse_sizes import degree_of
from mmsbgen.families.mmsb.sparse.sparse_workloads import small
from mmsbgen.families.mmsb.starts import label_workloads
from mmsbgen.kernels.family import Argument, KernelSpec
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Axis, Config, Space, Traits

SLOTS = Axis("slots", (0, 64, 256, 1024), "places of a team's table of labels in local memory")


def _local_bytes(problem: Problem, config: Config, traits: Traits) -> int:
    return int(config["block_size"]) // team_lanes(config, traits) * int(config["slots"]) * 8


SPACE = Space((SPARSE_TEAM, SLOTS, BLOCK_SIZE), (*COMMON, SUB_GROUPS, local_memory(_local_bytes)))


def _variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    lanes = team_lanes(config, traits)
    teams, slots = int(config["block_size"]) // lanes, int(config["slots"])
    return common(problem, config, traits, T=lanes, teams=teams, slots=slots, uses_sub_groups=lanes > 1)


BEST_LABELS = KernelSpec(
    name="best_labels",
    template="mmsb/starts/best_labels.jinja",
    doc="the neighbouring community to which a move of each vertex raises modularity most",
    arguments=(
        Argument("vertices", "u32", "in", "[V] distinct vertices"),
        *LINKS,
        Argument("weights", "u32", "in", "[2 E] weights of the links, if they have any"),
        Argument("labels", "u32", "in", "[N] label of each vertex"),
        Argument("label_volumes", "double", "in", "[N] link ends of the vertices of each label"),
        Argument("volumes", "double", "in", "[N] link ends of each vertex"),
        Argument("costs", "double", "in", "[N] resolution times the share of all link ends that the vertex has"),
        Argument("table_places", "u64", "in", "[V] begin of the vertex's table, if it has too many links for slots"),
        Argument("tables", "u32", "inout", "[S] tables: four numbers a link"),
        Argument("best", "u32", "out", "[V] the label; that of the vertex if it stays"),
        N_VERTICES,
        Argument("weighted", "u32", "scalar", "whether links have weights; without, each counts 1"),
        Argument("no_gain", "double", "scalar", "gain, relative to the weight, that is none"),
    ),
    parameters=("N", "degree"),
    space=SPACE,
    default=defaults(SPACE, ITEMS_GPU, ITEMS_CPU, sub_groups={"team": "subgroup", "slots": 256, "block_size": 128}),
    variables=_variables,
    launch=launch_teams,
    traffic=lambda problem: problem.integer("N") * (degree_of(problem) * 20 + 52),
    flops=lambda problem: 0,
    workload=label_workloads.best_labels,
    check_problem=small,
)
