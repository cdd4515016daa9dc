"""Seconds of a run by stage: on the device's clock for what is launched, on the host's for what it draws."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from mmsbgen.backends.base import Device, Event

#: Stages by which time is reported; mini-batches are drawn on the host while the device works.
STAGES = ("mini-batch", "partners", "update_phi", "update_pi", "theta", "iterations", "held-out")
#: Launches whose times are still to be read; beyond, they are read at once, as each holds memory of the driver.
MOST_EVENTS = 4096


class StageClock:
    """Adds up what launches and the host took, by stage."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.events: list[tuple[str, Event]] = []
        """Launches whose times are still to be read."""
        self._seconds: dict[str, float] = defaultdict(float)

    def launched(self, stage: str, event: Event) -> None:
        """Count a launch towards a stage, where the device is profiling."""
        if not self._device.profiling:
            return
        self.events.append((stage, event))
        if len(self.events) >= MOST_EVENTS:
            self.drain()

    def drain(self) -> None:
        """Read the times of what was launched, and let the launches go; waits for the queue."""
        for stage, event in self.events:
            self._seconds[stage] += event.seconds()
        self.events.clear()

    def seconds(self) -> dict[str, float]:
        """Seconds by stage so far, in the order of an iteration; waits for the queue."""
        self.drain()
        return {stage: self._seconds[stage] for stage in STAGES if stage in self._seconds}

    def add(self, seconds: Mapping[str, float]) -> None:
        """Count seconds of the host, or those of the part of a run that a checkpoint holds."""
        for stage, value in seconds.items():
            self._seconds[stage] += value
