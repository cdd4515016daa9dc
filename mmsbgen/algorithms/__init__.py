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
    run_rounds,
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
from mmsbgen.families.graph.declare import Rounds, fold
from mmsbgen.kernels.family import Argument

__all__ = [
    "Argument",
    "Blockmodel",
    "ConvergenceError",
    "LabelShares",
    "LabelWarning",
    "Marginals",
    "ProbableStates",
    "Rounds",
    "Triangles",
    "VertexValues",
    "belief_propagation",
    "bfs",
    "blockmodel",
    "closeness",
    "components",
    "cores",
    "fold",
    "k_core",
    "manifold_ranking",
    "most_probable_states",
    "multi_source_bfs",
    "multimodal_ranking",
    "pagerank",
    "personalized_pagerank",
    "propagate",
    "run_rounds",
    "sssp",
    "triangles",
    "widest_paths",
]
