"""Held-out metrics over iterations of modes of the sampler, against the plain one, next to the spread between seeds.

    scripts/bench/bench_modes.py --device cuda:0 --graph CA-GrQc=50 --mode bfloat16 --mode float16
    scripts/bench/bench_modes.py --device cuda:0 --mini-batch block -n 512 --iterations 200 --mode "half products"
    scripts/bench/bench_modes.py --device pocl --partners uniform --mode shared-uniform --name modes-shared-uniform

A mode is a set of options that computes the same chain in another way, such as rows of pi in 16 bits, or draws for it
in another, such as partners that a star's vertices share.  The first mode is the plain one.  All modes run from the
same seeds on one split of the graph, so that what differs between runs is the chains' own draws, and the mode.  A
mode's mean lies within the spread where it is no further from the plain mode's than the standard deviation between
seeds, that of both modes together; of modes that do not differ, with five seeds, one comparison in nine lies outside.
So a t-test of the means stands beside it.
Writes docs/reports/modes.md and .json, or what --name says.
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from _common import REPORTS, ROOT, Report, chosen_devices, progress
from scipy import stats

from mmsbgen.backends import Device, open_device
from mmsbgen.db.selection import Index
from mmsbgen.db.store import open_store
from mmsbgen.errors import InputError
from mmsbgen.families.mmsb import MMSB
from mmsbgen.graph import GraphWarning, Split, load_edge_list, split
from mmsbgen.runtime import Runtime
from mmsbgen.sampler.options import Options
from mmsbgen.sampler.run import run
from mmsbgen.sampler.sampler import Sampler

#: Modes by name and the options that make them; the first is what the others are held against.
MODES: dict[str, dict[str, Any]] = {
    "float32": {},
    "bfloat16": {"storage": "bfloat16"},
    "float16": {"storage": "float16"},
    "half products": {"products": "half"},
    "shared": {"partners": "shared"},
    "shared-uniform": {"partners": "shared-uniform"},
}
METRICS = {"log_likelihood": "log-likelihood a pair", "perplexity": "balanced perplexity", "auc": "AUC"}
GRAPHS = ("CA-GrQc=50", "lfr-n1000-k28=28")
#: Chance of a wrong verdict of one t-test.
LEVEL = 0.01


class Course(NamedTuple):
    """One run: the evaluations looked at, by iteration, and seconds of the device by stage."""

    looks: dict[int, dict[str, float]]
    stages: dict[str, float]


@dataclass(frozen=True)
class Comparison:
    """A mode's means over seeds next to the plain mode's, at one iteration, in one metric."""

    mean: float
    sd: float
    plain: float
    plain_sd: float
    seeds: int

    @property
    def spread(self) -> float:
        """Standard deviation between seeds, of both modes together."""
        return float(((self.sd**2 + self.plain_sd**2) / 2) ** 0.5)

    @property
    def within(self) -> bool:
        """Whether the means differ by no more than the spread."""
        return abs(self.mean - self.plain) <= self.spread

    @property
    def p(self) -> float:
        """Chance of means that differ as much between modes that do not (Welch's t-test)."""
        if self.mean == self.plain:
            return 1.0
        sides = (self.mean, self.sd, self.seeds, self.plain, self.plain_sd, self.seeds)
        return float(stats.ttest_ind_from_stats(*sides, equal_var=False).pvalue) if self.spread else 0.0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "spread": self.spread, "within": self.within, "p": self.p}


def compared(values: Sequence[float], plain: Sequence[float]) -> Comparison:
    """The comparison of a mode's values by seed with the plain mode's."""
    mean, sd = statistics.fmean(values), statistics.stdev(values)
    return Comparison(mean, sd, statistics.fmean(plain), statistics.stdev(plain), len(values))


def graph_of(text: str) -> tuple[Path, int]:
    """``NAME=K``: a graph of tests/data or a path, and its number of communities."""
    name, _, k = text.rpartition("=")
    known = ROOT / "tests" / "data" / f"{name}.txt.gz"
    path = known if known.exists() else Path(name)
    if not k.isdigit() or not path.exists():
        raise InputError(f"--graph {text}: write NAME=K, a graph of tests/data or a path, and its communities")
    return path, int(k)


def course(device: Device, parts: Split, options: Options, database: str | None, looks: int) -> Course:
    """One run in the configurations that a run of these options would get."""
    with open_store(database, read_only=True) as store:
        sampler = Sampler(parts, options, Runtime(device, MMSB, Index(store)), fused=None)
        try:
            sampler.initialise()
            trace: list[dict[str, Any]] = []
            run(sampler, trace)
            stages = sampler.stages.seconds()
        finally:
            sampler.close()
    at = {row["iteration"]: row for row in trace}
    assert options.iterations is not None
    wanted = [options.iterations * (i + 1) // looks for i in range(looks)]
    return Course({i: {name: float(at[i][name]) for name in METRICS} for i in wanted}, stages)


def rows_of(courses: Mapping[str, Sequence[Course]]) -> list[dict[str, Any]]:
    """One row for every metric, iteration and mode."""
    plain = next(iter(courses))
    rows = []
    for metric in METRICS:
        for iteration in courses[plain][0].looks:
            values = {name: [one.looks[iteration][metric] for one in runs] for name, runs in courses.items()}
            for name in courses:
                found = compared(values[name], values[plain])
                row = {"metric": metric, "iteration": iteration, "mode": name, "values": values[name]}
                rows.append(row | found.as_dict())
    return rows


def tables(report: Report, rows: Sequence[Mapping[str, Any]], modes: Sequence[str]) -> None:
    """A table a metric: a line an iteration, a column a mode."""
    for metric, title in METRICS.items():
        report.text(f"### {title}")
        head = ["iteration", modes[0]]
        for name in modes[1:]:
            head += [name, "off, in spreads", "p", "within the spread"]
        lines: dict[int, list[str]] = {}
        for row in rows:
            if row["metric"] != metric:
                continue
            line = lines.setdefault(row["iteration"], [str(row["iteration"])])
            line.append(f"{row['mean']:.5g} ± {row['sd']:.2g}")
            if row["mode"] != modes[0]:
                off = (row["mean"] - row["plain"]) / row["spread"] if row["spread"] else 0.0
                line += [f"{off:+.2f}", f"{row['p']:.2g}", "yes" if row["within"] else "no"]
        report.table(head, list(lines.values()))


def verdicts(rows: Sequence[Mapping[str, Any]], modes: Sequence[str]) -> list[str]:
    """One sentence a mode."""
    said = []
    for name in modes[1:]:
        own = [row for row in rows if row["mode"] == name]
        within, differ = sum(row["within"] for row in own), sum(row["p"] < LEVEL for row in own)
        said.append(
            f"- {name}: {within} of {len(own)} means lie within the spread between seeds of {modes[0]}; a t-test tells "
            f"{differ} of them apart at {LEVEL:.0%}."
        )
    return said


def options_of(args: argparse.Namespace, k: int, seed: int, mode: str) -> Options:
    """The options of one run."""
    given = {"mini_batch": args.mini_batch, "mini_batch_size": args.m, "n_partners": args.n, "partners": args.partners}
    every = max(1, args.iterations // (args.looks * max(1, 20 // args.looks)))
    if args.iterations % (args.looks * every):
        raise InputError(f"--iterations {args.iterations}: take a multiple of {args.looks * every}, so that looks fit")
    return Options(n_communities=k, iterations=args.iterations, evaluate_every=every, seed=seed, **given | MODES[mode])


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="a device as 'mmsbgen devices' names it, or pocl, intel (an OpenCL CPU)")
    parser.add_argument("--graph", action="append", metavar="NAME=K", help=f"graphs ({', '.join(GRAPHS)})")
    parser.add_argument("--mode", action="append", choices=list(MODES), help="modes beside the first (all)")
    parser.add_argument("--seeds", type=int, default=5, help="runs of a mode, at least 2 (5)")
    parser.add_argument("--iterations", type=int, default=20000, help="iterations of a run (20000)")
    parser.add_argument("--looks", type=int, default=5, help="iterations at which modes are compared (5)")
    parser.add_argument("--mini-batch", default="random-node", help="mini-batches (random-node)")
    parser.add_argument("-m", type=int, help="non-links of a star (an eighth of the vertices, at most 4096)")
    parser.add_argument("-n", type=int, default=32, help="partners of a vertex (32)")
    parser.add_argument("--partners", default="stratified", help="uniform or stratified (stratified)")
    parser.add_argument("--database", metavar="URL", help="tuning database (default: the user's)")
    parser.add_argument("--name", default="modes", help="of the report (modes)")
    parser.add_argument("--output", type=Path, default=REPORTS, help="folder of the report (docs/reports)")
    args = parser.parse_args()
    try:
        compare(args)
    except InputError as error:
        parser.error(str(error))


def compare(args: argparse.Namespace) -> None:
    """Run every mode from every seed on every graph, and write the report."""
    if args.seeds < 2 or args.looks < 1:
        raise InputError(f"--seeds {args.seeds} --looks {args.looks}: a spread needs two seeds, a table one look")
    plain, *others = MODES
    # Blocks have rows of 32 bits and products of their own, stars the reverse.
    fitting = [name for name in others if ("products" in MODES[name]) == (args.mini_batch == "block")]
    modes = [plain, *(args.mode or fitting)]
    graphs = [graph_of(text) for text in args.graph or GRAPHS]
    for mode in modes:
        options_of(args, 2, 0, mode)
    info = chosen_devices([args.device] if args.device else None)[0]
    report = Report(
        "Modes of the sampler",
        f"{args.mini_batch} mini-batches, {args.n} {args.partners} partners, {args.iterations} iterations from "
        f"{args.seeds} seeds. Metrics are of held-out pairs, those of the second half of a run of the running mean of "
        "its link probabilities. A mode lies within the spread where its mean is off by no more than the standard "
        "deviation between seeds.",
        behind="standard deviations between seeds",
    )
    report.data |= {"options": options_of(args, 2, 0, plain).as_dict(), "modes": MODES, "graphs": []}
    report.devices.append(info)
    with open_device(info.spec) as device:
        for path, k in graphs:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", GraphWarning)
                loaded = load_edge_list(path)
            parts = split(loaded, validation=Options(k).held_out_share(loaded.n_links), seed=0)
            courses: dict[str, list[Course]] = {mode: [] for mode in modes}
            # In turns, so that what an interruption leaves and what a busy machine costs is the same for all.
            for seed in range(1, args.seeds + 1):
                for mode in modes:
                    found = course(device, parts, options_of(args, k, seed, mode), args.database, args.looks)
                    courses[mode].append(found)
                    last = list(found.looks.values())[-1]
                    progress(f"{loaded.name} seed {seed} {mode}: " + ", ".join(f"{n} {x:.5g}" for n, x in last.items()))
            rows = rows_of(courses)
            report.text(f"## {loaded.name}: N = {loaded.n_vertices}, {loaded.n_links} links, K = {k}")
            report.text(*verdicts(rows, modes))
            tables(report, rows, modes)
            stages = {mode: [one.stages for one in runs] for mode, runs in courses.items()}
            report.data["graphs"].append({"graph": loaded.name, "k": k, "rows": rows, "stage_seconds": stages})
    report.write(args.name, folder=args.output)


if __name__ == "__main__":
    main()
