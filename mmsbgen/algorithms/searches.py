"""Searches from many vertices: what they read of the graph, 32 of them share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.algorithms.functions import VertexValues
from mmsbgen.algorithms.programs import programs
from mmsbgen.base.errors import InputError
from mmsbgen.base.host_memory import need_host_memory
from mmsbgen.base.id_text import plural
from mmsbgen.families.graph import inputs
from mmsbgen.families.graph.sweeps import MOST_SOURCES
from mmsbgen.graph.arc_sources import as_arcs
from mmsbgen.graph.arcs import Arcs


def multi_source_bfs(
    graph: Any,
    sources: Sequence[Any],
    *,
    directed: bool = False,
    device: str | None = None,
    database: str | Path | None = None,
) -> VertexValues:
    """Breadth-first searches: the number of arcs on a shortest path from each of ``sources`` to each vertex.

    Args:
        graph: Any graph that :func:`mmsbgen.graph.as_arcs` takes.
        sources: Ids of S vertices.
        directed: As for :func:`mmsbgen.algorithms.bfs`.
        device: As for :func:`mmsbgen.algorithms.bfs`.
        database: As for :func:`mmsbgen.algorithms.bfs`.

    Returns:
        Levels, int32 ``[N, S]``; -1 for vertices that cannot be reached.  Row minima without -1 are the distances from
        the nearest source.

    Raises:
        InputError: If one of ``sources`` is no vertex or there is none, or the graph cannot be read.
    """
    arcs = as_arcs(graph, directed=directed)
    starts = _vertices(arcs, sources)
    if starts.size == 0:
        raise InputError("there is no source; give at least one id")
    need_host_memory(4 * starts.size * arcs.n_vertices, f"levels from {plural(starts.size, 'source')}", "give fewer")
    found = np.empty((starts.size, arcs.n_vertices), np.int32)
    for first, level in _levels(arcs, starts, device, database):
        found[first : first + len(level)] = level
    return VertexValues(arcs.ids, found.T)


def closeness(
    graph: Any,
    vertices: Sequence[Any] | None = None,
    *,
    wf_improved: bool = True,
    directed: bool = False,
    device: str | None = None,
    database: str | Path | None = None,
) -> VertexValues:
    """Closeness: ``(r - 1) / s * (r - 1) / (N - 1)``, where r vertices reach a vertex and s sums up their distances.

    This is the definition of Wasserman and Faust, as networkx has it.

    Args:
        graph: Any graph that :func:`mmsbgen.graph.as_arcs` takes.
        vertices: Ids of the S vertices that it is found for; all by default.
        wf_improved: Whether the second factor counts.
        directed: As for :func:`mmsbgen.algorithms.bfs`.
        device: As for :func:`mmsbgen.algorithms.bfs`.
        database: As for :func:`mmsbgen.algorithms.bfs`.

    Returns:
        Closeness, float64 ``[S]``; 0 where nobody else reaches a vertex.

    Raises:
        InputError: If one of ``vertices`` is none, or the graph cannot be read.
    """
    arcs = as_arcs(graph, directed=directed).reversed
    n = arcs.n_vertices
    starts = np.arange(n) if vertices is None else _vertices(arcs, vertices)
    values: NDArray[np.float64] = np.zeros(starts.size)
    for first, level in _levels(arcs, starts, device, database):
        others = np.count_nonzero(level >= 0, axis=1) - 1
        total = level.sum(axis=1, dtype=np.int64) + (n - 1 - others)
        part, reached = values[first : first + len(level)], total > 0
        part[reached] = others[reached] / total[reached]
        if wf_improved:
            part[reached] *= others[reached] / (n - 1)
    return VertexValues(arcs.ids[starts], values)


def _vertices(arcs: Arcs, names: Sequence[Any]) -> NDArray[np.int64]:
    return np.array([arcs.vertex(name) for name in names], np.int64)


def _levels(
    arcs: Arcs, starts: NDArray[np.int64], device: str | None, database: str | Path | None
) -> Iterator[tuple[int, NDArray[np.int32]]]:
    """Levels from some of ``starts`` ``[S, N]``, -1 for NONE, with the place of the first of them; for all in turn."""
    if starts.size == 0:
        return
    state = inputs.state_of_searches(arcs, starts[:MOST_SOURCES])
    opened, at_once = programs(device, database), state["starts"].size
    with opened.running("searches", arcs, state, {}, opened.real) as on:
        for first in range(0, starts.size, at_once):
            part = starts[first : first + at_once]
            filled = np.full(at_once, part[-1], np.uint32)
            filled[: part.size] = part
            on.write("starts", filled)
            on.launch()
            yield first, on.read("level")[: part.size].view(np.int32)
