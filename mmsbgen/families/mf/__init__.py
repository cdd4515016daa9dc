"""Matrix factorisation: stochastic gradient descent in several schedules, and alternating least squares."""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from mmsbgen.families.mf import workloads
from mmsbgen.families.mf.als_kernels import FEW_STEPS, als_kernels
from mmsbgen.families.mf.errors import error_kernel
from mmsbgen.families.mf.layout import Cells, padded_width, stored_bytes
from mmsbgen.families.mf.schedules import STORAGES
from mmsbgen.families.mf.sgd_kernels import sgd_kernels
from mmsbgen.families.mf.workloads import sgd_workload
from mmsbgen.kernels.family import Dataset, KernelFamily, Workload
from mmsbgen.kernels.problem import Parameter, Problem
from mmsbgen.ratings import read_ratings

__all__ = ["MF"]

PARAMETERS = (
    Parameter("K", 32, "factors", minimum=1, maximum=4096),
    Parameter("users", 943, "users", minimum=1, maximum=2**31, soft=True, weight=0.25),
    Parameter("items", 1682, "items", minimum=1, maximum=2**31, soft=True, weight=0.25),
    Parameter("ratings", 100_000, "ratings", minimum=1, maximum=2**32 - 1, soft=True, weight=0.25),
    Parameter("degree", 737, "ratings of the user or item that has most", minimum=1, soft=True, weight=0.5),
    Parameter("dtype", "float32", "type of factors", choices=("float32", "float64")),
    Parameter("storage", "float32", "type of stored factors; float32: as dtype", choices=STORAGES),
    Parameter("bias", "on", "whether users and items have biases", choices=("on", "off")),
    Parameter(
        "feedback", "explicit", "whether ratings are values, or confidences of ALS", choices=("explicit", "implicit")
    ),
)
_SIZES = ("K", "users", "items", "ratings", "degree", "dtype")


def _row_bytes(problem: Problem) -> int:
    return padded_width(problem.integer("K")) * stored_bytes(problem)


def _workload(kernel: str, cells: Cells, problem: Problem, seed: int) -> Workload:
    if kernel == "square_error":
        return workloads.error_workload(cells, problem, seed)
    if kernel in ("als_rows", "als_cg"):
        return workloads.als_workload(cells, problem, seed, FEW_STEPS if kernel == "als_cg" else 0)
    return sgd_workload(kernel, cells, problem, seed)


def _generated(kernel: str, problem: Problem, seed: int) -> Workload:
    return _workload(kernel, workloads.generated_cells(problem, seed), problem, seed)


def _read(file: Path) -> Dataset:
    """A user's file of ratings; of several ratings of a user and an item the last counts."""
    found = read_ratings(file, duplicates="last")
    cells = Cells(found.users, found.items, found.values, found.user_ids.size, found.item_ids.size)
    identity = sha256(b"".join(array.tobytes() for array in cells[:3])).hexdigest()[:16]
    return Dataset(
        workloads.features(cells),
        lambda kernel, problem, seed: _workload(kernel, cells, problem, seed),
        name=lambda kernel: identity,
    )


def _refusal(problem: Problem) -> str | None:
    if problem.get("storage") == "bfloat16" and problem.get("dtype") == "float64":
        return "storage=bfloat16 goes with dtype=float32, in which its rows are computed, not float64"
    return None


def _inputs_refusal(problem: Problem) -> str | None:
    cells = problem.integer("users") * problem.integer("items")
    if 3 * problem.integer("ratings") > 2 * cells:
        return f"{problem['ratings']} ratings are more than two thirds of {cells} cells: give more users or items"
    return None


def _given(*more: str) -> dict[str, Any]:
    return {
        "parameters": (*_SIZES, *more),
        "check_problem": lambda problem: problem.replace(users=70, items=45, ratings=700, degree=60),
    }


def _read_errors(problem: Problem) -> int:
    return problem.integer("ratings") * (2 * _row_bytes(problem) + 12)


def _read_rows(problem: Problem) -> int:
    return problem.integer("ratings") * (_row_bytes(problem) + 8) + problem.integer("users") * _row_bytes(problem)


MF = KernelFamily(
    name="mf",
    doc="matrix factorisation of ratings by stochastic gradient descent and alternating least squares",
    parameters=PARAMETERS,
    kernels={
        spec.name: spec
        for spec in (
            *sgd_kernels(workload=_generated, **_given("bias", "storage")),
            *als_kernels(traffic=_read_rows, workload=_generated, **_given("feedback")),
            error_kernel(traffic=_read_errors, workload=partial(_generated, "square_error"), **_given("storage")),
        )
    },
    row_bytes=_row_bytes,
    tuned=("sgd_tiles", "sgd_adds", "sgd_locks", "als_rows", "als_cg", "square_error"),
    refusal=_refusal,
    inputs_refusal=_inputs_refusal,
    read=_read,
)
