"""Declaration of update_phi: the paper's whole space of forms and placements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmsbgen.families.mmsb import demands, workloads
from mmsbgen.families.mmsb.axes import (
    BLOCK_SIZE,
    GEN,
    PLACEMENTS,
    REDUCTION,
    ROW_TEAM,
    TEAM,
    VECTOR_WIDTH,
    chunks,
    element_size,
    first_valid,
    launch_teams,
    local_memory,
    of_row,
    private_memory,
    row_team,
    row_vectors,
    stored_size,
    sum_bytes,
    team_size,
    work_items_at_once,
)
from mmsbgen.families.mmsb.layout import MAX_UNROLLED, row_length
from mmsbgen.families.mmsb.shared import (
    BETA,
    CLIP_COUNTS,
    DELTA,
    FIRST_VERTEX,
    LISTED,
    N_VERTICES,
    RANDOM,
    ROW_SUMS,
    SLOTS,
    SPARES,
    STEP,
    VERTICES,
)
from mmsbgen.families.mmsb.storage import storage_of
from mmsbgen.family import Argument, Demand, KernelSpec, Sweep
from mmsbgen.problem import Problem
from mmsbgen.space import Axis, Config, Constraint, Space, Traits

ROWS_IN_FLIGHT = Axis("rows_in_flight", (1, 2, 4, 8), "partners whose rows are read before the first is used up")
PREFETCH = Axis("prefetch", (0, 1, 2), "sets of rows of the next vertex that the end of a row asks for; CPUs")
NORMALISE = Axis("normalise", (False, True), "whether the kernel also writes pi: update_pi in the same pass")
PLACEMENT = Axis(
    "placement",
    PLACEMENTS,
    "THREAD, NAIVE, GLOBAL, SHARED, or where (probs, grads, pi) live: R registers with unrolled loops, S shared memory",
)


def places(config: Config) -> tuple[str, str, str]:
    """Where the partner's row, the accumulator and the own row live: letters of ``templates/mmsb/update_phi.jinja``."""
    placement = str(config["placement"])
    fixed = {
        "THREAD": ("G", "L", "L"),
        "NAIVE": ("L", "L", "G"),
        "GLOBAL": ("G", "G", "G"),
        "SHARED": ("S", "S", "S"),
    }
    return fixed.get(placement) or (placement[0], placement[1], placement[2])


#: Vectors that are looked through together for coordinates that wait for a draw.
HOLDS = 16


def queue_length(problem: Problem, config: Config, traits: Traits) -> int:
    """How many coordinates of a work-item may wait for a draw of the split step: all, or 0 where that is too much."""
    if problem["step"] != "split" or problem["noise"] != "on":
        return 0
    length = chunks(problem, config, traits) * int(config["vector_width"])
    each = length * _queued_bytes(problem)
    if traits.kind == "cpu":
        block, at_once = int(config["block_size"]), work_items_at_once(config)
        return length if block * each <= 1 << 19 and at_once * each <= 1 << 18 else 0
    return length if each <= 1 << 10 else 0


def _queued_bytes(problem: Problem) -> int:
    return 4 + 3 * element_size(problem)


def shared_bytes(problem: Problem, config: Config, traits: Traits) -> int:
    """Local memory of a block: the vectors placed there and the team's sums."""
    probs, grads, pi = places(config)
    rows = int(config["rows_in_flight"])
    size = team_size(config, traits)
    teams = int(config["block_size"]) // size
    # A partner's row waits as it is stored.
    element = rows * (probs == "S") * stored_size(problem) + ((grads == "S") + (pi == "S")) * element_size(problem)
    return teams * row_length(problem.integer("K")) * element + sum_bytes(problem, config, traits, rows)


def _form(config: Config, problem: Problem, traits: Traits) -> str | None:
    placement, team = config["placement"], config["team"]
    if placement == "THREAD" and team != "item":
        return "THREAD is one work-item a vertex"
    if placement in ("NAIVE", "SHARED") and team != "block":
        return f"{placement} is one block a vertex"
    if placement in GEN:
        count = chunks(problem, config, traits)
        if count > MAX_UNROLLED:
            return f"{count} chunks a work-item to unroll; at most {MAX_UNROLLED}"
    return None


#: Bytes of a vector of which a draw's temporaries fit for all work-items of a sub-group; see vectorised_memory.
_DRAWN_BYTES = 64
#: Vectors of draws that PoCL keeps on the stack for each work-item of a block: frames have 81 to 104, 101 to 143.
_DRAWN_VECTORS = {"item": 105, "block": 145}
#: What a block may take of a thread's 8 MiB of stack; overflow kills the process, though not every time.
_STACK_BYTES = 15 << 19


def _private(config: Config, problem: Problem, traits: Traits) -> str | None:
    probs, grads, pi = places(config)
    # What a processor's registers do not hold lies, like thread-local arrays, on the stack of the whole block.
    private = "LR" if traits.kind == "cpu" else "L"
    vectors = int(config["rows_in_flight"]) * (probs in private) + (grads in private) + (pi in private)
    queue = queue_length(problem, config, traits) * _queued_bytes(problem) if traits.kind == "cpu" else 0
    if vectors and (reason := private_memory(vectors, config, problem, traits, beside=queue)):
        return reason
    if traits.kind == "cpu" and problem["step"] == "split" and problem["noise"] == "on":
        return _drawn(config, problem, vectors * chunks(problem, config, traits), queue)
    return None


def _drawn(config: Config, problem: Problem, vectors: int, queue: int) -> str | None:
    """Why a CPU's stack does not hold what a block's draws take beside ``vectors`` and ``queue`` bytes a work-item."""
    vector, block = int(config["vector_width"]) * element_size(problem), int(config["block_size"])
    if config["team"] == "subgroup":
        if vector > _DRAWN_BYTES:
            return f"draws by vectors of {vector} bytes in every work-item of a sub-group; at most {_DRAWN_BYTES}"
        return None
    needed = block * ((_DRAWN_VECTORS[str(config["team"])] + vectors) * vector + queue)
    if needed > _STACK_BYTES:
        return f"{block} work-items that draw take {needed} bytes of stack; at most {_STACK_BYTES}"
    return None


#: Additions one after another beyond which small terms are lost: their rounding no longer cancels out.
_LONGEST_CHAIN = 1 << 18


def _stored(config: Config, problem: Problem, traits: Traits) -> str | None:
    storage = storage_of(problem)
    if storage.narrow and "normalise" not in config:
        return f"rows of {storage.name} are ended by update_phi alone"
    if storage.narrow and not config["normalise"]:
        return f"rows of {storage.name} hold pi, each rounded once: update_phi must normalise them"
    if storage.narrow and config["placement"] == "GLOBAL":
        return f"GLOBAL adds up in the row that it writes, of 16 bits in {storage.name}; rows as long need float32"
    return None


def _accuracy(config: Config, problem: Problem, traits: Traits) -> str | None:
    chain = chunks(problem, config, traits)
    if chain > _LONGEST_CHAIN:
        return f"{chain} additions one after another lose small terms; at most {_LONGEST_CHAIN}"
    return None


def _in_flight(config: Config, problem: Problem, traits: Traits) -> str | None:
    rows, n = int(config["rows_in_flight"]), problem.integer("n")
    return f"{rows} rows in flight for {n} partners" if rows > n else None


def _prefetch(config: Config, problem: Problem, traits: Traits) -> str | None:
    if config["prefetch"] and traits.kind != "cpu":
        return "a GPU reads ahead with other work-items"
    if config["prefetch"] and config["placement"] != "THREAD":
        return "is for THREAD: one work-item goes on to the next vertex"
    return None


def _lanes(config: Config, problem: Problem, traits: Traits) -> str | None:
    if config["team"] == "item" and config["placement"] in GEN and "S" in str(config["placement"]):
        block = int(config["block_size"])
        if block > 1 and block * row_vectors(problem, config) > 1 << 16:
            return "every work-item would keep whole rows in local memory"
    return None


#: Turns of unrolled loops times rows in flight that Intel's compiler is given where it makes vectors of work-items that
#: draw and round to 16 bits: 64 of either took it up to 14 s, 128 over 20 s, 256 did not end in minutes.
_MOST_VECTORISED = 64


def _compiles(config: Config, problem: Problem, traits: Traits) -> str | None:
    # Seen with Intel's runtime 2026.22: rows of 32 bits, steps without draws and teams of several take it seconds.
    if traits.kind != "cpu" or "Intel" not in traits.platform or config["team"] != "item":
        return None
    storage, draws = storage_of(problem), problem["step"] == "split" and problem["noise"] == "on"
    if config["placement"] not in GEN or not storage.narrow or not draws or work_items_at_once(config) == 1:
        return None
    turns, rows = chunks(problem, config, traits), int(config["rows_in_flight"])
    if turns * rows <= _MOST_VECTORISED:
        return None
    return (
        f"Intel's compiler takes minutes for vectors of work-items drawing rows of {storage.name} in {turns} unrolled "
        f"turns with rows_in_flight={rows}; at most {_MOST_VECTORISED} of both multiplied, or a vector_width above 1"
    )


SPACE = Space(
    (PLACEMENT, TEAM, VECTOR_WIDTH, BLOCK_SIZE, ROWS_IN_FLIGHT, PREFETCH, NORMALISE, REDUCTION),
    (
        *ROW_TEAM,
        Constraint("form", _form),
        Constraint("storage", _stored),
        Constraint("rows in flight", _in_flight),
        Constraint("prefetch", _prefetch),
        local_memory(shared_bytes),
        Constraint("private memory", _private),
        Constraint("accuracy", _accuracy),
        Constraint("lanes", _lanes),
        Constraint("compiler", _compiles),
    ),
)


#: The constraints of every kernel that reads rows and ends them; the others speak of update_phi's own axes and storage.
ROW_CONSTRAINTS = tuple(
    each for each in SPACE.constraints if each.name not in ("rows in flight", "prefetch", "compiler")
)


def row_variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    """Template variables of every kernel that reads rows and ends them, by the placement of its three vectors."""
    probs, grads, pi = places(config)
    rows = int(config["rows_in_flight"])
    return row_team(
        problem,
        config,
        traits,
        unrolled=config["placement"] in GEN,
        step=problem["step"],
        rows=rows,
        dot_names=[f"dot{j}" for j in range(rows)],
        place_probs=probs,
        place_grads=grads,
        place_pi=pi,
        queue=queue_length(problem, config, traits),
        holds=HOLDS,
    )


def variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    """Template variables of update_phi."""
    own = {"prefetch": config["prefetch"], "normalise": config["normalise"]}
    return row_variables(problem, config, traits) | own


def _gpu(
    width: int, block: int, team: str, placement: str, reduction: str, rows: int = 2, prefetch: int = 0
) -> dict[str, Any]:
    return {
        "placement": placement,
        "team": team,
        "vector_width": width,
        "block_size": block,
        "rows_in_flight": rows,
        "prefetch": prefetch,
        "normalise": True,
        "reduction": reduction,
    }


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
    """What runs when nothing was tuned: one vertex a work-item on CPUs, one a sub-group or a block on GPUs."""
    if traits.kind == "cpu":
        return first_valid(_ANYWHERE, SPACE.refusal)(problem, traits)
    # Teams that have two chunks a work-item, so that a multiprocessor's registers hold the rows of enough of them.
    if storage_of(problem).narrow:
        # Half the bytes a row: as many a load by twice the width, and as many on their way by twice the rows.
        block = max(64, _two_chunks_each(problem, 8))
        first = [_gpu(8, size, "block", "RRR", "shuffle", rows) for size in (block, 64) for rows in (4, 2)]
        first.append(_gpu(8, 128, "subgroup", "RRR", "shuffle"))
    elif traits.sub_group_size > 1:
        # On an H200 within 9 % of the best of some 150 at every K from 128 to 4096, with split, reflected and no draws.
        block = min(128, _two_chunks_each(problem, 4))
        team, size = ("block", block) if block > 32 else ("subgroup", 128)
        rows = (2, 1) if row_vectors(problem, {"vector_width": 4}) > 32 else (4, 2, 1)
        first = [_gpu(4, size, team, placement, "shuffle", each) for placement in ("RSS", "RRS") for each in rows]
    elif _two_chunks_each(problem, 4) == 32:
        first = [_gpu(4, 32, "block", "RRR", "local", rows) for rows in (2, 1)]
    else:
        # Sums in local memory cost the fewer the smaller the team: 4 % from the best at K = 1024 by NVIDIA's OpenCL.
        size = 64 if row_vectors(problem, {"vector_width": 4}) <= 256 else 128
        first = [_gpu(2, size, "block", "RRR", "local", rows) for rows in (4, 2, 1)]
    return first_valid([*first, *_GPU_DEFAULTS, *_ANYWHERE], SPACE.refusal)(problem, traits)


def _two_chunks_each(problem: Problem, width: int) -> int:
    """Work-items that have two chunks of a row each or fewer; 512 where the row is longer."""
    vectors = row_vectors(problem, {"vector_width": width})
    return next((size for size in (32, 64, 128, 256) if 2 * size >= vectors), 512)


def traffic(problem: Problem) -> int:
    """Bytes that must move: every partner's row once, the own row read and the new one written."""
    row = row_length(problem.integer("K")) * stored_size(problem)
    return problem.integer("m") * (problem.integer("n") + 2) * row


def demand(problem: Problem, config: Config, traits: Traits) -> Demand:
    """What a configuration asks of a device."""
    return demands.gather(
        problem,
        config,
        traits,
        places=places(config),
        partners=problem.integer("n"),
        rows=int(config["rows_in_flight"]),
        moved=traffic(problem),
        local=shared_bytes(problem, config, traits),
        unrolled=config["placement"] in GEN,
    )


def flops(problem: Problem) -> int:
    """Two fused multiply-adds for every element of a partner's row."""
    return 4 * problem.integer("m") * problem.integer("n") * problem.integer("K")


ARGUMENTS = (
    Argument("pi", "stored", "inout", "[N + m, LD] rows by slot"),
    ROW_SUMS,
    SLOTS,
    SPARES,
    BETA,
    VERTICES,
    Argument("partners", "u32", "in", "[.., m, n] partners of each"),
    Argument("weights", "real", "in", "[.., m, n] weight, negative for a non-link, 0 to ignore"),
    CLIP_COUNTS,
    N_VERTICES,
    FIRST_VERTEX,
    Argument("n_partners", "u32", "scalar", "partners of each"),
    *STEP,
    DELTA,
    *RANDOM,
)


def _variant(params: Mapping[str, Any]) -> str:
    """How a row ends, and in what it is stored where that is 16 bits."""
    stored = f", {params['storage']} rows" if "storage" in params else ""
    noise = " without noise" if params.get("noise") == "off" else ""
    return f"{params.get('step', 'any')} step{noise}{stored}"


SWEEP = Sweep(
    size="K",
    sizes=("m", "n", "N", "dtype"),
    lines="placement",
    along="block_size",
    widths="vector_width",
    panels={"rolled loops": PLACEMENTS[: -len(GEN)], "unrolled loops": GEN},
    titles={
        "K": "communities K",
        "block_size": "block size (work-items)",
        "vector_width": "vector width (elements)",
    },
    variant=_variant,
)
UPDATE_PHI = KernelSpec(
    name="update_phi",
    template="mmsb/update_phi.jinja",
    doc="gather the partners' rows, sum the gradient, end every row of the mini-batch with a step",
    arguments=ARGUMENTS,
    parameters=("K", "N", "m", "n", "dtype", "storage", "step", "noise"),
    space=SPACE,
    default=default,
    variables=variables,
    launch=launch_teams,
    traffic=traffic,
    flops=flops,
    workload=workloads.update_phi,
    # Without it update_pi must run too, so its time is not to be compared; selected by hand where wanted.
    modes=("normalise",),
    used_with=LISTED,
    carry=of_row,
    check_problem=workloads.small,
    demand=demand,
    sweep=SWEEP,
)
