"""Energy of a launch in joules, where the device measures it.

Energy counters are coarse: they move a few times a second.  So a kernel is launched back to back while the counter is
read.  The result is the energy between the first and the last step, divided by the launches that ended between them.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mmsbgen.backends.base import Device, Event
from mmsbgen.base.errors import InputError, MmsbgenError

_CHUNK_S = 0.01
"""Seconds of launches queued at a time: the precision to which the launches at a counter step are known."""
_SHORTEST_S = 1e-6
"""Assumed least time of a launch, whatever the device's clock says; it limits the launches queued at a time."""
_STEPS = 20
_LEAST_S = 1.0
_CHUNKS = 100
_SILENT_S = 5.0


@dataclass(frozen=True)
class Energy:
    """Joules per launch, the ``window_s`` seconds over which they were measured, and the counter's step in seconds.

    At either end of the window, launches are known up to those queued at a time.  ``uncertainty`` is their share of the
    window.  It bounds the relative error of an exact meter.
    """

    joules: float
    window_s: float
    step_s: float
    uncertainty: float


class NvmlMeter:
    """The energy counter of an NVIDIA GPU (``nvmlDeviceGetTotalEnergyConsumption``), for the whole board."""

    def __init__(self, pci_address: str, device: str) -> None:
        """Find the GPU by its PCI address; raises :class:`InputError` if NVML does not report its energy."""
        remedy = "tune for --objective time"
        try:
            import pynvml
        except ImportError as error:
            raise InputError(
                f"{device} tells no energy without NVML's library ({error}): pip install nvidia-ml-py, or {remedy}"
            ) from None
        self._nvml: Any = pynvml
        self.name = "NVML"
        try:
            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByPciBusId(pci_address.encode())
            pynvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)
        except pynvml.NVMLError as error:
            raise InputError(f"{device} tells no energy (NVML: {error}); {remedy}") from None

    def joules(self) -> float:
        """Joules since the driver was loaded; the counter has millijoules.

        Raises :class:`MmsbgenError` when the counter cannot be read any more.
        """
        try:
            return float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)) * 1e-3
        except self._nvml.NVMLError as error:
            raise MmsbgenError(f"the energy counter cannot be read any more (NVML: {error})") from None


def meter_of(device: Device) -> NvmlMeter:
    """The device's energy meter; raises :class:`InputError` naming the device and the remedy if there is none."""
    info = device.info
    name = f"{info.name} ({info.platform})"
    address = device.pci_address()
    if address is None or "nvidia" not in info.vendor.lower():
        raise InputError(f"{name} tells no energy: only NVIDIA's GPUs do, through NVML; tune for --objective time")
    return NvmlMeter(address, name)


def measure_energy(
    device: Device,
    launch: Callable[[int], Event],
    meter: NvmlMeter,
    seconds: float,
    least_s: float = _LEAST_S,
    alive: Callable[[], None] = lambda: None,
) -> Energy:
    """Joules of ``launch(i)``, which takes about ``seconds``, over at least ``least_s`` and 20 steps of the meter.

    ``alive`` is called before each 10 ms of launches.  Raises :class:`MmsbgenError` when the meter does not move for 5
    seconds or cannot be read.
    """
    chunk = max(1, math.ceil(_CHUNK_S / max(seconds, _SHORTEST_S)))
    least_s = max(least_s, _CHUNKS * _CHUNK_S)
    done = 0
    steps: list[tuple[float, float, int]] = []
    longest = 0.0
    before, moved = meter.joules(), time.perf_counter()
    with _unprofiled(device):
        while True:
            alive()
            began = time.perf_counter()
            for turn in range(chunk):
                launch(done + turn)
            device.synchronize()
            done += chunk
            read, now = meter.joules(), time.perf_counter()
            longest = max(longest, now - began)
            if read != before:
                steps.append((read, now, done))
                before, moved = read, now
            elif now - moved > max(_SILENT_S, 3 * longest):
                raise MmsbgenError(f"the energy counter of {device.info.name} ({meter.name}) does not move")
            if len(steps) > _STEPS and steps[-1][1] - steps[0][1] >= least_s:
                break
    (first, begin, none), (last, end, all_) = steps[0], steps[-1]
    window = end - begin
    return Energy((last - first) / (all_ - none), window, window / (len(steps) - 1), min(1.0, 2 * longest / window))


@contextlib.contextmanager
def _unprofiled(device: Device) -> Any:
    before, device.profiling = device.profiling, False
    try:
        yield
    finally:
        device.profiling = before
