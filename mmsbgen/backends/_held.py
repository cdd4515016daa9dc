"""Launches held back until the host has queued all of them, so that a batch of short kernels does not time Python."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np

from mmsbgen.errors import LaunchError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mmsbgen.backends.cuda import CudaDevice
    from mmsbgen.backends.opencl import OpenCLDevice

__all__ = ["SPIN", "CudaHold", "opencl_held"]

_LIMIT_NS = 200_000_000
"""A kernel that spins longer than this gives up: a host that waits for the queue meanwhile must not wait forever."""

SPIN = """
extern "C" __global__ void hold(const volatile unsigned* released, unsigned turn, unsigned long long limit_ns)
{
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (*released != turn && now - begin < limit_ns);
}
"""


class CudaHold:
    """A kernel of one thread that keeps a device's stream waiting for a word of the host's memory."""

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self._word: Any = None
        self._kernel: Any = None
        self._turn = 0

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Hold the stream until the block is left; where the host has no page-locked memory to give, do not."""
        device = self._device
        if self._word is None:
            self._kernel = device.compile(SPIN, ["hold"]).kernel("hold")
            mapped = device.driver.host_alloc_flags.DEVICEMAP
            with contextlib.suppress(LaunchError), device.active(LaunchError, "no page-locked memory"):
                self._word = device.driver.pagelocked_zeros(1, np.uint32, mem_flags=mapped)
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

    def clear(self) -> None:
        """Give the memory back; the context must be current, and the stream's work done."""
        self._word = None


@contextlib.contextmanager
def opencl_held(device: OpenCLDevice) -> Iterator[None]:
    """Hold the device's queue behind an event of the host's until the block is left."""
    cl = device.cl
    try:
        gate = cl.UserEvent(device.context)
        cl.enqueue_barrier(device.queue, wait_for=[gate])
    except cl.Error as error:
        raise LaunchError(f"cannot hold the queue of {device.info.name}: {error}") from error
    try:
        yield
    finally:
        gate.set_status(cl.command_execution_status.COMPLETE)
