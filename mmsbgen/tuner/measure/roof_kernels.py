"""The kernels that measure roofs: copies, rows at random places, launches and barriers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from mmsbgen.kernels.family import Argument, Array, KernelFamily, KernelSpec, Launch, Workload
from mmsbgen.kernels.host_program import Launches
from mmsbgen.kernels.kit.teams import BLOCK_FITS, SUB_GROUPS, TEAM, VECTOR_WIDTH, team_size, too_wide
from mmsbgen.kernels.problem import Parameter, Problem
from mmsbgen.kernels.space import Axis, Config, Constraint, Space, Traits

LARGEST_TEAM = 256
"""Work-items that read a row, at most."""
SMALL_ROW = 64
"""Bytes of a row below which few work-items of a GPU read it."""

PARAMETERS = (
    Parameter("row_bytes", 4096, "bytes of a row", minimum=4),
    Parameter("n_rows", 1 << 19, "rows of the buffer", minimum=1, maximum=2**32 - 1),
    Parameter("n_teams", 4096, "teams that gather", minimum=1, maximum=2**32 - 1),
    Parameter("rows_per_team", 32, "rows that a team gathers", minimum=1, maximum=1024),
    Parameter("n_elements", 1 << 26, "numbers to copy, a multiple of 16", minimum=16, maximum=2**40),
    Parameter("n_rounds", 64, "launches or barriers one after another", minimum=1, maximum=1 << 16),
)

GATHER_BLOCK = Axis("block_size", (1, 16, 64, 128, 256), "work-items of a block")
COPY_BLOCK = Axis("block_size", (256, 1024), "work-items of a block")
ROUND_BLOCK = Axis("block_size", (1, 64, 256), "work-items of a block")
ROWS = Axis("rows_in_flight", (1, 2, 4, 8), "rows read side by side")
VECTORS = Axis("vectors", (1, 4), "vectors that a work-item copies")


def _shape(config: Config, problem: Problem, traits: Traits) -> str | None:
    width, cpu = int(config["vector_width"]), traits.kind == "cpu"
    if width < (8 if cpu else 2) and problem.integer("row_bytes") % 64 == 0:
        return "narrow vectors do not reach the roof"
    return too_wide(width, traits)


def _atomic_shape(form: str, config: Config, problem: Problem, traits: Traits) -> str | None:
    width = int(config["vector_width"])
    if width > 1 and (form == "counts" or width > 4 or traits.dialect != "cuda"):
        return "only CUDA has atomics of vectors, of up to four real numbers"
    if int(config["rows_in_flight"]) != min(4, problem.integer("rows_per_team")):
        return "nothing waits for atomics"
    return None


def _row(config: Config, problem: Problem, traits: Traits) -> str | None:
    block, team = int(config["block_size"]), config["team"]
    if problem.integer("row_bytes") % (4 * int(config["vector_width"])):
        return "a row is not a whole number of vectors"
    if problem.integer("rows_per_team") % int(config["rows_in_flight"]):
        return "a team's rows are not a whole number of turns"
    if config["rows_in_flight"] == 1 < problem.integer("rows_per_team"):
        return "rows read one after the other do not reach the roof"
    if (team == "item") != (traits.kind == "cpu"):
        return "a row is read by one work-item on CPUs and by a team on GPUs"
    if team == "item" and block > 16:
        return "a few work-items keep a core busy"
    if team == "block" and problem.integer("row_bytes") < SMALL_ROW:
        return "a small row has no work for a block"
    if team == "subgroup" and block == traits.sub_group_size:
        return "the same as a block of that size"
    return "too few work-items for a row" if team == "block" and block < 64 else None


def _few(config: Config, problem: Problem, traits: Traits) -> str | None:
    if (config["block_size"] == 1) != (traits.kind == "cpu"):
        return "one work-item on CPUs, a block on GPUs"
    return None


def _team_size(config: Config, problem: Problem, traits: Traits) -> int:
    """Work-items that read a row; a sub-group reads several rows that are shorter than its vectors."""
    if config["team"] != "subgroup":
        return team_size(config, traits)
    vectors = problem.integer("row_bytes") // (4 * int(config["vector_width"]))
    return min(traits.sub_group_size, 1 << (vectors - 1).bit_length())


def _row_variables(form: str, problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    size, row = _team_size(config, problem, traits), problem.integer("row_bytes") // 4
    width = int(config["vector_width"])
    return {
        "form": form,
        "W": width,
        "T": size,
        "teams": int(config["block_size"]) // size,
        "rows": config["rows_in_flight"],
        "rows_per_team": problem["rows_per_team"],
        "LD": row,
        "row_vectors": row // width,
    }


def _row_launch(problem: Problem, config: Config, count: int, traits: Traits) -> Launch:
    block = int(config["block_size"])
    return Launch(-(-count // (block // _team_size(config, problem, traits))), block)


def _copy_launch(problem: Problem, config: Config, count: int, traits: Traits) -> Launch:
    block = int(config["block_size"])
    return Launch(-(-count // (block * int(config["vectors"]) * int(config["vector_width"]))), block)


GATHER_SPACE = Space(
    (TEAM, VECTOR_WIDTH, GATHER_BLOCK, ROWS),
    (BLOCK_FITS, SUB_GROUPS, Constraint("shape", _shape), Constraint("row", _row)),
)
COPY_SPACE = Space((VECTOR_WIDTH, COPY_BLOCK, VECTORS), (BLOCK_FITS, Constraint("shape", _shape)))
ROUND_SPACE = Space((ROUND_BLOCK,), (Constraint("block_size", _few),))


def _row_workload(form: str, problem: Problem, seed: int) -> Workload:
    """Small whole numbers, so that sums are exact in any order; rows that are written back come once each."""
    rng = np.random.default_rng(seed)
    n, teams, per_team = (problem.integer(name) for name in ("n_rows", "n_teams", "rows_per_team"))
    data = rng.integers(0, 16, (n, problem.integer("row_bytes") // 4)).astype(np.float32)
    ids = rng.integers(0, n, teams * per_team) if form != "update" else rng.permutation(n)[: teams * per_team]
    given = {"data": data, "ids": ids.astype(np.uint32), "n_teams": np.uint32(teams)}
    if form == "gather":
        given["sums"] = np.zeros(teams * LARGEST_TEAM, np.float32)
    times = np.bincount(ids, minlength=n)[:, None]

    def verify(got: Mapping[str, Array], config: Config) -> str | None:
        if form == "gather":
            right, sum_ = float(data[ids].sum(dtype=np.float64)), float(got["sums"].sum(dtype=np.float64))
            return None if right == sum_ else f"the rows add up to {sum_} instead of {right}"
        kind = np.uint32 if form == "counts" else np.float32
        wrong = int(np.count_nonzero(got["data"].view(kind) != data.view(kind) + times.astype(kind)))
        return f"{wrong} numbers are not what was added up" if wrong else None

    return Workload(given, teams, verify, repeats=None if form == "gather" else "continued")


def _copy_workload(problem: Problem, seed: int) -> Workload:
    count = problem.integer("n_elements")
    source = np.random.default_rng(seed).random(count, np.float32)

    def verify(got: Mapping[str, Array], config: Config) -> str | None:
        return None if np.array_equal(got["target"], source) else "the copy differs"

    return Workload({"source": source, "target": np.zeros_like(source), "n_elements": np.uint64(count)}, count, verify)


def _round_workload(barriers: bool, problem: Problem, seed: int) -> Workload:
    n_rounds = problem.integer("n_rounds")

    def verify(got: Mapping[str, Array], config: Config) -> str | None:
        came = int(got["arrived"][0])
        right = came and came % n_rounds == 0 if barriers else came == 0
        return None if right else f"{came} blocks came to {n_rounds} barriers"

    given = {"arrived": np.zeros(1, np.uint32), "n_rounds": np.uint32(n_rounds)}
    return Workload(given, n_rounds, verify, repeats="continued")


def _small(problem: Problem) -> Problem:
    return problem.replace(n_rows=256, n_teams=7, n_elements=4176, n_rounds=5)


def _row_kernel(form: str, doc: str) -> KernelSpec:
    """Bytes that are read and written again count twice."""
    times = 1 if form == "gather" else 2
    space = GATHER_SPACE
    if form in ("adds", "counts"):
        shape = Constraint("shape", partial(_atomic_shape, form))
        space = replace(GATHER_SPACE, constraints=(BLOCK_FITS, SUB_GROUPS, shape, GATHER_SPACE.constraints[-1]))
    sums = (Argument("sums", "real", "out", "[n_teams, team] what each lane read, added up"),)
    return KernelSpec(
        name=f"roof_{form}",
        template="common/roofs/roof_rows.jinja",
        doc=doc,
        arguments=(
            Argument("data", "real", "in" if form == "gather" else "inout", "[n_rows, row_bytes / 4]"),
            Argument("ids", "u32", "in", "[n_teams * rows_per_team] rows to read"),
            *(sums if form == "gather" else ()),
            Argument("n_teams", "u32", "scalar", ""),
        ),
        parameters=("row_bytes", "n_rows", "n_teams", "rows_per_team"),
        space=space,
        default=lambda problem, traits: space.configs(problem, traits)[0],
        variables=partial(_row_variables, form),
        launch=_row_launch,
        traffic=lambda problem: (
            times * problem.integer("n_teams") * problem.integer("rows_per_team") * problem.integer("row_bytes")
        ),
        workload=partial(_row_workload, form),
        check_problem=_small,
    )


def _round_kernel(name: str, doc: str, program: Callable[[Launches], None]) -> KernelSpec:
    return KernelSpec(
        name=name,
        template="common/roofs/roof_rounds.jinja",
        doc=doc,
        arguments=(
            Argument("arrived", "u32", "inout", "[1] blocks that came to barriers"),
            Argument("n_rounds", "u32", "scalar", ""),
        ),
        parameters=("n_rounds",),
        space=ROUND_SPACE,
        default=lambda problem, traits: ROUND_SPACE.configs(problem, traits)[0],
        variables=lambda problem, config, traits: {},
        launch=lambda problem, config, count, traits: Launch(traits.compute_units, int(config["block_size"])),
        traffic=lambda problem: problem.integer("n_rounds"),
        workload=partial(_round_workload, name == "roof_barrier"),
        check_problem=_small,
        program=program,
    )


def _launched(on: Launches) -> None:
    for _ in range(on.count):
        on.launch("roof_launch", on.traits.compute_units, int(on.config["block_size"]), n_rounds=np.uint32(0))


def _met(on: Launches) -> None:
    grid = on.traits.compute_units if on.traits.dialect == "cuda" else 1
    on.launch_cooperative("roof_barrier", grid, int(on.config["block_size"]), n_rounds=np.uint32(on.count))


ROOF_GATHER = _row_kernel("gather", "read rows at random places")
ROOF_COPY = KernelSpec(
    name="roof_copy",
    template="common/roofs/roof_copy.jinja",
    doc="copy one array to another",
    arguments=(
        Argument("source", "real", "in", "[n_elements]"),
        Argument("target", "real", "out", "[n_elements]"),
        Argument("n_elements", "u64", "scalar", ""),
    ),
    parameters=("n_elements",),
    space=COPY_SPACE,
    default=lambda problem, traits: COPY_SPACE.configs(problem, traits)[0],
    variables=lambda problem, config, traits: {"W": config["vector_width"], "vectors": config["vectors"]},
    launch=_copy_launch,
    traffic=lambda problem: 8 * problem.integer("n_elements"),
    workload=_copy_workload,
    check_problem=_small,
)

ROOFS = KernelFamily(
    name="roofs",
    doc="what a device's memory can do",
    parameters=PARAMETERS,
    kernels={
        spec.name: spec
        for spec in (
            ROOF_COPY,
            ROOF_GATHER,
            _row_kernel("update", "read rows at random places, and write them back"),
            _row_kernel("adds", "add to rows at random places by atomics"),
            _row_kernel("counts", "add to whole numbers of rows at random places by atomics"),
            _round_kernel("roof_launch", "do nothing, again and again", _launched),
            _round_kernel("roof_barrier", "let all blocks wait for each other", _met),
        )
    },
    row_bytes=lambda problem: problem.integer("row_bytes"),
)
