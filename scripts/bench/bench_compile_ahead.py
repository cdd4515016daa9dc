#!/usr/bin/env python
"""Compile the same configurations with one process and with several, in turns, each time with cold caches.

    scripts/bench/bench_compile_ahead.py --device pocl --device intel

What is timed is what a tuning run waits for before it measures on a processor.  Processes are up before the clock runs.
Caches are in temporary folders.  The time of all processes in the processor tells how much work it was; where other
programs share the machine, the wall time tells of them too.  Writes docs/reports/compile-ahead.{md,json}.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
from _common import Report, Sample, add_device_option, chosen_devices, progress

from mmsbgen.backends import DeviceInfo
from mmsbgen.base.errors import MmsbgenError
from mmsbgen.families import family
from mmsbgen.kernels.build import traits_of
from mmsbgen.kernels.space import Config
from mmsbgen.tuner.measure.compile_ahead import CompileAhead
from mmsbgen.tuner.measure.measurer import Measurer
from mmsbgen.tuner.search.candidates import candidates

KERNEL = "update_phi"
PROBLEM = family().problem(K=128, m=512, n=32, N=4096)


@contextmanager
def cold_caches() -> Iterator[None]:
    """Caches of the package and of PoCL in a folder that was not there before."""
    names = ("XDG_CACHE_HOME", "POCL_CACHE_DIR")
    before = {name: os.environ.get(name) for name in names}
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"XDG_CACHE_HOME": folder, "POCL_CACHE_DIR": str(Path(folder) / "pocl")}
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


def once(info: DeviceInfo, configs: list[Config], jobs: int) -> dict[str, float]:
    """Seconds on the wall and in the processor for all configurations with ``jobs`` processes, caches cold."""
    with cold_caches(), ExitStack() as stack:
        if jobs == 1:
            measurer = stack.enter_context(Measurer(info.spec, "mmsb"))
            measurer.open()
        else:
            ahead = stack.enter_context(CompileAhead(info, "mmsb", PROBLEM, jobs))
            ahead.begin(KERNEL)
            ahead.start()
        children = psutil.Process().children()
        used, busy, begin = [work_of(child) for child in children], work_of_all(), time.perf_counter()
        if jobs == 1:
            for config in configs:
                measurer.prepare(KERNEL, PROBLEM, config)
        else:
            ahead.ask(configs)
            ahead.wait()
            if len(ahead.seconds) != len(configs):
                raise SystemExit(f"{len(configs) - len(ahead.seconds)} configurations do not compile")
        wall = time.perf_counter() - begin
        work = [work_of(child) - before for child, before in zip(children, used, strict=True)]
        others = (work_of_all() - busy - sum(work)) / wall / (psutil.cpu_count() or 1)
        return {"wall_s": wall, "cpu_s": sum(work), "cpu_of_one_s": max(work), "others": max(0.0, others)}


def work_of(process: psutil.Process) -> float:
    """Seconds that a process has worked, with those that it started."""
    return float(sum(process.cpu_times()[:4]))


def work_of_all() -> float:
    """Seconds that all processors have worked since the machine started."""
    times = psutil.cpu_times()
    return float(times.user + times.system + getattr(times, "nice", 0.0))


def main() -> None:
    """Measure, and write the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    add_device_option(parser)
    parser.add_argument("--configs", type=int, default=12, help="configurations (default: 12)")
    parser.add_argument("--rounds", type=int, default=3, help="of serial and parallel (default: 3)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes (default: cores)")
    args = parser.parse_args()
    report = Report(
        "Compiling ahead",
        f"{args.configs} configurations of {KERNEL} (K = 128), compiled by one process and by {args.jobs}, in turns, "
        "caches cold each time. *Cores* is the processor time of the compilers over the wall time: how many cores they "
        "were given; *of the busiest* the processor time of the one that had most: the wall time where nothing else "
        "runs. *Others* is the part of the machine that other programs took meanwhile.",
    )
    rows, data = [], []
    report.devices = chosen_devices(args.device)
    for info in report.devices:
        configs = candidates(family().kernel(KERNEL), PROBLEM, traits_of(info)).configs
        picked: list[Config] = list(random.Random(0).sample(configs, args.configs))
        runs: dict[int, list[dict[str, float]]] = {1: [], args.jobs: []}
        for number in range(args.rounds):
            for jobs, made in runs.items():
                made.append(once(info, picked, jobs))
                progress(f"{info.platform}: round {number + 1}, {jobs} processes, {made[-1]['wall_s']:.1f} s")
        walls = {jobs: Sample(tuple(run["wall_s"] for run in made)) for jobs, made in runs.items()}
        speedup = walls[1].median / walls[args.jobs].median
        best = min(walls[1].times) / min(walls[args.jobs].times)
        for jobs, made in runs.items():
            rows.append(row(f"{info.platform}, {jobs}", made, walls[jobs]))
        each = {jobs: Sample(tuple(run["cpu_of_one_s"] for run in made)).median for jobs, made in runs.items()}
        allowed = each[1] / each[args.jobs]
        report.text(
            f"**{info.platform}**: {speedup:.2f} times faster on the wall by medians, {best:.2f} by the fastest runs; "
            f"by the time of the busiest process in the processor, {allowed:.2f} times."
        )
        found = {"speedup": speedup, "speedup_of_fastest": best, "speedup_by_processor_time": allowed}
        data.append({"platform": info.platform, "jobs": args.jobs, **found, "runs": runs})
    heads = ["platform, processes", "wall s, median", "fastest", "processor s", "of the busiest", "cores", "others"]
    report.table(heads, rows)
    report.data["devices"] = data
    report.write("compile-ahead")


def row(name: str, made: list[dict[str, float]], walls: Sample) -> list[Any]:
    """A row of the table."""
    work = Sample(tuple(run["cpu_s"] for run in made))
    cores = Sample(tuple(run["cpu_s"] / run["wall_s"] for run in made))
    others = Sample(tuple(run["others"] for run in made))
    return [
        name,
        walls.text(1.0),
        f"{min(walls.times):.3g}",
        f"{work.median:.3g}",
        f"{Sample(tuple(run['cpu_of_one_s'] for run in made)).median:.3g}",
        f"{cores.median:.2f}",
        f"{others.median:.0%}",
    ]


if __name__ == "__main__":
    try:
        main()
    except MmsbgenError as error:
        raise SystemExit(f"bench_compile_ahead: {error}") from None
