"""Exchanges of device arrays between NVIDIA GPUs, by NCCL: arrays stay on the devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.backends.base import Buffer
from mmsbgen.backends.nvidia.cuda_device import CudaDevice
from mmsbgen.backends.nvidia.kernel_arguments import address_of
from mmsbgen.base.errors import LaunchError, MissingDependencyError
from mmsbgen.ranks.world import World

__all__ = ["NcclExchange", "has_nccl", "new_identity"]

Ints = npt.NDArray[np.int64]
#: NCCL's numbers of its types and operations (nccl.h).
_BYTES, _U64, _SUM = 1, 5, 0


def has_nccl() -> bool:
    """Whether NCCL can be called here."""
    try:
        _nccl().get_version()
    except (MissingDependencyError, RuntimeError, OSError):
        return False
    return True


def _nccl() -> Any:
    try:
        from nccl.bindings import nccl
    except ImportError as error:
        raise MissingDependencyError(f"NCCL: get it with: pip install 'mmsbgen[nccl]' ({error})") from None
    return nccl


def new_identity() -> bytes:
    """The identity of a new group of ranks; rank 0 makes it."""
    return bytes(_nccl().get_unique_id())


class NcclExchange:
    """By NCCL, on the queue of this rank's GPU.

    Raises :class:`LaunchError` if NCCL refuses the GPUs.
    """

    name = "NCCL"

    def __init__(self, world: World, device: CudaDevice, identity: bytes) -> None:
        self._world, self._device, self._nccl = world, device, _nccl()
        with self._calling("start"):
            made = self._nccl.UniqueId.from_buffer(identity)
            self._comm = self._nccl.comm_init_rank(world.size, made, world.rank)

    @property
    def _stream(self) -> int:
        return int(self._device.stream.handle)

    @contextmanager
    def _calling(self, what: str) -> Iterator[None]:
        with self._device.active(LaunchError, f"NCCL cannot {what} on {self._device.info.spec}"):
            try:
                yield
            except self._nccl.NCCLError as error:
                raise LaunchError(f"NCCL cannot {what} on {self._device.info.spec}: {error}") from error

    def share(self, buffers: Sequence[Buffer]) -> None:
        """As :meth:`mmsbgen.ranks.exchanges.Exchange.share`."""
        with self._calling("broadcast"):
            self._nccl.group_start()
            for buffer in buffers:
                place = address_of(buffer)
                self._nccl.broadcast(place, place, buffer.nbytes, _BYTES, 0, self._comm, self._stream)
            self._nccl.group_end()

    def gather(self, buffers: Sequence[Buffer], bounds: Ints) -> None:
        """As :meth:`mmsbgen.ranks.exchanges.Exchange.gather`."""
        own, size, places = self._world.rank, self._world.size, bounds.tolist()
        with self._calling("gather"):
            self._nccl.group_start()
            for buffer in buffers:
                each, begin = buffer.nbytes // buffer.shape[0], address_of(buffer)
                sent = (places[own + 1] - places[own]) * each
                # Each rank sends to the next, then to the one after it: no rank gets from all at once.
                for step in range(1, size):
                    to, source = (own + step) % size, (own - step) % size
                    got = (places[source + 1] - places[source]) * each
                    self._nccl.send(begin + places[own] * each, sent, _BYTES, to, self._comm, self._stream)
                    self._nccl.recv(begin + places[source] * each, got, _BYTES, source, self._comm, self._stream)
            self._nccl.group_end()

    def add(self, buffer: Buffer) -> None:
        """As :meth:`mmsbgen.ranks.exchanges.Exchange.add`."""
        place = address_of(buffer)
        with self._calling("add"):
            self._nccl.reduce(place, place, buffer.size, _U64, _SUM, 0, self._comm, self._stream)

    def settle(self) -> None:
        """As :meth:`mmsbgen.ranks.exchanges.Exchange.settle`."""
        with self._calling("exchange"):
            # A wait for the queue itself could not be left when a rank is lost.
            self._world.until(self._device.record().query, limited=True)

    def abandon(self) -> None:
        """As :meth:`mmsbgen.ranks.exchanges.Exchange.abandon`."""
        with self._calling("abort"):
            self._nccl.comm_abort(self._comm)

    def close(self) -> None:
        """As :meth:`mmsbgen.ranks.exchanges.Exchange.close`."""
        if not self._world.lost:
            with self._calling("end"):
                self._nccl.comm_destroy(self._comm)
