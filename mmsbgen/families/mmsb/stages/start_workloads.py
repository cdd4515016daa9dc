"""Test inputs and output check of place_rows, which writes initial rows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mmsbgen.families.mmsb.numbers.row_layout import PLACED, row_length
from mmsbgen.families.mmsb.reference.workloads import real_type
from mmsbgen.families.mmsb.stages.graph_workloads import units_apart
from mmsbgen.kernels.family import Array, Judge, Workload, all_units
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
