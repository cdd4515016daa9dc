"""Rounds over rows on a device, for any rule whose weights are already divided by their sums."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.algorithms.programs import programs
from mmsbgen.base.errors import InputError
from mmsbgen.families.graph.rows import CHANGE, PASSES, ROUNDS
from mmsbgen.families.graph.rows_inputs import state_of_rows
from mmsbgen.graph.arcs import Arcs

__all__ = ["RowsFound", "by_vertex", "run_rounds", "totals"]

#: Only changes are sent while fewer than one arc in so many leads out of vertices that moved.
_FEW = 4
#: Smallest tolerance, over the largest number of a row, that float32 reaches: some roundings of a sum.
_SINGLE = 1e-6

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class RowsFound:
    """Rows ``[N, F]`` and what came of the rounds; see :class:`mmsbgen.algorithms.LabelShares`."""

    rows: NDArray[np.floating[Any]]
    rounds: int
    residual: float
    converged: bool
    passes: float
    device: str


def totals(arcs: Arcs) -> NDArray[np.float64]:
    """The weights of each vertex's arcs out, added up, ``[N]``; divided by the largest weight of all."""
    if arcs.weights is None:
        return arcs.degrees.astype(np.float64)
    return np.bincount(arcs.sources, relative(arcs), arcs.n_vertices).astype(np.float64)


def relative(arcs: Arcs) -> NDArray[np.float64]:
    """Weights ``[A]`` over the largest one, so that their sums are finite."""
    assert arcs.weights is not None
    most = arcs.weights.max(initial=0.0)
    return arcs.weights / most if most > 0 else arcs.weights


def by_vertex(arcs: Arcs, total: Array) -> Arcs:
    """The graph with weights whose sum over the arcs out of a vertex is 1; without weights, as it is."""
    if arcs.weights is None:
        return arcs
    each = np.divide(relative(arcs), total[arcs.sources], out=np.zeros(arcs.n_arcs), where=total[arcs.sources] > 0)
    return Arcs(arcs.offsets, arcs.targets, arcs.ids, each, arcs.directed, arcs.name)


def run_rounds(
    arcs: Arcs,
    scale: Array,
    vertices: Array,
    seeds: Array,
    *,
    rule: str,
    largest: float,
    tolerance: float,
    max_rounds: int,
    changes: bool,
    device: str | None,
    database: str | Path | None,
) -> RowsFound:
    """Rounds ``x_v = scale_v sum_u w_uv x_u + seed_v``, or by ``rule="published"``, until they end.

    Args:
        arcs: The graph.  Without weights ``scale_v`` is divided by the arcs into v: w is 1 / degree.
        scale: ``[N]``.
        vertices: The vertices with seeds, ``[S]``.
        seeds: Their rows, ``[S, F]``.
        rule: The problem parameter of that name.
        largest: A bound of the numbers in rows, by which the type is chosen.
        tolerance: Largest change at the end.
        max_rounds: Most rounds.
        changes: Whether only changes are sent while they are few.
        device: As for :func:`mmsbgen.algorithms.bfs`.
        database: As for :func:`mmsbgen.algorithms.bfs`.
    """
    if not 0 <= tolerance < np.inf:
        raise InputError(f"tolerance={tolerance}: give a number of 0 or more")
    if isinstance(max_rounds, bool) or not isinstance(max_rounds, int | np.integer) or max_rounds < 1:
        raise InputError(f"max_rounds={max_rounds}: give a whole number of 1 or more")
    found = programs(device, database)
    real = np.float32 if tolerance >= _SINGLE * largest or found.real is np.float32 else np.float64
    if arcs.weights is None and rule == "seeded":
        scale = scale / np.maximum(arcs.reversed.degrees, 1)
    state = state_of_rows(
        arcs,
        real,
        scale,
        vertices,
        seeds,
        tolerance=tolerance,
        most_rounds=int(max_rounds),
        changes=_FEW if changes else 0,
    )
    rows, settings = found.run_rows(arcs, state, seeds.shape[1], rule, real)
    rounds, change, passes = int(settings[ROUNDS]), float(settings[CHANGE]), float(settings[PASSES])
    return RowsFound(rows, rounds, change, bool(change <= real(tolerance)), passes, found.device.info.spec)
