"""Milliseconds of a sweep of block mini-batches over a graph: every vertex with all its links and shared partners.

    scripts/bench/bench_blocks.py --device cuda:0 --graph com-dblp.txt.gz

Sweeps follow each other without a wait in between, as in a run; split step, with and without draws.  On CUDA devices
once with products in single precision and once on tensor cores.  Stages are times of the device's clock, and each
kernel is timed alone with a wait before and after it, which adds the time of a launch.
Writes docs/reports/blocks.md and .json.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _common import REPORTS, Report, add_device_option, add_roofs, advance, chain, chosen_devices, progress, wall

from mmsbgen.backends import Device, open_device
from mmsbgen.families.mmsb import MMSB
from mmsbgen.graph import Split, load_edge_list, split
from mmsbgen.sampler.chain.chain_problem import problem_of
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.options.options import Options
from mmsbgen.tuner.measure.roofs import measure_roofs


@contextmanager
def warm(device: Device, parts: Split, options: Options, database: str | None) -> Iterator[Sampler]:
    """A chain two sweeps after its start."""
    with chain(device, parts, options, database) as sampler:
        sweeps(sampler, 2)
        yield sampler


def sweeps(sampler: Sampler, count: int) -> None:
    """Make sweeps, and wait for them."""
    advance(sampler, count * sampler.per_sweep)


def stages(sampler: Sampler) -> dict[str, float]:
    """Seconds of a sweep by stage."""
    before = sampler.stages.seconds()
    sweeps(sampler, 1)
    after = sampler.stages.seconds()
    return {name: after[name] - before.get(name, 0.0) for name in after}


def kernels(sampler: Sampler) -> dict[str, float]:
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


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_device_option(parser)
    add_roofs(parser)
    parser.add_argument("--graph", type=Path, required=True, help="edge list")
    parser.add_argument("-k", type=int, default=1024, help="communities (1024)")
    parser.add_argument("-m", type=int, help="vertices of a block (what detect takes)")
    parser.add_argument("-n", type=int, default=1024, help="shared partners (1024)")
    parser.add_argument("--count", type=int, default=10, help="sweeps of a repetition (10)")
    parser.add_argument("--repetitions", type=int, default=30, help="repetitions (30)")
    parser.add_argument("--products", action="append", choices=("single", "half"), help="only these")
    parser.add_argument("--database", metavar="URL", help="tuning database (default: the user's)")
    parser.add_argument("--output", type=Path, default=REPORTS, help="folder of the report (docs/reports)")
    args = parser.parse_args()

    parts = split(load_edge_list(args.graph), validation=0.01, seed=0)
    base = Options(
        n_communities=args.k, mini_batch="block", mini_batch_size=args.m, n_partners=args.n, start="random", seed=1
    )
    report = Report(
        "A sweep of block mini-batches",
        f"{parts.graph.name}: N = {parts.graph.n_vertices}, {len(parts.training_links)} links, K = {args.k}, "
        f"n = {args.n} shared partners, float32, split step. Milliseconds: medians and distances between quartiles.",
    )
    report.data["results"] = []
    for info in chosen_devices(args.device):
        with open_device(info.spec) as device:
            report.devices.append(info)
            roof = measure_roofs(device, MMSB.row_bytes(problem_of(parts, base, device.info)), args.roof_mib << 20)
            report.text(f"## {info.platform}: {info.name}")
            report.text(f"Random rows {roof.gather:.0f} GB/s, copy {roof.copy:.0f} GB/s.")
            rows = []
            for products in args.products or (("half", "single") if info.backend == "cuda" else ("single",)):
                for noise in (True, False):
                    options = dataclasses.replace(base, products=products, noise=noise)
                    with warm(device, parts, options, args.database) as sampler:
                        found, by_stage = wall(sampler, sweeps, args.count, args.repetitions), stages(sampler)
                        by_kernel, blocks = kernels(sampler), sampler.per_sweep
                        configs = {name: dict(kernel.config) for name, kernel in sampler.kernels.items()}
                    progress(f"{products} products, {'draws' if noise else 'no draws'}: {found.text(1e3)} ms")
                    parts_of = [
                        ", ".join(f"{name} {seconds * 1e3:.2f}" for name, seconds in split_up.items())
                        for split_up in (by_stage, by_kernel)
                    ]
                    rows.append([products, "yes" if noise else "no", str(blocks), found.text(1e3), *parts_of])
                    report.data["results"].append(
                        {
                            "device": info.spec,
                            "products": products,
                            "noise": noise,
                            "blocks": blocks,
                            "time": found.as_dict(),
                            "stages": by_stage,
                            "kernels": by_kernel,
                            "configs": configs,
                        }
                    )
            head = ["products", "draws", "blocks", "a sweep, ms", "stages by events, ms", "kernels with waits, ms"]
            report.table(head, rows)
    report.write("blocks", folder=args.output)


if __name__ == "__main__":
    main()
