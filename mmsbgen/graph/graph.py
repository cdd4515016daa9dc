"""An undirected simple graph with the vertex ids of the input.

Vertices are numbered ``0 .. n_vertices - 1`` inside the package; ``Graph.ids[a]`` is the user's id of vertex ``a``.
Links are unordered pairs, stored once with ``u < v``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.errors import InputError, warn_user
from mmsbgen.base.id_text import canonical_text, plain, plural
from mmsbgen.base.processes import side_by_side

Int64Array = NDArray[np.int64]
UInt32Array = NDArray[np.uint32]
UInt64Array = NDArray[np.uint64]

#: Vertices are 32-bit on the device; the largest 32-bit value is reserved for "no vertex".
MAX_VERTICES = 2**32 - 1

#: Links that a thread takes at a time.
_LINKS = 1 << 19
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


@dataclass(frozen=True, eq=False)
class Adjacency:
    """Adjacency of an undirected graph in compressed sparse rows.

    ``offsets`` is int64 ``[N + 1]`` and ``neighbours`` uint32 ``[2 E]``: the neighbours of vertex ``a`` are
    ``neighbours[offsets[a]:offsets[a + 1]]``, ascending.  Both arrays are read-only and contiguous.
    """

    offsets: Int64Array
    neighbours: UInt32Array

    @staticmethod
    def from_pairs(pairs: Int64Array, n_vertices: int) -> Adjacency:
        """Adjacency of distinct pairs ``[E, 2]``, u < v, in lexicographic order; raises ValueError for others."""
        from scipy.sparse import csr_array  # takes a tenth of a second

        number = np.int32 if max(n_vertices, len(pairs)) < 2**31 else np.int64
        begins = np.concatenate([[0], np.cumsum(np.bincount(pairs[:, 0], minlength=n_vertices))]).astype(number)
        larger = csr_array((np.ones(len(pairs), np.int8), pairs[:, 1].astype(number), begins), (n_vertices, n_vertices))
        if (pairs[1:, 0] < pairs[:-1, 0]).any() or not larger.has_canonical_format:
            raise ValueError("pairs must be distinct and in lexicographic order")
        both = larger + larger.T.tocsr()
        return Adjacency(read_only(both.indptr.astype(np.int64)), read_only(both.indices.astype(np.uint32)))

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
    """The vertices of a range in descending order of degree: those with many links do not delay the end of a launch."""
    degrees = np.diff(offsets.astype(np.int64))
    number = np.uint16 if (most := degrees.max(initial=0)) < 1 << 16 else np.int64  # 16 bits are sorted by digits
    return np.argsort((most - degrees).astype(number), kind="stable").astype(np.uint32)


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
    def of_links(cls, links: Int64Array, n_vertices: int) -> LoadReport:
        """The report of links ``[E, 2]`` of which none was dropped."""
        isolated = np.count_nonzero(np.bincount(links.ravel(), minlength=n_vertices) == 0)
        return cls(len(links), 0, 0, 0, False, int(isolated))

    def dropped(self) -> str:
        """A message with the counts of dropped lines; empty if there are none."""
        loops, both, repeats = self.n_self_loops, self.n_both_ways, self.n_duplicates - self.n_both_ways
        n_links = self.n_lines - loops - self.n_duplicates
        gone = [plural(n, what) for n, what in ((loops, "self-loop"), (repeats, "repeated link")) if n]
        told = []
        if gone:
            told.append(f"{' and '.join(gone)} {_were(loops + repeats)} dropped")
        if both and not self.directed:  # of directed graphs a warning tells it
            which = f"all {both} links" if 1 < both == n_links else f"{both} of {plural(n_links, 'link')}"
            told.append(f"{which} {_were(both)} listed in both directions and counted once")
        return "; ".join(told)


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected simple graph.  Compare two graphs by ``digest``.

    n_vertices
        N, isolated vertices included.
    ids
        ``[N]``, id of each vertex in the input: int64, str (dtype ``U``) or object (any hashable).
    links
        ``[E, 2]`` int64, ``u < v`` in every row, rows distinct and in lexicographic order; read-only.
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
    links: Int64Array
    report: LoadReport
    name: str = field(default="graph")
    file: str | None = None
    reading: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        size = f"{plural(self.n_vertices, 'vertex', 'vertices')}, {plural(len(self.links), 'link')}"
        return f"<Graph {plain(self.name)}: {size}>"

    def __post_init__(self) -> None:
        links = self.links
        if links.ndim != 2 or links.shape[1] != 2 or links.dtype != np.int64:
            raise ValueError(f"links must be int64 [E, 2], not {links.dtype} {links.shape}")
        if self.ids.shape != (self.n_vertices,):
            raise ValueError(f"ids must have shape ({self.n_vertices},), not {self.ids.shape}")

        def wrong(first: int) -> str | None:
            u, v = links[max(0, first - 1) : first + _LINKS].T  # with the one before them
            if u.min() < 0 or v.max() >= self.n_vertices or np.any(u >= v):
                return f"satisfy 0 <= u < v < {self.n_vertices}"
            keys = pack_pairs(u, v)
            return "be distinct and in lexicographic order" if np.any(keys[1:] <= keys[:-1]) else None

        for what in filter(None, side_by_side(wrong, range(0, len(links), _LINKS))):
            raise ValueError(f"links must {what}")
        object.__setattr__(self, "links", read_only(links))
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
        return read_only(np.bincount(self.links.ravel(), minlength=self.n_vertices))

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
        sha.update(np.ascontiguousarray(self.links, dtype="<i8").ravel().data)
        return sha.hexdigest()


def build_graph(
    first: Int64Array,
    second: Int64Array,
    ids: NDArray[Any],
    *,
    name: str,
    directed: bool | None = None,
    file: str | None = None,
) -> Graph:
    """Build a :class:`Graph` from a list of vertex pairs; warn with :class:`GraphWarning` if the source is directed.

    Args:
        first: int64 ``[L]``, one vertex of each pair, in ``[0, len(ids))``; duplicates and self-loops are dropped.
        second: int64 ``[L]``, the other vertex of each pair.
        ids: ``[N]``, id of each vertex.
        name: name of the graph in messages and run records.
        directed: whether the source is directed; if None, it is if some but not all links have both directions.
        file: path of the input file.

    Raises:
        InputError: If no link remains or there are too many vertices.
    """
    check_count(int(ids.size), name)
    up, down, n_self_loops = directed_keys(first, second)
    keys = merged_keys(up, down)
    counts = int(first.size), n_self_loops, up.size + down.size - keys.size
    return graph_of_links(unpack_pairs(keys), ids, *counts, name=name, directed=directed, file=file)


def directed_keys(first: NDArray[Any], second: NDArray[Any]) -> tuple[UInt64Array, UInt64Array, int]:
    """The distinct pairs of which ``first`` ``[L]`` is the smaller vertex, those of which it is the larger one.

    Both are ascending keys ``u << 32 | v`` with u < v.  The third value is the number of self-loops.
    """

    def packed(begin: int) -> tuple[NDArray[np.bool_], UInt64Array]:
        a, b = (ends[begin : begin + _LINKS] for ends in (first, second))
        return a < b, pack_pairs(np.minimum(a, b), np.maximum(a, b))

    parts = side_by_side(packed, range(0, max(1, int(first.size)), _LINKS))
    upward, keys = map(np.concatenate, zip(*parts, strict=True))
    if upward.all():
        return distinct_keys(keys), keys[:0], 0
    down = distinct_keys(keys[second < first])
    return distinct_keys(keys[upward]), down, int(np.count_nonzero(first == second))


def merged_keys(up: UInt64Array, down: UInt64Array) -> UInt64Array:
    """The distinct keys of two arrays of :func:`directed_keys`, ascending."""
    # Most files list every link once as u < v; then no merge is needed.
    return distinct_keys(np.concatenate([up, down])) if up.size and down.size else (up if up.size else down)


def graph_of_links(
    links: Int64Array,
    ids: NDArray[Any],
    n_lines: int,
    n_self_loops: int,
    n_both_ways: int,
    *,
    name: str,
    directed: bool | None = None,
    file: str | None = None,
) -> Graph:
    """The :class:`Graph` of distinct ``links`` ``[E, 2]`` with counts of the input; else as :func:`build_graph`."""
    n_vertices, n_links = int(ids.size), len(links)
    if n_links == 0:
        dropped = f" ({plural(n_self_loops, 'self-loop')} {_were(n_self_loops)} dropped)"
        loops = dropped if n_self_loops else ""
        raise InputError(f"{name}: no link between two different vertices{loops}; give at least one pair of ids")
    declared = directed is not None
    if directed is None:
        directed = 0 < n_both_ways < n_links
    if directed:
        _warn_directed(name, n_both_ways, n_links, declared)
    touched = np.zeros(n_vertices, dtype=np.bool_)
    touched[links.ravel()] = True
    report = LoadReport(
        n_lines=n_lines,
        n_self_loops=n_self_loops,
        n_duplicates=n_lines - n_self_loops - n_links,
        n_both_ways=int(n_both_ways),
        directed=directed,
        n_isolated=n_vertices - int(np.count_nonzero(touched)),
    )
    return Graph(n_vertices=n_vertices, ids=ids, links=links, report=report, name=name, file=file)


def check_count(n_vertices: int, name: str) -> None:
    """Raise InputError for more vertices than can be numbered."""
    if n_vertices >= MAX_VERTICES:
        raise InputError(f"{name}: {n_vertices} vertices; at most {MAX_VERTICES - 1} can be numbered in 32 bits")


def distinct_keys(keys: UInt64Array) -> UInt64Array:
    """Return the distinct ``keys``, ascending (``np.unique`` hashes first, which is slower here)."""
    if bool(np.all(keys[1:] > keys[:-1])):
        return keys
    keys = np.sort(keys)
    return keys if keys.size < 2 else keys[np.concatenate([[True], keys[1:] != keys[:-1]])]


def link_keys(links: Int64Array, place: Int64Array | None = None) -> UInt64Array:
    """The distinct links ``[L, 2]``, renumbered by ``place``, as ascending keys (:func:`pack_pairs`)."""
    first, second = (links if place is None else place[links]).T
    return distinct_keys(pack_pairs(np.minimum(first, second), np.maximum(first, second)))


def _warn_directed(name: str, n_both_ways: int, n_links: int, declared: bool) -> None:
    both = f"{n_both_ways} of its {n_links} links"
    kind, other = f"a directed graph, with {both} in both directions;", ""
    if not declared:
        kind = f"{both} are listed in both directions and the rest in one only; if this is a directed graph,"
        other = ". If its columns are of two kinds, such as customers and products, make their ids differ"
    warn_user(f"{name}: {kind} direction is dropped: u -> v and v -> u are one link{other}", GraphWarning)
