#!/usr/bin/env python
"""Iterations of a chain by the best configurations of a kernel: whether what is fastest by itself is fastest there too.

    scripts/bench/bench_chain.py --device cuda:0 --graph com-dblp.txt.gz --kernel block_sums --source h200.jsonl.gz
    scripts/ship_records.py h200.jsonl.gz mmsbgen/db/shipped/nvidia-h200.jsonl --chain docs/reports/chain.json

A tune times a kernel by itself.  Here chains as a run would have them, but for one kernel's configuration, make
iterations in turns, blocks whole sweeps, with launches queued ahead and nothing profiled.  A kernel's configurations
are the best by themselves that --source has of the chain's very problem on this device, the one that a run would get,
and the built-in default.  --source is a database, its URL, or an exported file; without one it is --database.
Writes docs/reports/chain.md and .json, or chain-NAME with --name, from which scripts/ship_records.py takes which
configurations to leave out.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from _harness import advance, chain, config_text, interleave, opened, parser, progress, wall
from _report import Report

from mmsbgen.backends import Device, DeviceInfo
from mmsbgen.base.errors import InputError, MmsbgenError
from mmsbgen.db.exchange import jsonl
from mmsbgen.db.records.ranking import candidate, of_newest_programs, ranked
from mmsbgen.db.records.tuning_records import TrialRecord
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.families.mmsb import MMSB
from mmsbgen.graph import Split, load_edge_list, split
from mmsbgen.kernels.build import compile_side_by_side, traits_of
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.record_key import key_of, program_digest
from mmsbgen.kernels.space import Config
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.options.options import Options


class Tried(NamedTuple):
    """A configuration, and seconds of a call by itself where a trial has them."""

    config: Config
    alone_s: float | None


def trials_of(sources: Sequence[str], database: str | None) -> list[TrialRecord]:
    """Trials that work, of all sources."""
    found: list[TrialRecord] = []
    for source in sources or [database]:
        if source is not None and source.endswith((".jsonl", ".jsonl.gz")):
            found += [trial for trial in jsonl.read(Path(source)).trials if trial.status == "ok"]
            continue
        with open_store(source, read_only=True) as store:
            if sources and store.missing:  # a user who never tuned has no database, and is tried with the defaults
                raise InputError(f"--source {source}: there is no tuning database at {store.location}")
            found += store.trials(status="ok")
    return found


def tried(
    trials: Sequence[TrialRecord], info: DeviceInfo, kernel: str, problem: Problem, used: Config, most: int
) -> list[Tried]:
    """What a kernel is tried with: the one in use first, then the best by themselves, then the default."""
    spec, traits = MMSB.kernel(kernel), traits_of(info)
    key = key_of(info, spec, problem)
    same = [
        trial
        for trial in trials
        if (trial.key.kernel, trial.key.problem) == (key.kernel, key.problem)
        and trial.key.device.identity == key.device.identity
    ]
    by_uid = {trial.uid: trial for trial in same}
    best = [by_uid[one.uid] for one in ranked(map(candidate, of_newest_programs(same)))]
    alone = [(dict(trial.config), trial.median_s) for trial in best]
    wanted = [dict(used), *(config for config, _ in alone[:most]), dict(spec.default(problem, traits))]
    found: list[Tried] = []
    for config in wanted:
        if any(config == one.config for one in found):
            continue
        if (why := spec.space.refusal(config, problem, traits)) is not None:
            progress(f"  left out: {config_text(config)}: {why}")
        else:
            found.append(Tried(config, next((seconds for other, seconds in alone if other == config), None)))
    return found


@contextmanager
def chains(
    device: Device, parts: Split, options: Options, database: str | None, kernel: str, configs: Sequence[Tried]
) -> Iterator[dict[int, Sampler]]:
    """A started chain for each configuration that the device takes, by its place in the list."""
    with ExitStack() as stack:
        found = {}
        for place, one in enumerate(configs):
            try:
                sampler = stack.enter_context(chain(device, parts, options, database, fixed={kernel: one.config}))
            except MmsbgenError as error:
                progress(f"  left out: {config_text(one.config)}: {error}")
                continue
            make(sampler, 1)
            found[place] = sampler
        yield found


def make(sampler: Sampler, count: int) -> None:
    """Make ``count`` iterations, of blocks sweeps, and wait for them."""
    advance(sampler, count * (sampler.per_sweep if sampler.options.block else 1))


def timed(sampler: Sampler, count: int) -> Callable[[int], float]:
    """Seconds of an iteration or a sweep, the mean of ``count``."""
    return lambda number: wall(sampler, make, count, 1).median


def measure(
    device: Device, parts: Split, options: Options, kernel: str, trials: Sequence[TrialRecord], args: argparse.Namespace
) -> dict[str, Any]:
    """Time chains by all configurations of a kernel in turns."""
    with chain(device, parts, options, args.database) as sampler:
        if kernel not in sampler.kernels:
            raise InputError(f"--kernel {kernel}: this chain has {', '.join(sorted(sampler.kernels))}")
        problem, used = sampler.kernels[kernel].problem, dict(sampler.kernels[kernel].config)
    configs = tried(trials, device.info, kernel, problem, used, args.most)
    compile_side_by_side(device, [(MMSB.kernel(kernel), problem, one.config) for one in configs])
    with chains(device, parts, options, args.database, kernel, configs) as found:
        if not found:
            raise InputError(f"--kernel {kernel}: {device.info.name} takes none of {len(configs)} configurations")
        times = interleave({str(place): timed(one, args.count) for place, one in found.items()}, args.repetitions, 60.0)
    key = key_of(device.info, MMSB.kernel(kernel), problem)
    programs = [program_digest(MMSB, key, one.config) for one in configs]
    return {
        "device": list(key.device.identity),
        "kernel": kernel,
        "template_digest": key.kernel.template_digest,
        "problem": dict(key.problem.params),
        "configs": [
            {"config": dict(configs[int(place)].config), "in_use": configs[int(place)].config == used}
            | {"program": programs[int(place)], "alone_s": configs[int(place)].alone_s, **sample.as_dict()}
            for place, sample in times.items()
        ],
    }


def lines(k: int, found: dict[str, Any]) -> list[list[str]]:
    """Rows of the table, the fastest in the chain first."""
    in_use: Config = next((one["config"] for one in found["configs"] if one["in_use"]), {})
    used = next((one["median_s"] for one in found["configs"] if one["in_use"]), None)
    told = []
    for one in sorted(found["configs"], key=lambda one: one["median_s"]):
        alone = f"{one['alone_s'] * 1e6:.4g}" if one["alone_s"] else "-"
        taken = f"{one['median_s'] * 1e6:.5g} ± {one['iqr_s'] * 1e6:.2g}"
        ratio = f"{one['median_s'] / used:.3f}" if used else "-"
        name = f"{config_text(one['config'])}, in use" if one["in_use"] else config_text(_apart(one["config"], in_use))
        told.append([f"{found['kernel']}, K = {k}", name, alone, taken, ratio])
    return told


def _apart(config: Config, other: Config) -> Config:
    """The values of a configuration that another does not have."""
    return {name: value for name, value in config.items() if name not in other or other[name] != value}


def bench(args: argparse.Namespace) -> None:
    """Measure all that was asked for, and write the report."""
    trials = trials_of(args.source, args.database)
    parts = split(load_edge_list(args.graph), validation=0.01, seed=0)
    what = "A sweep" if args.mini_batch == "block" else "An iteration"
    report = Report(
        f"{what} by configurations of one kernel",
        f"{parts.graph.name}: N = {parts.graph.n_vertices}, {args.mini_batch} mini-batches, {args.step} step, draws "
        f"{'off' if args.no_noise else 'on'}. Microseconds: of a kernel's call by itself, medians of its trials; of "
        "the chain medians and distances between quartiles, in turns. Each chain differs from a run's in one kernel. "
        "Of a configuration the values are shown that differ from the one in use.",
    )
    report.data["results"] = []
    for device in opened(report, args.device):
        rows = []
        for k in args.k or [1024]:
            options = Options(
                n_communities=k,
                mini_batch=args.mini_batch,
                mini_batch_size=args.m,
                n_partners=args.n,
                partners=args.partners,
                products=args.products,
                step=args.step,
                noise=not args.no_noise,
                start="random",
                seed=1,
            )
            for kernel in args.kernel:
                found = measure(device, parts, options, kernel, trials, args)
                told = lines(k, found)
                progress(f"K = {k}, {kernel}: {len(told)} configurations, the fastest {told[0][3]} us")
                rows += told
                report.data["results"].append(found)
        head = ["kernel", "configuration", "by itself, us", f"{what.lower()}, us", "over the one in use"]
        report.table(head, rows)
    report.write(f"chain-{args.name}" if args.name else "chain", folder=args.output)


def main() -> None:
    """Run the benchmark."""
    options = parser(__doc__, repetitions=15)
    options.add_argument("--graph", type=Path, required=True, help="edge list")
    options.add_argument("--kernel", action="append", required=True, help="a kernel of the chain; repeat for several")
    options.add_argument("-k", type=int, action="append", help="communities; repeat for several (1024)")
    options.add_argument("--mini-batch", default="block", help="mini-batches (block)")
    options.add_argument("-m", type=int, help="vertices of a block, non-links of a star (what detect takes)")
    options.add_argument("-n", type=int, help="partners (what detect takes)")
    options.add_argument("--partners", default="stratified", help="of stars (stratified)")
    options.add_argument("--products", choices=("single", "half"), help="of shared partners (what detect takes)")
    options.add_argument("--step", default="split", help="step (split)")
    options.add_argument("--no-noise", action="store_true", help="steps do not draw")
    options.add_argument("--source", action="append", default=[], help="trials to try: a database or an exported file")
    options.add_argument("--most", type=int, default=6, help="configurations of a kernel, the best by themselves (6)")
    options.add_argument("--count", type=int, default=4, help="sweeps, or iterations, of a repetition (4)")
    options.add_argument("--name", help="of the report: chain-NAME")
    args = options.parse_args()
    try:
        bench(args)
    except InputError as error:
        options.error(str(error))


if __name__ == "__main__":
    main()
