"""What the benchmarks share: facts about the machine, timing in turns, and reports in markdown and JSON."""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mmsbgen import __version__
from mmsbgen.backends import Device, DeviceInfo, discover
from mmsbgen.backends.base import Event
from mmsbgen.backends.discovery import select_device
from mmsbgen.db.selection.index import Index
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.families.mmsb import MMSB
from mmsbgen.graph import Split
from mmsbgen.kernels.build import BoundKernel
from mmsbgen.kernels.family import Array, KernelSpec
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.record_key import device_record, key_of
from mmsbgen.kernels.runtime import Runtime
from mmsbgen.kernels.space import Config, describe
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.options.options import Options
from mmsbgen.tuner.measure.roofs import BUFFER_BYTES
from mmsbgen.tuner.measure.timing import time_turns

ROOT = Path(__file__).resolve().parents[2]
REPORTS = ROOT / "docs" / "reports"


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

    def run(self, bound: BoundKernel, number: int, count: int | None = None) -> float:
        """Launch once and return the seconds on the device's clock."""
        values, units = self.values(number), self.count if count is None else count
        if count is not None and "n_vertices" in values:
            values = values | {"n_vertices": np.uint32(count)}
        return bound.launch(units, values).seconds()

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


def host_values(arguments: Mapping[str, Any], rotations: Sequence[Mapping[str, Array]], number: int) -> dict[str, Any]:
    """The host's counterpart of :meth:`Placed.values`."""
    turn = number % (len(rotations) + 1)
    return dict(arguments) if turn == 0 else {**arguments, **rotations[turn - 1]}


def add_device_option(parser: argparse.ArgumentParser) -> None:
    """``--device``, which may be given several times."""
    parser.add_argument(
        "--device",
        action="append",
        metavar="NAME",
        help="a device as 'mmsbgen devices' names it, or pocl, intel; repeat for several (default: all OpenCL CPUs)",
    )


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """Options -m, -n and -N: the mini-batch and the state that update_phi is measured on."""
    parser.add_argument("-m", type=int, default=4096, help="vertices of the mini-batch (4096)")
    parser.add_argument("-n", type=int, default=32, help="partners of a vertex (32)")
    parser.add_argument("-N", type=int, default=317080, help="vertices (317080, those of com-DBLP)")


def add_roofs(parser: argparse.ArgumentParser) -> None:
    """Option --roof-mib: how much memory the rates of a copy and of a gather are measured in."""
    parser.add_argument(
        "--roof-mib",
        type=int,
        default=BUFFER_BYTES >> 20,
        metavar="MIB",
        help="buffer to measure roofs in (%(default)s)",
    )


def chosen_devices(names: Sequence[str] | None) -> list[DeviceInfo]:
    """The devices asked for, else every CPU that OpenCL shows."""
    devices, hints = discover()
    if names:
        return [select_device(name, devices, hints) for name in names]
    found = [info for info in devices if info.backend == "opencl" and info.kind == "cpu"]
    if not found:
        raise SystemExit("no OpenCL CPU device here; name one with --device\n" + "\n".join(hints))
    return found


@dataclass(frozen=True)
class Known:
    """What a tuning database says of a kernel: the configuration to use, why, and the slowest one that ran."""

    tuned: Config
    tier: str
    reason: str
    worst: Config | None


def known_configs(info: DeviceInfo, spec: KernelSpec, problem: Problem, traits: Any, database: str | None) -> Known:
    """Ask the database (the user's when ``database`` is None) as a run would."""

    def valid(config: Mapping[str, Any]) -> bool:
        return spec.space.refusal(config, problem, traits) is None

    with open_store(database, read_only=True) as store:
        selection = Index(store).select(
            key_of(info, spec, problem),
            valid=valid,
            default=dict(spec.default(problem, traits)),
            irrelevant=frozenset({"step", "noise"}),
        )
        sizes: dict[str, Any] = {
            name: problem[name] for name in ("K", "N", "m", "n", "dtype") if name in spec.parameters
        }
        trials = [
            trial
            for trial in store.trials(kernel=spec.name, status="ok", problem=sizes)
            if trial.key.device.identity == device_record(info).identity
            and trial.key.problem.params.get("storage") == problem.get("storage")
            and valid(trial.config)
        ]
    slowest = max(trials, key=lambda trial: trial.median_s or 0.0, default=None)
    return Known(selection.config, selection.tier, selection.reason, slowest.config if slowest else None)


class Report:
    """A report under construction: markdown for readers, and the same numbers as JSON.

    ``behind`` says what the numbers behind ± are.
    """

    def __init__(self, title: str, intro: str, behind: str = "distances between quartiles") -> None:
        self.behind = behind
        self.lines = [f"# {title}", "", intro, ""]
        self.data: dict[str, Any] = {"title": title, "environment": environment()}
        self.devices: list[DeviceInfo] = []

    def text(self, *lines: str) -> None:
        """A paragraph or a heading."""
        self.lines += [*lines, ""]

    def table(self, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """A table; the first column is text, the others numbers."""
        self.lines += markdown_table(head, rows)
        self.lines.append("")

    def write(self, name: str, folder: Path = REPORTS) -> None:
        """Write ``name``.md and ``name``.json into ``folder`` and print the markdown."""
        facts = self.data["environment"]
        facts["load_end"] = [round(x, 2) for x in os.getloadavg()]
        facts["devices"] = [info.as_dict() | {"extensions": []} for info in self.devices]
        about = [
            "## How it was measured",
            "",
            f"- command: `{facts['command']}`",
            f"- date: {facts['date']}, revision {facts['revision']}, mmsbgen {__version__}",
            f"- machine: {facts['processor']}, {facts['cores']} cores, {facts['memory_gib']} GiB",
            f"- load average at the begin and the end: {facts['load_begin'][0]}, {facts['load_end'][0]}",
            *(
                f"- device: {i.name} ({i.platform}), driver {i.driver}, compiler {i.compiler}, {i.compute_units} units"
                for i in self.devices
            ),
            f"- Python {facts['python']}, NumPy {facts['numpy']}",
            f"- numbers behind ± are {self.behind}",
        ]
        folder.mkdir(parents=True, exist_ok=True)
        text = "\n".join([*self.lines, *about, ""])
        (folder / f"{name}.md").write_text(text)
        data = json.dumps(finite(self.data), indent=1, default=str, allow_nan=False)
        (folder / f"{name}.json").write_text(data + "\n")
        print(text)


def finite(value: Any) -> Any:
    """Data as JSON has it, which knows no infinity and no NaN: None in their place, at any depth."""
    if isinstance(value, dict):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Lines of a markdown table, numbers to the right."""
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join(["---", *["---:"] * (len(head) - 1)]) + "|"]
    return lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]


def environment() -> dict[str, Any]:
    """The machine, the versions and the command of this process."""
    git = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    script = Path(sys.argv[0]).resolve()
    shown = script.relative_to(ROOT) if script.is_relative_to(ROOT) else script
    return {
        "command": shlex.join(["python", str(shown), *(Path(a).name if "/" in a else a for a in sys.argv[1:])]),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "revision": git.stdout.strip() or "unknown",
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_begin": [round(x, 2) for x in os.getloadavg()],
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def processor() -> str:
    """The processor's name, as the kernel tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def progress(text: str) -> None:
    """A line for whoever waits."""
    print(text, file=sys.stderr, flush=True)


def config_text(config: Config) -> str:
    """A configuration in a table."""
    return f"`{describe(config)}`"
