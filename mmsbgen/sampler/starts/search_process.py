"""Program of the process that searches for starts; arguments: N K SEED NAME...

It reads the training links ``[E, 2]`` from standard input in NumPy's file format and sends each start, as soon as it is
found, to :class:`mmsbgen.sampler.starts.background_search.StartSearch`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import IO

import numpy as np

from mmsbgen.base.processes import parent_connection
from mmsbgen.graph import Graph, HeldOut, LoadReport, Split
from mmsbgen.sampler.starts.leiden import import_lightly, load
from mmsbgen.sampler.starts.start_methods import STARTS, Start


def find(n: int, k: int, seed: int, names: list[str], links: IO[bytes]) -> Iterator[Start]:
    """The starts ``names`` of the graph of ``n`` vertices and the training ``links``."""
    pairs = np.load(links)
    graph = Graph(n, np.arange(n), pairs, LoadReport(len(pairs), 0, 0, 0, False, 0))
    none = HeldOut(np.zeros((0, 2), np.int64), np.zeros(0, bool))
    split = Split(graph, seed, graph.links, none, none)
    for name in names:
        yield STARTS[name](split, k, seed)


if __name__ == "__main__":
    parent = parent_connection()
    n, k, seed = map(int, sys.argv[1:4])
    import_lightly()
    # Beside the first search, which goes without it for long.
    Thread(target=load, daemon=True).start()
    # Sending waits until the run reads, which may be after the next start is found.
    with ThreadPoolExecutor(1) as sender:
        for start in find(n, k, seed, sys.argv[4:], sys.stdin.buffer):
            sender.submit(parent.send, start)
