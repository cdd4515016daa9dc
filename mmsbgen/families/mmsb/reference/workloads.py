"""Test inputs of kernels over rows and state at a problem's sizes; ``verify`` checks the outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mmsbgen.families.mmsb.numbers.row_layout import DELTA, row_length
from mmsbgen.families.mmsb.numbers.storage import Storage, storage_of
from mmsbgen.families.mmsb.reference import equations, verify
from mmsbgen.kernels.family import Array, Units, Workload, all_units, at_turn, exact, wrong_of
from mmsbgen.kernels.kit.reals import real_type
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config

#: Distinct random rows of a state. Larger states repeat them at other addresses, which saves time.
DISTINCT_ROWS = 4096
SEED, ITERATION = 0x1234_5678_9ABC_DEF0, 7
ROTATIONS = 8
#: Iterations drawn in advance by one launch.
ROUNDS = 8
#: The arguments of kernels that draw.
RANDOM: dict[str, Any] = {"seed": np.uint64(SEED), "iteration": np.uint32(ITERATION)}


def roundoff(problem: Problem) -> float:
    """Unit roundoff of the problem's reals."""
    return float(np.finfo(real_type(problem)).eps) / 2


def inputs_refusal(problem: Problem) -> str | None:
    """An error message if a mini-batch would need a vertex twice, else None."""
    n, m = problem.integer("N"), problem.integer("m")
    if m <= n:
        return None
    return f"m={m} vertices of a mini-batch cannot be drawn from N={n}: give an m of at most {n}, or a larger N"


def small(problem: Problem) -> Problem:
    """A small problem with the same code path, whose reference takes milliseconds."""
    n_vertices = min(problem.integer("N"), 61)
    return problem.replace(
        N=n_vertices,
        m=min(problem.integer("m"), 7, n_vertices),
        n=min(problem.integer("n"), 11),
        pairs=min(problem.integer("pairs"), 37),
    )


def memberships(rng: np.random.Generator, n_rows: int, k: int, storage: Storage) -> Array:
    """Stored rows ``[n_rows, LD]`` that sum to 1, padded with zeros; some of them exactly one-hot.

    Large states are about as sparse as a chain after burn-in, since the time of a step with draws depends on it.
    (CA-GrQc at K = 1024 has 8 entries above 1e-3 per row, these rows 20.)  Small states, used for checks, also have
    dense rows.
    """
    distinct = min(n_rows, DISTINCT_ROWS)
    sparse = min(0.3, 4.0 / k)
    flat = (np.arange(distinct) % 2 == 0) & (n_rows <= DISTINCT_ROWS)
    shapes = np.where(flat, 0.3, sparse)
    rows = rng.gamma(shapes[:, None], size=(distinct, k)) + 1e-12
    rows /= rows.sum(axis=1, keepdims=True)
    hot = np.arange(0, distinct, 9)
    rows[hot] = 0.0
    rows[hot, rng.integers(0, k, hot.size)] = 1.0
    padded = np.zeros((distinct, row_length(k)))
    padded[:, :k] = rows
    padded = storage.nearest(padded)
    return padded if distinct == n_rows else np.resize(padded, (n_rows, row_length(k)))


def strengths(rng: np.random.Generator, k: int, dtype: Any) -> Array:
    """beta ``[LD]``: uniform, with one community near 1 and one near 0; padding 0.5."""
    beta = np.full(row_length(k), 0.5, dtype)
    beta[:k] = rng.uniform(0.05, 0.95, k)
    beta[0] = 1 - 1e-6
    if k > 1:
        beta[1] = 1e-6
    return beta


def state_of(problem: Problem, rng: np.random.Generator) -> dict[str, Any]:
    """A random state: rows in random slots, row sums, slots of vertices, spare slots, and strengths."""
    k, n, m = problem.integer("K"), problem.integer("N"), problem.integer("m")
    dtype = real_type(problem)
    places = rng.permutation(n + m).astype(np.uint32)
    return {
        "pi": memberships(rng, n + m, k, storage_of(problem)),
        "row_sums": rng.uniform(0.5, 3.0, n + m).astype(dtype),
        "slots": places[:n].copy(),
        "spares": places[n:].copy(),
        "beta": strengths(rng, k, dtype),
    }


def _partners(problem: Problem, rng: np.random.Generator) -> dict[str, Array]:
    n, m = problem.integer("n"), problem.integer("m")
    total = m * n
    if problem.integer("N") <= DISTINCT_ROWS:
        weights = rng.uniform(0.5, 4.0, total) * rng.choice([1.0, -1.0, 0.0], total, p=[0.25, 0.7, 0.05])
    else:
        # Uniform partners in a large graph are almost always non-links. Random links would increase phi with every
        # call, and with it the time of the draws.
        weights = np.full(total, -(problem.integer("N") - 1) / n)
    return {
        "vertices": rng.choice(problem.integer("N"), m, replace=False).astype(np.uint32),
        "partners": rng.integers(0, problem.integer("N"), total).astype(np.uint32),
        "weights": weights.astype(real_type(problem)),
    }


def row_step(problem: Problem) -> tuple[equations.Step, dict[str, Any]]:
    """The step of a row update, and the arguments that say it."""
    dtype = real_type(problem)
    step = equations.Step(
        str(problem["step"]),
        half_step=float(dtype(0.01)),
        alpha=float(dtype(1.0 / problem.integer("K"))),
        noise=problem["noise"] == "on",
        seed=SEED,
        iteration=ITERATION,
        delta=float(dtype(DELTA)),
    )
    return step, RANDOM | {
        "clip_counts": np.zeros(problem.integer("m"), np.uint32),
        "half_step": dtype(step.half_step),
        "decay": dtype(np.exp(-step.half_step)),
        "spread": dtype(-np.expm1(-step.half_step)),
        "alpha": dtype(step.alpha),
        "delta": dtype(DELTA),
    }


def update_phi(problem: Problem, seed: int) -> Workload:
    """Random vertices with random partners: links, non-links and weight 0; only non-links in large states."""
    rng = np.random.default_rng(seed)
    k, m, u = problem.integer("K"), problem.integer("m"), roundoff(problem)
    state = state_of(problem, rng)
    if k == 1:
        # With the only strength near 1, Z of every non-link is near 0, and the tolerance would accept any result.
        state["beta"][0] = 0.6
    step, scalars = row_step(problem)
    arguments = state | _partners(problem, rng) | scalars
    arguments |= {
        "n_vertices": np.uint32(m),
        "first_vertex": np.uint32(0),
        "n_partners": np.uint32(problem.integer("n")),
    }
    rotations = [_partners(problem, rng) for _ in range(ROTATIONS - 1)]
    units = Units(
        m,
        lambda units: new_rows(arguments, units) | {"clip_counts": units},
        lambda units, turn: verify.update_phi(
            at_turn(arguments, rotations, turn), units, turn, k, step, u, storage_of(problem)
        ),
    )

    rows = all_units([units])

    def judge(got: Mapping[str, Array], config: Config) -> str | None:
        return verify.others_unchanged(arguments, got, arguments["spares"]) or rows(got, config)

    return Workload(arguments, m, judge, rotations, (units,), repeats="same")


def new_rows(arguments: Mapping[str, Any], units: Array) -> dict[str, Array]:
    """Where a mini-batch writes the new rows of ``units``, and their sums: its spare slots."""
    spares = arguments["spares"][units]
    return {"pi": spares, "row_sums": spares}


def exchange_slots(problem: Problem, seed: int) -> Workload:
    """A mini-batch that does not begin at the start of its buffer."""
    rng = np.random.default_rng(seed)
    n, m = problem.integer("N"), problem.integer("m")
    places = rng.permutation(n + m).astype(np.uint32)
    vertices = rng.choice(n, m, replace=False).astype(np.uint32)
    arguments: dict[str, Any] = {
        "slots": places[:n].copy(),
        "spares": places[n:].copy(),
        "vertices": np.concatenate([np.zeros(3, np.uint32), vertices]),
        "n_vertices": np.uint32(m),
        "first_vertex": np.uint32(3),
    }
    slots, spares = arguments["slots"].copy(), arguments["slots"][vertices]
    slots[vertices] = arguments["spares"]
    right = {"slots": exact(slots), "spares": exact(spares)}
    return Workload(arguments, m, lambda got, config: wrong_of(got, right), repeats="continued")


def update_pi(problem: Problem, seed: int) -> Workload:
    """Unnormalised rows in the spare slots."""
    rng = np.random.default_rng(seed)
    m, u, k = problem.integer("m"), roundoff(problem), problem.integer("K")
    state = state_of(problem, rng)
    state["pi"][state["spares"]] *= rng.uniform(0.2, 40.0, (m, 1)).astype(real_type(problem))
    arguments = state | {
        "vertices": rng.choice(problem.integer("N"), m, replace=False).astype(np.uint32),
        "n_vertices": np.uint32(m),
        "first_vertex": np.uint32(0),
    }
    if problem.integer("N") <= DISTINCT_ROWS:
        arguments = {name: value.copy() for name, value in arguments.items()}

    units = Units(
        m,
        lambda units: new_rows(arguments, units) | {"slots": arguments["vertices"][units], "spares": units},
        lambda units, turn: verify.update_pi(arguments, units, k, u),
    )
    return Workload(arguments, m, all_units([units]), units=(units,), repeats="continued")


def init_pi(problem: Problem, seed: int) -> Workload:
    """Output buffers and a seed."""
    n, k, dtype, u = problem.integer("N"), problem.integer("K"), real_type(problem), roundoff(problem)
    arguments = {
        "pi": np.ones((n, row_length(k)), storage_of(problem).dtype),
        "row_sums": np.zeros(n, dtype),
        "slots": np.zeros(n, np.uint32),
        "n_vertices": np.uint64(n),
        "row_sum": dtype(0.0),
        "seed": np.uint64(SEED),
    }

    units = Units(
        n,
        lambda units: {"pi": units, "row_sums": units, "slots": units},
        lambda units, turn: verify.init_pi(units, k, SEED, u, storage_of(problem)),
    )
    return Workload(arguments, n, all_units([units]), units=(units,))


def gather_rows(problem: Problem, seed: int) -> Workload:
    """A range of vertices from the middle of the state."""
    rng = np.random.default_rng(seed)
    n, length, dtype = problem.integer("N"), row_length(problem.integer("K")), real_type(problem)
    state = state_of(problem, rng)
    first = n // 3
    count = min(n - first, max(1, problem.integer("m")))
    arguments = {name: state[name] for name in ("pi", "row_sums", "slots")} | {
        "rows": np.ones((count, length), dtype),
        "sums": np.zeros(count, dtype),
        "first": np.uint32(first),
        "n_rows": np.uint32(count),
    }

    units = Units(
        count,
        lambda units: {"rows": units, "sums": units},
        lambda units, turn: verify.gather_rows(arguments, units, storage_of(problem)),
    )
    return Workload(arguments, count * length, all_units([units]), units=(units,), repeats="continued")


def draws(problem: Problem, seed: int) -> Workload:
    """Poisson rates and Gamma shapes over the whole range of the split step."""
    rng = np.random.default_rng(seed)
    count, dtype, u = problem.integer("pairs"), real_type(problem), roundoff(problem)
    rates = np.exp(rng.uniform(np.log(1e-4), np.log(1e5), count)).astype(dtype)
    shapes = np.exp(rng.uniform(np.log(1 / 4096), np.log(1e5), count)).astype(dtype)
    arguments = {
        "rates": rates,
        "shapes": shapes,
        "words": np.zeros((count, 4), np.uint32),
        "normals": np.zeros(count, dtype),
        "poissons": np.zeros(count, dtype),
        "gammas": np.zeros(count, dtype),
        "n_draws": np.uint32(count),
        "vertex": np.uint32(12345),
        **RANDOM,
    }
    return Workload(arguments, count, lambda got, config: verify.draws(arguments, got, SEED, u))
