"""Graphs: input, split into training and held-out pairs, and the edge set of the kernels."""

from __future__ import annotations

from mmsbgen.graph.arc_sources import as_arcs
from mmsbgen.graph.arcs import Arcs
from mmsbgen.graph.edgeset import EdgeSet, EdgeSetError
from mmsbgen.graph.files.edgelist import load_edge_list
from mmsbgen.graph.files.graph_files import load_graph
from mmsbgen.graph.graph import Adjacency, Graph, GraphWarning, LoadReport
from mmsbgen.graph.reading_options import ReadingOptions
from mmsbgen.graph.sources import as_graph, read_graph
from mmsbgen.graph.split import HeldOut, Split, split

__all__ = [
    "Adjacency",
    "Arcs",
    "EdgeSet",
    "EdgeSetError",
    "Graph",
    "GraphWarning",
    "HeldOut",
    "LoadReport",
    "ReadingOptions",
    "Split",
    "as_arcs",
    "as_graph",
    "load_edge_list",
    "load_graph",
    "read_graph",
    "split",
]
