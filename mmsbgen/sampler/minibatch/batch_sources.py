"""Mini-batches on the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from mmsbgen.backends.base import Device
from mmsbgen.sampler.minibatch.block_sweeps import Sweeps
from mmsbgen.sampler.minibatch.partners import Launch, Partners


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
