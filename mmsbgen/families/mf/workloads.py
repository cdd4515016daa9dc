"""Inputs of kernels on generated or on a user's ratings; checks of the errors and of the rows of ALS."""

from __future__ import annotations

from typing import Any

import numpy as np

from mmsbgen.families.mf import reference
from mmsbgen.families.mf.als_kernels import scratch_of
from mmsbgen.families.mf.generated import generated_ratings, start_rows
from mmsbgen.families.mf.layout import Cells, by_row, narrowed, padded, widened
from mmsbgen.families.mf.reference import Factors
from mmsbgen.kernels.family import Array, Expected, Judge, Units, Workload, all_units
from mmsbgen.kernels.problem import Problem, Value
from mmsbgen.kernels.space import Config

#: Stretches of ratings whose squared errors are summed up apart.
STRETCHES = 8192


def generated_cells(problem: Problem, seed: int) -> Cells:
    """Generated ratings of a problem's shape."""
    m, n, count = (problem.integer(name) for name in ("users", "items", "ratings"))
    return Cells(*generated_ratings(m, n, count, seed), m, n)


def features(cells: Cells) -> dict[str, Value]:
    """The problem parameters of ratings."""
    largest = max(int(np.bincount(cells.users).max(initial=1)), int(np.bincount(cells.items).max(initial=1)))
    return {
        "users": max(1, cells.n_users),
        "items": max(1, cells.n_items),
        "ratings": max(1, cells.users.size),
        "degree": largest,
    }


def dtype_of(problem: Problem) -> Any:
    """The type of factors."""
    return np.float64 if problem.get("dtype") == "float64" else np.float32


def start_of(cells: Cells, problem: Problem, seed: int) -> Factors:
    """A state in the type of the problem, in float64."""
    real, k, bias = dtype_of(problem), problem.integer("K"), problem.get("bias") == "on"
    sides = (("user", cells.n_users), ("item", cells.n_items))
    p, q = (start_rows(seed, side, count, k, bias=bias) for side, count in sides)
    b, c = (0.1 * start_rows(seed + 1, side, count, 1, bias=True)[:, 0] * bias for side, count in sides)
    if problem.get("storage") == "bfloat16":
        p, q = (widened(narrowed(each)) for each in (p, q))
    return Factors(*(each.astype(real).astype(np.float64) for each in (p, q, b, c)))


def stored(rows: Array, problem: Problem) -> Array:
    """Rows as kernels store them."""
    found = padded(rows, dtype_of(problem))
    return narrowed(found) if problem.get("storage") == "bfloat16" else found


def error_workload(cells: Cells, problem: Problem, seed: int) -> Workload:
    """Squared and absolute errors of ratings by stretches."""
    real, x, count = dtype_of(problem), start_of(cells, problem, seed), cells.users.size
    ratings = cells.ratings.astype(real)
    low, high, mean = real(1.5), real(4.25), real(3.5)
    exact = np.clip(ratings - reference.errors(x, cells.users, cells.items, ratings, float(mean)), low, high)
    error = ratings - exact
    stretch = np.arange(count) // -(-count // STRETCHES)
    value = np.stack([np.bincount(stretch, each, STRETCHES) for each in (error * error, np.abs(error))], axis=1)
    # A prediction sums K products and three numbers; that of a sum in double precision is left out.
    length = np.linalg.norm(x.p[cells.users], axis=1) * np.linalg.norm(x.q[cells.items], axis=1)
    off = np.finfo(real).eps * ((problem.integer("K") + 4) * length + 4 * 5)
    bound = np.stack(
        [np.bincount(stretch, each, STRETCHES) for each in (2 * np.abs(error) * off + off * off, off)], axis=1
    )
    expected = Expected(value, 2 * bound + 1e-12 * value)
    arguments = {
        "user_factors": stored(x.p, problem),
        "item_factors": stored(x.q, problem),
        "user_bias": x.b.astype(real),
        "item_bias": x.c.astype(real),
        "users": cells.users,
        "items": cells.items,
        "ratings": ratings,
        "mean": mean,
        "low": low,
        "high": high,
        "n_ratings": np.uint32(count),
        "sums_of_errors": np.zeros((STRETCHES, 2)),
    }
    return Workload(arguments, count, lambda got, config: expected.errors(got["sums_of_errors"]))


def als_workload(cells: Cells, problem: Problem, seed: int, steps: int) -> Workload:
    """The half of a sweep that solves for the rows of users: exactly, or by ``steps`` steps from what they were."""
    real, implicit = dtype_of(problem), problem.get("feedback") == "implicit"
    start = start_of(cells, problem, seed)
    q = start.q
    order, offsets = by_row(cells.users, cells.n_users)
    others, ratings = cells.items[order], cells.ratings[order].astype(real)
    reg, weighted = real(10.0 if steps and implicit else 0.5), np.uint32(not implicit)
    eps, k = float(np.finfo(real).eps), problem.integer("K")
    how = {"implicit": implicit, "weighted": bool(weighted)}

    def exact(rows: Array) -> tuple[Array, Array]:
        if steps:
            return reference.stepped_rows(rows, offsets, others, ratings, q, start.p, float(reg), steps, **how, eps=eps)
        value, condition = reference.solved_rows(rows, offsets, others, ratings, q, float(reg), **how)
        # A sum over the ratings of a row, then Cholesky (Higham 2002, theorem 10.3), both times the condition number.
        terms = np.diff(offsets.astype(np.int64))[rows] + 3 * k + 4 + (cells.n_items if implicit else 0)
        return value, 4 * eps * terms * condition * np.linalg.norm(value, axis=1)

    def of(rows: Array, turn: int) -> Judge:
        value, bound = exact(rows)
        expected = Expected(value, np.broadcast_to(bound[:, None], value.shape))

        def judge(got: Any, config: Config) -> str | None:
            if got["solution"][:, k:].any():
                return "solution: what pads rows is not 0"
            return expected.errors(got["solution"][:, :k])

        return judge

    units = Units(cells.n_users, lambda rows: {"solution": rows}, of)
    arguments = {
        "solution": padded(start.p, real) if steps else np.full((cells.n_users, padded(q[:1], real).shape[1]), 9, real),
        "fixed": padded(q, real),
        "offsets": offsets,
        "others": others,
        "ratings": ratings,
        "reg": reg,
        "weighted": weighted,
        "n_rows": np.uint32(cells.n_users),
        "n_fixed": np.uint32(cells.n_items),
        **({"steps": np.uint32(steps)} if steps else {}),
        "scratch": np.zeros(1, real),
        "base": np.zeros(1, real),
    }
    return Workload(
        arguments,
        cells.n_users,
        all_units((units,)),
        units=(units,),
        repeats="restored" if steps else "same",
        prepare=lambda config: scratch_of(problem, config, real),
        prepared_by=("blocks",) if steps else ("blocks", "matrix"),
    )
