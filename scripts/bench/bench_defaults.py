"""How far update_phi's untuned default is from the best of the likely configurations of a GPU, at several K.

Likely are rows and accumulator in registers or shared memory, whole sub-groups, and up to 32 chunks of partners' rows
at once a work-item.  All of a problem are compiled side by side and timed in three batches each, hopeless ones in
fewer; the ten fastest and the default are timed again in turns.  Nothing is held against the reference, as `mmsbgen
tune` and scripts/check_variants.py do it.  Writes docs/reports/defaults.md and .json.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Iterator
from pathlib import Path

from _common import Placed, Report, Sample, add_device_option, add_sizes, chosen_devices, progress

from mmsbgen.backends import Device, open_device
from mmsbgen.base.errors import CompileError, LaunchError
from mmsbgen.families.mmsb import MMSB
from mmsbgen.families.mmsb.numbers.storage import STORAGES, storage_of
from mmsbgen.kernels.build import BoundKernel, build, compile_side_by_side, traits_of
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config, Traits, describe
from mmsbgen.tuner.measure.timing import Patience, time_launches, time_turns

SPEC = MMSB.kernel("update_phi")
KS = (128, 256, 512, 1024, 2048, 4096)
CASES = (("reflected", "on"), ("split", "on"), ("reflected", "off"))
QUICK = Patience(repetitions=3, enough_s=0.0, limit_s=0.1, most=3)
FINALISTS, ROUNDS = 10, 15
MOST_CHUNKS = 32


def likely(problem: Problem, traits: Traits) -> Iterator[Config]:
    """The configurations that are timed, the default among them."""
    default, lanes = SPEC.default(problem, traits), max(1, traits.sub_group_size)
    teams = [("subgroup", lanes), ("subgroup", 4 * lanes), *(("block", n * lanes) for n in (2, 3, 4, 6, 8, 12, 16))]
    k, found = problem.integer("K"), [default]
    placements, widths = ("RRR", "RRS", "RSS"), (2, 4, 8) if storage_of(problem).narrow else (1, 2, 4)
    for placement, (team, block), rows, width in itertools.product(placements, teams, (1, 2, 4), widths):
        own = {"placement": placement, "team": team, "block_size": block, "rows_in_flight": rows, "vector_width": width}
        size = lanes if team == "subgroup" else block
        chunks = -(-k // (size * width))
        config = {**default, **own, "reduction": "shuffle" if lanes > 1 else "local", "prefetch": 0}
        few = chunks * rows <= MOST_CHUNKS and size * width <= 2 * k
        if few and config != default and SPEC.space.refusal(config, problem, traits) is None:
            found.append(config)
    yield from found


def screen(device: Device, placed: Placed, problem: Problem) -> list[tuple[Config, Sample]]:
    """Times of the likely configurations, the best of them in turns, fastest first."""
    configs = list(likely(problem, traits_of(device.info)))
    compile_side_by_side(device, [(SPEC, problem, config) for config in configs])
    timed: list[tuple[float, Config, BoundKernel, Sample]] = []
    for config in configs:
        try:
            bound = build(device, SPEC, problem, config)
            best = min((one[0] for one in timed), default=None)
            times = time_launches(device, placed.launcher(bound), QUICK, best).times
        except (CompileError, LaunchError) as error:
            progress(f"  left out: {error}")
            continue
        timed.append((statistics.median(times), config, bound, Sample(times)))
    timed.sort(key=lambda one: one[0])
    finalists = timed[:FINALISTS] + [one for one in timed[FINALISTS:] if one[1] == configs[0]]
    again = time_turns(device, [placed.launcher(bound) for _, _, bound, _ in finalists], ROUNDS)
    finals = [(config, Sample(timing.times)) for (_, config, _, _), timing in zip(finalists, again, strict=True)]
    rest = [(config, sample) for _, config, _, sample in timed[FINALISTS:] if config != configs[0]]
    return sorted(finals, key=lambda pair: pair[1].median) + rest


def row_of(problem: Problem, found: list[tuple[Config, Sample]], default: Config) -> list[str]:
    """A line of the table: the default against the best."""
    (best, sample), own = found[0], next((s for config, s in found if config == default), None)
    ratio = "-" if own is None else f"{own.median / sample.median:.2f}"
    time = "-" if own is None else own.text(1e6)
    case = f"{problem['K']}, {problem['step']}, noise {problem['noise']}"
    return [case, str(len(found)), sample.text(1e6), time, ratio, describe(best)]


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_device_option(parser)
    parser.add_argument("-k", type=int, action="append", help=f"communities; repeat for several ({KS})")
    add_sizes(parser)
    parser.add_argument("--storage", choices=STORAGES, default=STORAGES[0], help="of rows of pi (float32)")
    parser.add_argument("--name", default="defaults", help="of the report's files (defaults)")
    parser.add_argument("--output", type=Path, default=None, help="folder of the report (docs/reports)")
    args = parser.parse_args()
    report = Report(
        "update_phi's default against the best of the likely configurations",
        f"m = {args.m} vertices, n = {args.n} partners, N = {args.N} vertices, rows in {args.storage}. "
        "Microseconds a call.",
    )
    report.data["results"] = results = []
    for info in chosen_devices(args.device):
        report.devices.append(info)
        rows = []
        with open_device(info.spec) as device:
            for k in args.k or KS:
                problem = MMSB.problem(K=k, m=args.m, n=args.n, N=args.N, step="split", storage=args.storage)
                workload = SPEC.workload(problem, 0)
                placed = Placed.upload(device, workload.count, workload.arguments, workload.rotations)
                for step, noise in CASES:
                    here = problem.replace(step=step, noise=noise)
                    # One step's rows are not another's.
                    placed.restore(workload.arguments)
                    found = screen(device, placed, here)
                    rows.append(row_of(here, found, SPEC.default(here, traits_of(info))))
                    progress("  ".join(rows[-1]))
                    results += [
                        {"device": info.spec, "K": k, "step": step, "noise": noise, "config": c, "median_s": s.median}
                        for c, s in found
                    ]
                placed.release()
        report.text(f"## {info.platform}: {info.name}")
        report.table(["K, step", "configurations", "best, us", "default, us", "default / best", "the best"], rows)
    report.write(args.name, **({"folder": args.output} if args.output else {}))


if __name__ == "__main__":
    main()
