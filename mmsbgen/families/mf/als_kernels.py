"""The kernel of alternating least squares: all rows of one side, the other one given."""

from __future__ import annotations

from typing import Any

import numpy as np

from mmsbgen.families.mf.layout import padded_width
from mmsbgen.families.mf.teams import BLOCK, WIDTH, one_work_item, widest
from mmsbgen.kernels.family import Argument, KernelSpec, Launch
from mmsbgen.kernels.host_program import Launches
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Axis, Config, Constraint, Space, Traits

_BLOCKS = Axis("blocks", (8, 64, 512), "blocks, each with a matrix of its own")
_TOGETHER = Axis("together", (1, 4, 8), "ratings that are added to the matrix at once")
_MATRIX = Axis("matrix", ("global", "local"), "where the matrix of a row lies")

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


def scratch_of(problem: Problem, config: Config, real: Any) -> dict[str, Any]:
    """The arrays that a configuration works in."""
    area = problem.integer("K"), padded_width(problem.integer("K"))
    return {"scratch": np.zeros((int(config["blocks"]), *area), real), "base": np.zeros(area, real)}


def _size(problem: Problem) -> int:
    return 8 if problem.get("dtype") == "float64" else 4


def _limits(config: Config, problem: Problem, traits: Traits) -> str | None:
    if int(config["block_size"]) > traits.max_block_size:
        return f"the device's blocks have at most {traits.max_block_size} work-items"
    return one_work_item(int(config["block_size"]), traits)


def _loads(config: Config, problem: Problem, traits: Traits) -> str | None:
    if traits.dialect == "cuda" and int(config["vector_width"]) * _size(problem) > 16:
        return "a load has at most 16 bytes"
    return None


def _fits(config: Config, problem: Problem, traits: Traits) -> str | None:
    k, row = problem.integer("K"), padded_width(problem.integer("K")) * _size(problem)
    needed = (int(config["together"]) + 1) * (row + 16) + (k * row if config["matrix"] == "local" else 0)
    if needed > traits.local_memory:
        return f"a block would need {needed} bytes of local memory, of {traits.local_memory}"
    return None


def _default(problem: Problem, traits: Traits) -> Config:
    gpu = traits.kind == "gpu"
    found: dict[str, Any] = {
        "block_size": 64 if gpu else 1,
        "vector_width": widest(problem, traits),
        "together": 4 if gpu else 8,
        "blocks": 512 if gpu else 64,
        "matrix": "local",
    }
    return found if _fits(found, problem, traits) is None else found | {"matrix": "global"}


def _variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    size, width, k = _size(problem), int(config["vector_width"]), problem.integer("K")
    return {
        "real": "double" if size == 8 else "float",
        "LD": padded_width(k),
        "W": width,
        "alignment": width * size,
        "narrow": False,
        "n_factors": k,
        "together": int(config["together"]),
        "matrix": config["matrix"],
        "blocks": int(config["blocks"]),
        "implicit": problem.get("feedback") == "implicit",
        "powers": [2**power for power in range(11)],
    }


def _solve(on: Launches) -> None:
    block, blocks = int(on.config["block_size"]), int(on.config["blocks"])
    if on.problem.get("feedback") == "implicit":
        on.launch("gram", blocks, block)
        k = on.problem.integer("K")
        vectors = k * padded_width(k) // int(on.config["vector_width"])
        on.launch("gram_sum", -(-vectors // block), block)
    on.launch("solve", blocks, block)


def als_kernel(**given: Any) -> KernelSpec:
    """The kernel; ``given`` are the other fields of its declaration."""
    gram = {"gram": (_FIXED, _SCRATCH, _N_FIXED), "gram_sum": (_SCRATCH, _BASE)}
    solve = {"solve": (*_ROWS, _SCRATCH, _BASE, *_SCALARS)}
    return KernelSpec(
        name="als_rows",
        template="mf/als.jinja",
        doc="the least-squares rows of one side of a factorisation, the other side given",
        arguments=(*_ROWS, _SCRATCH, _BASE, *_SCALARS, _N_FIXED),
        space=Space(
            (BLOCK, WIDTH, _TOGETHER, _BLOCKS, _MATRIX),
            (Constraint("block_size", _limits), Constraint("vector_width", _loads), Constraint("matrix", _fits)),
        ),
        default=_default,
        variables=_variables,
        launch=lambda problem, config, count, traits: Launch(int(config["blocks"]), int(config["block_size"])),
        entries=lambda config: gram | solve,
        program=_solve,
        **given,
    )
