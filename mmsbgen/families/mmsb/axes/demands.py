"""Resource demands of the kernels over rows, for the tuner's model."""

from __future__ import annotations

from mmsbgen.families.mmsb.axes.common_axes import chunks, row_vectors, stored_size, sum_bytes, team_size
from mmsbgen.kernels.family import Demand
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config, Traits


def busy(problem: Problem, config: Config, traits: Traits) -> float:
    """Average share of a team's work-items that have a vector of the row."""
    return row_vectors(problem, config) / (chunks(problem, config, traits) * team_size(config, traits))


def barriers(config: Config, traits: Traits, sums: int) -> int:
    """Number of barriers for ``sums`` team sums in sequence; sub-groups need none."""
    together = config["team"] == "block" and team_size(config, traits) > max(1, traits.sub_group_size)
    if not together and config["reduction"] != "local":
        return 0
    steps = max(1, (team_size(config, traits) - 1).bit_length()) if config["reduction"] == "local" else 2
    return sums * steps


def rows_of_team(
    problem: Problem,
    config: Config,
    traits: Traits,
    *,
    moved: int,
    units: int,
    sums: int,
    near: int = 0,
    private: int = 0,
    rows: int = 1,
) -> Demand:
    """Demand of a kernel in which a team processes rows, ``rows`` at a time, and makes ``sums`` sums."""
    return Demand(
        moved=moved,
        units=units,
        near=near,
        local=sum_bytes(problem, config, traits, rows),
        private=private,
        wanted=rows * int(config["vector_width"]) * stored_size(problem),
        barriers=barriers(config, traits, sums),
        busy=busy(problem, config, traits),
    )
