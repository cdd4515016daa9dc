"""Delays launches until all are queued, so that timings of short kernels exclude Python's launch overhead."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np

from mmsbgen.backends.nvidia.launch_errors import ContextDevice
from mmsbgen.base.errors import LaunchError

_LIMIT_NS = 1_000_000_000
"""Time limit of the spinning kernel, so that a host that waits for the queue meanwhile cannot deadlock."""

log = logging.getLogger(__name__)

SPIN = """
extern "C" __global__ void hold(const volatile unsigned* released, unsigned turn, unsigned long long limit_ns)
{
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while ((int)(*released - turn) < 0 && now - begin < limit_ns);
}
"""


class CudaHold:
    """A kernel of one thread that blocks a device's stream until the host writes a word of mapped memory."""

    def __init__(self, device: ContextDevice) -> None:
        self._device = device
        self._word: Any = None
        self._kernel: Any = None
        self._turn = 0

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Hold the stream until the block ends; does nothing without page-locked memory."""
        device = self._device
        if self._kernel is None:
            self._begin()
        if self._word is None:
            yield
            return
        with device.active(LaunchError, "cannot hold the queue"):
            address = np.uint64(self._word.base.get_device_pointer())
        self._turn += 1
        self._kernel.launch((1,), (1,), (address, np.uint32(self._turn), np.uint64(_LIMIT_NS)))
        try:
            yield
        finally:
            self._word[0] = self._turn

    def _begin(self) -> None:
        device = self._device
        self._kernel = device.compile(SPIN, ["hold"]).kernel("hold")
        mapped = device.driver.host_alloc_flags.DEVICEMAP
        try:
            with device.active(LaunchError, "no page-locked memory"):
                self._word = device.driver.pagelocked_zeros(1, np.uint32, mem_flags=mapped)
        except LaunchError as error:
            log.warning("%s: short kernels of %s are timed with their launches", error, device.info.name)

    def clear(self) -> None:
        """Release the memory; the context must be current and the stream idle."""
        self._word = self._kernel = None
