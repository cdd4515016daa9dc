"""Scores of a cover by the graph alone, for graphs without known communities."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import canonical_word
from mmsbgen.base.progress import stage
from mmsbgen.scores.incidence import Ints, MemberPairs, communities_of

#: Links looked at together.
_LINKS = 1 << 18


@dataclass(frozen=True)
class Structure:
    """Result of :func:`structure`.

    modularity
        Extended modularity EQ of Shen, Cheng, Cai and Hu (2009), which counts a link in each community that both ends
        share, divided by the product of their numbers of communities.  It is Newman and Girvan's for a partition.
    conductance
        Links that leave a community over the degrees of its members, or over those of all others if these are fewer;
        mean over communities.  None if no community has a member with links.
    coverage_of_links
        Share of the links whose ends have a community in common.
    internal_density
        Linked share of the pairs of members; mean over communities of two members or more, None without one.
    vertices, links
        Of the graph.
    communities, coverage, memberships
        Of the cover: number of communities, share of the vertices that are in one, and mean number of communities of
        such a vertex.
    """

    modularity: float
    conductance: float | None
    coverage_of_links: float
    internal_density: float | None
    vertices: int
    links: int
    communities: int
    coverage: float
    memberships: float


def structure(
    cover: Sequence[Collection[Any]], links: Iterable[tuple[Any, Any]], vertices: Iterable[Any] | None = None
) -> Structure:
    """Score a cover by the links of its graph.

    Args:
        cover: communities as collections of ids.  Ids are compared as strings: 7 and "7" are the same vertex.
        links: distinct undirected links as pairs of ids, without self-loops, such as ``graph.ids[graph.links]``.
        vertices: all vertices of the graph, such as ``graph.ids``; by default the ends of the links.

    Raises:
        InputError: a cover is empty, has an empty community or an id that is no vertex, or there are no links.
    """
    pairs = links.tolist() if isinstance(links, np.ndarray) else list(links)
    if not (ends := [(canonical_word(a), canonical_word(b)) for a, b in pairs]):
        raise InputError("the graph has no links, by which a cover could be scored")
    names = {name for pair in ends for name in pair}
    if vertices is not None:
        names |= set(map(canonical_word, vertices))
    places = {name: place for place, name in enumerate(sorted(names))}
    numbered = np.array([(places[a], places[b]) for a, b in ends], np.int64)
    found = MemberPairs.of(communities_of(cover, "cover"), places, "cover")
    return _structure(found, numbered)


def _structure(found: MemberPairs, links: Ints) -> Structure:
    """As :func:`structure`, with vertex numbers ``[E, 2]`` of the links.

    Takes time in proportion to the communities of all ends of links.
    """
    member, ends = found.matrix(), 2 * len(links)
    shared = (member / np.maximum(1, found.degrees)[:, None]).tocsr()  # of the COO of a division, rows are slow
    within, weight, explained = np.zeros(found.n_communities), np.zeros(found.n_communities), 0
    with stage("scoring communities", len(links), "links") as told:
        for first in range(0, len(links), _LINKS):
            a, b = links[first : first + _LINKS].T
            common = member[a].multiply(member[b])
            within += 2 * common.sum(axis=0)  # counts ends of links, as the volume
            weight += 2 * shared[a].multiply(shared[b]).sum(axis=0)
            explained += int(np.count_nonzero(common.sum(axis=1)))
            told.tell(min(first + _LINKS, len(links)))
    degrees = np.bincount(links.ravel(), minlength=found.n_vertices)
    volume, sizes = member.T @ degrees, found.sizes
    linked, several = volume > 0, sizes > 1
    smaller = np.minimum(volume, ends - volume)
    leaving = np.divide(volume - within, smaller, out=np.zeros(len(sizes)), where=smaller > 0)[linked]
    density = within[several] / (sizes * (sizes - 1))[several]
    return Structure(
        modularity=float((weight / ends - (shared.T @ degrees / ends) ** 2).sum()),
        conductance=float(leaving.mean()) if leaving.size else None,
        coverage_of_links=explained / len(links),
        internal_density=float(density.mean()) if density.size else None,
        vertices=found.n_vertices,
        links=len(links),
        communities=found.n_communities,
        coverage=found.coverage,
        memberships=found.memberships,
    )
