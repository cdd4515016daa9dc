"""Memberships: the largest entries of every row of pi, and what is outside them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import plural
from mmsbgen.base.processes import in_parts, joined
from mmsbgen.families.mmsb.numbers.row_layout import DELTA
from mmsbgen.sampler.calibration.curve import CalibrationCurve
from mmsbgen.sampler.diagnostics import explained_links
from mmsbgen.sampler.diagnostics.explained_links import Array, EntryRows, Floats, Ints, RowSource
from mmsbgen.sampler.posterior.draws import Draws
from mmsbgen.sampler.posterior.moments import MomentRows, Posterior, beta_interval, checked_level, link_moments

#: Elements of rows processed at a time in the search for the largest; they fit into a core's cache.
_CACHED = 1 << 18
#: Elements of rows at a time in the moments of link probabilities.
_LINK_ELEMENTS = 1 << 18
#: Entries of a row times this, above which its products take longer than those of whole rows.
_DENSE = 4
#: Share of ``spread`` outside a row's stored entries below which its rest is not divided: rounding would decide it.
_DIVISIBLE = 1e-6
#: Least link probability that is pooled.
_LEAST = 1e-300


@dataclass(frozen=True)
class Memberships:
    """The largest entries of every row of pi.

    ``indices`` and ``values`` are ``[N, r]``, largest first; ``beta`` ``[W]`` the strengths; ``ids`` ``[N]`` the
    vertices' ids in the input; ``delta`` the probability of a link across communities; ``unlinked`` the vertices
    without a training link, ascending.  With r = W all of pi is stored.

    ``columns`` ``[W]`` is the column of the chain's pi behind each column here, -1 for a community that the model has
    none for.  ``codes`` ``[N, W]`` holds all of pi in one byte an entry, round(255 sqrt(pi)), or nothing.  ``rest``
    ``[N]`` is the mass of each row outside its stored entries, ``spread`` ``[W]`` the sum of those parts by column;
    both are 0 if not known.

    ``others`` are the memberships by other chains on the same graph, with columns of their own; link probabilities are
    pooled over all chains.  ``curve`` calibrates link probabilities; without it they are those of the model.

    A chain that samples has ``draws`` of quantities that do not depend on the order of communities and, if it was asked
    to sample, ``posterior`` means and standard deviations.
    """

    ids: Array
    indices: npt.NDArray[np.int32]
    values: npt.NDArray[np.floating[Any]]
    beta: Floats
    delta: float = DELTA
    unlinked: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    rest: Floats = field(default_factory=lambda: np.zeros(0))
    spread: Floats = field(default_factory=lambda: np.zeros(0))
    columns: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    codes: npt.NDArray[np.uint8] = field(default_factory=lambda: np.zeros((0, 0), np.uint8))
    others: tuple[Memberships, ...] = ()
    posterior: Posterior | None = None
    draws: Draws | None = None
    curve: CalibrationCurve | None = None

    def __post_init__(self) -> None:
        if not self.rest.size:
            object.__setattr__(self, "rest", np.zeros(len(self.indices)))
        if not self.spread.size:
            object.__setattr__(self, "spread", np.zeros(self.beta.size))
        if not self.columns.size:
            object.__setattr__(self, "columns", np.arange(self.beta.size))

    def __repr__(self) -> str:
        n, stored = self.indices.shape
        chains = f", {1 + len(self.others)} chains" if self.others else ""
        return f"<Memberships: {plural(n, 'vertex', 'vertices')}, K={self.k}, {stored} of each kept{chains}>"

    @property
    def width(self) -> int:
        """Number of columns W."""
        return int(self.beta.size)

    @property
    def all_draws(self) -> list[Draws]:
        """The draws of this chain and of the others, without chains that have none."""
        return [one.draws for one in (self, *self.others) if one.draws is not None]

    @property
    def k(self) -> int:
        """Number of communities of the model, K."""
        return int(np.count_nonzero(self.columns >= 0))

    def with_unseen(self, count: int) -> Memberships:
        """A copy for link probabilities with ``count`` more vertices, of which no link is known."""
        n = len(self.indices)
        unlinked = np.concatenate([self.unlinked, np.arange(n, n + count)])
        return replace(self, unlinked=unlinked, others=tuple(one.with_unseen(count) for one in self.others))

    def first(self, r: int) -> Memberships:
        """A copy with only the ``r`` largest entries of each row, without ``posterior``."""
        indices, values = (np.ascontiguousarray(array[:, :r]) for array in (self.indices, self.values))
        rest = self.rest + self.values[:, r:].sum(axis=1, dtype=np.float64)
        spread = self.spread + by_community(self.indices[:, r:], self.values[:, r:], self.width)
        return replace(self, indices=indices, values=values, rest=rest, spread=spread, posterior=None)

    def renumbered(self, columns: Ints, strengths: Floats) -> Memberships:
        """A copy whose column c is column ``columns[c]`` of this one, without ``codes`` and ``posterior``.

        ``columns`` ``[W]`` has every column of this one, and -1 for a new and empty one, whose strength is
        ``strengths[c]``.
        """
        old = columns >= 0
        place = np.empty(self.width, np.int32)
        place[columns[old]] = np.flatnonzero(old)
        indices = self.indices.reshape(-1)
        return replace(
            self,
            indices=in_parts(lambda part: (place[indices[part]],), indices.size)[0].reshape(self.indices.shape),
            beta=np.where(old, self.beta[columns], strengths),
            spread=np.where(old, self.spread[columns], 0.0),
            columns=np.where(old, self.columns[columns], -1),
            codes=np.zeros((0, 0), np.uint8),
            posterior=None,
        )

    def rows(self, vertices: Ints) -> Array:
        """pi ``[V, W]`` of ``vertices`` ``[V]``; entries that are not stored are 0."""
        rows = np.zeros((len(vertices), self.width), self.values.dtype)
        np.put_along_axis(rows, self.indices[vertices].astype(np.int64), self.values[vertices], axis=1)
        return rows

    def completed_rows(self, vertices: Ints) -> Array:
        """pi ``[V, W]`` of ``vertices`` ``[V]``, from ``codes``, or with ``rest`` divided as ``spread``."""
        rows = self.rows(vertices)
        if not self.rest[vertices].any():
            return rows
        if self.codes.size:
            return decoded(self.codes[vertices], rows.dtype)
        completed: Array = rows + self._divided(vertices, self.rest[vertices]).astype(rows.dtype)
        return completed

    def _divided(self, vertices: Ints, rest: Floats) -> Floats:
        """The mass ``rest`` ``[V]`` over the entries ``[V, W]`` that are not stored, divided as ``spread``."""
        others = np.repeat(self.spread[None], len(vertices), axis=0)
        np.put_along_axis(others, self.indices[vertices].astype(np.int64), 0.0, axis=1)
        total = others.sum(axis=1)
        divided: Floats = others * np.divide(rest, total, out=np.zeros(len(vertices)), where=total > 0)[:, None]
        return divided

    def link_probabilities(self, pairs: Ints, rows: RowSource | None = None, calibrated: bool = True) -> Floats:
        """p(link) ``[P]`` of ``pairs`` ``[P, 2]`` of vertices, from ``rows``, or from :meth:`completed_rows`.

        It is that of the model, eq. (2.2), or what ``curve`` makes of it if there is one and ``calibrated`` is true.
        Vertices without a training link get the prior's mean row:
        :func:`mmsbgen.sampler.diagnostics.explained_links.as_unknown`.  With several chains the model's probability is
        the geometric mean of theirs.
        """
        found = self._of_model(pairs, rows)
        return self.calibrated(found) if calibrated else found

    def calibrated(self, p: Floats) -> Floats:
        """Probabilities ``[P]`` of the model after ``curve``."""
        return p if self.curve is None else self.curve(p)

    def _of_model(self, pairs: Ints, rows: RowSource | None) -> Floats:
        few = not self.codes.size and _DENSE * self.indices.shape[1] <= self.width
        own = StoredRows(self) if few else self.completed_rows
        read = explained_links.as_unknown(rows or own, self.unlinked, self._prior())
        found = explained_links.link_probabilities(pairs, read, self.beta, self.delta)
        if not self.others:
            return found
        each = [found, *(other._of_model(pairs, None) for other in self.others)]
        pooled: Floats = np.exp(np.mean(np.log(np.maximum(each, _LEAST)), axis=0))
        return pooled

    def intervals(self, level: float = 0.9) -> Floats:
        """Equal-tailed posterior intervals ``[N, r, 2]`` of the stored entries: Beta laws with their moments.

        Those of other chains are in ``others``.  Raises :class:`InputError` if the run did not sample.
        """
        posterior = self._posterior()
        return beta_interval([(posterior.mean, posterior.sd.astype(np.float64) ** 2)], checked_level(level))

    def link_intervals(self, pairs: Ints, level: float, calibrated: bool = True) -> tuple[Floats, Floats]:
        """Posterior means ``[P]`` and equal-tailed intervals ``[P, 2]`` of p(link) of ``pairs`` ``[P, 2]`` of vertices.

        Beta laws with the moments of :func:`mmsbgen.sampler.posterior.moments.link_moments`; with several chains their
        mixture.  ``curve``, which never falls, takes quantiles to quantiles.  Raises :class:`InputError` if the run did
        not sample.
        """
        level = checked_level(level)
        moments = [one.link_moments(pairs) for one in (self, *self.others)]
        found = np.mean([mean for mean, _ in moments], axis=0), beta_interval(moments, level)
        return (self.calibrated(found[0]), self.calibrated(found[1])) if calibrated else found

    def link_moments(self, pairs: Ints) -> tuple[Floats, Floats]:
        """Posterior mean and variance ``[P]`` of p(link) of ``pairs`` by this chain alone."""
        posterior, step = self._posterior(), max(1, _LINK_ELEMENTS // self.width)
        parts = [np.zeros((2, 0))]
        for first in range(0, len(pairs), step):
            a, b = (self._moment_rows(end) for end in pairs[first : first + step].T)
            parts.append(np.stack(link_moments(a, b, posterior, self.delta)))
        mean, variance = np.concatenate(parts, axis=1)
        return mean, variance

    def _posterior(self) -> Posterior:
        if self.posterior is None:
            raise InputError(
                "intervals need samples of the posterior, and this run has no moments of any: give --sample-sweeps "
                "(sample_sweeps=), or --noise (noise=True) to sample from the start"
            )
        return self.posterior

    def _moment_rows(self, vertices: Ints) -> MomentRows:
        """Posterior means and variances of whole rows; vertices without a training link have those of the prior."""
        posterior, at = self._posterior(), self.indices[vertices].astype(np.int64)
        stored_mean, stored = (array[vertices].astype(np.float64) for array in (posterior.mean, posterior.sd))
        if posterior.mean_codes.size:
            mean = decoded(posterior.mean_codes[vertices], np.float64)
            variance = (posterior.sd_codes[vertices] / 255.0) ** 4
        else:
            mean = self._divided(vertices, (1.0 - stored_mean.sum(axis=1)).clip(min=0.0))
            # The other entries spread as those of a Dirichlet law with the spread of the stored ones.
            most = (stored_mean * (1.0 - stored_mean)).sum(axis=1)
            share = np.divide((stored**2).sum(axis=1), most, out=np.zeros(len(most)), where=most > 0)
            variance = mean * (1.0 - mean) * share[:, None]
        np.put_along_axis(mean, at, stored_mean, axis=1)
        np.put_along_axis(variance, at, stored**2, axis=1)
        unknown = np.isin(vertices, self.unlinked)
        prior = self._prior()
        mean[unknown], variance[unknown] = prior, prior * (1.0 - prior) / (posterior.prior_sum + 1.0)
        return MomentRows(mean, variance)

    def _prior(self) -> Floats:
        """The prior's mean row ``[W]``: 1/K in every column of the model."""
        return np.where(self.columns >= 0, 1.0 / self.k, 0.0)

    def dense(self) -> Array:
        """pi ``[N, W]``; entries that are not stored are 0."""
        return self.rows(np.arange(len(self.indices)))


@dataclass(frozen=True)
class StoredRows:
    """Rows of ``memberships`` from their entries; ``completed`` with the rest of each row divided as ``spread``.

    No community may occur twice in a row.  A rest is left out if nearly all of ``spread`` is in the row's communities.
    """

    memberships: Memberships
    completed: bool = True

    def __call__(self, vertices: Ints) -> Array:
        """The rows ``[V, W]`` of ``vertices`` ``[V]``."""
        return self.entry_rows(vertices).dense()

    def entry_rows(self, vertices: Ints) -> EntryRows:
        """The same rows, as entries."""
        m = self.memberships
        indices, values = m.indices[vertices], m.values[vertices].astype(np.float64)
        scales = np.zeros(len(vertices))
        if self.completed:
            whole = m.spread.sum()
            outside = whole - m.spread[indices].sum(axis=1)
            np.divide(m.rest[vertices], outside, out=scales, where=outside > _DIVISIBLE * whole)
        return EntryRows.of(indices, values, scales, m.spread)


def by_column(rows: Array, columns: Ints) -> Array:
    """Column ``columns[c]`` of ``rows`` ``[R, K]`` as column c, and 0 where that is -1: ``[R, W]``."""
    found: Array = np.where(columns >= 0, rows[:, columns], rows.dtype.type(0))
    return found


def encoded(rows: Array) -> npt.NDArray[np.uint8]:
    """``rows`` of pi in one byte an entry, round(255 sqrt(pi)): small entries, which are many, keep their size."""
    codes: npt.NDArray[np.uint8] = np.rint(255.0 * np.sqrt(rows.clip(0.0, 1.0))).astype(np.uint8)
    return codes


def decoded(codes: npt.NDArray[np.uint8], dtype: npt.DTypeLike) -> Array:
    """The rows of pi that :func:`encoded` got, each with the sum 1."""
    squares = codes.astype(dtype) ** 2
    rows: Array = squares / squares.sum(axis=1, keepdims=True)
    return rows


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


def by_community(indices: npt.NDArray[np.int32], values: Array, k: int) -> Floats:
    """The sums ``[k]`` of ``values`` ``[N, r]`` by community, a part of the rows at a time to bound the memory."""
    sums, step = np.zeros(k), max(1, _CACHED // max(1, indices.shape[1]))
    for first in range(0, len(indices), step):
        part = slice(first, first + step)
        sums += np.bincount(indices[part].ravel(), values[part].ravel(), k)
    return sums


def largest_of_parts(
    parts: Iterable[Array], r: int, shape: tuple[int, int], dtype: npt.DTypeLike
) -> tuple[npt.NDArray[np.int32], Array, Floats, Floats]:
    """Indices and values ``[N, r]`` as :func:`largest`, and :func:`outside` of all rows, read in parts.

    ``shape`` ``[N, K]`` and ``dtype`` are those of the rows.
    """
    n, k = shape
    indices, values, rest, spread = np.empty((n, r), np.int32), np.empty((n, r), dtype), np.empty(n), np.zeros(k)
    first = 0
    for rows in parts:
        part = slice(first, first + len(rows))
        indices[part], values[part] = largest(rows, r)
        rest[part], left = outside(rows, indices[part], values[part])
        spread += left
        first += len(rows)
    return indices, values, rest, spread


def largest(rows: Array, r: int) -> tuple[npt.NDArray[np.int32], Array]:
    """Indices and values ``[R, r]`` of the ``r`` largest entries of each row, largest first, ties by index."""
    step = max(1, _CACHED // rows.shape[1])
    parts = range(0, max(1, len(rows)), step)
    indices, values = joined(lambda first: _largest(rows[first : first + step], r), parts)
    return indices, values


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
