"""The kernels of alternating least squares: all rows of one side, the other one given, exactly or by a few steps."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from mmsbgen.families.mf.layout import padded_width
from mmsbgen.families.mf.teams import BLOCK, default_team, space_of, wide_load, widest
from mmsbgen.kernels.family import Argument, KernelSpec, Launch
from mmsbgen.kernels.host_program import Launches
from mmsbgen.kernels.kit import reals, teams
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Axis, Config, Constraint, Space, Traits

_BLOCKS = Axis("blocks", (8, 64, 512, 2048), "blocks, each with a matrix of its own")
_TOGETHER = Axis("together", (1, 4, 8), "ratings that are added to the matrix at once")
_MATRIX = Axis("matrix", ("global", "local"), "where the matrix of a row lies")

#: Steps of conjugate gradients of a sweep, as implicit has them.
CG_STEPS = 3
#: Those of a check and of what is timed: the second does all that later ones do, and rounding has not grown much yet.
FEW_STEPS = 2
#: Rows that a block adds to Q^T Q at once, before conjugate gradients.
_STAGED = 4
#: Vectors of a work-item up to which loops over them are unrolled.
_UNROLLED = 8

_FIXED = Argument("fixed", "real", "in", "[S, LD] rows of the other side")
_ROWS = (
    Argument("solution", "real", "out", "[R, LD] rows of this side; 0 for those without ratings"),
    _FIXED,
    Argument("offsets", "u32", "in", "[R + 1] first rating of each row"),
    Argument("others", "u32", "in", "[E] row of the other side"),
    Argument("ratings", "real", "in", "[E] ratings; what confidence exceeds 1 by, if implicit"),
)
_SCRATCH = Argument("scratch", "real", "inout", "[blocks, K, LD]")
_BASE = Argument("base", "real", "inout", "[K, LD] Q^T Q of the other side, if implicit")
_SCALARS = (
    Argument("reg", "real", "scalar", "penalty"),
    Argument("weighted", "u32", "scalar", "whether it is multiplied by the number of a row's ratings"),
    Argument("n_rows", "u32", "scalar", ""),
)
_N_FIXED = Argument("n_fixed", "u32", "scalar", "")
_STEPS = Argument("steps", "u32", "scalar", "of conjugate gradients")


def scratch_of(problem: Problem, config: Config, real: Any) -> dict[str, Any]:
    """The arrays that a configuration works in; what it does not use has one number."""
    area = problem.integer("K"), padded_width(problem.integer("K"))
    implicit = problem.get("feedback") == "implicit"
    matrices = int(config["blocks"]) if implicit or config.get("matrix") == "global" else 0
    found = {"scratch": (matrices, *area), "base": area if implicit else (0,)}
    return {name: np.zeros(shape if all(shape) else 1, real) for name, shape in found.items()}


def _loads(config: Config, problem: Problem, traits: Traits) -> str | None:
    return wide_load(int(config["vector_width"]) * reals.real_bytes(problem), traits)


def _fits(config: Config, problem: Problem, traits: Traits) -> str | None:
    k, row = problem.integer("K"), padded_width(problem.integer("K")) * reals.real_bytes(problem)
    needed = (int(config["together"]) + 1) * (row + 16) + (k * row if config["matrix"] == "local" else 0)
    return teams.too_much_local(needed, traits)


def _default_blocks(problem: Problem, traits: Traits) -> int:
    """On GPUs 2048 blocks, or 512 if the matrices of 2048 take more than 256 MiB."""
    if traits.kind != "gpu":
        return 64
    matrix = problem.integer("K") * padded_width(problem.integer("K")) * reals.real_bytes(problem)
    return 2048 if 2048 * matrix <= 1 << 28 else 512


def _default(problem: Problem, traits: Traits) -> Config:
    most = min(256, traits.max_block_size) if traits.kind == "gpu" else 1
    found: dict[str, Any] = {
        "block_size": max(int(size) for size in BLOCK.values if int(size) <= most),
        "vector_width": widest(problem, traits),
        "blocks": _default_blocks(problem, traits),
    }
    ways = [
        found | dict(zip(("matrix", "together"), way, strict=True)) for way in product(("local", "global"), (8, 4, 1))
    ]
    return next((each for each in ways if _fits(each, problem, traits) is None), ways[-1])


def _variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    size, width, k = reals.real_bytes(problem), int(config["vector_width"]), problem.integer("K")
    return {
        "real": reals.real_name(problem),
        "LD": padded_width(k),
        "W": width,
        "alignment": width * size,
        "narrow": False,
        "n_factors": k,
        "together": int(config["together"]),
        "matrix": config["matrix"],
        "blocks": int(config["blocks"]),
        "implicit": problem.get("feedback") == "implicit",
        "across": 1 << (min(int(config["block_size"]), padded_width(k) // width).bit_length() - 1),
    }


def _cg_variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    team, vectors = int(config["team"]), padded_width(problem.integer("K")) // int(config["vector_width"])
    per_lane = -(-vectors // team)
    found = _variables(problem, dict(config) | {"together": _STAGED, "matrix": "global"}, traits)
    return found | {"T": team, "per_lane": per_lane, "held": "registers" if per_lane <= _UNROLLED else "none"}


def _solve(on: Launches) -> None:
    block, blocks = int(on.config["block_size"]), int(on.config["blocks"])
    if on.problem.get("feedback") == "implicit":
        on.launch("gram", blocks, block)
        k = on.problem.integer("K")
        vectors = k * padded_width(k) // int(on.config["vector_width"])
        on.launch("gram_sum", -(-vectors // block), block)
    on.launch("solve", blocks, block)


def _near(config: Config, problem: Problem, traits: Traits) -> str | None:
    rows = max(int(config["block_size"]) // int(config["team"]), _STAGED) + 1
    return teams.too_much_local(
        rows * (padded_width(problem.integer("K")) + 1) * reals.real_bytes(problem) + 1024, traits
    )


def _cg_default(problem: Problem, traits: Traits) -> Config:
    found = default_team(problem, traits, 256) | {"blocks": _default_blocks(problem, traits)}
    # A short row in the widest vectors waits for their sums.
    if traits.kind != "gpu" and padded_width(problem.integer("K")) <= 4 * found["vector_width"]:
        found["vector_width"] //= 2
    while _near(found, problem, traits) and found["block_size"] > found["team"]:
        found["block_size"] //= 2
    return found


def als_kernels(**given: Any) -> tuple[KernelSpec, ...]:
    """By Cholesky, and by conjugate gradients; ``given`` are the other fields, a ``workload`` takes the name first."""
    gram = {"gram": (_FIXED, _SCRATCH, _N_FIXED), "gram_sum": (_SCRATCH, _BASE)}
    # Conjugate gradients go on from the rows of the sweep before.
    going_on = (replace(_ROWS[0], role="inout", doc="[R, LD] rows of this side, before and after"), *_ROWS[1:])
    workload = given.pop("workload")

    def kernel(name: str, rows: tuple[Argument, ...], *scalars: Argument, **more: Any) -> KernelSpec:
        entries = gram | {"solve": (*rows, _SCRATCH, _BASE, *_SCALARS, *scalars)}
        return KernelSpec(
            name=name,
            template=f"mf/{more.pop('template')}.jinja",
            arguments=(*rows, _SCRATCH, _BASE, *_SCALARS, *scalars, _N_FIXED),
            launch=lambda problem, config, count, traits: Launch(int(config["blocks"]), int(config["block_size"])),
            entries=lambda config: entries,
            program=_solve,
            workload=partial(workload, name),
            **given | more,
        )

    return (
        kernel(
            "als_rows",
            _ROWS,
            template="als",
            doc="the least-squares rows of one side of a factorisation, the other side given",
            space=Space(
                (BLOCK, teams.VECTOR_WIDTH, _TOGETHER, _BLOCKS, _MATRIX),
                (
                    teams.BLOCK_FITS,
                    Constraint("barriers", lambda c, p, t: teams.meets_alone(int(c["block_size"]), t)),
                    Constraint("vector_width", _loads),
                    Constraint("matrix", _fits),
                ),
            ),
            default=_default,
            variables=_variables,
        ),
        kernel(
            "als_cg",
            going_on,
            _STEPS,
            template="als_cg",
            doc="the same rows, nearer to the solution by a few steps of conjugate gradients from what they were",
            space=space_of(_BLOCKS, constraints=(Constraint("block_size", _near),)),
            default=_cg_default,
            variables=_cg_variables,
        ),
    )
