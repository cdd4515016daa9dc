"""update_phi on rows of 16 bits against float32, in turns in one run.

    scripts/bench/bench_storage.py --device cuda:0

For each K, step and noise on and off: the tuned configurations of both kinds of rows and gathers of as many random rows
of each state, in turns (A B A B ...) on inputs that rotate, so that no call finds its rows in a cache.  On GPUs by
launches back to back, all of a turn queued before the first begins.  A share is the time of the gather of the same rows
over the configuration's, by what each moves; the ratio is that of float32's times and the other's, turn by turn.
Configurations are those that a run would get.  Writes docs/reports/storage.md and .json.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from _common import (
    REPORTS,
    Known,
    Placed,
    Report,
    Sample,
    add_device_option,
    add_roofs,
    add_sizes,
    chosen_devices,
    config_text,
    in_turns,
    known_configs,
    progress,
)
from bench_update_phi import SPEC, STEPS, gather

from mmsbgen.backends import Device, open_device
from mmsbgen.backends.base import Event
from mmsbgen.families.mmsb import MMSB
from mmsbgen.families.mmsb.numbers.storage import STORAGES
from mmsbgen.kernels.build import build, traits_of
from mmsbgen.kernels.family import Workload
from mmsbgen.kernels.problem import Problem
from mmsbgen.tuner.measure.roofs import measure_roofs

FLOAT32 = STORAGES[0]


class Rows(NamedTuple):
    """One kind of rows on a device, and a gather of them."""

    problem: Problem
    workload: Workload
    placed: Placed
    gather: Callable[[int], Event]
    gathered: int
    """Bytes that the gather reads."""


def place(device: Device, problem: Problem, seed: int, roof_bytes: int) -> Rows:
    """Make a state and its gather."""
    workload = SPEC.workload(problem, seed)
    placed = Placed.upload(device, workload.count, workload.arguments, workload.rotations)
    gathering, gathered = gather(
        device, placed, problem, measure_roofs(device, MMSB.row_bytes(problem), roof_bytes), seed
    )
    return Rows(problem, workload, placed, gathering, gathered)


def measure(
    device: Device, states: dict[str, Rows], known: dict[str, Known], case: dict[str, str], rounds: int
) -> dict[str, Sample]:
    """Times of the configurations and of the gathers by kind of rows."""
    launches: dict[str, Callable[[int], Event]] = {}
    for storage, rows in states.items():
        rows.placed.restore(rows.workload.arguments)
        bound = build(device, SPEC, rows.problem.replace(**case), known[storage].tuned)
        launches |= {storage: rows.placed.launcher(bound), f"gather {storage}": rows.gather}
    return in_turns(device, launches, rounds)


def over(one: Sample, other: Sample) -> Sample:
    """The ratio of two kinds' times, turn by turn."""
    return Sample(tuple(a / b for a, b in zip(one.times, other.times, strict=True)))


def lines(what: str, states: dict[str, Rows], found: dict[str, Sample]) -> list[list[str]]:
    """Rows of the table for one step."""
    told = []
    for storage, rows in states.items():
        sample, gathered = found[storage], found[f"gather {storage}"]
        achieved = SPEC.traffic(rows.problem) / sample.median / 1e9
        rate = rows.gathered / gathered.median / 1e9
        ratio = "-" if storage == FLOAT32 else over(found[FLOAT32], sample).text(1.0)
        share = f"{100 * achieved / rate:.0f} %"
        told.append([what, storage, sample.text(1e6), f"{achieved:.0f}", f"{rate:.0f}", share, ratio])
    return told


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_device_option(parser)
    add_roofs(parser)
    parser.add_argument("-k", type=int, action="append", help="communities; repeat for several (1024)")
    add_sizes(parser)
    parser.add_argument("--storage", action="append", choices=STORAGES[1:], help="of the other rows (bfloat16)")
    parser.add_argument("--step", action="append", choices=STEPS, help="a step; repeat for several (reflected, split)")
    parser.add_argument("--rounds", type=int, default=41, help="repetitions of each configuration (41)")
    parser.add_argument("--database", metavar="URL", help="tuning database (default: the user's)")
    parser.add_argument("--seed", type=int, default=0, help="of the states (0)")
    parser.add_argument("--output", type=Path, default=REPORTS, help="folder of the report (docs/reports)")
    args = parser.parse_args()

    storages = [FLOAT32, *dict.fromkeys(args.storage or ["bfloat16"])]
    report = Report(
        "update_phi on rows of 16 bits",
        f"m = {args.m} vertices, n = {args.n} uniform partners, N = {args.N} vertices. Microseconds a call: medians "
        "and distances between quartiles, all of a table's part in turns with each other.",
    )
    report.data["results"] = []
    for info in chosen_devices(args.device):
        report.devices.append(info)
        for k in args.k or [1024]:
            report.text(f"## {info.platform}: {info.name}, K = {k}")
            table, told = [], []
            with open_device(info.spec) as device, ExitStack() as stack:
                states = {}
                for storage in storages:
                    problem = MMSB.problem(K=k, N=args.N, m=args.m, n=args.n, storage=storage)
                    states[storage] = place(device, problem, args.seed, args.roof_mib << 20)
                    stack.callback(states[storage].placed.release)
                for case in ({"step": s, "noise": n} for s in args.step or STEPS[1::-1] for n in ("on", "off")):
                    known = {
                        storage: known_configs(info, SPEC, rows.problem.replace(**case), traits_of(info), args.database)
                        for storage, rows in states.items()
                    }
                    found = measure(device, states, known, case, args.rounds)
                    what = f"{case['step']}, noise {case['noise']}"
                    progress(f"K = {k}, {what}: " + ", ".join(f"{n} {s.text(1e6)} us" for n, s in found.items()))
                    table += lines(what, states, found)
                    for storage, one in known.items():
                        told.append(f"- {what}, {storage}: {config_text(one.tuned)}, {one.tier}")
                    report.data["results"].append(
                        {"device": info.spec, "K": k, **case}
                        | {"times": {name: sample.as_dict() for name, sample in found.items()}}
                        | {"configs": {name: dict(one.tuned) for name, one in known.items()}}
                        | {"tiers": {name: one.tier for name, one in known.items()}}
                    )
            report.table(["step", "rows", "time, us", "GB/s", "gather, GB/s", "share", "float32 over it"], table)
            report.text(*told)
    report.write("storage", folder=args.output)


if __name__ == "__main__":
    main()
