"""Page-locked host memory through which small arrays go to a CUDA device without a wait for what is queued."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LARGEST", "Pinned"]

#: Bytes of an array that are staged; a larger one is worth a wait.
LARGEST = 4 << 20
_LEAST = 4 << 10
#: Bytes of all buffers of one size, within bounds on their number.  Where all are on their way, a copy waits for the
#: oldest.
_OF_A_SIZE, _FEWEST, _MOST = 8 << 20, 4, 64


class Pinned:
    """Staging buffers of a device's stream, by size; the context must be current in every call."""

    def __init__(self, driver: Any, stream: Any) -> None:
        self._driver, self._stream = driver, stream
        self._buffers: dict[int, deque[tuple[NDArray[np.uint8], Any]]] = defaultdict(deque)

    def queue(self, address: int, array: NDArray[Any]) -> None:
        """Copy a contiguous array of at most :data:`LARGEST` bytes to a device address, after all that is queued.

        The array may be changed at once.
        """
        size = max(_LEAST, 1 << (array.nbytes - 1).bit_length())
        held = self._buffers[size]
        if held and (len(held) >= max(_FEWEST, min(_MOST, _OF_A_SIZE // size)) or held[0][1].query()):
            buffer, left = held.popleft()
            left.synchronize()
        else:
            try:
                buffer, left = self._driver.pagelocked_empty(size, np.uint8), self._driver.Event()
            except self._driver.Error:
                # Hosts may have none to give, or none left: a copy without a stream waits for the queue instead.
                self._driver.memcpy_htod(address, array)
                return
        part = buffer[: array.nbytes]
        part[:] = array.reshape(-1).view(np.uint8)
        self._driver.memcpy_htod_async(address, part, self._stream)
        left.record(self._stream)
        held.append((buffer, left))

    def clear(self) -> None:
        """Give the memory back, once the copies have left."""
        try:
            for held in self._buffers.values():
                for _, left in held:
                    left.synchronize()
        finally:
            self._buffers.clear()
