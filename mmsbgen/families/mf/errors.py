"""The kernel that evaluates a factorisation on ratings."""

from __future__ import annotations

from typing import Any

from mmsbgen.families.mf.teams import DATA, FACTORS, common_variables, space_of, widest
from mmsbgen.families.mf.workloads import STRETCHES
from mmsbgen.kernels.family import Argument, KernelSpec, Launch
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config, Traits

_MORE = (
    Argument("mean", "real", "scalar", "of the ratings"),
    Argument("low", "real", "scalar", "predictions below it count as it"),
    Argument("high", "real", "scalar", "those above it as it"),
    Argument("n_ratings", "u32", "scalar", ""),
    Argument("sums_of_errors", "double", "out", "[8192, 2] squared and absolute errors of stretches of ratings"),
)


def _default(problem: Problem, traits: Traits) -> Config:
    gpu = traits.kind == "gpu"
    team = 4 if gpu else 1
    return {
        "block_size": 1 if not gpu else team if traits.dialect == "opencl" else 64,
        "team": team,
        "vector_width": widest(problem, traits),
    }


def _variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    return common_variables(problem, config, traits) | {"stretches": STRETCHES}


def error_kernel(**given: Any) -> KernelSpec:
    """The kernel; ``given`` are the other fields of its declaration."""
    read = tuple(Argument(each.name, each.ctype, "in", each.doc) for each in FACTORS)
    return KernelSpec(
        name="square_error",
        template="mf/square_error.jinja",
        doc="squared and absolute errors of predicted ratings, in sums that no launch shape changes",
        arguments=(*read, *DATA, *_MORE),
        space=space_of(),
        default=_default,
        variables=_variables,
        launch=lambda problem, config, count, traits: Launch(
            -(-STRETCHES * int(config["team"]) // int(config["block_size"])), int(config["block_size"])
        ),
        **given,
    )
