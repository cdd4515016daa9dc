"""The form of a result that exports use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mmsbgen.base.errors import InputError
from mmsbgen.graph import Graph
from mmsbgen.sampler.diagnostics.communities import Cover
from mmsbgen.sampler.diagnostics.memberships import Memberships

#: Least share of a vertex in a community before scaling, so that a member's share is never 0.
_LEAST = 1e-9


class Affiliations(NamedTuple):
    """The memberships of vertices in communities ``[S]``, by vertex and then by share, largest first.

    ``shares`` are the entries of pi, scaled to the sum 1 over the communities of a vertex; of labels, as they are.
    """

    vertices: npt.NDArray[np.int64]
    communities: npt.NDArray[np.int64]
    shares: npt.NDArray[np.float64]


@dataclass(frozen=True)
class Clustering:
    """Memberships, the cover computed from them by ``rule``, and the graph if available.

    Community c of the cover is column c of the memberships.  ``names`` are the labels that communities stand for.
    """

    memberships: Memberships
    cover: Cover
    graph: Graph | None = None
    rule: Mapping[str, Any] = field(default_factory=dict)
    names: tuple[Any, ...] | None = None

    def __repr__(self) -> str:
        return f"<Clustering: {self.memberships!r}, {self.cover!r}>"

    @property
    def ids(self) -> list[Any]:
        """Ids of the vertices in the input, in the order of vertex numbers."""
        names: list[Any] = self.memberships.ids.tolist()
        return names

    def name(self, community: int) -> Any:
        """The label that a community stands for, or else its number; "" or -1 for -1, which is none."""
        if self.names is None:
            return community
        return self.names[community] if community >= 0 else ""

    @property
    def strengths(self) -> npt.NDArray[np.float64]:
        """The strengths beta ``[C]`` of the model, which are no calibrated probabilities."""
        return np.asarray(self.memberships.beta[: len(self.cover.members)], np.float64)

    def needs_graph(self, what: str) -> Graph:
        """The graph; raises InputError if it is not available."""
        if self.graph is None:
            raise InputError(f"{what} need the links, and this result has none: give the graph it was made of")
        return self.graph

    @cached_property
    def affiliations(self) -> Affiliations:
        """Every vertex's communities and its share of each."""
        m, members = self.memberships, self.cover.members
        vertices = np.concatenate([np.zeros(0, np.int64), *members])
        communities = np.repeat(np.arange(len(members)), [len(one) for one in members])
        stored = m.indices[vertices] == communities[:, None]
        # An entry that is not stored counts as the mean of those that are not.
        unstored = m.rest[vertices] / max(1, m.width - m.indices.shape[1])
        shares = np.where(stored.any(axis=1), (m.values[vertices] * stored).sum(axis=1), unstored)
        shares = shares.astype(np.float64).clip(min=_LEAST)
        if self.names is None:
            shares /= np.bincount(vertices, shares, len(m.indices))[vertices]
        order = np.lexsort((communities, -shares, vertices))
        return Affiliations(vertices[order], communities[order], shares[order])

    @cached_property
    def offsets(self) -> npt.NDArray[np.int64]:
        """The first of each vertex's :attr:`affiliations`, ``[N + 1]``."""
        counts = np.bincount(self.affiliations.vertices, minlength=len(self.memberships.indices))
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])

    def shares(self, vertex: int) -> dict[int, float]:
        """The communities of a vertex and its share of each, largest first."""
        inside = slice(*self.offsets[vertex : vertex + 2].tolist())
        found = self.affiliations
        return dict(zip(found.communities[inside].tolist(), found.shares[inside].tolist(), strict=True))

    def labels(self) -> npt.NDArray[np.int64]:
        """The community of every vertex's largest share ``[N]``; -1 for a vertex in none."""
        found = np.full(len(self.memberships.indices), -1)
        vertices, first = np.unique(self.affiliations.vertices, return_index=True)
        found[vertices] = self.affiliations.communities[first]
        return found
