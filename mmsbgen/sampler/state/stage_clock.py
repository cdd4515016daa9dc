"""Seconds of a run by stage: device time of launches, host time of draws."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from mmsbgen.backends.base import Device, Event

#: Stages of the time report; the host draws mini-batches while the device works.
STAGES = ("mini-batch", "partners", "update_phi", "update_pi", "theta", "iterations", "held-out", "posterior")
#: Most launches with unread times; each holds memory of the driver.
MOST_EVENTS = 4096


class StageClock:
    """Adds up the seconds of launches and of the host by stage."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.events: list[tuple[str, Event]] = []
        """Launches with unread times."""
        self._seconds: dict[str, float] = defaultdict(float)

    def launched(self, stage: str, event: Event) -> None:
        """Count a launch towards a stage, if the device is profiling."""
        if not self._device.profiling:
            return
        self.events.append((stage, event))
        if len(self.events) >= MOST_EVENTS:
            # The later launches may still wait for other ranks, and the device should not run out of work.
            self._read(MOST_EVENTS // 2)

    def drain(self) -> None:
        """Read the times of all launches and release their events; waits for the queue."""
        self._read(len(self.events))

    def _read(self, count: int) -> None:
        for stage, event in self.events[:count]:
            self._seconds[stage] += event.seconds()
        del self.events[:count]

    def take(self, stage: str) -> float:
        """Seconds of a stage since they were last taken; waits for the queue."""
        self.drain()
        return self._seconds.pop(stage, 0.0)

    def seconds(self) -> dict[str, float]:
        """Seconds by stage so far, in the order of an iteration; waits for the queue."""
        self.drain()
        return {stage: self._seconds[stage] for stage in STAGES if stage in self._seconds}

    def add(self, seconds: Mapping[str, float]) -> None:
        """Add seconds of the host, or of the earlier part of a resumed run."""
        for stage, value in seconds.items():
            self._seconds[stage] += value
