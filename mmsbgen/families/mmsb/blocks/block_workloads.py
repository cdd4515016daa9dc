"""Test inputs and output checks of the kernels for block mini-batches."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mmsbgen.families.mmsb.numbers.row_layout import DELTA, MOST_GROUPS, room, row_length
from mmsbgen.families.mmsb.reference import block_equations, equations, verify, workloads
from mmsbgen.families.mmsb.reference.workloads import ITERATION, SEED, roundoff
from mmsbgen.families.mmsb.stages import stage_workloads
from mmsbgen.kernels.family import Array, Expected, Judge, Units, Workload, all_units, exact, wrong_of
from mmsbgen.kernels.kit.reals import real_type
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config

#: Number of vertices of another mini-batch before the tested ones.
FIRST = 3
#: Largest degree of the hub, about that of com-DBLP. One team processes its links, so more would dominate the time.
_HUB = 350
#: Elements of rows that are gathered at a time, in float64.
_GATHERED = 1 << 21
#: Fewest groups of counts, and limit of the bytes of all groups' counts.
FEWEST_GROUPS, _COUNT_BYTES = 16, 64 << 20
#: Mean degree of the vertices; com-DBLP has 6.6.
MEAN_DEGREE = 6


def small(problem: Problem) -> Problem:
    """A small problem with the same code path, whose reference takes milliseconds.

    ``n`` stays on the same side of every panel size.  Large ``n`` gives more draws than vertices and several panels.
    """
    n_vertices = min(problem.integer("N"), 203)
    m, n = min(problem.integer("m"), 19, n_vertices), min(problem.integer("n"), 1025)
    return problem.replace(N=n_vertices, m=m, n=n)


def drawn_partners(problem: Problem, rng: np.random.Generator, rounds: int = 0) -> tuple[dict[str, Any], Judge]:
    """Counters of the draws of one iteration, or of several ``rounds``, with old values; and a check of the results."""
    n_total, n, length = problem.integer("N"), problem.integer("n"), room(problem)
    lead = (rounds,) if rounds else ()
    arguments = {
        "draws": np.zeros((*lead, length), np.uint32),
        "times": np.ones((*lead, length), np.uint32),
        "drawn": np.zeros((*lead, length), np.uint32),
        "places": rng.integers(0, n, (*lead, n_total)).astype(np.uint32),
        "shared_weights": np.ones((*lead, length), real_type(problem)),
        "n_shared": np.zeros(rounds or 1, np.uint32),
        "n_partners": np.uint32(n),
        "n_total": np.uint32(n_total),
        **workloads.RANDOM,
    }
    partners = functools.cache(
        lambda ahead: block_equations.shared_partners(n, n_total, SEED, ITERATION + ahead, whole=rounds > 0)
    )

    def judge(got: Mapping[str, Array], config: Config) -> str | None:
        drawn, places, found = (got[name].reshape(rounds or 1, -1) for name in ("drawn", "places", "shared_weights"))
        for ahead in range(rounds or 1):
            _, distinct, times = partners(ahead)
            count, weights = distinct.size, np.zeros(length)
            weights[:count] = times * (n_total / n)
            here = {"n_shared": got["n_shared"][ahead], "drawn": drawn[ahead, :count], "weights": found[ahead]}
            right = {"n_shared": exact(np.array(count)), "drawn": exact(distinct), "places": exact(np.arange(count))}
            right["weights"] = Expected(weights, weights * 4 * roundoff(problem))
            if (wrong := wrong_of(here | {"places": places[ahead, distinct]}, right)) is not None:
                return f"iteration {ahead}: {wrong}"
        return None

    return arguments, judge


def shared_partners(problem: Problem, seed: int) -> Workload:
    """Slots and the counters of the draws."""
    rng = np.random.default_rng(seed)
    slots: Array = rng.permutation(problem.integer("N")).astype(np.uint32)
    arguments, drawn = drawn_partners(problem, rng)

    def judge(got: Mapping[str, Array], config: Config) -> str | None:
        if (wrong := drawn(got, config)) is not None:
            return wrong
        # Places after the last partner may hold any slot.
        distinct = got["drawn"][: int(got["n_shared"][0])]
        right = np.array_equal(got["shared"][: distinct.size], slots[distinct]) and np.isin(got["shared"], slots).all()
        return None if right else "slots are not those of the partners"

    arguments |= {"slots": slots, "shared": np.zeros(room(problem), np.uint32)}
    return Workload(arguments, 1, judge, repeats="continued")


def _block(problem: Problem, rng: np.random.Generator) -> dict[str, Any]:
    """State, graph, and a block of vertices in descending order of degree, including the hub."""
    n_total, m = problem.integer("N"), problem.integer("m")
    _, held, offsets, ends = stage_workloads.random_graph(rng, n_total, min(n_total // 2, _HUB))
    held_offsets, held_ends = stage_workloads.adjacency(n_total, held)
    degrees = offsets[1:].astype(np.int64) - offsets[:-1].astype(np.int64)
    graph = {
        "neighbour_offsets": offsets,
        "neighbours": ends if ends.size else np.zeros(1, np.uint32),
        "held_offsets": held_offsets,
        "held_neighbours": held_ends if held_ends.size else np.zeros(1, np.uint32),
    }
    vertices = rng.choice(n_total, m, replace=False)
    if 0 not in vertices:
        vertices[0] = 0
    vertices = vertices[np.argsort(-degrees[vertices], kind="stable")]
    return (
        workloads.state_of(problem, rng)
        | graph
        | {
            # Vertices of another mini-batch come first.
            "vertices": np.concatenate([rng.integers(0, n_total, FIRST), vertices]).astype(np.uint32),
            "first_vertex": np.uint32(FIRST),
            "n_vertices": np.uint32(m),
        }
    )


def ends_of(given: Mapping[str, Any], prefix: str, vertex: int) -> Array:
    """Neighbours of a vertex by its training links, or by its held-out pairs."""
    offsets, ends = ("neighbour_offsets", "neighbours") if prefix == "link" else ("held_offsets", "held_neighbours")
    return np.asarray(given[ends][int(given[offsets][vertex]) : int(given[offsets][vertex + 1])])


def others_untouched(
    given: Mapping[str, Any], got: Mapping[str, Array], k: int, into: Array | None = None
) -> str | None:
    """An error message if other rows changed or the padding of new rows is not zero, else None.

    New rows are in the slots ``into``, by default the spare ones.
    """
    new = given["spares"] if into is None else into
    return verify.others_unchanged(given, got, new) or padded(got["pi"][new], k)


def of_all(given: Mapping[str, Any], k: int, units: Sequence[Units]) -> Judge:
    """A check of all ``units``, and that other rows have not changed."""
    every = all_units(units)
    return lambda got, config: others_untouched(given, got, k) or every(got, config)


def padded(rows: Array, k: int) -> str | None:
    """An error message if the padding of rows is not zero, else None."""
    return "the padding of a row is not zero" if np.any(rows[:, k:] != 0) else None


def with_partners(problem: Problem, rng: np.random.Generator) -> tuple[dict[str, Any], Array, Callable[[int], Array]]:
    """A block of a graph with hub, isolated vertices and held-out pairs, and the partners of one iteration.

    Returns:
        The arguments, the distinct partners, and a function that returns the excluded partners of the i-th vertex.
    """
    n_total, n, length, dtype = problem.integer("N"), problem.integer("n"), room(problem), real_type(problem)
    given = _block(problem, rng)
    _, distinct, times = block_equations.shared_partners(n, n_total, SEED, ITERATION)
    drawn = np.zeros(length, np.uint32)
    drawn[: distinct.size] = distinct
    places = rng.integers(0, n, n_total).astype(np.uint32)
    places[distinct] = np.arange(distinct.size)
    weights = np.zeros(length, dtype)
    weights[: distinct.size] = times * dtype(n_total / n)
    shared = np.full(length, given["slots"][distinct[0]])
    shared[: distinct.size] = given["slots"][distinct]
    given |= {"shared": shared, "shared_weights": weights, "n_shared": np.array([distinct.size], np.uint32)}
    given |= {"drawn": drawn, "places": places, "delta": dtype(DELTA)}

    def out(i: int) -> Array:
        vertex = int(given["vertices"][FIRST + i])
        return np.concatenate([[vertex], ends_of(given, "link", vertex), ends_of(given, "held", vertex)])

    return given, distinct, out


def block_shared(problem: Problem, seed: int) -> Workload:
    """A block of a graph with hub, isolated vertices and held-out pairs, and the partners of one iteration."""
    given, distinct, out = with_partners(problem, np.random.default_rng(seed))
    kept = given["shared_weights"][: distinct.size].astype(np.float64)

    def weights(units: Array) -> Array:
        return np.array([np.where(np.isin(distinct, out(i)), 0.0, kept) for i in units.tolist()])

    return sums_over_partners(problem, given, given["shared"][: distinct.size], weights)


def sums_over_partners(
    problem: Problem,
    given: dict[str, Any],
    partners: Array,
    weights: Callable[[Array], Array],
    linked: Callable[[Array], Array] = lambda units: np.zeros(1, bool),
) -> Workload:
    """A kernel that adds up the rows in the slots ``partners`` ``[d]`` for every vertex of a mini-batch.

    ``weights`` and ``linked`` take units ``[s]`` and return ``[s, d]``, see :func:`block_equations.shared_sum`.
    """
    k, m, u, delta = problem.integer("K"), problem.integer("m"), roundoff(problem), float(given["delta"])
    rows = functools.cache(lambda: given["pi"][partners, :k].astype(np.float64))

    def reference(units: Array, turn: int) -> Judge:
        own = given["pi"][given["slots"][given["vertices"][FIRST:][units]], :k].astype(np.float64)
        beta, counted = given["beta"][:k].astype(np.float64), weights(units)
        labels = np.broadcast_to(linked(units), counted.shape)
        value, error = block_equations.shared_sum(own, beta, rows(), counted, delta, u, linked=labels)
        expected = Expected(value, 2 * error + 1e-30)
        return lambda got, config: padded(got["pi"], k) or expected.errors(got["pi"][:, :k].astype(np.float64))

    units = Units(m, lambda units: {"pi": given["spares"][units]}, reference)
    return Workload(given, m, of_all(given, k, [units]), units=(units,), repeats="same")


def rows_to_end(problem: Problem, seed: int) -> tuple[dict[str, Any], equations.Step]:
    """The same block with sums over non-links in its spare rows, of the size for a hundred partners."""
    rng = np.random.default_rng(seed)
    given = _block(problem, rng)
    given["pi"][given["spares"]] *= -rng.uniform(0.0, 100.0, (problem.integer("m"), 1)).astype(real_type(problem))
    step, scalars = workloads.row_step(problem)
    return given | scalars, step


def kept_groups(problem: Problem) -> int:
    """Number of groups whose counts fit into the memory that they may take."""
    return _COUNT_BYTES // (2 * row_length(problem.integer("K")) * np.dtype(real_type(problem)).itemsize)


def block_links(problem: Problem, seed: int) -> Workload:
    """Rows to update, and old values in ``counts``."""
    given, step = rows_to_end(problem, seed)
    k, m, dtype, u = problem.integer("K"), problem.integer("m"), real_type(problem), roundoff(problem)
    groups = max(FEWEST_GROUPS, min(MOST_GROUPS, kept_groups(problem)))
    given |= {
        "counts": np.ones((groups, 2, row_length(k)), dtype),
        "non_link_scale": dtype(0.75),
        "link_scale": dtype(1.5),
    }

    rows = Units(
        m,
        lambda units: workloads.new_rows(given, units) | {"clip_counts": units},
        lambda units, turn: rows_ended(given, units, k, step, u),
    )
    counts = Units(
        1, lambda units: {"counts": np.arange(groups)[None]}, lambda units, turn: _counts_of_all(given, k, u)
    )
    return Workload(given, m, of_all(given, k, (rows, counts)), units=(rows, counts), repeats="continued")


def _counts_of_all(given: Mapping[str, Any], k: int, u: float) -> Judge:
    """Check the sum of the groups' counts; the assignment of vertices to groups may differ."""
    delta, scale = float(given["delta"]), np.array([[given["non_link_scale"]], [given["link_scale"]]], np.float64)
    beta, vertices = given["beta"][:k].astype(np.float64), given["vertices"][FIRST:]
    ends = [ends_of(given, "link", vertex) for vertex in vertices.tolist()]
    owners, others = np.repeat(vertices, [len(of_one) for of_one in ends]), np.concatenate(ends)
    right, error = np.zeros((2, k)), np.full((2, k), 1e-30)

    def rows(slots: Array) -> Array:
        return np.asarray(given["pi"][slots, :k], np.float64)

    size = max(1, _GATHERED // k)
    for begin in range(0, vertices.size, size):
        some = slice(begin, begin + size)
        counts, bound = block_equations.non_link_counts(
            rows(given["slots"][vertices[some]]), beta, rows(given["spares"][some]), u
        )
        right[0], error[0] = right[0] + counts.sum(axis=0), error[0] + bound.sum(axis=0)
    for begin in range(0, owners.size, size):
        rows_a, rows_b = (rows(given["slots"][one[begin : begin + size]]) for one in (owners, others))
        counts, bound = equations.theta_counts(rows_a, rows_b, beta, np.ones(len(rows_a)), delta, u)
        right, error = right + counts, error + bound + 4 * u * counts
    right, error = scale * right, scale * error
    error += u * (4 + 2 * np.sqrt(int(given["n_vertices"]))) * right

    def judge(got: Mapping[str, Array], config: Config) -> str | None:
        groups = got["counts"][0, : int(config["groups"])].astype(np.float64)
        if np.any(groups[:, :, k:]):
            return "the padding of a count is not zero"
        return Expected(right, 2 * error, name="counts").errors(groups[:, :, :k].sum(axis=0))

    return judge


def rows_ended(
    given: Mapping[str, Any], units: Array, k: int, step: equations.Step, u: float, links: bool = True
) -> Judge:
    """Check the updated rows of :func:`rows_to_end`, and their clip counts.

    With ``links`` the links are added first.
    """
    slots, vertices, beta = given["slots"], given["vertices"][FIRST:][units], given["beta"][:k].astype(np.float64)
    own, spare = (given["pi"][at, :k].astype(np.float64) for at in (slots[vertices], given["spares"][units]))
    drift, error = np.empty_like(own), np.empty_like(own)
    for i, vertex in enumerate(vertices.tolist()):
        near = slots[ends_of(given, "link", vertex)]
        rows = given["pi"][near if links else near[:0], :k].astype(np.float64)
        drift[i], error[i] = block_equations.link_drift(own[i], beta, spare[i], rows, step.delta, u)
    sums = given["row_sums"][slots[vertices]].astype(np.float64)[:, None]
    end = equations.end_row(own * sums, own, drift, error, vertices.astype(np.int64)[:, None], step, u)
    phi = verify.ended(end, step, u)
    return lambda got, config: (
        padded(got["pi"], k) or verify.wrong_phi(got, config, u, phi) or verify.wrong_clips(got, end.clips)
    )
