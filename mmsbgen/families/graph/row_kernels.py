"""Rounds over rows of F numbers a vertex: shares of labels that neighbours pass on, and walks from many vertices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mmsbgen.families.graph.declare import ARCS_IN, ARCS_OUT, IN_WEIGHTS, STEP, N
from mmsbgen.families.graph.round_kernels import BLOCK
from mmsbgen.kernels.family import Argument, KernelSpec, Launch
from mmsbgen.kernels.host_program import Launches
from mmsbgen.kernels.kit import reals, teams
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Axis, Config, Constraint, Space, Traits

MOST_FEATURES = 1024
#: Places of ``settings``: the tolerance, the most rounds; the share of arcs below which only changes are sent is one in
#: ``CHANGES`` (0: never); all arcs, and those out of seeds; then the rounds, the last change (infinite unless the last
#: round was over all vertices), and passes over all arcs; the round that a call before ended with, to go on (0: anew).
TOLERANCE, MOST_ROUNDS, CHANGES, ARCS, SEED_ARCS, ROUNDS, CHANGE, PASSES, START = range(9)
#: Shape of ``counts``, and places in one of its rows, as in the template.
COUNTS = (64, 4)
_CHANGE, _MOVED_ARCS, _READ_ARCS = range(3)

_LANES = Axis("lanes", (1, 2, 4, 8, 16, 32), "work-items that share a vertex, on consecutive parts of its row")
_CHUNKS = Axis("chunks", (1, 2, 4, 8), "vectors that a work-item sums up in one walk over the arcs")
_ROWS = Axis("rows_in_flight", (1, 2, 4, 8), "rows of neighbours that are requested together")
_PER_TEAM = Axis("per_team", (1, 16, 64, 256), "vertices in a row that a team takes")
_ORDER = Axis("order", ("given", "degree"), "whether vertices come as they are numbered, or those of most arcs first")
_CHECK = Axis("check_every", (1, 4, 16), "rounds after which the host reads how far rows moved")

#: Most vectors in registers of a work-item: sums of one walk, for each row in flight.
_UNROLLED = 32

_SCALE = Argument("scale", "real", "in", "[n] factor of the sum of a vertex; 0: its arcs are not read")
_SEED_OF = Argument("seed_of", "u32", "in", "[n] row of seeds that a vertex adds; NONE for none")
_SEEDS = Argument("seeds", "real", "in", "[S, LD] rows of the seeds")
_ORDERED = Argument("order", "u32", "in", "[n] vertices by falling number of arcs in")
_SENT = Argument("sent", "real", "inout", "[n, LD] rows as other vertices know them")
_ROW = Argument("row", "real", "inout", "[n, LD] rows")
_MOVED = Argument("moved", "u32", "inout", "[n] last round that moved a vertex by more than the tolerance")
_MARKED = Argument("marked", "u32", "inout", "[n] last round that a vertex was marked for")
_COUNTS = Argument("counts", "u32", "inout", "[64, 4] change, arcs of what moved and arcs read, by round")
_SETTINGS = Argument("settings", "double", "inout", "[9] what decides the end, and what came of it")
_ONLY = Argument("only_marked", "u32", "scalar", "whether only marked vertices get new rows")
_COMPARES = Argument("compares", "u32", "scalar", "whether anybody asks how far rows move; else own rows are not read")
_LIMIT = Argument("tolerance", "real", "scalar", "largest change that others need not know of")

_WEIGHT_OF = Argument("weight_of", "real", "in", "[n] weight of all arcs of a vertex")
_LEFT = Argument("left", "real", "inout", "[n, LD] how far a round would move rows")
_IMAGE = Argument("image", "real", "inout", "[n, LD] how far a step along the direction changes that")
_SLOTS = Argument("slots", "real", "inout", "[1024, LD] sums of blocks")
_FACTORS = Argument(
    "factors", "real", "inout", "[3, LD] squares of what is left, length of a step, part of a direction"
)
_RESTART = Argument("restart", "u32", "scalar", "whether there is no direction yet")
_ALONG = Argument("along", "u32", "scalar", "whether sums are those of a product along the direction")
_BLOCKS_OF = Argument("blocks", "u32", "scalar", "blocks that added up")
#: Most blocks of a kernel that sums rows.
SUMMING = 1024

_STATE = (_SENT, _ROW, _MOVED, _MARKED)
_WEIGHTS = Argument("in_weights", "real", "in", f"{IN_WEIGHTS.doc}; [A, LD] of rule=layered")
_GIVEN = (ARCS_OUT[0], *ARCS_IN, _WEIGHTS, _SCALE, _SEED_OF, _SEEDS, _ORDERED)
#: Rows that a launch only reads go through the cache for constants.
_READ = Argument("sent", "real", "in", _SENT.doc)


def row_length(features: int) -> int:
    """LD, the length of a stored row: a power of two up to 16, then a multiple of 16."""
    return 1 << (features - 1).bit_length() if features <= 16 else -(-features // 16) * 16


def _vectors(config: Config, problem: Problem) -> int:
    return row_length(problem.integer("features")) // int(config["vector_width"])


def _width(config: Config, problem: Problem, traits: Traits) -> str | None:
    width, length = int(config["vector_width"]), row_length(problem.integer("features"))
    if width > length:
        return f"a row has {length} numbers"
    return teams.too_wide(width, traits)


def _lanes(config: Config, problem: Problem, traits: Traits) -> str | None:
    lanes = int(config["lanes"])
    if lanes > 1 and lanes // 2 >= _vectors(config, problem):
        return f"{lanes} work-items for a row of {_vectors(config, problem)} vectors: half of them would idle"
    if lanes > 1 and problem.get("rule") == "published":
        return "one work-item normalises a row of rule=published"
    return None


def _chunks(config: Config, problem: Problem, traits: Traits) -> str | None:
    chunks, lanes = int(config["chunks"]), int(config["lanes"])
    if chunks > 1 and chunks // 2 * lanes >= _vectors(config, problem):
        return f"{lanes} work-items have a row of {_vectors(config, problem)} vectors in fewer chunks"
    if chunks * int(config["rows_in_flight"]) > _UNROLLED:
        return f"chunks times rows in flight may be {_UNROLLED}"
    return None


_SPACE = Space(
    (_LANES, teams.VECTOR_WIDTH, BLOCK, _CHUNKS, _ROWS, _PER_TEAM, _ORDER, _CHECK),
    (
        *(teams.BLOCK_FITS, teams.splits("lanes")),
        *(Constraint("vector_width", _width), Constraint("lanes", _lanes), Constraint("chunks", _chunks)),
    ),
)


def _default(problem: Problem, traits: Traits) -> Config:
    length = row_length(problem.integer("features"))
    gpu = traits.kind == "gpu"
    width = min(length, 4 if gpu else 16)
    lanes = min(32, 1 << (length // width - 1).bit_length()) if gpu and problem.get("rule") != "published" else 1
    chunks = 1 if gpu else 8
    while chunks > 1 and chunks // 2 * lanes >= length // width:
        chunks //= 2
    return {
        "block_size": 256 if gpu else 1,
        "lanes": lanes,
        "vector_width": width,
        "chunks": chunks,
        "rows_in_flight": (8 if length >= 32 else 4) if gpu else 1,
        "per_team": 1 if gpu else 64,
        "order": "given",
        "check_every": 4 if gpu else 1,
    }


def _variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    width, lanes = int(config["vector_width"]), int(config["lanes"])
    return {
        "real": reals.real_name(problem),
        "W": width,
        "T": lanes,
        "teams": int(config["block_size"]) // lanes,
        "alignment": min(16, width * reals.real_bytes(problem)),
        "row_vectors": _vectors(config, problem),
        "chunks": int(config["chunks"]),
        "rows": int(config["rows_in_flight"]),
        "per_team": int(config["per_team"]),
        "weighted": problem.get("weights") == "real" and problem.get("rule") != "layered",
        "published": problem.get("rule") == "published",
        "layered": problem.get("rule") == "layered",
        "by_degree": config["order"] == "degree",
    }


def _shape(problem: Problem, config: Config, count: int, traits: Traits) -> Launch:
    block = int(config["block_size"])
    return teams.launch_of(count, block // int(config["lanes"]) * int(config["per_team"]), block)


def _entries(config: Config) -> Mapping[str, tuple[Argument, ...]]:
    return {
        "begin": (_SEED_OF, _SEEDS, *_STATE, _COUNTS, N),
        "publish": (*ARCS_OUT, *_STATE, N, STEP),
        "pull": (*_GIVEN, _READ, _ROW, _MOVED, _MARKED, _COUNTS, N, STEP, _ONLY, _COMPARES, _LIMIT),
    }


def _rounds(on: Launches) -> None:
    """Rounds until no number moves by more than the tolerance in a round over all vertices.

    Where few arcs lead out of what moved, only that is sent, and only rows that it reaches are made again.  A vertex
    reads ``sent`` of others, never what they have not sent, so that changes below the tolerance add up until they are
    sent.
    """
    settings = on.read("settings")
    tolerance, most, changes, arcs, moving = settings[: SEED_ARCS + 1].tolist()
    real = reals.real_type(on.problem)
    n, limit = np.uint32(on.count), real(tolerance)
    grid, block = _shape(on.problem, on.config, on.count, on.traits).shape
    every = int(on.config["check_every"])
    if not (start := int(settings[START])):
        on.launch("begin", grid, block, n=n)
    step, read, work, change, refresh = start, start, 0, np.inf, start > 0
    while step < most:
        driven = bool(changes) and moving * changes < arcs and not refresh
        last = min(step + every, int(most))
        while step < last:
            if driven:
                on.launch("publish", grid, block, n=n, step=np.uint32(step))
            else:
                on.swap("sent", "row")
            step += 1
            flags = {"only_marked": np.uint32(driven), "compares": np.uint32(driven or step == last)}
            on.launch("pull", grid, block, n=n, step=np.uint32(step), **flags, tolerance=limit)
        counts = on.read("counts")
        rows = counts[np.arange(read + 1, step + 1) % COUNTS[0]]
        read, work = step, work + int(rows[:, _READ_ARCS].sum(dtype=np.uint64))
        found, moving = float(rows[-1:, _CHANGE].copy().view(np.float32)[0]), int(rows[-1, _MOVED_ARCS])
        change = np.inf if driven else found
        refresh = not found > limit
        if refresh and not driven:
            break
    before = settings[PASSES] if start else 0.0
    settings[[ROUNDS, CHANGE, PASSES]] = step, change, before + work / max(1.0, arcs)
    on.write("settings", settings)


def _parts(problem: Problem, config: Config, traits: Traits) -> int:
    """Bytes of the sums of a block."""
    block = int(config["block_size"])
    return block * reals.real_bytes(problem) * (int(config["vector_width"]) + 1) if block > 1 else 0


def _solver_entries(config: Config) -> Mapping[str, tuple[Argument, ...]]:
    arcs = (*ARCS_IN, IN_WEIGHTS, _SCALE, _WEIGHT_OF, _ORDERED)
    return {
        "begin": (_SEED_OF, _SEEDS, _ROW, N),
        "product": (*arcs, _READ, _LEFT, _IMAGE, _SLOTS, _COUNTS, N, STEP, _RESTART),
        "advance": (_WEIGHT_OF, _ORDERED, _READ, _ROW, _LEFT, _IMAGE, _SLOTS, _FACTORS, _COUNTS, N, STEP),
        "direct": (_LEFT, _FACTORS, _SENT, N, _RESTART),
        "totals": (_SLOTS, _FACTORS, _BLOCKS_OF, _ALONG),
    }


def _solve(on: Launches) -> None:
    """Conjugate gradients until a round would move no number by more than the tolerance.

    What is left is updated from step to step.  It is computed anew when that seems to be little, and steps begin anew.
    """
    settings = on.read("settings")
    tolerance, most = settings[TOLERANCE], int(settings[MOST_ROUNDS])
    grid, block = (each[0] for each in _shape(on.problem, on.config, on.count, on.traits).shape)
    grid = min(grid, SUMMING)
    n, blocks, every = np.uint32(on.count), np.uint32(grid), int(on.config["check_every"])
    yes, no = np.uint32(1), np.uint32(0)

    def change() -> float:
        return float(on.read("counts")[step % COUNTS[0], _CHANGE : _CHANGE + 1].copy().view(np.float32)[0])

    if not (start := int(settings[START])):
        on.launch("begin", grid, block, n=n)
    step, products = start, 0
    while True:
        step, products = step + 1, products + 1
        on.swap("sent", "row")
        on.launch("product", grid, block, n=n, step=np.uint32(step), restart=yes)
        on.swap("sent", "row")
        on.launch("totals", 1, block, blocks=blocks, along=no)
        left = change()
        if left <= tolerance or step >= most:
            break
        first, near = yes, np.inf
        while step < most - 1 and not near <= tolerance:
            for _ in range(min(every, most - 1 - step)):
                step, products = step + 1, products + 1
                on.launch("direct", grid, block, n=n, restart=first)
                on.launch("product", grid, block, n=n, step=np.uint32(step), restart=no)
                on.launch("totals", 1, block, blocks=blocks, along=yes)
                on.launch("advance", grid, block, n=n, step=np.uint32(step))
                on.launch("totals", 1, block, blocks=blocks, along=no)
                first = no
            near = change()
    settings[[ROUNDS, CHANGE]] = step, left
    settings[PASSES] = products + (settings[PASSES] if start else 0.0)
    on.write("settings", settings)


def solve_kernel(**given: Any) -> KernelSpec:
    """Rows that are weighted means of their neighbours' rows, by conjugate gradients on all columns at once.

    ``x_v = scale_v sum_u w_uv x_u`` where the scale is not 0; other rows are those of seeds.
    """
    rows = (_SENT, _ROW, _LEFT, _IMAGE, _SLOTS, _FACTORS, _COUNTS, _SETTINGS)
    return KernelSpec(
        name="solve",
        template="graph/rows.jinja",
        doc="rows that are means of neighbours' rows, solved for: harmonic shares of labels",
        arguments=(*ARCS_IN, IN_WEIGHTS, _SCALE, _WEIGHT_OF, _SEED_OF, _SEEDS, _ORDERED, *rows),
        space=Space(_SPACE.axes, (*_SPACE.constraints, teams.local_memory(_parts))),
        default=_default,
        variables=_variables,
        launch=_shape,
        entries=_solver_entries,
        program=_solve,
        **given,
    )


def propagate_kernel(**given: Any) -> KernelSpec:
    """Rows that are sums of neighbours' rows, round after round.

    ``rule=seeded``: ``x_v = scale_v sum_u w_uv x_u + seed_v`` (harmonic functions, label spreading, restart walks).
    ``rule=layered``: the same with a row of weights for each arc, ``w_uv o x_u``: each number has a layer of its own.
    ``rule=published``: ``x_v = normalise(scale_v a / |a| + (1 - scale_v) x_v)``, ``a = sum_u w_uv x_u``, as the paper
    prints it (Zhu and Ghahramani 2002, without clamping).
    """
    return KernelSpec(
        name="propagate",
        template="graph/rows.jinja",
        doc="rows of F numbers that neighbours pass on: labels, walks from many vertices",
        arguments=(*_GIVEN, *_STATE, _COUNTS, ARCS_OUT[1], _SETTINGS),
        space=_SPACE,
        default=_default,
        variables=_variables,
        launch=_shape,
        entries=_entries,
        program=_rounds,
        **given,
    )
