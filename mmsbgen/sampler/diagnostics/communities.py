"""Memberships, the rules that turn them into communities, and covers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.base.errors import InputError
from mmsbgen.base.processes import cores
from mmsbgen.families.mmsb.numbers.row_layout import DELTA
from mmsbgen.sampler.diagnostics import explained_links
from mmsbgen.sampler.diagnostics.explained_links import (
    Array,
    Explained,
    Floats,
    Ints,
    RowSource,
    explained,
    explained_at,
)

#: Threshold on the share of a vertex's links over the threshold on its row: single links are more often chance.
_OF_LINKS = 1.2
#: Share of a vertex's links that puts it into the community that explains them, whatever its row.
_MOST = 0.5
#: Elements of rows processed at a time in the search for the largest; they fit into a core's cache.
_CACHED = 1 << 18
#: Called with the share that is done.
Tell = Callable[[float], None]


@dataclass(frozen=True)
class Memberships:
    """The largest entries of every row of pi.

    ``indices`` and ``values`` are ``[N, r]``, largest first; ``beta`` ``[K]`` the strengths; ``ids`` ``[N]`` the
    vertices' ids in the input; ``delta`` the probability of a link across communities; ``unlinked`` the vertices
    without a training link, ascending.  With r = K all of pi is stored.  ``rest`` ``[N]`` is the mass of each row
    outside its stored entries, ``spread`` ``[K]`` the sum of those parts by community; both are 0 if not
    known.
    """

    ids: Array
    indices: npt.NDArray[np.int32]
    values: npt.NDArray[np.floating[Any]]
    beta: Floats
    delta: float = DELTA
    unlinked: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    rest: Floats = field(default_factory=lambda: np.zeros(0))
    spread: Floats = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        if not self.rest.size:
            object.__setattr__(self, "rest", np.zeros(len(self.indices)))
        if not self.spread.size:
            object.__setattr__(self, "spread", np.zeros(self.beta.size))

    @property
    def k(self) -> int:
        """Number of communities of the model."""
        return int(self.beta.size)

    def first(self, r: int) -> Memberships:
        """A copy with only the ``r`` largest entries of each row."""
        indices, values = (np.ascontiguousarray(array[:, :r]) for array in (self.indices, self.values))
        left = self.values[:, r:].astype(np.float64)
        spread = self.spread + np.bincount(self.indices[:, r:].ravel(), left.ravel(), self.k)
        return replace(self, indices=indices, values=values, rest=self.rest + left.sum(axis=1), spread=spread)

    def rows(self, vertices: Ints) -> Array:
        """pi ``[V, K]`` of ``vertices`` ``[V]``; entries that are not stored are 0."""
        rows = np.zeros((len(vertices), self.k), self.values.dtype)
        np.put_along_axis(rows, self.indices[vertices].astype(np.int64), self.values[vertices], axis=1)
        return rows

    def completed_rows(self, vertices: Ints) -> Array:
        """pi ``[V, K]`` of ``vertices`` ``[V]``, with ``rest`` divided among the other entries as ``spread`` is."""
        rows = self.rows(vertices)
        if not self.rest[vertices].any():
            return rows
        others = np.repeat(self.spread[None], len(vertices), axis=0)
        np.put_along_axis(others, self.indices[vertices].astype(np.int64), 0.0, axis=1)
        total = others.sum(axis=1)
        scale = np.divide(self.rest[vertices], total, out=np.zeros(len(vertices)), where=total > 0)
        completed: Array = rows + (others * scale[:, None]).astype(rows.dtype)
        return completed

    def link_probabilities(self, pairs: Ints, rows: RowSource | None = None) -> Floats:
        """p(link) ``[P]`` of ``pairs`` ``[P, 2]`` of vertices, eq. (2.2), from ``rows`` or :meth:`completed_rows`.

        Vertices without a training link get the prior's mean row:
        :func:`mmsbgen.sampler.diagnostics.explained_links.as_unknown`.
        """
        read = explained_links.as_unknown(rows or self.completed_rows, self.unlinked, self.k)
        return explained_links.link_probabilities(pairs, read, self.beta, self.delta)

    def dense(self) -> Array:
        """pi ``[N, K]``; entries that are not stored are 0."""
        return self.rows(np.arange(len(self.indices)))


def outside(rows: Array, indices: npt.NDArray[np.int32], values: Array) -> tuple[Floats, Floats]:
    """The mass ``[R]`` of each of ``rows`` ``[R, K]`` outside its entries ``indices``, ``values``, and by community.

    The second array ``[K]`` is the sum over the rows.  Rounding never makes them negative.
    """
    if indices.shape[1] == rows.shape[1]:
        return np.zeros(len(rows)), np.zeros(rows.shape[1])
    inside = np.bincount(indices.ravel(), values.ravel(), rows.shape[1])
    rest = rows.sum(axis=1, dtype=np.float64) - values.sum(axis=1, dtype=np.float64)
    spread = rows.sum(axis=0, dtype=np.float64) - inside
    return rest.clip(min=0.0), spread.clip(min=0.0)


def largest_of_parts(parts: Iterable[Array], r: int, k: int) -> tuple[npt.NDArray[np.int32], Array, Floats, Floats]:
    """Indices and values ``[N, r]`` as :func:`largest`, and :func:`outside` of all rows ``[N, k]``, read in parts."""
    indices, values, rest, spread = [], [], [], np.zeros(k)
    for rows in parts:
        at, best = largest(rows, r)
        left, by_community = outside(rows, at, best)
        indices.append(at)
        values.append(best)
        rest.append(left)
        spread += by_community
    return np.concatenate(indices), np.concatenate(values), np.concatenate(rest), spread


def largest(rows: Array, r: int) -> tuple[npt.NDArray[np.int32], Array]:
    """Indices and values ``[R, r]`` of the ``r`` largest entries of each row, largest first, ties by index."""
    step = max(1, _CACHED // rows.shape[1])
    if len(rows) <= step:
        return _largest(rows, r)
    with ThreadPoolExecutor(cores()) as pool:
        parts = pool.map(lambda first: _largest(rows[first : first + step], r), range(0, len(rows), step))
        indices, values = zip(*parts, strict=True)
    return np.concatenate(indices), np.concatenate(values)


def _largest(rows: Array, r: int) -> tuple[npt.NDArray[np.int32], Array]:
    k = rows.shape[1]
    if r == 1:
        first = rows.argmax(axis=1)[:, None]
        return first.astype(np.int32), np.take_along_axis(rows, first, axis=1)
    if r < k:
        at = np.sort(np.argpartition(rows, k - r, axis=1)[:, k - r :], axis=1)
    else:
        at = np.broadcast_to(np.arange(k), rows.shape)
    values = np.take_along_axis(rows, at, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    return np.take_along_axis(at, order, axis=1).astype(np.int32), np.take_along_axis(values, order, axis=1)


@dataclass(frozen=True)
class Rule:
    """A rule that turns memberships into sets of vertices; ``threshold`` is its default."""

    apply: Callable[[Memberships, RowSource, Array, float, Tell], tuple[Ints, Ints]]
    threshold: float
    doc: str


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


def _threshold(m: Memberships, rows: RowSource, links: Array, threshold: float, tell: Tell) -> tuple[Ints, Ints]:
    vertex, at = np.nonzero(m.values > threshold)
    return vertex, m.indices[vertex, at].astype(np.int64)


def _top(m: Memberships, rows: RowSource, links: Array, threshold: float, tell: Tell) -> tuple[Ints, Ints]:
    r = min(int(threshold), m.indices.shape[1])
    vertex = np.repeat(np.arange(len(m.indices)), r)
    return vertex, m.indices[:, :r].ravel().astype(np.int64)


def _link(m: Memberships, rows: RowSource, links: Array, threshold: float, tell: Tell) -> tuple[Ints, Ints]:
    vertices, communities = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for ends, shares in _told(explained(_gathered(m, links), rows, m.beta, m.delta), len(links), tell):
        best = shares.argmax(axis=1)
        row = np.flatnonzero(shares[np.arange(len(best)), best] > threshold)
        vertices += [ends[row, 0], ends[row, 1]]
        communities += [best[row], best[row]]
    pairs = np.unique(np.stack([np.concatenate(communities), np.concatenate(vertices)]), axis=1)
    return pairs[1], pairs[0]


def _share(m: Memberships, rows: RowSource, links: Array, threshold: float, tell: Tell) -> tuple[Ints, Ints]:
    # For a vertex between communities, pi says which links it could explain, and its links which ones exist.
    flat, r = np.zeros(m.indices.size), m.indices.shape[1]
    for ends, shares in _told(explained_at(_gathered(m, links), rows, m.beta, m.delta, m.indices), len(links), tell):
        # Flat indices: np.add.at is twenty times slower with several index arrays.
        np.add.at(flat, (ends[:, :, None] * r + np.arange(r)).ravel(), shares.ravel().astype(np.float64))
    degrees = np.bincount(links.ravel(), minlength=len(m.indices))[:, None]
    n_explained = flat.reshape(-1, r)
    # A vertex with fewer links than the strengths predict has most of its row in communities without links.  Its links
    # then decide, but a fraction of one link is not enough.
    most = (n_explained > max(threshold, _MOST) * degrees) & (n_explained >= 1.0)
    vertex, at = np.nonzero(((m.values > threshold) & (n_explained > _OF_LINKS * threshold * degrees)) | most)
    return vertex, m.indices[vertex, at].astype(np.int64)


RULES = {
    "share": Rule(
        _share,
        0.125,
        "communities with more than this share of a vertex and 1.2 times that of its links, or most, at least one link",
    ),
    "threshold": Rule(_threshold, 0.2, "every community in which a vertex has more than this share"),
    "link": Rule(_link, 0.5, "both ends of a link whose probability one community explains by more than this share"),
    "top": Rule(_top, 1.0, "this many largest communities of every vertex"),
}


@dataclass(frozen=True)
class Cover:
    """Communities as sorted arrays of vertex numbers, largest first.

    ``labels`` are the corresponding communities of the model, as columns of pi.
    """

    members: tuple[Ints, ...]
    labels: tuple[int, ...]
    n_vertices: int

    @property
    def coverage(self) -> float:
        """Share of vertices that are in at least one community."""
        return self.covered / max(1, self.n_vertices)

    @property
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
    min_size: int = 2,
    rows: RowSource | None = None,
    tell: Tell = lambda share: None,
) -> Cover:
    """Apply a named rule; empty, too small and duplicate communities are dropped.

    Args:
        m: the memberships; the rule uses the :func:`entries_needed` largest entries.
        links: ``[E, 2]``, vertex numbers.
        rule: name of the rule.
        threshold: threshold of the rule, by default its own.
        min_size: smallest size of a community.
        rows: source of whole rows for ``link`` and ``share``, by default the entries of ``m``.
        tell: called by ``link`` and ``share`` with the share of the links that is done.

    Raises the errors of :func:`checked_threshold`.
    """
    value = checked_threshold(rule, threshold)
    seen_by_rule = m.first(entries_needed(rule, value, m.k))
    vertices, communities = RULES[rule].apply(seen_by_rule, rows or m.rows, links, value, tell)
    order = np.lexsort((vertices, communities))
    vertices, communities = vertices[order], communities[order]
    labels, starts = np.unique(communities, return_index=True)
    seen: set[bytes] = set()
    kept: list[tuple[Ints, int]] = []
    for label, members in zip(labels.tolist(), np.split(vertices, starts[1:]), strict=False):
        key = members.tobytes()
        if len(members) >= min_size and key not in seen:
            seen.add(key)
            kept.append((members, label))
    kept.sort(key=lambda pair: (-len(pair[0]), pair[1]))
    return Cover(tuple(k[0] for k in kept), tuple(k[1] for k in kept), len(m.indices))
