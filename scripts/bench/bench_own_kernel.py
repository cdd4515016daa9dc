#!/usr/bin/env python
"""The fastest configuration that a tune of a user's own kernel finds, against kernel_tuner's on the same source.

Both search for as many seconds, each time in a process of its own with empty caches of compiled kernels.  They
alternate, and who begins does too.  What they found is timed again in turns, by one harness.  Needs the extra `tune`.
Writes docs/reports/own_kernel.md and .json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from _harness import Placed, config_text, in_turns, opened, parser, progress
from _report import ROOT, Report

from mmsbgen.backends.discovery import discover, select_device
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.families import resolve_family
from mmsbgen.kernels.build import build, traits_of
from mmsbgen.kernels.problem import Problem
from mmsbgen.tuner.run.tune import tune

FILES = ROOT / "tests" / "data" / "own"
SIZES = {"matmul": {"n": 512}, "convolution": {"width": 1024, "height": 1024}}
TOOLS = ("mmsbgen", "kernel_tuner")
#: The constraints of the declarations, as kernel_tuner takes them.
RESTRICTIONS = {
    "matmul": [
        "32 <= block_size_x * block_size_y <= 1024",
        "n % (block_size_y * tile_size_y) == 0 and n % (block_size_x * tile_size_x) == 0 and n % TILE_K == 0",
        "4 * TILE_K * (block_size_x * tile_size_x + block_size_y * tile_size_y) <= 49152",
    ],
    "convolution": [
        "32 <= block_size_x * block_size_y <= 1024",
        "use_shared == 0 or 4 * (block_size_x * tile_size_x + filter_width - 1) "
        "* (block_size_y * tile_size_y + filter_height - 1) <= 49152",
    ],
}


def problem_of(name: str) -> Problem:
    """The problem at which a kernel is tuned."""
    return resolve_family(str(FILES / f"{name}.py")).problem(**SIZES[name])


def by_mmsbgen(name: str, device: str, seconds: float, seed: int) -> tuple[dict[str, Any], int]:
    """The best configuration and the number of those tried."""
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "tuning.sqlite3") as store:
        options = {"budget_seconds": seconds, "seed": seed, "roof_bytes": 64 << 20}
        report = tune(device, str(FILES / f"{name}.py"), None, problem_of(name), store=store, **options)
    (kernel,) = report.kernels
    assert kernel.best is not None
    return dict(kernel.best.config), len(kernel.trials)


def by_kernel_tuner(name: str, device: str, seconds: float, seed: int, strategy: str) -> tuple[dict[str, Any], int]:
    """As :func:`by_mmsbgen`, with the same axes, constraints, inputs and answer."""
    import pyopencl
    from kernel_tuner import tune_kernel

    info = select_device(device, *discover())
    platforms = pyopencl.get_platforms()
    platform = next(i for i, each in enumerate(platforms) if each.name.strip() == info.platform)
    spec, problem, traits = resolve_family(str(FILES / f"{name}.py")).kernel(name), problem_of(name), traits_of(info)
    axes = {axis.name: list(axis.values) for axis in spec.space.axes}
    given = spec.workload(problem, seed).arguments
    (output,) = [argument.name for argument in spec.arguments if argument.role == "out"]
    if name == "matmul":
        right = given["a"].astype(np.float64) @ given["b"]
    else:
        windows = np.lib.stride_tricks.sliding_window_view(given["input"].astype(np.float64), given["filter"].shape)
        right = np.einsum("yxij,ij->yx", windows, given["filter"])

    def config_of(values: Any) -> dict[str, Any]:
        return {axis: values[axis] for axis in axes}

    def grid(values: Any) -> tuple[int, ...]:
        return spec.launch(problem, config_of(values), 1, traits).shape[0]

    random.seed(seed)
    found, _ = tune_kernel(
        name,
        (FILES / f"{name}.cl").read_text(),
        grid,
        list(given.values()),
        axes | {size: [value] for size, value in problem.items()},
        grid_div_x=[],
        grid_div_y=[],
        restrictions=RESTRICTIONS[name],
        answer=[right.astype(np.float32) if argument == output else None for argument in given],
        atol=1e-5 * float(np.abs(right).max()),
        lang="OpenCL",
        platform=platform,
        device=0,
        strategy=strategy,
        strategy_options={"time_limit": seconds, "max_fevals": 100_000},
        quiet=True,
    )
    right_ones = [result for result in found if isinstance(result["time"], float)]
    tried = {tuple(config_of(result).items()) for result in found}
    return config_of(min(right_ones, key=lambda result: result["time"])), len(tried)


def search(tool: str, name: str, device: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """What a tool finds in a process of its own, with empty caches."""
    with tempfile.TemporaryDirectory() as folder:
        caches = {"XDG_CACHE_HOME": folder, "POCL_CACHE_DIR": f"{folder}/pocl", "NEO_CACHE_DIR": f"{folder}/neo"}
        command = [sys.executable, __file__, "--one", tool, name, device, str(seed)]
        command += ["--seconds", str(args.seconds), "--strategy", args.strategy]
        done = subprocess.run(command, env=os.environ | caches, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{tool} failed on {name}:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(report: Report, device: Any, name: str, args: argparse.Namespace) -> None:
    """Search by turns, time what was found again, and add a table."""
    spec, problem, found = resolve_family(str(FILES / f"{name}.py")).kernel(name), problem_of(name), {}
    for seed in range(args.repetitions):
        for tool in TOOLS if seed % 2 == 0 else TOOLS[::-1]:
            found[tool, seed] = search(tool, name, device.info.spec, seed, args)
            progress(f"{name} {seed} {tool}: {found[tool, seed]}")
    workload = spec.workload(problem, 0)
    placed = Placed.upload(device, workload.count, workload.arguments)
    launches = {
        f"{tool} {seed}": placed.launcher(build(device, spec, problem, one["config"]))
        for (tool, seed), one in found.items()
    }
    times = in_turns(device, launches, args.rounds)
    placed.release()
    rows, medians = [], {}
    for tool in TOOLS:
        mine = [times[f"{tool} {seed}"].median for seed in range(args.repetitions)]
        medians[tool] = statistics.median(mine)
        best = found[tool, int(np.argmin(mine))]["config"]
        tried = statistics.median(found[tool, seed]["tried"] for seed in range(args.repetitions))
        each = ", ".join(f"{1e3 * one:.3g}" for one in mine)
        rows.append([tool, f"{1e3 * medians[tool]:.3g}", each, f"{tried:g}", config_text(best)])
    report.text(f"### {name}, {', '.join(f'{size} = {value}' for size, value in SIZES[name].items())}")
    report.table(["tool", "median, ms", "each search, ms", "tried", "fastest configuration"], rows)
    listed = [{"tool": tool, "seed": seed, **one} for (tool, seed), one in found.items()]
    report.data.setdefault("kernels", []).append(
        {"kernel": name, "device": device.info.spec, "medians_s": medians, "searches": listed}
        | {"each_s": {label: sample.median for label, sample in times.items()}}
    )


def main() -> None:
    """Run the benchmark, or with --one a single search."""
    options = parser(__doc__, repetitions=5, database=False)
    options.add_argument("--kernel", action="append", choices=list(SIZES), help="a kernel (all)")
    options.add_argument("--seconds", type=float, default=30.0, help="of each search (%(default)s)")
    options.add_argument("--rounds", type=int, default=31, help="in which the winners are timed again (%(default)s)")
    options.add_argument("--strategy", default="genetic_algorithm", help="of kernel_tuner (%(default)s)")
    options.add_argument("--one", nargs=4, metavar=("TOOL", "KERNEL", "DEVICE", "SEED"), help=argparse.SUPPRESS)
    args = options.parse_args()
    if args.one:
        tool, name, device, seed = args.one
        if tool == "mmsbgen":
            config, tried = by_mmsbgen(name, device, args.seconds, int(seed))
        else:
            config, tried = by_kernel_tuner(name, device, args.seconds, int(seed), args.strategy)
        print(json.dumps({"config": config, "tried": tried}))
        return
    intro = f"mmsbgen and kernel_tuner ({args.strategy}) search for {args.seconds:g} s each time."
    intro += " All winners are then timed again, in turns."
    report = Report("Own kernels: mmsbgen and kernel_tuner", intro, behind="")
    for device in opened(report, args.device):
        for name in args.kernel or SIZES:
            compare(report, device, name, args)
    report.write("own_kernel", args.output)


if __name__ == "__main__":
    main()
