"""The form of a result that exports use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.base.errors import InputError
from mmsbgen.graph import Graph
from mmsbgen.sampler.diagnostics.communities import Cover, Memberships


@dataclass(frozen=True)
class Clustering:
    """Memberships, the cover computed from them by ``rule``, and the graph if available.

    Communities are identified by ``cover.labels``, the column indices of pi and of ``memberships.beta``.
    """

    memberships: Memberships
    cover: Cover
    graph: Graph | None = None
    rule: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ids(self) -> list[Any]:
        """Ids of the vertices in the input, in the order of vertex numbers."""
        names: list[Any] = self.memberships.ids.tolist()
        return names

    def needs_graph(self, what: str) -> Graph:
        """The graph; raises InputError if it is not available."""
        if self.graph is None:
            raise InputError(f"{what} need the links, and this result has none: give the graph it was made of")
        return self.graph

    def placed(self) -> list[list[int]]:
        """For every vertex the labels of its communities, by descending share."""
        found: list[list[int]] = [[] for _ in self.memberships.ids]
        for label, members in zip(self.cover.labels, self.cover.members, strict=True):
            for vertex in members.tolist():
                found[vertex].append(label)
        for vertex, labels in enumerate(found):
            if len(labels) > 1:
                shares = self.shares(vertex)
                labels.sort(key=lambda label: (-shares.get(label, 0.0), label))
        return found

    def shares(self, vertex: int) -> dict[int, float]:
        """The stored positive shares of a vertex by community, largest first."""
        m = self.memberships
        pairs = zip(m.indices[vertex].tolist(), m.values[vertex].tolist(), strict=True)
        return {label: share for label, share in pairs if share > 0}

    def main(self) -> npt.NDArray[np.int64]:
        """The main community of every vertex ``[N]``: the one of its largest share, -1 if it is in none."""
        return np.array([labels[0] if labels else -1 for labels in self.placed()], dtype=np.int64)
