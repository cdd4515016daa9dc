"""Graphs that the benchmarks of graph programs name: files, R-MAT, grids and paths."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.graph import Arcs, as_arcs

#: R-MAT has so many links a vertex.  A thread draws a chunk of links at once, by passes that stay in a core's cache.
LINKS, CHUNK, PASS = 16, 1 << 22, 1 << 16
#: Graph500's A, A + B and A + B + C, of 32 bits: a word below the first is quadrant (0, 0), then (0, 1), then (1, 0).
QUADRANTS = (np.array([0.57, 0.76, 0.95]) * 2**32).astype(np.uint32)


def rmat(scale: int) -> Arcs:
    """Graph500's generator, symmetric, without loops and parallel links: the same graph on any number of threads."""
    n, links, shift = 1 << scale, LINKS << scale, np.uint64(scale)
    numbers = np.random.default_rng(scale).permutation(np.arange(n, dtype=np.uint32))
    n_chunks = -(-links // CHUNK)
    bounds = np.linspace(0, n, n_chunks + 1).astype(np.uint64)

    def chunk(number: int) -> list[npt.NDArray[np.uint64]]:
        """Both directions of the links of a chunk as source and target, sorted, for each range of sources."""
        rng, size = np.random.SFC64([scale, number]), min(CHUNK, links - number * CHUNK)
        ends = np.hstack([drawn(rng, scale, min(PASS, size - begin)) for begin in range(0, size, PASS)])
        first, second = numbers[ends[:, ends[0] != ends[1]]].astype(np.uint64)
        pairs = np.concatenate([first << shift | second, second << shift | first])
        pairs.sort()
        return np.split(pairs, np.searchsorted(pairs, bounds[1:-1] << shift))

    def rows(number: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
        """Degrees and targets of the sources of a range."""
        pairs = np.concatenate([each[number] for each in chunks])
        pairs.sort(kind="stable")  # merges what is sorted
        pairs = pairs[np.diff(pairs, prepend=~pairs[:1]) != 0]
        low, high = bounds[number : number + 2]
        degrees = np.bincount(((pairs >> shift) - low).astype(np.int64), minlength=int(high - low))
        return degrees, (pairs & np.uint64(n - 1)).astype(np.uint32)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        chunks = list(threads.map(chunk, range(n_chunks)))
        degrees, targets = zip(*threads.map(rows, range(n_chunks)), strict=True)
    offsets = np.cumsum(np.concatenate([[0], *degrees])).astype(np.uint32)
    return Arcs(offsets, np.concatenate(targets), np.arange(n))


def drawn(rng: np.random.SFC64, scale: int, size: int) -> npt.NDArray[np.uint32]:
    """Both ends ``[2, size]`` of links, by one random word a link and bit."""
    ends = np.zeros((2, size), np.uint32)
    for _ in range(scale):
        words = rng.random_raw(-(-size // 2)).view(np.uint32)[:size]
        lower = words >= QUADRANTS[1]
        ends += ends
        ends[0] += lower
        ends[1] += (words >= QUADRANTS[0]) ^ lower ^ (words >= QUADRANTS[2])
    return ends


def symmetric(first: Any, second: Any, n: int) -> Arcs:
    """Every link in both directions, once."""
    keep = first != second
    first, second = first[keep], second[keep]
    pairs = np.sort(np.concatenate([first * n + second, second * n + first]))
    pairs = pairs[np.diff(pairs, prepend=-1) != 0]
    offsets = np.searchsorted(pairs, np.arange(n + 1, dtype=np.int64) * n).astype(np.uint32)
    return Arcs(offsets, (pairs % n).astype(np.uint32), np.arange(n))


def grid(side: int) -> Arcs:
    """A square of vertices, each linked with its four neighbours."""
    at = np.arange(side * side, dtype=np.int64).reshape(side, side)
    first = np.concatenate([at[:, :-1].ravel(), at[:-1].ravel()])
    return symmetric(first, np.concatenate([at[:, 1:].ravel(), at[1:].ravel()]), side * side)


def path(n: int) -> Arcs:
    """Vertices in a row."""
    first = np.arange(n - 1, dtype=np.int64)
    return symmetric(first, first + 1, n)


def graph_of(text: str) -> Arcs:
    """The graph that an option names."""
    kind, _, size = text.partition(":")
    if size and kind in ("rmat", "grid", "path"):
        return {"rmat": rmat, "grid": grid, "path": path}[kind](int(size))
    if text.endswith(".npz"):
        held = np.load(text)
        return Arcs(held["offsets"], held["targets"], np.arange(held["offsets"].size - 1))
    return as_arcs(Path(text))
