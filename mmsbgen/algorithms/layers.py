"""Scores on several graphs of the same vertices, the layers: on each by itself, or on all at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.algorithms.functions import ConvergenceError, VertexValues, check_undirected, check_weights
from mmsbgen.algorithms.row_rounds import run_rounds
from mmsbgen.algorithms.walks import restarts
from mmsbgen.base.errors import InputError
from mmsbgen.base.host_memory import need_host_memory
from mmsbgen.base.id_text import plural
from mmsbgen.families.graph.row_kernels import MOST_FEATURES
from mmsbgen.graph.arc_sources import as_arcs
from mmsbgen.graph.arcs import Arcs, arcs_of_pairs
from mmsbgen.graph.ids import object_ids

Array = NDArray[np.float64]


def manifold_ranking(
    layers: Sequence[Any],
    seed: Any,
    *,
    alpha: float = 0.85,
    tolerance: float = 1e-6,
    max_rounds: int = 1000,
    weights: str | None = None,
    device: str | None = None,
    database: str | Path | None = None,
) -> VertexValues:
    """Scores of vertices by their nearness to a seed, on each layer by itself (Wang et al. 2013).

    Column k solves ``x = alpha D_k^-1 W_k x + (1 - alpha) y``, where W_k are the weights of layer k, D_k their sums by
    vertices, and y is the seed.

    Args:
        layers: Undirected graphs, as :func:`mmsbgen.graph.as_arcs` takes them, 1 to 1024.  Vertices are those of all.
        seed: As one of the seeds of :func:`personalized_pagerank`.
        alpha: The weight of neighbours, above 0 and below 1.
        tolerance: Rounds end when no score changes by more.  Scores are then within alpha / (1 - alpha) times that of
            the solution.
        max_rounds: Most rounds.
        weights: The attribute that holds weights, as for :func:`mmsbgen.graph.as_arcs`.
        device: As for :func:`mmsbgen.algorithms.bfs`.
        database: As for :func:`mmsbgen.algorithms.bfs`.

    Returns:
        Scores ``[N, F]``, a column for each layer, and the rounds.

    Raises:
        InputError: For no layer, a directed one, an unknown id, values outside their range, and weights that are
            negative or not finite.
        ConvergenceError: If ``max_rounds`` rounds are not enough.
    """
    if not 0 < alpha < 1:
        raise InputError(f"alpha={alpha}: give a number above 0 and below 1")
    arcs, parts = _together(layers, weights)
    vertices, start = restarts(arcs, [seed])
    rows = (1 - alpha) * np.repeat(start, len(layers), axis=1)
    scale = np.full(arcs.n_vertices, alpha)
    return _scores(arcs, scale, vertices, rows, alpha, tolerance, max_rounds, device, database, parts)


def multimodal_ranking(
    layers: Sequence[Any],
    seeds: Sequence[Any] | str,
    shares: Sequence[float],
    *,
    tolerance: float = 1e-6,
    max_rounds: int = 1000,
    weights: str | None = None,
    device: str | None = None,
    database: str | Path | None = None,
) -> VertexValues:
    """Scores of vertices by their nearness to seeds, on all layers at once (Tong et al. 2005, linear fusion).

    Column f solves ``x = sum_p a_p D_p^-1 W_p x + (1 - sum_p a_p) y``: y is seed f, and a_p the share of layer p.

    Args:
        layers: As for :func:`manifold_ranking`.
        seeds: As for :func:`personalized_pagerank`.
        shares: The weight of each layer, 0 or more; their sum is above 0 and below 1.
        tolerance: Rounds end when no score changes by more.  Scores are then within s / (1 - s) times that of the
            solution, where s is the sum of the shares.
        max_rounds: Most rounds.
        weights: As for :func:`manifold_ranking`.
        device: As for :func:`mmsbgen.algorithms.bfs`.
        database: As for :func:`mmsbgen.algorithms.bfs`.

    Returns:
        Scores ``[N, F]``, a column for each seed, and the rounds.

    Raises:
        InputError: As :func:`manifold_ranking`, and for shares that do not fit.
        ConvergenceError: If ``max_rounds`` rounds are not enough.
    """
    part = np.asarray(shares, np.float64)
    if part.shape != (len(layers),) or not (part >= 0).all() or not 0 < part.sum() < 1:
        raise InputError(
            f"shares={list(shares)}: give one of 0 or more for each of {len(layers)} layers, and a sum above 0 and "
            "below 1"
        )
    arcs, parts = _together(layers, weights)
    vertices, start = restarts(arcs, [seeds] if isinstance(seeds, str) else seeds)
    alpha = float(part.sum())
    fused = Arcs(arcs.offsets, arcs.targets, arcs.ids, parts @ part, name=arcs.name)
    scale = np.ones(arcs.n_vertices)
    return _scores(fused, scale, vertices, (1 - alpha) * start, alpha, tolerance, max_rounds, device, database, None)


def _scores(
    arcs: Arcs,
    scale: Array,
    vertices: NDArray[np.int64],
    rows: Array,
    alpha: float,
    tolerance: float,
    max_rounds: int,
    device: str | None,
    database: str | Path | None,
    layers: Array | None,
) -> VertexValues:
    found = run_rounds(
        arcs,
        scale,
        vertices,
        rows,
        rule="seeded" if layers is None else "layered",
        layers=layers,
        largest=float(rows.max()) / (1 - alpha),
        tolerance=tolerance,
        max_rounds=max_rounds,
        changes=True,
        device=device,
        database=database,
    )
    if not found.converged:
        raise ConvergenceError(
            f"scores on {arcs.name} still change by {found.residual:.3g} after {plural(found.rounds, 'round')}, and "
            f"{tolerance:.3g} was asked for: allow more rounds by max_rounds, or a larger tolerance"
        )
    return VertexValues(arcs.ids, found.rows, rounds=found.rounds)


def _together(layers: Sequence[Any], weights: str | None) -> tuple[Arcs, Array]:
    """The arcs of all layers, and their weights ``[A, P]``; those of a vertex sum to 1, or are 0 where it has none."""
    if isinstance(layers, str) or not 0 < len(layers) <= MOST_FEATURES:
        raise InputError(f"layers: give a list of 1 to {MOST_FEATURES} graphs")
    each = [as_arcs(layer, weights=weights) for layer in layers]
    for arcs in each:
        check_undirected(arcs, "scores pass along links")
        check_weights(arcs)
    numbers: dict[Any, int] = {}
    for name in (name for arcs in each for name in arcs.ids.tolist()):
        numbers.setdefault(name, len(numbers))
    ids, n = object_ids(list(numbers)), len(numbers)
    keys: list[NDArray[np.int64]] = []
    for arcs in each:
        number = np.array([numbers[name] for name in arcs.ids.tolist()], np.int64)
        keys.append(number[arcs.sources] * n + number[arcs.targets])
    pairs, places = np.unique(np.concatenate(keys), return_inverse=True)
    what = f"weights of {plural(pairs.size, 'arc')} on {plural(len(each), 'layer')}"
    need_host_memory(8 * pairs.size * len(each), what, "give fewer layers at once")
    made = arcs_of_pairs(pairs // max(1, n), pairs % max(1, n), ids, directed=False, name=plural(len(each), "layer"))
    parts: Array = np.zeros((pairs.size, len(each)))
    ends = np.cumsum([one.size for one in keys])
    for number_of, (arcs, place) in enumerate(zip(each, np.split(places, ends[:-1]), strict=True)):
        given = np.ones(arcs.n_arcs) if arcs.weights is None else arcs.weights / (arcs.weights.max(initial=0.0) or 1.0)
        summed = np.bincount(place, given, pairs.size)
        total = np.bincount(made.sources, summed, n)[made.sources]
        np.divide(summed, total, out=parts[:, number_of], where=total > 0)
    return made, parts
