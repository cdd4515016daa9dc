"""Exchanges of device arrays between NVIDIA GPUs, by NCCL: arrays stay on the devices."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.backends.base import Buffer
from mmsbgen.backends.nvidia.cuda_device import CudaDevice
from mmsbgen.backends.nvidia.cuda_kernel import address_of
from mmsbgen.backends.ranks.world import World
from mmsbgen.base.errors import LaunchError, MissingDependencyError

Ints = npt.NDArray[np.int64]
#: NCCL's numbers of its types and operations (nccl.h).
_BYTES, _U64, _SUM = 1, 5, 0
#: Seconds in which all ranks must have started NCCL.
_START_S = 300.0


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
    """The identity of a new group of ranks; rank 0 makes it.

    Raises :class:`LaunchError` if NCCL cannot make one.
    """
    nccl = _nccl()
    try:
        return bytes(nccl.get_unique_id())
    except nccl.NCCLError as error:
        raise LaunchError(f"NCCL cannot start: {error}") from error


class _UrgentQueue:
    """A queue whose kernels start before blocks of other queues that wait for room on the GPU.

    Without it the rows of one piece would go out only when all blocks of the next piece have started.  PyCUDA has no
    priorities.
    """

    def __init__(self) -> None:
        from cuda.bindings import driver  # NCCL's binding needs this package too

        self._driver = driver
        _, greatest = self._called(driver.cuCtxGetStreamPriorityRange())
        (self.handle,) = self._called(driver.cuStreamCreateWithPriority(0, greatest))
        (self._begin,), (self._end,) = (self._called(driver.cuEventCreate(2)) for _ in range(2))  # without times

    def _called(self, result: tuple[Any, ...]) -> tuple[Any, ...]:
        code, *values = result
        if code != self._driver.CUresult.CUDA_SUCCESS:
            raise LaunchError(f"NCCL's queue: {code.name}")
        return tuple(values)

    def wait_for(self, stream: int) -> None:
        """Let what is queued here later wait for what is on ``stream``, a handle, now."""
        self._called(self._driver.cuEventRecord(self._begin, stream))
        self._called(self._driver.cuStreamWaitEvent(self.handle, self._begin, 0))

    def hold(self, stream: int) -> None:
        """Let what is put on ``stream`` later wait for what is queued here now."""
        self._called(self._driver.cuEventRecord(self._end, self.handle))
        self._called(self._driver.cuStreamWaitEvent(stream, self._end, 0))

    def ended(self) -> bool:
        """Whether what was queued here at the last :meth:`hold` has ended."""
        result = self._driver.cuEventQuery(self._end)
        if result[0] == self._driver.CUresult.CUDA_ERROR_NOT_READY:
            return False
        self._called(result)
        return True


class NcclExchange:
    """By NCCL, on a queue of its own beside that of the GPU's launches.

    Each exchange begins after the launches before it, and exchanges run one after another.  Launches wait for the
    exchanges before them only behind :meth:`share` and :meth:`mark`.  So a piece's rows go out during the next piece's
    sweep, and the next sweep, queued while this one runs, starts when all of this one's rows are here.

    Raises :class:`LaunchError` if NCCL refuses the GPUs.
    """

    name, pieces, ahead, queued = "NCCL", 4, 1, 0

    def __init__(self, world: World, device: CudaDevice, identity: bytes) -> None:
        self._world, self._device, self._nccl = world, device, _nccl()
        with self._calling("start"):
            made = self._nccl.UniqueId.from_buffer(identity)
            # This call cannot be left while it waits for the other ranks.
            silent = LaunchError(
                f"NCCL has not started on {device.info.spec} within {_START_S:.0f} s: NCCL_DEBUG=INFO shows what it "
                "waits for"
            )
            timer = world.ends_after(_START_S, silent)
            try:
                self._comm = self._nccl.comm_init_rank(world.size, made, world.rank)
            finally:
                timer.cancel()
            self._queue = _UrgentQueue()
            self._stream, self._launches = int(self._queue.handle), int(device.stream.handle)
        self._unsettled: deque[tuple[Any, Any]] = deque()
        """For each sweep that is not known to have ended: the ends of its launches and of its exchanges."""
        world.computes = self._computes

    @contextmanager
    def _calling(self, what: str, after: bool = False) -> Iterator[None]:
        """Convert errors; with ``after``, what is called begins after the launches so far."""
        with self._device.active(LaunchError, f"NCCL cannot {what} on {self._device.info.spec}"):
            try:
                if after:
                    self._queue.wait_for(self._launches)
                yield
            except self._nccl.NCCLError as error:
                raise LaunchError(f"NCCL cannot {what} on {self._device.info.spec}: {error}") from error

    def share(self, buffers: Sequence[Buffer]) -> None:
        """As :meth:`mmsbgen.backends.ranks.exchanges.HostExchange.share`."""
        with self._calling("broadcast", after=True):
            self._nccl.group_start()
            for buffer in buffers:
                place = address_of(buffer)
                self._nccl.broadcast(place, place, buffer.nbytes, _BYTES, 0, self._comm, self._stream)
            self._nccl.group_end()
            self._queue.hold(self._launches)

    def gather(self, buffers: Sequence[Buffer], begins: Ints, ends: Ints) -> None:
        """As :meth:`mmsbgen.backends.ranks.exchanges.HostExchange.gather`."""
        own, size, first, rows = self._world.rank, self._world.size, begins.tolist(), (ends - begins).tolist()
        with self._calling("gather", after=True):
            self._nccl.group_start()
            for buffer in buffers:
                each, begin = buffer.nbytes // buffer.shape[0], address_of(buffer)
                # Each rank sends to the next, then to the one after it: no rank gets from all at once.
                for step in range(1, size):
                    to, source = (own + step) % size, (own - step) % size
                    sent, got = (begin + first[at] * each for at in (own, source))
                    self._nccl.send(sent, rows[own] * each, _BYTES, to, self._comm, self._stream)
                    self._nccl.recv(got, rows[source] * each, _BYTES, source, self._comm, self._stream)
            self._nccl.group_end()

    def add(self, buffer: Buffer) -> None:
        """As :meth:`mmsbgen.backends.ranks.exchanges.HostExchange.add`."""
        place = address_of(buffer)
        with self._calling("add", after=True):
            self._nccl.reduce(place, place, buffer.size, _U64, _SUM, 0, self._comm, self._stream)

    @property
    def settled(self) -> int:
        """As :attr:`mmsbgen.backends.ranks.exchanges.HostExchange.settled`."""
        with self._calling("exchange"):
            while self._unsettled and self._unsettled[0][1].query():
                self._unsettled.popleft()
        return self.queued - len(self._unsettled)

    def _computes(self) -> bool:
        """Whether launches of a sweep are left to do."""
        if not self._unsettled:  # the device may be closed
            return False
        with self._calling("exchange"):
            return any(not swept.query() for swept, _ in self._unsettled)

    def mark(self) -> None:
        """As :meth:`mmsbgen.backends.ranks.exchanges.HostExchange.mark`."""
        with self._calling("exchange"):
            swept = self._device.record()
            self._queue.hold(self._launches)
            # On the queue of launches, which from here on waits for the exchanges.
            self._unsettled.append((swept, self._device.record()))
        self.queued += 1

    def settle(self, left: int = 0) -> None:
        """As :meth:`mmsbgen.backends.ranks.exchanges.HostExchange.settle`."""
        with self._calling("exchange"):
            while len(self._unsettled) > left:
                swept, exchanged = self._unsettled[0]
                # A wait for the queue itself could not be left when a rank is lost.
                self._world.until(swept.query, own=True)
                self._world.until(exchanged.query)
                self._unsettled.popleft()

    def abandon(self) -> None:
        """As :meth:`mmsbgen.backends.ranks.exchanges.HostExchange.abandon`."""
        self._unsettled.clear()
        # NCCL may wait for the ranks that are no more; its kernels end before that.
        threading.Thread(target=self._nccl.comm_abort, args=(self._comm,), daemon=True).start()
        with self._calling("abort"):
            self._queue.hold(self._launches)
            while not self._queue.ended():
                time.sleep(1e-3)

    def close(self) -> None:
        """As :meth:`mmsbgen.backends.ranks.exchanges.HostExchange.close`."""
        with self._calling("end"):
            self._nccl.comm_destroy(self._comm)
