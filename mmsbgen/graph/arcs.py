"""A graph as arcs: directed or not, with or without weights, with self-loops and parallel arcs.

Graph algorithms read it; :class:`mmsbgen.graph.Graph`, the input of community detection, is simple and undirected.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import plural
from mmsbgen.graph.building import check_count
from mmsbgen.graph.graph import numbers_of_ranges, pack_pairs, read_only

#: Places of arcs are 32-bit on the device.
MOST_ARCS = 2**32 - 1


@dataclass(frozen=True, eq=False)
class Arcs:
    """Arcs in compressed sparse rows; a link of an undirected graph is two arcs.

    offsets
        ``[N + 1]`` uint32: the arcs of vertex ``a`` are at ``offsets[a] .. offsets[a + 1]``.
    targets
        ``[A]`` uint32, the vertex that each arc leads to.
    ids
        ``[N]``, id of each vertex in the input.
    weights
        ``[A]`` float64, or None for a graph without weights.
    """

    offsets: NDArray[np.uint32]
    targets: NDArray[np.uint32]
    ids: NDArray[Any]
    weights: NDArray[np.float64] | None = None
    directed: bool = False
    name: str = field(default="graph")

    def __post_init__(self) -> None:
        for key in ("offsets", "targets", "weights"):
            if (array := getattr(self, key)) is not None:
                object.__setattr__(self, key, read_only(array))

    def __repr__(self) -> str:
        kind = "directed" if self.directed else "undirected"
        return f"<Arcs: {kind}, {plural(self.n_vertices, 'vertex', 'vertices')}, {plural(self.n_arcs, 'arc')}>"

    @property
    def n_vertices(self) -> int:
        """N, the number of vertices."""
        return int(self.offsets.size - 1)

    @property
    def n_arcs(self) -> int:
        """A, the number of arcs."""
        return int(self.targets.size)

    @cached_property
    def degrees(self) -> NDArray[np.int64]:
        """The number of arcs from every vertex, int64 ``[N]``."""
        offsets = self.offsets.astype(np.int64)
        return offsets[1:] - offsets[:-1]

    @cached_property
    def sources(self) -> NDArray[np.uint32]:
        """The vertex that each arc comes from, uint32 ``[A]``."""
        return np.repeat(np.arange(self.n_vertices, dtype=np.uint32), self.degrees)

    def out_of(self, vertices: NDArray[Any]) -> NDArray[np.int64]:
        """The places of the arcs out of some vertices ``[S]``, one vertex after another; as many as their degrees."""
        return numbers_of_ranges(self.offsets[vertices], self.degrees[vertices])

    def to_scipy(self) -> Any:
        """The graph as a ``scipy.sparse.csr_array`` float64 ``[N, N]``: entry (u, v) is the weight from u to v, or 1.

        Parallel arcs are entries of their own; ``sum_duplicates`` of the result adds them up.
        """
        from scipy.sparse import csr_array  # takes a tenth of a second, and most commands load this module

        data = np.ones(self.n_arcs) if self.weights is None else self.weights.copy()
        return csr_array((data, self.targets, self.offsets), shape=(self.n_vertices,) * 2)

    @property
    def reversed(self) -> Arcs:
        """The same graph with every arc turned round; an undirected graph is its own."""
        return self._turned if self.directed else self  # self in a cache would be a cycle, which delays its release

    @cached_property
    def _turned(self) -> Arcs:
        return arcs_of_pairs(self.targets, self.sources, self.ids, self.weights, directed=True, name=self.name)

    @property
    def both_ways(self) -> Arcs:
        """Every arc of a directed graph together with the opposite one; an undirected graph unchanged."""
        return self._doubled if self.directed else self

    @cached_property
    def _doubled(self) -> Arcs:
        first, second = np.concatenate([self.sources, self.targets]), np.concatenate([self.targets, self.sources])
        return arcs_of_pairs(first, second, self.ids, directed=False, name=self.name)

    @cached_property
    def numbers(self) -> dict[Any, int]:
        """The number of each vertex by its id."""
        return {name: vertex for vertex, name in enumerate(self.ids.tolist())}

    def vertex(self, name: Any) -> int:
        """The vertex with an id; text finds an integer id too.  Raises :class:`InputError` for an unknown one."""
        try:
            if name in self.numbers:
                return self.numbers[name]
            if isinstance(name, str) and int(name) in self.numbers:
                return self.numbers[int(name)]
        except (TypeError, ValueError):
            pass
        some = ", ".join(map(repr, self.ids[:3].tolist()))
        raise InputError(f"{name!r} is no vertex of {self.name}; its ids are such as {some or 'none: it is empty'}")

    def shown(self, vertex: int) -> str:
        """The id of a vertex as messages show it."""
        return repr(self.ids[vertex : vertex + 1].tolist()[0])

    @cached_property
    def n_loops(self) -> int:
        """The number of arcs from a vertex to itself."""
        return int(np.count_nonzero(self.sources == self.targets))


def check_arcs(n_arcs: int, name: str) -> None:
    """Raise :class:`InputError` for more arcs than can be numbered."""
    if n_arcs > MOST_ARCS:
        raise InputError(f"{name}: {n_arcs} arcs; at most {MOST_ARCS} can be numbered in 32 bits")


def arcs_of_pairs(
    first: NDArray[Any],
    second: NDArray[Any],
    ids: NDArray[Any],
    weights: NDArray[Any] | None = None,
    *,
    directed: bool,
    name: str = "graph",
) -> Arcs:
    """The arcs ``first[i] -> second[i]`` ``[A]`` as :class:`Arcs`; for an undirected graph both of a link are given.

    Raises:
        InputError: If vertices or arcs are too many for 32 bits.
    """
    check_count(int(ids.size), name)
    check_arcs(first.size, name)
    if not np.all(first[1:] >= first[:-1]):
        order = np.argsort(pack_pairs(first, second), kind="stable")
        first, second = first[order], second[order]
        weights = None if weights is None else weights[order]
    offsets = np.zeros(ids.size + 1, np.uint32)
    np.cumsum(np.bincount(first, minlength=ids.size), out=offsets[1:])
    return Arcs(
        offsets,
        np.ascontiguousarray(second, np.uint32),
        ids,
        None if weights is None else np.ascontiguousarray(weights, np.float64),
        directed,
        name,
    )
