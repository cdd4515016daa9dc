"""Measuring in a child process, so that a faulty candidate breaks the child only."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

from mmsbgen.backends import DeviceInfo
from mmsbgen.backends.device_lock import PATIENT_S
from mmsbgen.backends.opencl.compiler_caches import prepare
from mmsbgen.base.errors import InputError, MmsbgenError
from mmsbgen.base.host_memory import available_host_memory, readable, resident_bytes
from mmsbgen.base.processes import ChildProcess
from mmsbgen.kernels.problem import Problem, Value
from mmsbgen.kernels.roof import RoofKind
from mmsbgen.kernels.space import Config
from mmsbgen.tuner.measure.roofs import BUFFER_BYTES, Roofs
from mmsbgen.tuner.measure.timing import Energy, Patience, Timing
from mmsbgen.tuner.measure.trial_process import TrialOutcome

_SUSPECT = frozenset({"wrong_result", "launch_error", "crashed"})
"""After these the child's memory or its device's context may be damaged, so the next candidate gets a new child."""
_Faults = tuple[type[BaseException], ...]
_FAULTS: _Faults = (MmsbgenError, KeyboardInterrupt)
_WATCH_S = 0.1
"""Seconds between checks of a child's memory."""
_SHARE = 0.8


@dataclass(frozen=True)
class TrialLimits:
    """Limits beyond which a child is killed: seconds of each phase, and memory.

    ``load_s`` is for opening the device and making inputs, ``compile_s`` for compiling, ``run_s`` for checking or
    timing. ``memory_bytes`` counts what the child and the compilers that it started hold in the machine's memory,
    inputs included. None is four fifths of what the machine, or the control group, has left when the child starts.
    """

    load_s: float = 600.0
    compile_s: float = 120.0
    run_s: float = 60.0
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("load_s", "compile_s", "run_s", "memory_bytes"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise InputError(f"{name} must be positive, got {value}")

    def divided(self, processes: int) -> TrialLimits:
        """The limits for each of several children at a time: they share the free memory, unless a limit was given."""
        if self.memory_bytes is not None:
            return self
        return replace(self, memory_bytes=max(1, int(_SHARE * available_host_memory()[0] / processes)))

    def of(self, phase: str) -> float:
        """The limit of a phase by its name."""
        return {"load": self.load_s, "wait": math.inf, "compile": self.compile_s, "run": self.run_s}[phase]


class WorkerLostError(MmsbgenError):
    """The child was killed for taking too long (``status`` 'timeout') or too much memory, or died ('crashed')."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status

    def __reduce__(self) -> tuple[type[Self], tuple[str, str]]:
        return type(self), (self.status, str(self))


class Measures(Protocol):
    """Interface between a run and its measurer; see :class:`Measurer` for each method."""

    def open(self) -> DeviceInfo: ...  # noqa: D102
    def roofs(  # noqa: D102
        self, row_bytes: int, buffer_bytes: int = BUFFER_BYTES, others: Sequence[RoofKind] = ()
    ) -> Roofs: ...
    def load(self, kernel: str, problem: Problem, roof_gbps: float | None = None) -> None: ...  # noqa: D102
    def measure(  # noqa: D102
        self, config: Config, *, best_s: float | None = None, patience: Patience | None = None, check: bool = True
    ) -> TrialOutcome: ...
    def recheck(self, configs: Sequence[Config]) -> list[str | None]: ...  # noqa: D102
    def turns(self, configs: Sequence[Config], rounds: int) -> list[Timing]: ...  # noqa: D102
    def meter(self) -> str: ...  # noqa: D102
    def energy(self, config: Config) -> Energy: ...  # noqa: D102


class Measurer:
    """Measures configurations of one kernel after another on one device, in a child that is started as needed.

    ``family`` is a reference as :func:`mmsbgen.families.resolve_family` takes it, with the absolute path of a file.
    ``data`` is a file for the family's reader, None for generated inputs.
    """

    def __init__(
        self,
        device: str | None,
        family: str,
        limits: TrialLimits | None = None,
        seed: int = 0,
        data: Path | None = None,
    ) -> None:
        self.device = device
        self.family = family
        self.limits = limits or TrialLimits()
        self.seed = seed
        self.data = data
        self.waiting: Callable[[str], None] = lambda device: None
        """Called with the device's name if another process has measured on it for two seconds."""
        self.share = 1
        """Inputs that take more than this part of the device's memory, 1/share, are refused."""
        self._hardware: str | None = None
        self._abandoned = False
        self._child: _Child | None = None
        self._newest: _Child | None = None
        """The child, also while it starts."""
        self._stopped = False
        self._loaded: tuple[str, Problem, float | None] | None = None
        self._placed = False
        """Whether the child has the inputs of what is loaded."""
        self._served = 0

    def open(self) -> DeviceInfo:
        """Open the device in a child and return its description; raises :class:`InputError` when there is none."""
        return self._running().info

    def roofs(self, row_bytes: int, buffer_bytes: int = BUFFER_BYTES, others: Sequence[RoofKind] = ()) -> Roofs:
        """Measure the device's roofs, see :func:`mmsbgen.tuner.measure.roofs.measure_roofs`."""
        self._loaded = None
        found: Roofs = self._ask(self._running(), "roofs", (row_bytes, buffer_bytes, others), "load")
        return found

    def load(self, kernel: str, problem: Problem, roof_gbps: float | None = None) -> None:
        """Select the kernel for :meth:`measure` and :meth:`turns`.

        The first of these puts its inputs on the device, and raises :class:`InputError` when they do not fit.  Results
        above ``roof_gbps``, the device's fastest roof, are compared with the roof of a cache that holds their bytes,
        and are wrong above that.
        """
        self._loaded, self._placed = (kernel, problem, roof_gbps), False

    def measure(
        self, config: Config, *, best_s: float | None = None, patience: Patience | None = None, check: bool = True
    ) -> TrialOutcome:
        """Build, check and time one configuration; failures are reported in the outcome's status.

        If a child that had served other candidates dies, the configuration is tried again in a new child, as one of the
        others may have broken the first.
        """
        arguments = (dict(config), best_s, patience or Patience(), self.seed, check)
        outcome, fresh = self._try(arguments)
        if outcome.status == "crashed" and not fresh:
            outcome, _ = self._try(arguments)
        return outcome

    def prepare(self, kernel: str, problem: Problem, config: Config) -> None:
        """Compile a configuration into the caches, see :meth:`mmsbgen.tuner.measure.trial_process.TrialBench.prepare`.

        Raises :class:`MmsbgenError` if that fails.
        """
        self._ask(self._running(), "prepare", (self.family, kernel, problem, dict(config), self.seed), "compile")

    def set_running(self, running: bool) -> None:
        """Continue the child, or stop it; may be called while another thread waits for its answer."""
        self._stopped = not running
        if self._newest is not None:
            self._newest.set_running(running)

    def beside(self, other: Measurer, hardware: str) -> None:
        """Another one measures on the device ``hardware`` at the same time: who waits for it need not be told."""
        told = self.waiting
        self._hardware = hardware
        self.waiting = lambda device: None if other.busy else told(device)

    @property
    def busy(self) -> bool:
        """Whether the child is working on something, as on opening the device, and not waiting for the device."""
        child = self._newest  # another thread may replace it
        return child is not None and child.phase not in {None, "wait"}

    def abandon(self) -> None:
        """End the child at once, and start no other; may be called while another thread waits for its answer."""
        self._abandoned = True
        if self._newest is not None:
            self._newest.kill()

    def hardware(self) -> str:
        """The device's name for :func:`mmsbgen.backends.device_lock.device_lock`."""
        return self._running().hardware

    def _try(self, arguments: tuple[Any, ...]) -> tuple[TrialOutcome, bool]:
        """The outcome, and whether the child had served no other candidate."""
        child = self.place()
        fresh = self._served == 0
        self._served += 1
        try:
            outcome: TrialOutcome = child.ask("measure", arguments, "compile", self.limits)
        except WorkerLostError as lost:
            outcome = TrialOutcome(lost.status, str(lost))
            self.close()
        except KeyboardInterrupt:
            self.close()
            raise
        if outcome.status in _SUSPECT:
            self.close()
        return outcome, fresh

    def recheck(self, configs: Sequence[Config]) -> list[str | None]:
        """Check a launch at full size of each, and where they differ; a message for each wrong one, None for others.

        Raises :class:`MmsbgenError` if one of them fails.
        """
        found: list[str | None] = self._ask(self.place(), "recheck", (_plain(configs),), "compile", _FAULTS)
        if any(wrong is not None for wrong in found):
            self.close()
        return found

    def turns(self, configs: Sequence[Config], rounds: int) -> list[Timing]:
        """Time configurations in turns; raises :class:`MmsbgenError` if one of them fails."""
        timings: list[Timing] = self._ask(self.place(), "turns", (_plain(configs), rounds), "compile", _FAULTS)
        return timings

    def _ask(
        self, child: _Child, method: str, arguments: tuple[Any, ...], phase: str, ends: _Faults = (WorkerLostError,)
    ) -> Any:
        """The child's answer; after one of the errors ``ends`` the child is given up."""
        try:
            return child.ask(method, arguments, phase, self.limits)
        except ends:
            self.close()
            raise

    def meter(self) -> str:
        """Name of the device's energy meter; raises :class:`InputError` if there is none."""
        name: str = self._running().ask("meter", (), "load", self.limits)
        return name

    def energy(self, config: Config) -> Energy:
        """Joules of a call of a configuration that works; raises :class:`MmsbgenError` if it fails."""
        found: Energy = self._ask(self.place(), "energy", (dict(config),), "compile", _FAULTS)
        return found

    def close(self) -> None:
        """End the child; what follows gets another."""
        if self._child is not None:
            self._child.close()
        self._child = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def place(self) -> _Child:
        """A child with the inputs of what is loaded on its device; raises :class:`InputError` if they do not fit."""
        if self._loaded is None:
            raise RuntimeError("no kernel was loaded")
        child = self._running()
        if not self._placed:
            kernel, problem, roof_gbps = self._loaded
            self._ask(
                child, "load", (self.family, kernel, problem, self.seed, roof_gbps, self.data, self.share), "load"
            )
            self._placed = True
        return child

    def _running(self) -> _Child:
        if self._child is None:
            self._newest = child = _Child(self.limits)
            if self._stopped:
                child.set_running(False)
            try:
                if self._abandoned:
                    raise WorkerLostError("crashed", "the measuring process was ended")
                child.info, child.hardware = child.ask("open", (self.device, self._hardware), "load", self.limits)
            except BaseException:
                child.close()
                raise
            self.device = child.info.spec
            child.waiting = lambda: self.waiting(child.info.name)
            self._child, self._served, self._placed = child, 0, False
        return self._child


def _plain(configs: Sequence[Config]) -> list[dict[str, Value]]:
    return [dict(config) for config in configs]


class _Child(ChildProcess):
    """The measuring child, with limits on its memory and time; it knows its device once it has opened one."""

    info: DeviceInfo
    hardware: str

    def __init__(self, limits: TrialLimits) -> None:
        self.waiting: Callable[[], None] = lambda: None
        self.phase: str | None = None
        """The phase of the request that is being answered; None if there is none."""
        self._stopped = False
        # Prepared here, as a child that is killed would leave its temporary folder behind.
        prepare()
        self._memory = limits.memory_bytes or int(_SHARE * available_host_memory()[0])
        super().__init__("mmsbgen.tuner.measure.trial_process")

    def set_running(self, running: bool) -> None:
        """Continue it, or stop it; while it is stopped its limit of time does not run."""
        self._stopped = not running
        super().set_running(running)

    def ask(self, method: str, arguments: tuple[Any, ...], phase: str, limits: TrialLimits) -> Any:
        """Send one request and wait for its answer; ``phase`` is the child's first phase.

        Raises :class:`WorkerLostError`, and what the request raised in the child.
        """
        try:
            self.phase = phase
            self.connection.send((method, arguments))
            deadline = time.monotonic() + limits.of(phase)
            patient_until = math.inf
            while True:
                while not self.connection.poll(min(_WATCH_S, max(0.0, deadline - time.monotonic()))):
                    if self._stopped:
                        deadline = time.monotonic() + limits.of(phase)
                    self._watch(phase, limits, deadline)
                    if time.monotonic() >= patient_until:
                        self.waiting()
                        patient_until = math.inf
                kind, *rest = self.connection.recv()
                if kind == "phase":
                    self.phase = phase = rest[0]
                    deadline = time.monotonic() + limits.of(phase)
                    patient_until = time.monotonic() + PATIENT_S if phase == "wait" else math.inf
                elif kind == "done":
                    return rest[0]
                else:
                    error: Exception = rest[0]
                    error.add_note(rest[1])
                    raise error
        except (EOFError, OSError) as error:
            how, said = self.ending(), self.printed(600)
            words = f"; its last words: {said}" if said and "died" in how else ""
            raise WorkerLostError("crashed", f"{how}{words} ({_DOING[phase]})") from error
        finally:
            self.phase = None

    def _watch(self, phase: str, limits: TrialLimits, deadline: float) -> None:
        """Kill the child and raise :class:`WorkerLostError` if it exceeds its time or memory."""
        if time.monotonic() >= deadline:
            self.kill()
            raise WorkerLostError("timeout", f"not done after {limits.of(phase):g} s ({_DOING[phase]})")
        used = resident_bytes(self.pid)
        if used > self._memory:
            self.kill()
            held = f"{readable(used)} of memory, the limit is {readable(self._memory)}"
            raise WorkerLostError("crashed", f"killed as it took {held} ({_DOING[phase]})")


_DOING = {"load": "loading", "wait": "waiting for the device", "compile": "compiling", "run": "running"}
