"""Test inputs and output checks of the kernels over sparse rows."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mmsbgen.families.mmsb.numbers import sparse_rows as rows_format
from mmsbgen.families.mmsb.numbers.row_layout import DELTA, row_length
from mmsbgen.families.mmsb.reference import sparse_draws as noisy
from mmsbgen.families.mmsb.reference import sparse_equations as sparse
from mmsbgen.families.mmsb.reference.workloads import DISTINCT_ROWS, roundoff, strengths
from mmsbgen.families.mmsb.sparse import sparse_draw_checks
from mmsbgen.families.mmsb.sparse.sparse_sizes import (
    DEGREE,
    FIXED_POINT,
    LEAST,
    degree_of,
    entries_of,
    floor_of,
    least_of,
    table_groups,
)
from mmsbgen.families.mmsb.stages import stage_workloads
from mmsbgen.kernels.family import Array, Dataset, Expected, Judge, KernelSpec, Units, Workload
from mmsbgen.kernels.kit.reals import real_type
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config

#: Links of the hub of small graphs.
_HUB = 350
#: Ends of links above which a generated graph has fewer.
_MOST_ENDS = 1 << 28
#: Cube root of the least rank of an end, as a part of N: its vertex has some 800 links.
_LEAST_RANK = 0.02
#: What new rows hold before a launch.
_UNWRITTEN = 7
Given = Mapping[str, Any]
Got = Mapping[str, Array]


def small(problem: Problem) -> Problem:
    """A small problem with the same code path; its hub has more candidates than a hash table."""
    n = min(problem.integer("N"), 203)
    return problem.replace(N=n, m=n, pairs=min(problem.integer("pairs"), 37))


def rows_of(problem: Problem, rng: np.random.Generator) -> tuple[dict[str, Any], Array]:
    """Sparse rows, the floor and strengths, and the home community ``[N]`` of every vertex.

    Vertices with the same home keep communities of one small set, so that neighbours share candidates.
    """
    n, k, r = problem.integer("N"), problem.integer("K"), entries_of(problem)
    dtype = real_type(problem)
    floor = floor_of(k, dtype)
    most = min(r, k)
    home = rng.integers(0, k, n)
    stride = 1 + (home * 7919) % max(1, k // most)
    stride = np.where(stride * most > k, 1, stride)
    communities = (home[:, None] + stride[:, None] * np.arange(most)) % k
    count = np.minimum(rng.choice([1, max(1, r // 2), r], n, p=[0.02, 0.08, 0.9]), most)
    weights = np.where(np.arange(most) < count[:, None], rng.gamma(0.4, size=(n, most)) + 1e-3, 0.0)
    order = np.argsort(-weights, axis=1, kind="stable")
    weights, communities = np.take_along_axis(weights, order, axis=1), np.take_along_axis(communities, order, axis=1)
    values = weights / weights.sum(axis=1, keepdims=True) * (1 - (k - count[:, None]) * floor)
    there = np.arange(most) < count[:, None]
    padded = np.full((n, r), rows_format.NONE, np.uint32)
    padded[:, :most] = np.where(there, communities, rows_format.NONE)
    stored = np.zeros((n, r), dtype)
    stored[:, :most] = np.where(there, np.maximum(values, floor), 0.0)
    return {
        "communities": padded,
        "values": stored,
        "beta": strengths(rng, k, dtype),
        "floor_pi": dtype(floor),
        "delta": dtype(DELTA),
    }, home


def graph_of(n: int, home: Array, rng: np.random.Generator, degree: int = DEGREE) -> dict[str, Array]:
    """A graph with a hub and isolated vertices, or for large N one in which two of three links join equal homes.

    It has ``degree`` links a vertex, fewer if they take too much memory.  Of the other links one end is uniform, the
    other follows a power law.  With 6 links, a vertex has about as many candidates as in com-DBLP and CA-CondMat: 27 to
    34 in the median, 73 to 92 at the 90th percentile, 190 at the 99th.  Hubs have more than a hash table, and many of
    them are updated at a time.
    """
    if n <= DISTINCT_ROWS:
        _, _, offsets, ends = stage_workloads.random_graph(rng, n, min(n // 2, _HUB))
    else:
        by_home = np.argsort(home, kind="stable")
        degree = min(degree, max(DEGREE, _MOST_ENDS // n))
        steps = degree // 3
        near = [np.stack([by_home, np.roll(by_home, -step)], axis=1) for step in range(1, steps + 1)]
        others = n * (degree - 2 * steps) // 2
        ends = rng.permutation(n)[(n * rng.uniform(_LEAST_RANK, 1.0, others) ** 3).astype(np.int64)]
        links = np.concatenate([*near, np.stack([rng.integers(0, n, others), ends], axis=1)])
        links = np.sort(links[links[:, 0] != links[:, 1]], axis=1)
        offsets, ends = stage_workloads.adjacency(n, stage_workloads.distinct(n, links))
    return {"neighbour_offsets": offsets, "neighbours": ends if ends.size else np.zeros(1, np.uint32)}


def _step(problem: Problem, least: float) -> sparse.SparseStep:
    dtype, k = real_type(problem), problem.integer("K")
    return sparse.SparseStep(
        half_step=float(dtype(0.05)),
        alpha=float(dtype(1.0 / k)),
        delta=float(dtype(DELTA)),
        floor=floor_of(k, dtype),
        non_link_weight=float(dtype(0.9)),
        least=float(dtype(least)),
    )


def read_state(file: Path, kernel_named: Callable[[str], KernelSpec]) -> Dataset:
    """The state of a chain of a user's graph, on which the kernel of its sweeps is measured.

    The file is in NumPy's format ``.npz``, with the arrays ``neighbour_offsets``, ``neighbours``, ``communities``,
    ``values``, ``row_sums`` and ``beta`` of the kernel's arguments.
    """
    with np.load(file) as found:
        state = {name: found[name] for name in found.files}

    def workload(kernel: str, problem: Problem, seed: int) -> Workload:
        if kernel == "sparse_rows":
            return sparse_rows(problem, seed, state)
        return kernel_named(kernel).workload(problem, seed)

    # The rows differ a little from one chain to the next, the graph does not.
    graph = hashlib.sha256(state["neighbour_offsets"].tobytes() + state["neighbours"].tobytes()).hexdigest()[:16]
    return Dataset({}, workload, lambda kernel: graph if kernel == "sparse_rows" else "")


def sparse_draws(problem: Problem, seed: int) -> Workload:
    """As :func:`sparse_rows`, with noise."""
    dtype = real_type(problem)
    tau = dtype(0.05)
    return sparse_rows(
        problem, seed, noise=noisy.SparseNoise(float(dtype(rows_format.THRESHOLD) * tau), 12345678901, 77)
    )


def sparse_rows(
    problem: Problem, seed: int, state: Mapping[str, Array] | None = None, noise: noisy.SparseNoise | None = None
) -> Workload:
    """All vertices, in descending order of degree; ``state`` replaces what is generated."""
    rng = np.random.default_rng(seed)
    n, k, dtype, u = problem.integer("N"), problem.integer("K"), real_type(problem), roundoff(problem)
    length, groups = row_length(k), table_groups(k, np.dtype(dtype).itemsize)
    # Generated graphs of the check before timing are small, and leave out entries as large ones do.
    checks = state is None and n <= DISTINCT_ROWS
    step = _step(problem, 0.0 if noise is not None else LEAST if checks else least_of(problem))
    given: dict[str, Any]
    if state is None:
        given, home = rows_of(problem, rng)
        given |= graph_of(n, home, rng, degree_of(problem))
        given["values"][np.abs(given["values"] - step.least) < step.least / 4] = step.least  # the least that is read
    else:
        given = {**state, "floor_pi": dtype(step.floor), "delta": dtype(DELTA)}
    degrees = np.diff(given["neighbour_offsets"].astype(np.int64))
    column_sums = np.zeros(length, dtype)
    column_sums[:k] = rows_format.totals(given["communities"], given["values"], k, step.floor)
    given |= {
        "new_communities": np.full_like(given["communities"], _UNWRITTEN),
        "new_values": np.ones_like(given["values"]),
        "row_sums": rng.uniform(0.5, 3.0, n).astype(dtype) if state is None else state["row_sums"],
        "totals": column_sums,
        "vertices": np.argsort(-degrees, kind="stable").astype(np.uint32),
        "n_vertices": np.uint32(n),
        "tables": np.zeros((groups, k, 2), dtype),
        "used_lists": np.zeros((groups, k), np.uint32),
        "table_locks": np.zeros(groups, np.uint32),
        "fixed_sums": np.zeros((3, length), np.uint64),
        "clip_counts": np.zeros(n, np.uint32),
        "half_step": dtype(step.half_step),
        "decay": dtype(step.decay),
        "spread": dtype(-np.expm1(-step.half_step)),
        "alpha": dtype(step.alpha),
        "non_link_weight": dtype(step.non_link_weight),
        "inverse_n": dtype(1.0 / n),
    }
    if noise is None:
        given["least_pi"] = dtype(step.least)
    else:
        given |= {"threshold": dtype(noise.threshold), "seed": np.uint64(noise.seed)}
        given["iteration"] = np.uint32(noise.iteration)

    def places(units: Array) -> dict[str, Array]:
        at = given["vertices"][units].astype(np.int64)
        return dict.fromkeys(("new_communities", "new_values", "row_sums", "clip_counts"), at)

    rows = Units(n, places, lambda units, turn: _rows(given, units, k, step, noise, u)[0])
    sums = Units(1, lambda units: {"fixed_sums": np.arange(3)[None]}, lambda units, turn: _mass(given, k, step, u))

    every = np.arange(n)
    evaluated = functools.cache(lambda: _rows(given, every, k, step, noise, u))

    def judge(got: Got, config: Config) -> str | None:
        check, counted = evaluated()
        found = {name: got[name][at] for name, at in places(every).items()}
        return check(found, config) or _sums(given, got, [row.gradient for row in counted], k, step, u) or _tables(got)

    return Workload(given, n, judge, units=(rows, sums), repeats="continued")


def _tables(got: Got) -> str | None:
    return "a table is not left empty" if np.any(got["tables"]) or np.any(got["table_locks"]) else None


def _near(given: Given, vertex: int) -> Array:
    begin, end = (int(offset) for offset in given["neighbour_offsets"][vertex : vertex + 2])
    return np.asarray(given["neighbours"][begin:end])


def _rows(
    given: Given, units: Array, k: int, step: sparse.SparseStep, noise: noisy.SparseNoise | None, u: float
) -> tuple[Judge, list[sparse.SparseRow]]:
    """A check of the new rows of ``units``, their sums and clip counts, and the reference's rows before the cut."""
    beta, column_sums = (given[name][:k].astype(np.float64) for name in ("beta", "totals"))
    vertices = given["vertices"][units].tolist()

    def expanded(at: Array) -> tuple[Array, Array]:
        communities, values = given["communities"][at], given["values"][at]
        return rows_format.expanded(communities, values, k, step.floor), rows_format.kept(communities, k)

    found = []
    for vertex in vertices:
        (own,), (mine,) = expanded(np.array([vertex]))
        row_sum, near = float(given["row_sums"][vertex]), expanded(_near(given, vertex))
        if noise is None:
            found.append(sparse.update((own, mine), row_sum, near, beta, column_sums, step, u))
            continue
        every = k <= rows_format.EVERY
        gradient = sparse.gradient((own, mine), row_sum, near, beta, column_sums, step, u, every)
        r = given["communities"].shape[1]
        found.append(noisy.drawn(vertex, (own, mine), row_sum, r, gradient, step, noise, u))

    def judge(got: Got, config: Config) -> str | None:
        flipped: list[float] = []
        for place, (vertex, row) in enumerate(zip(vertices, found, strict=True)):
            new, pi = got["new_communities"][place], got["new_values"][place].astype(np.float64)
            of_row = float(got["row_sums"][place])
            if isinstance(row, noisy.DrawnRow) and noise is not None:
                problem = sparse_draw_checks.judge_row(row, new, pi, of_row, k, step, noise, u, flipped)
            else:
                problem = _judge_row(row, new, pi, of_row, k, new.size, step, u)
            if problem is not None:
                return f"vertex {vertex}: {problem}"
            clips = row.gradient.clips
            if not clips * 0.9 - 1 <= int(got["clip_counts"][place]) <= clips * 1.1 + 1:
                return f"vertex {vertex}: {got['clip_counts'][place]} bounded flows instead of {clips}"
        return sparse_draw_checks.judge_flips(found, flipped)

    return judge, found


def _sums(
    given: Given, got: Got, rows: list[sparse.SparseGradient], k: int, step: sparse.SparseStep, u: float
) -> str | None:
    """Check the sums of a sweep over all vertices: theta's counts by the reference, columns by the new rows."""
    n, unit = len(rows), 2 / FIXED_POINT
    there = got["new_communities"] != rows_format.NONE
    above = np.maximum(got["new_values"].astype(np.float64) - step.floor, 0.0)
    columns = np.bincount(got["new_communities"][there], above[there], minlength=k)
    right = np.stack([sum(row.non_links for row in rows) / n, sum(row.links for row in rows), columns])
    error = np.stack(
        [
            sum(row.non_links_error for row in rows) / n + n * unit,
            sum(row.links_error for row in rows) + n * unit,
            n * (unit + 2 * u) + 0 * columns,
        ]
    )
    if np.any(got["fixed_sums"][:, k:]):
        return "the padding of a sum is not zero"
    return Expected(right, 2 * error, name="sums").errors(got["fixed_sums"][:, :k].astype(np.float64) / FIXED_POINT)


def _mass(given: Given, k: int, step: sparse.SparseStep, u: float) -> Judge:
    """Check that the rows of all vertices add up to N over the columns, and that links count at most once an end.

    A row adds up to more than 1 by what raises its smallest entries to the floor.
    """
    n, r = given["communities"].shape
    ends, rounding, raised = int(given["neighbour_offsets"][-1]), r * (2 / FIXED_POINT + 8 * u) + 32 * u, r * step.floor

    def judge(got: Got, config: Config) -> str | None:
        non_links, links, columns = got["fixed_sums"][0].astype(np.float64).sum(axis=1) / FIXED_POINT
        mass = columns + n * k * step.floor
        if not n * (1.0 - rounding) <= mass <= n * (1.0 + rounding + raised):
            return f"the columns add up to {mass:.9g} instead of {n}"
        if not 0.0 < links <= ends * (1 + 64 * u):
            return f"{ends} ends of links count {links:.9g} times"
        return None if 0.0 <= non_links <= n * (1 + 64 * u) else f"non-links count {non_links:.9g} times {n}"

    return judge


def _judge_row(
    row: sparse.SparseRow, new: Array, pi: Array, row_sum: float, k: int, r: int, step: sparse.SparseStep, u: float
) -> str | None:
    """Check a new row: its entries are the largest, within the error bounds, in descending order, and add up."""
    there = new != rows_format.NONE
    count = int(there.sum())
    if count != min(r, row.candidates.size) or not there[:count].all() or np.any(pi[count:] != 0):
        return f"{count} entries of {row.candidates.size} candidates"
    at = np.searchsorted(row.candidates, new[:count])
    if np.any(at >= row.candidates.size) or np.any(
        row.candidates[np.minimum(at, row.candidates.size - 1)] != new[:count]
    ):
        return "an entry is no candidate"
    if np.unique(at).size != count or np.any(np.diff(pi[:count]) > 0):
        return "entries are not distinct and descending"
    kept = np.zeros(row.candidates.size, bool)
    kept[at] = True
    if not kept.all() and np.max(row.phi[~kept] - row.error[~kept]) > np.min((row.phi + row.error)[kept]):
        return "a larger entry was cut"
    values, total = sparse.finished(row.phi[at], k, step)
    error = row.error[at] / row.phi[at].sum() + values * (row.error[at].sum() / row.phi[at].sum() + (count + 16) * u)
    if (problem := Expected(values, 2 * error + 1e-30, name="pi").errors(pi[:count])) is not None:
        return problem
    off = abs(row_sum - total)
    bound = 2 * row.error[at].sum() + (count + 8) * u * total
    return f"row sum {row_sum:.9g} instead of {total:.9g}" if off > bound else None


def sparse_totals(problem: Problem, seed: int) -> Workload:
    """Random sums of a sweep, and old counts."""
    rng = np.random.default_rng(seed)
    n, k, dtype, u = problem.integer("N"), problem.integer("K"), real_type(problem), roundoff(problem)
    length = row_length(k)
    sums = np.zeros((3, length), np.uint64)
    sums[:, :k] = rng.integers(0, max(2, n), (3, k)) * int(FIXED_POINT) + rng.integers(0, int(FIXED_POINT), (3, k))
    given: dict[str, Any] = {
        "fixed_sums": sums,
        "beta": strengths(rng, k, dtype),
        "counts": np.ones((2, length), dtype),
        "totals": np.ones(length, dtype),
        "non_link_scale": dtype(0.75),
        "link_scale": dtype(0.5),
        "n_total": np.uint32(n),
        "floor_pi": dtype(floor_of(k, dtype)),
    }

    def judge(got: Got, config: Config) -> str | None:
        if np.any(got["fixed_sums"]):
            return "sums are not cleared"
        parts = sums[:, :k].astype(np.float64) / FIXED_POINT
        strength = given["beta"][:k].astype(np.float64)
        right = np.stack([float(given["non_link_scale"]) * n * (1 - strength) * parts[0], 0.5 * parts[1]])
        column_sums = parts[2] + n * float(given["floor_pi"])
        return Expected(right, 4 * u * right).errors(got["counts"][:, :k]) or Expected(
            column_sums, 4 * u * column_sums
        ).errors(got["totals"][:k])

    return Workload(given, length, judge, repeats="continued")
