#!/usr/bin/env python
"""ONMI by the number of communities of the model, and with the number that held-out pairs choose.

Graphs are those of Lancichinetti and Fortunato with overlapping communities, and real ones with known communities
(--data).  Runs take the defaults of `mmsbgen detect`.  Writes docs/reports/choose-k.md and .json.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import igraph
import numpy as np
from _harness import chosen_devices, in_processes, parser, progress
from _kept import GraphCase
from _lfr import lfr
from _report import Report

from mmsbgen.detection.detect import detect
from mmsbgen.scores.cover import read_cover
from mmsbgen.scores.measures import evaluate

#: K over the number of known communities.
MULTIPLES = (0.5, 0.7, 1.0, 1.4, 2.0, 4.0)
#: N, mean and largest degree, sizes of communities, mixing, share of overlapping vertices, memberships of these.
LFR = {
    f"LFR N={n}, {sizes[0]}-{sizes[1]}, {om} x {share:g}, mu={mu}": (n, degree, most, sizes, mu, share, om)
    for n, degree, most, sizes, share, cells in (
        (1000, 20.0, 50, (20, 50), 0.5, ((1, 0.1), (1, 0.3), (1, 0.5), (2, 0.1), (2, 0.3), (2, 0.5), (3, 0.3))),
        (1000, 15.0, 50, (10, 100), 0.2, ((2, 0.1), (2, 0.3), (4, 0.2))),
        (5000, 20.0, 100, (20, 100), 0.5, ((1, 0.3), (2, 0.3), (3, 0.2))),
    )
    for om, mu in cells
}
REAL = ("email-Eu-core", "fb_0", "fb_348", "fb_686", "fb_1684", "fb_3980", "lfr-n1000-k28", "amazon-1.90")


class Job(NamedTuple):
    """One run on a graph; ``multiple`` is None for ``-k auto``."""

    graph: str
    multiple: float | None
    seed: int
    device: str
    data: Path


def graph_of(name: str, data: Path) -> tuple[Any, list[list[Any]]]:
    """The links and the known communities, as ids."""
    if name in LFR:
        links, members = lfr(*LFR[name], seed=7)
        return links, [one.tolist() for one in members]
    return GraphCase(name, data / f"{name}.txt.gz").graph, read_cover(data / f"{name}.cmty.txt.gz")


def run(job: Job) -> dict[str, Any]:
    """ONMI, K and the seconds of a run, and ONMI of Leiden's communities."""
    links, known = graph_of(job.graph, job.data)
    distinct = len({frozenset(one) for one in known})
    k = "auto" if job.multiple is None else max(2, round(job.multiple * distinct))
    begin = time.perf_counter()
    found = detect(links, k, random_state=job.seed, device=job.device)
    seconds = time.perf_counter() - begin
    ids = found.memberships.ids.tolist()
    truth = [[type(ids[0])(one) for one in members] for members in known]
    onmi = evaluate(found.communities, truth, ids).onmi
    row = {"graph": job.graph, "multiple": job.multiple, "seed": job.seed, "communities": distinct}
    row |= {"onmi": onmi, "k": found.record["options"]["n_communities"], "seconds": seconds}
    if job.multiple is None:
        graph = igraph.Graph(found.graph.n_vertices, found.graph.links)
        parts = graph.community_leiden(objective_function="modularity", n_iterations=-1)
        row["leiden"] = evaluate([[ids[v] for v in part] for part in parts], truth, ids).onmi
    return row


def jobs(options: Any, device: str) -> Iterator[Job]:
    """All runs, those with many communities first."""
    for name in reversed([*REAL, *LFR] if options.data else list(LFR)):
        for multiple in (None, *reversed(MULTIPLES)):
            for seed in range(options.repetitions):
                yield Job(name, multiple, seed, device, options.data)


def told(report: Report, rows: list[dict[str, Any]]) -> None:
    """One line a graph."""
    by_graph: defaultdict[str, defaultdict[float | None, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        by_graph[row["graph"]][row["multiple"]].append(row)
    lines = []
    for name in [*REAL, *LFR]:
        if name not in by_graph:
            continue
        found = by_graph[name]
        means = {multiple: float(np.mean([row["onmi"] for row in those])) for multiple, those in found.items()}
        best = max(mean for multiple, mean in means.items() if multiple is not None)
        one = float(np.mean([row["seconds"] for multiple, those in found.items() if multiple == 1.0 for row in those]))
        auto = found[None]
        lines.append(
            (
                name,
                auto[0]["communities"],
                f"{np.mean([row['leiden'] for row in auto]):.3f}",
                *(f"{means[multiple]:.3f}" for multiple in MULTIPLES),
                f"{means[None]:.3f}",
                ", ".join(str(row["k"]) for row in auto),
                f"{means[None] / best:.2f}" if best > 0 else "",
                f"{np.mean([row['seconds'] for row in auto]) / one:.1f}",
            )
        )
    head = ("graph", "known", "Leiden", *(f"K x {one:g}" for one in MULTIPLES), "auto", "its K", "of best", "time")
    report.table(head, lines)


def main() -> None:
    """Run all jobs and write the report."""
    options = parser(__doc__, repetitions=2, database=False)
    options.add_argument("--data", type=Path, help="folder with the real graphs and their .cmty.txt.gz")
    options.add_argument("--processes", type=int, default=1, help="runs at a time (%(default)s)")
    given = options.parse_args()
    device = chosen_devices(given.device)[0]
    report = Report(
        "ONMI by the number of communities",
        "ONMI (max) of the covers found, means over seeds. K is a multiple of the number of known communities, or what "
        "held-out pairs choose (auto). Column `of best` is auto's ONMI over that of the best multiple, `time` auto's "
        "seconds over those of one run with the known number. LFR graphs are named by N, sizes of communities, "
        "memberships x share of the overlapping vertices, and mixing.",
        behind="",
    )
    report.devices.append(device)
    rows = []
    for row in in_processes(run, jobs(given, device.spec), given.processes):
        progress(f"{row['graph']} {row['multiple'] or 'auto'} {row['onmi']:.3f} {row['seconds']:.1f} s")
        rows.append(row)
    told(report, rows)
    report.data["runs"] = rows
    report.write("choose-k", given.output)


if __name__ == "__main__":
    main()
