"""An undirected simple graph with the vertex ids of the input.

Vertices are numbered ``0 .. n_vertices - 1`` inside the package; ``Graph.ids[a]`` is the user's id of vertex ``a``.
Links are unordered pairs, stored once with ``u < v``.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.id_text import canonical_text, plain, plural
from mmsbgen.base.processes import run_side_by_side, side_by_side

Int64Array = NDArray[np.int64]
UInt32Array = NDArray[np.uint32]
UInt64Array = NDArray[np.uint64]

#: Vertices are 32-bit on the device; the largest 32-bit value is reserved for "no vertex".
MAX_VERTICES = 2**32 - 1

#: Links that a thread takes at a time.
AT_A_TIME = 1 << 19
#: Most ranges of vertices of an adjacency while it is made, and links of a range (a power of two).
_RANGES, _RANGE_LINKS = 4096, 18
_SHIFT = np.uint64(32)
_LOW = np.uint64(0xFFFF_FFFF)


class GraphWarning(UserWarning):
    """The input was read, but may not be an undirected simple graph."""


def pack_pairs(first: NDArray[Any], second: NDArray[Any]) -> UInt64Array:
    """Return ``first << 32 | second`` as uint64; both arrays hold integers in ``[0, 2**32)`` of one shape."""
    packed: UInt64Array = first.astype(np.uint64)
    packed <<= _SHIFT
    np.bitwise_or(packed, second, out=packed, dtype=np.uint64, casting="unsafe")
    return packed


def links_of(keys: UInt64Array) -> UInt32Array:
    """The pairs ``[H, 2]`` that :func:`pack_pairs` packed into ``keys`` ``[H]``, uint32, in the memory of these."""
    if sys.byteorder == "little":
        for begin in range(0, keys.size, AT_A_TIME):
            part = keys[begin : begin + AT_A_TIME]
            part[:] = part << _SHIFT | part >> _SHIFT
    return keys.view(np.uint32).reshape(-1, 2)


def unpack_pairs(keys: UInt64Array) -> Int64Array:
    """Return the pairs ``[H, 2]`` int64 that :func:`pack_pairs` packed into ``keys`` ``[H]`` uint64."""
    pairs = np.empty((keys.size, 2), dtype=np.int64)
    np.right_shift(keys, _SHIFT, out=pairs[:, 0], casting="unsafe")
    np.bitwise_and(keys, _LOW, out=pairs[:, 1], casting="unsafe")
    return pairs


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view of ``array``."""
    view = array.view()
    view.flags.writeable = False
    return view


def repeated(values: NDArray[Any], counts: NDArray[Any]) -> NDArray[Any]:
    """As ``np.repeat`` of whole numbers, ``[sum(counts)]``, which would keep other threads from computing."""
    some = np.flatnonzero(counts)
    ends, values = np.cumsum(counts[some]), values[some]
    found = np.zeros(ends[-1] if ends.size else 0, values.dtype)
    found[:1], found[ends[:-1]] = values[:1], np.diff(values)
    return np.cumsum(found, dtype=values.dtype, out=found)


def numbers_of_ranges(begins: NDArray[Any], counts: NDArray[Any]) -> Int64Array:
    """The whole numbers of ranges, one after another: ``counts[i]`` from ``begins[i]`` on, ``[sum(counts)]``."""
    ends = np.cumsum(counts)
    found = repeated((begins - (ends - counts)).astype(np.int64), counts)
    found += np.arange(found.size)
    return found


def links_without(links: NDArray[Any], places: Int64Array, begin: int, end: int) -> NDArray[Any]:
    """``links[begin:end]`` of ``links`` ``[E, 2]``, C-contiguous, without those at ``places`` ``[P]``, ascending."""
    part, at = links[begin:end], places[slice(*np.searchsorted(places, [begin, end]))]
    if not at.size:
        return part
    # Whole rows as one element each are copied far faster than by an axis.
    rows = part.view(np.dtype((np.void, 2 * part.itemsize))).reshape(-1)
    return np.delete(rows, at - begin).view(part.dtype).reshape(-1, 2)


@dataclass(frozen=True, eq=False)
class Adjacency:
    """Adjacency of an undirected graph in compressed sparse rows.

    ``offsets`` is int64 ``[N + 1]`` and ``neighbours`` uint32 ``[2 E]``: the neighbours of vertex ``a`` are
    ``neighbours[offsets[a]:offsets[a + 1]]``, ascending.  Both arrays are read-only and contiguous.
    """

    offsets: Int64Array
    neighbours: UInt32Array

    @staticmethod
    def from_pairs(pairs: NDArray[Any], n_vertices: int, without: Int64Array | None = None) -> Adjacency:
        """Adjacency of distinct pairs ``[E, 2]``, u < v, in lexicographic order; raises ValueError for others.

        The pairs at the places ``without``, ascending, are left out.
        """
        out = np.zeros(0, np.int64) if without is None else without
        # The pairs are first put in order by ranges of v, then within each range: both by 16 bits, which are sorted by
        # digits.  The order of u stays.
        ranges = min(_RANGES, max(1, len(pairs) >> _RANGE_LINKS))
        shift = min(16, max(0, max(n_vertices - 1, 1).bit_length() - ranges.bit_length()))
        firsts = np.minimum(np.arange(0, n_vertices + (1 << shift), 1 << shift), n_vertices)
        count = firsts.size - 1

        def counted(begin: int) -> NDArray[np.int32]:
            """How many pairs of a part each range has."""
            keys = pack_pairs(*pairs[max(0, begin - 1) : begin + AT_A_TIME].T)  # with the one before them
            u, v = links_without(pairs, out, begin, begin + AT_A_TIME).T
            if (keys[1:] <= keys[:-1]).any() or (u >= v).any():
                raise ValueError("pairs u < v must be distinct and in lexicographic order")
            return np.bincount(v >> v.dtype.type(shift), minlength=count).astype(np.int32)

        begins_of_parts = range(0, len(pairs), AT_A_TIME)
        sizes = np.array([np.zeros(count, np.int32), *side_by_side(counted, begins_of_parts)])
        # Where the pairs of each range begin, and those of each part in it.
        of_ranges = np.concatenate([[0], np.cumsum(sizes.sum(axis=0, dtype=np.int64))])
        starts = of_ranges[:-1] + np.cumsum(sizes, axis=0, dtype=np.int64)[:-1]
        smaller, places = np.empty(of_ranges[-1], np.uint32), np.empty(of_ranges[-1], np.uint16)

        def scatter(number: int) -> None:
            """Writes the smaller ends of a part by the range of the larger one, and the larger one's place there."""
            begin = begins_of_parts[number]
            u, v = links_without(pairs, out, begin, begin + AT_A_TIME).T
            order = np.argsort((v >> v.dtype.type(shift)).astype(np.uint16), kind="stable")
            to = numbers_of_ranges(starts[number], sizes[number + 1])
            smaller[to] = u[order]
            places[to] = (v & v.dtype.type((1 << shift) - 1))[order]

        run_side_by_side(scatter, range(len(begins_of_parts)))
        # The pairs of each range by u, without those left out.
        ends = np.searchsorted(pairs[:, 0], firsts.astype(pairs.dtype))
        larger = np.diff(ends) - np.diff(np.searchsorted(out, ends))
        begins = of_ranges + np.concatenate([[0], np.cumsum(larger)])
        neighbours = np.empty(int(begins[-1]), np.uint32)

        def rows_of(number: int) -> Int64Array:
            """The degrees of the vertices of a range, whose rows it writes."""
            n, here = int(firsts[number + 1] - firsts[number]), slice(*of_ranges[number : number + 2])
            place = places[here]
            first, second = links_without(pairs, out, *ends[number : number + 2]).T
            counts = np.stack(
                [np.bincount(place, minlength=n), np.bincount(first - firsts[number], minlength=n)], axis=1
            )
            rows = neighbours[begins[number] : begins[number + 1]]
            is_smaller = repeated((np.arange(2 * n) % 2 == 0).view(np.uint8), counts.ravel()).view(bool)
            rows[is_smaller], rows[~is_smaller] = smaller[here][np.argsort(place, kind="stable")], second
            found: Int64Array = counts.sum(axis=1)
            return found

        degrees = np.concatenate([out[:0], *side_by_side(rows_of, range(count))])
        return Adjacency(read_only(np.concatenate([[0], np.cumsum(degrees)])), read_only(neighbours))

    def __repr__(self) -> str:
        return (
            f"<Adjacency: {plural(self.n_vertices, 'vertex', 'vertices')}, {plural(self.neighbours.size // 2, 'link')}>"
        )

    @property
    def n_vertices(self) -> int:
        """N, the number of vertices."""
        return self.offsets.size - 1

    @cached_property
    def degrees(self) -> Int64Array:
        """Degree of every vertex, int64 ``[N]``."""
        return read_only(np.diff(self.offsets))

    def row(self, vertex: int) -> UInt32Array:
        """Neighbours of one vertex, ascending, uint32 ``[degree]`` (a view)."""
        return self.neighbours[self.offsets[vertex] : self.offsets[vertex + 1]]


def by_degree(offsets: NDArray[Any]) -> UInt32Array:
    """The vertices of a range that have links, those with many first, so that they do not delay the end of a launch."""
    degrees = np.diff(offsets.astype(np.int64))
    number = np.uint16 if (most := degrees.max(initial=0)) < 1 << 16 else np.int64  # 16 bits are sorted by digits
    in_order = np.argsort((most - degrees).astype(number), kind="stable").astype(np.uint32)
    return in_order[: np.count_nonzero(degrees)]


@dataclass(frozen=True)
class LoadReport:
    """Counts of the lines, links and vertices of the input.

    ``n_lines`` counts link lines (rows, entries, edges) of the input:
    ``n_lines = n_links + n_self_loops + n_duplicates``.  A link listed in both directions counts as one
    duplicate; ``n_both_ways`` counts such links.  ``directed`` is True if the input may be directed (or
    certainly, if its type says so).  ``n_isolated`` counts vertices without a link.
    """

    n_lines: int
    n_self_loops: int
    n_duplicates: int
    n_both_ways: int
    directed: bool
    n_isolated: int

    @classmethod
    def of_links(cls, links: NDArray[Any], n_vertices: int) -> LoadReport:
        """The report of links ``[E, 2]`` of which none was dropped."""
        return cls(len(links), 0, 0, 0, False, count_isolated(links, n_vertices))

    def dropped(self) -> str:
        """A message with the counts of dropped lines; empty if there are none."""
        loops, both, repeats = self.n_self_loops, self.n_both_ways, self.n_duplicates - self.n_both_ways
        n_links = self.n_lines - loops - self.n_duplicates
        gone = [plural(n, what) for n, what in ((loops, "self-loop"), (repeats, "repeated link")) if n]
        told = []
        if gone:
            told.append(f"{' and '.join(gone)} {were(loops + repeats)} dropped")
        if both and not self.directed:  # of directed graphs a warning tells it
            which = f"all {both} links" if 1 < both == n_links else f"{both} of {plural(n_links, 'link')}"
            told.append(f"{which} {were(both)} listed in both directions and counted once")
        return "; ".join(told)


def count_isolated(links: NDArray[Any], n_vertices: int) -> int:
    """The number of vertices that have none of the ``links`` ``[E, 2]``."""
    linked = np.zeros(n_vertices, dtype=np.bool_)

    def mark(begin: int) -> None:
        linked[links[begin : begin + AT_A_TIME]] = True  # threads may write the same value to one place

    run_side_by_side(mark, range(0, len(links), AT_A_TIME))
    return n_vertices - int(np.count_nonzero(linked))


def degrees_of(links: NDArray[Any], n_vertices: int) -> Int64Array:
    """The number of ``links`` ``[E, 2]`` of each vertex, int64 ``[N]``."""
    step = max(AT_A_TIME, 2 * n_vertices)  # counts of fewer links would take more memory than the links

    def count(begin: int) -> Int64Array:
        return np.bincount(links[begin : begin + step].ravel(), minlength=n_vertices)

    return sum(side_by_side(count, range(0, len(links), step)), np.zeros(n_vertices, np.int64))


def were(count: int) -> str:
    """The word that tells of ``count`` things."""
    return "was" if count == 1 else "were"


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected simple graph.  Compare two graphs by ``digest``.

    n_vertices
        N, isolated vertices included.
    ids
        ``[N]``, id of each vertex in the input: int64, str (dtype ``U``) or object (any hashable).
    links
        ``[E, 2]`` uint32, ``u < v`` in every row, rows distinct and in lexicographic order; read-only.  Given integers
        of another type are converted.  Numbers computed from links need a conversion: uint32 wraps round.
    report
        Counts of the input and of dropped lines.
    name
        Short name for run records, such as the stem of the file.
    file
        Absolute path of the input file; None for other inputs, standard input and pipes.
    reading
        Options given to read the file (:class:`mmsbgen.graph.reading_options.ReadingOptions`).

    Raises:
        ValueError: If ``links`` or ``ids`` break these rules.  Use :func:`mmsbgen.graph.as_graph` for other data.
    """

    n_vertices: int
    ids: NDArray[Any]
    links: UInt32Array
    report: LoadReport
    name: str = field(default="graph")
    file: str | None = None
    reading: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        size = f"{plural(self.n_vertices, 'vertex', 'vertices')}, {plural(len(self.links), 'link')}"
        return f"<Graph {plain(self.name)}: {size}>"

    def __post_init__(self) -> None:
        links = self.links
        if links.ndim != 2 or links.shape[1] != 2 or links.dtype.kind not in "iu":
            raise ValueError(f"links must be integers [E, 2], not {links.dtype} {links.shape}")
        if self.ids.shape != (self.n_vertices,):
            raise ValueError(f"ids must have shape ({self.n_vertices},), not {self.ids.shape}")

        def wrong(first: int) -> str | None:
            u, v = links[max(0, first - 1) : first + AT_A_TIME].T  # with the one before them
            if u.min() < 0 or v.max() >= self.n_vertices or np.any(u >= v):
                return f"satisfy 0 <= u < v < {self.n_vertices}"
            keys = pack_pairs(u, v)
            return "be distinct and in lexicographic order" if np.any(keys[1:] <= keys[:-1]) else None

        for what in filter(None, side_by_side(wrong, range(0, len(links), AT_A_TIME))):
            raise ValueError(f"links must {what}")
        object.__setattr__(self, "links", read_only(np.ascontiguousarray(links, np.uint32)))
        object.__setattr__(self, "ids", read_only(self.ids))

    @property
    def n_links(self) -> int:
        """E, the number of links."""
        return int(self.links.shape[0])

    @property
    def density(self) -> float:
        """Share of the pairs of vertices that are linked; 0 for fewer than two vertices."""
        return self.n_links / max(1.0, self.n_vertices * (self.n_vertices - 1) / 2)

    def called(self, name: str, file: str | None, reading: Mapping[str, Any]) -> Graph:
        """This graph with another name, file and options; its links are not checked again, which takes long."""
        graph = copy(self)
        vars(graph).update(name=name, file=file, reading=reading)
        return graph

    def adjacency(self) -> Adjacency:
        """Adjacency of all links, built at the first call and cached."""
        return self._adjacency

    def degrees(self) -> Int64Array:
        """Number of links of every vertex, int64 ``[N]``, counted at the first call and cached."""
        return self._degrees

    @cached_property
    def _degrees(self) -> Int64Array:
        return read_only(degrees_of(self.links, self.n_vertices))

    @cached_property
    def _adjacency(self) -> Adjacency:
        return Adjacency.from_pairs(self.links, self.n_vertices)

    @cached_property
    def digest(self) -> str:
        """sha256 (64 hexadecimal digits) of vertices, ids and links.

        It does not depend on the format, order and direction of the links in the input.  Ids that are neither all
        integers nor all strings are hashed by their canonical text.
        """
        sha = hashlib.sha256(f"graph 1\n{self.n_vertices} {self.n_links} {self.ids.dtype.kind}\n".encode())
        if self.ids.dtype.kind == "i":
            sha.update(self.ids.astype("<i8").tobytes())
        else:
            items = self.ids.tolist()
            words = items if all(type(item) is str for item in items) else list(map(canonical_text, items))
            sha.update(json.dumps(words).encode())
        for begin in range(0, self.n_links, AT_A_TIME):
            sha.update(self.links[begin : begin + AT_A_TIME].astype("<i8").data)
        return sha.hexdigest()


def distinct_keys(keys: UInt64Array) -> UInt64Array:
    """Return the distinct ``keys``, ascending (``np.unique`` hashes first, which is slower here)."""
    return keys if bool(np.all(keys[1:] > keys[:-1])) else sort_distinct(keys.copy())


def sort_distinct(keys: UInt64Array) -> UInt64Array:
    """As :func:`distinct_keys`; sorts ``keys`` in place."""
    if bool(np.all(keys[1:] > keys[:-1])):
        return keys
    keys.sort()
    new = keys[1:] != keys[:-1]
    return keys if new.all() else keys[np.concatenate([[True], new])]


def link_keys(links: NDArray[Any], place: Int64Array | None = None) -> UInt64Array:
    """The distinct links ``[L, 2]``, renumbered by ``place``, as ascending keys (:func:`pack_pairs`)."""
    first, second = (links if place is None else place[links]).T
    return distinct_keys(pack_pairs(np.minimum(first, second), np.maximum(first, second)))
