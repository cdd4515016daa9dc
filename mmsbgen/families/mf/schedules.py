"""The schedules of stochastic gradient descent: what each promises, and who does which rating when."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from mmsbgen.families.mf import layout
from mmsbgen.families.mf.layout import Array, Cells, CellSteps
from mmsbgen.kernels.space import Config

#: Items of a block of the schedules by blocks of items.
BLOCK = 1024
#: Users and items of a block of ``block-diagonals``.
SIDE = 16
#: Ratings of a cell that take a GPU about as long as a barrier: 0.4 and 2 us on an H200.
BARRIER = 4
#: Of the schedules that repeat, those that were fastest on some ratings.
REPEATING = ("tiles", "block-diagonals")
#: Steps of a sweep by tiles, at most.
_FEW = 1024
#: Lists of ratings that ``locks`` may have, one a team.
STRETCHES = (0, 64, 256, 1024, 4096, 16384, 65536)
#: Types of stored factors.
STORAGES = ("float32", "bfloat16")
PROMISES = {
    "repeats": "the same bits every time, those of a stated order",
    "serial": "as ratings one after another in some order, another one each time",
    "adds": "no change is lost, but rows that are read may be old",
    "loses": "changes may be lost",
}


@dataclass(frozen=True)
class Part:
    """Ratings that a kernel does in one call.

    Attributes:
        kernel: Its name.
        order: Their places, int64 ``[e]``.
        count: Its work units: ratings, steps of ``sgd_steps`` and ``sgd_blocks``, or items where teams have items.
        arrays: What the kernel takes besides factors, ratings and step, by name.
    """

    kernel: str
    order: Array
    count: int
    arrays: Mapping[str, Any]

    @property
    def waits(self) -> int:
        """How long a device waits that has a team for each cell of a step, in ratings; 0 without steps."""
        if "steps" not in self.arrays:
            return 0
        firsts, steps = (self.arrays[name].astype(np.int64) for name in ("cells", "steps"))
        longest = np.maximum.reduceat(np.diff(firsts), steps[:-1])
        return int(longest.sum()) + BARRIER * int(steps.size - 1)


@dataclass(frozen=True)
class SweepSchedule:
    """Who does which rating when.

    Attributes:
        doc: One line.
        promise: What it guarantees, of :data:`PROMISES`.
        kernels: The kernels of a sweep.
        parts: Returns the calls of a sweep in order.  It takes the ratings and :func:`groups_of` the kernels.
    """

    doc: str
    promise: str
    kernels: tuple[str, ...]
    parts: Callable[[Cells, int], list[Part]]

    def placed(self, cells: Cells, groups: int = 1) -> list[Part]:
        """The calls of a sweep that have a rating to do."""
        return [part for part in self.parts(cells, groups) if part.order.size]


def groups_of(config: Config) -> int:
    """The tiles or stretches of a kernel's configuration, by which ratings are placed; 0 if it has none."""
    return int(config.get("tiles", config.get("stretches", 0)))


def _stepped(steps_of: Callable[[Cells], CellSteps], cells: Cells, _: int) -> list[Part]:
    return [_by_steps(steps_of(cells))]


def _by_steps(found: CellSteps) -> Part:
    arrays = {"cells": found.cells, "steps": found.steps, "arrived": np.zeros(1, np.uint32)}
    return Part("sgd_steps", found.order, found.steps.size - 1, arrays)


def _by_item_blocks(cells: Cells, block: int, *, apart: bool) -> Part:
    found = layout.matchings_of_blocks(cells, block, apart=apart)
    of_block = layout.item_blocks(cells, block, by_degree=apart)[found.order]
    kept: dict[str, Any] = dict(layout.kept_rows(found, cells.items[found.order], of_block))
    part = _by_steps(found)
    kept["n_blocks"] = np.uint32(kept["first_heads"].size - 1)
    return Part("sgd_blocks", part.order, part.count, dict(part.arrays) | kept)


def _tiled(cells: Cells, n_tiles: int) -> list[Part]:
    part = _by_steps(layout.tiles(cells, n_tiles))
    return [replace(part, kernel="sgd_tiles", count=part.order.size)]


def _unordered(kernel: str, cells: Cells, _: int) -> list[Part]:
    count = cells.users.size
    return [Part(kernel, np.arange(count), count, {"n_ratings": np.uint32(count)})]


def _lists(cells: Cells, count: int, *, items: bool) -> dict[str, Array]:
    """Lists of ratings, which kernels fill, and locks."""
    found: dict[str, Array] = {name: np.zeros(count, np.uint32) for name in ("waiting", "tickets")}
    found |= {"counts": np.zeros(2, np.uint32), "user_locks": np.zeros(cells.n_users, np.uint32)}
    return found | ({"item_locks": np.zeros(cells.n_items, np.uint32)} if items else {})


def _locked(cells: Cells, stretches: int) -> list[Part]:
    order = layout.by_stretches(cells, stretches) if stretches else np.arange(cells.users.size)
    return [Part("sgd_locks", order, order.size, _lists(cells, order.size, items=True))]


def _by_item(kernel: str, cells: Cells, _: int) -> list[Part]:
    order, offsets = layout.by_row(cells.items, cells.n_items)
    arrays = _lists(cells, order.size, items=kernel == "sgd_hybrid") | {"offsets": offsets}
    arrays["left"] = np.zeros(cells.n_items, np.uint32)
    if kernel == "sgd_hybrid":
        arrays["deferred"] = np.zeros(order.size, np.uint32)
    return [Part(kernel, order, cells.n_items, arrays)]


def _degree_hybrid(cells: Cells, stretches: int, *, block: int = BLOCK, heavy: int = BLOCK) -> list[Part]:
    degrees = np.bincount(cells.items, minlength=cells.n_items)
    is_heavy = np.zeros(cells.n_items, bool)
    is_heavy[np.argsort(-degrees, kind="stable")[:heavy]] = True
    first, last = (np.flatnonzero(is_heavy[cells.items] == which) for which in (True, False))
    light = _by_item_blocks(cells.at(last), block, apart=True)
    (locked,) = _locked(cells.at(first), stretches)
    return [
        replace(locked, order=first[locked.order]),
        Part(light.kernel, last[light.order], light.count, light.arrays),
    ]


def _steps(doc: str, steps_of: Callable[[Cells], CellSteps]) -> SweepSchedule:
    return SweepSchedule(doc, "repeats", ("sgd_steps",), partial(_stepped, steps_of))


def _of_blocks(doc: str, *, apart: bool) -> SweepSchedule:
    def parts(cells: Cells, _: int) -> list[Part]:
        return [_by_item_blocks(cells, BLOCK, apart=apart)]

    return SweepSchedule(doc, "repeats", ("sgd_blocks",), parts)


SCHEDULES = {
    "tiles": SweepSchedule("tiles without a common user or item run together", "repeats", ("sgd_tiles",), _tiled),
    "adds": SweepSchedule(
        "nothing waits; changes are added by atomics", "adds", ("sgd_adds",), partial(_unordered, "sgd_adds")
    ),
    "hogwild": SweepSchedule(
        "nothing waits; rows are overwritten", "loses", ("sgd_hogwild",), partial(_unordered, "sgd_hogwild")
    ),
    "locks": SweepSchedule("each rating locks the rows of its user and item", "serial", ("sgd_locks",), _locked),
    "nodes": SweepSchedule(
        "one team per item; each rating locks its user's row", "serial", ("sgd_nodes",), partial(_by_item, "sgd_nodes")
    ),
    "hybrid": SweepSchedule(
        "like nodes, but ratings of busy rows are left for locks",
        "serial",
        ("sgd_hybrid",),
        partial(_by_item, "sgd_hybrid"),
    ),
    "degree-hybrid": SweepSchedule(
        "items with most ratings by locks, others by subgraph", "serial", ("sgd_locks", "sgd_blocks"), _degree_hybrid
    ),
    "matchings": _steps("sets of ratings without a common user or item", layout.matchings),
    "matching-nodes": _of_blocks("blocks of items, in each the matchings of all ratings", apart=False),
    "subgraph": _of_blocks("blocks of items by their degrees, in each matchings of its own", apart=True),
    "diagonals": _steps("ratings with the same difference of user and item", layout.diagonals),
    "block-diagonals": _steps(
        f"the same for blocks of {SIDE} users and {SIDE} items", partial(layout.diagonals, side=SIDE)
    ),
}


def automatic(kind: str, cells: Cells, *, deterministic: bool) -> tuple[str, ...]:
    """The schedules of which ``auto`` takes that with the least :attr:`Part.waits`, on a device of a kind.

    Placing takes longer than many sweeps, so that block-diagonals are tried only where they have few steps.
    """
    if kind != "gpu":
        return ("tiles",)
    if not deterministic:
        return ("adds",)
    return REPEATING if layout.diagonal_count(cells, SIDE) <= _FEW else REPEATING[:1]
