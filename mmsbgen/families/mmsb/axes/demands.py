"""Resource demands of the kernels over rows, for the tuner's model."""

from __future__ import annotations

from mmsbgen.families.mmsb.axes.common_axes import chunks, element_size, row_vectors, stored_size, sum_bytes, team_size
from mmsbgen.families.mmsb.axes.small_spaces import row_bytes, stored_row_bytes
from mmsbgen.kernels.family import Demand
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config, Traits

#: Accesses to caches or local memory per partner's row, by the placement of that row between dot and accumulate.
#: A row stored there is written and read again; a row that is not stored is read a second time.
_PARTNER = {"R": 0, "S": 2, "L": 2, "G": 1}
#: The same for the accumulator, which is read and written once for all rows in flight.
_SUM = {"R": 0, "S": 2, "L": 2, "G": 2}
#: The same for the vertex's own row: w is stored, or recomputed from two rows.
_OWN = {"R": 0, "S": 1, "L": 1, "G": 2}


def _busy(problem: Problem, config: Config, traits: Traits) -> float:
    """Average share of a team's work-items that have a vector of the row."""
    return row_vectors(problem, config) / (chunks(problem, config, traits) * team_size(config, traits))


def _barriers(config: Config, traits: Traits, sums: int) -> int:
    """Number of barriers for ``sums`` team sums in sequence; sub-groups need none."""
    together = config["team"] == "block" and team_size(config, traits) > max(1, traits.sub_group_size)
    if not together and config["reduction"] != "local":
        return 0
    steps = max(1, (team_size(config, traits) - 1).bit_length()) if config["reduction"] == "local" else 2
    return sums * steps


def gather(
    problem: Problem,
    config: Config,
    traits: Traits,
    *,
    places: tuple[str, str, str],
    partners: int,
    rows: int,
    moved: int,
    local: int,
    unrolled: bool,
) -> Demand:
    """Demand of a kernel that gathers ``partners`` rows for each vertex, ``rows`` of them in flight.

    ``places`` are the placements of the partner's row, the accumulator and the own row, as returned by
    :func:`mmsbgen.families.mmsb.axes.row_space.places`.
    """
    probs, grads, pi = places
    width = int(config["vector_width"])
    elements, stored = chunks(problem, config, traits) * width, stored_size(problem)
    of_reals = row_bytes(problem) * (_SUM[grads] + _OWN[pi]) / rows
    near = problem.integer("m") * partners * (stored_row_bytes(problem) * _PARTNER[probs] + of_reals)
    return Demand(
        moved=moved,
        units=problem.integer("m"),
        near=round(near),
        local=local,
        private=elements * (rows * stored * (probs in "RL") + element_size(problem) * ((grads in "RL") + (pi in "RL"))),
        wanted=rows * stored * (elements if unrolled else width),
        barriers=_barriers(config, traits, -(-partners // rows)),
        busy=_busy(problem, config, traits),
    )


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
        barriers=_barriers(config, traits, sums),
        busy=_busy(problem, config, traits),
    )
