"""Rounds over rows on a device, for any rule whose weights are already divided by their sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.algorithms.programs import programs
from mmsbgen.base.errors import InputError
from mmsbgen.base.host_memory import need_host_memory
from mmsbgen.base.id_text import plural
from mmsbgen.families.graph.row_inputs import rows_of_weights, state_of_rows, state_of_solver
from mmsbgen.families.graph.row_kernels import CHANGE, MOST_ROUNDS, PASSES, ROUNDS, START, TOLERANCE, row_length
from mmsbgen.graph.arcs import Arcs

#: Only changes are sent while fewer than one arc in so many leads out of vertices that moved.
_FEW = 4
#: Smallest tolerance, over the largest number of a row, that float32 reaches: some roundings of a sum.
_SINGLE = 1e-6
#: Most that may be missing of a row: this, or so many tolerances, which are at least the last number.
_MISSING = 0.1, 100.0, 1e-9

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class RowsFound:
    """Rows ``[N, F]`` and what came of the rounds; see :class:`mmsbgen.algorithms.LabelShares`."""

    rows: NDArray[np.floating[Any]]
    rounds: int
    residual: float
    missing: float
    converged: bool
    passes: float
    device: str


def totals(arcs: Arcs) -> NDArray[np.float64]:
    """The weights of each vertex's arcs out, added up, ``[N]``; divided by the largest weight of all."""
    if arcs.weights is None:
        return arcs.degrees.astype(np.float64)
    return np.bincount(arcs.sources, _relative(arcs), arcs.n_vertices).astype(np.float64)


def _relative(arcs: Arcs) -> NDArray[np.float64]:
    """Weights ``[A]`` over the largest one, so that their sums are finite."""
    assert arcs.weights is not None
    most = arcs.weights.max(initial=0.0)
    return arcs.weights / most if most > 0 else arcs.weights


def divided(arcs: Arcs, total: Array) -> Arcs:
    """The graph with weights whose sum over the arcs out of a vertex is 1; undirected without weights, as it is."""
    if arcs.weights is None and not arcs.directed:
        return arcs
    each, out = np.ones(arcs.n_arcs) if arcs.weights is None else _relative(arcs), total[arcs.sources]
    each = np.divide(each, out, out=np.zeros(arcs.n_arcs), where=out > 0)
    return Arcs(arcs.offsets, arcs.targets, arcs.ids, each, arcs.directed, arcs.name)


def check_tolerance(tolerance: float) -> None:
    """Raise :class:`InputError` unless it is a number of 0 or more."""
    if not 0 <= tolerance < np.inf:
        raise InputError(f"tolerance={tolerance}: give a number of 0 or more")


def check_number(name: str, value: Any) -> None:
    """Raise :class:`InputError` unless it is a whole number of 1 or more."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"{name}={value}: give a whole number of 1 or more")


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
    missing: Callable[[Array], float] | None = None,
    layers: Array | None = None,
    weight_of: Array | None = None,
) -> RowsFound:
    """Rounds ``x_v = scale_v sum_u w_uv x_u + seed_v``, or by another rule, until they end.

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
        missing: The largest part of a row ``[N, F]`` that has not come yet.  Rounds go on, to smaller changes, while it
            is above a hundred tolerances or a tenth.
        layers: Of ``rule="layered"``, the weights of arcs in, ``[A, F]``.
        weight_of: The weight of all arcs of each vertex ``[N]``, for steps of conjugate gradients instead of rounds.
    """
    check_tolerance(tolerance)
    check_number("max_rounds", max_rounds)
    found = programs(device, database)
    # A sum of that many numbers is wrong by a rounding of half an eps for each.
    single = largest * max(_SINGLE, np.finfo(np.float32).eps / 2 * arcs.reversed.degrees.max(initial=0))
    real = np.float32 if tolerance >= single or found.real is np.float32 else np.float64
    features = seeds.shape[1]
    bound = min(_MISSING[0], max(_MISSING[1] * tolerance, _MISSING[2]))

    def ended_rounds(real: Any, again: bool) -> RowsFound:
        rows_held = arcs.n_vertices + vertices.size + (0 if layers is None else arcs.n_arcs)
        size = (2 if weight_of is None else 4) * np.dtype(real).itemsize * rows_held * row_length(features)
        what = f"rows of {features} numbers for {plural(arcs.n_vertices, 'vertex', 'vertices')}"
        need_host_memory(size, what, "give fewer at once")
        by_degree = arcs.weights is None and rule == "seeded"
        state = state_of_rows(
            arcs,
            real,
            scale / np.maximum(arcs.reversed.degrees, 1) if by_degree else scale,
            vertices,
            seeds,
            tolerance=tolerance,
            # The last round is kept for a check of all vertices.
            most_rounds=int(max_rounds) - 1 if changes and max_rounds > 1 else int(max_rounds),
            changes=_FEW if changes and max_rounds > 1 else 0,
        )
        if layers is not None:
            state["in_weights"] = rows_of_weights(layers, real)
        if weight_of is not None:
            state = state_of_solver(state, weight_of, real, features)

        def goes_on(settings: Array, rows: Callable[[], Array]) -> bool:
            rounds, change = settings[ROUNDS], settings[CHANGE]
            if change <= real(settings[TOLERANCE]):
                short = missing(rows()) if missing and change > 0 else 0.0
                if short <= bound:
                    return False
                settings[TOLERANCE] *= max(0.1, bound / short / 2)
            if rounds >= max_rounds or (again and settings[TOLERANCE] < single):
                return False
            settings[START] = rounds
            settings[MOST_ROUNDS] = max(max_rounds - 1, rounds + 1) if changes else max_rounds
            return True

        name = "propagate" if weight_of is None else "solve"
        rows, settings = found.run_rows(arcs, state, features, rule, real, goes_on, name)
        rounds, change, passes = int(settings[ROUNDS]), float(settings[CHANGE]), float(settings[PASSES])
        short = missing(rows) if missing else 0.0
        ended = bool(change <= real(tolerance) and short <= bound)
        return RowsFound(rows, rounds, change, short, ended, passes, found.device.info.spec)

    # Gradients need more digits than rounds where links are weak, or few lead out of a dense part.
    again = weight_of is not None and real is not found.real
    first = ended_rounds(real, again)
    return ended_rounds(found.real, False) if again and not first.converged else first
