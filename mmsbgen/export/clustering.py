"""Export methods shared by all kinds of results."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from mmsbgen.export.found import Clustering


class Exports:
    """Export methods of a result.

    Optional libraries are imported on use. If one is missing, :class:`mmsbgen.base.errors.MissingDependencyError`
    names the extra that installs it.
    """

    def exported(self) -> Clustering:
        """The result in the form that exports use."""
        raise NotImplementedError

    def to_dict(self) -> dict[Any, dict[int, float]]:
        """The communities of every id and its share of each, largest first: ``{id: {community: share}}``.

        Communities are indices into ``communities``; the shares of a vertex sum to 1.  A vertex in none has ``{}``.
        """
        found = self.exported()
        return {name: found.shares(vertex) for vertex, name in enumerate(found.ids)}

    def to_cdlib(self, graph: Any = None, *, fuzzy: bool = True) -> Any:
        """A ``cdlib.FuzzyNodeClustering``, or without ``fuzzy`` a ``cdlib.NodeClustering``.

        ``graph`` is the networkx or igraph graph for cdlib's measures, by default a networkx graph of the links.
        The allocations are a vertex's shares of its communities, keyed by their index in ``communities``.
        """
        from mmsbgen.export.library_objects import to_cdlib

        return to_cdlib(self.exported(), graph, fuzzy)

    def to_networkx(self, graph: Any = None) -> Any:
        """A ``networkx.Graph`` whose nodes are the ids, with attributes; a given ``graph`` is copied.

        Attributes: ``community`` (the one of the vertex's largest share, -1 if it is in none), ``memberships`` (its
        share of each of its communities, largest first; they sum to 1), and ``share`` and ``strength`` of
        ``community`` (0 if none).
        """
        from mmsbgen.export.library_objects import to_networkx

        return to_networkx(self.exported(), graph)

    def to_igraph(self, graph: Any = None) -> Any:
        """An ``igraph.VertexCover`` on ``graph``, or on a graph of the links with ids as vertex attribute ``name``."""
        from mmsbgen.export.library_objects import to_igraph

        return to_igraph(self.exported(), graph)

    def to_arviz(self) -> Any:
        """The draws of a run that samples, as ``arviz.InferenceData`` (from ArviZ 1.0 on an ``xarray.DataTree``).

        ``posterior`` has ``link_probability`` of held-out pairs, ``held_out_log_likelihood`` (nats a pair) and
        ``effective_communities``, by chain and draw; of one chain also ``strength`` by community.  Strengths of
        several chains are left out, as their communities have no common order.  ``observed_data`` says which pairs are
        links, ``constant_data`` has the ids of their ends.

        Raises InputError for a run that did not sample.
        """
        from mmsbgen.export.library_objects import to_arviz

        return to_arviz(self.exported())

    def to_pandas(self, form: str = "long") -> Any:
        """A pandas data frame.

        ``long``: one row per membership, with ``id``, ``community`` and ``share``.  ``wide``: one row per vertex,
        indexed by id, one column per community.  ``communities``: one row per community, with ``size``, ``strength``,
        ``background`` and ``members``.
        """
        from mmsbgen.export.library_objects import to_pandas

        return to_pandas(self.exported(), form)

    def export(self, path: str | os.PathLike[str], format: str | None = None) -> Path:
        """Write a file for other programs; returns its path.

        ``format`` is one of :data:`mmsbgen.export.export_files.FORMATS`, by default taken from the suffix: ``gexf``
        and ``graphml`` (Gephi and others), ``parquet``, ``csv`` and ``tsv`` (the long table), ``snap`` (one community
        per line, also for ``.txt``), ``netcdf`` (also ``.nc``; the draws of :meth:`to_arviz`).  The file is written
        atomically.
        """
        from mmsbgen.export.export_files import write

        return write(self.exported(), Path(path), format)
