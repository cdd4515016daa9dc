"""Leiden's algorithm (Traag, Waltman, van Eck 2019) and other functions of networkit.

networkit's generator is seeded before each run, and a run takes one thread, so equal seeds give equal results.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_int, c_void_p, pythonapi
from functools import cache
from signal import SIGINT
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mmsbgen.base.libraries import networkit as _networkit

if TYPE_CHECKING:
    import networkit

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

__all__ = [
    "leiden",
    "modularity",
    "network",
    "rewired",
    "terminating",
    "transitivity",
]

#: Networkit's seed and numbers of threads belong to the process.
_lock = RLock()

_get_handler = pythonapi.PyOS_getsig
_get_handler.argtypes, _get_handler.restype = [c_int], c_void_p
_set_handler = pythonapi.PyOS_setsig
_set_handler.argtypes, _set_handler.restype = [c_int, c_void_p], c_void_p


@cache
def _guard() -> Any:
    """Keep Python's handler of SIGINT; call it with ``_lock`` held.

    The first algorithm that networkit constructs takes over SIGINT until it is deleted, and a Ctrl-C then aborts the
    process.  This one is never run and never deleted, and Python's handler is set again.
    """
    networkit = _networkit()
    nothing, handler = networkit.Graph(0), _get_handler(SIGINT)
    try:
        return networkit.community.ParallelLeiden(nothing)
    finally:
        _set_handler(SIGINT, handler)


@contextmanager
def _running(seed: int = 0, threads: int | None = None) -> Iterator[Any]:
    """networkit, seeded and with its threads limited."""
    networkit = _networkit()
    with _lock:
        _guard()
        before = networkit.getMaxNumberOfThreads()
        networkit.setNumberOfThreads(threads or before)
        networkit.setSeed(seed % 2**64, False)
        try:
            yield networkit
        finally:
            networkit.setNumberOfThreads(before)


def network(n: int, links: npt.NDArray[Any]) -> networkit.Graph:
    """The networkit graph of ``n`` vertices and ``links`` ``[E, 2]``."""
    ends = tuple(np.ascontiguousarray(end, np.uint64) for end in links.T)
    # One thread, as for Leiden's algorithm: OpenMP starts its threads anew whenever their number changes.
    with _running(threads=1) as networkit:
        return networkit.GraphFromCoo(ends, n=n)


def leiden(graph: networkit.Graph, resolution: float, seed: int, iterations: int = 4) -> Ints:
    """Labels ``[N]`` of Leiden's communities by modularity at ``resolution``, which count from 0 without gaps."""
    if graph.numberOfEdges() == 0:
        return np.arange(graph.numberOfNodes())
    gamma = terminating(resolution, graph.numberOfEdges())
    with _running(seed, threads=1) as networkit:
        run = networkit.community.ParallelLeiden(graph, iterations=iterations, gamma=gamma)
        run.run()
        labels: Any = np.array(run.getPartition().getVector(), np.int64)
    return np.asarray(np.unique(labels, return_inverse=True)[1], np.int64)


@cache
def _primes() -> Ints:
    """The primes of 12 bits."""
    numbers: Ints = np.arange(1 << 11, 1 << 12)
    primes: Ints = numbers[(numbers[:, None] % np.arange(2, 1 << 6) != 0).all(axis=1)]
    return primes


def terminating(resolution: float, links: int) -> float:
    """A resolution within about 1 % of ``resolution`` at which Leiden's algorithm ends in a graph of so many links.

    networkit computes the gain of a move, w - resolution degree volume / (2 links), and that of the way back in
    different orders.  Where neither gains anything, rounding may let both seem to gain.  Then two vertices move to and
    fro for ever.

    The result is a prime of 12 bits times a power of two, and the prime does not divide the number of links.  Products
    below 2^53 are then exact, and equal gains are found equal.  Links and volumes that differ hardly ever outweigh each
    other exactly.
    """
    mantissa, exponent = math.frexp(resolution)
    primes = _primes()[links % _primes() != 0]
    near = np.concatenate([primes[-1:] / 2, primes, primes[:1] * 2])
    nearest = near[np.abs(near - mantissa * (1 << 12)).argmin()]
    return math.ldexp(float(nearest), exponent - 12)


def modularity(links: npt.NDArray[Any], labels: Ints, resolution: float = 1.0) -> float:
    """Modularity of ``labels`` ``[N]`` for ``links`` ``[E, 2]`` (Newman and Girvan 2004); 0 without links."""
    if not len(links):
        return 0.0
    degrees = np.bincount(labels[links.ravel()])
    inside = np.count_nonzero(labels[links[:, 0]] == labels[links[:, 1]])
    return float(inside / len(links) - resolution * ((degrees / (2 * len(links))) ** 2).sum())


def transitivity(graph: networkit.Graph) -> Floats:
    """Share ``[N]`` of the pairs of neighbours that are linked; 0 for fewer than two neighbours."""
    with _running() as networkit:
        run = networkit.centrality.LocalClusteringCoefficient(graph, turbo=True)
        run.run()
        return np.array(run.scores(), np.float64)


def rewired(graph: networkit.Graph, swaps: int, seed: int) -> Ints:
    """Links ``[E, 2]`` after ``swaps`` tries a link to swap the ends of two links; ``graph`` itself is changed."""
    with _running(seed, threads=1) as networkit:
        run = networkit.randomization.EdgeSwitchingInPlace(graph, swaps)
        run.run()
        return np.array(list(run.getGraph().iterEdges()), np.int64).reshape(-1, 2)
