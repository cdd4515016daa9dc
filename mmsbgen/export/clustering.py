"""The methods by which results of every kind offer their exports."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from mmsbgen.export.found import Clustering


class Exports:
    """What every result can be turned into.

    An optional library is imported when it is used; where it is missing,
    :class:`mmsbgen.base.errors.MissingDependencyError` names the extra that brings it.
    """

    def exported(self) -> Clustering:
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
