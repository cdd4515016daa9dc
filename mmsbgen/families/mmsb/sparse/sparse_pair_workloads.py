"""Test inputs and output checks of the kernels over pairs of sparse rows, and of those that copy or replace rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mmsbgen.families.mmsb.numbers import sparse_rows as rows_format
from mmsbgen.families.mmsb.numbers.row_layout import row_length
from mmsbgen.families.mmsb.reference.pair_workloads import of_pairs
from mmsbgen.families.mmsb.reference.workloads import roundoff
from mmsbgen.families.mmsb.sparse.sparse_sizes import FIXED_POINT, entries_of
from mmsbgen.families.mmsb.sparse.sparse_workloads import graph_of, rows_of
from mmsbgen.families.mmsb.stages import stage_workloads
from mmsbgen.kernels.family import Array, Expected, Judge, Units, Workload, all_units
from mmsbgen.kernels.kit.reals import real_type
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config

#: Communities that are asked for a link.
_PLACES = 5
Given = Mapping[str, Any]
Got = Mapping[str, Array]


def _at(given: Given, units: Array) -> dict[str, Any]:
    """The arguments with the pairs ``units`` only."""
    return {**given, **{end: given[end][units] for end in ("pairs_a", "pairs_b")}}


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


def _shares(given: Given, k: int, u: float, r: int) -> tuple[Array, Array]:
    both, parts, products = _of_pairs(given, k)
    z = parts.sum(axis=1) + float(given["delta"]) * np.maximum(1.0 - both.sum(axis=1), 0.0)
    shares = products * given["beta"][:k].astype(np.float64) / z[:, None]
    return shares, shares * (24 + 4 * r) * u


def sparse_pairs(problem: Problem, seed: int) -> Workload:
    """Random pairs with a running sum that already holds one sample."""
    rng = np.random.default_rng(seed)
    count, k, u = problem.integer("pairs"), problem.integer("K"), roundoff(problem)
    arrays = {"probabilities": np.zeros(count), "published": np.zeros(count), "sums": rng.uniform(0.0, 1.0, count)}

    def reference(given: Given, units: Array) -> Judge:
        both, parts, _ = _of_pairs(_at(given, units), k)
        dot, delta = parts.sum(axis=1), float(given["delta"])
        p = dot + delta * (1.0 - both.sum(axis=1))
        error, sums = u * (8 + 2 * entries_of(problem)) * (dot + delta), given["sums"][units] + p
        return lambda got, config: (
            Expected(p, error).errors(got["probabilities"])
            or Expected(dot, error).errors(got["published"])
            or Expected(sums, error + 1e-15).errors(got["sums"])
        )

    return of_pairs(problem, rng, rows_of(problem, rng)[0] | arrays, tuple(arrays), reference, "continued")


def sparse_links(problem: Problem, seed: int) -> Workload:
    """Random pairs; the best community may be any whose share is within rounding of the largest."""
    rng = np.random.default_rng(seed)
    count, k, u = problem.integer("pairs"), problem.integer("K"), roundoff(problem)
    arrays = {"best": np.full(count, k, np.uint32), "shares": np.zeros(count, real_type(problem))}

    def reference(given: Given, units: Array) -> Judge:
        shares, error = _shares(_at(given, units), k, u, entries_of(problem))
        largest, rows = (shares - error).max(axis=1), np.arange(units.size)

        def judge(got: Got, config: Config) -> str | None:
            best = got["best"].astype(np.int64)
            if np.any(best >= k):
                return "a link has no community"
            if np.any(shares[rows, best] + error[rows, best] < largest):
                return "a community is not the best"
            return Expected(shares[rows, best], 2 * error[rows, best]).errors(got["shares"])

        return judge

    return of_pairs(problem, rng, rows_of(problem, rng)[0] | arrays, tuple(arrays), reference)


def sparse_places(problem: Problem, seed: int) -> Workload:
    """Random pairs, and random communities of each, some of which neither row keeps."""
    rng = np.random.default_rng(seed)
    count, k, u = problem.integer("pairs"), problem.integer("K"), roundoff(problem)
    arrays = {
        "places": rng.integers(0, k, (count, _PLACES)).astype(np.uint32),
        "n_places": np.uint32(_PLACES),
        "explained": np.full((count, _PLACES), -1, real_type(problem)),
    }

    def reference(given: Given, units: Array) -> Judge:
        shares, error = _shares(_at(given, units), k, u, entries_of(problem))
        at = given["places"][units].astype(np.int64)
        expected = Expected(np.take_along_axis(shares, at, axis=1), 2 * np.take_along_axis(error, at, axis=1) + 1e-30)
        return lambda got, config: expected.errors(got["explained"])

    return of_pairs(problem, rng, rows_of(problem, rng)[0] | arrays, ("explained",), reference)


def sparse_shares(problem: Problem, seed: int) -> Workload:
    """All vertices of a graph, some of whose entries stand for communities that they are in.

    With an odd ``seed`` the links that an entry explains best are counted; any may be whose share is within rounding of
    the largest.
    """
    rng = np.random.default_rng(seed)
    n, k, r, u = problem.integer("N"), problem.integer("K"), entries_of(problem), roundoff(problem)
    given, home = rows_of(problem, rng)
    given |= graph_of(n, home, rng)
    given |= {
        "vertices": rng.permutation(n).astype(np.uint32),
        "n_vertices": np.uint32(n),
        "members": rng.integers(0, 2**64, n, dtype=np.uint64),
        "only_members": np.uint32(1),
        "only_best": np.uint32(seed % 2),
        "explained_links": np.full((n, r), -1, real_type(problem)),
    }
    bits = np.arange(r, dtype=np.uint64)

    def reference(units: Array, turn: int) -> Judge:
        right, error = np.zeros((units.size, r)), np.full((units.size, r), 1e-30)
        only_best = bool(given["only_best"])
        for place, vertex in enumerate(given["vertices"][units].tolist()):
            begin, end = (int(offset) for offset in given["neighbour_offsets"][vertex : vertex + 2])
            near = given["neighbours"][begin:end]
            member = (given["members"][near][:, None] >> bits) & np.uint64(1) == 1
            inside = rows_format.kept(np.where(member, given["communities"][near], rows_format.NONE), k)
            ends = {"pairs_a": np.full(near.size, vertex), "pairs_b": near}
            shares, bound = _shares({**given, **ends}, k, u, r)
            if only_best:
                may_be = shares + bound >= (shares - bound).max(axis=1)[:, None]
                # Each of several gets the link or not: a half, give or take twice the bound.
                bound = np.where(may_be & (may_be.sum(axis=1) > 1)[:, None], 0.25, 0.0)
                shares = np.where(may_be, 1.0 - 2 * bound, 0.0)
            there = given["communities"][vertex] != rows_format.NONE
            at = given["communities"][vertex][there].astype(np.int64)
            counted = inside[:, at]
            right[place, there] = (shares[:, at] * counted).sum(axis=0)
            error[place, there] += 2 * (bound[:, at] * counted).sum(axis=0) + near.size * u * right[place, there]
        return lambda got, config: Expected(right, error).errors(got["explained_links"])

    units = Units(n, lambda units: {"explained_links": given["vertices"][units].astype(np.int64)}, reference)
    return Workload(given, n, all_units([units]), units=(units,))


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


def sparse_replace(problem: Problem, seed: int) -> Workload:
    """Some vertices in random order; every fourth new row is the old one, every third is the one last told."""
    rng = np.random.default_rng(seed)
    n, k, r, u = problem.integer("N"), problem.integer("K"), entries_of(problem), roundoff(problem)
    given, _ = rows_of(problem, rng)
    dtype, floor, every = real_type(problem), float(given["floor_pi"]), np.arange(n)
    old = {name: given[name] for name in ("communities", "values")}
    new_from = np.where(every % 4, rng.permutation(n), every)
    told_from = np.where(every % 3, rng.permutation(n), new_from)
    new, told = ({name: array[rows] for name, array in old.items()} for rows in (new_from, told_from))
    vertices, count = rng.permutation(n).astype(np.uint32), max(1, 3 * n // 4)
    taken = vertices[:count].astype(np.int64)
    at_old, at_new, at_told = (
        rows_format.expanded(rows["communities"][taken], rows["values"][taken], k, floor) for rows in (old, new, told)
    )
    moved, since = (np.abs(at_new - before).sum(axis=1) for before in (at_old, at_told))
    # Rows are the same or far apart, so that rounding does not decide.
    tolerance = float(dtype(min(since[since > 0].min(initial=1.0) / 2, 1.0)))
    sums = np.zeros((3, row_length(k)), np.uint64)
    sums[2, :k] = n * int(FIXED_POINT)
    arguments = old | {f"new_{name}": array for name, array in new.items()}
    arguments |= {f"told_{name}": array for name, array in told.items()}
    arguments |= {
        "vertices": vertices,
        "fixed_sums": sums,
        "moved": np.full(n, -1, dtype),
        "since_told": np.full(n, -1, dtype),
        "n_vertices": np.uint32(count),
        "floor_pi": given["floor_pi"],
        "tolerance": dtype(tolerance),
    }
    gone = n - (at_old - floor).sum(axis=0)

    def judge(got: Got, config: Config) -> str | None:
        for prefix, before, at in (("", old, taken), ("told_", told, taken[since > tolerance])):
            for name, array in before.items():
                right = array.copy()
                right[at] = new[name][at]
                if not np.array_equal(got[prefix + name], right):
                    return f"{prefix}{name} are not those of the new rows"
        if np.any(got["fixed_sums"][:2]) or np.any(got["fixed_sums"][2, k:]):
            return "other sums changed"
        for name, right in (("moved", moved), ("since_told", since)):
            if np.any(got[name][count:] != -1):
                return f"{name} was written beyond the vertices"
            expected = Expected(right, (4 * r + 8) * u * (1.0 + right), name=name)
            if (wrong := expected.errors(got[name][:count])) is not None:
                return wrong
        left = got["fixed_sums"][2, :k].astype(np.float64) / FIXED_POINT
        return Expected(gone, np.full(k, count * (2 / FIXED_POINT + 2 * u))).errors(left)

    return Workload(arguments, count, judge, repeats="restored")


def sparse_moments(problem: Problem, seed: int) -> Workload:
    """A fourth sample of every row, after three that are near it."""
    rng = np.random.default_rng(seed)
    given, _ = rows_of(problem, rng)
    k, floor = problem.integer("K"), float(given["floor_pi"])
    rows = np.zeros((problem.integer("N"), row_length(k)))
    rows[:, :k] = rows_format.expanded(given["communities"], given["values"], k, floor)
    kept = {name: given[name] for name in ("communities", "values", "floor_pi")}
    return stage_workloads.of_rows(problem, rows, kept, rng)
