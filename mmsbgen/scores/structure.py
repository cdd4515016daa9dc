"""Scores of a cover by the graph alone, for graphs without known communities."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import canonical_word
from mmsbgen.base.progress import stage
from mmsbgen.scores.incidence import Ints, MemberPairs, communities_of

Floats = npt.NDArray[np.float64]


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
    """As :func:`structure`, with vertex numbers; takes time proportional to the degrees of all members."""
    rows = np.concatenate([links[:, 0], links[:, 1]])
    order = np.argsort(rows, kind="stable")
    neighbours = np.concatenate([links[:, 1], links[:, 0]])[order]
    degrees = np.bincount(rows, minlength=found.n_vertices)
    offsets = np.concatenate([[0], np.cumsum(degrees)])
    share = 1.0 / np.maximum(1, found.degrees)
    inside = np.zeros(found.n_vertices, bool)
    explained = np.zeros(len(neighbours), bool)
    ends = len(neighbours)  # 2 E
    firsts = np.concatenate([[0], np.cumsum(found.sizes)])
    modularity, conductances, densities = 0.0, [], []
    with stage("scoring communities", found.n_communities, "communities") as told:
        for number in range(found.n_communities):
            members = found.vertex[firsts[number] : firsts[number + 1]]
            inside[members] = True
            counts = degrees[members]
            at = np.repeat(offsets[members] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
            there = inside[neighbours[at]]
            inside[members] = False
            explained[at[there]] = True
            within, volume = int(there.sum()), int(counts.sum())  # both count ends of links
            weight = np.repeat(share[members], counts)[there] @ share[neighbours[at[there]]]
            modularity += weight / ends - (share[members] @ counts / ends) ** 2
            if volume:
                conductances.append((volume - within) / min(volume, ends - volume) if volume < ends else 0.0)
            if len(members) > 1:
                densities.append(within / (len(members) * (len(members) - 1)))
            told.tell(number + 1)
    return Structure(
        modularity=float(modularity),
        conductance=float(np.mean(conductances)) if conductances else None,
        coverage_of_links=float(explained.mean()),
        internal_density=float(np.mean(densities)) if densities else None,
        vertices=found.n_vertices,
        links=len(links),
        communities=found.n_communities,
        coverage=found.coverage,
        memberships=found.memberships,
    )
