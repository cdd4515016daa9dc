"""Refinement: refill empty communities with parts of others.

From any start, some communities of the model contain several true communities while others stay empty; updates of
single vertices cannot separate them.  Leiden's algorithm splits the links that a community explains.  If they fall
into parts, a part moves to an empty community, and the chain continues.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from mmsbgen.base.errors import DeviceMemoryError
from mmsbgen.base.processes import run_side_by_side, side_by_side
from mmsbgen.graph.graph import AT_A_TIME, Adjacency
from mmsbgen.graph.ids import by_sorting, in_order
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics.explained_links import Array
from mmsbgen.sampler.diagnostics.state_rows import SparseRows, best_communities, row_source
from mmsbgen.sampler.starts.background_search import device_bytes, has_room
from mmsbgen.sampler.starts.device_moves import by_kernels, moving_kernels
from mmsbgen.sampler.starts.leiden import leiden, network
from mmsbgen.sampler.starts.local_moving import Mover, Weighted, even_parts, in_threads, separated
from mmsbgen.sampler.starts.start_methods import MANY
from mmsbgen.sampler.state.memory_needs import MOST_SPLIT
from mmsbgen.sampler.state.sparse_state import SparseState

log = logging.getLogger(__name__)
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
#: Fewest links that a non-empty community explains best: those of a clique of three vertices.
_FEWEST_LINKS = 3
#: Fewest links of a community that may be split.
_ENOUGH_LINKS = 12
#: Modularity above which a community is split.  Splits of random graphs reach about sqrt((1 - p) / (p n)): less than
#: this from 40 vertices on if half of all pairs are linked, from 90 on if a third are, and more in smaller or sparser
#: graphs.
_MODULARITY = 0.15
#: Share of p(link) above which a community explains a link clearly.
_CLEAR = 0.5
#: Elements of rows processed at a time.
_ELEMENTS = 1 << 22
#: What vertices move for, in warnings.
_SPLIT = "communities are split"
#: Share of its mass that a moved vertex keeps in the old community.
_KEPT = 0.1


@dataclass(frozen=True)
class Move:
    """A move of ``members`` ``[V]`` from community ``source`` to the empty community ``target``."""

    source: int
    target: int
    members: Ints


def moves(links: Array, best: Ints, shares: Array, k: int, seed: int, mover: Mover = in_threads) -> list[Move]:
    """The moves: the most distinct parts, one for each empty community of ``k``.

    ``best`` ``[E]`` is the community that explains each of the training links ``[E, 2]``, in lexicographic order, best,
    ``shares`` ``[E]`` its share of p(link).  ``mover`` finds the moves of local moving.
    """
    # An empty community has a little mass in every row by the prior, but explains no link best.
    empty = np.flatnonzero(np.bincount(best, minlength=k) < _FEWEST_LINKS)
    clear = shares > _CLEAR
    return _moves_into(empty, links[clear], best[clear], k, seed, mover)


def _moves_into(empty: Ints, links: Array, best: Ints, k: int, seed: int, mover: Mover) -> list[Move]:
    """As :func:`moves`, into the communities ``empty``, of ``links`` that are clearly explained."""
    parts = _parts(links, best, k, seed, empty.size, mover) if empty.size else []
    return [Move(source, int(target), members) for target, (source, members) in zip(empty, parts, strict=False)]


def _clear_links(sampler: Sampler) -> tuple[Ints, Array, Ints]:
    """Of a state with sparse rows: the empty communities, and the links ``[L, 2]`` that others clearly explain.

    And the community ``[L]`` of each.  There are no more than :data:`MOST_SPLIT`, of the communities with the most
    links but those that alone have more, and none if no community is empty.
    """
    rows, split, k = SparseRows(sampler), sampler.split, sampler.shape.k
    kept = rows.communities()
    ends = rows.best_of(rows.best_links(), kept)
    empty, in_turn = np.flatnonzero(ends < 2 * _FEWEST_LINKS), np.argsort(-ends, kind="stable")
    chosen, keeps = np.zeros(k + 1, bool), np.zeros(len(kept), bool)
    in_turn = in_turn[ends[in_turn] <= 2 * MOST_SPLIT]
    chosen[in_turn[np.cumsum(ends[in_turn]) <= 2 * MOST_SPLIT]] = True

    def look(first: int) -> None:
        part = slice(first, first + AT_A_TIME)
        keeps[part] = chosen[np.minimum(kept[part], np.uint32(k))].any(axis=1)

    def may_be(begin: int) -> Array:
        """The links that a chosen community may explain: it is kept by an end."""
        part = split.training_part(begin)
        return part[keeps[part[:, 0]] | keeps[part[:, 1]]]

    links, labels = [np.zeros((0, 2), np.uint32)], [np.zeros(0, np.int64)]
    if empty.size:
        run_side_by_side(look, range(0, len(kept), AT_A_TIME))
        for part in side_by_side(may_be, range(0, split.graph.n_links, AT_A_TIME)):
            best, shares = best_communities(sampler, part)
            clear = np.flatnonzero((shares > _CLEAR) & chosen[best])
            links.append(part[clear])
            labels.append(best[clear])
    return empty, np.concatenate(links), np.concatenate(labels)


def _parts(links: Ints, labels: Ints, k: int, seed: int, most: int, mover: Mover) -> list[tuple[int, Ints]]:
    """Community and members of the ``most`` best parts, by descending score.

    A part's score is the modularity of the split times its size; the largest part of a community stays.
    """
    counts = np.bincount(labels, minlength=k)
    order = in_order(labels)[1]
    order = order[(counts >= _ENOUGH_LINKS)[labels[order]]]
    links, labels = links[order], labels[order]
    found: list[tuple[Ints, Floats, list[Ints]]] = []
    if len(links) > MANY:
        found = [_parts_together(links, labels, counts, seed, mover)]
    elif len(links):
        order = np.argsort(counts[labels], kind="stable")
        links, labels = links[order], labels[order]
        begins = np.unique(counts[labels], return_index=True)[1]
        for alike in map(slice, begins, [*begins[1:], len(links)]):
            found.append(_parts_together(links[alike], labels[alike], counts, seed, mover))
    if not found:
        return []
    communities, scores = (np.concatenate([one[at] for one in found]) for at in (0, 1))
    members = [part for one in found for part in one[2]]
    best = np.lexsort(([part[0] for part in members], communities, -scores))[:most]
    return [(int(communities[at]), members[at]) for at in best.tolist()]


def _parts_together(
    links: Ints, labels: Ints, counts: Ints, seed: int, mover: Mover
) -> tuple[Ints, Floats, list[Ints]]:
    """Communities ``[P]``, scores ``[P]`` and members of the parts of communities that have ``counts`` ``[K]`` links.

    ``links`` ``[L, 2]`` are in the order of ``labels`` ``[L]``, and those of one label in lexicographic order.

    They are split in one graph, side by side.  Many links are split by local moving, which can have a resolution for
    each.  Others are split by Leiden's algorithm, and their counts must be equal: the modularity at a resolution of the
    number of communities is then the mean of theirs.
    """
    n, of_labels = int(links.max()) + 1, even_parts(np.bincount(labels), AT_A_TIME)
    begins = np.unique(np.searchsorted(labels, [0, *(part.stop for part in of_labels)]))  # the first may have no links
    cuts = list(map(slice, begins[:-1], begins[1:]))
    ends = np.empty(links.shape, np.int64)

    def numbered(part: slice) -> Ints:
        distinct, index = by_sorting((labels[part, None] * n + links[part]).ravel())
        ends[part] = index.reshape(-1, 2)
        return distinct

    distinct = list(side_by_side(numbered, cuts))
    keys = np.concatenate(distinct)
    for part, before in zip(cuts, np.cumsum([0, *map(len, distinct)]).tolist(), strict=False):
        ends[part] += before
    if len(links) <= MANY:
        split = leiden(network(keys.size, ends), len(links) / int(counts[labels[0]]), seed)
    else:
        graph = Weighted.of(Adjacency.from_pairs(ends, keys.size))
        split = separated(graph, 1 / (2 * counts[keys // n]), seed, mover)
    first, sizes = np.unique(split, return_index=True, return_counts=True)[1:]
    own, place = np.unique(keys[first] // n, return_inverse=True)

    def within(part: slice) -> Floats:
        a, b = split[ends[part]].T
        return np.bincount(place[a], a == b, own.size).astype(np.float64)

    inside = sum(side_by_side(within, cuts), np.zeros(own.size))
    squares = np.bincount(place, (np.bincount(split, np.bincount(ends.ravel())) / 2) ** 2)
    count = counts[own]
    modularity = inside / count - squares / count**2
    in_turn = np.lexsort((first, -sizes, place))
    largest = in_turn[np.unique(place[in_turn], return_index=True)[1]]
    parts = np.flatnonzero((modularity[place] > _MODULARITY) & (sizes > 2) & ~np.isin(np.arange(sizes.size), largest))
    in_parts, ends_at = keys[np.argsort(split, kind="stable")] % n, np.cumsum(sizes)
    begins_at = (ends_at - sizes)[parts].tolist()
    members = [in_parts[begin:end] for begin, end in zip(begins_at, ends_at[parts].tolist(), strict=True)]
    return own[place[parts]], modularity[place[parts]] * sizes[parts], members


def moved(pi: Floats, vertices: Ints, wanted: list[Move]) -> Floats:
    """pi ``[V, K]`` of ``vertices`` ``[V]``, ascending, after the moves; row sums are unchanged.

    Members outside the range of ``vertices`` are skipped; members inside it must be among them.
    """
    new = pi.copy()
    for move in wanted:
        inside = (move.members >= vertices[0]) & (move.members <= vertices[-1])
        at = np.searchsorted(vertices, move.members[inside])
        new[at, move.target] += (1.0 - _KEPT) * new[at, move.source]
        new[at, move.source] *= _KEPT
    return new


def refine(sampler: Sampler) -> int:
    """Move parts into the empty communities of a chain; returns the number of communities filled."""
    options, k = sampler.options, sampler.shape.k
    seed = options.seed + sampler.iteration
    found: Callable[[Mover], list[Move]]
    if options.sparse:
        found = partial(_moves_into, *_clear_links(sampler), k, seed)
    else:
        links = sampler.split.training_links
        found = partial(moves, links, *best_communities(sampler, links), k, seed)
    try:
        wanted = found(mover_of(sampler))
    except DeviceMemoryError as error:
        log.warning("vertices move in threads when %s: %s", _SPLIT, error)
        wanted = found(in_threads)
    if wanted:
        _move(sampler, wanted)
        theta = sampler.state.theta()
        for move in wanted:
            theta[:, move.target] = theta[:, move.source] = theta[:, move.source] / 2
        sampler.set_theta(theta)
    course = sampler.course.refined(sampler.iteration, len(wanted), sampler.per_sweep)
    sampler.chain = sampler.chain._replace(course=course)
    return len(wanted)


def mover_of(sampler: Sampler, what: str = _SPLIT) -> Mover:
    """Finds moves on the sampler's device, if many links may be split and there is room on it; else in threads."""
    device, needs, links = sampler.device, sampler.needs, sampler.split.n_training_links
    links = min(links, MOST_SPLIT) if sampler.options.sparse else links
    # A vertex is split in each of its communities, at most at the two ends of each link.
    wanted = device_bytes(min(2 * links, sampler.shape.n_vertices * sampler.shape.k), links)
    if links > MANY and has_room(device.info, needs, max(needs.device_total, device.allocated), wanted):
        kernels = moving_kernels(sampler.runtime, sampler.problem, what)
        return in_threads if kernels is None else by_kernels(kernels)
    return in_threads


def _move(sampler: Sampler, wanted: list[Move]) -> None:
    state = sampler.state
    sizes = [move.members.size for move in wanted]
    vertices = np.concatenate([move.members for move in wanted])
    if isinstance(state, SparseState):
        sources, targets = (
            np.repeat(ends, sizes) for ends in zip(*((m.source, m.target) for m in wanted), strict=True)
        )
        state.move(vertices, sources, targets, _KEPT)
        return
    rows, vertices = row_source(sampler, mean=False), np.unique(vertices)
    step = max(1, _ELEMENTS // sampler.shape.k)
    for part in np.split(vertices, range(step, len(vertices), step)):
        new = moved(rows(part).astype(np.float64), part, wanted)
        state.replace_rows(part, new, sampler.options.seed, sampler.iteration)
