"""Program of the process that searches for starts.

Over its connection it gets N, K, a seed, a device and names of starts, once the run has read its graph.  The device,
"" for threads, finds the moves of local moving.  The configuration of its kernel comes later, once the run has what it
needs on the device.

It then reads the arrays of the training links' adjacency from standard input, in NumPy's file format.  It sends each
start, as soon as found, and warnings as texts, to
:class:`mmsbgen.sampler.starts.background_search.StartSearch`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from mmsbgen.backends import discover
from mmsbgen.base.atomic_files import array_header
from mmsbgen.base.errors import MmsbgenError
from mmsbgen.base.host_memory import keep_freed_memory
from mmsbgen.base.libraries import import_lightly, networkit
from mmsbgen.base.processes import parent_connection
from mmsbgen.graph import Graph, HeldOut, LoadReport, Split
from mmsbgen.graph.graph import Adjacency, UInt32Array
from mmsbgen.kernels.space import Config
from mmsbgen.sampler.starts.device_moves import on_device
from mmsbgen.sampler.starts.start_methods import MOVED, STARTS, Start, communities


def find(
    n: int, k: int, seed: int, device: str, names: Sequence[str], links: IO[bytes], config: Callable[[], Config | None]
) -> Iterator[Start | str]:
    """The starts ``names`` of a graph of ``n`` vertices, and warnings.

    ``device`` finds moves, by the configuration that ``config`` waits for, or threads if either is missing.  ``links``
    is as for the program.
    """
    offsets, neighbours = (_mapped(links) for _ in range(2))
    none = HeldOut(np.zeros((0, 2), np.int64), np.zeros(0, bool))
    adjacency = Adjacency(offsets, neighbours)
    # Local moving needs no list of links.
    links_too = np.zeros((0, 2), np.uint32) if set(names) == {MOVED} else _links_of(adjacency)
    split = Split(Graph(n, np.arange(n), links_too, LoadReport.of_links(links_too, n)), seed, none, none)
    vars(split).update(training_adjacency=adjacency, n_training_links=neighbours.size // 2)
    for name in names:
        if device and name == MOVED:
            try:
                with on_device(device, config) as mover:
                    yield communities(split, k, seed, mover)
                continue
            except MmsbgenError as error:
                yield f"vertices move in threads when starts are sought, as the device fails: {error}"
        yield STARTS[name](split, k, seed)


def _links_of(adjacency: Adjacency) -> UInt32Array:
    """The links ``[E, 2]``, u < v, in lexicographic order."""
    rows = np.repeat(np.arange(adjacency.n_vertices, dtype=np.uint32), adjacency.degrees)
    larger = adjacency.neighbours > rows
    return np.stack([rows[larger], adjacency.neighbours[larger]], axis=1)


def _mapped(file: IO[bytes]) -> npt.NDArray[Any]:
    """The next array of a file that holds several in NumPy's format; it takes no memory of this process."""
    shape, _, dtype = array_header(file)
    begin = file.tell()
    found = np.memmap(file, dtype, "r", begin, shape)
    file.seek(begin + found.nbytes)
    return found


if __name__ == "__main__":
    parent = parent_connection()
    import_lightly()
    keep_freed_memory()
    # Beside the reading of the graph: loading the libraries of devices takes a tenth of a second.
    Thread(target=discover, daemon=True).start()
    # Sending waits until the run reads, which may be after the next start is found.
    with ThreadPoolExecutor(1) as sender:
        n, k, seed, device, names = parent.recv()
        if "ego" in names:
            # Beside the first search, which goes without it.
            Thread(target=networkit, daemon=True).start()
        for start in find(n, k, seed, device, names, sys.stdin.buffer, parent.recv):
            sender.submit(parent.send, start)
