"""Declarations of the kernels of stages 5 and 6: theta and beta."""

from __future__ import annotations

from mmsbgen.families.mmsb.axes import common_axes as axes
from mmsbgen.families.mmsb.axes import small_spaces as usual
from mmsbgen.families.mmsb.numbers.row_layout import MAX_UNROLLED, theta_groups
from mmsbgen.families.mmsb.numbers.storage import storage_of
from mmsbgen.families.mmsb.reference import pair_workloads, workloads
from mmsbgen.kernels.family import Argument, Demand, Launch
from mmsbgen.kernels.kit import reals, teams
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Axis, Config, Constraint, Space, Traits

# Sums over the pairs ------------------------------------------------------------------------------------------

PAIRS_IN_FLIGHT = Axis("pairs_in_flight", (1, 2, 4), "pairs whose rows are read before the first is used up")
ACCUMULATORS = Axis(
    "accumulators",
    ("private", "registers", "global"),
    "where a team adds up: a thread-local array, registers with unrolled loops, or the output itself",
)
_PLACE = {"private": "L", "registers": "R", "global": "G"}


def _unroll(config: Config, problem: Problem, traits: Traits) -> str | None:
    """An error message if accumulators do not fit, else None.

    Registers hold the products of all pairs in flight as well as the sums, so that no row is read again.
    """
    count = axes.chunks(problem, config, traits) * int(config["pairs_in_flight"])
    if config["accumulators"] == "registers" and count > MAX_UNROLLED:
        return f"{count} chunks of pairs a work-item to unroll; at most {MAX_UNROLLED}"
    if config["accumulators"] == "private":
        return axes.private_memory(2, config, problem, traits)
    if config["accumulators"] == "registers" and traits.kind == "cpu":
        # On a CPU, values beyond the registers are on the stack of the whole block.
        return axes.private_memory(2 + int(config["pairs_in_flight"]), config, problem, traits)
    return None


def _pairs_in_flight(config: Config, problem: Problem, traits: Traits) -> str | None:
    pairs, share = int(config["pairs_in_flight"]), -(-problem.integer("m") // theta_groups(problem))
    return f"{pairs} pairs in flight for {share} of a group" if pairs > share else None


#: Largest number of 16-bit elements that a work-item of a sub-group reads at once. Intel's compiler took 9 s for 16,
#: more than three minutes for 64.
_MOST_NARROW = 16


def _partial_compiles(config: Config, problem: Problem, traits: Traits) -> str | None:
    # Seen with Intel's runtime 2026.22; blocks and rows of 32 bits compile in seconds.
    if traits.kind != "cpu" or "Intel" not in traits.platform or config["team"] != "subgroup":
        return None
    storage, width, pairs = storage_of(problem), int(config["vector_width"]), int(config["pairs_in_flight"])
    if not storage.narrow or width * pairs <= _MOST_NARROW:
        return None
    return (
        f"Intel's compiler takes minutes for sub-groups that read rows of {storage.name} with vector_width={width} and "
        f"pairs_in_flight={pairs}; at most {_MOST_NARROW} of both multiplied"
    )


PARTIAL_SPACE = Space(
    (teams.TEAM, teams.VECTOR_WIDTH, teams.BLOCK_SIZE, teams.REDUCTION, ACCUMULATORS, PAIRS_IN_FLIGHT),
    (
        *axes.ROW_TEAM,
        Constraint("pairs in flight", _pairs_in_flight),
        teams.local_memory(lambda p, c, t: teams.sum_bytes(p, c, t, int(c["pairs_in_flight"]))),
        Constraint("unroll", _unroll),
        Constraint("compiler", _partial_compiles),
    ),
)
_ALONE = {"team": "item", "reduction": "none", "vector_width": 1, "block_size": 1, "accumulators": "global"}


#: Largest number of registers for products and sums of a block on a GPU; with more, compilers spill.
_REGISTERS = 1 << 15


def _partial_default(problem: Problem, traits: Traits) -> Config:
    """Default configuration: a work-item per group on CPUs; on GPUs a block that keeps its products in registers.

    Two chunks per work-item leave registers for four pairs in flight.  A group has few pairs, so latency dominates.
    """
    candidates = [usual.TEAM_CPU | {"accumulators": "private"}, _ALONE]
    if traits.kind != "cpu":
        # With 16 bits a load of the same size has twice the elements, so half the chunks use the same registers.
        narrow = storage_of(problem).narrow
        width = 8 if narrow else 4
        block = axes.block_for(problem, width, 1 if narrow else 2)
        words = -(-axes.row_vectors(problem, {"vector_width": width}) // block) * reals.real_bytes(problem) * width // 4
        kept = [pairs for pairs in (4, 2, 1) if block * words * (pairs + 1) <= _REGISTERS]
        sizes = [
            *({"block_size": block, "accumulators": "registers", "pairs_in_flight": pairs} for pairs in kept),
            {"block_size": block, "accumulators": "global"},
            {"block_size": 32, "accumulators": "global"},
        ]
        shared = {"team": "block", "vector_width": width}
        candidates = [shared | {"reduction": reduction} | team for reduction in ("shuffle", "local") for team in sizes]
        candidates.append(_ALONE)
    return teams.first_valid([usual.config(PARTIAL_SPACE, **values) for values in candidates], PARTIAL_SPACE.refusal)(
        problem, traits
    )


def _partial_demand(problem: Problem, config: Config, traits: Traits) -> Demand:
    """Resource demand: both sums are read and written in every turn of pairs, unless they are in registers."""
    pairs, groups = int(config["pairs_in_flight"]), theta_groups(problem)
    turns = -(-problem.integer("m") // (groups * pairs))
    vectors = axes.chunks(problem, config, traits) * int(config["vector_width"]) * reals.real_bytes(problem)
    kept = {"global": 0, "private": 2, "registers": 2 + pairs}[str(config["accumulators"])]
    return axes.rows_of_team(
        problem,
        config,
        traits,
        moved=THETA_PARTIAL.traffic(problem),
        units=groups,
        sums=turns,
        near=0 if config["accumulators"] == "registers" else 4 * groups * turns * usual.row_bytes(problem),
        private=kept * vectors,
        rows=2 * pairs,
    )


THETA_PARTIAL = usual.kernel(
    "stages",
    pair_workloads.theta_partial,
    "every group sums the responsibilities of its share of the pairs",
    usual.arguments(
        usual.PI,
        "slots beta pairs_a pairs_b",
        Argument("pair_weights", "real", "in", "[P] weight, negative for a non-link"),
        Argument("counts", "real", "out", "[groups, 2, LD] sums of weight * rho: non-links, links"),
        Argument("first_pair", "u64", "scalar", "where this launch's pairs begin in their arrays"),
        "n_pairs",
        Argument("n_groups", "u32", "scalar", "groups among which the pairs are dealt out"),
        "delta",
    ),
    "K N m dtype storage",
    lambda p: 2 * p.integer("m") * usual.stored_row_bytes(p) + 2 * theta_groups(p) * usual.row_bytes(p),
    space=PARTIAL_SPACE,
    default=_partial_default,
    variables=lambda problem, config, traits: axes.row_team(
        problem,
        config,
        traits,
        unrolled=config["accumulators"] == "registers",
        place=_PLACE[str(config["accumulators"])],
        pairs=int(config["pairs_in_flight"]),
        dot_names=[f"dot{j}" for j in range(int(config["pairs_in_flight"]))],
    ),
    launch=teams.launch_teams,
    carry=axes.of_row,
    check_problem=pair_workloads.small_with_groups,
    demand=_partial_demand,
    used_with=usual.STARS,
)

# The step -----------------------------------------------------------------------------------------------------

SHARE = Axis("share", (1, 2, 4, 8, 16, 32), "work-items that share the groups of one community")


def _communities(config: Config) -> int:
    """Number of communities per block."""
    return int(config["block_size"]) // int(config["share"])


def _share(config: Config, problem: Problem, traits: Traits) -> str | None:
    share, groups = int(config["share"]), theta_groups(problem)
    if share > groups:
        return f"{share} work-items for {groups} groups: some would idle"
    return None


def _end_bytes(problem: Problem, config: Config, traits: Traits) -> int:
    """Local memory in bytes: two columns in double precision, for work-items' sums and communities' draws."""
    return 16 * (int(config["block_size"]) + _communities(config)) if int(config["share"]) > 1 else 0


END_SPACE = Space(
    (SHARE, teams.BLOCK_SIZE),
    (*axes.COMMON, teams.splits("share"), Constraint("share", _share), teams.local_memory(_end_bytes)),
)


def _end_default(problem: Problem, traits: Traits) -> Config:
    """Default configuration: the largest valid ``share`` on GPUs, 1 on CPUs."""
    shares = (1,) if traits.kind == "cpu" else tuple(reversed(SHARE.values))
    candidates = [
        {"share": share, "block_size": block}
        for block in ((64, 1) if traits.kind == "cpu" else (256, 64, 32, 1))
        for share in shares
    ]
    return teams.first_valid(candidates, END_SPACE.refusal)(problem, traits)


THETA_END = usual.kernel(
    "stages",
    pair_workloads.theta_end,
    "add the groups' counts up, move theta by them, normalise its link column",
    usual.arguments(
        Argument("counts", "real", "in", "[groups, 2, LD] counts of every group"),
        Argument("theta", "real", "inout", "[2, LD] non-link, link"),
        "beta:out",
        Argument("n_groups", "u32", "scalar", "number of groups"),
        Argument("step", "double", "scalar", "eps, or the gain"),
        Argument("eta_0", "double", "scalar", "prior pseudo-count of non-links"),
        Argument("eta_1", "double", "scalar", "prior pseudo-count of links"),
        "seed iteration",
    ),
    "K m dtype noise theta_step",
    lambda p: (2 * theta_groups(p) + 5) * usual.row_bytes(p),
    space=END_SPACE,
    default=_end_default,
    variables=lambda problem, config, traits: axes.common(
        problem,
        config,
        traits,
        theta_step=problem["theta_step"],
        draws=problem["noise"] == "on" and problem["theta_step"] != "gain",
        share=int(config["share"]),
        communities=_communities(config),
    ),
    launch=lambda p, c, count, t: Launch(max(1, -(-count // _communities(c))), int(c["block_size"])),
    check_problem=pair_workloads.small_with_groups,
)

UPDATE_BETA = usual.kernel(
    "stages",
    pair_workloads.update_beta,
    "normalise the link column of theta: the start of a chain",
    usual.arguments(Argument("theta", "real", "in", "[2, LD] non-link, link"), "beta:out"),
    "K dtype",
    lambda p: 3 * usual.row_bytes(p),
    check_problem=workloads.small,
)
