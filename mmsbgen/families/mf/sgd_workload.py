"""One sweep of stochastic gradient descent: its inputs by schedule, and whether its outputs keep what that promises."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from mmsbgen.families.mf import reference
from mmsbgen.families.mf.layout import Cells, padded, widened
from mmsbgen.families.mf.reference import Factors, Steps
from mmsbgen.families.mf.schedules import SCHEDULES, Part, groups_of
from mmsbgen.families.mf.workloads import dtype_of, features, start_of, stored
from mmsbgen.kernels.family import Array, Expected, Workload
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config

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
    real, bias = dtype_of(problem), problem.get("bias") == "on"
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
