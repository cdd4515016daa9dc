"""Test inputs and output checks of the kernels for community shares of links."""

from __future__ import annotations

import numpy as np

from mmsbgen.families.mmsb.numbers.row_layout import DELTA
from mmsbgen.families.mmsb.numbers.storage import storage_of
from mmsbgen.families.mmsb.reference import verify
from mmsbgen.families.mmsb.reference.pair_workloads import pairs_of
from mmsbgen.families.mmsb.reference.workloads import (
    DISTINCT_ROWS,
    ROTATIONS,
    real_type,
    roundoff,
    state_of,
)
from mmsbgen.kernels.family import Units, Workload, all_units, at_turn
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
    arguments = {name: state[name] for name in ("pi", "slots", "beta")} | pairs_of(problem, rng, count)
    arguments |= {
        "best": np.full(count, k, np.uint32),
        "shares": np.zeros(count, dtype),
        "n_pairs": np.uint32(count),
        "delta": dtype(DELTA),
    }

    rotations = [pairs_of(problem, rng, count) for _ in range(ROTATIONS - 1)]
    units = Units(
        count,
        lambda units: {"best": units, "shares": units},
        lambda units, turn: verify.explain_links(at_turn(arguments, rotations, turn), units, k, u, storage),
    )
    return Workload(arguments, count, all_units([units]), rotations, (units,))


def explain_at(problem: Problem, seed: int) -> Workload:
    """Random pairs, and random communities of each, some of them twice."""
    rng = np.random.default_rng(seed)
    k, count, dtype, u = problem.integer("K"), problem.integer("pairs"), real_type(problem), roundoff(problem)
    state = state_of(problem.replace(storage="float32"), rng)
    arguments = {name: state[name] for name in ("pi", "slots", "beta")} | pairs_of(problem, rng, count)
    arguments |= {
        "places": rng.integers(0, k, (count, _PLACES)).astype(np.uint32),
        "explained": np.full((count, _PLACES), -1, dtype),
        "n_pairs": np.uint32(count),
        "n_places": np.uint32(_PLACES),
        "delta": dtype(DELTA),
    }

    rotations = [pairs_of(problem, rng, count) for _ in range(ROTATIONS - 1)]
    units = Units(
        count,
        lambda units: {"explained": units},
        lambda units, turn: verify.explain_at(at_turn(arguments, rotations, turn), units, k, u),
    )
    return Workload(arguments, count, all_units([units]), rotations, (units,))
