#!/usr/bin/env python
"""The paper's CPU figures on this machine: speed-up over the C baseline by vector width, and time by kernel.

Every stage runs on the same inputs in turns: the C baseline (one thread), then the device's kernel at vector widths
1, 2, 4, 8, 16.  update_phi has the published step with noise and does not normalise, as in the paper's programs.
Writes docs/reports/paper_cpu.md, .json and .svg.  The paper: El-Helw, Hofman, Bal (2020), figure 2 and table 2.
"""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
from _harness import Placed, Sample, add_sizes, chosen_devices, interleave, parser, progress
from _paper_cpu_page import FASTER_ARITHMETIC, STAGES, WIDTHS, Results, Stage, baseline, kernels, widths
from _report import Report
from baseline import Baseline

from mmsbgen.backends import DeviceInfo, open_device
from mmsbgen.base.errors import CompileError, LaunchError
from mmsbgen.families.mmsb import MMSB
from mmsbgen.kernels.build import build, traits_of
from mmsbgen.kernels.family import KernelSpec, Workload
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config, Traits


def candidates(spec: KernelSpec, problem: Problem, traits: Traits, width: int) -> list[Config]:
    """Configurations of one vector width among which the fastest is taken: one work-item a row, as on any CPU."""
    names = {axis.name for axis in spec.space.axes}
    default = dict(spec.default(problem, traits))
    if "vector_width" in names:
        default["vector_width"] = width
    if spec.name != "update_phi":
        options = [default]
    else:
        options = [
            default | {"placement": "THREAD", "block_size": block, "rows_in_flight": rows, "normalise": False}
            for block in (1, 4)
            for rows in (1, 2, 4)
        ]
    return [config for config in options if spec.space.refusal(config, problem, traits) is None]


def fastest(device: Any, spec: KernelSpec, problem: Problem, placed: Placed, width: int) -> tuple[Any, Config] | None:
    """The built kernel of the fastest candidate at one width, by three calls each."""
    best: tuple[float, Any, Config] | None = None
    for config in candidates(spec, problem, traits_of(device.info), width):
        try:
            bound = build(device, spec, problem, config)
            placed.run(bound, 0)
            taken = min(placed.run(bound, number) for number in (1, 2, 3))
        except (CompileError, LaunchError) as error:
            progress(f"  left out: {error}")
            continue
        if best is None or taken < best[0]:
            best = taken, bound, config
    return None if best is None else best[1:]


def baseline_values(workload: Workload, number: int) -> dict[str, Any]:
    """The baseline's inputs of a round: the kernel's, but all pairs in one group, as one thread needs no more."""
    turn = number % (len(workload.rotations) + 1)
    values = {**workload.arguments, **(workload.rotations[turn - 1] if turn else {})}
    return values | {"n_groups": np.uint32(1)} if "n_groups" in values else values


def measure_stage(
    stage: Stage, problem: Problem, infos: list[DeviceInfo], rounds: int, seed: int
) -> tuple[dict[str, dict[str, Sample]], dict[str, Any]]:
    """Times of the baseline and of every width, by device; and the configurations."""
    spec = MMSB.kernel(stage.kernel)
    workload = spec.workload(problem, seed)
    k, dtype = problem.integer("K"), str(problem["dtype"])
    plain, faster = Baseline(dtype), Baseline(dtype, FASTER_ARITHMETIC)  # type: ignore[arg-type]

    def on_host(c: Baseline, form: Any = "paper") -> Any:
        return lambda number: c.run(stage.kernel, baseline_values(workload, number), k=k, form=form)

    found, configs = {}, {}
    for position, info in enumerate(infos):
        with open_device(info.spec) as device:
            placed = Placed.upload(device, workload.count, workload.arguments, workload.rotations)
            runs: dict[str, Any] = {"baseline": on_host(plain)}
            if position == 0:
                runs["faster"] = on_host(faster)
                if stage.kernel == "update_phi":
                    runs["fused"] = on_host(plain, "fused")
            for width in WIDTHS if any(axis.name == "vector_width" for axis in spec.space.axes) else (1,):
                picked = fastest(device, spec, problem, placed, width)
                if picked is not None:
                    configs[f"{info.spec} {width}"] = picked[1]
                    runs[str(width)] = lambda number, bound=picked[0], placed=placed: placed.run(bound, number)
            found[info.spec] = interleave(runs, rounds)
            placed.release()
        gc.collect()
        progress(f"{stage.kernel} on {info.spec}: " + ", ".join(f"{n} {s.text()}" for n, s in found[info.spec].items()))
    return found, configs


def main() -> None:
    """Run the benchmark."""
    options = parser(__doc__, repetitions=11, database=False)
    options.add_argument("-k", type=int, default=1024, help="communities (1024)")
    add_sizes(options)
    options.add_argument("--pairs", type=int, default=10498, help="held-out pairs (10498: 1 %% of com-DBLP's links)")
    options.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    options.add_argument("--evaluate-every", type=int, default=100, help="iterations between evaluations (100)")
    options.add_argument("--seed", type=int, default=0)
    args = options.parse_args()

    sizes = {"K": args.k, "N": args.N, "m": args.m, "n": args.n, "pairs": args.pairs, "dtype": args.dtype}
    problem = MMSB.problem(**sizes, step="published", theta_step="published")
    report = Report(
        "The paper's CPU figures",
        f"K = {args.k}, m = {args.m} vertices, n = {args.n} partners, N = {args.N} vertices, "
        f"{args.pairs} held-out pairs, {args.dtype}, published step with noise.",
    )
    report.devices = chosen_devices(args.device)
    results: Results = {}
    configs: dict[str, Any] = {}
    for stage in STAGES:
        results[stage.kernel], configs[stage.kernel] = measure_stage(
            stage, problem, report.devices, args.repetitions, args.seed
        )
        gc.collect()
    widths(report, results, args.evaluate_every, "paper_cpu", args.output)
    kernels(report, results, args.evaluate_every, args.repetitions)
    baseline(report, results, args.dtype)
    report.text("Configurations: [paper_cpu.json](paper_cpu.json).")
    report.data |= {
        "problem": dict(problem.items_),
        "baseline": Baseline(args.dtype).command,
        "configs": configs,
        "times": {
            kernel: {device: {n: s.as_dict() for n, s in times.items()} for device, times in by_device.items()}
            for kernel, by_device in results.items()
        },
    }
    report.write("paper_cpu", args.output)


if __name__ == "__main__":
    main()
