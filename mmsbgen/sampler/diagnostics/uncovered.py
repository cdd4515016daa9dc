"""Communities for vertices that the rule puts into none: the best explained one, or their whole component."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.processes import run_side_by_side, side_by_side
from mmsbgen.graph.graph import AT_A_TIME, Adjacency, numbers_of_ranges
from mmsbgen.graph.ids import in_order, number_integers
from mmsbgen.sampler.diagnostics.explained_links import Array, Ints, RowSource, explained_at
from mmsbgen.sampler.diagnostics.memberships import Memberships

Bools = NDArray[np.bool_]

#: Fewest vertices of a connected component that is a community by itself.
_SMALLEST = 2
#: Most levels of the search for the largest component, and neighbours that are looked at together.
_LEVELS, _PART = 64, 1 << 20
#: Links to uncovered vertices that are looked at together, about.
_BORDER = 1 << 22


def attached(m: Memberships, rows: RowSource, links: Array, vertices: Ints, communities: Ints) -> tuple[Ints, Ints]:
    """Memberships ``[A]`` of uncovered vertices in the community of a neighbour that explains most of their links.

    ``vertices`` and ``communities`` ``[S]`` are the memberships that there are.  A neighbour's community explains its
    share of p(link) (:func:`mmsbgen.sampler.diagnostics.explained_links.explained_at`).  Vertices attached in one pass
    count as neighbours in the next, so that no vertex with a path to a community stays without one.
    """
    n = len(m.indices)
    new_vertices, new_communities = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    covered = np.zeros(n, bool)
    covered[vertices] = True
    links = _those(links, covered, lambda inside: ~(inside[:, 0] & inside[:, 1]))
    while True:
        border = _those(links, covered, lambda inside: inside[:, 0] != inside[:, 1])
        if not len(border):
            return np.concatenate(new_vertices), np.concatenate(new_communities)
        for first in range(0, len(border), AT_A_TIME):  # the uncovered ends come first
            part = border[first : first + AT_A_TIME]
            part[:] = np.where(covered[part[:, 0], None], part[:, ::-1], part)
        found, best = _best(m, rows, border, vertices, communities)
        new_vertices.append(found)
        new_communities.append(best)
        vertices, communities = np.concatenate([vertices, found]), np.concatenate([communities, best])
        covered[found] = True


def _those(links: Array, covered: Bools, wanted: Callable[[Bools], Bools]) -> Array:
    """A copy of the ``links`` ``[E, 2]`` that are ``wanted`` by whether their ends are ``covered``, ``[P, 2]``."""

    def those(first: int) -> Array:
        part = links[first : first + AT_A_TIME]
        return part[wanted(covered[part])]

    return np.concatenate([links[:0], *side_by_side(those, range(0, len(links), AT_A_TIME))])


def _best(m: Memberships, rows: RowSource, border: Array, vertices: Ints, communities: Ints) -> tuple[Ints, Ints]:
    """The first ends of ``border`` ``[B, 2]``, each once, and the community that explains most of their links."""
    n = len(m.indices)
    order = in_order(vertices)[1]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(vertices, minlength=n))])
    rank = np.arange(order.size) - offsets[vertices[order]]
    at = np.zeros((n, int(rank.max()) + 1), np.int32)
    at[vertices[order], rank] = communities[order]
    sizes, found = np.diff(offsets), []
    step = max(1, n * _BORDER // len(border))
    for first_vertex in range(0, n, step):
        own = (border[:, 0] >= first_vertex) & (border[:, 0] < first_vertex + step)
        keys, shares = [np.zeros(0, np.int64)], [np.zeros(0)]
        for ends, parts in explained_at(border[own], rows, m.beta, m.delta, at):
            inner = ends[:, 1]
            there = np.arange(at.shape[1]) < sizes[inner, None]
            keys.append((ends[:, 0, None] * m.width + at[inner])[there])
            shares.append(parts[:, 1].astype(np.float64)[there])
        pairs, index = number_integers(np.concatenate(keys))
        total = np.bincount(index, np.concatenate(shares))
        outer, community = np.divmod(pairs, m.width)
        ranked = np.lexsort((community, -total, outer))
        first = ranked[np.unique(outer[ranked], return_index=True)[1]]
        found.append((outer[first], community[first]))
    outer, community = map(np.concatenate, zip(*found, strict=True))
    return outer, community


def components_of(n_vertices: int, links: Array, adjacency: Adjacency | None = None) -> Ints:
    """The number of each vertex's connected component, ``[N]``, ascending by the components' first vertices.

    ``adjacency`` of some of the ``links`` ``[E, 2]`` saves time: a breadth-first search over it finds most of the
    largest component.
    """
    labels, count, step = np.arange(n_vertices), n_vertices, max(AT_A_TIME, n_vertices)
    if adjacency is not None and adjacency.neighbours.size:
        reached = _reached(adjacency)
        if reached.all():
            return np.zeros(n_vertices, np.int64)
        labels[reached] = reached.argmax()

    def apart(begin: int) -> Ints:
        ends = labels[links[begin : begin + AT_A_TIME]]
        return np.compress(ends[:, 0] != ends[:, 1], ends, axis=0)

    # A part of the links joins the components of the parts before it, so that few soon have ends in two.
    for first in range(0, len(links), step):
        parts = range(first, min(first + step, len(links)), AT_A_TIME)
        ends = np.concatenate([np.zeros((0, 2), np.int64), *side_by_side(apart, parts)])
        if len(ends):
            joined = _joined(count, ends)
            count, labels = int(joined.max()) + 1, joined[labels]
    return labels


def _joined(count: int, ends: Ints) -> Ints:
    """The number of the connected component of each of ``count`` nodes, by links ``ends`` ``[L, 2]`` between them.

    Components are numbered by their least nodes.
    """
    # Every node takes the least one beside it.  A least node that joins no other one is beside a lesser one in the next
    # round, so that two rounds leave at most half of the nodes of a component.
    least = nodes = np.arange(count)
    while len(ends):
        least = least.copy()
        np.minimum.at(least, np.maximum(*ends.T), np.minimum(*ends.T))
        while ((further := least[least]) != least).any():
            least = further
        ends = least[ends]
        ends = np.compress(ends[:, 0] != ends[:, 1], ends, axis=0)
    return (np.cumsum(least == nodes) - 1)[least]


def _reached(adjacency: Adjacency) -> Bools:
    """The vertices that at most ``_LEVELS`` steps lead to from the most linked one, ``[N]``."""
    offsets, found = adjacency.offsets, np.array([adjacency.degrees.argmax()])
    reached = np.zeros(adjacency.n_vertices, bool)
    reached[found] = True

    def reach(part: tuple[Ints, Ints]) -> None:
        vertices, counts = part  # threads may write the same value to one place
        reached[adjacency.neighbours[numbers_of_ranges(offsets[vertices], counts)]] = True

    for _ in range(_LEVELS):
        before, counts = reached.copy(), adjacency.degrees[found]
        level = zip(np.split(found, cuts := _cuts(counts)), np.split(counts, cuts), strict=True)
        run_side_by_side(reach, level)
        found = np.flatnonzero(reached & ~before)
        if not found.size:
            break
    return reached


def _cuts(counts: Ints) -> Ints:
    """Where parts of about ``_PART`` neighbours begin, but the first."""
    ends = np.cumsum(counts)
    return np.searchsorted(ends, np.arange(_PART, ends[-1], _PART))


def in_one_component(labels: Ints, vertices: Ints, communities: Ints) -> tuple[Ints, Ints]:
    """The memberships ``[S]`` without those of vertices that no path joins to most of the community's members.

    With fewer communities than components, the model puts components together that have nothing in common.  ``labels``
    are those of :func:`components_of`.
    """
    most = int(np.bincount(labels).argmax()) if labels.size else 0
    apart = np.zeros(int(communities.max(initial=0)) + 1, bool)
    apart[communities[labels[vertices] != most]] = True
    there = np.flatnonzero(apart[communities])
    number = int(labels.max(initial=0)) + 1
    keys = communities[there] * number + labels[vertices[there]]
    parts, index, sizes = np.unique(keys, return_inverse=True, return_counts=True)
    order = np.lexsort((-sizes, parts // number))
    largest = np.zeros(parts.size, bool)
    largest[order[np.unique(parts[order] // number, return_index=True)[1]]] = True
    kept = np.ones(vertices.size, bool)
    kept[there] = largest[index]
    return vertices[kept], communities[kept]


def small_components(labels: Ints, covered: Ints) -> list[Ints]:
    """The connected components of 2 to N/2 vertices without a vertex of ``covered``, as sorted vertex numbers."""
    sizes = np.bincount(labels)
    wanted = (sizes >= _SMALLEST) & (sizes <= labels.size / 2)
    wanted[labels[covered]] = False
    vertices = np.flatnonzero(wanted[labels])
    if not vertices.size:
        return []
    order = np.argsort(labels[vertices], kind="stable")
    return np.split(vertices[order], np.cumsum(sizes[wanted])[:-1])
