"""Exchanges of device arrays between ranks: through the hosts by MPI, which every device can do."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.backends.base import Buffer, Device
from mmsbgen.backends.ranks.nccl_exchange import NcclExchange
from mmsbgen.backends.ranks.world import World

Ints = npt.NDArray[np.int64]
#: Most bytes of all ranks exchanged at a time.
_PART = 1 << 26


class HostExchange:
    """By MPI, through the memory of the hosts.  All ranks call the same methods in the same order.

    Attributes:
        pieces: In how many pieces a range is best swept, so that one piece's rows are exchanged during the next one's
            sweep.
        ahead: How many sweeps may be queued beyond the one that is waited for.
        queued: Number of sweeps whose exchanges were all queued, ended by :meth:`mark`.
    """

    name, pieces, ahead, queued = "MPI", 1, 0, 0

    def __init__(self, world: World, device: Device) -> None:
        self._world, self._device = world, device
        self._waiter = ThreadPoolExecutor(1, thread_name_prefix="device")

    def share(self, buffers: Sequence[Buffer]) -> None:
        """Give all ranks rank 0's content of ``buffers``."""
        world, device = self._world, self._device
        for buffer in buffers:
            for first, stop in _parts(buffer, buffer.shape[0], 1):
                if world.rank == 0:
                    rows = device.download_range(buffer, first, stop)
                else:
                    rows = np.empty((stop - first, *buffer.shape[1:]), buffer.dtype)
                self._wait(world.comm.Ibcast(_bytes(rows), 0))
                if world.rank:
                    device.write(buffer, rows, first)

    def gather(self, buffers: Sequence[Buffer], begins: Ints, ends: Ints) -> None:
        """Give all ranks the rows ``[begins[r], ends[r])`` of every rank r, of each of ``buffers``."""
        # This thread answers rank 0 while the device computes.
        computed = self._waiter.submit(self._device.mark().wait)
        self._world.until(computed.done, own=True)
        computed.result()
        for buffer in buffers:
            for first, stop in _parts(buffer, int((ends - begins).max()), self._world.size):
                self._gather_part(buffer, np.minimum(begins + first, ends), np.minimum(begins + stop, ends))

    def _gather_part(self, buffer: Buffer, begins: Ints, ends: Ints) -> None:
        world, device = self._world, self._device
        rows = ends - begins
        row_bytes = buffer.nbytes // buffer.shape[0]
        own = device.download_range(buffer, int(begins[world.rank]), int(ends[world.rank]))
        found = np.empty((int(rows.sum()), *buffer.shape[1:]), buffer.dtype)
        at = np.concatenate([[0], np.cumsum(rows)])
        places = ((rows * row_bytes).tolist(), (at[:-1] * row_bytes).tolist())
        self._wait(world.comm.Iallgatherv(_bytes(own), [_bytes(found), places, world.mpi.BYTE]))
        for rank in range(world.size):
            if rank != world.rank and rows[rank]:
                device.write(buffer, found[at[rank] : at[rank + 1]], int(begins[rank]))

    def add(self, buffer: Buffer) -> None:
        """Add the integers of all ranks, on rank 0."""
        world = self._world
        own = self._device.download(buffer)
        total = np.empty_like(own) if world.rank == 0 else None
        self._wait(world.comm.Ireduce(own, total, world.mpi.SUM, 0))
        if total is not None:
            self._device.write(buffer, total)

    @property
    def settled(self) -> int:
        """Number of the ``queued`` sweeps that have ended on this device: all, as the other methods wait."""
        return self.queued

    def mark(self) -> None:
        """End a sweep: launches from now on come after its exchanges."""
        self.queued += 1

    def settle(self, left: int = 0) -> None:
        """Wait until all queued sweeps but the last ``left`` have been exchanged: nothing is queued here."""

    def abandon(self) -> None:
        """Give up what was queued, so that the device can be used: a rank is lost."""

    def close(self) -> None:
        """Release what the exchange holds: the thread that waits for the device."""
        self._waiter.shutdown(wait=False)

    def _wait(self, request: Any) -> None:
        self._world.until(request.Test)


Exchange = HostExchange | NcclExchange
"""What ranks exchange arrays by."""


def _bytes(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    return array.reshape(-1).view(np.uint8)


def _parts(buffer: Buffer, rows: int, at_once: int) -> list[tuple[int, int]]:
    """Ranges of ``rows`` rows of a buffer, ``at_once`` of which are at most ``_PART`` bytes."""
    step = max(1, _PART // (at_once * max(1, buffer.nbytes // buffer.shape[0])))
    return [(first, min(first + step, rows)) for first in range(0, rows, step)]
