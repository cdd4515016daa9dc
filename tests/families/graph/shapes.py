"""Small graphs of every shape that has broken a graph algorithm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mmsbgen.graph import Arcs
from mmsbgen.graph.arcs import arcs_of_pairs


def arcs(pairs: Any, n: int, *, directed: bool = False, seed: int = 0) -> Arcs:
    """The graph of pairs of numbers below n, weights 0 to 9; an undirected link is listed once."""
    rng = np.random.default_rng(seed)
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    weights = rng.integers(0, 10, len(ends)).astype(float)
    first, second = ends.T
    if not directed:
        mirrored = first != second
        first, second = np.concatenate([first, second[mirrored]]), np.concatenate([second, first[mirrored]])
        weights = np.concatenate([weights, weights[mirrored]])
    return arcs_of_pairs(first, second, np.arange(n), weights, directed=directed)


def shapes() -> dict[str, Arcs]:
    star = [(0, leaf) for leaf in range(1, 300)]
    path = [(v, v + 1) for v in range(999)]
    clique = [(u, v) for u in range(40) for v in range(u)]
    return {
        "single": arcs([], 1),
        "two": arcs([], 2),
        "link": arcs([(0, 1)], 2),
        "star": arcs(star, 300),
        "path": arcs(path, 1000),
        "clique": arcs(clique, 40),
        "bipartite": arcs([(u, v) for u in range(20) for v in range(20, 55)], 55),
        "parallel": arcs([(0, 1), (0, 1), (1, 2), (1, 2), (1, 2), (2, 3)], 5),
        "pieces": arcs([(3 * i, 3 * i + 1) for i in range(100)], 300),
        "hub on a path": arcs(path + [(500, v) for v in range(0, 400, 3)], 1000),
        "one way": arcs([(v, v + 1) for v in range(60)] + [(70, 3)], 80, directed=True),
        "cycle of arcs": arcs([(v, (v + 1) % 50) for v in range(50)], 50, directed=True),
    }


def random_graphs(count: int, seed: int = 0) -> Iterator[tuple[Arcs, np.random.Generator]]:
    """Graphs of 1 to 60 vertices and 0 to 4 links a vertex, directed or not, with loops and parallel links."""
    for number in range(count):
        rng = np.random.default_rng((seed, number))
        n = int(rng.integers(1, 61))
        links = int(rng.integers(0, 4 * n + 1))
        yield arcs(rng.integers(0, n, (links, 2)), n, directed=bool(rng.integers(2)), seed=number), rng
