"""Test inputs and output checks of kernels that take a sample into mean and variance of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mmsbgen.families.mmsb.numbers.storage import storage_of
from mmsbgen.families.mmsb.reference.workloads import real_type, roundoff, state_of
from mmsbgen.kernels.family import Array, Expected, Workload
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config

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
