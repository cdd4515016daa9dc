"""Inputs and checks of kernels on generated or on a user's ratings: sweeps, errors and rows of ALS."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from mmsbgen.families.mf import reference
from mmsbgen.families.mf.als_kernels import scratch_of
from mmsbgen.families.mf.generated import generated_ratings, start_rows
from mmsbgen.families.mf.layout import Cells, by_row, narrowed, padded, widened
from mmsbgen.families.mf.reference import Factors, Steps
from mmsbgen.families.mf.schedules import SCHEDULES, Part, groups_of
from mmsbgen.kernels.family import Array, Expected, Judge, Units, Workload, all_units
from mmsbgen.kernels.kit.reals import real_type
from mmsbgen.kernels.problem import Problem, Value
from mmsbgen.kernels.space import Config
from mmsbgen.ratings.orders import counted

#: Stretches of ratings whose squared errors are summed up apart.
STRETCHES = 8192


def generated_cells(problem: Problem, seed: int) -> Cells:
    """Generated ratings of a problem's shape."""
    m, n, count = (problem.integer(name) for name in ("users", "items", "ratings"))
    return Cells(*generated_ratings(m, n, count, seed), m, n)


def features(cells: Cells) -> dict[str, Value]:
    """The problem parameters of ratings."""
    largest = max(
        int(counted(rows, count).max(initial=1))
        for rows, count in ((cells.users, cells.n_users), (cells.items, cells.n_items))
    )
    return {
        "users": max(1, cells.n_users),
        "items": max(1, cells.n_items),
        "ratings": max(1, cells.users.size),
        "degree": largest,
    }


def start_of(cells: Cells, problem: Problem, seed: int) -> Factors:
    """A state in the type of the problem, in float64."""
    real, k, bias = real_type(problem), problem.integer("K"), problem.get("bias") == "on"
    sides = (("user", cells.n_users), ("item", cells.n_items))
    p, q = (start_rows(seed, side, count, k, bias=bias) for side, count in sides)
    b, c = (0.1 * start_rows(seed + 1, side, count, 1, bias=True)[:, 0] * bias for side, count in sides)
    if problem.get("storage") == "bfloat16":
        p, q = (widened(narrowed(each)) for each in (p, q))
    return Factors(*(each.astype(real).astype(np.float64) for each in (p, q, b, c)))


def stored(rows: Array, problem: Problem) -> Array:
    """Rows as kernels store them."""
    found = padded(rows, real_type(problem))
    return narrowed(found) if problem.get("storage") == "bfloat16" else found


def error_workload(cells: Cells, problem: Problem, seed: int) -> Workload:
    """Squared and absolute errors of ratings by stretches."""
    real, x, count = real_type(problem), start_of(cells, problem, seed), cells.users.size
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
    real, implicit = real_type(problem), problem.get("feedback") == "implicit"
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


_NAMES = ("user_factors", "item_factors", "user_bias", "item_bias")
#: Kernels whose order is known by tickets alone.
_LOCKING = ("sgd_locks", "sgd_nodes", "sgd_hybrid")


def _integers(start: Factors) -> Factors:
    """A state of the exact operators; what pads rows is 0 at the start and then takes part, as any coordinate does."""
    return Factors(*((np.abs(each) * 2.0**31).astype(np.uint32) for each in (start.p, start.q, start.b, start.c)))


def sgd_workload(kernel: str, cells: Cells, problem: Problem, seed: int, schedule: str | None = None) -> Workload:
    """What a kernel does in a sweep of a schedule; without one, of the first that has this kernel alone.

    The step is small enough for the bounds of schedules without a known order.
    """
    real, bias = real_type(problem), problem.get("bias") == "on"
    chosen = SCHEDULES[schedule] if schedule else next(x for x in SCHEDULES.values() if x.kernels == (kernel,))
    largest = int(str(features(cells)["degree"]))
    constants = [real(x) for x in (3.5, 0.1 / largest, 0.06, 0.05, 0.04)]
    mean, step, reg_user, reg_item, reg_bias = map(float, constants)
    how = Steps(step, reg_user, reg_item, reg_bias, mean, bias)
    ratings = cells.ratings.astype(real)
    start, eps = start_of(cells, problem, seed), float(np.finfo(real).eps)
    lost = 2.0**-7 if problem.get("storage") == "bfloat16" else 0.0

    @cache
    def placed(tiles: int) -> Part:
        return next(part for part in chosen.placed(cells, tiles) if part.kernel == kernel)

    def state(exact: bool) -> dict[str, Any]:
        """What a sweep changes, and its constants: reals, or integers of the exact operators."""
        kind, whole = (np.uint32, _integers(start)) if exact else (real, start)
        found: dict[str, Any] = {
            "user_factors": padded(whole.p, kind) if exact else stored(whole.p, problem),
            "item_factors": padded(whole.q, kind) if exact else stored(whole.q, problem),
            "seed": np.uint32(seed + 7),
            "user_bias": whole.b.astype(kind),
            "item_bias": whole.c.astype(kind),
        }
        scalars = ("mean", "step", "reg_user", "reg_item", "reg_bias")
        return found | {name: kind(value) for name, value in zip(scalars, constants, strict=True)}

    def prepare(config: Config) -> dict[str, Any]:
        part, exact = placed(groups_of(config)), config["operator"] == "witness"
        found = dict(part.arrays) | {
            "users": cells.users[part.order],
            "items": cells.items[part.order],
            "ratings": ratings[part.order].astype(np.uint32 if exact else real),
        }
        return found | state(exact) if exact else found

    @cache
    def ordered(tiles: int) -> tuple[Factors, Factors]:
        order = placed(tiles).order
        return reference.sweep(start, cells.users[order], cells.items[order], ratings[order], how, eps, lost)

    @cache
    def bounded() -> tuple[Factors, Factors]:
        own = placed(1).order
        return reference.change_bound(start, cells.users[own], cells.items[own], ratings[own], how, eps, lost)

    def judge(got: Any, config: Config) -> str | None:
        operator, tiles = config["operator"], groups_of(config)
        order = placed(tiles).order
        if kernel in _LOCKING:
            held = [name for name in ("user_locks", "item_locks") if name in got and got[name].any()]
            if held:
                return f"{held[0]}: a lock was left"
            if operator != "sgd":
                if not np.array_equal(np.sort(got["tickets"]), np.arange(order.size)):
                    return "tickets: a rating was done twice, or never"
                order = order[np.argsort(got["tickets"])]
        users, items = cells.users[order], cells.items[order]
        if operator == "witness":
            integers = _integers(start)
            wide = Factors(padded(integers.p, np.uint32), padded(integers.q, np.uint32), integers.b, integers.c)
            if kernel == "sgd_hogwild":
                return _counted(got, wide, users, items, bias)
            exact = reference.add_witness if kernel == "sgd_adds" else reference.witness
            return _equal(got, exact(wide, users, items, ratings[order].astype(np.uint32), bias=bias))
        if kernel in ("sgd_tiles", "sgd_steps", "sgd_blocks"):
            value, off = ordered(tiles)
        elif operator == "traced":
            value, off = reference.sweep(start, users, items, ratings[order], how, eps, lost)
        else:
            value, off = bounded()
        if kernel == "sgd_hogwild":
            middle, half = reference.some_changes(start, users, items, ratings[order], how)
            return _near(got, middle, off, half)
        return _near(got, value, off)

    axes = "operator", *{"sgd_tiles": ("tiles",), "sgd_locks": ("stretches",)}.get(kernel, ())
    arguments = state(False) | dict(placed(1).arrays)
    return Workload(arguments, placed(1).count, judge, repeats="restored", prepare=prepare, prepared_by=axes)


def _near(got: Any, value: Factors, off: Factors, more: Factors | None = None) -> str | None:
    """Whether all outputs are within twice the bound of their rows, and ``more``."""
    for name, field in zip(_NAMES, "pqbc", strict=True):
        exact, bound = getattr(value, field), 2 * getattr(off, field)
        found = widened(got[name])
        if exact.ndim == 2:
            found, padding = found[:, : exact.shape[1]], found[:, exact.shape[1] :]
            if padding.any():
                return f"{name}: what pads rows is not 0 any more"
            bound = np.broadcast_to(bound[:, None], exact.shape)
        wrong = Expected(exact, bound if more is None else bound + getattr(more, field)).errors(found)
        if wrong is not None:
            return f"{name}: {wrong}"
    return None


def _equal(got: Any, value: Factors) -> str | None:
    for name, exact in zip(_NAMES, (value.p, value.q, value.b, value.c), strict=True):
        odd = np.flatnonzero((got[name] != exact).reshape(exact.shape[0], -1).any(axis=1))
        if odd.size:
            return f"{name}: {odd.size} of {exact.shape[0]} rows differ from those of the order, the first is {odd[0]}"
    return None


def _counted(got: Any, start: Factors, users: Array, items: Array, bias: bool) -> str | None:
    """Whether each row has counted some of its ratings, at least one, and no more than all."""
    before = start.p, start.q, start.b, start.c
    for name, old, rows in zip(_NAMES, before, (users, items, users, items), strict=True):
        degrees = np.bincount(rows, minlength=old.shape[0]) * (bias or old.ndim == 2)
        counts = (got[name] - old).reshape(old.shape[0], -1).astype(np.int64)
        odd = np.flatnonzero((counts < np.minimum(degrees, 1)[:, None]).any(1) | (counts > degrees[:, None]).any(1))
        if odd.size:
            at = odd[0]
            return f"{name}: row {at} has counted {counts[at].min()} to {counts[at].max()} of {degrees[at]} ratings"
    return None
