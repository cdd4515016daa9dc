"""Split of the pairs of a graph into training, validation and test.

A held-out set has equal numbers of links and non-links, as in the published programs, so that perplexities are
comparable.  Both are of vertices that have links: pairs of others say nothing of communities, and may be most of all.
Metrics of all pairs must be weighted by :attr:`Split.density`.  Held-out links are removed from the training adjacency.
Training uses no held-out pair in a mini-batch or as a partner.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import plural
from mmsbgen.base.processes import side_by_side
from mmsbgen.base.progress import stage
from mmsbgen.graph.graph import (
    AT_A_TIME,
    Adjacency,
    Graph,
    Int64Array,
    UInt32Array,
    degrees_of,
    distinct_keys,
    links_without,
    pack_pairs,
    read_only,
    unpack_pairs,
)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out pairs and their labels: links first, then non-links, each in lexicographic order.

    ``pairs`` is int64 ``[H, 2]`` with ``u < v``; ``labels`` is bool ``[H]``, True for a link.
    """

    pairs: Int64Array
    labels: NDArray[np.bool_]

    def __repr__(self) -> str:
        return f"<HeldOut: {plural(self.n_links, 'link')}, {plural(self.n_non_links, 'non-link')}>"

    @property
    def n_links(self) -> int:
        """Number of links among the pairs."""
        return int(np.count_nonzero(self.labels))

    @property
    def n_non_links(self) -> int:
        """Number of non-links among the pairs."""
        return self.labels.size - self.n_links


@dataclass(frozen=True, eq=False)
class Split:
    """The links of a graph divided into training, validation and test.

    validation, test
        :class:`HeldOut`; disjoint, possibly empty.

    Warnings:
        Messages about differences from the requested split; usually empty.
    """

    graph: Graph
    seed: int
    validation: HeldOut
    test: HeldOut
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return (
            f"<Split of {self.graph!r} by seed {self.seed}: {plural(self.n_training_links, 'training link')}, "
            f"{len(self.validation.pairs)} validation and {len(self.test.pairs)} test pairs>"
        )

    @cached_property
    def n_training_links(self) -> int:
        """E_tr, the number of training links."""
        return self.graph.n_links - self.validation.n_links - self.test.n_links

    @property
    def density(self) -> float:
        """Share of the pairs of vertices with links that are linked; 0 for fewer than two."""
        n = self.graph.n_vertices - self.graph.report.n_isolated
        return self.graph.n_links / max(1.0, n * (n - 1) / 2)

    @property
    def training_links(self) -> UInt32Array:
        """The training links, uint32 ``[E_tr, 2]``, ``u < v``, lexicographic; made anew, to save memory."""
        return self.training_part(0, self.graph.n_links)

    def training_part(self, begin: int, size: int = AT_A_TIME) -> UInt32Array:
        """The training links among ``size`` links of the graph from ``begin`` on, ``[L, 2]``."""
        return links_without(self.graph.links, self._held_places, begin, begin + size)

    def some_training_links(self, most: int, rng: np.random.Generator) -> UInt32Array:
        """``most`` of the training links, drawn at random, or all if there are no more, ``[L, 2]``."""
        if self.n_training_links <= most:
            return self.training_links
        drawn = rng.choice(self.n_training_links, most, replace=False)
        return self.graph.links[_skipping(drawn, self._held_places)]

    @cached_property
    def training_adjacency(self) -> Adjacency:
        """Adjacency of the training links. Vertices with links in the graph may be isolated here."""
        return Adjacency.from_pairs(self.graph.links, self.graph.n_vertices, self._held_places)

    @cached_property
    def degrees(self) -> Int64Array:
        """Number of links of every vertex of the graph, int64 ``[N]``."""
        held = degrees_of(self.graph.links[self._held_places], self.graph.n_vertices)
        return read_only(self.training_adjacency.degrees + held)

    @cached_property
    def _held_places(self) -> Int64Array:
        """The places ``[P]`` of the held-out links among the graph's links, ascending."""
        held = np.concatenate([part.pairs[part.labels] for part in (self.validation, self.test)])
        return places_of(self.graph.links, held)

    @cached_property
    def unlinked(self) -> Int64Array:
        """Vertices without a training link, ascending."""
        return read_only(np.flatnonzero(self.training_adjacency.degrees == 0).astype(np.int64))

    @cached_property
    def unlinked_validation(self) -> Int64Array:
        """Validation pairs that have an end without a training link: their places, ascending."""
        degrees = self.training_adjacency.degrees
        return read_only(np.flatnonzero((degrees[self.validation.pairs] == 0).any(axis=1)).astype(np.int64))

    @cached_property
    def held_out_pairs(self) -> Int64Array:
        """All pairs of validation and test, links and non-links, int64 ``[H, 2]``, ``u < v``, lexicographic."""
        pairs = np.concatenate([self.validation.pairs, self.test.pairs])
        return read_only(unpack_pairs(distinct_keys(pack_pairs(pairs[:, 0], pairs[:, 1]))))

    @cached_property
    def held_out_adjacency(self) -> Adjacency:
        """Adjacency of the held-out pairs: vertices of row ``a`` are never partners of ``a``."""
        return Adjacency.from_pairs(self.held_out_pairs, self.graph.n_vertices)

    @property
    def held_out_degree(self) -> Int64Array:
        """Number of held-out pairs of every vertex, |held(a)|, int64 ``[N]``."""
        return self.held_out_adjacency.degrees


def split(graph: Graph, *, validation: float = 0.01, test: float = 0.0, seed: int) -> Split:
    """Draw a :class:`Split`, which is determined by the graph, the fractions and the seed.

    Links are drawn uniformly without replacement, and as many distinct non-links of vertices that have links.  A
    positive fraction holds out at least one link if enough links remain; at least one link remains for training.  If
    there are too few non-links, all are held out, validation first, and ``Split.warnings`` has a message.  It also has
    one if more than half of the links are held out.

    Args:
        graph: the graph to split.
        validation: fraction of all links to hold out for validation.
        test: fraction of all links to hold out for test; it does not change the validation pairs.
        seed: seed of the draws, 0 or more.

    Raises:
        InputError: If a fraction is not in [0, 1), no training link would remain, or the seed is negative.
    """
    for word, fraction in (("validation", validation), ("test", test)):
        if not (math.isfinite(fraction) and 0 <= fraction < 1):
            raise InputError(f"{word} fraction {fraction}: give a fraction of the links in [0, 1), such as 0.01")
    if seed < 0:
        raise InputError(f"seed {seed} of the split: it must be 0 or more")
    n_links = graph.n_links
    notes: list[str] = []
    n_validation = _count(validation, n_links, taken=0, word="validation", notes=notes)
    n_test = _count(test, n_links, taken=n_validation, word="test", notes=notes)
    n_held_out = n_validation + n_test
    if n_held_out > max(n_links - 1, 0):
        raise InputError(
            f"{graph.name}: validation {validation} and test {test} would hold out {n_held_out} of "
            f"{plural(n_links, 'link')} and leave none for training; lower the fractions"
        )
    if validation + test > 0.5:
        notes.append(
            f"validation {validation:g} and test {test:g} hold out {n_held_out} of {n_links} links: communities are "
            f"found from the {n_links - n_held_out} that are left; lower the fractions to find those of the graph"
        )
    with stage("holding pairs out"):
        return _drawn(graph, seed, [seed, 3], notes, (n_validation, n_test))


def repeated(parts: Split, count: int) -> list[Split]:
    """``parts`` and more splits, ``count`` in all, with other validation pairs: for repeated random validation.

    All have the test pairs of ``parts``.  What is drawn depends on its seed.
    """
    tested = pack_pairs(parts.test.pairs[:, 0], parts.test.pairs[:, 1])

    def drawn(number: int) -> Split:
        found = _drawn(parts.graph, parts.seed, [parts.seed, 3, 3, number], [], (parts.validation.n_links, 0))
        pairs, labels = found.validation.pairs, found.validation.labels
        free = ~np.isin(pack_pairs(pairs[:, 0], pairs[:, 1]), tested)
        return replace(found, validation=HeldOut(read_only(pairs[free]), read_only(labels[free])), test=parts.test)

    return [parts, *map(drawn, range(1, count))]


def _drawn(graph: Graph, seed: int, key: list[int], notes: list[str], counts: tuple[int, int]) -> Split:
    """A split with these numbers of links for validation and test, drawn by ``key``."""
    (n_validation, n_test), n_links, n = counts, graph.n_links, graph.n_vertices - graph.report.n_isolated
    n_held_out, n_free = n_validation + n_test, n * (n - 1) // 2 - n_links
    # Test pairs use a separate stream, so that the validation pairs do not depend on ``test``.
    rng, test_rng = (np.random.Generator(np.random.PCG64(each)) for each in (key, [*key, 1]))
    drawn, free = _drawn_of(n_links, n_validation, rng), _drawn_of(n_free, n_validation, rng)
    if n_test:
        of_left = _drawn_of(n_links - n_validation, n_test, test_rng)
        free_left = _drawn_of(n_free - len(free), n_test, test_rng)
        drawn = np.concatenate([drawn, _skipping(of_left, np.sort(drawn))])
        free = np.concatenate([free, _skipping(free_left, np.sort(free))])
    begins = _row_begins(n)
    if n == graph.n_vertices:
        non_links = _pairs_at(begins, _skipping(free, graph.links, partial(_places, begins)))
    else:
        degrees = graph.degrees()
        place = np.cumsum(degrees > 0) - 1
        at = _skipping(free, graph.links, lambda part: _places(begins, place[part]))
        non_links = np.flatnonzero(degrees)[_pairs_at(begins, at)]
    if len(non_links) < n_held_out:
        notes.append(_few_non_links(graph, len(non_links), n_held_out, n_validation))
    return Split(
        graph=graph,
        seed=seed,
        validation=held_out(graph.links[drawn[:n_validation]], non_links[:n_validation]),
        test=held_out(graph.links[drawn[n_validation:]], non_links[n_validation:]),
        warnings=tuple(notes),
    )


def _few_non_links(graph: Graph, there: int, wanted: int, n_validation: int) -> str:
    isolated = graph.report.n_isolated
    if not there:
        with_links = " with links" if isolated else ""
        return (
            f"all pairs of the graph's {plural(graph.n_vertices - isolated, 'vertex', 'vertices')}{with_links} are "
            "linked: there is no non-link to hold out beside the links, so that AUC is unknown"
        )
    of_linked = "of linked vertices " if isolated else ""
    return (
        f"the graph has only {plural(there, 'pair')} {of_linked}without a link, and {wanted} were to be held out "
        f"beside as many links: all are held out, {min(there, n_validation)} for validation, and the fit sees none"
    )


def _count(fraction: float, n_links: int, *, taken: int, word: str, notes: list[str]) -> int:
    count = round(fraction * n_links)
    if fraction > 0 and count == 0:
        if n_links - taken > 1:
            return 1
        held = f", {taken} of them held out" if taken else ""
        notes.append(f"{word} is empty: with {plural(n_links, 'link')}{held}, the last one is for training")
    return count


def places_of(links: UInt32Array, pairs: NDArray[Any]) -> Int64Array:
    """The places ``[P]``, ascending, in ``links`` ``[E, 2]``, lexicographic, of those of ``pairs`` that are among them.

    ``pairs`` ``[Q, 2]`` have ``u < v``.
    """
    wanted = np.sort(pack_pairs(pairs[:, 0], pairs[:, 1]))

    def of(begin: int) -> Int64Array:
        keys = pack_pairs(*links[begin : begin + AT_A_TIME].T)
        near = wanted[slice(*np.searchsorted(wanted, keys[[0, -1]] + np.array([0, 1], np.uint64)))]
        at = np.searchsorted(keys, near)
        found: Int64Array = begin + at[keys[at] == near]
        return found

    parts = range(0, len(links) if wanted.size else 0, AT_A_TIME)
    return np.concatenate([np.zeros(0, np.int64), *side_by_side(of, parts)])


def held_out(links: NDArray[Any], non_links: NDArray[Any]) -> HeldOut:
    """These pairs, ``[L, 2]`` and ``[M, 2]`` with ``u < v``, in order and with their labels."""
    parts = [unpack_pairs(np.sort(pack_pairs(part[:, 0], part[:, 1]))) for part in (links, non_links)]
    labels = np.repeat([True, False], [len(links), len(non_links)])
    return HeldOut(read_only(np.concatenate(parts)), read_only(labels))


def _row_begins(n: int) -> Int64Array:
    """The place ``[N]`` of the first pair of each vertex among all pairs u < v of ``n`` vertices, row by row."""
    vertex = np.arange(n, dtype=np.uint64)
    # Unsigned, since the product before halving may exceed int64.
    return (vertex * (np.uint64(max(2 * n - 1, 0)) - vertex) // np.uint64(2)).astype(np.int64)


def pair_places(n: int, pairs: NDArray[Any]) -> Int64Array:
    """The places ``[P]`` of ``pairs`` ``[P, 2]``, u < v, among all pairs of ``n`` vertices, row by row."""
    return _places(_row_begins(n), pairs)


def _places(row_begin: Int64Array, pairs: NDArray[Any]) -> Int64Array:
    places: Int64Array = row_begin[pairs[:, 0]]
    places += pairs[:, 1]
    places -= pairs[:, 0]
    places -= 1
    return places


def _pairs_at(row_begin: Int64Array, places: Int64Array) -> Int64Array:
    """The pairs ``[P, 2]`` at ``places`` ``[P]`` (:func:`pair_places`)."""
    first = np.searchsorted(row_begin, places, side="right") - 1
    return np.stack([first, places - row_begin[first] + first + 1], axis=1)


def _drawn_of(size: int, count: int, rng: np.random.Generator) -> Int64Array:
    """Draw ``min(count, size)`` distinct numbers below ``size``, in random order; no draw is rejected."""
    count = min(count, size)
    return rng.choice(size, size=count, replace=False) if count else np.empty(0, dtype=np.int64)


def draw_non_links(n: int, taken: Int64Array, count: int, rng: np.random.Generator) -> Int64Array:
    """Draw ``min(count, all)`` distinct pairs of ``n`` vertices that are not ``taken``, uniformly, in random order.

    ``taken`` ``[T]`` are :func:`pair_places`, ascending.
    """
    return _pairs_at(_row_begins(n), _skipping(_drawn_of(n * (n - 1) // 2 - len(taken), count, rng), taken))


def _skipping(
    ranks: Int64Array, taken: NDArray[Any], numbers: Callable[[NDArray[Any]], Int64Array] = lambda part: part
) -> Int64Array:
    """The number of each rank ``[R]``, from 0 on, among the numbers from 0 on that are not ``taken``.

    ``numbers`` makes the taken numbers, ascending, from a part of ``taken`` ``[T]`` or ``[T, 2]``: for all links they
    would take much memory.  Where ``free[i]`` numbers below the taken number i are free, rank r is at r plus the number
    of taken ones with ``free`` at most r.
    """
    order = np.argsort(ranks)
    ascending = ranks[order]
    before = np.zeros(ranks.size, dtype=np.int64)

    def counted(begin: int) -> tuple[int, int, Int64Array]:
        """The first rank behind a number of a part, the part's size, and how many of it are before each next rank."""
        free = numbers(taken[begin : begin + AT_A_TIME])
        free = free - np.arange(begin, begin + free.size)
        low, high = np.searchsorted(ascending, free[[0, -1]])
        return int(low), free.size, np.searchsorted(free, ascending[low:high], side="right")

    for low, size, below in side_by_side(counted, range(0, len(taken) if ranks.size else 0, AT_A_TIME)):
        before[low : low + below.size] += below
        before[low + below.size :] += size
    found = np.empty_like(ranks)
    found[order] = ascending + before
    return found
