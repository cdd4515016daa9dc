#!/usr/bin/env python
"""A whole iteration of stars, by single launches and fused, or a whole sweep of blocks; time by stage.

    scripts/bench/bench_iteration.py --device cuda:0 --graph com-dblp.txt.gz
    scripts/bench/bench_iteration.py --device cuda:0 --graph com-dblp.txt.gz --mini-batch block --products half

Wall-clock time of chains, launches queued ahead, nothing profiled; then stages on the device's clock.  Configurations
are those that a run would get.

Stars: links, non-links and their mixture.  The report says of each kernel how near its records are.
Blocks: the split step, with and without draws; on CUDA once with products in single precision and once on tensor
cores.  Each kernel is timed alone too with a wait before and after it, which adds the time of a launch.
Writes docs/reports/iteration.md and .json, or blocks.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

from _harness import Sample, add_roofs, advance, chain, opened, parser, progress, wall
from _report import Report

from mmsbgen.backends import Device
from mmsbgen.db.selection.index import TIERS
from mmsbgen.families.mmsb import MMSB
from mmsbgen.graph import Split, load_edge_list, split
from mmsbgen.sampler.chain.chain_problem import problem_of
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.options.options import Options
from mmsbgen.tuner.measure.roofs import measure_roofs

KINDS = ("random-node-non-link", "random-node-link", "random-node")
WAYS = ("separate", "fused")
STARS = ["step", "mini-batch", "separate, us", "fused, us", "stages by events, us"]
BLOCKS = ["products", "draws", "blocks", "a sweep, ms", "stages by events, ms", "kernels with waits, ms"]


def sweeps(sampler: Sampler, count: int) -> None:
    """Make sweeps, and wait for them."""
    advance(sampler, count * sampler.per_sweep)


def by_stage(sampler: Sampler, count: int) -> dict[str, float]:
    """Seconds of an iteration by stage, the mean of ``count``, on the device's clock."""
    before = sampler.stages.seconds()
    advance(sampler, count)
    spent = {name: seconds - before.get(name, 0.0) for name, seconds in sampler.stages.seconds().items()}
    return {name: seconds / count for name, seconds in spent.items() if seconds > 0}


def by_kernel(sampler: Sampler) -> dict[str, float]:
    """Seconds of a sweep by kernel, each launch with a wait before and after."""
    seconds: dict[str, float] = defaultdict(float)
    queue = sampler.launch

    def alone(stage: str, kernel: str, count: int, values: dict[str, Any]) -> None:
        sampler.device.synchronize()
        begin = time.perf_counter()
        queue(stage, kernel, count, values)
        sampler.device.synchronize()
        seconds[kernel] += time.perf_counter() - begin

    sampler.launch = alone  # type: ignore[method-assign]
    try:
        sweeps(sampler, 1)
    finally:
        sampler.launch = queue  # type: ignore[method-assign]
    return dict(seconds)


def tiers(sampler: Sampler) -> dict[str, list[str]]:
    """Kernels by how near the records are that their configurations come from."""
    found: dict[str, list[str]] = {}
    for name, choice in sorted(sampler.runtime.choices.items()):
        found.setdefault(choice.tier, []).append(name)
    return dict(sorted(found.items(), key=lambda pair: TIERS.index(pair[0])))


def text_of(seconds: dict[str, float], scale: float, digits: int) -> str:
    """Parts of a time in a table."""
    return ", ".join(f"{name} {value * scale:.{digits}f}" for name, value in seconds.items())


def stars(device: Device, parts: Split, base: Options, report: Report, args: argparse.Namespace) -> None:
    """Iterations of stars on one device."""
    rows = []
    chains: dict[str, list[str]] = {}
    for step in args.step or ("reflected", "split"):
        for kind in KINDS:
            found: dict[str, Sample] = {}
            for fused in (False, True) if device.info.backend == "cuda" else (False,):
                options = replace(base, step=step, mini_batch=kind)
                with chain(device, parts, options, args.database, fused=fused) as sampler:
                    advance(sampler, 128)
                    if fused:
                        found["fused"] = wall(sampler, advance, args.count, args.repetitions)
                        continue
                    found["separate"] = wall(sampler, advance, args.count, args.repetitions)
                    records, stages = tiers(sampler), by_stage(sampler, args.count)
            progress(f"{step} {kind}: " + ", ".join(f"{name} {s.text(1e6)} us" for name, s in found.items()))
            said = "; ".join(f"{tier}: {', '.join(names)}" for tier, names in records.items())
            chains.setdefault(said, []).append(f"{step} {kind}")
            ways = [found[name].text(1e6) if name in found else "-" for name in WAYS]
            rows.append([step, kind, *ways, text_of(stages, 1e6, 1)])
            report.data["results"].append(
                {"device": device.info.spec, "step": step, "kind": kind, "records": records, "stages": stages}
                | {"times": {name: sample.as_dict() for name, sample in found.items()}}
            )
    report.text(*(f"- {', '.join(names)}: configurations are {said}" for said, names in chains.items()))
    report.table(STARS, rows)


def blocks(device: Device, parts: Split, base: Options, report: Report, args: argparse.Namespace) -> None:
    """Sweeps of blocks on one device."""
    rows = []
    for products in args.products or (("half", "single") if device.info.backend == "cuda" else ("single",)):
        for noise in (True, False):
            options = replace(base, products=products, noise=noise)
            with chain(device, parts, options, args.database) as sampler:
                sweeps(sampler, 2)
                found, count = wall(sampler, sweeps, args.count, args.repetitions), sampler.per_sweep
                stages = {name: seconds * count for name, seconds in by_stage(sampler, count).items()}
                kernels = by_kernel(sampler)
                configs = {name: dict(kernel.config) for name, kernel in sampler.kernels.items()}
            progress(f"{products} products, {'draws' if noise else 'no draws'}: {found.text(1e3)} ms")
            row = [products, "yes" if noise else "no", str(count), found.text(1e3)]
            rows.append([*row, text_of(stages, 1e3, 2), text_of(kernels, 1e3, 2)])
            report.data["results"].append(
                {"device": device.info.spec, "products": products, "noise": noise, "blocks": count}
                | {"time": found.as_dict(), "stages": stages, "kernels": kernels, "configs": configs}
            )
    report.table(BLOCKS, rows)


def main() -> None:
    """Run the benchmark."""
    options = parser(__doc__, repetitions=30)
    add_roofs(options)
    options.add_argument("--graph", type=Path, required=True, help="edge list")
    options.add_argument("--mini-batch", choices=("star", "block"), default="star", help="(%(default)s)")
    options.add_argument("-k", type=int, default=1024, help="communities (1024)")
    options.add_argument("-m", type=int, help="non-links of a star (4096), vertices of a block (what detect takes)")
    options.add_argument("-n", type=int, help="partners of a vertex (32), shared partners of a block (1024)")
    options.add_argument("--step", action="append", help="of stars: reflected or split; repeat for several (both)")
    options.add_argument("--products", action="append", choices=("single", "half"), help="of blocks: only these")
    options.add_argument("--count", type=int, help="iterations (320) or sweeps (10) of a repetition")
    args = options.parse_args()
    block = args.mini_batch == "block"
    args.count = args.count or (10 if block else 320)
    args.n = args.n or (1024 if block else 32)
    parts = split(load_edge_list(args.graph), validation=0.01, seed=0)
    base = Options(n_communities=args.k, mini_batch_size=args.m, n_partners=args.n, seed=1)
    if block:
        base = replace(base, mini_batch="block", start="random")
    else:
        star = {"mini_batch": KINDS[0], "mini_batch_size": args.m or 4096, "partners": "uniform"}
        base = replace(base, **star, evaluate_every=10**9)
    report = Report(
        "A sweep of block mini-batches" if block else "An iteration of stars",
        f"{parts.graph.name}: N = {parts.graph.n_vertices}, {len(parts.training_links)} links, K = {args.k}, "
        f"m = {base.mini_batch_size or 'as detect has it'}, n = {args.n} {'shared' if block else 'uniform'} partners, "
        "float32. Medians and distances between quartiles.",
    )
    report.data["results"] = []
    for device in opened(report, args.device):
        roof = measure_roofs(device, MMSB.row_bytes(problem_of(parts, base, device.info)), args.roof_mib << 20)
        report.text(f"Random rows {roof.gather:.0f} GB/s, copy {roof.copy:.0f} GB/s.")
        (blocks if block else stars)(device, parts, base, report, args)
    report.write("blocks" if block else "iteration", folder=args.output)


if __name__ == "__main__":
    main()
