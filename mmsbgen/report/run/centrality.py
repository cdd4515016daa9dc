"""Core numbers and PageRank of a run's vertices, for the table of communities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mmsbgen import algorithms
from mmsbgen.base.errors import MmsbgenError
from mmsbgen.graph import Graph


@dataclass(frozen=True)
class Centrality:
    """Core number and PageRank of every vertex, ``[N]``."""

    cores: npt.NDArray[np.int64]
    ranks: npt.NDArray[np.floating]

    def most_central(self, members: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
        """The ``count`` members with the largest PageRank, the largest first."""
        return members[np.argsort(-self.ranks[members], kind="stable")[:count]]


def centrality(graph: Graph | None) -> tuple[Centrality | None, str]:
    """The values of ``graph``, or None and why they are not there."""
    if graph is None:
        return None, ""
    try:
        return Centrality(algorithms.cores(graph).values, algorithms.pagerank(graph).values), ""
    except MmsbgenError as error:
        return None, f"Core numbers and the order by PageRank are left out: {error}"
