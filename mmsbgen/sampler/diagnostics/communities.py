"""The rules that turn memberships into communities, and covers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from numbers import Real

import numpy as np

from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import plural
from mmsbgen.base.processes import chosen_in_parts, in_parts, run_side_by_side
from mmsbgen.graph.graph import AT_A_TIME, Adjacency, degrees_of, numbers_of_ranges
from mmsbgen.sampler.diagnostics.explained_links import (
    Array,
    Explained,
    Floats,
    Ints,
    RowSource,
    explained,
    explained_at,
    to_members,
)
from mmsbgen.sampler.diagnostics.member_odds import member_chances
from mmsbgen.sampler.diagnostics.memberships import Memberships
from mmsbgen.sampler.diagnostics.uncovered import attached, components_of, in_one_component, small_components

#: Threshold on the share of a vertex's links over the threshold on its row: single links are more often chance.
_OF_LINKS = 1.2
#: Largest entries of a row that ``evidence`` looks at.
_SEVERAL = 16
#: Explained links that are rather one than none, and the chance of a member that is rather one than not.
_A_LINK = _RATHER = 0.5
#: Times that ``evidence`` counts explained links.
_PASSES = 3
#: Share of a vertex's links that puts it into the community that explains them, whatever its row.
_MOST = 0.5
#: Fewest members of a community.
_SMALLEST = 2
#: Called with the share that is done.
Tell = Callable[[float], None]


@dataclass(frozen=True)
class Rule:
    """A rule that turns memberships into sets of vertices; ``threshold`` is its default."""

    apply: Callable[[Memberships, RowSource, Array, float, Tell, Ints | None], tuple[Ints, Ints]]
    threshold: float
    doc: str
    covers: bool = False
    """Whether vertices with a path to a community get one, and small components are communities."""


def _told(parts: Iterator[Explained], n_links: int, tell: Tell) -> Iterator[Explained]:
    done = 0
    for part in parts:
        yield part
        done += len(part.ends)
        tell(done / n_links)


def _gathered(m: Memberships, links: Array) -> Array:
    """The links sorted by the largest communities of their ends, so that consecutive links share vertices.

    Rows are read once per part of the links; on com-DBLP this halves the rows read.
    """
    first, second = np.sort(m.indices[links, 0], axis=1).T
    gathered: Array = links[np.lexsort((second, first))]
    return gathered


def _threshold(
    m: Memberships, rows: RowSource, links: Array, threshold: float, tell: Tell, degrees: Ints | None = None
) -> tuple[Ints, Ints]:
    vertex, at = np.nonzero(m.values > threshold)
    return vertex, m.indices[vertex, at].astype(np.int64)


def _top(
    m: Memberships, rows: RowSource, links: Array, threshold: float, tell: Tell, degrees: Ints | None = None
) -> tuple[Ints, Ints]:
    r = min(int(threshold), m.indices.shape[1])
    vertex = np.repeat(np.arange(len(m.indices)), r)
    return vertex, m.indices[:, :r].ravel().astype(np.int64)


def _link(
    m: Memberships, rows: RowSource, links: Array, threshold: float, tell: Tell, degrees: Ints | None = None
) -> tuple[Ints, Ints]:
    vertices, communities = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for ends, shares in _told(explained(_gathered(m, links), rows, m.beta, m.delta), len(links), tell):
        best = shares.argmax(axis=1)
        row = np.flatnonzero(shares[np.arange(len(best)), best] > threshold)
        vertices += [ends[row, 0], ends[row, 1]]
        communities += [best[row], best[row]]
    pairs = np.unique(np.stack([np.concatenate(communities), np.concatenate(vertices)]), axis=1)
    return pairs[1], pairs[0]


def _counted(
    m: Memberships,
    rows: RowSource,
    links: Array,
    tell: Tell,
    members: Array | None = None,
    least: float = _A_LINK,
    at: Ints | None = None,
) -> tuple[Ints, Floats]:
    """Numbers of links of a vertex that one of its communities in ``m`` explains, and their places in ``[N, r]``.

    The places ``[M]``, ascending, are those of numbers of ``least`` or more, or ``at``.  With ``members`` ``[N, r]``,
    only links to members of the community count.
    """
    r, vertices = m.indices.shape[1], np.zeros(0, np.int64)
    if (on_device := getattr(rows, "explained_links", None)) is not None:
        # Most links are counted there.  Of an array of this size only the rows of other links are made float64.
        known, links = on_device(members)
        known, vertices = np.ascontiguousarray(known[:, :r]), np.unique(links)
        flat = known[vertices].astype(np.float64).ravel()
    else:
        flat = np.zeros(m.indices.size)
        known = flat.reshape(-1, r)
    for ends, shares in _told(explained_at(_gathered(m, links), rows, m.beta, m.delta, m.indices), len(links), tell):
        counted = shares.astype(np.float64)
        if members is not None:
            counted *= to_members(ends, m.indices, members)
        row = np.searchsorted(vertices, ends) if vertices.size else ends
        # Flat indices: np.add.at is twenty times slower with several index arrays.
        np.add.at(flat, (row[:, :, None] * r + np.arange(r)).ravel(), counted.ravel())
    known[vertices] = flat.reshape(-1, r)[: vertices.size]
    numbers, given = known.reshape(-1), at

    def enough(part: slice) -> tuple[Array, ...]:
        own = part.start + np.flatnonzero(numbers[part] >= least)
        return own, numbers[own].astype(np.float64)

    if given is None:
        at, counts = chosen_in_parts(enough, numbers.size)
    else:
        at, counts = given, in_parts(lambda part: (numbers[given[part]].astype(np.float64),), given.size)[0]
    begins, ends = np.searchsorted(at, [vertices * r, (vertices + 1) * r])
    exact = numbers_of_ranges(begins, ends - begins)
    counts[exact] = flat[np.repeat(np.arange(vertices.size), ends - begins) * r + at[exact] % r]
    if given is None and not (kept := counts[exact] >= least).all():
        at, counts = np.delete(at, exact[~kept]), np.delete(counts, exact[~kept])
    return at, counts


def _most(counts: Floats, degrees: Ints, least: float = _MOST) -> Array:
    """Whether communities explain most links of a vertex, by the number that each explains and the vertex's degree.

    A vertex with fewer links than the strengths predict has most of its row in communities without links.  Its links
    then decide, but a fraction of one link is not enough.
    """
    found: Array = (counts > least * degrees) & (counts >= 1.0)
    return found


def _evidence(
    m: Memberships, rows: RowSource, links: Array, threshold: float, tell: Tell, degrees: Ints | None = None
) -> tuple[Ints, Ints]:
    degrees = degrees_of(links, len(m.indices)) if degrees is None else degrees
    r, indices = m.indices.shape[1], m.indices.reshape(-1)

    def counted(number: int, members: Array | None, at: Ints | None = None) -> tuple[Ints, Floats]:
        return _counted(m, rows, links, lambda share: tell((number + share) / _PASSES), members, at=at)

    # The candidates, one by one, by flat places: later passes count fewer links, so that no others come.
    at, counts = counted(0, None)

    def candidates(part: slice) -> tuple[Array, ...]:
        own = (at[part] // r).astype(np.uint32)
        return own, indices[at[part]], _most(counts[part], degrees[own], max(threshold, _MOST))

    vertex, of, most = in_parts(candidates, at.size)
    likely = member_chances(vertex, of, counts, degrees, m.width, residual=False)

    def mark(first: int) -> None:
        part = slice(first, first + AT_A_TIME)
        members[at[part]] = (likely[part] > _RATHER) | most[part]

    def left(part: slice) -> tuple[Array, ...]:
        own = part.start + np.flatnonzero(counts[part] >= _A_LINK)
        return own, vertex[own], of[own], counts[own]

    # The chain explains links by chance too, between vertices that are hardly in a community: those count no longer.
    for number in range(1, _PASSES):
        members = np.zeros(m.indices.size, bool)
        run_side_by_side(mark, range(0, at.size, AT_A_TIME))
        counts = counted(number, members.reshape(m.indices.shape), at)[1]
        own, vertices, communities, numbers = chosen_in_parts(left, at.size)
        members = counts = np.zeros(0)  # gives the memory back
        likely = np.zeros(vertex.size)
        likely[own] = member_chances(vertices, communities, numbers, degrees, m.width, residual=True)
    chosen = np.flatnonzero((likely > threshold) | most)
    return vertex[chosen].astype(np.int64), of[chosen].astype(np.int64)


def _share(
    m: Memberships, rows: RowSource, links: Array, threshold: float, tell: Tell, degrees: Ints | None = None
) -> tuple[Ints, Ints]:
    # For a vertex between communities, pi says which links it could explain, and its links which ones exist.
    at, counts = _counted(m, rows, links, tell, least=0.0)
    vertex = at // m.indices.shape[1]
    degrees = (degrees_of(links, len(m.indices)) if degrees is None else degrees)[vertex]
    enough = counts > _OF_LINKS * threshold * degrees
    chosen = ((m.values.ravel()[at] > threshold) & enough) | _most(counts, degrees, max(threshold, _MOST))
    return vertex[chosen], m.indices.ravel()[at[chosen]].astype(np.int64)


RULES = {
    "evidence": Rule(
        _evidence,
        _RATHER,
        "communities that, more probably than this, explain more of a vertex's links than chance; or most of its links",
        covers=True,
    ),
    "share": Rule(
        _share,
        0.125,
        "communities with more than this share of a vertex and 1.2 times that of its links, or most, at least one link",
        covers=True,
    ),
    "threshold": Rule(_threshold, 0.2, "every community in which a vertex has more than this share"),
    "link": Rule(_link, 0.5, "both ends of a link whose probability one community explains by more than this share"),
    "top": Rule(_top, 1.0, "this many largest communities of every vertex"),
}


@dataclass(frozen=True)
class Cover:
    """Communities as sorted arrays of vertex numbers, largest first: community 0 is the largest.

    ``background`` are the communities whose members link with each other no more often than any two vertices with links
    do.
    """

    members: tuple[Ints, ...]
    n_vertices: int
    background: tuple[int, ...] = ()

    def __repr__(self) -> str:
        count = plural(len(self.members), "community", "communities")
        return f"<Cover: {count}, {self.covered} of {self.n_vertices} vertices covered, overlap {self.overlap:.2f}>"

    @property
    def coverage(self) -> float:
        """Share of vertices that are in at least one community."""
        return self.covered / max(1, self.n_vertices)

    @cached_property
    def covered(self) -> int:
        """Number of vertices that are in at least one community."""
        return int(np.count_nonzero(np.bincount(np.concatenate(self.members)))) if self.members else 0

    @property
    def overlap(self) -> float:
        """Mean number of communities of a covered vertex."""
        return sum(len(m) for m in self.members) / max(1, self.covered)


def checked_threshold(rule: str, threshold: float | None = None) -> float:
    """The given threshold, or the rule's default.

    Raises :class:`InputError` for an unknown rule, or a threshold outside [0, 1) (for ``top``: one that is not a
    positive integer).
    """
    if rule not in RULES:
        raise InputError(f"rule {rule!r} is not one of {', '.join(RULES)}")
    given: object = threshold
    if given is not None and not isinstance(given, Real):
        raise InputError(f"threshold {given!r} of rule {rule}: it must be a number")
    value = RULES[rule].threshold if threshold is None else threshold
    if not (1 <= value < 2**31 and value == int(value) if rule == "top" else 0 <= value < 1):
        allowed = "a whole number from 1 on" if rule == "top" else "a share from 0 to below 1"
        raise InputError(f"threshold {value} of rule {rule}: it must be {allowed}")
    return value


def entries_needed(rule: str, threshold: float, k: int) -> int:
    """Number of largest entries of each row of pi that the rule uses, at most 256 for ``share`` and ``threshold``."""
    above = int(1 / threshold) if threshold > 1 / 256 else 256
    needed = {
        "evidence": _SEVERAL,
        "share": above,
        "threshold": above,
        "link": 1,
        "top": int(threshold),
    }
    return min(needed[rule], k)


def cover(
    m: Memberships,
    links: Array,
    rule: str,
    threshold: float | None = None,
    rows: RowSource | None = None,
    tell: Tell = lambda share: None,
    adjacency: Adjacency | None = None,
    degrees: Ints | None = None,
) -> tuple[Cover, Memberships]:
    """Apply a named rule; returns the communities, and ``m`` with community c in column c.

    Empty, too small and duplicate communities are dropped.  Nobody is in a background who is in another community.
    The rules leave out vertices without training links, whose rows say nothing.
    The rules ``evidence`` and ``share`` keep of a community what lies in one component of the graph, give a community
    to every vertex with a path to one (:func:`mmsbgen.sampler.diagnostics.uncovered.attached`), and make communities of
    small components without one.

    Args:
        m: the memberships; the rule uses the :func:`entries_needed` largest entries.
        links: ``[E, 2]``, vertex numbers.
        rule: name of the rule.
        threshold: threshold of the rule, by default its own.
        rows: source of whole rows for ``evidence``, ``share`` and ``link``, by default the entries of ``m``.
        tell: called by ``evidence``, ``share`` and ``link`` with the share of the links that is done.
        adjacency: adjacency of most of the links, if there is one: components are then found faster.
        degrees: number of links ``[N]`` of every vertex, if it is known.

    Raises the errors of :func:`checked_threshold`.
    """
    value, n, read = checked_threshold(rule, threshold), len(m.indices), rows or m.rows
    degrees = degrees_of(links, n) if degrees is None else degrees
    linked = int(np.count_nonzero(degrees))
    seen_by_rule = m.first(entries_needed(rule, value, m.k))
    vertices, communities = RULES[rule].apply(seen_by_rule, read, links, value, tell, degrees)
    if m.unlinked.size:
        known = ~np.isin(vertices, m.unlinked)
        vertices, communities = vertices[known], communities[known]
    weak = m.beta <= 2.0 * len(links) / max(1, linked * (linked - 1))
    vertices, communities = _without_needless(vertices, communities, weak, n)
    components: list[Ints] = []
    if RULES[rule].covers:
        labels = components_of(n, links, adjacency)
        vertices, communities = _large_enough(*in_one_component(labels, vertices, communities))
        more = attached(m, read, links, vertices, communities)
        vertices, communities = (np.concatenate(both) for both in zip((vertices, communities), more, strict=True))
        components = small_components(labels, vertices)
    in_order, vertices = np.divmod(np.sort(communities * n + vertices), n)
    columns, starts = np.unique(in_order, return_index=True)
    sets = [*np.split(vertices, starts[1:])[: columns.size], *components]
    seen: set[bytes] = set()
    kept: list[tuple[Ints, int]] = []
    for members, column in zip(sets, [*columns.tolist(), *(-1 for _ in components)], strict=True):
        if (key := members.tobytes()) not in seen:
            seen.add(key)
            kept.append((members, column))
    # Of equal sizes by their members: bytes of this order compare as these do.
    kept.sort(key=lambda pair: (-len(pair[0]), pair[0].astype(">i8").tobytes()))
    own = np.array([column for _, column in kept], np.int64)
    found = tuple(members for members, _ in kept)
    return Cover(found, n, tuple(np.flatnonzero((own >= 0) & weak[own]).tolist())), _numbered(m, own, found, links)


def _without_needless(vertices: Ints, communities: Ints, weak: Array, n: int) -> tuple[Ints, Ints]:
    """The memberships without too small communities, and without those in a background of vertices in another one."""
    sizes = np.bincount(communities, minlength=weak.size)
    kept = weak[communities] | (sizes[communities] >= _SMALLEST)
    vertices, communities = vertices[kept], communities[kept]
    elsewhere = np.zeros(n, bool)
    elsewhere[vertices[~weak[communities]]] = True
    kept = ~(weak[communities] & elsewhere[vertices])
    return _large_enough(vertices[kept], communities[kept])


def _large_enough(vertices: Ints, communities: Ints) -> tuple[Ints, Ints]:
    """The memberships in communities of at least two members."""
    kept = np.bincount(communities)[communities] >= _SMALLEST
    return vertices[kept], communities[kept]


def _numbered(m: Memberships, own: Ints, members: tuple[Ints, ...], links: Array) -> Memberships:
    """``m`` with the columns ``own`` ``[C]`` first; -1 is a new one, whose strength is the share of linked pairs."""
    others = np.setdiff1d(np.arange(m.width), own)
    strengths = np.zeros(own.size + others.size)
    if (new := np.flatnonzero(own < 0)).size:
        sizes = np.array([len(members[community]) for community in new.tolist()])
        place = np.full(len(m.indices), -1)
        place[np.concatenate([members[community] for community in new.tolist()])] = np.repeat(
            np.arange(new.size), sizes
        )
        at = place[links[:, 0]]  # both ends are in one component
        strengths[new] = 2.0 * np.bincount(at[at >= 0], minlength=new.size) / (sizes * (sizes - 1))
    return m.renumbered(np.concatenate([own, others]), strengths)
