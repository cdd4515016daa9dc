"""A whole iteration of stars: by single launches and fused, links, non-links and their mixture; time by stage.

    scripts/bench/bench_iteration.py --device cuda:0 --graph com-dblp.txt.gz

Wall-clock time of an iteration of a chain on a graph, launches queued ahead, nothing profiled, in repetitions of some
hundred iterations; of single launches also with every stage timed on the device.  update_phi alone is timed on the
benchmark inputs of the very problem and configuration that the chain of non-links has, on GPUs in batches whose
launches are all queued before the first begins.  Configurations are those that a run would get, fused or not; the
report says of each kernel how near its records are.
Writes docs/reports/iteration.md and .json.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from _common import (
    REPORTS,
    Placed,
    Report,
    Sample,
    add_device_option,
    add_roofs,
    advance,
    chain,
    chosen_devices,
    config_text,
    in_turns,
    progress,
    wall,
)

from mmsbgen.backends import Device, open_device
from mmsbgen.db.selection.index import TIERS
from mmsbgen.families.mmsb import MMSB
from mmsbgen.graph import Split, load_edge_list, split
from mmsbgen.kernels.build import BoundKernel, build
from mmsbgen.sampler.chain.chain_problem import problem_of
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.options.options import Options
from mmsbgen.tuner.measure.roofs import measure_roofs

PHI = "update_phi"
KINDS = ("random-node-non-link", "random-node-link", "random-node")


@contextmanager
def warm(device: Device, parts: Split, options: Options, fused: bool, database: str | None) -> Iterator[Sampler]:
    """A chain some iterations after its start."""
    with chain(device, parts, options, database, fused=fused) as sampler:
        advance(sampler, 128)
        yield sampler


def stages(sampler: Sampler, count: int) -> dict[str, float]:
    """Seconds of an iteration by stage, on the device's clock."""
    before = sampler.stages.seconds()
    advance(sampler, count)
    after = sampler.stages.seconds()
    return {
        name: (after[name] - before.get(name, 0.0)) / count for name in after if after[name] > before.get(name, 0.0)
    }


class _Nothing:
    """In the place of a kernel whose part of the time is asked for."""

    def launch(self, count: int, values: dict[str, Any]) -> None:
        """Queue nothing."""


def without_theta(sampler: Sampler, count: int, repetitions: int) -> Sample:
    """Seconds of an iteration that leaves theta as it is: what lacks is what theta takes within the queue."""
    kept = {name: sampler.kernels[name] for name in ("theta_partial", "theta_end")}
    sampler.kernels |= dict.fromkeys(kept, cast(BoundKernel, _Nothing()))
    try:
        return wall(sampler, advance, count, repetitions)
    finally:
        sampler.kernels |= kept


def phi_alone(sampler: Sampler, rounds: int) -> Sample:
    """Seconds of update_phi by itself as a chain has it, on inputs that rotate; on GPUs in batches queued ahead."""
    device, kernel = sampler.device, sampler.kernels[PHI]
    workload = kernel.spec.workload(kernel.problem, 0)
    placed = Placed.upload(device, workload.count, workload.arguments, workload.rotations)
    try:
        bound = build(device, kernel.spec, kernel.problem, kernel.config)
        return in_turns(device, {PHI: placed.launcher(bound)}, rounds)[PHI]
    finally:
        placed.release()


def tiers(sampler: Sampler) -> dict[str, list[str]]:
    """Kernels by how near the records are that their configurations come from."""
    found: dict[str, list[str]] = {}
    for name, choice in sorted(sampler.runtime.choices.items()):
        found.setdefault(choice.tier, []).append(name)
    return dict(sorted(found.items(), key=lambda pair: TIERS.index(pair[0])))


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_device_option(parser)
    add_roofs(parser)
    parser.add_argument("--graph", type=Path, required=True, help="edge list")
    parser.add_argument("-k", type=int, default=1024, help="communities (1024)")
    parser.add_argument("-m", type=int, default=4096, help="non-links of a star (4096)")
    parser.add_argument("-n", type=int, default=32, help="partners of a vertex (32)")
    parser.add_argument("--step", action="append", help="reflected or split; repeat for several (both)")
    parser.add_argument("--count", type=int, default=320, help="iterations of a repetition (320)")
    parser.add_argument("--repetitions", type=int, default=30, help="repetitions (30)")
    parser.add_argument("--database", metavar="URL", help="tuning database (default: the user's)")
    parser.add_argument("--output", type=Path, default=REPORTS, help="folder of the report (docs/reports)")
    args = parser.parse_args()

    parts = split(load_edge_list(args.graph), validation=0.01, seed=0)
    base = Options(
        n_communities=args.k,
        mini_batch_size=args.m,
        n_partners=args.n,
        partners="uniform",
        evaluate_every=10**9,
        seed=1,
    )
    report = Report(
        "An iteration of stars",
        f"{parts.graph.name}: N = {parts.graph.n_vertices}, K = {args.k}, m = {args.m}, n = {args.n} uniform partners, "
        "float32. Microseconds an iteration: medians and distances between quartiles.",
    )
    report.data["results"] = []
    for info in chosen_devices(args.device):
        with open_device(info.spec) as device:
            report.devices.append(info)
            roof = measure_roofs(device, MMSB.row_bytes(problem_of(parts, base, device.info)), args.roof_mib << 20)
            report.text(f"## {info.platform}: {info.name}")
            report.text(f"Random rows {roof.gather:.0f} GB/s, copy {roof.copy:.0f} GB/s.")
            rows, told = [], []
            for step in args.step or ("reflected", "split"):
                options = dataclasses.replace(base, step=step)
                for kind in KINDS:
                    of_kind = dataclasses.replace(options, mini_batch=kind)
                    found: dict[str, Sample] = {}
                    by_stage: dict[str, float] = {}
                    for fused in (False, True) if info.backend == "cuda" else (False,):
                        with warm(device, parts, of_kind, fused, args.database) as sampler:
                            if kind == KINDS[0] and not fused:
                                alone, config = (
                                    phi_alone(sampler, max(args.repetitions, 3)),
                                    sampler.kernels[PHI].config,
                                )
                                told.append(f"- {step}: update_phi alone {alone.text(1e6)} us, {config_text(config)}")
                            if fused:
                                found["fused"] = wall(sampler, advance, args.count, args.repetitions)
                            else:
                                found["separate"] = wall(sampler, advance, args.count, args.repetitions)
                                records = tiers(sampler)
                                by_stage = stages(sampler, args.count)
                                bare = without_theta(sampler, args.count, args.repetitions)
                    fastest = min(found.values(), key=lambda sample: sample.median)
                    progress(f"{step} {kind}: " + ", ".join(f"{name} {s.text(1e6)} us" for name, s in found.items()))
                    split_up = ", ".join(f"{name} {seconds * 1e6:.1f}" for name, seconds in by_stage.items())
                    ratio = f"{fastest.median / alone.median:.2f}" if kind == "random-node-non-link" else "-"
                    ways = [found[name].text(1e6) if name in found else "-" for name in ("separate", "fused")]
                    theta = 1 - bare.median / found["separate"].median
                    said = "; ".join(f"{tier}: {', '.join(names)}" for tier, names in records.items())
                    told.append(f"- {step}, {kind}: configurations are {said}")
                    rows.append([step, kind, *ways, ratio, f"{theta:.1%}", split_up])
                    report.data["results"].append(
                        {
                            "device": info.spec,
                            "step": step,
                            "kind": kind,
                            "alone": alone.as_dict(),
                            "config": dict(config),
                            "records": records,
                            "stages": by_stage,
                            "without theta": bare.as_dict(),
                            "times": {name: sample.as_dict() for name, sample in found.items()},
                        }
                    )
            report.text(*told)
            head = [
                "step",
                "mini-batch",
                "separate, us",
                "fused, us",
                "faster / update_phi",
                "theta's share of separate",
            ]
            head.append("stages by events, us")
            report.table(head, rows)
    report.write("iteration", folder=args.output)


if __name__ == "__main__":
    main()
