"""The harness of the benchmarks: options, devices, and timing in turns."""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from _report import REPORTS, Report

from mmsbgen.backends import Device, DeviceInfo, discover, open_device
from mmsbgen.backends.base import Event
from mmsbgen.backends.discovery import select_device
from mmsbgen.db.selection.index import Index
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.families.mmsb import MMSB
from mmsbgen.graph import Split
from mmsbgen.kernels.build import BoundKernel
from mmsbgen.kernels.runtime import Runtime
from mmsbgen.kernels.space import Config, describe
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.options.options import Options
from mmsbgen.tuner.measure.roofs import BUFFER_BYTES
from mmsbgen.tuner.measure.timing import time_turns


@dataclass(frozen=True)
class Sample:
    """Repetitions of one thing in seconds, in the order measured."""

    times: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median, seconds."""
        return statistics.median(self.times)

    @property
    def iqr(self) -> float:
        """The distance between the quartiles, seconds; 0 for one repetition."""
        if len(self.times) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.times, n=4, method="inclusive")
        return high - low

    def text(self, scale: float = 1e3) -> str:
        """Median and spread, in milliseconds unless another scale is given."""
        return f"{self.median * scale:.4g} ± {self.iqr * scale:.2g}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"median_s": self.median, "iqr_s": self.iqr, "times_s": list(self.times)}


@contextmanager
def chain(
    device: Device,
    parts: Split,
    options: Options,
    database: str | None,
    *,
    fused: bool | None = False,
    fixed: Mapping[str, Config] | None = None,
) -> Iterator[Sampler]:
    """A chain at its start, in the configurations that a run of these options would get but for the ``fixed`` ones."""
    with open_store(database, read_only=True) as store:
        sampler = Sampler(parts, options, Runtime(device, MMSB, Index(store), dict(fixed or {})), fused=fused)
        try:
            sampler.initialise()
            yield sampler
        finally:
            sampler.close()


def advance(sampler: Sampler, count: int) -> None:
    """Make ``count`` iterations and wait for them."""
    sampler.iterate(count)
    sampler.device.synchronize()


def wall(sampler: Sampler, make: Callable[[Sampler, int], None], count: int, repetitions: int) -> Sample:
    """Seconds of one of ``count`` things that ``make`` makes and waits for: launches queued ahead, nothing profiled."""
    sampler.stages.drain()
    sampler.device.profiling = False
    times = []
    for _ in range(repetitions):
        begin = time.perf_counter()
        make(sampler, count)
        times.append((time.perf_counter() - begin) / count)
    sampler.device.profiling = True
    return Sample(tuple(times))


def interleave(runs: Mapping[str, Callable[[int], float]], rounds: int, limit_s: float = 20.0) -> dict[str, Sample]:
    """Time things in turns (A B C, B C A, ...), after one warm-up of each that does not count.

    Who begins moves on with the rounds: what runs after another finds the caches as that one left them.

    Each run takes the number of the round, by which it chooses inputs that no cache holds, and returns seconds.
    What has taken more than ``limit_s`` in all sits the other rounds out, but not before its third.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run(0)
    order = list(runs.items())
    for number in range(1, rounds + 1):
        first = number % len(order)
        for name, run in order[first:] + order[:first]:
            if number <= 3 or sum(times[name]) < limit_s:
                times[name].append(run(number))
    return {name: Sample(tuple(taken)) for name, taken in times.items()}


def in_turns(device: Device, launches: Mapping[str, Callable[[int], Event]], rounds: int) -> dict[str, Sample]:
    """Time launches in turns; on GPUs each by a batch, all of which is queued before the first begins."""
    if device.info.kind == "cpu":
        return interleave({n: lambda number, run=run: run(number).seconds() for n, run in launches.items()}, rounds)
    timings = time_turns(device, list(launches.values()), rounds)
    return {name: Sample(timing.times) for name, timing in zip(launches, timings, strict=True)}


@dataclass
class Placed:
    """A workload on a device: the arguments, and the replacements that rounds go through."""

    device: Device
    count: int
    arguments: dict[str, Any]
    rotations: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def upload(cls, device: Device, count: int, arguments: Mapping[str, Any], rotations: Sequence[Any] = ()) -> Placed:
        """Copy arguments and rotations to the device."""

        def place(values: Mapping[str, Any]) -> dict[str, Any]:
            return {name: device.upload(v) if isinstance(v, np.ndarray) else v for name, v in values.items()}

        return cls(device, count, place(arguments), [place(rotation) for rotation in rotations])

    def values(self, number: int) -> dict[str, Any]:
        """The arguments of a round."""
        if not self.rotations:
            return self.arguments
        turn = number % (len(self.rotations) + 1)
        return self.arguments if turn == 0 else self.arguments | self.rotations[turn - 1]

    def run(self, bound: BoundKernel, number: int) -> float:
        """Launch once and return the seconds on the device's clock."""
        return bound.launch(self.count, self.values(number)).seconds()

    def launcher(self, bound: BoundKernel) -> Callable[[int], Event]:
        """Launches a kernel with the arguments of a round, which are put together here and not at each launch."""
        inputs = [self.values(number) for number in range(len(self.rotations) + 1)]
        return lambda number: bound.launch(self.count, inputs[number % len(inputs)])

    def restore(self, arguments: Mapping[str, Any]) -> None:
        """Write the arrays anew: kernels that update a state leave it otherwise than they found it."""
        for name, value in arguments.items():
            if isinstance(value, np.ndarray):
                self.device.write(self.arguments[name], value)

    def release(self) -> None:
        """Give the device memory back."""
        for values in (self.arguments, *self.rotations):
            for value in values.values():
                if hasattr(value, "release"):
                    value.release()


def parser(description: str | None, *, repetitions: int, database: bool = True) -> argparse.ArgumentParser:
    """Options of all benchmarks: devices, repetitions, tuning database, and the report's folder."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument(
        "--device",
        action="append",
        metavar="NAME",
        help="a device as 'mmsbgen devices' names it, or pocl, intel; repeat for several (default: all OpenCL CPUs)",
    )
    made.add_argument("--repetitions", type=int, default=repetitions, help="repetitions (%(default)s)")
    if database:
        made.add_argument("--database", metavar="URL", help="tuning database (default: the user's)")
    made.add_argument("--output", type=Path, default=REPORTS, help="folder of the report (docs/reports)")
    return made


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """Options -m, -n and -N: the mini-batch and the state that update_phi is measured on."""
    parser.add_argument("-m", type=int, default=4096, help="vertices of the mini-batch (4096)")
    parser.add_argument("-n", type=int, default=32, help="partners of a vertex (32)")
    parser.add_argument("-N", type=int, default=317080, help="vertices (317080, those of com-DBLP)")


def add_roofs(parser: argparse.ArgumentParser) -> None:
    """Option --roof-mib: how much memory the rates of a copy and of a gather are measured in."""
    help_ = "buffer to measure roofs in (%(default)s)"
    parser.add_argument("--roof-mib", type=int, default=BUFFER_BYTES >> 20, metavar="MIB", help=help_)


def opened(report: Report, names: Sequence[str] | None) -> Iterator[Device]:
    """Each device asked for, open, with a section of its own in the report."""
    for info in chosen_devices(names):
        report.devices.append(info)
        report.text(f"## {info.platform}: {info.name}")
        with open_device(info.spec) as device:
            yield device


def chosen_devices(names: Sequence[str] | None) -> list[DeviceInfo]:
    """The devices asked for, else every CPU that OpenCL shows."""
    devices, hints = discover()
    if names:
        return [select_device(name, devices, hints) for name in names]
    found = [info for info in devices if info.backend == "opencl" and info.kind == "cpu"]
    if not found:
        raise SystemExit("no OpenCL CPU device here; name one with --device\n" + "\n".join(hints))
    return found


def in_processes(run: Callable[[Any], Any], jobs: Iterable[Any], processes: int) -> Iterator[Any]:
    """The results of ``run`` for ``jobs``, in their order, so many at a time in processes of their own."""
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(run, jobs)


def progress(text: str) -> None:
    """A line for whoever waits."""
    print(text, file=sys.stderr, flush=True)


def config_text(config: Config) -> str:
    """A configuration in a table."""
    return f"`{describe(config)}`"
