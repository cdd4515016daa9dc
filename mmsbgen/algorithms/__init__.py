"""Algorithms on graphs from Python: ``bfs``, ``components``, ``cores``, ``pagerank`` and ``sssp``."""

from __future__ import annotations

from mmsbgen.algorithms.functions import ConvergenceError, VertexValues, bfs, components, cores, pagerank, sssp

__all__ = ["ConvergenceError", "VertexValues", "bfs", "components", "cores", "pagerank", "sssp"]
