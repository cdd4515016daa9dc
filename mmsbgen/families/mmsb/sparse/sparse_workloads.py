"""Test inputs and output checks of the kernels over sparse rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mmsbgen.families.mmsb.numbers import sparse_rows as rows_format
from mmsbgen.families.mmsb.numbers.row_layout import DELTA, row_length
from mmsbgen.families.mmsb.reference import sparse_equations as sparse
from mmsbgen.families.mmsb.reference import workloads
from mmsbgen.families.mmsb.reference.workloads import DISTINCT_ROWS, pairs_of, real_type, roundoff, strengths
from mmsbgen.families.mmsb.sparse.sparse_sizes import FIXED_POINT, FLOOR_SHARE, entries_of, table_groups
from mmsbgen.families.mmsb.stages import graph_workloads
from mmsbgen.kernels.family import Array, Expected, Workload
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config

#: Mean degree of large graphs, and links of the hub of small ones.
MEAN_DEGREE = 6
_HUB = 350
#: Communities that are asked for a link.
_PLACES = 5
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
    floor = float(dtype(FLOOR_SHARE / k))
    most = min(r, k)
    home = rng.integers(0, k, n)
    stride = 1 + (home * 7919) % max(1, k // most)
    stride = np.where(stride * most > k, 1, stride)
    communities = (home[:, None] + stride[:, None] * np.arange(most)) % k
    count = np.minimum(rng.choice([1, 2, 3, 4, r], n), most)
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


def _graph(n: int, home: Array, rng: np.random.Generator) -> dict[str, Array]:
    """A graph with a hub and isolated vertices, or for large N one in which most links join equal homes."""
    if n <= DISTINCT_ROWS:
        _, _, offsets, ends = graph_workloads.random_graph(rng, n, min(n // 2, _HUB))
    else:
        by_home = np.argsort(home, kind="stable")
        near = [np.stack([by_home, np.roll(by_home, -step)], axis=1) for step in range(1, MEAN_DEGREE // 2)]
        links = np.concatenate([*near, rng.integers(0, n, (n, 2))])
        links = np.sort(links[links[:, 0] != links[:, 1]], axis=1)
        offsets, ends = graph_workloads.adjacency(n, np.unique(links, axis=0))
    return {"neighbour_offsets": offsets, "neighbours": ends if ends.size else np.zeros(1, np.uint32)}


def _step(problem: Problem) -> sparse.SparseStep:
    dtype, k = real_type(problem), problem.integer("K")
    return sparse.SparseStep(
        half_step=float(dtype(0.05)),
        alpha=float(dtype(1.0 / k)),
        delta=float(dtype(DELTA)),
        floor=float(dtype(FLOOR_SHARE / k)),
        non_link_weight=float(dtype(0.9)),
    )


def sparse_rows(problem: Problem, seed: int) -> Workload:
    """All vertices, in descending order of degree."""
    return _sweep(problem, seed, overflow=False)


def sparse_rest(problem: Problem, seed: int) -> Workload:
    """A third of the vertices are on the list of those left over."""
    return _sweep(problem, seed, overflow=True)


def _sweep(problem: Problem, seed: int, overflow: bool) -> Workload:
    rng = np.random.default_rng(seed)
    n, k, dtype, u = problem.integer("N"), problem.integer("K"), real_type(problem), roundoff(problem)
    given, home = rows_of(problem, rng)
    given |= _graph(n, home, rng)
    degrees = np.diff(given["neighbour_offsets"].astype(np.int64))
    order = np.argsort(-degrees, kind="stable").astype(np.uint32)
    step, length, groups = _step(problem), row_length(k), table_groups(k, np.dtype(dtype).itemsize)
    column_sums = np.zeros(length, dtype)
    column_sums[:k] = rows_format.totals(given["communities"], given["values"], k, step.floor)
    listed = rng.choice(n, max(1, n // 3), replace=False).astype(np.uint32) if overflow else np.zeros(0, np.uint32)
    given |= {
        "new_communities": np.full_like(given["communities"], 7),
        "new_values": np.ones_like(given["values"]),
        "row_sums": rng.uniform(0.5, 3.0, n).astype(dtype),
        "totals": column_sums,
        "vertices": order,
        "n_vertices": np.uint32(n),
        "overflow": np.concatenate([listed, np.zeros(n - listed.size, np.uint32)]),
        "n_overflow": np.array([listed.size], np.uint32),
        "tables": np.zeros((groups, k, 4), dtype),
        "used_lists": np.zeros((groups, k), np.uint32),
        "sums": np.zeros((3, length), np.uint64),
        "clip_counts": np.zeros(n, np.uint32),
        "half_step": dtype(step.half_step),
        "decay": dtype(step.decay),
        "spread": dtype(-np.expm1(-step.half_step)),
        "alpha": dtype(step.alpha),
        "non_link_weight": dtype(step.non_link_weight),
        "inverse_n": dtype(1.0 / n),
    }

    def judge(got: Got, config: Config) -> str | None:
        if overflow:
            return _judge_sweep(given, got, listed, k, step, u) or _judge_tables(got)
        left = got["overflow"][: int(got["n_overflow"][0])]
        wrong = _left_over(given, left, k, config)
        done = np.setdiff1d(order, left)
        return wrong or _judge_sweep(given, got, done, k, step, u) or _judge_tables(got)

    return Workload(given, n, judge)


def _judge_tables(got: Got) -> str | None:
    return "a table is not left empty" if np.any(got["tables"]) else None


def _left_over(given: Given, left: Array, k: int, config: Config) -> str | None:
    """Check that only vertices with many candidates are left over, and each once."""
    if np.unique(left).size != left.size:
        return "a vertex is left over twice"
    if config["table"] == "direct":
        return "vertices are left over" if left.size else None
    for vertex in left.tolist():
        near = given["neighbours"][
            int(given["neighbour_offsets"][vertex]) : int(given["neighbour_offsets"][vertex + 1])
        ]
        rows = given["communities"][np.append(near, vertex)]
        if np.unique(rows[rows != rows_format.NONE]).size <= int(config["slots"]) // 2:
            return f"vertex {vertex} is left over, though its candidates fill less than half of a table"
    return None


def _judge_sweep(given: Given, got: Got, done: Array, k: int, step: sparse.SparseStep, u: float) -> str | None:
    """Check rows, their sums and the counts of the vertices ``done``, and that no other row was written."""
    n, r = given["communities"].shape
    floor, dense = step.floor, rows_format.expanded(given["communities"], given["values"], k, step.floor)
    mask, beta = rows_format.kept(given["communities"], k), given["beta"][:k].astype(np.float64)
    column_sums = given["totals"][:k].astype(np.float64)
    counts, counts_error = np.zeros((3, k)), np.full((3, k), 1e-30)
    for vertex in done.tolist():
        near = given["neighbours"][
            int(given["neighbour_offsets"][vertex]) : int(given["neighbour_offsets"][vertex + 1])
        ]
        row_sum = float(given["row_sums"][vertex])
        row = sparse.update(
            (dense[vertex], mask[vertex]), row_sum, (dense[near], mask[near]), beta, column_sums, step, u
        )
        new, pi = got["new_communities"][vertex], got["new_values"][vertex].astype(np.float64)
        problem = _judge_row(row, new, pi, float(got["row_sums"][vertex]), k, r, step, u)
        if problem is not None:
            return f"vertex {vertex}: {problem}"
        if not row.clips * 0.9 - 1 <= int(got["clip_counts"][vertex]) <= row.clips * 1.1 + 1:
            return f"vertex {vertex}: {got['clip_counts'][vertex]} bounded flows instead of {row.clips}"
        there = new != rows_format.NONE
        counts[0] += row.non_links / n
        counts[1] += row.links
        counts[2] += np.bincount(new[there], np.maximum(pi[there] - floor, 0.0), minlength=k)
        counts_error[0] += row.non_links_error / n + 2 / FIXED_POINT
        counts_error[1] += row.links_error + 2 / FIXED_POINT
        counts_error[2] += 2 / FIXED_POINT + 2 * u
    others = np.setdiff1d(np.arange(n), done)
    if np.any(got["new_communities"][others] != 7) or np.any(got["new_values"][others] != 1):
        return "a row of another vertex was written"
    if not np.array_equal(got["row_sums"][others], given["row_sums"][others]):
        return "the sum of another row was changed"
    if np.any(got["sums"][:, k:]):
        return "the padding of a sum is not zero"
    problem = Expected(counts, 2 * counts_error).errors(got["sums"][:, :k].astype(np.float64) / FIXED_POINT)
    return None if problem is None else f"sums: {problem}"


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
    problem = Expected(values, 2 * error + 1e-30).errors(pi[:count])
    if problem is not None:
        return f"pi: {problem}"
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
        "sums": sums,
        "beta": strengths(rng, k, dtype),
        "counts": np.ones((2, length), dtype),
        "totals": np.ones(length, dtype),
        "n_overflow": np.array([3], np.uint32),
        "non_link_scale": dtype(0.75),
        "link_scale": dtype(0.5),
        "n_total": np.uint32(n),
        "floor_pi": dtype(FLOOR_SHARE / k),
    }

    def judge(got: Got, config: Config) -> str | None:
        if np.any(got["sums"]) or got["n_overflow"][0]:
            return "sums or the number of vertices left over are not cleared"
        parts = sums[:, :k].astype(np.float64) / FIXED_POINT
        strength = given["beta"][:k].astype(np.float64)
        right = np.stack([float(given["non_link_scale"]) * n * (1 - strength) * parts[0], 0.5 * parts[1]])
        column_sums = parts[2] + n * float(given["floor_pi"])
        return Expected(right, 4 * u * right).errors(got["counts"][:, :k]) or Expected(
            column_sums, 4 * u * column_sums
        ).errors(got["totals"][:k])

    return Workload(given, length, judge)


def _pairs(problem: Problem, seed: int, more: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Array]]]:
    rng = np.random.default_rng(seed)
    count = problem.integer("pairs")
    given = rows_of(problem, rng)[0] | pairs_of(problem, rng, count) | {"n_pairs": np.uint32(count)} | dict(more)
    return given, [pairs_of(problem, rng, count) for _ in range(workloads.ROTATIONS - 1)]


def _of_pairs(given: Given, k: int) -> tuple[Array, Array, Array]:
    """pi_a pi_b ``[P, K]`` without products of two floors, that times beta, and pi_a pi_b with them."""
    floor = float(given["floor_pi"])
    rows, masks = [], []
    for end in ("pairs_a", "pairs_b"):
        communities = given["communities"][given[end]]
        rows.append(rows_format.expanded(communities, given["values"][given[end]], k, floor))
        masks.append(rows_format.kept(communities, k))
    both = np.where(masks[0] | masks[1], rows[0] * rows[1], 0.0)
    return both, both * given["beta"][:k].astype(np.float64), rows[0] * rows[1]


def sparse_pairs(problem: Problem, seed: int) -> Workload:
    """Random pairs with a running sum that already holds one sample."""
    count, k, u = problem.integer("pairs"), problem.integer("K"), roundoff(problem)
    before = np.random.default_rng(seed + 1).uniform(0.0, 1.0, count)
    arrays = {"probabilities": np.zeros(count), "published": np.zeros(count), "sums": before}
    given, rotations = _pairs(problem, seed, arrays)

    def judge(got: Got, config: Config) -> str | None:
        both, parts, _ = _of_pairs(given, k)
        dot, delta = parts.sum(axis=1), float(given["delta"])
        p = dot + delta * (1.0 - both.sum(axis=1))
        error = u * (8 + 2 * entries_of(problem)) * (dot + delta)
        return (
            Expected(p, error).errors(got["probabilities"])
            or Expected(dot, error).errors(got["published"])
            or Expected(before + p, error + 1e-15).errors(got["sums"])
        )

    return Workload(given, count, judge, rotations)


def _shares(given: Given, k: int, u: float, r: int) -> tuple[Array, Array]:
    both, parts, products = _of_pairs(given, k)
    z = parts.sum(axis=1) + float(given["delta"]) * np.maximum(1.0 - both.sum(axis=1), 0.0)
    shares = products * given["beta"][:k].astype(np.float64) / z[:, None]
    return shares, shares * (24 + 4 * r) * u


def sparse_links(problem: Problem, seed: int) -> Workload:
    """Random pairs; the best community may be any whose share is within rounding of the largest."""
    count, k, u = problem.integer("pairs"), problem.integer("K"), roundoff(problem)
    arrays = {"best": np.full(count, k, np.uint32), "shares": np.zeros(count, real_type(problem))}
    given, rotations = _pairs(problem, seed, arrays)

    def judge(got: Got, config: Config) -> str | None:
        shares, error = _shares(given, k, u, entries_of(problem))
        best = got["best"].astype(np.int64)
        if np.any(best >= k):
            return "a link has no community"
        rows = np.arange(count)
        if np.any(shares[rows, best] + error[rows, best] < (shares - error).max(axis=1)):
            return "a community is not the best"
        return Expected(shares[rows, best], 2 * error[rows, best]).errors(got["shares"])

    return Workload(given, count, judge, rotations)


def sparse_places(problem: Problem, seed: int) -> Workload:
    """Random pairs, and random communities of each, some of which neither row keeps."""
    count, k, u = problem.integer("pairs"), problem.integer("K"), roundoff(problem)
    places = np.random.default_rng(seed + 1).integers(0, k, (count, _PLACES)).astype(np.uint32)
    arrays = {
        "places": places,
        "n_places": np.uint32(_PLACES),
        "explained": np.zeros((count, _PLACES), real_type(problem)),
    }
    given, rotations = _pairs(problem, seed, arrays)

    def judge(got: Got, config: Config) -> str | None:
        shares, error = _shares(given, k, u, entries_of(problem))
        at = places.astype(np.int64)
        return Expected(
            np.take_along_axis(shares, at, axis=1), 2 * np.take_along_axis(error, at, axis=1) + 1e-30
        ).errors(got["explained"])

    return Workload(given, count, judge, rotations)


def sparse_shares(problem: Problem, seed: int) -> Workload:
    """All vertices of a graph, some of whose entries stand for communities that they are in."""
    rng = np.random.default_rng(seed)
    n, k, r, u = problem.integer("N"), problem.integer("K"), entries_of(problem), roundoff(problem)
    given, home = rows_of(problem, rng)
    given |= _graph(n, home, rng)
    given |= {
        "vertices": rng.permutation(n).astype(np.uint32),
        "n_vertices": np.uint32(n),
        "members": rng.integers(0, 2**63, n).astype(np.uint64),
        "only_members": np.uint32(1),
        "explained_links": np.ones((n, r), real_type(problem)),
    }
    inside = (given["members"][:, None] >> np.arange(r, dtype=np.uint64)) & np.uint64(1) == 1
    inside = rows_format.kept(np.where(inside, given["communities"], rows_format.NONE), k)

    def judge(got: Got, config: Config) -> str | None:
        right, error = np.zeros((n, r)), np.full((n, r), 1e-30)
        for vertex in range(n):
            near = given["neighbours"][
                int(given["neighbour_offsets"][vertex]) : int(given["neighbour_offsets"][vertex + 1])
            ]
            ends = {"pairs_a": np.full(near.size, vertex), "pairs_b": near}
            shares, bound = _shares(given | ends, k, u, r)
            there = given["communities"][vertex] != rows_format.NONE
            at = given["communities"][vertex][there].astype(np.int64)
            counted = inside[near][:, at]
            right[vertex, there] = (shares[:, at] * counted).sum(axis=0)
            error[vertex, there] += 2 * (bound[:, at] * counted).sum(axis=0) + near.size * u * right[vertex, there]
        return Expected(right, error).errors(got["explained_links"])

    return Workload(given, n, judge)


def sparse_gather(problem: Problem, seed: int) -> Workload:
    """Rows of random vertices, some of them twice."""
    rng = np.random.default_rng(seed)
    count, r = problem.integer("pairs"), entries_of(problem)
    given, _ = rows_of(problem, rng)
    wanted = rng.integers(0, problem.integer("N"), count).astype(np.uint32)
    arguments = {name: given[name] for name in ("communities", "values")} | {
        "wanted": wanted,
        "found_communities": np.zeros((count, r), np.uint32),
        "found_values": np.ones((count, r), real_type(problem)),
        "n_wanted": np.uint32(count),
    }

    def judge(got: Got, config: Config) -> str | None:
        same = (np.array_equal(got[f"found_{name}"], given[name][wanted]) for name in ("communities", "values"))
        return None if all(same) else "rows are not those of the vertices"

    return Workload(arguments, count, judge)
