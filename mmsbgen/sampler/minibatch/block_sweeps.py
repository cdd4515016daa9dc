"""Blocks of vertices; each sweep contains every vertex with training links once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.backends.base import Device
from mmsbgen.graph import Split
from mmsbgen.graph.graph import by_degree
from mmsbgen.sampler.options.options import blocks_per_sweep

Ints = npt.NDArray[np.int64]


class Sweeps:
    """The blocks of a run, of at most ``size`` vertices each.

    Vertices without training links are in none: their rows would gather in one community and weaken it.  The others,
    in descending order of degree, are cut into strata of B vertices, B being the number of blocks.  Each block
    gets one vertex of every stratum: vertex ``(c + shift) % B`` goes to block c, with a random shift for every stratum
    and sweep.  So each vertex is in each block with chance 1/B, and all blocks have about the same number of links.
    Within a block, degrees descend, so that hubs are processed first and do not delay the end of a launch.
    """

    def __init__(self, split: Split, size: int, seed: int) -> None:
        self._by_degree = by_degree(split.training_adjacency.offsets)
        self.n_vertices = self._by_degree.size
        self.per_sweep = blocks_per_sweep(split.graph.n_vertices, size)
        self.largest = -(-self.n_vertices // self.per_sweep)
        self._seed = seed
        self._sweep = -1
        self._starts: Ints = np.zeros(1, np.int64)

    def shifts(self, sweep: int) -> Ints:
        """The shifts of the strata ``[largest]`` in a sweep."""
        drawn: Ints = np.random.Generator(np.random.PCG64([self._seed, 1, sweep])).integers(
            0, self.per_sweep, self.largest, np.int64
        )
        return drawn

    def order(self, sweep: int) -> tuple[npt.NDArray[np.uint32], Ints]:
        """The vertices of a sweep, block after block, and the start of each block ``[B + 1]``."""
        blocks = self.per_sweep
        places = np.arange(blocks)[:, None] + self.shifts(sweep)
        places -= blocks * (places >= blocks)
        places += blocks * np.arange(self.largest)
        there = places < self.n_vertices
        return self._by_degree[places[there]], np.concatenate([[0], np.cumsum(there.sum(axis=1))])

    def place(self, iteration: int, device: Device, vertices: Any) -> tuple[int, int]:
        """Start of an iteration's vertices in the device array ``vertices`` ``[N]``, and their number.

        Writes the array at the first iteration of each sweep.
        """
        sweep, part = divmod(iteration - 1, self.per_sweep)
        # With one block a sweep the order never changes.
        if sweep != self._sweep and (self.per_sweep > 1 or self._sweep < 0):
            order, self._starts = self.order(sweep)
            device.write(vertices, order)
            self._sweep = sweep
        return int(self._starts[part]), int(self._starts[part + 1] - self._starts[part])
