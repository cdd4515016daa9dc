"""Runs that are kept: a benchmark that was interrupted goes on where it stopped, and some runs can be made anew."""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from _harness import progress
from _report import ROOT, environment, processor

from mmsbgen.graph import Graph, GraphWarning, load_edge_list

Run = dict[str, Any]
#: Runs by graph, method and seed.
Known = dict[tuple[str, str, int], Run]


@dataclass
class GraphCase:
    """A graph in a file."""

    name: str
    file: Path

    @cached_property
    def graph(self) -> Graph:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GraphWarning)
            return load_edge_list(self.file)


def attempt(case: GraphCase, method: str, seed: int, *, limit: float, make: Callable[[Path], Run]) -> Run:
    """One run as it is kept: graph, method, seed, ``status`` (ok, timeout or failed), and what ``make`` returned.

    ``make`` gets an empty folder, and raises TimeoutExpired when it takes too long.
    """
    kept: Run = {"graph": case.name, "digest": case.graph.digest, "method": method, "seed": seed, "limit": limit}
    kept |= {"date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}", "processor": processor()}
    kept |= {"cores": len(os.sched_getaffinity(0)), "load": round(os.getloadavg()[0], 2)}
    kept["revision"] = environment()["revision"]
    with tempfile.TemporaryDirectory() as name:
        begin = time.perf_counter()
        try:
            found = make(Path(name))
        except subprocess.TimeoutExpired:
            return kept | {"status": "timeout"}
        except Exception as error:  # what one method does wrong must not end the benchmark
            return kept | {"status": "failed", "message": " ".join(f"{type(error).__name__}: {error}".split())}
        return kept | {"status": "ok", "seconds": time.perf_counter() - begin} | found


def versions_of(*names: str) -> dict[str, str]:
    """The installed versions of libraries."""
    return {name: importlib.metadata.version(name) for name in names}


def kept_file(folder: Path, run: Run) -> Path:
    """Where a run is kept."""
    return folder / run["graph"] / run["method"] / f"{run['seed']}.json"


def known_runs(report: Path, folder: Path) -> Known:
    """Runs of the report, and before them those under ``folder``."""
    runs = json.loads(report.read_text())["runs"] if report.exists() else []
    runs += [json.loads(file.read_text()) for file in sorted(folder.glob("*/*/*.json"))]
    return {(one["graph"], one["method"], one["seed"]): one for one in runs}


def make_runs(
    case: Any, method: str, seeds: Iterable[int], make: Callable[[int], Run], known: Known, folder: Path, *, anew: bool
) -> None:
    """Make a method's runs on a graph that are missing, or all of them ``anew``, and keep each at once."""
    if anew:
        for key in [key for key in known if key[:2] == (case.name, method)]:
            kept_file(folder, known.pop(key)).unlink(missing_ok=True)
    for seed in seeds:
        run = known.get((case.name, method, seed))
        if run is None or run["digest"] != case.graph.digest:
            run = make(seed)
            progress(f"{case.name}, {method}, seed {seed}: {run['status']} {run.get('message', '')}")
            kept_file(folder, run).parent.mkdir(parents=True, exist_ok=True)
            kept_file(folder, run).write_text(json.dumps(run, indent=1) + "\n")
            known[case.name, method, seed] = run
        if run["status"] == "timeout":
            break  # other seeds take as long


def how_measured(commands: Sequence[str], runs: Sequence[Run], limit: float) -> list[str]:
    """What a page says of its runs; ``limit`` is the one that they would have had, if there are none."""
    machines = dict.fromkeys(f"{one['processor']}, {one['cores']} cores" for one in runs)
    versions = dict.fromkeys(f"{name} {v}" for one in runs for name, v in one.get("versions", {}).items())
    revisions = dict.fromkeys(one["revision"] for one in runs if "revision" in one and "mmsbgen" in one["method"])
    loads, dates = [one["load"] for one in runs] or [0.0], [one["date"] for one in runs] or ["-"]
    limits = [f"{limit:g}" for limit in sorted({one["limit"] for one in runs} or {limit})]
    return [
        *(f"command: `{command}`" for command in commands),
        f"dates: {min(dates)} to {max(dates)}",
        f"machine: {'; '.join(machines)}; load averages from {min(loads):.1f} to {max(loads):.1f}",
        f"versions: {', '.join(versions)}",
        *([f"revision of mmsbgen's rows: {', '.join(revisions)}"] if revisions else []),
        f"limit of a run: {' or '.join(limits)} s; after a run that reached it, no further seed was tried",
    ]


def add_options(
    parser: argparse.ArgumentParser, page: Path, report: Path, methods: Iterable[str], limit: float
) -> None:
    """Options of a benchmark whose runs are kept: what to run, for how long, and where the page and its runs go."""
    parser.add_argument("--methods", type=names, help=f"what to run ({', '.join(methods)})")
    parser.add_argument("--only", type=names, help="methods to run anew, whatever is kept; the others stay as they are")
    parser.add_argument("--limit", type=float, default=limit, help="seconds that a run may take (%(default)g)")
    parser.add_argument("--page", type=Path, default=page, help=f"the page ({page.relative_to(ROOT)})")
    parser.add_argument("--report", type=Path, default=report, help=f"its runs ({report.relative_to(ROOT)})")


def chosen_methods(parser: argparse.ArgumentParser, args: argparse.Namespace, methods: Iterable[str]) -> list[str]:
    """The methods to run, all by default; ends the program for one that there is not."""
    wanted = args.only or args.methods or list(methods)
    unknown = [name for name in wanted if name not in methods]
    if unknown:
        parser.error(f"no method {unknown[0]!r}; there are {', '.join(methods)}")
    return wanted


def commands_of(report: Path, ran: bool) -> list[str]:
    """The commands that made a report, and this one if it ``ran`` something."""
    before = json.loads(report.read_text())["commands"] if report.exists() else []
    return list(dict.fromkeys([*before, *([environment()["command"]] if ran else [])]))


def write_report(report: Path, title: str, commands: Sequence[str], graphs: Any, runs: Sequence[Run]) -> None:
    """Write what a page is made of, a run a line."""
    report.parent.mkdir(parents=True, exist_ok=True)
    about = json.dumps({"title": title, "commands": commands, "graphs": graphs}, indent=1)
    lines = ",\n".join(json.dumps(run) for run in runs)
    report.write_text(f'{about[:-2]},\n "runs": [\n{lines}\n]\n}}\n')


def names(text: str) -> list[str]:
    """The words of an option that takes several."""
    return [name for name in text.replace(",", " ").split() if name]
