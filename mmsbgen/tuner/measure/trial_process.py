"""The child process that measures: it opens the device, holds one kernel's inputs there, and serves requests.

It is started by :mod:`mmsbgen.tuner.measure.measurer` and may die at any moment: it stores nothing.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import signal
import statistics
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

from jinja2 import TemplateError

from mmsbgen.backends import Device, Event, open_device
from mmsbgen.backends.device_lock import device_lock
from mmsbgen.base.errors import CompileError, ConfigError, InputError, MmsbgenError
from mmsbgen.base.processes import parent_connection
from mmsbgen.families import resolve_family
from mmsbgen.kernels.build import BoundKernel, build, check_built, compiled, compiled_small, traits_of
from mmsbgen.kernels.family import Dataset, KernelFamily, KernelSpec, Workload
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.render import render
from mmsbgen.kernels.roof import RoofKind
from mmsbgen.kernels.space import Config
from mmsbgen.tuner.measure.full_size import FullSizeCheck, Verdict
from mmsbgen.tuner.measure.roofs import CacheRoof, Roofs, measure_cache_roof, measure_roofs
from mmsbgen.tuner.measure.timing import (
    Energy,
    Patience,
    Timing,
    measure_energy,
    meter_of,
    time_launches,
    time_turns,
    too_short,
)
from mmsbgen.tuner.measure.trial_inputs import TrialInputs, most_bytes

Phase = Literal["load", "wait", "compile", "run"]
_POLL_S = 0.002
"""Seconds between looks at the device's lock: trials of one run take turns at it."""
_family = functools.cache(resolve_family)


@dataclass(frozen=True)
class TrialOutcome:
    """Outcome of one configuration: the fields of a trial that are found on the device."""

    status: str
    message: str = ""
    timing: Timing | None = None
    compile_s: float | None = None
    resources: Mapping[str, int] | None = None
    energy: Energy | None = None
    where: str = ""
    """The fleet's worker that measured."""
    lost: bool = False
    """Whether the result is unknown because the workers died."""
    prepare_s: float | None = None
    """Seconds in which the inputs of this configuration were made; None if they do not depend on it."""
    rounds: tuple[int, int] | None = None
    """The launches of a call of a host program, and the barriers of all blocks inside them."""


class _WrongResultError(Exception):
    """A launch at the size that is timed was wrong."""


def _refuse(wrong: str | None) -> None:
    if wrong is not None:
        raise _WrongResultError(f"at full size: {wrong}")


class TrialBench:
    """A device with the inputs of one kernel and problem."""

    def __init__(self, device: Device, notify: Callable[[Phase], None]) -> None:
        self.device = device
        self.notify = notify
        self.inputs: TrialInputs | None = None
        self.dataset: tuple[Path, Dataset] | None = None
        """The user's data and their file."""
        self.full_size: FullSizeCheck | None = None
        self.checked: tuple[tuple[KernelSpec, Problem, int], Workload] | None = None
        """The inputs of a check, which the next configuration of the kernel has too, by what they are made from."""
        self.roof_gbps: float | None = None
        self.cache_roof: CacheRoof | None = None
        self.lock = device_lock(device.hardware)

    @contextlib.contextmanager
    def _alone(self, phase: Phase) -> Iterator[None]:
        """Hold the device's lock during a phase; waiting for it counts against no limit."""
        self.notify("wait")
        with self.lock.acquire(poll_interval=_POLL_S):
            self.notify(phase)
            yield

    def _before_timing(self, phase: Phase) -> contextlib.AbstractContextManager[None]:
        """Begin a phase without timing.

        It would disturb measurements only where the device is the processor: there it locks the device.
        """
        if self.device.info.kind == "cpu":
            return self._alone(phase)
        self.notify(phase)
        return contextlib.nullcontext()

    def roofs(self, row_bytes: int, buffer_bytes: int, others: Sequence[RoofKind]) -> Roofs:
        """The device's roofs, see :func:`mmsbgen.tuner.measure.roofs.measure_roofs`."""
        self.unload()
        with self._alone("load"):
            return measure_roofs(self.device, row_bytes, buffer_bytes, others)

    def load(
        self,
        family: str,
        kernel: str,
        problem: Problem,
        seed: int,
        roof_gbps: float | None,
        data: Path | None = None,
        share: int = 1,
    ) -> None:
        """Put a kernel's inputs for ``problem`` on the device, in place of earlier ones.

        Results above ``roof_gbps`` are compared with the roof of a cache.  ``data`` is a file for the family's reader.
        Raises :class:`InputError` if they take more than 1/``share`` of the device's memory, or could come to that.
        """
        self.unload()
        self.roof_gbps = roof_gbps
        with self._before_timing("load"):
            found = _family(family)
            spec = found.kernel(kernel)
            memory = self.device.info.global_memory
            made = spec.workload(problem, seed) if data is None else self._data(found, data, kernel, problem, seed)
            if share > 1 and (made.prepare is not None or most_bytes(spec, made) * share > memory):
                raise InputError(f"the inputs of {kernel} take more than 1/{share} of the memory of {self.device!r}")
            with self._alone("load"):
                self.inputs = TrialInputs(self.device, spec, problem, made)
            self.full_size = FullSizeCheck(self.device, spec, made, self.inputs.placed)

    def _data(self, family: KernelFamily, file: Path, kernel: str, problem: Problem, seed: int) -> Workload:
        if self.dataset is None or self.dataset[0] != file:
            self.dataset = file, family.dataset(file)
        return self.dataset[1].workload(kernel, problem, seed)

    def unload(self) -> None:
        """Release the memory of the inputs, alone, as that uses the device."""
        if self.inputs is not None:
            with self._alone("load"):
                self.inputs.release()
        self.inputs, self.full_size, self.checked, self.cache_roof = None, None, None, None

    def measure(self, config: Config, best_s: float | None, patience: Patience, seed: int, check: bool) -> TrialOutcome:
        """Build, check and time one configuration; every failure becomes an outcome."""
        with self._before_timing("compile"):
            return self._measure(config, best_s, patience, seed, check)

    def prepare(self, family: str, kernel: str, problem: Problem, config: Config, seed: int) -> None:
        """Compile one configuration into a cache, for a process that builds it later; nothing is timed.

        On a processor it also runs the small problem: runtimes there finish compiling at a kernel's first launch, for
        the size of a block.  Raises what building and launching raise.
        """
        spec = _family(family).kernel(kernel)
        self.notify("compile")
        bound = build(self.device, spec, problem, config)
        if self.device.info.kind == "cpu":
            checkable = compiled_small(self.device, spec, problem, config, bound.source)(bound)
            self.notify("run")
            self._check(checkable, seed)

    def _measure(
        self, config: Config, best_s: float | None, patience: Patience, seed: int, check: bool
    ) -> TrialOutcome:
        compile_s = resources = None
        try:
            begin, inputs = time.perf_counter(), self._loaded()
            kernel = inputs.spec, inputs.problem, config
            source = render(*kernel, traits_of(self.device.info))
            load = compiled(self.device, *kernel, source)
            small = compiled_small(self.device, *kernel, source) if check else None
            compile_s = time.perf_counter() - begin
            with self._loading():
                begin = time.perf_counter()
                bound = load()
                compile_s += time.perf_counter() - begin
                resources = bound.resources()
                checkable = bound if small is None else small(bound)
                self.notify("load")
                _, prepare_s = inputs.prepare(bound)
                with self._alone("run"):
                    if check:
                        wrong = self._check(checkable, seed)
                        if wrong is not None:
                            return TrialOutcome("wrong_result", wrong, None, compile_s, resources)
                        self.notify("run")
                    inputs.restore()
                    timing, verdicts = self._timed(bound, inputs.launcher(bound), patience, best_s, check)
                rounds = bound.rounds
                del bound, checkable  # the code is unloaded before another trial has the device
            # Another trial may have the device while these are found.
            for verdict in verdicts:
                _refuse(verdict())
        except _WrongResultError as error:
            return TrialOutcome("wrong_result", str(error), None, compile_s, resources)
        except ConfigError as error:
            return TrialOutcome("invalid", str(error), None, compile_s, resources)
        except (CompileError, TemplateError) as error:
            return TrialOutcome("compile_error", str(error), None, compile_s, resources)
        except MmsbgenError as error:
            return TrialOutcome("launch_error", str(error), None, compile_s, resources)
        except Exception as error:
            return TrialOutcome("crashed", f"{type(error).__name__}: {error}", None, compile_s, resources)
        return TrialOutcome("ok", "", timing, compile_s, resources, prepare_s=prepare_s, rounds=rounds)

    def _check(self, bound: BoundKernel, seed: int) -> str | None:
        """Check a kernel that was built for the small problem, see :func:`mmsbgen.kernels.build.check_built`."""
        made_from = bound.spec, bound.problem, seed
        if self.checked is None or self.checked[0] != made_from:
            self.checked = made_from, bound.spec.workload(bound.problem, seed)
        return check_built(self.device, bound, seed, self.checked[1])

    def _timed(
        self, bound: BoundKernel, launch: Callable[[int], Event], patience: Patience, best_s: float | None, check: bool
    ) -> tuple[Timing, list[Verdict]]:
        """Time a configuration; with ``check`` there are verdicts on its first and its last launch, and on its rate."""
        full_size, inputs, verdicts = self._checks(), self._loaded(), list[Verdict]()

        def warmed() -> None:
            if check:
                # The limit of a run is for launches, not for the reference.
                self.notify("load")
                verdicts.append(full_size.first(bound))
                self.notify("run")

        timing = time_launches(self.device, launch, patience, best_s, warmed, batched=inputs.batched)
        if check:
            if inputs.turns > 1 and inputs.turn % inputs.turns == 0:
                launch(inputs.turn + 1).wait()  # results that the first launch left would be right for this turn
            self.notify("load")
            verdicts.append(full_size.last(bound, inputs.turn))
            too_fast = self._too_fast(bound, statistics.median(timing.times))
            verdicts.append(lambda: too_fast)
        return timing, verdicts

    def recheck(self, configs: Sequence[Config]) -> list[str | None]:
        """Check configurations together, see :meth:`mmsbgen.tuner.measure.full_size.FullSizeCheck.together`."""
        with self._before_timing("compile"):
            bound, inputs = [self._build(config) for config in configs], self._loaded()
            with self._alone("run"):

                def launched(kernel: BoundKernel) -> None:
                    self.notify("run")
                    inputs.restore()
                    inputs.launcher(kernel)(0).wait()
                    self.notify("load")

                return self._checks().together((kernel, functools.partial(launched, kernel)) for kernel in bound)

    def _checks(self) -> FullSizeCheck:
        if self.full_size is None:
            raise RuntimeError("no kernel was loaded")
        return self.full_size

    def _too_fast(self, bound: BoundKernel, seconds: float) -> str | None:
        """An error message if a call moves its bytes faster than a cache that holds them delivers, else None."""
        moved = bound.spec.traffic(bound.problem)
        rate, roof = moved / seconds / 1e9, self.cache_roof
        if self.roof_gbps is None or rate <= self.roof_gbps or too_short(seconds):
            return None
        held = self._loaded().nbytes(bound)
        for _ in range(2):  # something else may have disturbed the first measurement
            if roof is None or rate > roof.limit:
                try:
                    found = measure_cache_roof(self.device, min(moved, held))
                except MmsbgenError:  # no memory is left for it
                    return None
                self.cache_roof = roof = max(found, roof or found, key=lambda roof: roof.limit)
        if roof is None or rate <= roof.limit:
            return None
        return (
            f"{moved} bytes a call at {rate:.4g} GB/s are above the roof of {roof.limit:.4g} GB/s: caches deliver "
            f"{roof.working_set} bytes at {roof.best:.4g} GB/s here. Work was left out"
        )

    def meter(self) -> str:
        """Name of the device's energy meter; raises :class:`InputError` if there is none."""
        return meter_of(self.device).name

    def energy(self, config: Config) -> Energy:
        """Joules of a call of one configuration, see :func:`mmsbgen.tuner.measure.timing.measure_energy`."""
        meter, inputs = meter_of(self.device), self._loaded()
        if inputs.workload.repeats == "restored":
            name = inputs.spec.name
            raise InputError(f"the energy of {name} is not known, as its inputs are restored: tune for time")
        with self._before_timing("compile"):
            launch = inputs.launcher(self._build(config))
            with self._alone("run"):
                inputs.restore()
                launch(0).wait()
                seconds = launch(1).seconds()
                # The limit is for the launches queued at a time, not for the counter steps to wait for.
                return measure_energy(self.device, launch, meter, seconds, alive=lambda: self.notify("run"))

    def turns(self, configs: Sequence[Config], rounds: int) -> list[Timing]:
        """Time configurations in turns, see :func:`mmsbgen.tuner.measure.timing.time_turns`."""
        with self._before_timing("compile"):
            bound, inputs = [self._build(config) for config in configs], self._loaded()
            with self._alone("run"):
                inputs.restore()
                launchers = [inputs.launcher(kernel) for kernel in bound]
                # The limit is for one round: the tuner, not the candidates, chooses the number of rounds.
                return time_turns(self.device, launchers, rounds, lambda: self.notify("run"), batched=inputs.batched)

    def _build(self, config: Config) -> BoundKernel:
        inputs = self._loaded()
        return build(self.device, inputs.spec, inputs.problem, config)

    def _loaded(self) -> TrialInputs:
        if self.inputs is None:
            raise RuntimeError("no kernel was loaded")
        return self.inputs

    def _loading(self) -> contextlib.AbstractContextManager[None]:
        """Hold the device's lock where loading code is separate from compiling: it uses the device."""
        return self._alone("compile") if self.device.side_by_side else contextlib.nullcontext()


def _opened(notify: Callable[[Phase], None], spec: str | None, hardware: str | None) -> Device:
    """Open a device; where another process measures on it, hold its lock, by the name ``hardware``."""
    if hardware is None:
        return open_device(spec)
    notify("wait")
    with device_lock(hardware).acquire(poll_interval=_POLL_S):
        notify("load")
        return open_device(spec)


def serve(connection: Connection) -> None:
    """Answer requests ``(method, arguments)`` until the other end closes.

    Sends any number of ``("phase", Phase)`` and one ``("done", answer)`` or ``("error", exception, traceback)``
    for each.  The first request is "open" with the device's spec; its answer has the device's description, and its
    name as :attr:`mmsbgen.backends.base.Device.hardware`.
    """
    bench: TrialBench | None = None

    def notify(phase: Phase) -> None:
        connection.send(("phase", phase))

    with contextlib.suppress(EOFError, OSError):
        while True:
            method, arguments = connection.recv()
            try:
                if method == "open":
                    bench = TrialBench(_opened(notify, *arguments), notify)
                    answer: Any = bench.device.info, bench.device.hardware
                else:
                    answer = getattr(bench, method)(*arguments)
            except Exception as error:
                connection.send(("error", _plain(error), traceback.format_exc()))
            else:
                connection.send(("done", answer))


def _plain(error: Exception) -> Exception:
    """An exception that the other end can unpickle."""
    if isinstance(error, MemoryError):
        return InputError(f"the inputs do not fit into this machine's memory: {error}")
    return error if isinstance(error, MmsbgenError) else RuntimeError(f"{type(error).__name__}: {error}")


def main() -> None:
    """Serve the connection to the parent."""
    connection = parent_connection()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(connection)


if __name__ == "__main__":
    # Run by the module's own name, so that the other end can unpickle its classes.
    importlib.import_module("mmsbgen.tuner.measure.trial_process").main()
