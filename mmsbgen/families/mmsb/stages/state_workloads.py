"""Test inputs and output checks of kernels that write initial rows, or take rows into mean and variance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mmsbgen.families.mmsb.numbers.row_layout import PLACED, row_length
from mmsbgen.families.mmsb.numbers.storage import storage_of
from mmsbgen.families.mmsb.reference.workloads import real_type, roundoff, state_of
from mmsbgen.families.mmsb.stages.graph_workloads import units_apart
from mmsbgen.kernels.family import Array, Expected, Judge, Workload, all_units
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config

#: Largest number of sets of a vertex.
_MOST = 3


def place_rows(problem: Problem, seed: int) -> Workload:
    """Vertices in zero to three sets; the first and the last community are used."""
    rng = np.random.default_rng(seed)
    n, k, dtype = problem.integer("N"), problem.integer("K"), real_type(problem)
    counts = rng.integers(0, min(_MOST, k) + 1, n)
    counts[0] = min(2, k)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32)
    # Consecutive communities modulo K are distinct.
    first = rng.integers(0, k, n)
    first[0] = k - 1
    places = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
    arguments = {
        "pi": np.full((n, row_length(k)), 0.5, dtype),
        "set_offsets": offsets,
        "set_communities": ((np.repeat(first, counts) + places) % k).astype(np.uint32),
        "set_shares": rng.uniform(0.3, 0.9, n).astype(dtype),
        "rest": dtype(0.1 / k),
        "n_vertices": np.uint64(n),
    }

    def reference(vertices: Array, turn: int) -> Judge:
        rows = np.full((vertices.size, row_length(k)), 0.5, dtype)
        for row, vertex in zip(rows, vertices.tolist(), strict=True):
            sets = arguments["set_communities"][offsets[vertex] : offsets[vertex + 1]]
            if sets.size:
                row[:k], row[k:] = arguments["rest"], 0.0
                row[sets] = arguments["set_shares"][vertex]

        def judge(got: Mapping[str, Array], config: Config) -> str | None:
            wrong = vertices[np.any(got["pi"] != rows, axis=1)]
            return f"row {wrong[0]} of {counts[wrong[0]]} sets is not what it should be" if wrong.size else None

        return judge

    units = units_apart(counts > 0, lambda vertices: {"pi": vertices}, reference)
    return Workload(arguments, n * row_length(k) // PLACED, all_units(units), units=units, repeats="same")


#: Samples that were taken before.
_BEFORE = 3


def add_moments(problem: Problem, seed: int) -> Workload:
    """A fourth sample of every row, after three that are near it."""
    rng = np.random.default_rng(seed)
    state = state_of(problem, rng)
    rows = storage_of(problem).values(state["pi"][state["slots"]]).astype(np.float64)
    return of_rows(problem, rows, {name: state[name] for name in ("pi", "slots")}, rng)


def of_rows(problem: Problem, rows: Array, given: Mapping[str, Any], rng: np.random.Generator) -> Workload:
    """A fourth sample of ``rows`` ``[N, LD]``, that the arguments ``given`` hold, after three that are near it."""
    dtype, u = real_type(problem), roundoff(problem)
    before = rows * rng.uniform(0.5, 1.5, (_BEFORE, *rows.shape))
    arguments = dict(given) | {
        "sums": before.sum(axis=0).astype(dtype),
        "squares": (before.var(axis=0) * _BEFORE).astype(dtype),
        "over": dtype(1 / _BEFORE),
        "weight": dtype(_BEFORE / (_BEFORE + 1)),
        "n_rows": np.uint32(len(rows)),
    }

    def judge(got: Mapping[str, Array], config: Config) -> str | None:
        every = np.concatenate([before, rows[None]])
        squares = every.var(axis=0) * len(every)
        # The deviation is a difference of numbers of the row's size.
        error = 16 * u * (squares + np.abs(rows - before.mean(axis=0)) * rows) + 32 * (u * rows) ** 2
        return Expected(every.sum(axis=0), 8 * u * every.sum(axis=0)).errors(got["sums"]) or Expected(
            squares, error
        ).errors(got["squares"])

    return Workload(arguments, rows.size, judge, repeats="continued")
