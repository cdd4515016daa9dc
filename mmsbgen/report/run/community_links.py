"""What links say of communities: how many lead from one to another, and how central and close their members are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen import algorithms
from mmsbgen.base.errors import MmsbgenError
from mmsbgen.graph import Graph, as_arcs
from mmsbgen.graph.arcs import arcs_of_pairs
from mmsbgen.sampler.diagnostics.communities import Cover
from mmsbgen.scores.incidence import incidence

Ints = npt.NDArray[np.int64]

#: Most links in one step.
_LINKS = 1 << 17


def links_between(cover: Cover, links: npt.NDArray[Any], most: int) -> Ints:
    """The number of links between each two of the ``most`` largest communities, int64 ``[C, C]``.

    A link counts for every pair of a community of one end and a community of the other. A link between vertices that
    share a community does not count.
    """
    member = incidence(cover.members[:most], cover.n_vertices)
    between = np.zeros((member.shape[1],) * 2, np.int64)
    for first in range(0, len(links), _LINKS):
        a, b = (member[end] for end in links[first : first + _LINKS].T)
        leads = a.multiply(b).sum(axis=1) == 0
        between += (a[leads].T @ b[leads]).toarray()
    return between + between.T


@dataclass(frozen=True)
class Centrality:
    """Core number and PageRank of every vertex, ``[N]``, and the :func:`transitivity` of communities."""

    cores: npt.NDArray[np.int64]
    ranks: npt.NDArray[np.floating]
    transitivity: npt.NDArray[np.float64]

    def most_central(self, members: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
        """The ``count`` members with the largest PageRank, the largest first."""
        return members[np.argsort(-self.ranks[members], kind="stable")[:count]]


def centrality(graph: Graph | None, communities: Sequence[npt.NDArray[np.int64]]) -> tuple[Centrality | None, str]:
    """The values of ``graph`` and its ``communities``, or None and why they are not there."""
    if graph is None:
        return None, ""
    try:
        cores, ranks = algorithms.cores(graph).values, algorithms.pagerank(graph).values
        return Centrality(cores, ranks, transitivity(graph, communities)), ""
    except MmsbgenError as error:
        return None, f"Core numbers, transitivity and the order by PageRank are left out: {error}"


def transitivity(graph: Graph, communities: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.float64]:
    """The linked share of pairs of neighbours within each community ``[C]``; 0 without such pairs."""
    arcs, first, second = as_arcs(graph), [], []
    number: npt.NDArray[np.int64] = np.full(arcs.n_vertices, -1)
    sizes = [len(members) for members in communities]
    for members, end in zip(communities, np.cumsum(sizes), strict=True):
        # Communities side by side are one graph, in which members of several are vertices of their own.
        numbers = np.arange(end - len(members), end)
        number[members] = numbers
        ends = number[arcs.targets[arcs.out_of(members)]]
        first.append(np.repeat(numbers, arcs.degrees[members])[ends >= 0])
        second.append(ends[ends >= 0])
        number[members] = -1
    if not communities:
        return np.zeros(0)
    ids = np.arange(sum(sizes))
    found = algorithms.triangles(arcs_of_pairs(np.concatenate(first), np.concatenate(second), ids, directed=False))
    of = np.repeat(np.arange(len(sizes)), sizes)
    closed, pairs = (np.bincount(of, each) for each in (2 * found.values, found.degrees * (found.degrees - 1)))
    return np.divide(closed, pairs, out=np.zeros(len(sizes)), where=pairs > 0)
