#!/usr/bin/env python
"""How well found communities agree with known ones: mmsbgen with its defaults, and other methods.

Writes docs/quality.md and, with every run, docs/reports/quality.json.  Each run is a process of its own with a time
limit, and is kept under build/quality, so that a benchmark that was interrupted goes on where it stopped; runs that
are not there are taken from docs/reports/quality.json.  Without --data the page is made of these alone.

The baselines need: pip install -e '.[benchmark]'.  To renew mmsbgen's own rows:
--only mmsbgen,mmsbgen-random,start-communities,start-ego.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
from pathlib import Path

import _kept
from _harness import progress
from _kept import Known, Run
from _quality_graphs import GRAPHS, HELD_OUT, Case
from _quality_methods import (
    ADAMIC_ADAR,
    COMMON,
    FROM_RANDOM,
    METHODS,
    MMSBGEN,
    ONE,
    OWN,
    START_COVERS,
    missing_library,
    neighbour_auc,
    run_limited,
    start_cover,
    write_cover,
)
from _quality_page import page
from _report import REPORTS, ROOT

BUILD = ROOT / "build" / "quality"
#: Makes all runs; those of the repository were made in parts.
COMMAND = "python scripts/bench/bench_quality.py --data data"
COVER_METHODS = (MMSBGEN, FROM_RANDOM, *START_COVERS, *METHODS, ONE)
AUC_METHODS = (MMSBGEN, FROM_RANDOM, COMMON, ADAMIC_ADAR)
ALL_METHODS = tuple(dict.fromkeys([*COVER_METHODS, *AUC_METHODS]))


def run_mmsbgen(case: Case, method: str, seed: int, folder: Path, limit: float) -> Run:
    """The command of the page's first lines, as a user would give it, with the options of a ``method`` of ours."""
    command = [str(Path(sys.executable).parent / "mmsbgen"), "detect", str(case.file.resolve())]
    command += [*OWN[method](case.k), "--seed", str(seed), "-o", "out"]
    if case.truth is None:
        command += ["--validation", str(HELD_OUT[case.name][1]), "--test", str(HELD_OUT[case.name][2])]
    begin = time.perf_counter()
    done = run_limited(command, limit, folder)
    seconds = time.perf_counter() - begin
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-300:])
    record = json.loads((folder / "out" / "run.json").read_text())
    found: Run = {"seconds": seconds, "device": record["device"]["name"]}
    course = record.get("course", {})
    found |= {"start": record.get("start", course.get("start")), "starts": record.get("starts", course.get("trials"))}
    found |= {key: record[key] for key in ("options", "iterations", "rule") if key in record}
    found["versions"] = {"mmsbgen": record["mmsbgen"]}
    found |= {"log_likelihood": record["trace"][-1]["log_likelihood"], "held_out": record["held_out"]}
    if case.truth is None:
        return found | {"auc": record["trace"][-1]["auc"], "test_auc": record["held_out"]["test"]["auc"]}
    return found | {"scores": case.scores(folder / "out" / "communities.txt")}


def run_baseline(method: str, case: Case, seed: int, folder: Path, limit: float) -> Run:
    """A method of a library, in a process of its own."""
    script = Path(__file__).with_name("_quality_methods.py")
    command = [sys.executable, "-W", "ignore", str(script), method, str(case.file.resolve())]
    done = run_limited([*command, str(case.k), str(seed), str(folder)], limit, folder)
    if done.returncode:
        raise RuntimeError((done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1][-300:])
    found = json.loads((folder / "found.json").read_text()) | {"versions": _kept.versions_of(METHODS[method].needs)}
    return found | {"scores": case.scores(folder / "communities.txt")}


def found(method: str, case: Case, seed: int, args: argparse.Namespace, folder: Path) -> Run:
    """What a method finds on a graph, with its scores.  Raises TimeoutExpired."""
    if method in OWN:
        return run_mmsbgen(case, method, seed, folder, args.limit)
    if method in (COMMON, ADAMIC_ADAR):
        known, test = neighbour_auc(method, case.graph, HELD_OUT[case.name][1:], seed)
        return {"auc": known, "test_auc": test}
    if method in METHODS:
        return run_baseline(method, case, seed, folder, args.limit)
    begin = time.perf_counter()
    cover = [list(range(case.graph.n_vertices))]
    if method in START_COVERS:
        cover = start_cover(START_COVERS[method], case.graph, case.k, seed)
    taken = time.perf_counter() - begin
    write_cover(folder / "communities.txt", cover, case.graph.ids)
    return {"seconds": taken, "scores": case.scores(folder / "communities.txt")}


def run(method: str, case: Case, seed: int, args: argparse.Namespace) -> Run:
    """One run as it is kept."""
    make = functools.partial(found, method, case, seed, args)
    return _kept.attempt(case, method, seed, limit=args.limit, make=make)


def seeds_of(method: str, seeds: int) -> range:
    """Methods without chance run once."""
    return range(1 if method == ONE or (method in METHODS and not METHODS[method].seeded) else seeds)


def run_all(cases: list[Case], args: argparse.Namespace, known: Known) -> None:
    """Make the runs that are missing, or are to be renewed."""
    wanted = args.only or args.methods
    for case in cases:
        offered = AUC_METHODS if case.truth is None else COVER_METHODS
        for method in [one for one in offered if wanted is None or one in wanted]:
            make = functools.partial(run, method, case, args=args)
            _kept.make_runs(case, method, seeds_of(method, args.seeds), make, known, BUILD, anew=bool(args.only))


def write(known: Known, cases: list[Case], args: argparse.Namespace) -> None:
    """Write the report of all runs and the page."""
    before = json.loads(args.report.read_text())["graphs"] if args.report.exists() else {}
    graphs = before | {case.name: case.facts for case in cases}
    graphs = {name: graphs[name] for name in [*GRAPHS, *graphs] if name in graphs}
    order = {method: place for place, method in enumerate(ALL_METHODS)}
    runs = sorted(
        (one for one in known.values() if one["graph"] in graphs),
        key=lambda one: (list(graphs).index(one["graph"]), order[one["method"]], one["seed"]),
    )
    _kept.write_report(args.report, "Quality", _kept.commands_of(args.report, ran=bool(args.data)), graphs, runs)

    facts = _kept.how_measured([COMMAND], runs, args.limit)
    facts.append("runs with their scores, and the commands of each part: [reports/quality.json](reports/quality.json)")
    args.page.write_text(page(runs, graphs, facts))


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with NAME.txt.gz and NAME.cmty.txt.gz")
    parser.add_argument("--graphs", type=_kept.names, default=list(GRAPHS), help=f"names ({', '.join(GRAPHS)})")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each method, with seeds from 0 on (5)")
    _kept.add_options(parser, ROOT / "docs" / "quality.md", REPORTS / "quality.json", ALL_METHODS, limit=120.0)
    args = parser.parse_args()

    _kept.chosen_methods(parser, args, ALL_METHODS)
    cases = [Case(name, args.data / f"{name}.txt.gz") for name in args.graphs] if args.data else []
    for case in cases:
        missing = [file for file in (case.file, case.file.with_name(f"{case.name}.cmty.txt.gz")) if not file.exists()]
        if missing and (case.name not in HELD_OUT or missing[0] == case.file):
            parser.error(f"{missing[0]} is not there: name the folder with --data, or other graphs with --graphs")
    absent = {missing_library(name) for name in args.only or args.methods or METHODS} - {None}
    if cases and absent:
        parser.error(f"{', '.join(sorted(map(str, absent)))}: not installed; pip install -e '.[benchmark]'")
    known = _kept.known_runs(args.report, BUILD)
    run_all(cases, args, known)
    write(known, cases, args)
    progress(f"wrote {args.page} and {args.report}")


if __name__ == "__main__":
    main()
