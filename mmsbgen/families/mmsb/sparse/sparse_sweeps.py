"""Declarations of the kernels that sweep over sparse rows, without noise and with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mmsbgen.families.mmsb.axes import common_axes as axes
from mmsbgen.families.mmsb.axes import small_spaces as usual
from mmsbgen.families.mmsb.numbers.sparse_rows import EVERY, MOST_BOUND, PARTS
from mmsbgen.families.mmsb.sparse import sparse_workloads
from mmsbgen.families.mmsb.sparse.sparse_sizes import FIXED_POINT, degree_of, entries_of, least_of, table_groups
from mmsbgen.kernels.family import Argument, Launch, named
from mmsbgen.kernels.kit import reals, teams
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Axis, Config, Constraint, Space, Traits

#: Value of ``partners`` with which all vertices are partners, to first order.
ALL = {"partners": ("all",)}
TABLE = Axis(
    "table", ("direct", "hash"), "candidates: a place for every community in global memory, or hashed in local"
)
SPARSE_TEAM = Axis("team", ("item", "subgroup"), "who shares one vertex: a work-item, or a sub-group (warp)")
SLOTS = Axis("slots", (64, 128, 256, 512, 1024, 2048), "slots of a hash table")
FLIGHT = Axis("rows_in_flight", (1, 2, 4), "turns of neighbours whose rows are asked for at once")

KNOWN = (
    *usual.KNOWN,
    Argument("communities", "u32", "in", "[N, R] communities of the entries, the largest entry first"),
    Argument("values", "real", "in", "[N, R] the entries of pi"),
    Argument("floor_pi", "real", "scalar", "pi of the communities without an entry"),
    Argument("fixed_sums", "u64", "inout", "[3, LD] counts of non-links and links, sums of columns, in 2^-30"),
    Argument("totals", "real", "in", "[LD] sums of the columns of pi"),
)
SWEEP = named(
    KNOWN,
    "communities values",
    Argument("new_communities", "u32", "inout", "[N, R] the new rows"),
    Argument("new_values", "real", "inout", "[N, R] their entries"),
    Argument("row_sums", "real", "inout", "[N] sums of phi"),
    "beta totals",
    Argument("vertices", "u32", "in", "[N] all vertices, in the order of the sweep"),
    "neighbour_offsets neighbours",
    Argument("tables", "real", "inout", "[groups, K, 2] tables of candidates; zero before and after"),
    Argument("used_lists", "u32", "inout", "[groups, K] places in use"),
    "fixed_sums",
    Argument("clip_counts", "u32", "inout", "[N] candidates whose flow was bounded, added up"),
    Argument("table_locks", "u32", "inout", "[groups] 1 while a team has the table; zero before and after"),
    "n_vertices half_step decay spread alpha delta floor_pi",
    Argument("non_link_weight", "real", "scalar", "weight of a non-link"),
    Argument("inverse_n", "real", "scalar", "1 / N"),
)


def team_lanes(config: Config, traits: Traits) -> int:
    """Work-items that share one vertex."""
    return max(1, traits.sub_group_size) if config["team"] == "subgroup" else 1


def _segments(problem: Problem, config: Config, traits: Traits) -> int:
    """Neighbours that a team of a hash table reads side by side; sums over a part of a sub-group are CUDA's."""
    lanes, entries = team_lanes(config, traits), entries_of(problem)
    side_by_side = traits.dialect == "cuda" and config.get("table") == "hash" and lanes % entries == 0
    return lanes // entries if side_by_side else 1


def _spare(problem: Problem, config: Config, traits: Traits) -> int:
    """Slots that stay free when a turn of neighbours begins: those that it may fill, and one."""
    turn = _segments(problem, config, traits) * int(config["rows_in_flight"])
    return turn * entries_of(problem) + 1


def _table(config: Config, problem: Problem, traits: Traits) -> str | None:
    hashed, slots = config["table"] == "hash", int(config["slots"])
    if not hashed:
        return None if slots == SLOTS.values[0] else "tables in global memory have no slots"
    needed = entries_of(problem) + _spare(problem, config, traits)
    if problem.integer("K") > slots < 2 * needed:
        return f"{slots} slots; a row and a turn of neighbours may fill {needed} of them"
    return None


def _private(config: Config, problem: Problem, traits: Traits) -> str | None:
    """A work-item keeps the largest entries and the rows in flight in thread-local arrays."""
    if config["team"] == "item" and traits.kind != "cpu" and entries_of(problem) > 32:
        return "a work-item keeps at most 32 entries"
    return None


def _local_bytes(problem: Problem, config: Config, traits: Traits) -> int:
    lanes, entries, size = team_lanes(config, traits), entries_of(problem), reals.real_bytes(problem)
    table = int(config["slots"]) * (6 + size) if config["table"] == "hash" else 0
    rows = entries * (4 + 3 * size) + 2 * size if lanes > 1 else 0
    # Each team's memory begins at a multiple of 16 bytes; numbers of 8 bytes are aligned in it.
    return int(config["block_size"]) // lanes * (table + rows + 20) if table or rows else 0


def _tables(problem: Problem) -> int:
    return table_groups(problem.integer("K"), reals.real_bytes(problem))


def _fits(config: Config, problem: Problem, traits: Traits) -> str | None:
    teams, room = int(config["block_size"]) // team_lanes(config, traits), _tables(problem)
    if config["table"] == "direct" and teams > room:
        return f"{teams} teams a block; there is room for {room} tables"
    # Work-items of a vector wait together, so that each must find a table of its own.
    if config["table"] == "hash" and config["team"] == "item" and teams * traits.compute_units > room:
        return f"{teams} work-items a block on {traits.compute_units} units may all need one of {room} tables"
    return None


CONSTRAINTS = (
    *axes.COMMON,
    teams.SUB_GROUPS,
    Constraint("table", _table),
    Constraint("tables", _fits),
    Constraint("thread-local arrays", _private),
    teams.local_memory(_local_bytes),
)
ROWS_SPACE = Space((TABLE, SPARSE_TEAM, SLOTS, teams.BLOCK_SIZE, FLIGHT), CONSTRAINTS)


def _variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    lanes, block = team_lanes(config, traits), int(config["block_size"])
    slots = int(config["slots"])
    return axes.common(
        problem,
        config,
        traits,
        R=entries_of(problem),
        T=lanes,
        teams=block // lanes,
        uses_sub_groups=lanes > 1,
        hashed=config["table"] == "hash",
        k_fits=problem.integer("K") <= slots,
        slots=slots,
        log_slots=slots.bit_length() - 1,
        spare=_spare(problem, config, traits),
        segments=_segments(problem, config, traits),
        strides=-(-entries_of(problem) // team_lanes(config, traits)),
        flight=int(config["rows_in_flight"]),
        fixed_point=FIXED_POINT,
        table_count=_tables(problem),
        draws=False,
    )


def _with_draws(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    k, lanes = problem.integer("K"), team_lanes(config, traits)
    return _variables(problem, config, traits) | {
        "draws": True,
        "every": k <= EVERY,
        "parts": PARTS,
        "part": -(-k // PARTS),
        "most_bound": MOST_BOUND,
        # More than 17 entrants of a vertex have a chance below 1e-14.
        "entrants": lanes + 17,
    }


def _launch(problem: Problem, config: Config, count: int, traits: Traits) -> Launch:
    """A team for each vertex; with tables in global memory one for each table."""
    block = int(config["block_size"])
    teams = block // team_lanes(config, traits)
    most = _tables(problem) if config["table"] == "direct" else count
    return Launch(max(1, min(-(-count // teams), most // teams)), block)


def row_bytes(problem: Problem) -> int:
    """Bytes of a sparse row."""
    return entries_of(problem) * (4 + reals.real_bytes(problem))


def _config(table: str, team: str, slots: int, block: int, rows: int) -> dict[str, Any]:
    return {"table": table, "team": team, "slots": slots, "block_size": block, "rows_in_flight": rows}


_ITEMS = [_config("direct", "item", 64, block, 1) for block in (32, 4, 1)]
_ON_CPU = teams.first_valid(_ITEMS[1:], ROWS_SPACE.refusal)
_LAST = [_config("direct", "subgroup", 64, 128, 1), *_ITEMS]
#: By the fewest slots.
_ON_GPU = {
    least: teams.first_valid(
        [
            _config("hash", "subgroup", slots, block, rows)
            for slots in (256, 512, 1024, 2048)
            if slots >= least
            for block in (64, 32)
            for rows in ((2, 1) if slots > 1024 else (1,))
        ]
        + _LAST,
        ROWS_SPACE.refusal,
    )
    for least in (256, 512, 1024, 2048)
}
#: Entries of the neighbours' rows, up to which the candidates of most vertices have room in 512 slots; and in 1024 if
#: small entries are not read.
_FEW, _SOME = 384, 1536


def _default(problem: Problem, traits: Traits) -> Config:
    """On GPUs, tables have room for all communities, or for the candidates of most vertices; overflow is slow."""
    if traits.kind == "cpu":
        return _ON_CPU(problem, traits)
    k, near = problem.integer("K"), entries_of(problem) * degree_of(problem)
    some = least_of(problem) > 0.0 and near <= _SOME
    slots = 256 if k <= 256 else 512 if k <= 512 or near <= _FEW else 1024 if k <= 1024 or some else 2048
    return _ON_GPU[slots](problem, traits)


PARAMETERS = "K N entries dtype"

SPARSE_ROWS = usual.kernel(
    "sparse",
    sparse_workloads.sparse_rows,
    "a sweep over sparse rows without noise: gradient, step and cut of every vertex, and sums for theta",
    (*SWEEP, Argument("least_pi", "real", "scalar", "pi of neighbours below which it counts as floor_pi")),
    f"{PARAMETERS} degree",
    lambda p: p.integer("N") * (3 + degree_of(p)) * row_bytes(p),
    space=ROWS_SPACE,
    default=_default,
    variables=_variables,
    launch=_launch,
    check_problem=sparse_workloads.small,
    used_with=ALL,
)

SPARSE_DRAWS = replace(
    SPARSE_ROWS,
    name="sparse_draws",
    doc="a sweep over sparse rows with noise, as sparse_rows",
    arguments=usual.arguments(
        *SWEEP, Argument("threshold", "real", "scalar", "phi above which a community is kept"), "seed iteration"
    ),
    variables=_with_draws,
    workload=sparse_workloads.sparse_draws,
)
