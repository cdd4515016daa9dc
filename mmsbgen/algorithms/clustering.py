"""Triangles, and how many of the pairs of a vertex's neighbours are linked."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.algorithms.functions import VertexValues
from mmsbgen.algorithms.programs import programs
from mmsbgen.families.graph import inputs
from mmsbgen.families.graph.messages.message_kernels import simple
from mmsbgen.graph.arc_sources import as_arcs


@dataclass(frozen=True, eq=False)
class Triangles(VertexValues):
    """Triangles of each vertex in ``values``, int64 ``[N]``.

    Attributes:
        degrees: Neighbours of each vertex, int64 ``[N]``.
    """

    degrees: NDArray[np.int64] = field(kw_only=True)

    @property
    def total(self) -> int:
        """The triangles of the graph; each is one of three vertices."""
        return int(self.values.sum()) // 3

    @property
    def clustering(self) -> NDArray[np.float64]:
        """The linked share of pairs of a vertex's neighbours, ``2 T / (d (d - 1))``, ``[N]``; 0 for d < 2."""
        pairs = self.degrees * (self.degrees - 1)
        found: NDArray[np.float64] = np.zeros(pairs.size)
        np.divide(2 * self.values, pairs, out=found, where=pairs > 0)
        return found

    @property
    def transitivity(self) -> float:
        """The linked share of all pairs of neighbours: the sum of 2 T over that of d (d - 1); 0 without pairs."""
        pairs = int((self.degrees * (self.degrees - 1)).sum())
        return 2 * int(self.values.sum()) / pairs if pairs else 0.0


def triangles(graph: Any, *, device: str | None = None, database: str | Path | None = None) -> Triangles:
    """Triangles: the pairs of each vertex's neighbours that are linked themselves.

    Directions, self-loops and parallel links do not count.  The arguments are those of :func:`bfs`.

    Returns:
        Triangles and degrees, from which ``clustering`` and ``transitivity`` follow.

    Raises:
        InputError: If the graph cannot be read.
    """
    arcs = simple(as_arcs(graph))
    if arcs.n_arcs == 0:
        nothing: NDArray[np.int64] = np.zeros(arcs.n_vertices, np.int64)
        return Triangles(arcs.ids, nothing, degrees=nothing)
    (found,) = programs(device, database).run("triangles", arcs, inputs.state_of_triangles(arcs), "found")
    low, high = found.astype(np.int64).T
    return Triangles(arcs.ids, low + (high << 32), degrees=arcs.degrees)
