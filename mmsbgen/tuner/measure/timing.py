"""Timing of launches on the device's own clock, and the energy of calls by the counters of processors and GPUs."""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mmsbgen.backends.base import Device, Event
from mmsbgen.base.errors import InputError, MmsbgenError
from mmsbgen.tuner.measure.noise import FEWEST_TIMES, median_interval

_BATCHED_FROM_S = 4e-5
"""On devices that cannot hold launches, shorter kernels are not batched.

They end before Python has queued the next: a batch would time Python.
"""
_BATCHED_BELOW_S = 5e-4
_BATCH_S = 1e-3
_MOST_BATCHED = 128
"""Well below the queue length at which the host has to wait: a batch is queued before its first launch begins."""
_COLD = 4.0
"""Factor by which a first launch may exceed the limit of two repetitions."""
_STALLED_S = 2e-2
"""A first launch may take so long, however short the kernel: on a busy host, or until its program is in memory."""
_SHORTEST_S = 1e-9
"""Least time reported; shorter ones are below the resolution of a device's clock."""


@dataclass(frozen=True)
class Patience:
    """How long one configuration is timed.  Times are seconds on the device.

    ``hopeless`` has one ratio for 1, 2, ... repetitions, the last for all that follow.  Timing stops early if all
    repetitions exceed that ratio times the best so far.  These are defaults until
    :class:`mmsbgen.tuner.measure.noise.Noise` has ratios for the noise of the device.
    """

    repetitions: int = 7
    enough_s: float = 0.1
    limit_s: float = 1.0
    most: int = 50
    hopeless: tuple[float, ...] = (math.inf, 3.0)


@dataclass(frozen=True)
class Timing:
    """Seconds of each repetition, the number of launches in each, and whether timing was stopped early."""

    times: tuple[float, ...]
    batch: int = 1
    given_up: bool = False


def time_launches(
    device: Device,
    launch: Callable[[int], Event],
    patience: Patience,
    best_s: float | None = None,
    warmed: Callable[[], None] = lambda: None,
    *,
    batched: bool = True,
) -> Timing:
    """Time ``launch(i)``, which queues the kernel on the inputs of turn ``i``, after a warm-up that is discarded.

    ``warmed`` is called when the warm-up, the launch of turn 0, has ended.

    On GPUs short kernels are launched back to back, and a repetition is the mean of a batch: a single launch between
    two events has microseconds of overhead.  On devices that can hold launches, all of a batch are queued before the
    first begins.  On others the shortest kernels are timed one by one, by the device's own times.  With ``batched``
    false all are: calls that wait for the device, or whose inputs are restored in between.
    """
    best = math.inf if best_s is None else best_s
    limits = [ratio * best for ratio in patience.hopeless]
    warm = _once(device, launch, 0, 1)
    warmed()
    # A short kernel's first launch is no measure: most of it is the overhead of two events and of the host.
    if warm > max(_STALLED_S, _COLD * limits[min(1, len(limits) - 1)]):
        return Timing((warm,), given_up=True)
    first = _once(device, launch, 1, 1)
    batch = _batch_of(device, min(warm, first)) if batched else 1
    times = [first] if batch == 1 else [_once(device, launch, 1, batch)]
    turn, spent = 2, times[0]
    while len(times) < patience.most:
        if min(times) > limits[min(len(times), len(limits)) - 1]:
            return Timing(tuple(times), batch, given_up=True)
        enough = len(times) >= patience.repetitions and spent >= patience.enough_s
        if enough or (len(times) >= 3 and spent >= patience.limit_s):
            break
        if len(times) >= FEWEST_TIMES and median_interval(times)[0] > best:
            break  # slower than the best beyond the noise: how much slower decides nothing
        times.append(_once(device, launch, turn, batch))
        spent += times[-1] * batch
        turn += batch
    return Timing(tuple(times), batch)


def time_turns(
    device: Device,
    launches: Sequence[Callable[[int], Event]],
    rounds: int,
    begins: Callable[[], None] = lambda: None,
    *,
    batched: bool = True,
) -> list[Timing]:
    """Time several kernels in turns, on the same inputs within a round, in a different random order in each.

    The launches before the first round are discarded.  ``begins`` is called as each round begins; one launch that is
    discarded follows it.  Otherwise the first kernel of a round alone would find its inputs in no cache and the device
    idle. In a fixed order, the state that a kernel leaves would favour or harm the same one in every round.
    """
    first = [launch(0).seconds() for launch in launches]
    batches = [_batch_of(device, seconds) if batched else 1 for seconds in first]
    if min(batches, default=1) > 1:
        batches = [max(batches)] * len(batches)
    times: list[list[float]] = [[] for _ in launches]
    order, drawn = list(range(len(launches))), random.Random(0)
    for turn in range(1, rounds + 1):
        begins()
        drawn.shuffle(order)
        launches[order[-1]](turn).wait()
        for place in order:
            times[place].append(_once(device, launches[place], turn, batches[place]))
    return [Timing(tuple(kept), batch) for kept, batch in zip(times, batches, strict=True)]


def timed_alone(backend: str, seconds: float, batch: int) -> bool:
    """Whether a record is of single launches, on a device that now holds and batches launches of such kernels.

    Such a time includes overhead of the host, up to several times the kernel's own time.  It is not comparable with new
    ones.
    """
    return backend == "cuda" and batch == 1 and seconds < _BATCHED_FROM_S


def too_short(seconds: float) -> bool:
    """Whether a time is below the resolution of a device's clock."""
    return seconds <= _SHORTEST_S


def _batch_of(device: Device, seconds: float) -> int:
    """Number of launches in one repetition."""
    if device.info.kind == "cpu" or seconds >= _BATCHED_BELOW_S or (seconds < _BATCHED_FROM_S and not device.holds):
        return 1
    return min(_MOST_BATCHED, math.ceil(_BATCH_S / seconds))


def _once(device: Device, launch: Callable[[int], Event], turn: int, batch: int) -> float:
    """Seconds per launch, over ``batch`` launches back to back that begin at ``turn``."""
    if batch == 1:
        return max(launch(turn).seconds(), _SHORTEST_S)
    with _unprofiled(device), device.held():
        begin = device.mark()
        for i in range(batch):
            launch(turn + i)
        end = device.mark()
    return max(end.seconds_since(begin) / batch, _SHORTEST_S)


_CHUNK_S = 0.01
"""Seconds of launches queued at a time: the precision to which the launches at a counter step are known."""
_SHORTEST_METERED_S = 1e-6
"""Assumed least time of a launch, whatever the device's clock says; it limits the launches queued at a time."""
_STEPS = 20
_LEAST_S = 1.0
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
    alive: Callable[[], None] = lambda: None,
) -> Energy:
    """Joules of ``launch(i)``, which takes about ``seconds``, over at least a second and 20 steps of the meter.

    Energy counters are coarse: they move a few times a second.  So a kernel is launched back to back while the counter
    is read.  The result is the energy between the first and the last step, divided by the launches that ended between.

    ``alive`` is called before each 10 ms of launches.  Raises :class:`MmsbgenError` when the meter does not move for 5
    seconds or cannot be read.
    """
    chunk = max(1, math.ceil(_CHUNK_S / max(seconds, _SHORTEST_METERED_S)))
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
            if len(steps) > _STEPS and steps[-1][1] - steps[0][1] >= _LEAST_S:
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
