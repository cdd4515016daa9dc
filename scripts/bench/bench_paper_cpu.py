"""The paper's CPU figures on this machine: speed-up over the C baseline by vector width, and time by kernel.

Every stage runs on the same inputs in turns: the C baseline (one thread), then the device's kernel at vector widths
1, 2, 4, 8, 16.  update_phi has the published step with noise and does not normalise, as in the paper's programs.
Writes docs/reports/paper_cpu.md, .json and .svg.  The paper: El-Helw, Hofman, Bal (2020), figure 2 and table 2.
"""

from __future__ import annotations

import argparse
import gc
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _common import (
    REPORTS,
    Placed,
    Report,
    Sample,
    add_device_option,
    add_sizes,
    chosen_devices,
    config_text,
    host_values,
    interleave,
    progress,
)
from baseline import Baseline

from mmsbgen.backends import DeviceInfo, open_device
from mmsbgen.base.errors import CompileError, LaunchError
from mmsbgen.families.mmsb import MMSB
from mmsbgen.kernels.build import build, traits_of
from mmsbgen.kernels.family import KernelSpec, Workload
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config, Traits

WIDTHS = (1, 2, 4, 8, 16)
FASTER_ARITHMETIC = ("-O3", "-march=native", "-ffast-math")


@dataclass(frozen=True)
class Stage:
    """A kernel and what the paper's table 2 calls it, with its seconds there; ``sampled``: once an evaluation."""

    kernel: str
    paper: str
    paper_s: float
    sampled: bool = False


STAGES = (
    Stage("perplexity_pairs", "PPX CALC", 0.0364737, sampled=True),
    Stage("perplexity_sum", "PPX ACCUM", 0.083, sampled=True),
    Stage("sample_partners", "SAMPLING", 0.535599),
    Stage("update_phi", "UPDATE PHI", 25.6598),
    Stage("update_pi", "UPDATE PI", 0.645875),
    Stage("theta_partial", "GRADS PAR", 1.92919),
    # What the paper has as GRADS SUM (9.31122), UPDATE THETA (0.0548013) and NORM THETA (0.001) is one kernel here.
    Stage("theta_end", "GRADS SUM to NORM THETA", 9.36702),
)


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
    values = host_values(workload.arguments, workload.rotations, number)
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


def seconds_of(times: dict[str, Sample], width: int) -> float:
    """The median at a width; kernels without vectors have one time for all."""
    return times[str(width)].median if str(width) in times else times["1"].median


def per_thousand(stage: Stage, interval: int) -> float:
    """Calls in a thousand iterations."""
    return 1000 / interval if stage.sampled else 1000.0


def figure(path: Path, speedups: dict[str, dict[str, list[float]]], title: str) -> None:
    """Speed-up over the baseline by vector width, as the paper's figure 2."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams["svg.hashsalt"] = "mmsbgen"
    colours = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")  # told apart by colour-blind readers (Okabe and Ito)
    markers = ("o", "s", "^", "D")
    plot, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    for number, (device, lines) in enumerate(speedups.items()):
        for style, (what, values) in zip(("-", "--"), lines.items(), strict=True):
            axes.plot(
                range(len(WIDTHS)),
                values,
                style,
                marker=markers[number % 4],
                color=colours[number % 4],
                label=f"{device}, {what}",
            )
    axes.set_xticks(range(len(WIDTHS)), [str(width) for width in WIDTHS])
    axes.set_xlabel("vector width (elements)")
    axes.set_ylabel("speed-up over one thread of plain C (times)")
    axes.set_ylim(bottom=0)
    axes.set_title(title, fontsize=10)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    plot.savefig(path, metadata={"Date": None})
    plt.close(plot)


Results = dict[str, dict[str, dict[str, Sample]]]


def whole_iteration(results: Results, device: str, interval: int, width: int | None) -> float:
    """Seconds of an iteration with its share of the evaluations; ``width`` None is the baseline."""
    total = 0.0
    for stage in STAGES:
        times = results[stage.kernel][device]
        seconds = times["baseline"].median if width is None else seconds_of(times, width)
        total += seconds * per_thousand(stage, interval) / 1000
    return total


def report_widths(report: Report, results: Results, interval: int, name: str, folder: Path) -> None:
    """Figure 2: the table and the picture."""
    report.text("## Speed-up over the C baseline by vector width (the paper's figure 2)")
    speedups: dict[str, dict[str, list[float]]] = {}
    rows = []
    for info in report.devices:
        phi = results["update_phi"][info.spec]
        base = whole_iteration(results, info.spec, interval, None)
        lines = {
            "update_phi": [phi["baseline"].median / seconds_of(phi, width) for width in WIDTHS],
            "whole iteration": [base / whole_iteration(results, info.spec, interval, width) for width in WIDTHS],
        }
        speedups[info.platform] = lines
        rows += [[f"{info.platform}: {what}", *(f"{v:.2f}" for v in values)] for what, values in lines.items()]
    report.table(["", *(f"width {width}" for width in WIDTHS)], rows)
    report.text(
        "The paper has 9.8 without vectors and 20.9 at width 8 for two 8-core processors; its figure 2 falls a little "
        "at width 16."
    )
    figure(folder / f"{name}.svg", speedups, f"{report.devices[0].compute_units} cores")
    report.text(f"![Speed-up over the C baseline by vector width]({name}.svg)")
    report.data["speedups"] = speedups


def report_kernels(report: Report, results: Results, interval: int, rounds: int) -> None:
    """Table 2: time by kernel, without vectors and with the best width."""
    for info in report.devices:
        rows: list[list[object]] = []
        totals = [0.0, 0.0, 0.0]
        for stage in STAGES:
            times = results[stage.kernel][info.spec]
            calls = per_thousand(stage, interval)
            best = min(seconds_of(times, width) for width in WIDTHS)
            spent = [times["baseline"].median * calls, seconds_of(times, 1) * calls, best * calls]
            totals = [total + part for total, part in zip(totals, spent, strict=True)]
            rows.append(
                [
                    f"{stage.kernel} ({stage.paper})",
                    *(f"{s:.4g}" for s in spent),
                    f"{spent[0] / spent[2]:.2f}",
                    stage.paper_s,
                ]
            )
        rows.append(["total", *(f"{s:.4g}" for s in totals), f"{totals[0] / totals[2]:.2f}", 38.5858])
        report.text(f"## Time by kernel (the paper's table 2): {info.platform}")
        report.table(
            ["kernel", "C baseline, s", "width 1, s", "best width, s", "baseline / best", "the paper's width 1, s"],
            rows,
        )
    report.text(
        f"Seconds for 1000 iterations with an evaluation every {interval}: the median of {rounds} calls times the "
        "number of calls, not 1000 iterations run. Choosing the mini-batch is not in it. The baseline adds pairs up in "
        "one group, so that theta_end has one to add. The paper's THETA SUM (0.048 s) is a part of theta_end here; "
        "its column is from two 8-core processors, and its total has more parts than its rows."
    )


def report_baseline(report: Report, results: Results, dtype: str) -> None:
    """What the compiler's options would add to the baseline."""
    first = report.devices[0].spec
    phi = results["update_phi"][first]
    report.text("## The baseline")
    report.text(
        f"{Baseline(dtype).command}; one thread, strict arithmetic, the platform's basic instruction set "  # type: ignore[arg-type]
        "(these are the times that speed-ups refer to). For comparison only:"
    )
    rows = [
        ["update_phi, ms", phi["baseline"].text(), phi["faster"].text(), phi["fused"].text()],
        [
            "theta_partial, ms",
            results["theta_partial"][first]["baseline"].text(),
            results["theta_partial"][first]["faster"].text(),
            "-",
        ],
    ]
    report.table(["", "-O3", " ".join(FASTER_ARITHMETIC), "-O3, update_phi in the kernels' form"], rows)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_device_option(parser)
    parser.add_argument("-k", type=int, default=1024, help="communities (1024)")
    add_sizes(parser)
    parser.add_argument("--pairs", type=int, default=10498, help="held-out pairs (10498: 1 %% of com-DBLP's links)")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--evaluate-every", type=int, default=100, help="iterations between evaluations (100)")
    parser.add_argument("--rounds", type=int, default=11, help="repetitions (11)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=REPORTS, help="folder of the report (docs/reports)")
    args = parser.parse_args()

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
            stage, problem, report.devices, args.rounds, args.seed
        )
        gc.collect()
    report_widths(report, results, args.evaluate_every, "paper_cpu", args.output)
    report_kernels(report, results, args.evaluate_every, args.rounds)
    report_baseline(report, results, args.dtype)
    report.text("## Configurations of update_phi")
    report.table(
        ["device and width", "configuration"],
        [[name, config_text(config)] for name, config in configs["update_phi"].items()],
    )
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
