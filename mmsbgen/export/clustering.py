"""A result as all exports see it, and the methods by which results of every kind offer them."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.base.errors import InputError, MissingDependencyError
from mmsbgen.graph import Graph
from mmsbgen.sampler.diagnostics.communities import Cover, Memberships

#: The extra that brings a library.
EXTRAS = {"cdlib": "cdlib", "networkx": "graph", "scipy": "graph", "pandas": "tables", "pyarrow": "tables"}


def library(name: str, what: str) -> ModuleType:
    """Import ``name`` (``pyarrow.parquet``, say); raises MissingDependencyError, which names the extra, without it."""
    package = name.partition(".")[0]
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise MissingDependencyError(
            f"{package} is not installed, which {what} need; get it with: pip install 'mmsbgen[{EXTRAS[package]}]'"
        ) from None


@dataclass(frozen=True)
class Found:
    """Memberships, the cover made of them, and the graph where it is at hand; ``rule`` is what made the cover.

    Communities go by the model's numbers, ``cover.labels``: those of the columns of pi and of ``memberships.beta``.
    """

    memberships: Memberships
    cover: Cover
    graph: Graph | None = None
    rule: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ids(self) -> list[Any]:
        """Names of the vertices in the input, in their order."""
        names: list[Any] = self.memberships.ids.tolist()
        return names

    def needs_graph(self, what: str) -> Graph:
        """The graph; raises InputError where it is not at hand."""
        if self.graph is None:
            raise InputError(f"{what} need the links, and this result has none: give the graph it was made of")
        return self.graph

    def placed(self) -> list[list[int]]:
        """Of every vertex the numbers of its communities, those in which it has the largest shares first."""
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
        """The shares of a vertex that were kept, by community, largest first; zeros are left out."""
        m = self.memberships
        pairs = zip(m.indices[vertex].tolist(), m.values[vertex].tolist(), strict=True)
        return {label: share for label, share in pairs if share > 0}

    def main(self) -> npt.NDArray[np.int64]:
        """Of the communities that each vertex is in ``[N]`` the one of its largest share; -1 where it is in none."""
        return np.array([labels[0] if labels else -1 for labels in self.placed()], dtype=np.int64)


class Exports:
    """What every result can be turned into.

    An optional library is imported when it is used; where it is missing,
    :class:`mmsbgen.base.errors.MissingDependencyError` names the extra that brings it.
    """

    def exported(self) -> Found:
        """What the exports see of it."""
        raise NotImplementedError

    def to_cdlib(self, graph: Any = None, *, fuzzy: bool = True) -> Any:
        """A ``cdlib.FuzzyNodeClustering``, or without ``fuzzy`` a ``cdlib.NodeClustering``.

        ``graph`` is the networkx or igraph graph that cdlib's measures go by, by default a networkx graph of the links.
        The allocations are the shares that were kept, by the place of a community in ``communities``.
        """
        from mmsbgen.export.library_objects import to_cdlib

        return to_cdlib(self.exported(), graph, fuzzy)

    def to_networkx(self, graph: Any = None, *, top: int = 5) -> Any:
        """A ``networkx.Graph`` whose nodes are the ids, with attributes; ``graph`` is copied where it is given.

        Attributes: ``community`` (where a vertex has the largest share; -1: in none), ``communities`` (list),
        ``share`` and ``strength`` (of ``community``; 0 where there is none), ``memberships`` (the ``top`` largest
        shares by community).
        """
        from mmsbgen.export.library_objects import to_networkx

        return to_networkx(self.exported(), graph, top)

    def to_igraph(self, graph: Any = None) -> Any:
        """An ``igraph.VertexCover`` on ``graph``, or on a graph of the links with the ids as ``name`` of vertices."""
        from mmsbgen.export.library_objects import to_igraph

        return to_igraph(self.exported(), graph)

    def to_pandas(self, form: str = "long") -> Any:
        """A pandas data frame.

        ``long``: a row for every share that was kept, with ``id``, ``community``, ``share`` and ``member`` (whether the
        rule puts the vertex there).  ``wide``: a row a vertex, under its id, and a column a community of the model.
        ``communities``: a row a community that has members, under its number, with ``size``, ``strength``, ``members``.
        """
        from mmsbgen.export.data_frames import to_pandas

        return to_pandas(self.exported(), form)

    def export(self, path: str | os.PathLike[str], format: str | None = None, *, top: int = 5) -> Path:
        """Write a file for other programs; returns its path.

        ``format`` is one of :data:`mmsbgen.export.export_files.FORMATS`, by default what the name ends with: ``gexf``
        and ``graphml`` (Gephi and others), ``parquet`` and ``csv`` (the long table), ``snap`` (a community a line, also
        for ``.txt``). ``top`` is how many shares of a vertex stand in its attributes.  The file appears whole or not at
        all.
        """
        from mmsbgen.export.export_files import write

        return write(self.exported(), Path(path), format, top)
