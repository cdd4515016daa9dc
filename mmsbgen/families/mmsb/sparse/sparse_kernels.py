"""Declarations of the kernels over sparse rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mmsbgen.families.mmsb.axes.common_axes import (
    BLOCK_SIZE,
    COMMON,
    common,
    element_size,
    first_valid,
    launch_items,
    local_memory,
)
from mmsbgen.families.mmsb.axes.small_spaces import (
    BEST,
    BETA,
    DELTA,
    EVALUATED,
    ITEMS_CPU,
    ITEMS_GPU,
    LINKS,
    N_VERTICES,
    PLACES,
    SCALAR_SPACE,
    STEP,
    defaults,
)
from mmsbgen.families.mmsb.sparse import sparse_pair_workloads, sparse_workloads
from mmsbgen.families.mmsb.sparse.sparse_sizes import FIXED_POINT, degree_of, entries_of, table_groups
from mmsbgen.kernels.family import Argument, KernelSpec, Launch, Workload
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

ROWS = (
    Argument("communities", "u32", "in", "[N, R] communities of the entries, the largest entry first"),
    Argument("values", "real", "in", "[N, R] the entries of pi"),
)
FLOOR_PI = Argument("floor_pi", "real", "scalar", "pi of the communities without an entry")
SUMS = Argument("fixed_sums", "u64", "inout", "[3, LD] counts of non-links and links, sums of columns, in 2^-30")
TOTALS = Argument("totals", "real", "in", "[LD] sums of the columns of pi")
SWEEP = (
    *ROWS,
    Argument("new_communities", "u32", "inout", "[N, R] the new rows"),
    Argument("new_values", "real", "inout", "[N, R] their entries"),
    Argument("row_sums", "real", "inout", "[N] sums of phi"),
    BETA,
    TOTALS,
    Argument("vertices", "u32", "in", "[N] all vertices, in the order of the sweep"),
    *LINKS,
    Argument("tables", "real", "inout", "[groups, K, 2] tables of candidates; zero before and after"),
    Argument("used_lists", "u32", "inout", "[groups, K] places in use"),
    SUMS,
    Argument("clip_counts", "u32", "inout", "[N] candidates whose flow was bounded, added up"),
    Argument("table_locks", "u32", "inout", "[groups] 1 while a team has the table; zero before and after"),
    N_VERTICES,
    *STEP,
    DELTA,
    FLOOR_PI,
    Argument("non_link_weight", "real", "scalar", "weight of a non-link"),
    Argument("inverse_n", "real", "scalar", "1 / N"),
)


def team_lanes(config: Config, traits: Traits) -> int:
    """Work-items that share one vertex."""
    return max(1, traits.sub_group_size) if config["team"] == "subgroup" else 1


def _segments(problem: Problem, config: Config, traits: Traits) -> int:
    """Neighbours that a team of a hash table reads side by side; sums over a part of a sub-group are CUDA's."""
    lanes, entries = team_lanes(config, traits), entries_of(problem)
    return lanes // entries if traits.dialect == "cuda" and config.get("table") == "hash" and lanes > entries else 1


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


def _sub_groups(config: Config, problem: Problem, traits: Traits) -> str | None:
    if config["team"] == "item":
        return None
    lanes, block = traits.sub_group_size, int(config["block_size"])
    if not lanes:
        return "the device has no sub-groups"
    return f"a block of {block} is not a whole number of sub-groups of {lanes}" if block % lanes else None


SUB_GROUPS = Constraint("sub-groups", _sub_groups)


def _private(config: Config, problem: Problem, traits: Traits) -> str | None:
    """A work-item keeps the largest entries and the rows in flight in thread-local arrays."""
    if config["team"] == "item" and traits.kind != "cpu" and entries_of(problem) > 32:
        return "a work-item keeps at most 32 entries"
    return None


def _local_bytes(problem: Problem, config: Config, traits: Traits) -> int:
    lanes = team_lanes(config, traits)
    teams, size = int(config["block_size"]) // lanes, element_size(problem)
    table = int(config["slots"]) * (6 + size) if config["table"] == "hash" else 0
    rows = entries_of(problem) * (4 + 3 * size) if lanes > 1 else 0
    return teams * (table + rows + 4)


def _tables(problem: Problem) -> int:
    return table_groups(problem.integer("K"), element_size(problem))


def _fits(config: Config, problem: Problem, traits: Traits) -> str | None:
    teams, room = int(config["block_size"]) // team_lanes(config, traits), _tables(problem)
    if config["table"] == "direct" and teams > room:
        return f"{teams} teams a block; there is room for {room} tables"
    # Work-items of a vector wait together, so that each must find a table of its own.
    if config["table"] == "hash" and config["team"] == "item" and teams * traits.compute_units > room:
        return f"{teams} work-items a block on {traits.compute_units} units may all need one of {room} tables"
    return None


CONSTRAINTS = (
    *COMMON,
    SUB_GROUPS,
    Constraint("table", _table),
    Constraint("tables", _fits),
    Constraint("thread-local arrays", _private),
    local_memory(_local_bytes),
)
ROWS_SPACE = Space((TABLE, SPARSE_TEAM, SLOTS, BLOCK_SIZE, FLIGHT), CONSTRAINTS)


def _variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    lanes, block = team_lanes(config, traits), int(config["block_size"])
    slots = int(config["slots"])
    return common(
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
    )


def _launch(problem: Problem, config: Config, count: int, traits: Traits) -> Launch:
    """A team for each vertex; with tables in global memory one for each table."""
    block = int(config["block_size"])
    teams = block // team_lanes(config, traits)
    most = _tables(problem) if config["table"] == "direct" else count
    return Launch(max(1, min(-(-count // teams), most // teams)), block)


def row_bytes(problem: Problem) -> int:
    """Bytes of a sparse row."""
    return entries_of(problem) * (4 + element_size(problem))


def _traffic(problem: Problem) -> int:
    return problem.integer("N") * (3 + degree_of(problem)) * row_bytes(problem)


def _config(table: str, team: str, slots: int, block: int, rows: int) -> dict[str, Any]:
    return {"table": table, "team": team, "slots": slots, "block_size": block, "rows_in_flight": rows}


_ITEMS = [_config("direct", "item", 64, block, 1) for block in (32, 4, 1)]
_ON_CPU = first_valid(_ITEMS[1:], ROWS_SPACE.refusal)
_LAST = [_config("direct", "subgroup", 64, 128, 1), *_ITEMS]
#: By the fewest slots.
_ON_GPU = {
    least: first_valid(
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
#: Entries of the neighbours' rows, up to which the candidates of most vertices have room in 512 slots.
_FEW = 384


def _default(problem: Problem, traits: Traits) -> Config:
    """On GPUs, tables have room for all communities, or for the candidates of most vertices; overflow is slow."""
    if traits.kind == "cpu":
        return _ON_CPU(problem, traits)
    k, few = problem.integer("K"), entries_of(problem) * degree_of(problem) <= _FEW
    return _ON_GPU[256 if k <= 256 else 512 if k <= 512 or few else 1024 if k <= 1024 else 2048](problem, traits)


_PARAMETERS = ("K", "N", "entries", "dtype")

SPARSE_ROWS = KernelSpec(
    name="sparse_rows",
    template="mmsb/sparse/sparse_rows.jinja",
    doc="a sweep over sparse rows without noise: gradient, step and cut of every vertex, and sums for theta",
    arguments=SWEEP,
    parameters=(*_PARAMETERS, "degree"),
    space=ROWS_SPACE,
    default=_default,
    variables=_variables,
    launch=_launch,
    traffic=_traffic,
    flops=lambda p: 6 * p.integer("N") * (1 + degree_of(p)) * entries_of(p),
    workload=sparse_workloads.sparse_rows,
    check_problem=sparse_workloads.small,
    used_with=ALL,
)


def _items(
    name: str,
    doc: str,
    arguments: tuple[Argument, ...],
    workload: Callable[[Problem, int], Workload],
    parameters: tuple[str, ...] = ("K", "N", "pairs", "entries", "dtype"),
    traffic: Callable[[Problem], int] = lambda p: 2 * p.integer("pairs") * row_bytes(p),
    each: Callable[[Problem], int] = lambda p: 1,
) -> KernelSpec:
    """Declaration of a kernel of independent work-items, ``each`` of them for a work unit."""
    return KernelSpec(
        name=name,
        template=f"mmsb/sparse/{name}.jinja",
        doc=doc,
        arguments=arguments,
        parameters=parameters,
        space=SCALAR_SPACE,
        default=defaults(SCALAR_SPACE, ITEMS_GPU, ITEMS_CPU),
        variables=lambda problem, config, traits: (
            common(problem, config, traits) | {"R": entries_of(problem), "fixed_point": FIXED_POINT}
        ),
        launch=lambda problem, config, count, traits: launch_items(problem, config, count * each(problem), traits),
        traffic=traffic,
        flops=lambda p: 0,
        workload=workload,
        check_problem=sparse_workloads.small,
        used_with=ALL,
    )


SPARSE_TOTALS = _items(
    "sparse_totals",
    "theta's counts and the sums of the new columns, after a sweep",
    (
        SUMS,
        BETA,
        Argument("counts", "real", "out", "[2, LD] scaled sums of rho: non-links, links"),
        Argument("totals", "real", "out", "[LD] sums of the columns of pi"),
        Argument("non_link_scale", "real", "scalar", "of the counts of non-links"),
        Argument("link_scale", "real", "scalar", "of the counts of links"),
        Argument("n_total", "u32", "scalar", "N"),
        FLOOR_PI,
    ),
    sparse_workloads.sparse_totals,
    ("K", "N", "dtype"),
    lambda p: 8 * p.integer("K") * 8,
)

SPARSE_PAIRS = _items(
    "sparse_pairs",
    "probability of a link for every held-out pair",
    (*ROWS, *EVALUATED, FLOOR_PI),
    sparse_pair_workloads.sparse_pairs,
)

SPARSE_LINKS = _items(
    "sparse_links",
    "the community that explains each link best, and its share",
    (*ROWS, *BEST, FLOOR_PI),
    sparse_pair_workloads.sparse_links,
)

SPARSE_PLACES = _items(
    "sparse_places",
    "how much of each link some communities explain",
    (*ROWS, *PLACES, FLOOR_PI),
    sparse_pair_workloads.sparse_places,
)

SPARSE_SHARES = _items(
    "sparse_shares",
    "how many of a vertex's links each entry of its row explains",
    (
        *ROWS,
        BETA,
        Argument("vertices", "u32", "in", "[N] all vertices"),
        *LINKS,
        Argument("members", "u64", "in", "[N] a bit for each entry in whose community the vertex is"),
        Argument("explained_links", "real", "out", "[N, R] sums of the shares of p(y = 1)"),
        N_VERTICES,
        Argument("only_members", "u32", "scalar", "whether only links to members of the entry's community count"),
        DELTA,
        FLOOR_PI,
    ),
    sparse_pair_workloads.sparse_shares,
    _PARAMETERS,
    lambda p: p.integer("N") * (2 + degree_of(p)) * row_bytes(p),
)

SPARSE_GATHER = _items(
    "sparse_gather",
    "copies of the sparse rows of some vertices",
    (
        *ROWS,
        Argument("wanted", "u32", "in", "[V] vertices"),
        Argument("found_communities", "u32", "out", "[V, R] their communities"),
        Argument("found_values", "real", "out", "[V, R] their entries"),
        Argument("n_wanted", "u32", "scalar", "V"),
    ),
    sparse_pair_workloads.sparse_gather,
    each=entries_of,
)

SPARSE_REPLACE = _items(
    "sparse_replace",
    "puts the new rows of some vertices in place of the old ones",
    (
        Argument("communities", "u32", "inout", "[N, R] communities of the entries, the largest entry first"),
        Argument("values", "real", "inout", "[N, R] the entries of pi"),
        Argument("new_communities", "u32", "in", "[N, R] the new rows"),
        Argument("new_values", "real", "in", "[N, R] their entries"),
        Argument("told_communities", "u32", "inout", "[N, R] the rows that neighbours were told of"),
        Argument("told_values", "real", "inout", "[N, R] their entries"),
        Argument("vertices", "u32", "in", "[N] distinct vertices, as many as are to be replaced"),
        SUMS,
        Argument("moved", "real", "out", "[N] L1 distances of the new rows from the old, in the order of vertices"),
        Argument("since_told", "real", "out", "[N] those from the rows that neighbours were told of"),
        N_VERTICES,
        FLOOR_PI,
        Argument("tolerance", "real", "scalar", "distance beyond which neighbours are told"),
    ),
    sparse_pair_workloads.sparse_replace,
    _PARAMETERS,
    lambda p: p.integer("N") * 4 * row_bytes(p),
)

KERNELS = (
    SPARSE_ROWS,
    SPARSE_TOTALS,
    SPARSE_PAIRS,
    SPARSE_LINKS,
    SPARSE_PLACES,
    SPARSE_SHARES,
    SPARSE_GATHER,
    SPARSE_REPLACE,
)
