"""Mini-batches on the device: those drawn there ahead, those that the host draws, and blocks, with their partners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from mmsbgen.backends.base import Device
from mmsbgen.sampler.minibatch.block_sweeps import Sweeps
from mmsbgen.sampler.minibatch.partners import Launch, Partners
from mmsbgen.sampler.minibatch.strategies import Registered, Sources


class Batch(NamedTuple):
    """What an iteration is about: the place of its first vertex and pair on the device, and how many there are."""

    first: int
    n_vertices: int
    n_pairs: int


class Batches(Protocol):
    """Where mini-batches come from."""

    def batch(self, iteration: int, queue: Launch) -> Batch:
        """The mini-batch of an iteration; it and its partners are on the device when what is queued is done."""


class BlockBatches:
    """Blocks, whose vertices are on the device for a whole sweep."""

    def __init__(self, sweeps: Sweeps, partners: Partners, device: Device, values: Mapping[str, Any]) -> None:
        self._sweeps, self._partners, self._device, self._values = sweeps, partners, device, dict(values)

    def batch(self, iteration: int, queue: Launch) -> Batch:
        """A part of a sweep."""
        first, n = self._sweeps.place(iteration, self._device, self._values["vertices"])
        self._values["iteration"] = np.uint32(iteration)
        self._partners.draw(queue, 1, n, self._values)
        return Batch(first, n, 0)


class HostBatches:
    """Mini-batches that the host draws one by one."""

    def __init__(
        self,
        strategy: Registered,
        sources: Sources,
        partners: Partners,
        device: Device,
        values: Mapping[str, Any],
        real: np.dtype[Any],
    ) -> None:
        self._strategy, self._sources, self._partners = strategy, sources, partners
        self._device, self._values, self._real = device, dict(values), real

    def batch(self, iteration: int, queue: Launch) -> Batch:
        """A draw, written to the device; an empty one has no partners."""
        batch = self._strategy.draw(self._sources, iteration)
        n, device, values = batch.vertices.size, self._device, self._values
        if n:
            device.write(values["vertices"], batch.vertices.astype(np.uint32))
            device.write(values["sizes"], np.array([n], np.uint32))
            values.update(iteration=np.uint32(iteration), n_vertices=np.uint32(n), stride=np.uint32(n))
            self._partners.draw(queue, 1, n, values)
        if batch.pairs_a.size:
            device.write(values["pairs_a"], batch.pairs_a.astype(np.uint32))
            device.write(values["pairs_b"], batch.pairs_b.astype(np.uint32))
            device.write(values["pair_weights"], batch.weights.astype(self._real))
        return Batch(0, n, batch.pairs_a.size)
