"""Star-shaped mini-batches and their partners, drawn on the device for several iterations ahead.

Neither depends on the state, so that one launch serves many iterations, and an iteration needs nothing of the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mmsbgen.backends.base import Device
from mmsbgen.sampler.minibatch.batch_sources import Batch
from mmsbgen.sampler.minibatch.partners import Launch, Partners
from mmsbgen.sampler.minibatch.strategies import Ints, Sources, Stars

#: Bytes that mini-batches drawn ahead may take; one iteration's are held in any case.
_BYTES = 64 << 20
#: Iterations that are drawn ahead at most.  The work of a run's last ones may be in vain, which weighs more on CPUs.
_MOST = {"cpu": 8, "gpu": 64}


def rounds(kind: str, bytes_each: int) -> int:
    """Iterations to draw ahead on a device of this ``kind`` where one needs ``bytes_each``."""
    return max(1, min(_MOST[kind], _BYTES // max(1, bytes_each)))


class DrawnAhead:
    """The stars of the coming iterations; the device's arrays are refilled as they run out."""

    def __init__(
        self,
        draw: Callable[[Sources, int, int], Stars],
        sources: Sources,
        partners: Partners,
        device: Device,
        values: Mapping[str, Any],
        stride: int,
        count: int,
        real: np.dtype[Any],
    ) -> None:
        self._draw, self._sources, self._partners = draw, sources, partners
        self._device, self._values = device, values
        self.stride, self.count, self._real = stride, count, real
        self._first = 0
        self._stars: Stars | None = None

    def batch(self, iteration: int, queue: Launch) -> Batch:
        """The star of an iteration; draws ahead where it must."""
        n = int(self.sizes(iteration, queue)[0])
        return Batch(self.place(iteration) * self.stride, n, max(0, n - 1))

    def sizes(self, iteration: int, queue: Launch) -> Ints:
        """Vertices of this iteration and of those after it that are drawn by then; draws ahead where it must."""
        if self._stars is None or not self._first <= iteration < self._first + self.count:
            self._stars = self._refill(iteration, queue)
            self._first = iteration
        return self._stars.sizes[self.place(iteration) :]

    def place(self, iteration: int) -> int:
        """Which of the iterations held is this one."""
        return iteration - self._first

    def _refill(self, iteration: int, queue: Launch) -> Stars:
        stars = self._draw(self._sources, iteration, self.count)
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
