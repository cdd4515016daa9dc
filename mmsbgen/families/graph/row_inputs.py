"""Arguments, reference and workload of the rounds over rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.families.graph.declare import NONE
from mmsbgen.families.graph.row_kernels import COUNTS, SUMMING, row_length
from mmsbgen.graph.arcs import Arcs
from mmsbgen.kernels.family import Expected, Judge
from mmsbgen.kernels.problem import Value
from mmsbgen.kernels.space import Config

Array = NDArray[Any]

#: Rounds of a workload; the first sends changes only, the later ones go over all vertices.
WORKLOAD_ROUNDS = 8
_ALPHA = 0.85
#: How far a round may move what the solver found for a workload.
_NEAR = 1e-3


def matrix_in(arcs: Arcs) -> Any:
    """The weights of arcs into each vertex as a sparse matrix ``[N, N]``: entry (v, u) is the weight from u to v."""
    from scipy import sparse  # takes a tenth of a second, and most commands load this module without need of it

    data = np.ones(arcs.n_arcs) if arcs.weights is None else arcs.weights
    places = (arcs.targets.astype(np.int64), arcs.sources.astype(np.int64))
    return sparse.csr_array((data, places), shape=(arcs.n_vertices, arcs.n_vertices))


def weighted_sums(arcs: Arcs, rows: Array, weights: Array) -> NDArray[np.float64]:
    """Sums over arcs in of ``w o x``, ``[N, F]``: rows x ``[N, F]``, weights w ``[A, F]`` in the order of arcs in."""
    turned, found = arcs.reversed, np.zeros(rows.shape)
    np.add.at(found, turned.sources, weights * rows[turned.targets])
    return found


def after_rounds(
    arcs: Arcs, scale: Array, start: Array, rounds: int, *, published: bool = False, layers: Array | None = None
) -> NDArray[np.float64]:
    """Rows ``[N, F]`` after ``rounds`` rounds in float64, from the rows ``start`` ``[N, F]``.

    ``x_v = scale_v sum_u w_uv x_u + start_v``, or with ``published`` ``x_v = normalise(scale_v a / |a| + (1 - scale_v)
    x_v)``, ``a = sum_u w_uv x_u``; rows whose ``a`` is 0 stay.  ``layers`` are rows of weights w, as
    :func:`weighted_sums` takes them.
    """
    weights = matrix_in(arcs)
    row = start.astype(np.float64)
    for _ in range(rounds):
        got = weights @ row if layers is None else weighted_sums(arcs, row, layers)
        if not published:
            row = scale[:, None] * got + start
            continue
        total = got.sum(axis=1, keepdims=True)
        blend = np.where(total > 0, scale[:, None], 0.0)
        row = blend * np.divide(got, total, out=np.zeros_like(got), where=total > 0) + (1 - blend) * row
        sums = row.sum(axis=1, keepdims=True)
        row = np.divide(row, sums, out=np.zeros_like(row), where=sums > 0)
    return row


def state_of_rows(
    arcs: Arcs,
    real: Any,
    scale: Array,
    vertices: Array,
    seeds: Array,
    *,
    tolerance: float,
    most_rounds: int,
    changes: float,
) -> dict[str, Any]:
    """The arguments beside the graph's and the rows.

    Args:
        arcs: The graph.
        real: Type of the rows.
        scale: Factor of each vertex's sum, ``[N]``; 0 where the sum does not count.
        vertices: The vertices that add a row in each round, ``[S]``, each once; they start with it, others with 0.
        seeds: Those rows, ``[S, F]``.
        tolerance: Rounds end when no number of a row moves by more.
        most_rounds: Most rounds.
        changes: Only changes are sent while fewer than one in so many arcs leads out of what moved; 0: never.
    """
    n, (count, features) = arcs.n_vertices, seeds.shape
    seed_of = np.full(n, NONE, np.uint32)
    seed_of[vertices] = np.arange(count, dtype=np.uint32)
    padded = np.zeros((max(1, count), row_length(features)), real)
    padded[:count, :features] = seeds
    seed_arcs = arcs.degrees[vertices].sum()
    return {
        "scale": scale.astype(real),
        "seed_of": seed_of,
        "seeds": padded,
        "order": np.argsort(-arcs.reversed.degrees, kind="stable").astype(np.uint32),
        "moved": np.zeros(n, np.uint32),
        "marked": np.zeros(n, np.uint32),
        "counts": np.zeros(COUNTS, np.uint32),
        "settings": np.array([tolerance, most_rounds, changes, arcs.n_arcs, seed_arcs, 0, 0, 0, 0], np.float64),
    }


def rows_of_weights(weights: Array, real: Any) -> Array:
    """Weights ``[A, F]`` as the device has them, ``[A, LD]``, at least one row."""
    padded = np.zeros((max(1, len(weights)), row_length(weights.shape[1])), real)
    padded[: len(weights), : weights.shape[1]] = weights
    return padded


def workload_of_rows(arcs: Arcs, real: Any, features: int, rule: Value) -> tuple[dict[str, Any], Judge]:
    """Some rounds from one seed in a hundred vertices, at least three, each with a random row of sum 1."""
    n, published = arcs.n_vertices, rule == "published"
    rng = np.random.default_rng(n)
    vertices = rng.choice(n, min(n, max(3, n // 100)), replace=False)
    seeds = rng.random((vertices.size, features)).astype(real) + real(0.01)
    seeds /= seeds.sum(axis=1, keepdims=True)
    incoming = matrix_in(arcs).sum(axis=1)
    scale: Array = np.divide(_ALPHA, incoming, out=np.zeros(n), where=incoming > 0)
    if published:
        scale = np.where(incoming > 0, _ALPHA, 0.0)
    start = np.zeros((n, features))
    start[vertices] = seeds
    layers = (rng.random((arcs.n_arcs, features)) + 0.5).astype(real) if rule == "layered" else None
    exact = after_rounds(arcs, scale, start, WORKLOAD_ROUNDS, published=published, layers=layers)
    # All numbers are positive: a round adds the relative error of a sum and of four more roundings, and of two sums
    # over the row where it is normalised.
    terms = int(arcs.reversed.degrees.max(initial=0)) + 8
    terms += 2 * (features + terms) if published else 0
    tolerance = exact * (np.finfo(real).eps * WORKLOAD_ROUNDS * terms)
    expected = Expected(exact, tolerance)
    changes = 0 if published else 2
    given = arcs, real, scale, vertices, seeds
    state = state_of_rows(*given, tolerance=0.0, most_rounds=WORKLOAD_ROUNDS, changes=changes)
    for name in ("sent", "row"):
        state[name] = np.zeros((n, row_length(features)), real)
    if layers is not None:
        state["in_weights"] = rows_of_weights(layers, real)
    return state, lambda got, config: expected.errors(got["row"][:, :features])


def state_of_solver(state: dict[str, Any], weight_of: Array, real: Any, features: int) -> dict[str, Any]:
    """The arguments of the solver beside the graph's and the rows, from those that :func:`state_of_rows` makes.

    Args:
        state: Those arguments.
        weight_of: Weight of all arcs of each vertex, ``[N]``.
        real: Type of the rows.
        features: F.
    """
    taken = ("scale", "seed_of", "seeds", "order", "counts", "settings")
    sums = {
        "slots": np.zeros((SUMMING, row_length(features)), real),
        "factors": np.zeros((3, row_length(features)), real),
    }
    return {name: state[name] for name in taken} | {"weight_of": weight_of.astype(real)} | sums


def workload_of_solver(arcs: Arcs, real: Any, features: int) -> tuple[dict[str, Any], Judge]:
    """Shares of labels that one vertex in ten has, at least three, on an undirected graph.

    They are right if a round would move no number by more than the tolerance, and seeds have their rows.
    """
    n = arcs.n_vertices
    rng = np.random.default_rng(n)
    vertices = rng.choice(n, min(n, max(3, n // 10)), replace=False)
    seeds = np.eye(features)[np.arange(vertices.size) % features]
    weights = np.ones(arcs.n_arcs) if arcs.weights is None else arcs.weights
    total = np.bincount(arcs.sources, weights, n)
    scale = np.divide(1.0, total, out=np.zeros(n), where=total > 0)
    scale[vertices] = 0.0
    given = arcs, real, scale, vertices, seeds
    state = state_of_rows(*given, tolerance=_NEAR, most_rounds=1000, changes=0)
    state = state_of_solver(state, total, real, features)
    for name in ("sent", "row", "left", "image"):
        state[name] = np.zeros((n, row_length(features)), real)
    start = np.zeros((n, features))
    start[vertices] = seeds
    matrix, free = matrix_in(arcs), scale > 0
    # A sum of many numbers is rounded as often.
    bound = _NEAR + (int(arcs.degrees.max(initial=0)) + 8) * np.finfo(real).eps

    def judge(got: Any, config: Config) -> str | None:
        rows = got["row"][:, :features].astype(np.float64)
        moved = free[:, None] * (scale[:, None] * (matrix @ rows) - rows)
        held = Expected(start[~free], np.zeros_like(start[~free]), name="rows that are given")
        return held.errors(rows[~free]) or Expected(np.zeros_like(rows), np.full_like(rows, bound)).errors(moved)

    return state, judge
