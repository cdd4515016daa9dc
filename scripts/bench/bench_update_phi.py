#!/usr/bin/env python
"""update_phi against the rate of random rows: tuned, default and worst configuration, for each type of rows.

    scripts/bench/bench_update_phi.py --device cuda:0 -k 256 -k 1024 --storage bfloat16

For each K and step, with noise on and off: gathers of as many random rows of the same state, the tuned and the default
configuration of all types of rows in turns (A B A B ...) on inputs that rotate, so that no call finds its rows in a
cache; then the worst.  A share is the gather's median time over the configuration's, by what each moves.  GPUs are
timed by launches back to back, all of a turn queued before the first begins.  Configurations are those that a run
would select from the tuning database; the worst is the slowest that it has.
Writes docs/reports/update_phi.md and .json, or what --name says.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
from _harness import Placed, Sample, add_roofs, add_sizes, in_turns, opened, parser, progress
from _report import Report

from mmsbgen.backends import Device
from mmsbgen.backends.base import Event
from mmsbgen.db.selection.index import Index
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.families.mmsb import MMSB
from mmsbgen.families.mmsb.numbers.storage import STORAGES
from mmsbgen.kernels.build import build, traits_of
from mmsbgen.kernels.family import Workload
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.record_key import device_record
from mmsbgen.kernels.runtime import look_up
from mmsbgen.kernels.space import Config
from mmsbgen.tuner.measure.roof_kernels import ROOF_GATHER, ROOFS
from mmsbgen.tuner.measure.roofs import Roofs, measure_roofs

SPEC = MMSB.kernel("update_phi")
STEPS = ("reflected", "split", "published")
HEAD = ["step", "rows", "tuned", "gather, GB/s", "share", "default", "worst"]
HEAD += ["default / tuned", "worst / tuned", "first rows / these"]
Launch = Callable[[int], Event]


class Rows(NamedTuple):
    """A state with one type of rows on a device, and a gather of them."""

    problem: Problem
    workload: Workload
    placed: Placed
    roofs: Roofs
    gather: Launch
    gathered: int
    """Bytes that the gather reads."""


def place(device: Device, problem: Problem, seed: int, roof_bytes: int) -> Rows:
    """Make a state and its gather."""
    workload = SPEC.workload(problem, seed)
    placed = Placed.upload(device, workload.count, workload.arguments, workload.rotations)
    roofs = measure_roofs(device, MMSB.row_bytes(problem), roof_bytes)
    return Rows(problem, workload, placed, roofs, *gather(device, placed, problem, roofs, seed))


def gather(device: Device, placed: Placed, problem: Problem, roofs: Roofs, seed: int) -> tuple[Launch, int]:
    """A gather of about as many random rows of the state as update_phi reads, and the bytes that it reads."""
    per_team, row_bytes = 32, MMSB.row_bytes(problem)
    n_rows = problem.integer("N") + problem.integer("m")
    teams = -(-problem.integer("m") * (problem.integer("n") + 1) // per_team)
    here = ROOFS.problem(row_bytes=row_bytes, n_rows=n_rows, n_teams=teams, rows_per_team=per_team)
    said = dict(part.split("=") for part in roofs.shape.split())
    fastest = {axis.name: next(v for v in axis.values if str(v) == said[axis.name]) for axis in ROOF_GATHER.space.axes}
    bound = build(device, ROOF_GATHER, here, fastest)
    rng = np.random.default_rng(seed)
    ids = [device.upload(rng.integers(0, n_rows, teams * per_team).astype(np.uint32)) for _ in range(4)]
    sums = device.zeros(teams * 256, np.float32)
    values = {"data": placed.arguments["pi"], "sums": sums, "n_teams": np.uint32(teams)}
    turns = [values | {"ids": one} for one in ids]
    return lambda number: bound.launch(teams, turns[number % len(turns)]), ROOF_GATHER.traffic(here)


class Known(NamedTuple):
    """What the tuning database has for a problem: the configuration that a run takes, why, and the slowest one."""

    tuned: Config
    tier: str
    reason: str
    worst: Config | None


def known_configs(device: Device, problem: Problem, database: str | None) -> Known:
    """Ask the database as a run does."""
    traits, info = traits_of(device.info), device.info

    def valid(config: Mapping[str, Any]) -> bool:
        return SPEC.space.refusal(config, problem, traits) is None

    with open_store(database, read_only=True) as store:
        selection = look_up(Index(store), info, MMSB, SPEC.name, problem)
        sizes = {name: problem[name] for name in ("K", "N", "m", "n", "dtype")}
        trials = [
            trial
            for trial in store.trials(kernel=SPEC.name, status="ok", problem=sizes)
            if trial.key.device.identity == device_record(info).identity
            and trial.key.problem.params.get("storage") == problem.get("storage")
            and valid(trial.config)
        ]
    slowest = max(trials, key=lambda trial: trial.median_s or 0.0, default=None)
    return Known(selection.config, selection.tier, selection.reason, slowest.config if slowest else None)


def configs_of(known: Known, problem: Problem, device: Device) -> dict[str, Config]:
    """The configurations to time, by name."""
    found = {"tuned": known.tuned, "default": SPEC.default(problem, traits_of(device.info))}
    return found | ({"worst": known.worst} if known.worst else {})


def measure(
    device: Device, states: dict[str, Rows], known: dict[str, Known], case: dict[str, str], repetitions: int
) -> dict[str, dict[str, Sample]]:
    """Times by type of rows: of the gather, and of each configuration.

    The rate of a machine that others use changes, so gathers take turns with what is held against them.  The worst
    configurations are timed by themselves: far slower, they would let the others start cold.
    """
    fast: dict[str, Launch] = {}
    slow: dict[str, Launch] = {}
    for storage, rows in states.items():
        # One step's rows are not another's: reflected noise flattens them, and flat rows cost the split step more.
        rows.placed.restore(rows.workload.arguments)
        problem = rows.problem.replace(**case)
        fast[f"{storage} gather"] = rows.gather
        for name, config in configs_of(known[storage], problem, device).items():
            bound = build(device, SPEC, problem, config)
            (slow if name == "worst" else fast)[f"{storage} {name}"] = rows.placed.launcher(bound)
    times = in_turns(device, fast, repetitions) | (in_turns(device, slow, 3) if slow else {})
    found: dict[str, dict[str, Sample]] = {storage: {} for storage in states}
    for name, sample in times.items():
        storage, what = name.split(" ")
        found[storage][what] = sample
    return found


def over(one: Sample, other: Sample) -> Sample:
    """The ratio of two things' times, turn by turn."""
    return Sample(tuple(a / b for a, b in zip(one.times, other.times, strict=True)))


def lines(what: str, states: dict[str, Rows], found: dict[str, dict[str, Sample]], scale: float) -> list[list[str]]:
    """Rows of the table for one step, times by ``scale``."""
    told = []
    first = found[next(iter(states))]["tuned"]
    for storage, rows in states.items():
        times = found[storage]
        tuned = times["tuned"]
        achieved = SPEC.traffic(rows.problem) / tuned.median / 1e9
        rate = rows.gathered / times["gather"].median / 1e9
        others = [times.get(name) for name in ("default", "worst")]
        told.append(
            [
                *(what, storage, tuned.text(scale), f"{rate:.4g}", f"{100 * achieved / rate:.0f} %"),
                *("-" if one is None else one.text(scale) for one in others),
                *("-" if one is None else f"{one.median / tuned.median:.2f}" for one in others),
                "-" if tuned is first else over(first, tuned).text(1.0),
            ]
        )
    return told


def bench(report: Report, device: Device, k: int, storages: Sequence[str], args: argparse.Namespace) -> None:
    """Measure one K on one device, and add its table."""
    sizes = {"K": k, "N": args.N, "m": args.m, "n": args.n, "dtype": args.dtype}
    table = []
    told: dict[str, list[str]] = {}
    unit, scale = ("ms", 1e3) if device.info.kind == "cpu" else ("us", 1e6)
    with ExitStack() as stack:
        states: dict[str, Rows] = {}
        for storage in storages:
            states[storage] = place(device, MMSB.problem(**sizes, storage=storage), args.seed, args.roof_mib << 20)
            stack.callback(states[storage].placed.release)
        for case in ({"step": step, "noise": noise} for step in args.step or STEPS for noise in ("on", "off")):
            known = {
                storage: known_configs(device, rows.problem.replace(**case), args.database)
                for storage, rows in states.items()
            }
            found = measure(device, states, known, case, args.repetitions)
            what = f"{case['step']}, noise {case['noise']}"
            table += lines(what, states, found, scale)
            for storage, one in known.items():
                told.setdefault(one.tier, []).append(f"{what}, {storage}")
                said = ", ".join(f"{name} {sample.text(1e6)} us" for name, sample in found[storage].items())
                progress(f"K = {k}, {what}, {storage}: {said}")
                report.data["results"].append(
                    {"device": device.info.spec, "K": k, "storage": storage, **case, "tier": one.tier}
                    | {"bytes": SPEC.traffic(states[storage].problem), "bytes gathered": states[storage].gathered}
                    | {"roofs": dataclasses.asdict(states[storage].roofs)}
                    | {"configs": configs_of(one, states[storage].problem.replace(**case), device)}
                    | {"times": {name: sample.as_dict() for name, sample in found[storage].items()}}
                )
    report.text(f"### K = {k}, times in {unit}")
    known_columns = [place for place in range(len(HEAD)) if any(row[place] != "-" for row in table)]
    report.table([HEAD[i] for i in known_columns], [[row[i] for i in known_columns] for row in table])
    report.text(*(f"- {tier}: {'; '.join(cases) if len(told) > 1 else 'all'}" for tier, cases in told.items()))


def main() -> None:
    """Run the benchmark."""
    options = parser(__doc__, repetitions=41)
    add_roofs(options)
    options.add_argument("-k", type=int, action="append", help="communities; repeat for several (1024)")
    add_sizes(options)
    options.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    options.add_argument("--storage", action="append", choices=STORAGES[1:], help="types of rows besides --dtype's")
    options.add_argument("--step", action="append", choices=STEPS, help="a step; repeat for several (all)")
    options.add_argument("--seed", type=int, default=0, help="of the states (0)")
    options.add_argument("--name", default="update_phi", help="of the report's files (update_phi)")
    args = options.parse_args()
    report = Report(
        "update_phi against the gather rate",
        f"m = {args.m} vertices, n = {args.n} uniform partners, N = {args.N} vertices, {args.dtype}. Time of a call: "
        "medians and distances between quartiles, in turns. On GPUs a repetition is the mean of a batch. Tuned is what "
        "a run takes from the tuning database, by the tier below; the worst is the slowest that it has.",
    )
    report.data["results"] = []
    for device in opened(report, args.device):
        for k in args.k or [1024]:
            bench(report, device, k, [STORAGES[0], *dict.fromkeys(args.storage or ())], args)
    report.write(args.name, folder=args.output)


if __name__ == "__main__":
    main()
