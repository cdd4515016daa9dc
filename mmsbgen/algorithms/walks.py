"""Random walks that begin again at given vertices: personalised PageRank of many seeds at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from mmsbgen.algorithms.functions import ConvergenceError, VertexValues, check_weights
from mmsbgen.algorithms.row_rounds import check_tolerance, divided, run_rounds, totals
from mmsbgen.base.errors import InputError
from mmsbgen.base.host_memory import need_host_memory
from mmsbgen.base.id_text import plural
from mmsbgen.families.graph.row_kernels import MOST_FEATURES
from mmsbgen.graph.arc_sources import as_arcs
from mmsbgen.graph.arcs import Arcs


def personalized_pagerank(
    graph: Any,
    seeds: Sequence[Any] | str,
    *,
    alpha: float = 0.85,
    tolerance: float = 1e-6,
    max_rounds: int = 1000,
    weights: str | None = None,
    directed: bool = False,
    device: str | None = None,
    database: str | Path | None = None,
) -> VertexValues:
    """PageRank of walks that begin again at a seed, for many seeds in one run.

    Column f solves ``x = alpha P x + (1 - alpha) y``: y is seed f, P moves a walk along an arc out of its vertex.
    Walks that meet a vertex without arcs out begin again.  It is ``networkx.pagerank`` with that personalisation.

    Args:
        graph: Any graph that :func:`mmsbgen.graph.as_arcs` takes.
        seeds: At most 1024, or one text; each an id, a list of ids of equal weight, or a mapping of ids to weights.
        alpha: The probability that a walk goes on, above 0 and below 1.
        tolerance: Rounds end when the scores of no seed change by more in all.  Of undirected graphs they are then
            within alpha / (1 - alpha) times that of the solution, in all.
        max_rounds: Most rounds.
        weights: The attribute that holds weights, as for :func:`mmsbgen.graph.as_arcs`.
        directed: As for :func:`mmsbgen.algorithms.bfs`.
        device: As for :func:`mmsbgen.algorithms.bfs`.
        database: As for :func:`mmsbgen.algorithms.bfs`.

    Returns:
        Scores ``[N, F]`` whose columns sum to 1 up to the tolerance, and the rounds.

    Raises:
        InputError: For unknown ids, no seed, values outside their range, and weights that are negative or not finite.
        ConvergenceError: If ``max_rounds`` rounds are not enough.
    """
    if not 0 < alpha < 1:
        raise InputError(f"alpha={alpha}: give a probability above 0 and below 1")
    check_tolerance(tolerance)
    arcs = as_arcs(graph, directed=directed, weights=weights)
    seeds = [seeds] if isinstance(seeds, str) else seeds
    check_weights(arcs)
    vertices, rows = restarts(arcs, seeds)
    total = totals(arcs)
    if arcs.directed:
        units = np.ones(arcs.n_vertices)
        scale = np.full(arcs.n_vertices, alpha)
    else:
        # Scores over the weight of a vertex obey x = alpha D^-1 W x + (1 - alpha) y / D.
        units = np.where(total > 0, total, 1.0)
        scale = np.where(total > 0, alpha, 0.0)
    size = float(units.sum())  # no number moves by more than a part of the tolerance that sums up to it
    rows = (1 - alpha) * rows / units[vertices][:, None]
    found = run_rounds(
        _divided(arcs, total),
        scale,
        vertices,
        rows,
        rule="seeded",
        largest=float(rows.max()) / (1 - alpha),
        tolerance=tolerance / size,
        max_rounds=max_rounds,
        changes=True,
        device=device,
        database=database,
    )
    if not found.converged:
        raise ConvergenceError(
            f"scores on {arcs.name} may still change by {found.residual * size:.3g} after {found.rounds} rounds, and "
            f"{tolerance:.3g} was asked for: allow more rounds by --max-rounds (max_rounds= in Python), or a larger "
            "tolerance"
        )
    scores = found.rows * units[:, None]
    # Walks that end at vertices without arcs begin again: the solution is in proportion.
    ending = total == 0
    lost = np.full(len(seeds), ending.any()) if arcs.directed else (rows[ending[vertices]] > 0).any(axis=0)
    scores[:, lost] /= scores[:, lost].sum(axis=0)
    return VertexValues(arcs.ids, scores, rounds=found.rounds)


#: What graphs that are in use become by division, which seeds of later calls walk on too.
_DIVIDED: WeakKeyDictionary[Arcs, Arcs] = WeakKeyDictionary()


def _divided(arcs: Arcs, total: NDArray[np.float64]) -> Arcs:
    """As :func:`divided`, made once for a graph that is in use."""
    if arcs not in _DIVIDED:
        if (found := divided(arcs, total)) is arcs:
            return arcs
        _DIVIDED[arcs] = found
    return _DIVIDED[arcs]


def restarts(arcs: Arcs, seeds: Sequence[Any]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The vertices where walks begin again ``[S]``, and their weights by seed ``[S, F]``, whose columns sum to 1."""
    if not 0 < len(seeds) <= MOST_FEATURES:
        raise InputError(f"{len(seeds)} seeds: give 1 to {MOST_FEATURES}")
    entries: list[tuple[int, int, float]] = []
    for number, seed in enumerate(seeds):
        given = seed if isinstance(seed, Mapping) else dict.fromkeys(seed if isinstance(seed, list) else [seed], 1.0)
        entries += [(arcs.vertex(name), number, float(weight)) for name, weight in given.items()]
    vertices, place = np.unique([v for v, _, _ in entries], return_inverse=True)
    need_host_memory(16 * vertices.size * len(seeds), f"weights of {plural(len(seeds), 'seed')}", "give fewer at once")
    rows: NDArray[np.float64] = np.zeros((vertices.size, len(seeds)))
    for at, (_, number, weight) in zip(place.tolist(), entries, strict=True):
        rows[at, number] += weight
    sums = rows.sum(axis=0)
    bad = ~((sums > 0) & np.isfinite(sums)) | (rows < 0).any(axis=0)
    if bad.any():
        at = int(np.argmax(bad))
        raise InputError(f"seed {seeds[at]!r}: its weights must have a positive finite sum, and none be negative")
    return vertices, rows / sums
