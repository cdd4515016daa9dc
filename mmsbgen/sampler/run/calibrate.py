"""Fit the calibration of a run's link probabilities on validation pairs, and judge it on test pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mmsbgen.base.id_text import plural
from mmsbgen.base.processes import side_by_side
from mmsbgen.graph import Graph, Split
from mmsbgen.graph.graph import pack_pairs
from mmsbgen.sampler.calibration.curve import CalibrationCurve, fitted, probabilities
from mmsbgen.sampler.calibration.reliability import reliability
from mmsbgen.sampler.diagnostics.explained_links import Floats, Ints, link_probabilities
from mmsbgen.sampler.diagnostics.memberships import Memberships, StoredRows, by_community

#: Fewest validation links for a calibration: with so many it was better than none on every graph that was tried.
FEWEST_LINKS = 20
#: Most training links; pairs drawn in proportion to p(link), and uniformly; most elements of rows of pi for each.
_TRAINING, _BY_PROBABILITY, _UNIFORM, _MOST_ELEMENTS = 20_000, 20_000, 2_000, 1 << 26
#: Most entries of pi from which pairs are drawn.
_MOST_ENTRIES = 1 << 26
#: Vertices that a thread takes at a time.
_ROWS = 1 << 16
#: Multiplier of Fibonacci hashing.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def calibrate(
    found: Memberships, split: Split, seed: int, entries: Memberships | None = None
) -> tuple[Memberships, dict[str, Any]]:
    """``found`` with a curve fitted on the validation pairs, if these suffice, and an entry of the run record.

    Pairs are drawn by the stored entries of ``entries``, if given, which are more than those of ``found``.

    A calibrated probability is the share of links among the graph's pairs of that p(link), if the fit has not seen them
    as links.  Held-out links are a sample of all links at a known rate.  Held-out non-links are drawn uniformly, so
    that hardly any has a large p(link); therefore others are drawn, mostly in proportion to p(link), at known rates.
    One half of these is for the fit, the other for the test.  Where p(link) is large, training links, which are many,
    give the shape of the curve.

    Keys of the entry: ``calibrated``; ``text``, for people; ``curve``, its points as probabilities; ``test``, what
    :func:`mmsbgen.sampler.calibration.reliability.reliability` says of the test pairs.
    """
    held = (split.validation, split.test)
    links, test_links = (_between_known(part.pairs[part.labels], found.unlinked) for part in held)
    enough = len(links) >= FEWEST_LINKS
    note: dict[str, Any] = {"calibrated": enough, "text": _text(len(links)), "curve": None, "test": None}
    if not enough and not len(test_links):
        return found, note
    draws = _Draws(found, found if entries is None else entries)
    rng = np.random.Generator(np.random.PCG64([seed, 6]))
    non_links = draws.non_links(split.graph, rng)
    training = split.some_training_links(min(_TRAINING, draws.most), rng) if enough else links[:0]
    # By a hash of the pair, so that no pair is in both halves, however often it was drawn.
    first = (pack_pairs(*non_links.T) * _GOLDEN) >> np.uint64(63) == 0
    rated = draws.rated(found, (training, links, test_links, non_links))

    def sample(number: int, drawn: int, half: npt.NDArray[np.bool_]) -> _Sample:
        """Of ``drawn`` links the array ``number`` of those that are rated, and a half of the drawn non-links."""
        own, others = rated[number], rated[-1]
        p, expected = (np.concatenate([a, b[half]]) for a, b in zip(own, others, strict=True))
        is_link = np.arange(p.size) < own.p.size
        return _Sample(p, is_link, drawn / split.graph.n_links, expected / 2)

    curve = None
    if enough:
        shape = sample(0, len(training), first).curve()
        curve = sample(1, split.validation.n_links, first).curve(shape)
        found = replace(found, curve=curve)
        points, values = map(probabilities, (curve.points, curve.values))
        note["curve"] = {"model": points.tolist(), "calibrated": values.tolist()}
    if len(test_links):
        tested = sample(2, split.test.n_links, ~first)
        p = tested.p if curve is None else curve(tested.p)
        weights = np.where(tested.links, 1 / tested.link_rate, 1 / tested.non_link_rates)
        note["test"] = reliability(p, tested.p, tested.links, weights, seed)
    return found, note


def _text(n_links: int) -> str:
    if n_links >= FEWEST_LINKS:
        return f"Link probabilities are calibrated on {plural(n_links, 'validation link')}."
    return (
        f"Link probabilities are not calibrated: {FEWEST_LINKS} validation links are needed whose two vertices have "
        f"training links, and there are {n_links}; --validation holds out more."
    )


@dataclass(frozen=True)
class _Sample:
    """Links and non-links with the model's ``p`` ``[S]``, and the rates at which a pair of each kind is drawn."""

    p: Floats
    links: npt.NDArray[np.bool_]
    link_rate: float
    non_link_rates: Floats

    def curve(self, shape: CalibrationCurve | None = None) -> CalibrationCurve:
        """The curve for this sample."""
        return fitted(self.p, self.links, self.link_rate / self.non_link_rates, shape)


class _Rated(NamedTuple):
    """The model's ``p`` ``[S]`` of pairs, and how often each is ``expected`` among the draws."""

    p: Floats
    expected: Floats


class _Draws:
    """Draws of pairs, with replacement: uniform, and in proportion to p(link) by the stored entries of every chain.

    Vertices without training links, of which nothing is known, are not drawn.

    A community k is drawn in proportion to beta_k S_k^2, S_k being the sum of its entries of pi, and both ends in
    proportion to theirs.  A pair is then drawn in proportion to sum_k beta_k pi_ak pi_bk, eq. (2.2) without delta.
    """

    def __init__(self, found: Memberships, entries: Memberships) -> None:
        chains, stored = (found, *found.others), (entries, *found.others)
        widths = [one.width if one.codes.size else one.indices.shape[1] for one in chains]
        n, self.most = len(found.ids), max(2, _MOST_ELEMENTS // sum(widths))
        self._chains = [_without(found.unlinked, one.first(max(1, _MOST_ENTRIES // n))) for one in stored]
        self._n, self._before = n - found.unlinked.size, found.unlinked - np.arange(found.unlinked.size)
        self._sums = [by_community(one.indices, one.values, one.width) for one in self._chains]
        self._uniform = min(_UNIFORM, self.most // 2)
        self._each = min(_BY_PROBABILITY, self.most) // len(chains)

    def non_links(self, graph: Graph, rng: np.random.Generator) -> Ints:
        """Non-links of the graph ``[S, 2]``, u < v; a pair may be drawn several times."""
        uniform = rng.integers(self._n, size=(self._uniform, 2))
        # Where ``_before[i]`` others are before the unknown vertex i, number r is r plus those with at most r.
        drawn = [uniform + np.searchsorted(self._before, uniform, side="right")]
        for one, sums in zip(self._chains, self._sums, strict=True):
            mass = one.beta * sums**2
            communities = np.repeat(np.arange(one.width), rng.multinomial(self._each, mass / mass.sum()))
            drawn.append(_members(one, communities, rng))
        pairs = np.sort(np.concatenate(drawn), axis=1)
        pairs = pairs[pairs[:, 0] < pairs[:, 1]]
        known, keys = pack_pairs(*graph.links.T), pack_pairs(*pairs.T)
        at = np.minimum(np.searchsorted(known, keys), known.size - 1)
        free: Ints = pairs[known[at] != keys]
        return free

    def rated(self, found: Memberships, each: Sequence[npt.NDArray[Any]]) -> list[_Rated]:
        """The pairs of ``each`` array ``[S, 2]``, all in one go."""
        pairs, ends = np.concatenate(each), np.cumsum([len(one) for one in each])[:-1]
        p = found.link_probabilities(pairs, calibrated=False)
        return list(map(_Rated, np.split(p, ends), np.split(self._expected(pairs), ends)))

    def _expected(self, pairs: Ints) -> Floats:
        """How often each of ``pairs`` ``[S, 2]`` is drawn on average ``[S]``."""
        expected = np.full(len(pairs), 2.0 * self._uniform / self._n**2)
        for one, sums in zip(self._chains, self._sums, strict=True):
            weights = one.beta * 2.0 * self._each / float(one.beta @ sums**2)
            expected += link_probabilities(pairs, StoredRows(one, completed=False), weights, 0.0)
        return expected


def _between_known(pairs: Ints, unknown: Ints) -> Ints:
    """Those of ``pairs`` ``[S, 2]`` whose ends are both not ``unknown``."""
    return pairs[~np.isin(pairs, unknown).any(axis=1)]


def _without(vertices: Ints, found: Memberships) -> Memberships:
    """``found`` with entries of 0 for ``vertices``."""
    if not vertices.size:
        return found
    values = found.values.copy()
    values[vertices] = 0.0
    return replace(found, values=values)


def _members(found: Memberships, communities: Ints, rng: np.random.Generator) -> Ints:
    """Two vertices ``[S, 2]`` for each of the ``communities`` ``[S]``, in proportion to their entries of it."""
    from scipy.sparse import csr_array  # takes a tenth of a second

    n, r = found.indices.shape

    def by_community(rows: slice) -> tuple[Ints, Ints, Floats]:
        """Of a part of the vertices: where each community begins, its vertices, and the sums of entries before each."""
        indices, values = found.indices[rows], found.values[rows]
        shape = len(indices), found.width
        entries = csr_array((values.ravel(), indices.ravel(), np.arange(shape[0] + 1) * r), shape).tocsc()
        return entries.indptr, entries.indices, np.append(0.0, np.cumsum(entries.data, dtype=np.float64))

    parts = [slice(first, first + _ROWS) for first in range(0, n, _ROWS)]
    ordered = list(side_by_side(by_community, parts))
    sums = np.cumsum([np.zeros(found.width), *(np.diff(before[starts]) for starts, _, before in ordered)], axis=0)
    whole = sums[-1, communities][:, None]
    places = np.minimum(rng.random((2, communities.size)).T * whole, np.nextafter(whole, 0.0))
    drawn = np.zeros((communities.size, 2), np.int64)
    for number, (part, (starts, vertices, before)) in enumerate(zip(parts, ordered, strict=True)):
        within = places - sums[number, communities][:, None]
        at, end = np.nonzero((within >= 0) & (places < sums[number + 1, communities][:, None]))
        begin, stop = (starts[communities[at] + i].astype(np.int64) for i in (0, 1))
        found_at = np.searchsorted(before, before[begin] + within[at, end], "right").clip(begin + 1, stop) - 1
        drawn[at, end] = part.start + vertices[found_at]
    return drawn
