"""Link probabilities from rows of pi, and the share of a link that each community explains (eq. 3.5).

These functions compute on the host unless noted, a part of the links at a time.  The best community of a link is found
on the device (:func:`mmsbgen.sampler.diagnostics.state_rows.best_communities`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from mmsbgen.base.processes import run_side_by_side

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]
#: Rows of pi ``[V, K]`` of the vertices ``[V]``.
RowSource = Callable[[Ints], Array]
#: Elements of rows of pi processed at a time.
_BLOCK = 1 << 21
#: Pairs of rows with few entries at a time.
_PAIRS = 1 << 15
#: Links that a thread takes at a time; their arrays stay in its cache.
_LINKS = 1 << 11
#: Elements of products of rows summed at a time; they fit into a core's cache.
_CACHED = 1 << 17


class EntryRows(NamedTuple):
    """Rows of pi ``[V, W]`` as few entries on top of multiples of common rows: ``scales @ common + entries``.

    ``entries`` is a sparse matrix ``[V, W]``, ``scales`` are ``[V, S]`` and ``common`` ``[S, W]``.
    """

    entries: csr_array
    scales: Floats
    common: Floats

    @classmethod
    def of(cls, communities: Array, values: Array, scales: Floats, common: Floats) -> EntryRows:
        """Rows ``scales`` ``[V]`` times ``common`` ``[W]``, with ``values`` ``[V, r]`` instead at ``communities``."""
        (count, r), width = communities.shape, common.size
        there = communities < width  # unused entries have a larger number
        at = np.where(there, communities, 0).astype(np.int64)
        above = np.where(there, values - scales[:, None] * common[at], 0.0)
        entries = _matrix(above.ravel(), at.ravel(), np.arange(count + 1) * r, width)
        entries.sum_duplicates()
        return cls(entries, scales[:, None], common[None])

    def dense(self) -> Floats:
        """The whole rows."""
        rows: Floats = self.scales @ self.common + self.entries.toarray()
        return rows

    def with_prior(self, unknown: npt.NDArray[np.bool_], prior: Floats) -> EntryRows:
        """These rows where ``unknown`` ``[V]`` is false, in their order, and ``prior`` ``[W]`` where it is true."""
        counts, scales = np.zeros(unknown.size, np.int64), np.zeros((unknown.size, len(self.common) + 1))
        counts[~unknown], scales[~unknown, :-1], scales[unknown, -1] = np.diff(self.entries.indptr), self.scales, 1.0
        offsets = np.concatenate([[0], np.cumsum(counts)])
        entries = _matrix(self.entries.data, self.entries.indices, offsets, prior.size)
        return EntryRows(entries, scales, np.vstack([self.common, prior]))

    def link_probabilities(self, ends: Ints, beta: Floats, delta: float) -> Floats:
        """p(link) ``[P]`` of the pairs of rows ``ends`` ``[P, 2]``, eq. (2.2), in time O(r) a pair."""
        weights = beta - delta
        (a, b), common = ends.T, self.common * weights
        across = self.entries @ common.T
        found: Floats = delta + np.einsum("ps,ps->p", self.scales[a] @ (common @ self.common.T), self.scales[b])
        found += np.einsum("ps,ps->p", across[a], self.scales[b]) + np.einsum("ps,ps->p", self.scales[a], across[b])
        found += self.entries[a].multiply(self.entries[b]) @ weights
        return found.clip(min=0.0)


def _matrix(values: Floats, columns: Ints, offsets: Ints, width: int) -> csr_array:
    from scipy.sparse import csr_array  # takes a tenth of a second

    return csr_array((values, columns, offsets), (offsets.size - 1, width))


@runtime_checkable
class EntrySource(Protocol):
    """A :data:`RowSource` that also has its rows as :class:`EntryRows`."""

    def __call__(self, vertices: Ints) -> Array:
        """The rows ``[V, W]`` of ``vertices`` ``[V]``."""

    def entry_rows(self, vertices: Ints) -> EntryRows:
        """The rows of ``vertices`` ``[V]``, as entries."""


class _WithPrior:
    """Rows of ``rows``, with ``prior`` for the vertices ``unlinked``."""

    def __init__(self, rows: RowSource, unlinked: Ints, prior: Floats) -> None:
        self._rows, self._unlinked, self._prior = rows, unlinked, prior

    def _unknown(self, vertices: Ints) -> npt.NDArray[np.bool_]:
        at = np.minimum(np.searchsorted(self._unlinked, vertices), self._unlinked.size - 1)
        unknown: npt.NDArray[np.bool_] = self._unlinked[at] == vertices
        return unknown

    def __call__(self, vertices: Ints) -> Array:
        unknown = self._unknown(vertices)
        if not unknown.any():
            return self._rows(vertices)
        known = self._rows(vertices[~unknown])
        found = np.repeat(self._prior[None].astype(known.dtype), len(vertices), axis=0)
        found[~unknown] = known
        return found


class _EntriesWithPrior(_WithPrior):
    """The same for an :class:`EntrySource`."""

    _rows: EntrySource

    def entry_rows(self, vertices: Ints) -> EntryRows:
        unknown = self._unknown(vertices)
        return self._rows.entry_rows(vertices[~unknown]).with_prior(unknown, self._prior)


def as_unknown(rows: RowSource, unlinked: Ints, prior: Floats) -> RowSource:
    """``rows`` for predictions, with the prior's mean row ``[K]`` for the vertices ``unlinked`` (ascending).

    The fit puts a vertex without training links into communities without links, so that no link of it would be
    predicted.  But the links of such a vertex are mostly held out or not known yet.
    """
    if not unlinked.size:
        return rows
    kind = _EntriesWithPrior if isinstance(rows, EntrySource) else _WithPrior
    return kind(rows, unlinked, prior)


def link_probabilities(pairs: Ints, rows: RowSource, beta: Floats, delta: float) -> Floats:
    """p(link) ``[P]`` of ``pairs`` ``[P, 2]`` of vertices, eq. (2.2)."""
    found = np.empty(len(pairs))
    if isinstance(rows, EntrySource):
        for first in range(0, len(pairs), _PAIRS):
            ends = pairs[first : first + _PAIRS]
            vertices, at = np.unique(ends, return_inverse=True)
            of_part = rows.entry_rows(vertices).link_probabilities(at.reshape(ends.shape), beta, delta)
            found[first : first + _PAIRS] = of_part
        return found
    step = max(1, _BLOCK // beta.size)
    for first in range(0, len(pairs), step):
        a, b = (rows(end).astype(np.float64) for end in pairs[first : first + step].T)
        both = a * b
        found[first : first + step] = both @ beta + delta * (1.0 - both.sum(axis=1)).clip(min=0.0)
    return found


class Explained(NamedTuple):
    """Some links: their ``ends`` ``[C, 2]``, and the ``shares`` ``[C, K]`` of p(link) that communities explain.

    The rest of the shares to 1 is the probability that the ends acted in different communities.
    """

    ends: Ints
    shares: Floats


def explained(links: Ints, rows: RowSource, beta: Floats, delta: float) -> Iterator[Explained]:
    """The shares of ``links`` ``[E, 2]`` for all communities, a part of the links at a time to bound the memory.

    Whole rows are needed: small entries of two rows together can explain a link better than their largest common one.
    """
    step = max(1, _BLOCK // beta.size)
    for first in range(0, len(links), step):
        ends = links[first : first + step].astype(np.int64)
        there, at = np.unique(ends, return_inverse=True)
        a, b = at.reshape(ends.shape).T
        pi = rows(there)
        shares = np.multiply(pi[a], pi[b], dtype=np.float64)
        across = delta * (1.0 - shares.sum(axis=1)).clip(min=0.0)
        shares *= beta
        shares /= (shares.sum(axis=1) + across)[:, None]  # eq. (2.2)
        yield Explained(ends, shares)


def explained_at(
    links: Ints, rows: RowSource, beta: Floats, delta: float, at: npt.NDArray[np.integer[Any]]
) -> Iterator[Explained]:
    """The shares ``[C, 2, r]`` of links that the communities ``at`` ``[N, r]`` of both ends explain.

    As :func:`explained`, for selected communities and in the precision of the rows.  The sum over all communities is
    one dot product per link, Z = delta + sum_k (beta_k - delta) pi_ak pi_bk.  If ``rows`` has a method
    ``explained_at`` (:class:`mmsbgen.sampler.diagnostics.state_rows.Rows`), it is used.
    """
    if (on_device := getattr(rows, "explained_at", None)) is not None:
        yield from on_device(links, beta, delta, at)
        return
    step, cached = max(1, _BLOCK // beta.size), max(1, _CACHED // beta.size)
    for first in range(0, len(links), step):
        ends = links[first : first + step].astype(np.int64)
        there, index = np.unique(ends, return_inverse=True)
        index = index.reshape(ends.shape)
        pi = rows(there)
        weighted = pi * (beta - delta).astype(pi.dtype)
        z = np.empty(len(ends), pi.dtype)
        for begin in range(0, len(ends), cached):
            a, b = index[begin : begin + cached].T
            np.einsum("ck,ck->c", weighted[a], pi[b], out=z[begin : begin + cached])
        z = np.maximum(z + pi.dtype.type(delta), np.finfo(pi.dtype).tiny)
        wanted = at[ends]
        both = pi[index[:, 0, None, None], wanted] * pi[index[:, 1, None, None], wanted]
        yield Explained(ends, both * beta.astype(pi.dtype)[wanted] / z[:, None, None])


def to_members(ends: Array, communities: Array, members: Array) -> Array:
    """Whether the other end of a link ``[C, 2]`` is a member of each of an end's ``communities``, ``[C, 2, r]``."""
    found = np.zeros((*ends.shape, communities.shape[1]), bool)

    def find(first: int) -> None:
        part = slice(first, first + _LINKS)
        own = communities[ends[part]]
        others = np.where(members[ends[part]], own, -1)[:, ::-1]  # -1 is none
        for column in range(own.shape[2]):
            found[part] |= own == others[:, :, column, None]

    run_side_by_side(find, range(0, len(ends), _LINKS))
    return found
