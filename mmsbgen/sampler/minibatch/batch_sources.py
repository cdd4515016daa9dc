"""Mini-batches on the device: blocks, and random pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from mmsbgen.backends.base import Device
from mmsbgen.sampler.minibatch.block_sweeps import Sweeps
from mmsbgen.sampler.minibatch.partners import Launch, Partners
from mmsbgen.sampler.minibatch.strategies import Sources, random_pair


class Batch(NamedTuple):
    """A mini-batch on the device: index of its first vertex and pair, and their numbers."""

    first: int
    n_vertices: int
    n_pairs: int


class Batches(Protocol):
    """Source of mini-batches."""

    def batch(self, iteration: int, queue: Launch) -> Batch:
        """The mini-batch of an iteration; it and its partners are on the device when the queue is done."""


class BlockBatches:
    """Blocks; the vertices of a whole sweep are on the device."""

    def __init__(self, sweeps: Sweeps, partners: Partners, device: Device, values: Mapping[str, Any]) -> None:
        self._sweeps, self._partners, self._device, self._values = sweeps, partners, device, dict(values)

    def batch(self, iteration: int, queue: Launch) -> Batch:
        """The block of an iteration."""
        first, n = self._sweeps.place(iteration, self._device, self._values["vertices"])
        self._values["iteration"] = np.uint32(iteration)
        self._partners.draw(queue, 1, n, self._values)
        return Batch(first, n, 0)


class PairBatches:
    """Random pairs, drawn on the host, one mini-batch after another."""

    def __init__(
        self, sources: Sources, partners: Partners, device: Device, values: Mapping[str, Any], real: np.dtype[Any]
    ) -> None:
        self._sources, self._partners = sources, partners
        self._device, self._values, self._real = device, dict(values), real

    def batch(self, iteration: int, queue: Launch) -> Batch:
        """Draw a mini-batch and write it to the device."""
        batch = random_pair(self._sources, iteration)
        n, device, values = batch.vertices.size, self._device, self._values
        device.write(values["vertices"], batch.vertices.astype(np.uint32))
        device.write(values["sizes"], np.array([n], np.uint32))
        values.update(iteration=np.uint32(iteration), n_vertices=np.uint32(n), stride=np.uint32(n))
        self._partners.draw(queue, 1, n, values)
        device.write(values["pairs_a"], batch.pairs_a.astype(np.uint32))
        device.write(values["pairs_b"], batch.pairs_b.astype(np.uint32))
        device.write(values["pair_weights"], batch.weights.astype(self._real))
        return Batch(0, n, batch.pairs_a.size)
