"""Held-out metrics over iterations of modes of the sampler, against the plain one, next to the spread between seeds.

    scripts/bench/bench_modes.py --device cuda:0 --graph CA-GrQc=50 --mode bfloat16 --mode float16
    scripts/bench/bench_modes.py --device cuda:0 --mini-batch block --iterations 200 --mode "half products"
    scripts/bench/bench_modes.py --device cuda:0 --mode "shared, half products" --mode "shared-uniform, half products"
    scripts/bench/bench_modes.py --device pocl --mode shared-uniform --seeds 5 --name modes-shared-uniform

A mode is a set of options that computes the same chain in another way, such as rows of pi in 16 bits, or draws for it
in another, such as partners that a star's vertices share.  The plain mode has float32 throughout and a vertex's own
partners, as many as the other: uniform ones for 'shared-uniform', else stratified ones; 'half products of shared' is
held against shared partners in single precision.  All modes run from the
same seeds on one split of the graph, so that what differs between runs is the chains' own draws, and the mode.  A
mode's mean lies within the spread where it is no further from the plain mode's than the standard deviation between
seeds, that of both modes together; of modes that do not differ, with ten seeds, one comparison in 26 lies outside, with
five one in seven.  So Welch's t-test stands beside each comparison, and of all of a mode's the report says what these
tests tell apart when corrected for their number.
Writes docs/reports/modes.md and .json, or what --name says, and asks for --revision where git knows none.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from _common import REPORTS, ROOT, Report, chain, chosen_devices, progress
from _spread import compared, holm, outside_by_chance

from mmsbgen.backends import Device, DeviceInfo, open_device
from mmsbgen.base.errors import InputError
from mmsbgen.graph import Graph, GraphWarning, Split, load_edge_list, split
from mmsbgen.sampler.chain.chain_problem import products_of
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.run.run import run


@dataclass(frozen=True)
class Mode:
    """The options that make a mode, beside those of the command line.

    ``own`` names the partners of the plain mode that it is held against, shared ones for another way to compute with
    them; None: those of --partners.  ``blocks``: of
    block mini-batches, the others are of stars.
    """

    options: Mapping[str, Any]
    own: str | None = None
    blocks: bool = False

    @property
    def shares(self) -> bool:
        """Whether the vertices of a star share their partners."""
        return self.own is not None


#: Modes by name.  Rows of 16 bits refuse shared partners, products in 16 bits need them.
MODES = {
    "bfloat16": Mode({"storage": "bfloat16"}),
    "float16": Mode({"storage": "float16"}),
    "half products": Mode({"products": "half"}, blocks=True),
    "shared": Mode({"partners": "shared"}, own="stratified"),
    "shared-uniform": Mode({"partners": "shared-uniform"}, own="uniform"),
    "shared, half products": Mode({"partners": "shared", "products": "half"}, own="stratified"),
    "shared-uniform, half products": Mode({"partners": "shared-uniform", "products": "half"}, own="uniform"),
    "half products of shared": Mode({"products": "half"}, own="shared"),
    "half products of shared-uniform": Mode({"products": "half"}, own="shared-uniform"),
}
#: What modes are held against; blocks would multiply in 16 bits where the device can.
PLAIN = {"storage": "float32", "products": "single"}
METRICS = {"log_likelihood": "log-likelihood a pair", "perplexity": "balanced perplexity", "auc": "AUC"}
GRAPHS = ("CA-GrQc=50", "lfr-n1000-k28=28")
#: Chance of a wrong verdict of one t-test, or of any of those that are corrected for their number.
LEVEL = 0.01


class Case(NamedTuple):
    """A graph, its number of communities, and the one split that all runs have."""

    graph: Graph
    k: int
    parts: Split

    @property
    def label(self) -> str:
        """For a reader."""
        return f"{self.graph.name} (K = {self.k})"


class Course(NamedTuple):
    """One run: the evaluations looked at, by iteration, and seconds of the device by stage."""

    looks: dict[int, dict[str, float]]
    stages: dict[str, float]


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
    trace: list[dict[str, Any]] = []
    with chain(device, parts, options, database, fused=None) as sampler:
        run(sampler, trace)
        stages = sampler.stages.seconds()
    at = {row["iteration"]: row for row in trace}
    assert options.iterations is not None
    wanted = [options.iterations * (i + 1) // looks for i in range(looks)]
    return Course({i: {name: float(at[i][name]) for name in METRICS} for i in wanted}, stages)


def own_partners(args: argparse.Namespace, name: str) -> str:
    """The partners of the plain mode that a mode is held against."""
    return args.partners or MODES[name].own or "stratified"


def plain_name(own: str, block: bool) -> str:
    """The name of the plain mode with such partners of its own."""
    return "float32" if block else f"float32 {own}"


def rows_of(graph: str, courses: Mapping[str, Sequence[Course]], against: Mapping[str, str]) -> list[dict[str, Any]]:
    """One row for every metric, iteration and mode, plain ones too, which ``against`` does not have."""
    rows = []
    for metric in METRICS:
        for iteration in next(iter(courses.values()))[0].looks:
            values = {name: [one.looks[iteration][metric] for one in runs] for name, runs in courses.items()}
            for name in courses:
                found = compared(values[name], values[against.get(name, name)])
                row = {"graph": graph, "metric": metric, "iteration": iteration, "mode": name, "values": values[name]}
                rows.append(row | {"against": against.get(name)} | found.as_dict())
    return rows


def tables(report: Report, rows: Sequence[Mapping[str, Any]], against: Mapping[str, str]) -> None:
    """A table a metric and plain mode: a line an iteration, a column a mode."""
    plains = list(dict.fromkeys(against.values()))
    for metric, title in METRICS.items():
        for plain in plains:
            report.text(f"### {title}" + (f", against {plain}" if len(plains) > 1 else ""))
            names = [name for name in against if against[name] == plain]
            head = ["iteration", plain]
            for name in names:
                head += [name, "off, in spreads", "p", "within the spread"]
            lines: dict[int, list[str]] = {}
            for row in rows:
                if row["metric"] != metric or row["mode"] not in (plain, *names):
                    continue
                line = lines.setdefault(row["iteration"], [str(row["iteration"])])
                line.append(f"{row['mean']:.5g} ± {row['sd']:.2g}")
                if row["mode"] != plain:
                    line += [f"{row['off']:+.2f}", f"{row['p']:.2g}", "yes" if row["within"] else "no"]
            report.table(head, list(lines.values()))


def verdict(rows: Sequence[Mapping[str, Any]], mode: str) -> dict[str, Any]:
    """What a mode's comparisons say together: how many lie within, which is furthest off, what tests tell apart."""
    own = [row for row in rows if row["mode"] == mode]
    furthest = max(own, key=lambda row: abs(row["off"]))
    corrected = holm([row["p"] for row in own])
    return {
        "mode": mode,
        "against": own[0]["against"],
        "seeds": own[0]["seeds"],
        "comparisons": len(own),
        "within": sum(row["within"] for row in own),
        "outside_by_chance": len(own) * outside_by_chance(own[0]["seeds"]),
        "furthest": {name: furthest[name] for name in ("off", "graph", "metric", "iteration", "p")},
        "least_p": min(row["p"] for row in own),
        "least_corrected_p": min(corrected),
        "told_apart": sum(p < LEVEL for p in corrected),
    }


def said(found: Mapping[str, Any]) -> str:
    """A verdict in words."""
    furthest = found["furthest"]
    return (
        f"- {found['mode']}: {found['within']} of {found['comparisons']} means lie within the spread between seeds of "
        f"{found['against']} (of modes that do not differ {found['outside_by_chance']:.1f} would lie outside). The "
        f"largest deviation is {furthest['off']:+.2f} spreads, {METRICS[furthest['metric']]} of {furthest['graph']} at "
        f"iteration {furthest['iteration']}. Welch's t-tests, corrected for their number by Holm's method, tell "
        f"{found['told_apart']} apart at {LEVEL:.0%}: the least p is {found['least_p']:.2g}, "
        f"{found['least_corrected_p']:.2g} when corrected."
    )


def options_of(args: argparse.Namespace, k: int, seed: int, mode: Mapping[str, Any]) -> Options:
    """The options of one run."""
    given = {"mini_batch": args.mini_batch, "mini_batch_size": args.m, "n_partners": args.n}
    every = max(1, args.iterations // (args.looks * max(1, 20 // args.looks)))
    if args.iterations % (args.looks * every):
        raise InputError(f"--iterations {args.iterations}: take a multiple of {args.looks * every}, so that looks fit")
    return Options(n_communities=k, iterations=args.iterations, evaluate_every=every, seed=seed, **{**given, **mode})


def chosen_modes(args: argparse.Namespace, info: DeviceInfo) -> list[str]:
    """The modes asked for, else all of such mini-batches that the device has.

    Raises :class:`InputError` for one that is of other mini-batches, or that the device has not.
    """
    block = args.mini_batch == "block"
    fitting = [name for name, mode in MODES.items() if mode.blocks == block]
    asked = list(dict.fromkeys(args.mode or fitting))
    for name in asked:
        if name not in fitting:
            what = "block mini-batches" if MODES[name].blocks else "stars"
            raise InputError(
                f"--mode {name!r} is of {what}, not of --mini-batch {args.mini_batch}: take one of {', '.join(fitting)}"
            )
    found = []
    for name in asked:
        options = options_of(args, 2, 0, PLAIN | {"partners": own_partners(args, name)} | dict(MODES[name].options))
        try:
            products_of(options, info)
        except InputError as error:
            if args.mode:
                raise InputError(f"--mode {name!r}: {error}") from error
            progress(f"without {name!r}: {error}")
        else:
            found.append(name)
    if not found:
        raise InputError(
            f"{info.name} has no mode of {args.mini_batch} mini-batches but the plain one: nothing to compare"
        )
    return found


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="a device as 'mmsbgen devices' names it, or pocl, intel (an OpenCL CPU)")
    parser.add_argument("--graph", action="append", metavar="NAME=K", help=f"graphs ({', '.join(GRAPHS)})")
    parser.add_argument("--mode", action="append", choices=list(MODES), help="modes (all that the device has)")
    parser.add_argument("--seeds", type=int, default=10, help="runs of a mode on a graph, at least 2 (10)")
    parser.add_argument("--minutes", type=float, help="fewer seeds, but 2, where more would take longer than this")
    parser.add_argument("--iterations", type=int, default=20000, help="iterations of a run (20000)")
    parser.add_argument("--looks", type=int, default=5, help="iterations at which modes are compared (5)")
    parser.add_argument("--mini-batch", default="random-node", help="mini-batches (random-node)")
    parser.add_argument("-m", type=int, help="non-links of a star (an eighth of the vertices, at most 4096)")
    parser.add_argument(
        "-n", type=int, help="partners of a vertex in all modes (32; 256 with shared ones, 512 of blocks)"
    )
    parser.add_argument(
        "--partners",
        choices=("stratified", "uniform"),
        help="a vertex's own (stratified; uniform of what 'shared-uniform' is held against)",
    )
    parser.add_argument("--database", metavar="URL", help="tuning database (default: the user's)")
    parser.add_argument("--revision", help="of the sources, where they have no git history beside them")
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
    info = chosen_devices([args.device] if args.device else None)[0]
    block, names = args.mini_batch == "block", chosen_modes(args, info)
    args.n = args.n or (512 if block else 256 if any(MODES[name].shares for name in names) else 32)
    report = Report(
        "Modes of the sampler",
        f"{args.mini_batch} mini-batches, {args.n} partners, {args.iterations} iterations. Metrics are of held-out "
        "pairs, those of the second half of a run of the running mean of its link probabilities. A mode lies within "
        "the spread where its mean is off by no more than the standard deviation between seeds.",
        behind="standard deviations between seeds",
    )
    facts = report.data["environment"]
    if args.revision:
        facts["revision"] = args.revision
    elif facts["revision"] == "unknown":
        raise InputError(
            "--revision: these sources have no git history; give what 'git describe --always' says of them"
        )
    modes: dict[str, dict[str, Any]] = {}
    against = {}
    for name in names:
        own = own_partners(args, name)
        against[name] = plain_name(own, block)
        modes[against[name]] = {**PLAIN, "partners": own}
        modes[name] = {**modes[against[name]], **MODES[name].options}
    cases = [case_of(text) for text in dict.fromkeys(args.graph or GRAPHS)]
    report.devices.append(info)
    courses = courses_of(args, info, modes, cases)
    rows = {name: rows_of(name, runs, against) for name, runs in courses.items()}
    verdicts = [verdict([row for found in rows.values() for row in found], name) for name in names]
    report.data |= {"options": options_of(args, 2, 0, PLAIN).as_dict(), "modes": modes, "verdicts": verdicts}
    report.text(f"## All graphs, {verdicts[0]['seeds']} seeds")
    report.text(*map(said, verdicts))
    report.data["graphs"] = []
    for case in cases:
        loaded, own_rows = case.graph, rows[case.label]
        report.text(f"## {loaded.name}: N = {loaded.n_vertices}, {loaded.n_links} links, K = {case.k}")
        report.text(*(said(verdict(own_rows, name)) for name in names))
        tables(report, own_rows, against)
        stages = {mode: [one.stages for one in runs] for mode, runs in courses[case.label].items()}
        report.data["graphs"].append({"graph": loaded.name, "k": case.k, "rows": own_rows, "stage_seconds": stages})
    report.write(args.name, folder=args.output)


def case_of(text: str) -> Case:
    """The case of ``NAME=K``."""
    path, k = graph_of(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)
        loaded = load_edge_list(path)
    return Case(loaded, k, split(loaded, validation=Options(k).held_out_share(loaded.n_links), seed=0))


def courses_of(
    args: argparse.Namespace,
    info: DeviceInfo,
    modes: Mapping[str, Mapping[str, Any]],
    cases: Sequence[Case],
) -> dict[str, dict[str, list[Course]]]:
    """The runs by graph and mode, as many of each."""
    courses: dict[str, dict[str, list[Course]]] = {case.label: {name: [] for name in modes} for case in cases}
    begin = time.monotonic()
    with open_device(info.spec) as device:
        # In turns, so that what an interruption leaves and what a busy machine costs is the same for all.
        for seed in range(1, args.seeds + 1):
            would_take = (time.monotonic() - begin) * seed / max(1, seed - 1)
            if args.minutes is not None and seed > 2 and would_take > 60 * args.minutes:
                progress(f"{seed - 1} seeds: another one would take longer than --minutes {args.minutes:g}")
                break
            for case in cases:
                for name, mode in modes.items():
                    found = course(device, case.parts, options_of(args, case.k, seed, mode), args.database, args.looks)
                    courses[case.label][name].append(found)
                    last = list(found.looks.values())[-1]
                    progress(f"{case.label} seed {seed} {name}: " + ", ".join(f"{n} {x:.5g}" for n, x in last.items()))
    return courses


if __name__ == "__main__":
    main()
