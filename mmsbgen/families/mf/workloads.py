"""Inputs and checks of the kernels that go over ratings, on generated or on a user's ratings."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mmsbgen.families.mf import reference
from mmsbgen.families.mf.als import scratch_of
from mmsbgen.families.mf.generated import generated_ratings
from mmsbgen.families.mf.layout import by_row, cells_of_tiles, padded
from mmsbgen.families.mf.reference import Factors, Steps
from mmsbgen.families.mf.start import start_rows
from mmsbgen.kernels.family import Array, Expected, Judge, Units, Workload, all_units
from mmsbgen.kernels.problem import Problem, Value
from mmsbgen.kernels.space import Config

__all__ = ["Cells", "als_workload", "error_workload", "features", "generated_cells", "sgd_workload"]

#: Stretches of ratings whose squared errors are summed up apart.
STRETCHES = 8192
_NAMES = ("user_factors", "item_factors", "user_bias", "item_bias")


class Cells(NamedTuple):
    """Ratings ``[E]`` by the numbers of their users and items, uint32 ``[E]``, of ``n_users`` and ``n_items``."""

    users: NDArray[Any]
    items: NDArray[Any]
    ratings: NDArray[Any]
    n_users: int
    n_items: int


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


def _real(problem: Problem) -> Any:
    return np.float64 if problem.get("dtype") == "float64" else np.float32


def _start(cells: Cells, problem: Problem, seed: int) -> Factors:
    """A state in the type of the problem, in float64."""
    real, k, bias = _real(problem), problem.integer("K"), problem.get("bias") == "on"
    sides = (("user", cells.n_users), ("item", cells.n_items))
    p, q = (start_rows(seed, side, count, k, bias=bias) for side, count in sides)
    b, c = (0.1 * start_rows(seed + 1, side, count, 1, bias=True)[:, 0] * bias for side, count in sides)
    return Factors(*(each.astype(real).astype(np.float64) for each in (p, q, b, c)))


def _integers(start: Factors) -> Factors:
    """A state of the exact operators; what pads rows is 0 at the start and then takes part, as any coordinate does."""
    return Factors(*((np.abs(each) * 2.0**31).astype(np.uint32) for each in (start.p, start.q, start.b, start.c)))


def sgd_workload(kernel: str, cells: Cells, problem: Problem, seed: int) -> Workload:
    """One sweep.  Its step is small enough for the bounds of schedules without a known order."""
    real, bias = _real(problem), problem.get("bias") == "on"
    largest = int(str(features(cells)["degree"]))
    constants = [real(x) for x in (3.5, 0.1 / largest, 0.06, 0.05, 0.04)]
    mean, step, reg_user, reg_item, reg_bias = map(float, constants)
    how = Steps(step, reg_user, reg_item, reg_bias, mean, bias)
    ratings = cells.ratings.astype(real)
    start, eps, count = _start(cells, problem, seed), float(np.finfo(real).eps), cells.users.size

    def state(exact: bool) -> dict[str, Any]:
        """What a sweep changes, and its constants: reals, or integers of the exact operators."""
        kind, whole = (np.uint32, _integers(start)) if exact else (real, start)
        found: dict[str, Any] = {
            "user_factors": padded(whole.p, kind),
            "item_factors": padded(whole.q, kind),
            "user_bias": whole.b.astype(kind),
            "item_bias": whole.c.astype(kind),
        }
        scalars = ("mean", "step", "reg_user", "reg_item", "reg_bias")
        return found | {name: kind(value) for name, value in zip(scalars, constants, strict=True)}

    def prepare(config: Config) -> dict[str, Any]:
        order, starts = _placed(int(config.get("tiles", 1)))
        exact = config["operator"] == "witness"
        found: dict[str, Any] = {
            "users": cells.users[order],
            "items": cells.items[order],
            "ratings": ratings[order].astype(np.uint32 if exact else real),
        }
        if kernel == "sgd_tiles":
            found["cells"] = starts
        return found | state(exact) if exact else found

    @cache
    def _placed(tiles: int) -> tuple[Array, Array]:
        if kernel != "sgd_tiles":
            return np.arange(count), np.zeros(1, np.uint32)
        return cells_of_tiles(cells.users, cells.items, cells.n_users, cells.n_items, tiles)

    @cache
    def ordered(tiles: int) -> tuple[Factors, Factors]:
        order, _ = _placed(tiles)
        return reference.sweep(start, cells.users[order], cells.items[order], ratings[order], how, eps)

    @cache
    def bounded() -> tuple[Factors, Factors]:
        return reference.change_bound(start, cells.users, cells.items, ratings, how, eps)

    def judge(got: Any, config: Config) -> str | None:
        operator = config["operator"]
        if kernel == "sgd_locks":
            wrong = _free(got)
            if wrong is not None:
                return wrong
        order = _placed(int(config.get("tiles", 1)))[0]
        if kernel == "sgd_locks" and operator != "sgd":
            if not np.array_equal(np.sort(got["tickets"]), np.arange(count)):
                return "tickets: a rating was done twice, or never"
            order = np.argsort(got["tickets"])
        if operator == "witness":
            exact = reference.add_witness if kernel == "sgd_adds" else reference.witness
            data = cells.users[order], cells.items[order], ratings[order].astype(np.uint32)
            integers = _integers(start)
            wide = Factors(padded(integers.p, np.uint32), padded(integers.q, np.uint32), integers.b, integers.c)
            return _equal(got, exact(wide, *data, bias=bias))
        if kernel == "sgd_tiles":
            value, off = ordered(int(config["tiles"]))
        elif kernel == "sgd_locks" and operator == "traced":
            data = cells.users[order], cells.items[order], ratings[order]
            value, off = reference.sweep(start, *data, how, eps)
        else:
            value, off = bounded()
        return _near(got, value, off)

    axes = ("operator", "tiles") if kernel == "sgd_tiles" else ("operator",)
    lists: dict[str, Any] = {"n_ratings": np.uint32(count)}
    if kernel == "sgd_locks":
        lists |= {name: np.zeros(count, np.uint32) for name in ("waiting", "deferred", "tickets")}
        lists |= {"counts": np.zeros(2, np.uint32)}
        lists |= {"user_locks": np.zeros(cells.n_users, np.uint32), "item_locks": np.zeros(cells.n_items, np.uint32)}
    return Workload(state(False) | lists, count, judge, repeats="restored", prepare=prepare, prepared_by=axes)


def _free(got: Any) -> str | None:
    held = [name for name in ("user_locks", "item_locks") if got[name].any()]
    return f"{held[0]}: a lock was left" if held else None


def _near(got: Any, value: Factors, off: Factors) -> str | None:
    """Whether all outputs are within twice the bound of their rows."""
    pairs = ((value.p, off.p), (value.q, off.q), (value.b, off.b), (value.c, off.c))
    for name, (exact, bound) in zip(_NAMES, pairs, strict=True):
        if exact.ndim == 2:
            width = exact.shape[1]
            if got[name][:, width:].any():
                return f"{name}: what pads rows is not 0 any more"
            wrong = Expected(exact, np.broadcast_to(2 * bound[:, None], exact.shape)).errors(got[name][:, :width])
        else:
            wrong = Expected(exact, 2 * bound).errors(got[name])
        if wrong is not None:
            return f"{name}: {wrong}"
    return None


def _equal(got: Any, value: Factors) -> str | None:
    for name, exact in zip(_NAMES, (value.p, value.q, value.b, value.c), strict=True):
        odd = np.flatnonzero((got[name] != exact).reshape(exact.shape[0], -1).any(axis=1))
        if odd.size:
            return f"{name}: {odd.size} of {exact.shape[0]} rows differ from those of the order, the first is {odd[0]}"
    return None


def error_workload(cells: Cells, problem: Problem, seed: int) -> Workload:
    """Squared and absolute errors of ratings by stretches."""
    real, x, count = _real(problem), _start(cells, problem, seed), cells.users.size
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
        "user_factors": padded(x.p, real),
        "item_factors": padded(x.q, real),
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


def als_workload(cells: Cells, problem: Problem, seed: int) -> Workload:
    """The half of a sweep that solves for the rows of users."""
    real, implicit = _real(problem), problem.get("feedback") == "implicit"
    q = _start(cells, problem, seed).q
    order, offsets = by_row(cells.users, cells.n_users)
    others, ratings = cells.items[order], cells.ratings[order].astype(real)
    reg, weighted = real(0.5), np.uint32(not implicit)
    eps, k = float(np.finfo(real).eps), problem.integer("K")

    def of(rows: Array, turn: int) -> Judge:
        value, condition = reference.solved_rows(
            rows, offsets, others, ratings, q, float(reg), implicit=implicit, weighted=bool(weighted)
        )
        # A sum over the ratings of a row, then Cholesky (Higham 2002, theorem 10.3), both times the condition number.
        terms = np.diff(offsets.astype(np.int64))[rows] + 3 * k + 4 + (cells.n_items if implicit else 0)
        size = np.linalg.norm(value, axis=1)
        bound = 4 * eps * terms * condition * size
        expected = Expected(value, np.broadcast_to(bound[:, None], value.shape))

        def judge(got: Any, config: Config) -> str | None:
            if got["solution"][:, k:].any():
                return "solution: what pads rows is not 0"
            return expected.errors(got["solution"][:, :k])

        return judge

    units = Units(cells.n_users, lambda rows: {"solution": rows}, of)
    arguments = {
        "solution": np.full((cells.n_users, padded(q[:1], real).shape[1]), 9, real),
        "fixed": padded(q, real),
        "offsets": offsets,
        "others": others,
        "ratings": ratings,
        "reg": reg,
        "weighted": weighted,
        "n_rows": np.uint32(cells.n_users),
        "n_fixed": np.uint32(cells.n_items),
        "scratch": np.zeros(1, real),
        "base": np.zeros(1, real),
    }
    return Workload(
        arguments,
        cells.n_users,
        all_units((units,)),
        units=(units,),
        repeats="same",
        prepare=lambda config: scratch_of(problem, config, real),
        prepared_by=("blocks",),
    )
