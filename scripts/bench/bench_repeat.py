#!/usr/bin/env python
"""Tune a device several times from nothing, and time what the tunes chose together, in turns.

    scripts/bench/bench_repeat.py --device pocl --device intel
    scripts/bench/bench_repeat.py --device cuda:0 -p K=1024 -p m=4096 -p N=317080

Each tune has a database and a seed of its own.  Its choices are timed A B C A B C ... on the same inputs: what they
differ by is the median over the rounds of their ratio, with an interval.  Writes docs/reports/repeat.{md,json}.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from itertools import combinations
from pathlib import Path
from typing import Any

from _common import Report, add_device_option, chosen_devices, config_text, progress

from mmsbgen.backends import DeviceInfo
from mmsbgen.base.errors import MmsbgenError
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.families import family
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config
from mmsbgen.tuner.measure.measurer import Measurer
from mmsbgen.tuner.measure.noise import median_interval
from mmsbgen.tuner.run.tune import DEFAULT_TRIALS, tune

KERNEL = "update_phi"


def tuned(info: DeviceInfo, problem: Problem, seed: int, trials: int) -> dict[str, Any]:
    """One tune: what it chose and how sure it was."""
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "tuning.sqlite3") as store:
        report = tune(
            info.spec, "mmsb", [KERNEL], problem, store=store, budget_trials=trials, seed=seed, roof_bytes=256 << 20
        )
    (kernel,) = report.kernels
    if kernel.best is None:
        raise SystemExit(f"no configuration of {KERNEL} works on {info.name}")
    return {
        "seed": seed,
        "config": dict(kernel.best.config),
        "median_s": kernel.best.median_s,
        "margin": kernel.margin,
        "noise": kernel.noise,
        "decided": kernel.verdict is not None and kernel.verdict.decided,
        "trials": len(kernel.trials),
        "given_up": kernel.as_dict()["given_up"],
        "seconds": report.seconds,
    }


def apart(a: list[float], b: list[float]) -> tuple[float, float, float]:
    """By which part b is slower than a: median over the rounds, and its interval."""
    ratios = [y / x for x, y in zip(a, b, strict=True)]
    low, high = median_interval(ratios)
    return statistics.median(ratios) - 1, low - 1, high - 1


def main() -> None:
    """Tune, time together, write the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    add_device_option(parser)
    parser.add_argument("-p", dest="sizes", action="append", metavar="NAME=VALUE", help="sizes of the problem")
    parser.add_argument("--tunes", type=int, default=3, help="tunes of each device (default: 3)")
    parser.add_argument(
        "--trials", type=int, default=DEFAULT_TRIALS, help="configurations a tune (default: 100, as a tune's)"
    )
    parser.add_argument("--rounds", type=int, default=101, help="of the last comparison (default: 101)")
    args = parser.parse_args()
    sizes = args.sizes or ["K=128", "m=512", "N=4096"]
    problem = family().problem(**dict(size.split("=", 1) for size in sizes))
    report = Report(
        "Do several tunes choose the same?",
        f"{args.tunes} tunes of {KERNEL} ({' '.join(sizes)}) with at most {args.trials} configurations each, every one "
        f"with an empty database and a seed of its own; then their choices together, in turns, {args.rounds} rounds. "
        "*Apart* is the median over the rounds of a pair's ratio, with an interval of 90 %.",
    )
    report.devices = chosen_devices(args.device)
    found = []
    for info in report.devices:
        runs, loads = [], []
        for seed in range(args.tunes):
            begin = time.monotonic()
            runs.append(tuned(info, problem, seed, args.trials))
            loads.append(os.getloadavg()[0])
            progress(f"{info.platform}: tune {seed} took {time.monotonic() - begin:.0f} s")
        found.append({"platform": info.platform, "runs": runs, "load": loads} | compared(info, problem, runs, args))
        tell(report, found[-1])
    report.data["devices"] = found
    report.write("repeat")


def compared(info: DeviceInfo, problem: Problem, runs: list[dict[str, Any]], args: Any) -> dict[str, Any]:
    """The choices timed together; the same configuration chosen twice is timed once."""
    configs: list[Config] = []
    for run in runs:
        if run["config"] not in configs:
            configs.append(run["config"])
    if len(configs) == 1:
        return {"distinct": 1, "pairs": [], "worst_apart": 0.0}
    with Measurer(info.spec, "mmsb") as measurer:
        measurer.open()
        measurer.load(KERNEL, problem)
        times = [list(timing.times) for timing in measurer.turns(configs, args.rounds)]
    pairs = []
    for a, b in combinations(range(len(configs)), 2):
        middle, low, high = apart(times[a], times[b])
        pairs.append({"a": configs[a], "b": configs[b], "apart": middle, "low": low, "high": high})
    worst = max(max(pair["apart"], 1 / (1 + pair["apart"]) - 1) for pair in pairs)
    return {"distinct": len(configs), "pairs": pairs, "worst_apart": worst, "times_s": times}


def tell(report: Report, found: dict[str, Any]) -> None:
    """A device's part of the report."""
    report.text(f"## {found['platform']}")
    report.table(
        ["choice", "seed", "ms", "margin", "noise", "decided", "trials", "given up", "tune s", "load"],
        [
            [
                config_text(run["config"]),
                run["seed"],
                f"{run['median_s'] * 1e3:.4g}",
                "" if run["margin"] is None else f"{run['margin']:.1%}",
                "" if run["noise"] is None else f"{run['noise']:.1%}",
                "yes" if run["decided"] else "no",
                run["trials"],
                run["given_up"],
                f"{run['seconds']:.0f}",
                f"{load:.1f}",
            ]
            for run, load in zip(found["runs"], found["load"], strict=True)
        ],
    )
    if not found["pairs"]:
        report.text("All tunes chose the same configuration.")
        return
    texts = [f"{p['apart']:+.1%} ({p['low']:+.1%} to {p['high']:+.1%})" for p in found["pairs"]]
    report.text(
        f"{found['distinct']} different choices; timed together they lie within {found['worst_apart']:.1%}: "
        f"{', '.join(texts)}."
    )


if __name__ == "__main__":
    try:
        main()
    except MmsbgenError as error:
        raise SystemExit(f"bench_repeat: {error}") from None
