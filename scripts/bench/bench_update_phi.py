"""update_phi against the random-row gather rate: tuned, untuned default and worst valid configuration.

For each device, K and step with noise on and off: a gather of as many random rows of the same state, the tuned and the
default configuration in turns (A B A B ...) on inputs that rotate, so that no call finds its rows in a cache, then the
worst.  A share is the gather's median time over the configuration's, by what each moves: both see the same machine.
GPUs are timed by launches back to back, as the tuner does it: all of a turn are queued before the first begins.
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
    add_roofs,
    add_sizes,
    chosen_devices,
    config_text,
    in_turns,
    interleave,
    known_configs,
    progress,
)

from mmsbgen.backends import Device, open_device
from mmsbgen.backends.base import Event
from mmsbgen.base.errors import CompileError, LaunchError
from mmsbgen.families.mmsb import MMSB
from mmsbgen.families.mmsb.numbers.storage import STORAGES
from mmsbgen.kernels.build import build, traits_of
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config, describe
from mmsbgen.tuner.measure.roofs import ROOF_GATHER, ROOFS, Roofs, measure_roofs

SPEC = MMSB.kernel("update_phi")
STEPS = ("split", "reflected", "published")


@dataclass(frozen=True)
class Chosen:
    """The three configurations of one device and where they come from."""

    tuned: Config
    default: Config
    worst: Config | None
    why: str
    timed: bool
    """Whether configurations had to be timed first to find these."""


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


def choose(device: Device, placed: Placed, problem: Problem, args: argparse.Namespace, before: Chosen | None) -> Chosen:
    """The configurations to compare: given ones first, then the database's, then the best and worst of a sample.

    ``before`` is what a sample has found for another step: it stands in where this one would need a sample too.
    """
    traits = traits_of(device.info)
    default = SPEC.default(problem, traits)
    known = known_configs(device.info, SPEC, problem, traits, args.database)
    tuned: Config | None = json.loads(args.config) if args.config else None
    worst: Config | None = json.loads(args.worst) if args.worst else known.worst
    why = "given by --config" if tuned else f"database, tier {known.tier}: {known.reason}"
    if tuned is None and known.tier != "default" and not args.screen:
        tuned = known.tuned
    needed = tuned is None or (worst is None and args.screen != 0)
    if needed and before is not None:
        tuned, worst, why = tuned or before.tuned, worst or before.worst, before.why
    elif needed:
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
    return Chosen(tuned or default, default, worst, why, needed)


def shape_of(roofs: Roofs) -> Config:
    """The configuration of the gather that was the fastest."""
    said = dict(part.split("=") for part in roofs.shapes["gather"].split())
    return {axis.name: next(v for v in axis.values if str(v) == said[axis.name]) for axis in ROOF_GATHER.space.axes}


def gather(
    device: Device, placed: Placed, problem: Problem, roofs: Roofs, seed: int
) -> tuple[Callable[[int], Event], int]:
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

    turns = [values | {"ids": one} for one in ids]

    def run(number: int) -> Event:
        return bound.launch(teams, turns[number % len(turns)])

    return run, ROOF_GATHER.traffic(here)


Chosens = dict[tuple[str, str], Chosen]


def choose_all(device: Device, placed: Placed, problem: Problem, args: argparse.Namespace) -> Chosens:
    """The configurations of every step, with noise and without, as a run of that step would select them."""
    found: Chosens = {}
    for step in args.step or STEPS:
        for noise in ("on", "off"):
            screened = next((one for one in found.values() if one.timed), None)
            here = problem.replace(step=step, noise=noise)
            found[step, noise] = choose(device, placed, here, args, screened)
    return found


def measure(
    device: Device,
    placed: Placed,
    arguments: Mapping[str, Any],
    problem: Problem,
    chosen: Chosens,
    rounds: int,
    gathering: Callable[[int], Event],
) -> dict[tuple[str, str], dict[str, Sample]]:
    """Times of the gather and of the configurations by step and noise.

    The machine's rate moves with its neighbours, so that the gather takes turns with what is held against it.  The
    worst configuration, far slower, is timed by itself: in turns with the others it would let them start cold.
    """
    found: dict[tuple[str, str], dict[str, Sample]] = {}
    for (step, noise), these in chosen.items():
        here = problem.replace(step=step, noise=noise)
        # One step's rows are not another's: reflected noise flattens them, and flat rows cost the split step more.
        placed.restore(arguments)
        launches: dict[str, Callable[[int], Event]] = {"gather": gathering}
        for name in ("tuned", "default", "worst"):
            config = getattr(these, name)
            if config is not None:
                bound = build(device, SPEC, here, config)
                launches[name] = placed.launcher(bound)
        slow = {"worst": launches.pop("worst")} if "worst" in launches else {}
        found[step, noise] = in_turns(device, launches, rounds) | (in_turns(device, slow, 3) if slow else {})
        progress(f"  {step}, noise {noise}: " + ", ".join(f"{n} {s.text()} ms" for n, s in found[step, noise].items()))
    return found


def report_device(
    report: Report, device: Device, problem: Problem, workload: Any, args: argparse.Namespace
) -> dict[str, Any]:
    """Measure one device and add its section."""
    info = device.info
    report.devices.append(info)
    placed = Placed.upload(device, workload.count, workload.arguments, workload.rotations)
    chosen = choose_all(device, placed, problem, args)
    roofs = measure_roofs(device, MMSB.row_bytes(problem), args.roof_mib << 20)
    gathering, gathered = gather(device, placed, problem, roofs, args.seed)
    found = measure(device, placed, workload.arguments, problem, chosen, args.rounds, gathering)
    placed.release()

    moved = SPEC.traffic(problem)
    report.text(f"## {info.platform}: {info.name}, K = {problem['K']}")
    report.text(
        f"The gather, of {gathered / 1e6:.0f} MB in random rows of {MMSB.row_bytes(problem)} bytes of the same state "
        f"({roofs.shapes['gather']}), takes turns with the configurations. A copy: {roofs.copy:.2f} GB/s, reads and "
        f"writes counted. A call moves at least {moved / 1e6:.0f} MB."
    )
    report.text(*_configurations(chosen))
    if info.kind == "gpu":
        report.text(
            "Each repetition is the mean of a batch of launches. The worst is the slowest that the database has."
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
        "K": problem["K"],
        "configs": {
            f"{step} noise {noise}": {n: getattr(these, n) for n in ("tuned", "default", "worst", "why")}
            for (step, noise), these in chosen.items()
        },
        "times": {
            f"{step} noise {noise}": {name: sample.as_dict() for name, sample in samples.items()}
            for (step, noise), samples in found.items()
        },
    }


def _configurations(chosen: Chosens) -> list[str]:
    """Which configurations were measured, once for all the steps that have the same ones."""
    said: dict[str, list[str]] = {}
    for (step, noise), these in chosen.items():
        worst = config_text(these.worst) if these.worst else "not known"
        text = f"tuned {config_text(these.tuned)}, default {config_text(these.default)}, worst {worst}: {these.why}."
        said.setdefault(text, []).append(f"{step}, noise {noise}")
    return [f"- {'; '.join(steps)}: {text}" for text, steps in said.items()]


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_device_option(parser)
    add_roofs(parser)
    parser.add_argument("-k", type=int, action="append", help="communities; repeat for several (1024)")
    add_sizes(parser)
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
    parser.add_argument("--name", default="update_phi", help="of the report's files (update_phi)")
    args = parser.parse_args()

    sizes = {"N": args.N, "m": args.m, "n": args.n}
    report = Report(
        "update_phi against the gather rate",
        f"m = {args.m} vertices, n = {args.n} partners, N = {args.N} vertices, {args.dtype}, "
        f"{f'rows in {args.storage}, ' if args.storage != STORAGES[0] else ''}uniform partners.",
    )
    infos = chosen_devices(args.device)
    results = []
    for k in args.k or [1024]:
        problem = MMSB.problem(K=k, **sizes, dtype=args.dtype, storage=args.storage, step=(args.step or STEPS)[0])
        progress(f"making the state of K = {k}")
        workload = SPEC.workload(problem, args.seed)
        for info in infos:
            with open_device(info.spec) as device:
                results.append(report_device(report, device, problem, workload, args))
    report.data |= {"problem": dict(problem.items_), "results": results}
    report.write(args.name, **({"folder": args.output} if args.output else {}))


if __name__ == "__main__":
    main()
