"""The process that finds starts: ``python -m mmsbgen.sampler.starts.search_process PARENT N K SEED NAME...``.

It reads the training links ``[E, 2]`` from its input, as NumPy saves them, and writes vertices and communities of each
start to its output in the same way (:class:`mmsbgen.sampler.starts.background_search.Sought`).
"""

from __future__ import annotations

import sys
from typing import IO

import numpy as np

from mmsbgen.base.host_memory import die_with_parent
from mmsbgen.graph import Graph, HeldOut, LoadReport, Split
from mmsbgen.sampler.starts.igraph_import import import_without_pictures
from mmsbgen.sampler.starts.start_methods import STARTS


def find(n: int, k: int, seed: int, names: list[str], links: IO[bytes], out: IO[bytes]) -> None:
    """Write the starts ``names`` of the graph of ``n`` vertices and the training ``links``, one after the other."""
    pairs = np.load(links)
    graph = Graph(n, np.arange(n), pairs, LoadReport(len(pairs), 0, 0, 0, False, 0))
    none = HeldOut(np.zeros((0, 2), np.int64), np.zeros(0, bool))
    split = Split(graph, seed, graph.links, none, none)
    for name in names:
        start = STARTS[name](split, k, seed)
        np.save(out, start.vertices)
        np.save(out, start.communities)


if __name__ == "__main__":
    parent, n, k, seed = map(int, sys.argv[1:5])
    die_with_parent(parent)
    import_without_pictures()
    find(n, k, seed, sys.argv[5:], sys.stdin.buffer, sys.stdout.buffer)
