"""Communities of large graphs by local moving and contraction (Blondel et al. 2008), in threads.

Vertices move to the neighbouring community that raises modularity most, as long as many gain.  Then each community
becomes one vertex, and these move.  A vertex that came into the wrong community moves out of it only if the original
vertices move once more in the end (:func:`corrected`).

A round over the vertices goes by random batches: those of one batch move at once, by the communities before it.  Sums
are of whole numbers, so that equal seeds give equal communities with any number of threads.  A :data:`Mover` finds the
moves: in threads, or on a device (:mod:`mmsbgen.sampler.starts.device_moves`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mmsbgen.base.processes import cores, run_side_by_side, side_by_side
from mmsbgen.families.mmsb.starts.label_tables import NO_GAIN
from mmsbgen.graph.graph import Adjacency, numbers_of_ranges, repeated
from mmsbgen.graph.ids import in_order

__all__ = ["Mover", "Weighted", "coarsened", "corrected", "even_parts", "in_threads", "moved", "separated"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: Batches of a round, and most rounds.
_BATCHES, _ROUNDS = 8, 10
#: Share of the vertices with links below which so few move that a round is the last.
_LAST = 0.03
#: Links of those that move, for each vertex with links, above which all vertices are looked at in the next round.
_MANY = 2
#: Share of the vertices with links that a contraction leaves, above which it is the last.
_STUCK = 0.6
#: Fewest arcs that a thread takes at a time; with fewer, threads mostly wait for each other.
_ARCS = 1 << 15
#: Bits of the keys by which arcs are sorted.
_BITS = 63
#: Places of the tables of labels that are on a device at a time, of 8 bytes.
JOINED = 1 << 28
#: Link ends from which on vertices move in threads: devices add up weights in 32 bits.
MOST_ENDS = 1 << 32


@dataclass(frozen=True)
class Weighted:
    """An undirected graph whose links have weights, by vertex: those of vertex a are at ``offsets[a:a + 2]``.

    ``ends`` ``[A]`` are the other ends, without a itself.  ``weights`` ``[A]`` are whole numbers; None are ones.
    ``volumes`` ``[N]`` count the link ends of a vertex, with those of links that a contraction has put inside it.
    """

    offsets: Ints
    ends: npt.NDArray[Any]
    weights: npt.NDArray[np.uint32] | None
    volumes: Ints

    @classmethod
    def of(cls, adjacency: Adjacency) -> Weighted:
        """A graph without weights."""
        return cls(adjacency.offsets, adjacency.neighbours, None, adjacency.degrees)

    @cached_property
    def bits(self) -> int:
        """Bits of a weight, 0 if there are none."""
        return 0 if self.weights is None else int(self.weights.max(initial=1)).bit_length()

    @cached_property
    def linked(self) -> int:
        """Number of vertices with links to others."""
        return int(np.count_nonzero(np.diff(self.offsets)))

    def strongest(self, most: int) -> Weighted:
        """The graph with the links that are among the ``most`` strongest of an end; the others go inside the vertices.

        The strength of a link is its weight over that by chance, the product of the volumes; equal ones stay together.
        Volumes stay as they are.
        """
        count, counts = self.volumes.size, np.diff(self.offsets)
        if self.weights is None or self.ends.size <= most * count:
            return self
        weights, ends, by_chance, least = self.weights, self.ends, self.volumes.astype(np.float64), np.zeros(count)

        def weighed(part: slice) -> tuple[slice, Ints, Floats]:
            """The places of the links of some vertices, their vertices and strengths; in memory for a part only."""
            at = slice(self.offsets[part.start], self.offsets[part.stop])
            own = repeated(np.arange(part.start, part.stop), counts[part])
            return at, own, weights[at] / (by_chance[own] * by_chance[ends[at]])

        def look(part: slice) -> None:
            """Of each vertex the strength of the last link that stays."""
            at, _, strength = weighed(part)
            for vertex in (part.start + np.flatnonzero(counts[part] > most)).tolist():
                of_vertex = strength[self.offsets[vertex] - at.start : self.offsets[vertex + 1] - at.start]
                least[vertex] = np.partition(of_vertex, of_vertex.size - most)[of_vertex.size - most]

        def keep(part: slice) -> tuple[Ints, npt.NDArray[Any], npt.NDArray[np.uint32]]:
            at, own, strength = weighed(part)
            stays = strength >= np.minimum(least[own], least[ends[at]])
            numbers = np.bincount(own[stays] - part.start, minlength=part.stop - part.start)
            return numbers, ends[at][stays], weights[at][stays]

        parts = even_parts(counts, _ARCS)
        run_side_by_side(look, parts)
        numbers, others, sums = map(np.concatenate, zip(*side_by_side(keep, parts), strict=True))
        return Weighted(np.concatenate([[0], np.cumsum(numbers)]), others, sums, self.volumes)

    def arcs(self, vertices: Ints) -> tuple[Ints, Ints]:
        """Places ``[S]`` of the links of ``vertices`` ``[V]``, and the place of the vertex of each among them."""
        begin = self.offsets[vertices]
        counts = self.offsets[vertices + 1] - begin
        return numbers_of_ranges(begin, counts), repeated(np.arange(vertices.size), counts)

    def parts(self, vertices: Ints, bits: int) -> list[Ints]:
        """``vertices`` in parts for threads, few enough for their places to have ``bits`` bits."""
        ends = np.cumsum(self.offsets[vertices + 1] - self.offsets[vertices])
        whole = int(ends[-1]) if ends.size else 0
        step = max(_ARCS, min(4 * _ARCS, -(-whole // cores())))
        cuts = np.searchsorted(ends, np.arange(step, whole, step))
        cuts = np.union1d(cuts, np.arange(0, vertices.size, 1 << min(bits, 30)))
        return [part for part in np.split(vertices, cuts) if part.size]

    def sums(self, vertices: Ints, labels: Ints, bits: int) -> tuple[Ints, Ints, Ints]:
        """Weights of the links from ``vertices`` ``[V]`` to vertices of each label.

        Labels have ``bits`` bits.  Returns the place of the vertex, the label and the sum of each pair that there is,
        in this order.
        """
        at, own = self.arcs(vertices)
        keys = (own << bits) | labels[self.ends[at]]
        if self.weights is None:
            keys.sort()
            starts = _starts(keys)
            sums = np.diff(np.append(starts, keys.size))
        else:
            # The weights are sorted along in the lowest bits: far faster than by an order of the keys.
            keys = (keys << self.bits) | self.weights[at]
            keys.sort()
            weights = keys & ((1 << self.bits) - 1)
            keys >>= self.bits
            starts = _starts(keys)
            sums = _added(weights, starts)
        keys = keys[starts]
        return keys >> bits, keys & ((1 << bits) - 1), sums

    def left(self, bits: int) -> int:
        """Bits of a key beside a label of ``bits`` bits and a weight."""
        return max(0, _BITS - bits - self.bits)

    def contracted(self, labels: Ints) -> Weighted:
        """The graph with one vertex for each of the ``labels`` ``[N]``, which count from 0 without gaps."""
        from scipy.sparse import csr_array  # takes a tenth of a second

        count, small = int(labels.max()) + 1, labels.astype(np.uint32)
        of_label, order = in_order(labels)
        first = np.append(_starts(of_label), labels.size)
        weights = np.ones(self.ends.size, np.uint32) if self.weights is None else self.weights
        links = csr_array((weights, self.ends, self.offsets), (labels.size, labels.size))

        def of(part: slice) -> tuple[Ints, npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
            """How many links each of the communities has, their other ends and weights."""
            begin = first[part.start]
            rows = links[order[begin : first[part.stop]]]
            merged = csr_array(
                (rows.data, small[rows.indices], rows.indptr[first[part.start : part.stop + 1] - begin]),
                (part.stop - part.start, count),
            )
            merged.sum_duplicates()
            own = repeated(np.arange(part.start, part.stop, dtype=np.int32), np.diff(merged.indptr))
            merged.data[merged.indices == own] = 0
            merged.eliminate_zeros()
            return np.diff(merged.indptr), merged.indices.astype(np.uint32), merged.data

        arcs = np.bincount(labels, np.diff(self.offsets), count).astype(np.int64)
        found = list(side_by_side(of, even_parts(arcs, max(_ARCS, self.ends.size // (2 * cores())))))
        offsets = np.concatenate([[0], np.cumsum(np.concatenate([one[0] for one in found]))])
        others, sums = np.concatenate([one[1] for one in found]), np.concatenate([one[2] for one in found])
        volumes = np.bincount(labels, self.volumes, count).astype(np.int64)
        return Weighted(offsets, others, sums, volumes)


def even_parts(work: Ints, step: int) -> list[slice]:
    """Consecutive parts of items with ``work`` ``[N]``, of which each part has about ``step``."""
    ends = np.cumsum(work)
    cuts = np.unique([0, *np.searchsorted(ends, np.arange(step, int(ends[-1]), step), "right"), ends.size])
    return list(map(slice, cuts[:-1], cuts[1:]))


def _starts(ascending: Ints) -> Ints:
    """Where equal values begin."""
    return np.flatnonzero(np.concatenate([[True], ascending[1:] != ascending[:-1]])) if ascending.size else ascending


def _added(values: Ints, starts: Ints) -> Ints:
    return np.add.reduceat(values, starts) if starts.size else values


class Moving(Protocol):
    """Labels of the vertices of a graph, which move."""

    def move(self, vertices: Ints) -> None:
        """Each of ``vertices`` ``[V]``, ascending, gets the label by which it gains most, the smallest of equal ones.

        Those that gain nothing stay.  All move at once, by the labels before.
        """

    def labels(self) -> Ints:
        """The labels ``[N]``."""

    def contracted(self, labels: Ints) -> Weighted:
        """As :meth:`Weighted.contracted`, with the links of a vertex in any order; nothing moves after it."""


#: Takes a graph, costs ``[N]`` and labels ``[N]``, whole numbers below N, and moves while its context is open.
Mover = Callable[[Weighted, Floats, Ints], AbstractContextManager[Moving]]


@contextmanager
def in_threads(graph: Weighted, costs: Floats, labels: Ints) -> Iterator[Moving]:
    """Finds moves in threads."""
    yield _InThreads(graph, costs, labels)


class _InThreads:
    def __init__(self, graph: Weighted, costs: Floats, labels: Ints) -> None:
        self._graph, self._costs, self._labels = graph, costs, labels.copy()
        self._volumes = np.bincount(labels, graph.volumes, labels.size).astype(np.int64)
        self._bits = labels.size.bit_length()

    def move(self, vertices: Ints) -> None:
        graph, labels, volumes = self._graph, self._labels, self._volumes

        def of(part: Ints) -> tuple[Ints, Ints]:
            return _moves(graph, part, labels, volumes, self._costs, self._bits)

        for movers, to in list(side_by_side(of, graph.parts(vertices, graph.left(self._bits)))):
            np.subtract.at(volumes, labels[movers], graph.volumes[movers])
            np.add.at(volumes, to, graph.volumes[movers])
            labels[movers] = to

    def labels(self) -> Ints:
        return self._labels.copy()

    def contracted(self, labels: Ints) -> Weighted:
        return self._graph.contracted(labels)


def moved(
    graph: Weighted,
    costs: float | Floats,
    rng: np.random.Generator,
    labels: Ints | None = None,
    mover: Mover = in_threads,
) -> Ints:
    """Labels ``[N]`` after local moving; they count from 0 without gaps.

    It goes from ``labels`` ``[N]``, whole numbers below N, or else from communities of single vertices.

    A vertex of volume d gains by a community of volume V the weight of its links to it, less ``costs`` d V.  Costs may
    differ between components ``[N]``.  With the resolution over the number of all link ends they are modularity's.
    """
    labels = np.arange(graph.volumes.size) if labels is None else labels
    with mover(graph, _each(graph, costs), labels) as moving:
        return _rounds(graph, rng, labels, moving)


def merged(
    graph: Weighted,
    costs: float | Floats,
    rng: np.random.Generator,
    labels: Ints | None = None,
    mover: Mover = in_threads,
) -> tuple[Ints, Weighted, Floats]:
    """As :func:`moved`; and the graph contracted by the labels, with its costs."""
    labels, costs = np.arange(graph.volumes.size) if labels is None else labels, _each(graph, costs)
    with mover(graph, costs, labels) as moving:
        labels = _rounds(graph, rng, labels, moving)
        smaller = moving.contracted(labels)
    of_smaller = np.zeros(smaller.volumes.size)
    of_smaller[labels] = costs
    return labels, smaller, of_smaller


def _each(graph: Weighted, costs: float | Floats) -> Floats:
    return np.broadcast_to(np.asarray(costs, np.float64), graph.volumes.shape)


def _rounds(graph: Weighted, rng: np.random.Generator, labels: Ints, moving: Moving) -> Ints:
    degrees = np.diff(graph.offsets)
    active, last = degrees > 0, int(_LAST * graph.linked)

    def wake(vertices: Ints) -> None:
        active[graph.ends[graph.arcs(vertices)[0]]] = True

    for _ in range(_ROUNDS):
        waiting = np.flatnonzero(active)
        batch_of = rng.integers(_BATCHES, size=waiting.size, dtype=np.uint8)
        in_batches = waiting[np.argsort(batch_of, kind="stable")]
        for batch in np.split(in_batches, np.cumsum(np.bincount(batch_of, minlength=_BATCHES))[:-1]):
            moving.move(batch)
        before, labels = labels, moving.labels()
        movers = np.flatnonzero(labels != before)
        if movers.size <= last:
            break
        # The neighbours of those that move may move in the next round: of many that is nearly everybody.
        many = int(degrees[movers].sum()) > _MANY * graph.linked
        active[:] = many & (degrees > 0)
        if not many:
            run_side_by_side(wake, graph.parts(movers, 30))
    return _numbered(labels)


def _moves(graph: Weighted, vertices: Ints, labels: Ints, volumes: Ints, costs: Floats, bits: int) -> tuple[Ints, Ints]:
    """Those of ``vertices`` that gain by a move, and the label with the largest gain, the smallest of equal ones."""
    at, others, weights = graph.sums(vertices, labels, bits)
    if not at.size:
        return vertices[:0], vertices[:0]
    own, volume = labels[vertices], graph.volumes[vertices]
    stays, cost = others == own[at], costs[vertices] * volume
    gains = weights - cost[at] * volumes[others]
    # Without the vertex itself; one without a link to its own community gains less than nothing by it.
    before, stays = -cost * (volumes[own] - volume), np.flatnonzero(stays)
    gains[stays] += (cost * volume)[at[stays]]
    before[at[stays]] = gains[stays]
    starts = _starts(at)
    most, there = np.maximum.reduceat(gains, starts), at[starts]
    largest = np.flatnonzero(gains == most[repeated(np.arange(most.size), np.diff(np.append(starts, at.size)))])
    to = others[largest[_starts(at[largest])]]
    better = most > before[there] + NO_GAIN * np.maximum(1.0, np.abs(most))
    return vertices[there[better]], to[better]


def _numbered(labels: Ints) -> Ints:
    """The labels from 0 without gaps, in their order."""
    used = np.zeros(int(labels.max(initial=-1)) + 1, np.bool_)
    used[labels] = True
    return (np.cumsum(used) - 1)[labels]


def coarsened(
    graph: Weighted, costs: float | Floats, seed: int, least: int = 0, most: int = 0, mover: Mover = in_threads
) -> tuple[Ints, Weighted]:
    """Labels ``[N]`` of communities, and the graph contracted by them; ``costs`` are as for :func:`moved`.

    It ends when at most ``most`` vertices with links are left, or when a contraction leaves most of those that there
    were.  A contraction to less than ``least`` is taken back, unless it is the first.
    """
    rng, labels = np.random.Generator(np.random.PCG64([seed, 7])), None
    while True:
        of_vertices, smaller, costs_there = merged(graph, costs, rng, mover=mover)
        if labels is not None and smaller.linked < least:
            return labels, graph
        stuck = smaller.linked > _STUCK * graph.linked
        labels = of_vertices if labels is None else of_vertices[labels]
        graph, costs = smaller, costs_there
        if stuck or graph.linked <= most:
            return labels, graph


def corrected(graph: Weighted, labels: Ints, costs: float | Floats, seed: int, mover: Mover = in_threads) -> Ints:
    """Labels ``[N]`` after the vertices themselves move from the communities ``labels`` ``[N]`` of contractions."""
    return moved(graph, costs, _correcting(seed), labels, mover)


def _correcting(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([seed, 8]))


def separated(graph: Weighted, costs: Floats, seed: int, mover: Mover = in_threads) -> Ints:
    """Labels ``[N]`` of communities by contraction and correction, twice; ``costs`` ``[N]`` are as for :func:`moved`.

    After the first correction many communities that looked apart can be merged.
    """
    labels = coarsened(graph, costs, seed, mover=mover)[0]
    labels, smaller, of_smaller = merged(graph, costs, _correcting(seed), labels, mover)
    return corrected(graph, coarsened(smaller, of_smaller, seed, mover=mover)[0][labels], costs, seed, mover)
