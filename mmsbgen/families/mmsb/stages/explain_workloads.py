"""Test inputs and output checks of the kernels for community shares of links."""

from __future__ import annotations

import numpy as np

from mmsbgen.families.mmsb.numbers.row_layout import DELTA
from mmsbgen.families.mmsb.numbers.storage import storage_of
from mmsbgen.families.mmsb.reference import verify
from mmsbgen.families.mmsb.reference.pair_workloads import of_pairs
from mmsbgen.families.mmsb.reference.workloads import (
    DISTINCT_ROWS,
    real_type,
    roundoff,
    state_of,
)
from mmsbgen.kernels.family import Workload
from mmsbgen.kernels.problem import Problem

#: Requested communities per link.
_PLACES = 5


def explain_links(problem: Problem, seed: int) -> Workload:
    """Random pairs; in small states a third of the rows have two values and beta four, so that many communities tie."""
    rng = np.random.default_rng(seed)
    k, count, dtype, u = problem.integer("K"), problem.integer("pairs"), real_type(problem), roundoff(problem)
    state = state_of(problem, rng)
    storage = storage_of(problem)
    if problem.integer("N") <= DISTINCT_ROWS:
        tied = slice(1, None, 3)
        coarse = np.where(rng.random(state["pi"][tied].shape) < 0.5, 0.125, 1.0) / k
        coarse[:, k:] = 0.0
        state["pi"][tied] = storage.nearest(coarse)
        state["beta"][:k] = rng.choice([0.125, 0.25, 0.5, 0.9], k)
    given = {name: state[name] for name in ("pi", "slots", "beta")} | {
        "best": np.full(count, k, np.uint32),
        "shares": np.zeros(count, dtype),
        "delta": dtype(DELTA),
    }
    return of_pairs(
        problem, rng, given, ("best", "shares"), lambda at, units: verify.explain_links(at, units, k, u, storage)
    )


def explain_at(problem: Problem, seed: int) -> Workload:
    """Random pairs, and random communities of each, some of them twice."""
    rng = np.random.default_rng(seed)
    k, count, dtype, u = problem.integer("K"), problem.integer("pairs"), real_type(problem), roundoff(problem)
    state = state_of(problem.replace(storage="float32"), rng)
    given = {name: state[name] for name in ("pi", "slots", "beta")} | {
        "places": rng.integers(0, k, (count, _PLACES)).astype(np.uint32),
        "explained": np.full((count, _PLACES), -1, dtype),
        "n_places": np.uint32(_PLACES),
        "delta": dtype(DELTA),
    }
    return of_pairs(problem, rng, given, ("explained",), lambda at, units: verify.explain_at(at, units, k, u))
