"""Timing of launches on the device's own clock."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mmsbgen.backends.base import Device, Event

__all__ = ["Patience", "Timing", "time_launches", "time_turns", "timed_alone"]

_BATCHED_FROM_S = 4e-5
"""Where launches cannot be held, shorter kernels end before Python has queued the next: a batch would time Python."""
_BATCHED_BELOW_S = 5e-4
_BATCH_S = 1e-3
_MOST_BATCHED = 128
"""Well below what a queue takes before the host has to wait: a batch is queued before its first launch begins."""
_COLD = 4.0
"""By how much a first launch may be slower than two others would be allowed to."""
_SHORTEST_S = 1e-9
"""Below this a device's clock tells nothing."""


@dataclass(frozen=True)
class Patience:
    """How long one configuration is timed.  Times are seconds on the device.

    ``hopeless`` has one number for 1, 2, ... repetitions, the last for all that follow: a configuration all of whose
    repetitions take more than that many times the best so far is given up.  Where the noise of the device is known,
    :class:`mmsbgen.tuner.measure.noise.Noise` has such numbers and that best; these are for before.
    """

    repetitions: int = 7
    enough_s: float = 0.3
    limit_s: float = 1.0
    most: int = 50
    hopeless: tuple[float, ...] = (math.inf, 3.0)


@dataclass(frozen=True)
class Timing:
    """Every repetition in seconds, how many launches each stands for, and whether it was given up early."""

    times: tuple[float, ...]
    batch: int = 1
    given_up: bool = False


def time_launches(
    device: Device, launch: Callable[[int], Event], patience: Patience, best_s: float | None = None
) -> Timing:
    """Time ``launch(i)``, which queues the kernel on the inputs of turn ``i``, after a warm-up that is not kept.

    On GPUs short kernels are launched back to back, and a repetition is the mean of a batch: a single launch between
    two events takes microseconds by itself.  On devices that can be held all are queued before the first begins; on
    others the shortest are timed one by one, by what the device says of each.
    """
    best = math.inf if best_s is None else best_s
    limits = [ratio * best for ratio in patience.hopeless]
    warm = _once(device, launch, 0, 1)
    # A short kernel's first launch says little: two events and the host are most of it.
    if _batch_of(device, warm) == 1 and warm > _COLD * limits[min(1, len(limits) - 1)]:
        return Timing((warm,), given_up=True)
    first = _once(device, launch, 1, 1)
    batch = _batch_of(device, min(warm, first))
    times = [first] if batch == 1 else [_once(device, launch, 1, batch)]
    turn, spent = 2, times[0]
    while len(times) < patience.most:
        if min(times) > limits[min(len(times), len(limits)) - 1]:
            return Timing(tuple(times), batch, given_up=True)
        enough = len(times) >= patience.repetitions and spent >= patience.enough_s
        if enough or (len(times) >= 3 and spent >= patience.limit_s):
            break
        times.append(_once(device, launch, turn, batch))
        spent += times[-1] * batch
        turn += batch
    return Timing(tuple(times), batch)


def time_turns(
    device: Device, launches: Sequence[Callable[[int], Event]], rounds: int, begins: Callable[[], None] = lambda: None
) -> list[Timing]:
    """Time several kernels in turns, all on the same inputs within a round, in another order in each.

    A first round of warm-up is not kept.  ``begins`` is called as each of the others begins, and one launch that is not
    kept follows it: else the first of a round alone would find the inputs in no cache and the device idle.  The order
    is drawn, as what a kernel leaves behind for the next would favour or harm the same one in every round.
    """
    batches = [_batch_of(device, launch(0).seconds()) for launch in launches]
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
    """Whether a record is of launches that were waited for one by one on a device that is held for such kernels now.

    Such a time has the host's part in it, up to several times what the kernel takes; it is not to be compared with new
    ones.
    """
    return backend == "cuda" and batch == 1 and seconds < _BATCHED_FROM_S


def _batch_of(device: Device, seconds: float) -> int:
    """How many launches one repetition should stand for."""
    if device.info.kind == "cpu" or seconds >= _BATCHED_BELOW_S or (seconds < _BATCHED_FROM_S and not device.holds):
        return 1
    return min(_MOST_BATCHED, math.ceil(_BATCH_S / seconds))


def _once(device: Device, launch: Callable[[int], Event], turn: int, batch: int) -> float:
    """Seconds a launch, over ``batch`` launches back to back that begin at ``turn``."""
    if batch == 1:
        return max(launch(turn).seconds(), _SHORTEST_S)
    profiling, device.profiling = device.profiling, False
    try:
        with device.held():
            begin = device.mark()
            for i in range(batch):
                launch(turn + i)
            end = device.mark()
    finally:
        device.profiling = profiling
    return max(end.seconds_since(begin) / batch, _SHORTEST_S)
