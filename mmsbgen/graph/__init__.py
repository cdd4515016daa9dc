"""Graphs: input, split into training and held-out pairs, and the edge set of the kernels."""

from __future__ import annotations

from mmsbgen.graph.edgelist import load_edge_list
from mmsbgen.graph.edgeset import EdgeSet, EdgeSetError
from mmsbgen.graph.graph import Adjacency, Graph, GraphWarning, LoadReport
from mmsbgen.graph.sources import as_graph
from mmsbgen.graph.split import HeldOut, Split, split

__all__ = [
    "Adjacency",
    "EdgeSet",
    "EdgeSetError",
    "Graph",
    "GraphWarning",
    "HeldOut",
    "LoadReport",
    "Split",
    "as_graph",
    "load_edge_list",
    "split",
]
