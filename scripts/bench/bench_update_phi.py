"""update_phi against the random-row gather rate: tuned, untuned default and worst valid configuration.

For each device and every step with noise on and off: a gather of as many random rows of the same state, the tuned and
the default configuration in turns (A B A B ...) on inputs that rotate, so that no call finds its rows in a cache, then
the worst.  A share is the gather's median time over the configuration's, by what each moves: both see the same machine.
Writes docs/reports/update_phi.md and .json.

The tuned configuration is what a run would select from the tuning database.  Without a record, or with --screen, some
configurations are timed first, most of them drawn at random, and the best and the worst of them are taken; the report
says so.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _common import (
    Placed,
    Report,
    Sample,
    add_device_option,
    chosen_devices,
    config_text,
    interleave,
    known_configs,
    progress,
)

from mmsbgen.backends import Device, open_device
from mmsbgen.build import build, traits_of
from mmsbgen.errors import CompileError, LaunchError
from mmsbgen.families.mmsb import MMSB
from mmsbgen.families.mmsb.storage import STORAGES
from mmsbgen.problem import Problem
from mmsbgen.space import Config, describe
from mmsbgen.tuner.limits import ROOF_GATHER, ROOFS, Roofs, measure_roofs

SPEC = MMSB.kernel("update_phi")
STEPS = ("split", "reflected", "published")


@dataclass(frozen=True)
class Chosen:
    """The three configurations of one device and where they come from."""

    tuned: Config
    default: Config
    worst: Config | None
    why: str


def screen(device: Device, placed: Placed, problem: Problem, wanted: int, seed: int, ceiling_s: float) -> list[Config]:
    """Time the default, its like at other vector widths, and a random sample on a part of the mini-batch.

    The three fastest are timed again in turns on the whole.  Returns the configurations, fastest first.
    A configuration that is slower than ``ceiling_s`` at the first call is not called again.
    """
    traits = traits_of(device.info)
    every = SPEC.space.configs(problem, traits)
    near: list[Config] = [
        {**SPEC.default(problem, traits), "vector_width": width, "rows_in_flight": rows}
        for width in (4, 8, 16)
        for rows in (1, 2, 4)
    ]
    sample = [config for config in near if SPEC.space.refusal(config, problem, traits) is None]
    sample += random.Random(seed).sample(every, min(wanted, len(every)))
    timed: list[tuple[float, Config]] = []
    part = max(1, placed.count // 16)
    for number, config in enumerate(sample):
        try:
            bound = build(device, SPEC, problem, config)
            first = placed.run(bound, number, part)
            taken = first if first > ceiling_s else min(placed.run(bound, number + i, part) for i in (1, 2))
        except (CompileError, LaunchError) as error:
            progress(f"  left out: {error}")
            continue
        timed.append((taken, config))
        progress(f"  {number + 1}/{len(sample)}  {taken * 1e3:8.2f} ms  {describe(config)}")
    timed.sort(key=lambda pair: pair[0])
    finalists: dict[str, Any] = {}
    for number, pair in enumerate(timed[:3]):
        bound = build(device, SPEC, problem, pair[1])
        finalists[str(number)] = lambda number, bound=bound: placed.run(bound, number)
    again = interleave(finalists, 5)
    order = sorted(again, key=lambda name: again[name].median)
    return [timed[int(name)][1] for name in order] + [config for _, config in timed[3:]]


def choose(device: Device, placed: Placed, problem: Problem, args: argparse.Namespace) -> Chosen:
    """The configurations to compare: given ones first, then the database's, then the best and worst of a sample."""
    traits = traits_of(device.info)
    default = SPEC.default(problem, traits)
    known = known_configs(device.info, SPEC, problem, traits, args.database)
    tuned: Config | None = json.loads(args.config) if args.config else None
    worst: Config | None = json.loads(args.worst) if args.worst else known.worst
    why = "given by --config" if tuned else f"database, tier {known.tier}: {known.reason}"
    if tuned is None and known.tier != "default" and not args.screen:
        tuned = known.tuned
    if tuned is None or (worst is None and args.screen != 0):
        wanted = 40 if args.screen is None else args.screen
        progress(f"{device.info.spec}: timing {wanted} configurations drawn at random")
        timed = screen(device, placed, problem, wanted, args.seed, 2.0)
        if timed:
            if tuned is None:
                tuned = timed[0]
                why = f"the best of {len(timed)} configurations, most of them drawn at random ({known.reason})"
            if worst is None:
                worst, why = timed[-1], f"{why}; the worst is that of the same {len(timed)}"
    for config in (tuned or default, default, worst or default):
        SPEC.space.check(config, problem, traits)
    return Chosen(tuned or default, default, worst, why)


def shape_of(roofs: Roofs) -> Config:
    """The configuration of the gather that was the fastest."""
    said = dict(part.split("=") for part in roofs.shapes["gather"].split())
    return {axis.name: next(v for v in axis.values if str(v) == said[axis.name]) for axis in ROOF_GATHER.space.axes}


def gather(
    device: Device, placed: Placed, problem: Problem, roofs: Roofs, seed: int
) -> tuple[Callable[[int], float], int]:
    """A gather of about as many random rows of the state as update_phi reads, and the bytes that it reads."""
    per_team, row_bytes = 32, MMSB.row_bytes(problem)
    n_rows = problem.integer("N") + problem.integer("m")
    teams = -(-problem.integer("m") * (problem.integer("n") + 1) // per_team)
    here = ROOFS.problem(row_bytes=row_bytes, n_rows=n_rows, n_teams=teams, rows_per_team=per_team)
    bound = build(device, ROOF_GATHER, here, shape_of(roofs))
    rng = np.random.default_rng(seed)
    ids = [device.upload(rng.integers(0, n_rows, teams * per_team).astype(np.uint32)) for _ in range(4)]
    sums = device.zeros(teams * 256, np.float32)

    values = {"data": placed.arguments["pi"], "sums": sums, "n_teams": np.uint32(teams)}

    def run(number: int) -> float:
        return bound.launch(teams, values | {"ids": ids[number % len(ids)]}).seconds()

    return run, ROOF_GATHER.traffic(here)


def measure(
    device: Device,
    placed: Placed,
    arguments: Mapping[str, Any],
    problem: Problem,
    chosen: Chosen,
    steps: tuple[str, ...],
    rounds: int,
    gathering: Callable[[int], float],
) -> dict[tuple[str, str], dict[str, Sample]]:
    """Times of the gather and of the configurations by step and noise.

    The machine's rate moves with its neighbours, so that the gather takes turns with what is held against it.  The
    worst configuration, far slower, is timed by itself: in turns with the others it would let them start cold.
    """
    found: dict[tuple[str, str], dict[str, Sample]] = {}
    for step in steps:
        for noise in ("on", "off"):
            here = problem.replace(step=step, noise=noise)
            # One step's rows are not another's: reflected noise flattens them, and flat rows cost the split step more.
            placed.restore(arguments)
            runs: dict[str, Any] = {"gather": gathering}
            for name in ("tuned", "default", "worst"):
                config = getattr(chosen, name)
                if config is not None:
                    bound = build(device, SPEC, here, config)
                    runs[name] = lambda number, bound=bound: placed.run(bound, number)
            slow = {"worst": runs.pop("worst")} if "worst" in runs else {}
            found[step, noise] = interleave(runs, rounds) | (interleave(slow, 3) if slow else {})
            progress(
                f"  {step}, noise {noise}: " + ", ".join(f"{n} {s.text()} ms" for n, s in found[step, noise].items())
            )
    return found


def report_device(
    report: Report, device: Device, problem: Problem, workload: Any, args: argparse.Namespace
) -> dict[str, Any]:
    """Measure one device and add its section."""
    info = device.info
    report.devices.append(info)
    placed = Placed.upload(device, workload.count, workload.arguments, workload.rotations)
    chosen = choose(device, placed, problem, args)
    roofs = measure_roofs(device, MMSB.row_bytes(problem))
    gathering, gathered = gather(device, placed, problem, roofs, args.seed)
    steps = tuple(args.step or STEPS)
    found = measure(device, placed, workload.arguments, problem, chosen, steps, args.rounds, gathering)
    placed.release()

    moved = SPEC.traffic(problem)
    report.text(f"## {info.platform}: {info.name}")
    report.text(
        f"The gather, of {gathered / 1e6:.0f} MB in random rows of {MMSB.row_bytes(problem)} bytes of the same state "
        f"({roofs.shapes['gather']}), takes turns with the configurations. A copy: {roofs.copy:.2f} GB/s, reads and "
        f"writes counted. A call moves at least {moved / 1e6:.0f} MB."
    )
    report.text(
        f"Tuned: {config_text(chosen.tuned)}  ",
        f"Default: {config_text(chosen.default)}  ",
        f"Worst: {config_text(chosen.worst) if chosen.worst else 'not known'}  ",
        f"Where they come from: {chosen.why}.",
    )
    rows = []
    for (step, noise), samples in found.items():
        tuned = samples["tuned"].median
        roof = gathered / samples["gather"].median / 1e9
        achieved = moved / tuned / 1e9
        others = [samples[n].median / tuned if n in samples else None for n in ("default", "worst")]
        rows.append(
            [
                f"{step}, noise {noise}",
                samples["tuned"].text(),
                f"{achieved:.2f}",
                f"{roof:.2f}",
                f"{100 * achieved / roof:.0f} %",
                samples["default"].text(),
                samples["worst"].text() if "worst" in samples else "-",
                *("-" if ratio is None else f"{ratio:.2f}" for ratio in others),
            ]
        )
    head = [
        "step",
        "tuned, ms",
        "GB/s",
        "gather, GB/s",
        "share",
        "default, ms",
        "worst, ms",
        "default / tuned",
        "worst / tuned",
    ]
    report.table(head, rows)
    return {
        "device": info.spec,
        "platform": info.platform,
        "roofs": dataclasses.asdict(roofs),
        "bytes": moved,
        "bytes gathered": gathered,
        "configs": {name: getattr(chosen, name) for name in ("tuned", "default", "worst")},
        "why": chosen.why,
        "times": {
            f"{step} noise {noise}": {name: sample.as_dict() for name, sample in samples.items()}
            for (step, noise), samples in found.items()
        },
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_device_option(parser)
    parser.add_argument("-k", type=int, default=1024, help="communities (1024)")
    parser.add_argument("-m", type=int, default=4096, help="vertices of the mini-batch (4096)")
    parser.add_argument("-n", type=int, default=32, help="partners of a vertex (32)")
    parser.add_argument("-N", type=int, default=317080, help="vertices (317080, those of com-DBLP)")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--storage", choices=STORAGES, default=STORAGES[0], help="of rows of pi (that of --dtype)")
    parser.add_argument("--step", action="append", choices=STEPS, help="a step; repeat for several (default: all)")
    parser.add_argument("--rounds", type=int, default=15, help="repetitions of each configuration (15)")
    parser.add_argument("--config", metavar="JSON", help="take this configuration as the tuned one")
    parser.add_argument("--worst", metavar="JSON", help="take this configuration as the worst one")
    parser.add_argument("--database", metavar="URL", help="tuning database (default: the user's)")
    parser.add_argument("--screen", type=int, metavar="COUNT", help="time COUNT random configurations first; 0: never")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample (0)")
    parser.add_argument("--output", type=Path, default=None, help="folder of the report (docs/reports)")
    args = parser.parse_args()

    sizes = {"K": args.k, "N": args.N, "m": args.m, "n": args.n}
    problem = MMSB.problem(**sizes, dtype=args.dtype, storage=args.storage, step=(args.step or STEPS)[0])
    report = Report(
        "update_phi against the gather rate",
        f"K = {args.k}, m = {args.m} vertices, n = {args.n} partners, N = {args.N} vertices, {args.dtype}, "
        f"{f'rows in {args.storage}, ' if args.storage != STORAGES[0] else ''}uniform partners.",
    )
    infos = chosen_devices(args.device)
    progress("making the state")
    workload = SPEC.workload(problem, args.seed)
    results = []
    for info in infos:
        with open_device(info.spec) as device:
            results.append(report_device(report, device, problem, workload, args))
    report.data |= {"problem": dict(problem.items_), "results": results}
    report.write("update_phi", **({"folder": args.output} if args.output else {}))


if __name__ == "__main__":
    main()
