"""Links added to a graph and removed from it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import canonical_word, plain, plural
from mmsbgen.graph.graph import Graph, Int64Array, LoadReport, UInt64Array, link_keys, links_of, read_only, unpack_pairs
from mmsbgen.graph.ids import number_integers, object_ids, ordered_ids
from mmsbgen.graph.split import HeldOut, Split, draw_non_links, held_out, pair_places


@dataclass(frozen=True, eq=False)
class Change:
    """A graph after a change.

    Attributes:
        graph: the graph after it.
        place: number in ``graph`` of every vertex of the graph before, int64 ``[N before]``.
        added: links that were added, int64 ``[A, 2]``, numbered as in ``graph``, lexicographic.
        removed: links that were removed, int64 ``[D, 2]``, likewise.
        known: number of links to add that were there before.
    """

    graph: Graph
    place: Int64Array
    added: Int64Array
    removed: Int64Array
    known: int

    @property
    def ends(self) -> Int64Array:
        """The vertices that gained or lost a link, ascending."""
        return np.unique(np.concatenate([self.added, self.removed]))

    @property
    def new_vertices(self) -> Int64Array:
        """The vertices that the graph before did not have, ascending."""
        new = np.ones(self.graph.n_vertices, bool)
        new[self.place] = False
        return np.flatnonzero(new)


def changed_graph(before: Graph, add: Graph | None = None, remove: Graph | None = None) -> Change:
    """Return ``before`` with the links of ``add``, without those of ``remove``.

    Ids that are new become vertices.  No vertex goes: one that loses all of its links stays without any.

    Raises:
        InputError: if a link to remove is not there, if a link is both added and removed, or if no link remains.
    """
    ids, (place, *others) = _common_ids([one for one in (before, add, remove) if one is not None])
    there = link_keys(before.links, place)
    empty = np.zeros(0, np.uint64)
    wanted = empty if add is None else link_keys(add.links, others.pop(0))
    gone = empty if remove is None else link_keys(remove.links, others.pop(0))
    if add is not None and remove is not None and (both := wanted[_within(wanted, gone)]).size:
        raise InputError(f"{_link(ids, both)} is to be added and to be removed: name it in one of the two")
    if remove is not None and (unknown := gone[~_within(gone, there)]).size:
        raise InputError(
            f"{_link(ids, unknown)} is not in {plain(before.name)}; this holds for {unknown.size} of "
            f"{plural(gone.size, 'link')} to remove: leave them out, or give the run's own graph"
        )
    added = wanted[~_within(wanted, there)]
    keys = np.sort(np.concatenate([np.delete(there, np.searchsorted(there, gone)), added]), kind="stable")
    if not keys.size:
        raise InputError(f"{plain(before.name)}: no link would remain; leave at least one")
    links, n = links_of(keys), ids.size
    graph = Graph(n, ids, links, LoadReport.of_links(links, n), before.name)
    return Change(graph, read_only(place), unpack_pairs(added), unpack_pairs(gone), int(wanted.size - added.size))


def carried_split(split: Split, change: Change, validation: float, test: float) -> Split:
    """The split of the graph after a change, which keeps the held-out pairs of the graph before.

    Pairs that have changed leave.  Each added link is held out with the probabilities ``validation`` and ``test``, and
    there are as many non-links as links.  No pair of the split before that was trained on is held out; one that was
    removed and comes back by a later change may be.  The draws depend on the split's seed and the graph.
    """
    graph = change.graph
    rng = np.random.default_rng([split.seed, 3, 2, int(graph.digest[:15], 16)])
    changed = link_keys(np.concatenate([change.added, change.removed]))
    draws = rng.random(len(change.added))
    drawn = change.added[draws < validation], change.added[(draws >= validation) & (draws < validation + test)]
    links: list[UInt64Array] = []
    non_links: list[UInt64Array] = []
    for held, more in zip((split.validation, split.test), drawn, strict=True):
        kept = [link_keys(held.pairs[held.labels == label], change.place) for label in (True, False)]
        links.append(np.concatenate([kept[0][~_within(kept[0], changed)], link_keys(more)]))
        left = kept[1][~_within(kept[1], changed)]
        surplus = max(0, left.size - links[-1].size)
        non_links.append(np.delete(left, rng.choice(left.size, surplus, replace=False)))
    # Links that were removed may have been trained on.
    taken = _with(link_keys(graph.links), np.concatenate([link_keys(change.removed), *non_links]))
    places = pair_places(graph.n_vertices, unpack_pairs(taken))
    for which, held_links in enumerate(links):
        lacking = max(0, held_links.size - non_links[which].size)
        new = draw_non_links(graph.n_vertices, places, lacking, rng)
        non_links[which] = np.concatenate([non_links[which], link_keys(new)])
        more = np.sort(pair_places(graph.n_vertices, new))
        places = np.insert(places, np.searchsorted(places, more), more)
    pairs = [held_out(unpack_pairs(a), unpack_pairs(b)) for a, b in zip(links, non_links, strict=True)]
    found = split_holding_out(graph, split.seed, pairs[0], pairs[1])
    if split.validation.n_links and not pairs[0].n_links:
        found = replace(found, warnings=("all held-out links were removed: nothing tells whether the fit is good",))
    return found


def split_holding_out(graph: Graph, seed: int, validation: HeldOut, test: HeldOut) -> Split:
    """The split of ``graph`` that holds these pairs out.

    Raises :class:`InputError` if no training link remains.
    """
    found = Split(graph, seed, validation, test)
    if not found.n_training_links:
        raise InputError(f"{plain(graph.name)}: all links that remain are held out; leave more")
    return found


def _within(keys: UInt64Array, ordered: UInt64Array) -> NDArray[np.bool_]:
    """Which ``keys`` are among the ascending keys ``ordered``."""
    at = np.searchsorted(ordered, keys)
    found: NDArray[np.bool_] = np.append(ordered, ~np.uint64(0))[at] == keys
    return found


def _with(ordered: UInt64Array, more: UInt64Array) -> UInt64Array:
    """The distinct ascending keys ``ordered`` and a few ``more``, likewise."""
    new = np.unique(more[~_within(more, ordered)])
    return np.insert(ordered, np.searchsorted(ordered, new), new)


def _common_ids(graphs: list[Graph]) -> tuple[NDArray[np.generic], list[Int64Array]]:
    """The ids of all graphs, and the number of each vertex of every graph among them.

    If all are integers, or all are text, they stay so; else ids are compared, and kept, as text.
    """
    kinds = {graph.ids.dtype.kind for graph in graphs}
    if kinds == {"i"}:
        ids, places = number_integers(np.concatenate([graph.ids for graph in graphs]))
        return ids, np.split(places, np.cumsum([graph.n_vertices for graph in graphs[:-1]]))
    names = [list(map(canonical_word, graph.ids.tolist())) for graph in graphs]
    found = ordered_ids([name for each in names for name in each], name=graphs[0].name)
    number = {name: vertex for vertex, name in enumerate(found.tolist())}
    return found, [np.fromiter(map(number.__getitem__, each), np.int64, len(each)) for each in names]


def _link(ids: NDArray[np.generic], keys: UInt64Array) -> str:
    a, b = object_ids(ids[unpack_pairs(keys[:1])[0]].tolist())
    return f"the link {plain(a, 40)} - {plain(b, 40)}"
