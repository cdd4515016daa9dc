"""Configuration space shared by kernels that gather rows and update them: placements, memory, constraints."""

from __future__ import annotations

from typing import Any

from mmsbgen.families.mmsb.axes import common_axes as axes
from mmsbgen.families.mmsb.numbers.row_layout import MAX_UNROLLED, row_length
from mmsbgen.families.mmsb.numbers.storage import storage_of
from mmsbgen.kernels.kit import reals, teams
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Axis, Config, Constraint, Traits

ROWS_IN_FLIGHT = Axis("rows_in_flight", (1, 2, 4, 8), "partners whose rows are read before the first is used up")
PLACEMENT = Axis(
    "placement",
    axes.PLACEMENTS,
    "THREAD, NAIVE, GLOBAL, SHARED, or where (probs, grads, pi) live: R registers with unrolled loops, S shared memory",
)


def places(config: Config) -> tuple[str, str, str]:
    """Placements of the partner's row, the accumulator and the own row: letters of ``mmsb/rows/data_pass.jinja``."""
    placement = str(config["placement"])
    fixed = {"THREAD": ("G", "L", "L"), "NAIVE": ("L", "L", "G"), "GLOBAL": ("G", "G", "G"), "SHARED": ("S", "S", "S")}
    return fixed.get(placement) or (placement[0], placement[1], placement[2])


#: Vectors that are checked together for coordinates waiting for a draw.
HOLDS = 16


def queue_length(problem: Problem, config: Config, traits: Traits) -> int:
    """Length of a work-item's queue of split-step draws: all its coordinates, or 0 if that needs too much memory."""
    if problem["step"] != "split" or problem["noise"] != "on":
        return 0
    length = axes.chunks(problem, config, traits) * int(config["vector_width"])
    each = length * _queued_bytes(problem)
    if traits.kind == "cpu":
        block, at_once = int(config["block_size"]), teams.work_items_at_once(config)
        return length if block * each <= 1 << 19 and at_once * each <= 1 << 18 else 0
    return length if each <= 1 << 10 else 0


def _queued_bytes(problem: Problem) -> int:
    return 4 + 3 * reals.real_bytes(problem)


def shared_bytes(problem: Problem, config: Config, traits: Traits) -> int:
    """Local memory of a block: the vectors placed there and the team's sums."""
    probs, grads, pi = places(config)
    rows = int(config["rows_in_flight"])
    size = teams.team_size(config, traits)
    each_block = int(config["block_size"]) // size
    # A partner's row is held in its storage type.
    element = rows * (probs == "S") * axes.stored_size(problem) + ((grads == "S") + (pi == "S")) * reals.real_bytes(
        problem
    )
    return each_block * row_length(problem.integer("K")) * element + teams.sum_bytes(problem, config, traits, rows)


def _form(config: Config, problem: Problem, traits: Traits) -> str | None:
    placement, team = config["placement"], config["team"]
    if placement == "THREAD" and team != "item":
        return "THREAD is one work-item a vertex"
    if placement in ("NAIVE", "SHARED") and team != "block":
        return f"{placement} is one block a vertex"
    if placement in axes.GEN:
        count = axes.chunks(problem, config, traits)
        if count > MAX_UNROLLED:
            return f"{count} chunks a work-item to unroll; at most {MAX_UNROLLED}"
    return None


#: Largest vector in bytes for which the draws of all work-items of a sub-group fit in memory; see vectorised_memory.
_DRAWN_BYTES = 64
#: Upper bound of vectors on PoCL's stack per drawing work-item, by team. Observed: 81 to 104 and 101 to 143.
_DRAWN_VECTORS = {"item": 105, "block": 145}
#: Limit of a block's share of a thread's 8 MiB stack; overflow can kill the process.
_STACK_BYTES = 15 << 19


def _private(config: Config, problem: Problem, traits: Traits) -> str | None:
    probs, grads, pi = places(config)
    # On a CPU, values beyond the registers are on the stack of the whole block, like thread-local arrays.
    private = "LR" if traits.kind == "cpu" else "L"
    vectors = int(config["rows_in_flight"]) * (probs in private) + (grads in private) + (pi in private)
    queue = queue_length(problem, config, traits) * _queued_bytes(problem) if traits.kind == "cpu" else 0
    if vectors and (reason := axes.private_memory(vectors, config, problem, traits, beside=queue)):
        return reason
    if traits.kind == "cpu" and problem["step"] == "split" and problem["noise"] == "on":
        return _drawn(config, problem, vectors * axes.chunks(problem, config, traits), queue)
    return None


def _drawn(config: Config, problem: Problem, vectors: int, queue: int) -> str | None:
    """An error message if a CPU's stack is too small for a block's draws, else None.

    Each work-item also has ``vectors`` vectors and a queue of ``queue`` bytes.
    """
    vector, block = int(config["vector_width"]) * reals.real_bytes(problem), int(config["block_size"])
    if config["team"] == "subgroup":
        if vector > _DRAWN_BYTES:
            return f"draws by vectors of {vector} bytes in every work-item of a sub-group; at most {_DRAWN_BYTES}"
        return None
    needed = block * ((_DRAWN_VECTORS[str(config["team"])] + vectors) * vector + queue)
    if needed > _STACK_BYTES:
        return f"{block} work-items that draw take {needed} bytes of stack; at most {_STACK_BYTES}"
    return None


#: Longest chain of additions; in longer ones small terms are lost by rounding.
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
    chain = axes.chunks(problem, config, traits)
    if chain > _LONGEST_CHAIN:
        return f"{chain} additions one after another lose small terms; at most {_LONGEST_CHAIN}"
    return None


def _lanes(config: Config, problem: Problem, traits: Traits) -> str | None:
    if config["team"] == "item" and config["placement"] in axes.GEN and "S" in str(config["placement"]):
        block = int(config["block_size"])
        if block > 1 and block * axes.row_vectors(problem, config) > 1 << 16:
            return "every work-item would keep whole rows in local memory"
    return None


#: Constraints of every kernel that gathers rows and updates them: allowed forms, and memory.
FORMS = (*axes.ROW_TEAM, Constraint("form", _form), Constraint("storage", _stored))
MEMORY = (
    teams.local_memory(shared_bytes),
    Constraint("private memory", _private),
    Constraint("accuracy", _accuracy),
    Constraint("lanes", _lanes),
)
ROW_CONSTRAINTS = FORMS + MEMORY


def row_variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    """Template variables of every kernel that gathers rows and updates them."""
    probs, grads, pi = places(config)
    rows = int(config["rows_in_flight"])
    return axes.row_team(
        problem,
        config,
        traits,
        unrolled=config["placement"] in axes.GEN,
        step=problem["step"],
        rows=rows,
        dot_names=[f"dot{j}" for j in range(rows)],
        place_probs=probs,
        place_grads=grads,
        place_pi=pi,
        queue=queue_length(problem, config, traits),
        holds=HOLDS,
        prefetch=0,
        normalise=True,
        early_sum=False,
        lookahead=False,
    )


def row_config(placement: str, team: str, width: int, block: int, rows: int) -> dict[str, Any]:
    """A configuration of the axes that all these kernels have; teams of several work-items add up by shuffles."""
    return {
        "placement": placement,
        "team": team,
        "vector_width": width,
        "block_size": block,
        "rows_in_flight": rows,
        "reduction": "none" if team == "item" else "shuffle",
    }


ROW_AXES = (PLACEMENT, teams.TEAM, teams.VECTOR_WIDTH, teams.BLOCK_SIZE, ROWS_IN_FLIGHT, teams.REDUCTION)
#: From the fastest on CPUs to the one that suits any device and row.
ANYWHERE = [
    row_config("THREAD", "item", 16, 1, 2),
    row_config("THREAD", "item", 16, 1, 1),
    row_config("THREAD", "item", 4, 1, 1),
    row_config("GLOBAL", "item", 16, 1, 1),
    row_config("GLOBAL", "block", 16, 64, 1) | {"reduction": "local"},
    row_config("GLOBAL", "item", 4, 1, 1),
    row_config("GLOBAL", "item", 1, 1, 1),
]
