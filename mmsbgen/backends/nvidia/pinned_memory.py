"""Page-locked staging buffers, to copy small arrays to a CUDA device without waiting for its queue."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Largest array in bytes that is staged; for larger ones waiting is acceptable.
LARGEST = 4 << 20
_LEAST = 4 << 10
#: Total bytes of the buffers of one size, and bounds on their number.  If all are in use, a copy waits for the oldest.
_OF_A_SIZE, _FEWEST, _MOST = 8 << 20, 4, 64


class Pinned:
    """Staging buffers of a device's stream, by size; the context must be current in every call."""

    def __init__(self, driver: Any, stream: Any) -> None:
        self._driver, self._stream = driver, stream
        self._buffers: dict[int, deque[tuple[NDArray[np.uint8], Any]]] = defaultdict(deque)

    def queue(self, address: int, array: NDArray[Any]) -> None:
        """Queue a copy of a contiguous array of at most :data:`LARGEST` bytes to a device address.

        The array may be changed as soon as this returns.
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
                # No page-locked memory available; a copy without a stream waits for the queue instead.
                self._driver.memcpy_htod(address, array)
                return
        part = buffer[: array.nbytes]
        part[:] = array.reshape(-1).view(np.uint8)
        self._driver.memcpy_htod_async(address, part, self._stream)
        left.record(self._stream)
        held.append((buffer, left))

    def clear(self) -> None:
        """Wait for the copies and release the memory."""
        try:
            for held in self._buffers.values():
                for _, left in held:
                    left.synchronize()
        finally:
            self._buffers.clear()
