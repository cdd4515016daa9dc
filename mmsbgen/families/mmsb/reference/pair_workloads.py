"""Test inputs of the kernels over pairs of vertices, and of theta's step; ``verify`` checks the outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mmsbgen.families.mmsb.numbers.row_layout import DELTA, row_length, theta_groups
from mmsbgen.families.mmsb.numbers.storage import storage_of
from mmsbgen.families.mmsb.reference import equations, verify
from mmsbgen.families.mmsb.reference.workloads import (
    DISTINCT_ROWS,
    ITERATION,
    RANDOM,
    ROTATIONS,
    SEED,
    roundoff,
    small,
    state_of,
)
from mmsbgen.kernels.family import Array, Judge, Repeats, Units, Workload, all_units, at_turn
from mmsbgen.kernels.kit.reals import real_type
from mmsbgen.kernels.problem import Problem

#: Requested communities per link.
_PLACES = 5
#: Ends from which that of a pair is chosen.
_TRIED = 16
Given = Mapping[str, Any]


def pairs_of(problem: Problem, rng: np.random.Generator, count: int) -> dict[str, Array]:
    """``count`` random pairs of different vertices."""
    a = rng.integers(0, problem.integer("N"), count)
    b = (a + rng.integers(1, max(2, problem.integer("N")), count)) % problem.integer("N")
    return {"pairs_a": a.astype(np.uint32), "pairs_b": b.astype(np.uint32)}


def of_pairs(
    problem: Problem,
    rng: np.random.Generator,
    given: Given,
    written: Sequence[str],
    reference: Callable[[Given, Array], Judge],
    repeats: Repeats | None = None,
) -> Workload:
    """A workload over random pairs: ``reference`` judges what is ``written`` for some of them, by the arguments."""
    count = problem.integer("pairs")
    arguments = {**given, **pairs_of(problem, rng, count), "n_pairs": np.uint32(count)}
    rotations = [pairs_of(problem, rng, count) for _ in range(ROTATIONS - 1)]
    units = Units(
        count,
        lambda units: dict.fromkeys(written, units),
        lambda units, turn: reference(at_turn(arguments, rotations, turn), units),
    )
    return Workload(arguments, count, all_units([units]), rotations, (units,), repeats=repeats)


def _overlapping_pairs(problem: Problem, state: Given, rng: np.random.Generator, count: int) -> dict[str, Array]:
    """``count`` random pairs; two in three, the last among them, have rows that overlap most of a few.

    The counts of rows that hardly overlap are below the tolerance of their group's.
    """

    def rows(vertices: Array) -> Array:
        return storage_of(problem).values(state["pi"][state["slots"][vertices]])

    pairs = pairs_of(problem, rng, count)
    own, most = rows(pairs["pairs_a"]), np.full(count, -1.0)
    for _ in range(_TRIED):
        ends = pairs_of(problem, rng, count)["pairs_b"]
        overlap = np.einsum("ij,ij->i", own, rows(ends), dtype=np.float64)
        better = (overlap > most) & (ends != pairs["pairs_a"]) & ((count - np.arange(count)) % 3 != 0)
        pairs["pairs_b"][better], most[better] = ends[better], overlap[better]
    return pairs


def small_with_groups(problem: Problem) -> Problem:
    """As :func:`small`, with pairs for 47 groups of unequal sizes, more than the largest ``share`` of a team."""
    return small(problem).replace(m=min(problem.integer("m"), 190))


def theta_partial(problem: Problem, seed: int) -> Workload:
    """``m`` random pairs, links and non-links, which follow three pairs of other launches."""
    rng = np.random.default_rng(seed)
    k, m, dtype, u = problem.integer("K"), problem.integer("m"), real_type(problem), roundoff(problem)
    state = state_of(problem, rng)
    groups, first = theta_groups(problem), 3
    weights = rng.uniform(0.5, 4.0, first + m) * rng.choice([1.0, -1.0], first + m)
    arguments = {name: state[name] for name in ("pi", "slots", "beta")} | _overlapping_pairs(
        problem, state, rng, first + m
    )
    arguments |= {
        "pair_weights": weights.astype(dtype),
        "counts": np.zeros((groups, 2, row_length(k)), dtype),
        "first_pair": np.uint64(first),
        "n_pairs": np.uint32(m),
        "n_groups": np.uint32(groups),
        "delta": dtype(DELTA),
    }

    rotations = [_overlapping_pairs(problem, state, rng, first + m) for _ in range(ROTATIONS - 1)]
    units = Units(
        groups,
        lambda units: {"counts": units},
        lambda units, turn: verify.theta_partial(at_turn(arguments, rotations, turn), units, k, u, storage_of(problem)),
    )
    return Workload(arguments, groups, all_units([units]), rotations, (units,))


def theta_end(problem: Problem, seed: int) -> Workload:
    """Random theta and counts; the step is small enough that columns neither diverge nor all reflect."""
    rng = np.random.default_rng(seed)
    k, dtype, u = problem.integer("K"), real_type(problem), roundoff(problem)
    length, groups = row_length(k), theta_groups(problem)
    step = equations.ThetaStep(str(problem["theta_step"]), 0.01, (1.0, 1.0), problem["noise"] == "on", SEED, ITERATION)
    arguments = {
        "counts": (rng.gamma(0.5, size=(groups, 2, length)) * 40 / groups).astype(dtype),
        "theta": rng.gamma(2.0, size=(2, length)).astype(dtype) + dtype(0.01),
        "beta": np.zeros(length, dtype),
        "n_groups": np.uint32(groups),
        "step": np.float64(step.step),
        "eta_0": np.float64(1.0),
        "eta_1": np.float64(1.0),
        **RANDOM,
    }
    return Workload(
        arguments, length, lambda got, config: verify.theta_end(arguments, got, k, step, u), repeats="continued"
    )


def update_beta(problem: Problem, seed: int) -> Workload:
    """Random theta with very different magnitudes."""
    rng = np.random.default_rng(seed)
    k, dtype, u = problem.integer("K"), real_type(problem), roundoff(problem)
    theta = np.exp(rng.normal(0.0, 6.0, (2, row_length(k)))).astype(dtype)
    arguments = {"theta": theta, "beta": np.zeros(row_length(k), dtype)}
    return Workload(arguments, row_length(k), lambda got, config: verify.update_beta(arguments, got, k, u))


def perplexity_pairs(problem: Problem, seed: int) -> Workload:
    """Random pairs with a running sum that already holds one sample."""
    rng = np.random.default_rng(seed)
    k, count, dtype, u = problem.integer("K"), problem.integer("pairs"), real_type(problem), roundoff(problem)
    state, storage = state_of(problem, rng), storage_of(problem)
    given = {name: state[name] for name in ("pi", "slots", "beta")} | {
        "probabilities": np.zeros(count),
        "published": np.zeros(count),
        "sums": rng.uniform(0.0, 1.0, count),
        "delta": dtype(DELTA),
    }
    written = ("probabilities", "published", "sums")
    return of_pairs(
        problem, rng, given, written, lambda at, units: verify.perplexity_pairs(at, units, k, u, storage), "continued"
    )


def perplexity_sum(problem: Problem, seed: int) -> Workload:
    """Probabilities over many magnitudes, links and non-links, three samples in the running sum."""
    rng = np.random.default_rng(seed)
    count, blocks = problem.integer("pairs"), 16
    p = np.exp(rng.uniform(np.log(1e-7), np.log(0.999), count))
    arguments = {
        "probabilities": p,
        "published": p * rng.choice([1.0, 0.0], count),
        "sums": p * 3.0 * rng.uniform(0.2, 1.0, count),
        "labels": rng.integers(0, 2, count).astype(np.uint32),
        "partial": np.zeros((blocks, 6)),
        "n_pairs": np.uint32(count),
        "n_samples": np.float64(3.0),
    }
    return Workload(arguments, blocks, lambda got, config: verify.perplexity_sum(arguments, got))


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
