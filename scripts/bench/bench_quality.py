#!/usr/bin/env python
"""How well found communities agree with known ones: mmsbgen with its defaults, and other methods.

Writes docs/quality.md and, with every run, docs/reports/quality.json.  Each run is a process of its own with a time
limit, and is kept under build/quality, so that a benchmark that was interrupted goes on where it stopped; runs that
are not there are taken from docs/reports/quality.json.  Without --data the page is made of these alone.

The baselines need: pip install -e '.[evaluate,benchmark]'.  To renew mmsbgen's own rows:
--only mmsbgen,mmsbgen-random,start-communities,start-ego.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _harness import progress
from _quality_graphs import GRAPHS, HELD_OUT, QUOTED, Case
from _quality_methods import (
    ADAMIC_ADAR,
    COMMON,
    FROM_RANDOM,
    METHODS,
    MMSBGEN,
    ONE,
    START_COVERS,
    SVINET,
    TITLES,
    missing_library,
    neighbour_auc,
    run_limited,
    run_svinet,
    start_cover,
    write_cover,
)
from _quality_page import page
from _report import REPORTS, ROOT, environment, processor

BUILD = ROOT / "build" / "quality"
COVER_METHODS = (MMSBGEN, FROM_RANDOM, *START_COVERS, *METHODS, SVINET, ONE)
AUC_METHODS = (MMSBGEN, FROM_RANDOM, COMMON, ADAMIC_ADAR)


def run_mmsbgen(case: Case, seed: int, folder: Path, limit: float, *more: str) -> dict[str, Any]:
    """The command of the page's first lines, as a user would give it, with ``more`` options."""
    command = [str(Path(sys.executable).parent / "mmsbgen"), "detect", str(case.file.resolve()), "-k", str(case.k)]
    command += ["--seed", str(seed), "-o", "out", *more]
    if case.truth is None:
        command += ["--validation", str(HELD_OUT[case.name][1]), "--test", str(HELD_OUT[case.name][2])]
    begin = time.perf_counter()
    done = run_limited(command, limit, folder)
    seconds = time.perf_counter() - begin
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-300:])
    record = json.loads((folder / "out" / "run.json").read_text())
    found: dict[str, Any] = {"seconds": seconds, "device": record["device"]["name"]}
    course = record.get("course", {})
    found |= {"start": record.get("start", course.get("start")), "starts": record.get("starts", course.get("trials"))}
    found |= {key: record[key] for key in ("options", "iterations", "rule") if key in record}
    found["versions"] = {"mmsbgen": record["mmsbgen"]}
    found |= {"log_likelihood": record["trace"][-1]["log_likelihood"], "held_out": record["held_out"]}
    if case.truth is None:
        return found | {"auc": record["trace"][-1]["auc"], "test_auc": record["held_out"]["test"]["auc"]}
    return found | {"scores": case.scores(folder / "out" / "communities.txt")}


def run_baseline(method: str, case: Case, seed: int, folder: Path, limit: float) -> dict[str, Any]:
    """A method of a library, in a process of its own."""
    script = Path(__file__).with_name("_quality_methods.py")
    command = [sys.executable, "-W", "ignore", str(script), method, str(case.file.resolve())]
    done = run_limited([*command, str(case.k), str(seed), str(folder)], limit, folder)
    if done.returncode:
        raise RuntimeError((done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1][-300:])
    versions = {METHODS[method].needs: importlib.metadata.version(METHODS[method].needs)}
    found = json.loads((folder / "found.json").read_text()) | {"versions": versions}
    return found | {"scores": case.scores(folder / "communities.txt")}


def run(method: str, case: Case, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """One run as it is kept: graph, method, seed, ``status`` (ok, timeout or failed), and what came out."""
    kept = {"graph": case.name, "digest": case.graph.digest, "method": method, "seed": seed, "limit": args.limit}
    kept |= {"date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}", "processor": processor()}
    kept |= {"cores": len(os.sched_getaffinity(0)), "load": round(os.getloadavg()[0], 2)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        begin = time.perf_counter()
        try:
            if method == MMSBGEN:
                found = run_mmsbgen(case, seed, folder, args.limit)
            elif method == FROM_RANDOM:
                found = run_mmsbgen(case, seed, folder, args.limit, "--start", "random")
            elif method in (COMMON, ADAMIC_ADAR):
                known, test = neighbour_auc(method, case.graph, HELD_OUT[case.name][1:], seed)
                found = {"auc": known, "test_auc": test}
            elif method in METHODS:
                found = run_baseline(method, case, seed, folder, args.limit)
            else:
                cover = [list(range(case.graph.n_vertices))]
                if method in START_COVERS:
                    cover = start_cover(START_COVERS[method], case.graph, case.k, seed)
                if method == SVINET:
                    cover = run_svinet(args.svinet, case.graph, case.k, seed, folder, args.limit)
                taken = time.perf_counter() - begin
                write_cover(folder / "communities.txt", cover, case.graph.ids)
                found = {"seconds": taken, "scores": case.scores(folder / "communities.txt")}
        except subprocess.TimeoutExpired:
            return kept | {"status": "timeout"}
        except Exception as error:  # what one method does wrong must not end the benchmark
            return kept | {"status": "failed", "message": " ".join(f"{type(error).__name__}: {error}".split())}
        return kept | {"status": "ok", "seconds": time.perf_counter() - begin} | found


def seeds_of(method: str, seeds: int) -> range:
    """Methods without chance run once."""
    return range(1 if method == ONE or (method in METHODS and not METHODS[method].seeded) else seeds)


def kept_file(run_: dict[str, Any]) -> Path:
    return BUILD / run_["graph"] / run_["method"] / f"{run_['seed']}.json"


def known_runs(report: Path) -> dict[tuple[str, str, int], dict[str, Any]]:
    """Runs of the report, and before them those under build/quality."""
    runs = json.loads(report.read_text())["runs"] if report.exists() else []
    runs += [json.loads(file.read_text()) for file in sorted(BUILD.glob("*/*/*.json"))]
    return {(one["graph"], one["method"], one["seed"]): one for one in runs}


def run_all(cases: list[Case], args: argparse.Namespace, known: dict[tuple[str, str, int], dict[str, Any]]) -> None:
    """Make the runs that are missing, or are to be renewed, and keep each at once."""
    wanted = args.only or args.methods
    for case in cases:
        offered = AUC_METHODS if case.truth is None else COVER_METHODS
        for method in [one for one in offered if wanted is None or one in wanted]:
            if method == SVINET and args.svinet is None:
                continue
            if args.only:
                for key in [key for key in known if key[:2] == (case.name, method)]:
                    kept_file(known.pop(key)).unlink(missing_ok=True)
            for seed in seeds_of(method, args.seeds):
                before = known.get((case.name, method, seed))
                if before is None or before["digest"] != case.graph.digest:
                    before = run(method, case, seed, args)
                    progress(f"{case.name}, {method}, seed {seed}: {before['status']} {before.get('message', '')}")
                    kept_file(before).parent.mkdir(parents=True, exist_ok=True)
                    kept_file(before).write_text(json.dumps(before, indent=1) + "\n")
                    known[case.name, method, seed] = before
                if before["status"] == "timeout":
                    break  # other seeds take as long


def write(known: dict[tuple[str, str, int], dict[str, Any]], cases: list[Case], args: argparse.Namespace) -> None:
    """Write the report of all runs and the page."""
    about = environment()
    before = json.loads(args.report.read_text()) if args.report.exists() else {"graphs": {}, "commands": []}
    graphs = before["graphs"] | {case.name: case.facts for case in cases}
    graphs = {name: graphs[name] for name in [*GRAPHS, *graphs] if name in graphs}
    order = {method: place for place, method in enumerate([*COVER_METHODS, *AUC_METHODS])}
    runs = sorted(
        (one for one in known.values() if one["graph"] in graphs),
        key=lambda one: (list(graphs).index(one["graph"]), order[one["method"]], one["seed"]),
    )
    commands = list(dict.fromkeys([*before["commands"], *([about["command"]] if args.data else [])]))
    report = {"title": "Quality", "environment": about, "commands": commands, "graphs": graphs, "runs": runs}
    report["quoted"] = {"svinet, communities.txt and pi > 0.1": QUOTED}
    args.report.parent.mkdir(parents=True, exist_ok=True)
    args.report.write_text(json.dumps(report, indent=1) + "\n")

    machines = dict.fromkeys(f"{one['processor']}, {one['cores']} cores" for one in runs)
    versions = dict.fromkeys(f"{name} {v}" for one in runs for name, v in one.get("versions", {}).items())
    loads, dates = [one["load"] for one in runs] or [0.0], [one["date"] for one in runs] or ["-"]
    limits = [f"{limit:g}" for limit in sorted({one["limit"] for one in runs} or {args.limit})]
    facts = [
        *(f"command: `{command}`" for command in commands),
        f"dates: {min(dates)} to {max(dates)}",
        f"machine: {'; '.join(machines)}; load averages from {min(loads):.1f} to {max(loads):.1f}",
        f"versions: {', '.join(versions)}",
        f"limit of a run: {' or '.join(limits)} s; after one that reached it no other seed was tried",
        "every run with its scores: [reports/quality.json](reports/quality.json)",
    ]
    args.page.write_text(page(runs, graphs, facts))


def names(text: str) -> list[str]:
    return [name for name in text.replace(",", " ").split() if name]


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with NAME.txt.gz and NAME.cmty.txt.gz")
    parser.add_argument("--graphs", type=names, default=list(GRAPHS), help=f"names ({', '.join(GRAPHS)})")
    parser.add_argument("--methods", type=names, help=f"what to run ({', '.join(TITLES)})")
    parser.add_argument("--only", type=names, help="methods to run anew, whatever is kept; the others stay as they are")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each method, with seeds from 0 on (5)")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds that a run may take (120)")
    parser.add_argument("--svinet", type=Path, help="the program svinet; without, rows of an earlier measurement stay")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "quality.md", help="the page (docs/quality.md)")
    parser.add_argument("--report", type=Path, default=REPORTS / "quality.json", help="(docs/reports/quality.json)")
    args = parser.parse_args()

    chosen = args.only or args.methods or [*METHODS]
    unknown = [name for name in chosen if name not in TITLES]
    if unknown:
        parser.error(f"no method {unknown[0]!r}; there are {', '.join(TITLES)}")
    cases = [Case(name, args.data / f"{name}.txt.gz") for name in args.graphs] if args.data else []
    for case in cases:
        missing = [file for file in (case.file, case.file.with_name(f"{case.name}.cmty.txt.gz")) if not file.exists()]
        if missing and (case.name not in HELD_OUT or missing[0] == case.file):
            parser.error(f"{missing[0]} is not there: name the folder with --data, or other graphs with --graphs")
    absent = {missing_library(name) for name in chosen} - {None}
    if cases and absent:
        parser.error(f"{', '.join(sorted(map(str, absent)))}: not installed; pip install -e '.[evaluate,benchmark]'")
    known = known_runs(args.report)
    run_all(cases, args, known)
    write(known, cases, args)
    progress(f"wrote {args.page} and {args.report}")


if __name__ == "__main__":
    main()
