"""Star-shaped mini-batches and their partners, drawn on the device several iterations in advance.

Neither depends on the state, so one launch draws for many iterations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mmsbgen.backends.base import Device
from mmsbgen.sampler.minibatch.batch_sources import Batch
from mmsbgen.sampler.minibatch.partners import Launch, Partners
from mmsbgen.sampler.minibatch.strategies import Ints, Sources, Stars, random_node

#: Most bytes of mini-batches drawn in advance; one iteration is always held.
_BYTES = 64 << 20
#: Most iterations drawn in advance; draws beyond the end of a run are wasted, which costs more on CPUs.
_MOST = {"cpu": 8, "gpu": 64}


def rounds(kind: str, bytes_each: int) -> int:
    """Number of iterations to draw in advance on a device of this ``kind``, at ``bytes_each`` per iteration."""
    return max(1, min(_MOST[kind], _BYTES // max(1, bytes_each)))


class DrawnAhead:
    """Stars of the next iterations; the device arrays are refilled when all are used."""

    def __init__(
        self,
        sources: Sources,
        partners: Partners,
        device: Device,
        values: Mapping[str, Any],
        stride: int,
        count: int,
        real: np.dtype[Any],
    ) -> None:
        self._sources, self._partners = sources, partners
        self._device, self._values = device, values
        self.stride, self.count, self._real = stride, count, real
        self._first = 0
        self._stars: Stars | None = None

    def batch(self, iteration: int, queue: Launch) -> Batch:
        """The star of an iteration; refills if necessary."""
        n = int(self.sizes(iteration, queue)[0])
        return Batch(self.place(iteration) * self.stride, n, max(0, n - 1))

    def sizes(self, iteration: int, queue: Launch) -> Ints:
        """Numbers of vertices of this iteration and of the later ones drawn so far; refills if necessary."""
        if self._stars is None or not self._first <= iteration < self._first + self.count:
            self._stars = self._refill(iteration, queue)
            self._first = iteration
        return self._stars.sizes[self.place(iteration) :]

    def place(self, iteration: int) -> int:
        """Index of an iteration among those held."""
        return iteration - self._first

    def _refill(self, iteration: int, queue: Launch) -> Stars:
        stars = random_node(self._sources, iteration, self.count)
        device, values = self._device, self._values
        device.write(values["centres"], stars.centres.astype(np.uint32))
        device.write(values["sizes"], stars.sizes.astype(np.uint32))
        device.write(values["star_weights"], stars.weights.astype(self._real))
        places = self.count * self.stride
        scalars = {
            "iteration": np.uint32(iteration),
            "n_rounds": np.uint32(self.count),
            "stride": np.uint32(self.stride),
            "n_vertices": np.uint32(places),
        }
        queue("mini-batch", "draw_stars", self.count, {**values, **scalars})
        self._partners.draw(queue, self.count, places, {**values, **scalars})
        return stars
