"""Test inputs of the kernels of stages: edge look-up, stars, partner sampling, initial rows, mean and variance."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mmsbgen.families.mmsb.axes.small_spaces import edge_set_arguments
from mmsbgen.families.mmsb.numbers.partner_rule import PartnerRule, distinct_non_links
from mmsbgen.families.mmsb.numbers.row_layout import PLACED, row_length
from mmsbgen.families.mmsb.numbers.storage import storage_of
from mmsbgen.families.mmsb.reference import equations, workloads
from mmsbgen.families.mmsb.reference.workloads import ITERATION, ROTATIONS, SEED, roundoff, state_of
from mmsbgen.graph.edgeset import EdgeSet
from mmsbgen.kernels.family import Array, Expected, Judge, Units, Workload, all_units, at_turn
from mmsbgen.kernels.kit.reals import real_type
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config

_MEAN_DEGREE = 6


def _random_pairs(rng: np.random.Generator, n: int, count: int) -> Array:
    """At most ``count`` distinct unordered pairs ``[P, 2]`` of ``n`` vertices, smaller vertex first."""
    pairs = np.sort(rng.integers(0, n, (count, 2)), axis=1)
    return distinct(n, pairs[pairs[:, 0] < pairs[:, 1]])


def distinct(n: int, pairs: Array) -> Array:
    """The distinct ones of ``pairs`` ``[P, 2]`` of ``n`` vertices, in ascending order."""
    # np.unique takes twenty times as long, for numbers too.
    numbers = np.sort(pairs @ [n, 1])
    return np.stack(np.divmod(numbers[np.diff(numbers, prepend=-1) > 0], n), axis=1)


def adjacency(n: int, links: Array) -> tuple[Array, Array]:
    """Offsets ``[n + 1]`` and neighbours ``[2 E]`` of the pairs ``links`` ``[E, 2]``."""
    begins, ends = np.divmod(np.sort(np.concatenate([links @ [n, 1], links @ [1, n]])), n)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(begins, minlength=n))])
    return offsets.astype(np.uint64), ends.astype(np.uint32)


def edge_lookup(problem: Problem, seed: int) -> Workload:
    """Pairs, about half of them links, in both directions, with some self-pairs."""
    rng = np.random.default_rng(seed)
    n, count = problem.integer("N"), problem.integer("pairs")
    links = _random_pairs(rng, n, max(4, n * _MEAN_DEGREE // 2))
    a, b = rng.integers(0, n, (2, count))
    if links.size:
        known = links[rng.integers(0, len(links), count)]
        a, b = np.where(rng.random(count) < 0.5, known.T[rng.permutation(2)], (a, b))
    arguments = edge_set_arguments("link", EdgeSet.build(links)) | {
        "pairs_a": a.astype(np.uint32),
        "pairs_b": b.astype(np.uint32),
        "found": np.full(count, 7, np.uint32),
        "n_pairs": np.uint32(count),
    }

    def verify(got: Mapping[str, Array], config: Config) -> str | None:
        right = np.isin(np.minimum(a, b) * n + np.maximum(a, b), links @ [n, 1])
        wrong = np.flatnonzero(got["found"] != right)
        return f"{wrong.size} false answers, first for pair {a[wrong[0]], b[wrong[0]]}" if wrong.size else None

    return Workload(arguments, count, verify)


def random_graph(rng: np.random.Generator, n: int, hub_links: int) -> tuple[Array, Array, Array, Array]:
    """Links ``[E, 2]``, held-out pairs ``[H, 2]``, and the adjacency of the links: offsets and neighbours.

    Vertex 0 has up to ``hub_links`` links; the last eighth of the vertices has no others.
    """
    hub = np.stack([np.zeros(n - 1, np.int64), np.arange(1, n)], axis=1)[:hub_links]
    pairs = _random_pairs(rng, max(2, n - n // 8), n * _MEAN_DEGREE // 2)
    links = distinct(n, np.concatenate([hub, pairs]))
    is_held = rng.random(len(links)) < 0.1
    held = distinct(n, np.concatenate([links[is_held], _random_pairs(rng, n, n // 4)]))
    links = links[~np.isin(links @ [n, 1], held @ [n, 1])]
    return links, held, *adjacency(n, links)


def _ends_of(n: int, pairs: Array) -> Callable[[int], frozenset[int]]:
    """The function from one of ``n`` vertices to the other vertices of its ``pairs`` ``[H, 2]``."""
    offsets, ends = adjacency(n, pairs)
    return lambda vertex: frozenset(ends[int(offsets[vertex]) : int(offsets[vertex + 1])].tolist())


def units_apart(
    changed: Array, places: Callable[[Array], Mapping[str, Array]], reference: Callable[[Array, int], Judge]
) -> tuple[Units, ...]:
    """Units in two parts: those of whose outputs a launch changes something, and the others."""

    def part(chosen: Array, are: bool) -> Units:
        return Units(
            chosen.size, lambda units: places(chosen[units]), lambda units, turn: reference(chosen[units], turn), are
        )

    return tuple(part(np.flatnonzero(changed == are), are) for are in (True, False) if np.any(changed == are))


def draw_stars(problem: Problem, seed: int) -> Workload:
    """Link and non-link stars of a random graph: one of all eligible vertices (small graphs), one empty."""
    rng = np.random.default_rng(seed)
    n_total, m, rounds = problem.integer("N"), problem.integer("m"), workloads.ROUNDS
    links, held, offsets, neighbours = random_graph(rng, n_total, 3 * m)
    degrees = np.diff(offsets.astype(np.int64))
    held_of = _ends_of(n_total, held)
    centres = rng.integers(0, n_total, rounds)
    centres[0] = 0
    is_link = np.arange(rounds) % 2 == 0
    eligible = n_total - 1 - degrees[centres] - np.array([len(held_of(int(c))) for c in centres])
    sizes = 1 + np.where(is_link, degrees[centres], np.minimum(m, eligible))
    if n_total < 1000:
        sizes[1] = 1 + eligible[1]
    sizes[3] = 0
    stride = int(sizes.max())
    weights = np.where(is_link, 3.0, -7.0).astype(real_type(problem))
    arguments = edge_set_arguments("link", EdgeSet.build(links)) | edge_set_arguments("held", EdgeSet.build(held))
    arguments |= {
        "centres": centres.astype(np.uint32),
        "sizes": sizes.astype(np.uint32),
        "star_weights": weights,
        "neighbour_offsets": offsets,
        "neighbours": neighbours if neighbours.size else np.zeros(1, np.uint32),
        "vertices": np.zeros((rounds, stride), np.uint32),
        "pairs_a": np.zeros((rounds, stride), np.uint32),
        "pairs_b": np.zeros((rounds, stride), np.uint32),
        "pair_weights": np.zeros((rounds, stride), real_type(problem)),
        "n_rounds": np.uint32(rounds),
        "stride": np.uint32(stride),
        "n_total": np.uint32(n_total),
        **workloads.RANDOM,
    }

    @functools.cache
    def others_of(r: int) -> Array:
        centre = int(centres[r])
        near = neighbours[int(offsets[centre]) : int(offsets[centre + 1])].astype(np.int64)
        if is_link[r]:
            return near
        refused = frozenset(near.tolist()) | held_of(centre)
        return distinct_non_links(centre, n_total, refused, int(sizes[r]) - 1, SEED, ITERATION + r)

    def verify(got: Mapping[str, Array], config: Config) -> str | None:
        for r, (centre, size) in enumerate(zip(centres.tolist(), sizes.tolist(), strict=True)):
            if size == 0:
                if got["vertices"][r].any():
                    return f"iteration {r} has no vertices, but some were written"
                continue
            others = others_of(r)
            if not np.array_equal(got["vertices"][r, :size], np.concatenate([[centre], others])):
                return f"the vertices of iteration {r} differ from the reference's draws"
            if not np.array_equal(got["pairs_b"][r, : size - 1], others) or np.any(
                got["pairs_a"][r, : size - 1] != centre
            ):
                return f"the pairs of iteration {r} are not its star"
            if np.any(got["pair_weights"][r, : size - 1] != weights[r]):
                return f"the weights of iteration {r} are wrong"
        return None

    return Workload(arguments, rounds, verify)


def sample_partners(problem: Problem, seed: int) -> Workload:
    """A random graph with isolated vertices, a vertex linked to many, and held-out pairs."""
    rng = np.random.default_rng(seed)
    n_total, m, n = problem.integer("N"), problem.integer("m"), problem.integer("n")
    links, held, offsets, neighbours = random_graph(rng, n_total, 4 * n)
    vertices = rng.choice(n_total, m, replace=False)
    if 0 not in vertices:
        vertices[0] = 0
    n_eff = min(n, n_total - 1)
    rule = PartnerRule(
        "stratified" if problem["partners"] == "stratified" else "uniform",
        n_eff,
        n_link=n_eff // 2,
        seed=SEED,
        iteration=ITERATION,
    )
    # Several iterations with a stride of half of the vertices; the first one is not full.
    stride = m if m < 3 else m // 2
    place = np.arange(m)
    sizes = np.bincount(place // stride)
    sizes[0] = max(1, sizes[0] - 1)
    filled = place % stride < sizes[place // stride]
    total = m * n_eff
    arguments = edge_set_arguments("link", EdgeSet.build(links)) | edge_set_arguments("held", EdgeSet.build(held))
    arguments |= {
        "vertices": vertices.astype(np.uint32),
        "sizes": sizes.astype(np.uint32),
        "neighbour_offsets": offsets,
        "neighbours": neighbours if neighbours.size else np.zeros(1, np.uint32),
        "partners": np.zeros(total, np.uint32),
        "weights": np.zeros(total, real_type(problem)),
        "n_vertices": np.uint32(m),
        "stride": np.uint32(stride),
        "n_partners": np.uint32(n_eff),
        "n_link_partners": np.uint32(rule.n_link if rule.name == "stratified" else 0),
        "n_total": np.uint32(n_total),
        **workloads.RANDOM,
    }

    rotations = [{"vertices": rng.choice(n_total, m, replace=False).astype(np.uint32)} for _ in range(ROTATIONS - 1)]
    held_of = _ends_of(n_total, held)

    def reference(places: Array, turn: int) -> Judge:
        partners, weights = [], []
        now_at = at_turn(arguments, rotations, turn)["vertices"]
        for i in places.tolist():
            vertex = int(now_at[i])
            near = neighbours[int(offsets[vertex]) : int(offsets[vertex + 1])].astype(np.int64)
            now = dataclasses.replace(rule, iteration=ITERATION + i // stride)
            drawn, weight = equations.sample_partners(vertex, n_total, near, held_of(vertex), now)
            partners.append(drawn if filled[i] else np.zeros(n_eff, np.int64))
            weights.append(weight if filled[i] else np.zeros(n_eff))
        expected = Expected(np.array(weights), np.abs(weights) * 4 * roundoff(problem))

        def judge(got: Mapping[str, Array], config: Config) -> str | None:
            if not np.array_equal(got["partners"], partners):
                return "partners differ from the reference's draws"
            return expected.errors(got["weights"])

        return judge

    def entries(places: Array) -> dict[str, Array]:
        at = places[:, None] * n_eff + np.arange(n_eff)
        return {"partners": at, "weights": at}

    units = units_apart(filled, entries, reference)
    return Workload(arguments, m, all_units(units), rotations, units)


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
