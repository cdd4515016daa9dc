"""Two measuring processes of one GPU: while one compares results with the reference, the other has the device."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

from mmsbgen.backends import DeviceInfo
from mmsbgen.base.processes import cores
from mmsbgen.families import resolve_family
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config
from mmsbgen.tuner.measure.measurer import Measurer, Measures
from mmsbgen.tuner.measure.trial_process import TrialOutcome

Measured = tuple[TrialOutcome, float]
"""An outcome, and the seconds in which it was found."""
_FEWEST_CORES = 4
_SHARE = 4
"""The second process may take a quarter of the memory of host and device: the first needs more than its inputs."""


def in_turns(measurer: Measures, info: DeviceInfo, objective: str) -> AbstractContextManager[InTurns | None]:
    """The processes that measure in turns, if there are two; they end with the context.

    On a processor, one would disturb the other.  OpenCL compiles while it has the device.  Energy is measured after
    each trial, by one process.
    """
    if isinstance(measurer, Measurer) and takes_two(info) and objective == "time":
        return InTurns(measurer)
    return nullcontext()


def takes_two(info: DeviceInfo) -> bool:
    """Whether a second process can measure on a device."""
    return info.backend == "cuda" and cores() >= _FEWEST_CORES


class InTurns:
    """Measures with two processes, each in a thread of its own; the device's lock makes them take turns.

    The second one loads a kernel's inputs while the first one measures.  If it cannot, as they are too large, the first
    one measures alone.  Leave the context to end the second.
    """

    def __init__(self, first: Measurer) -> None:
        limits = first.limits.divided(_SHARE)
        self._first, self._second = first, Measurer(first.device, first.family, limits, first.seed, first.data)
        self._second.share = _SHARE
        for one, other in ((self._first, self._second), (self._second, self._first)):
            one.beside(other, first.hardware())
        self._threads = [ThreadPoolExecutor(1, thread_name_prefix=f"measure-{place}") for place in range(2)]
        self._last: list[Future[Measured] | None] = [None, None]
        """What each of them measured last."""
        self._inputs: tuple[str, Problem, float | None] | None = None
        """What the second one will load when there is something to measure."""
        self._loaded: Future[bool] | None = None
        """Whether it could."""
        self._threads[1].submit(self._second.open)

    def load(self, kernel: str, problem: Problem, roof_gbps: float | None = None) -> None:
        """As :meth:`mmsbgen.tuner.measure.measurer.Measurer.load`, for both."""
        self._first.load(kernel, problem, roof_gbps)
        if self._loaded is not None:
            self._loaded.cancel()
        self._inputs, self._loaded = (kernel, problem, roof_gbps), None
        if resolve_family(self._first.family).kernel(kernel).program is not None:
            # Its host loop waits between launches: another process that judges would disturb it.
            self._inputs = None
            self._threads[1].submit(self._second.close)

    def _load(self, kernel: str, problem: Problem, roof_gbps: float | None) -> bool:
        try:
            self._second.load(kernel, problem, roof_gbps)
            self._second.place()
        except Exception:  # also a child's other errors: whatever it is, the first one meets it too, or can go on
            self._second.close()
            return False
        return True

    def idle(self) -> bool:
        """Whether :meth:`begin` begins at once."""
        return self._place() is not None

    def _place(self) -> int | None:
        loading = self._loaded  # the second one's thread may replace it
        loaded = loading is not None and loading.done() and loading.result()
        for place, last in enumerate(self._last[: 1 + loaded]):
            if last is None or last.done():
                return place
        return None

    def begin(self, config: Config, **how: Any) -> Callable[[], Measured]:
        """Begin to measure a configuration, as :meth:`mmsbgen.tuner.measure.measurer.Measurer.measure` does.

        Returns a function that waits for the outcome; it raises what measuring raises.
        """
        place = self._place() or 0
        method = self._measure_beside if place else self._measure
        self._last[place] = future = self._threads[place].submit(method, config, how)
        if self._inputs is not None:
            self._loaded, self._inputs = self._threads[1].submit(self._load, *self._inputs), None
        return future.result

    def _measure(self, config: Config, how: dict[str, Any]) -> Measured:
        begin = time.monotonic()
        return self._first.measure(config, **how), time.monotonic() - begin

    def _measure_beside(self, config: Config, how: dict[str, Any]) -> Measured:
        begin = time.monotonic()
        try:
            return self._second.measure(config, **how), time.monotonic() - begin
        except Exception:  # it was lost and could not start again, or could not load: see above
            self._loaded = None
            return self._threads[0].submit(self._measure, config, how).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._second.abandon()
        if self._last[0] is not None and not self._last[0].done():  # Ctrl-C, or an error of the other
            self._first.abandon()
        for thread in self._threads:
            thread.shutdown(cancel_futures=True)
        self._second.close()
