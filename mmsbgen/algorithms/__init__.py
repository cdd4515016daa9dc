"""Algorithms on graphs from Python: one function for each."""

from __future__ import annotations

from mmsbgen.algorithms.clustering import Triangles, triangles
from mmsbgen.algorithms.functions import (
    ConvergenceError,
    VertexValues,
    bfs,
    components,
    cores,
    k_core,
    pagerank,
    sssp,
    widest_paths,
)
from mmsbgen.algorithms.groups import Blockmodel, blockmodel
from mmsbgen.algorithms.known_labels import LabelWarning
from mmsbgen.algorithms.label_shares import LabelShares, propagate
from mmsbgen.algorithms.layers import manifold_ranking, multimodal_ranking
from mmsbgen.algorithms.marginals import Marginals, ProbableStates, belief_propagation, most_probable_states
from mmsbgen.algorithms.searches import closeness, multi_source_bfs
from mmsbgen.algorithms.walks import personalized_pagerank

__all__ = [
    "Blockmodel",
    "ConvergenceError",
    "LabelShares",
    "LabelWarning",
    "Marginals",
    "ProbableStates",
    "Triangles",
    "VertexValues",
    "belief_propagation",
    "bfs",
    "blockmodel",
    "closeness",
    "components",
    "cores",
    "k_core",
    "manifold_ranking",
    "most_probable_states",
    "multi_source_bfs",
    "multimodal_ranking",
    "pagerank",
    "personalized_pagerank",
    "propagate",
    "sssp",
    "triangles",
    "widest_paths",
]
