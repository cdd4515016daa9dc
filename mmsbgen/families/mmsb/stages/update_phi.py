"""Declaration of update_phi, with the paper's whole space of forms and placements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmsbgen.families.mmsb.axes import common_axes as axes
from mmsbgen.families.mmsb.axes import row_space
from mmsbgen.families.mmsb.axes import small_spaces as usual
from mmsbgen.families.mmsb.numbers.row_layout import row_length
from mmsbgen.families.mmsb.numbers.storage import storage_of
from mmsbgen.families.mmsb.reference import workloads
from mmsbgen.kernels.family import Argument, Demand
from mmsbgen.kernels.kit import reals, teams
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Axis, Config, Constraint, Space, Sweep, Traits

PREFETCH = Axis("prefetch", (0, 1, 2), "sets of rows of the next vertex that the end of a row asks for; CPUs")
NORMALISE = Axis("normalise", (False, True), "whether the kernel also writes pi: update_pi in the same pass")


def _in_flight(config: Config, problem: Problem, traits: Traits) -> str | None:
    rows, n = int(config["rows_in_flight"]), problem.integer("n")
    return f"{rows} rows in flight for {n} partners" if rows > n else None


def _prefetch(config: Config, problem: Problem, traits: Traits) -> str | None:
    if config["prefetch"] and traits.kind != "cpu":
        return "a GPU reads ahead with other work-items"
    if config["prefetch"] and config["placement"] != "THREAD":
        return "is for THREAD: one work-item goes on to the next vertex"
    return None


#: Largest product of unrolled turns and rows in flight for Intel's compiler, if it combines work-items that draw and
#: round to 16 bits into vectors. 64 took up to 14 s, 128 over 20 s, 256 did not finish in minutes.
_MOST_VECTORISED = 64


def _compiles(config: Config, problem: Problem, traits: Traits) -> str | None:
    # Seen with Intel's runtime 2026.22. Rows of 32 bits, steps without draws and larger teams compile in seconds.
    if traits.kind != "cpu" or "Intel" not in traits.platform or config["team"] != "item":
        return None
    storage, draws = storage_of(problem), problem["step"] == "split" and problem["noise"] == "on"
    if config["placement"] not in axes.GEN or not storage.narrow or not draws or teams.work_items_at_once(config) == 1:
        return None
    turns, rows = axes.chunks(problem, config, traits), int(config["rows_in_flight"])
    if turns * rows <= _MOST_VECTORISED:
        return None
    return (
        f"Intel's compiler takes minutes for vectors of work-items drawing rows of {storage.name} in {turns} unrolled "
        f"turns with rows_in_flight={rows}; at most {_MOST_VECTORISED} of both multiplied, or a vector_width above 1"
    )


SPACE = Space(
    (
        row_space.PLACEMENT,
        teams.TEAM,
        teams.VECTOR_WIDTH,
        teams.BLOCK_SIZE,
        row_space.ROWS_IN_FLIGHT,
        PREFETCH,
        NORMALISE,
        teams.REDUCTION,
    ),
    (
        *row_space.FORMS,
        Constraint("rows in flight", _in_flight),
        Constraint("prefetch", _prefetch),
        *row_space.MEMORY,
        Constraint("compiler", _compiles),
    ),
)


def variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    """Template variables of update_phi."""
    own = {"prefetch": config["prefetch"], "normalise": config["normalise"]}
    return row_space.row_variables(problem, config, traits) | own


def _gpu(
    width: int, block: int, team: str, placement: str, reduction: str, rows: int = 2, prefetch: int = 0
) -> dict[str, Any]:
    shared = row_space.row_config(placement, team, width, block, rows)
    return shared | {"prefetch": prefetch, "normalise": True, "reduction": reduction}


_GPU_DEFAULTS = [
    _gpu(4, 64, "block", "RRR", "shuffle"),
    _gpu(4, 128, "block", "RRR", "shuffle"),
    _gpu(4, 128, "subgroup", "RRR", "shuffle"),
    _gpu(4, 128, "subgroup", "RRR", "shuffle", 1),
    _gpu(4, 64, "block", "SHARED", "shuffle", 1),
    _gpu(4, 256, "block", "NAIVE", "shuffle", 1),
    _gpu(4, 256, "block", "GLOBAL", "shuffle", 1),
    *(_gpu(4, 32, "block", "RRR", "shuffle", rows) for rows in (2, 1)),
]
_ANYWHERE = [
    _gpu(16, 1, "item", "THREAD", "none", 8, 2),
    _gpu(16, 1, "item", "THREAD", "none", 8),
    _gpu(16, 1, "item", "THREAD", "none", 4),
    _gpu(8, 1, "item", "THREAD", "none", 1),
    _gpu(4, 1, "item", "THREAD", "none", 1),
    _gpu(16, 1, "item", "GLOBAL", "none", 2),
    _gpu(16, 1, "item", "GLOBAL", "none", 1),
    _gpu(16, 64, "block", "GLOBAL", "local", 1),
    _gpu(4, 256, "block", "GLOBAL", "local", 1),
    _gpu(4, 1, "item", "GLOBAL", "none", 1),
    _gpu(1, 1, "item", "GLOBAL", "none", 1),
]


def default(problem: Problem, traits: Traits) -> Config:
    """Default configuration: a work-item per vertex on CPUs, a sub-group or a block per vertex on GPUs."""
    if traits.kind == "cpu":
        return teams.first_valid(_ANYWHERE, SPACE.refusal)(problem, traits)
    # With a few chunks per work-item, a multiprocessor's registers hold the rows of enough teams.
    narrow, vectors = storage_of(problem).narrow, axes.row_vectors(problem, {"vector_width": 4})
    if traits.sub_group_size > 1:
        # On an H200 within 9 % of the best of 63 to 201 at every K from 128 to 4096: split, reflected, without draws.
        # Rows of 16 bits have half the bytes per chunk, so half the work-items keep as many bytes in flight.
        block = axes.block_for(problem, 4, 4) if narrow else min(128, axes.block_for(problem, 4, 2))
        team, size = ("block", block) if block > 32 else ("subgroup", 128)
        rows = (4, 2, 1) if vectors <= 32 or (narrow and vectors >= 128) else (2, 1)
        first = [_gpu(4, size, team, placement, "shuffle", each) for placement in ("RSS", "RRS") for each in rows]
    elif narrow:
        # Half the bytes per row: twice the width and twice the rows keep as many bytes per load and in flight.
        block = max(64, axes.block_for(problem, 8, 2))
        first = [_gpu(8, size, "block", "RRR", "local", rows) for size in (block, 64) for rows in (4, 2)]
    elif axes.block_for(problem, 4, 2) == 32:
        first = [_gpu(4, 32, "block", "RRR", "local", rows) for rows in (2, 1)]
    else:
        # Sums in local memory cost less in smaller teams: 4 % from the best at K = 1024 with NVIDIA's OpenCL.
        size = 64 if vectors <= 256 else 128
        first = [_gpu(2, size, "block", "RRR", "local", rows) for rows in (4, 2, 1)]
    return teams.first_valid([*first, *_GPU_DEFAULTS, *_ANYWHERE], SPACE.refusal)(problem, traits)


def traffic(problem: Problem) -> int:
    """Minimum bytes of memory traffic: every partner's row, the own row and the new row, once each."""
    row = row_length(problem.integer("K")) * axes.stored_size(problem)
    return problem.integer("m") * (problem.integer("n") + 2) * row


#: Accesses to caches or local memory per partner's row, by the placement of that row between dot and accumulate.
#: A row stored there is written and read again; a row that is not stored is read a second time.
_PARTNER = {"R": 0, "S": 2, "L": 2, "G": 1}
#: The same for the accumulator, which is read and written once for all rows in flight.
_SUM = {"R": 0, "S": 2, "L": 2, "G": 2}
#: The same for the vertex's own row: w is stored, or recomputed from two rows.
_OWN = {"R": 0, "S": 1, "L": 1, "G": 2}


def demand(problem: Problem, config: Config, traits: Traits) -> Demand:
    """Resource demand of a configuration: for each vertex partners' rows are gathered, several of them in flight."""
    probs, grads, pi = row_space.places(config)
    rows, width, partners = int(config["rows_in_flight"]), int(config["vector_width"]), problem.integer("n")
    elements = axes.chunks(problem, config, traits) * width
    real, stored = reals.real_bytes(problem), axes.stored_size(problem)
    of_reals = usual.row_bytes(problem) * (_SUM[grads] + _OWN[pi]) / rows
    near = problem.integer("m") * partners * (usual.stored_row_bytes(problem) * _PARTNER[probs] + of_reals)
    return Demand(
        moved=traffic(problem),
        units=problem.integer("m"),
        near=round(near),
        local=row_space.shared_bytes(problem, config, traits),
        private=elements * (rows * stored * (probs in "RL") + real * ((grads in "RL") + (pi in "RL"))),
        wanted=rows * stored * (elements if config["placement"] in axes.GEN else width),
        barriers=teams.barriers(config, traits, -(-partners // rows)),
        busy=axes.busy(problem, config, traits),
    )


ARGUMENTS = usual.arguments(
    Argument("pi", "stored", "inout", "[N + m, LD] rows by slot"),
    "row_sums slots spares beta vertices",
    Argument("partners", "u32", "in", "[.., m, n] partners of each"),
    Argument("weights", "real", "in", "[.., m, n] weight, negative for a non-link, 0 to ignore"),
    "clip_counts n_vertices first_vertex",
    Argument("n_partners", "u32", "scalar", "partners of each"),
    "half_step decay spread alpha delta seed iteration",
)


def _variant(params: Mapping[str, Any]) -> str:
    """Description of the step, with the storage type if it is 16 bits."""
    stored = f", {params['storage']} rows" if "storage" in params else ""
    noise = " without noise" if params.get("noise") == "off" else ""
    return f"{params.get('step', 'any')} step{noise}{stored}"


SWEEP = Sweep(
    size="K",
    sizes=("m", "n", "N", "dtype"),
    lines="placement",
    along="block_size",
    widths="vector_width",
    panels={"rolled loops": axes.PLACEMENTS[: -len(axes.GEN)], "unrolled loops": axes.GEN},
    titles={"K": "communities K", "block_size": "block size (work-items)", "vector_width": "vector width (elements)"},
    variant=_variant,
)
UPDATE_PHI = usual.kernel(
    "stages",
    workloads.update_phi,
    "gather the partners' rows, sum the gradient, end every row of the mini-batch with a step",
    ARGUMENTS,
    "K N m n dtype storage step noise",
    traffic,
    space=SPACE,
    default=default,
    variables=variables,
    launch=teams.launch_teams,
    # Without it update_pi must run too, so times are not comparable; the user selects it explicitly.
    modes=("normalise",),
    used_with=usual.LISTED,
    carry=axes.of_row,
    check_problem=workloads.small,
    demand=demand,
    sweep=SWEEP,
)
