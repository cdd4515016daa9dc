#!/usr/bin/env python
"""``mmsbgen update`` against a new run of ``mmsbgen detect`` after some links of a graph have changed.

| measure | target |
|---|---|
| AUC of pairs that neither command has seen, below that of the new run by at most | .003 |
| time of the whole command, of that of the new run | a tenth |

Links that nobody sees and as many non-links are taken out first.  Of the others ``--share`` are replaced: random links
go, and pairs with a common neighbour come.  Both commands start from files and write files, in turns.

Writes docs/reports/update.md and .json.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _harness import Sample, chosen_devices, parser, progress
from _report import Report

from mmsbgen.detection.detect import Detection
from mmsbgen.graph import Graph, load_graph, split
from mmsbgen.sampler.diagnostics.held_out import auc, auc_error

#: Most links that are held back from both commands.
UNSEEN = 10_000


def closing_pairs(graph: Graph, count: int, rng: np.random.Generator) -> set[tuple[int, int]]:
    """Pairs that are not linked and have a common neighbour: a walk of two steps from a random vertex."""
    adjacency, found = graph.adjacency(), set[tuple[int, int]]()
    while len(found) < count:
        a = int(rng.integers(graph.n_vertices))
        if not adjacency.degrees[a]:
            continue
        b = int(rng.choice(adjacency.row(int(rng.choice(adjacency.row(a))))))
        if a != b and b not in adjacency.row(a):
            found.add((min(a, b), max(a, b)))
    return found


def write_links(path: Path, links: Any) -> None:
    """Write pairs of vertex numbers, one a line."""
    path.write_text("".join(f"{a} {b}\n" for a, b in np.asarray(links).tolist()))


def command(*words: object) -> float:
    """Run a command of mmsbgen; returns its seconds."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-m", "mmsbgen", *map(str, words), "--quiet"], check=True)
    return time.perf_counter() - begin


def prepared(graph: Graph, share: float, folder: Path) -> tuple[Any, Any]:
    """Write the graph before and after, and its changes; returns the pairs that nobody sees and their labels."""
    rng = np.random.default_rng(0)
    parts = split(graph, validation=min(UNSEEN / graph.n_links, 0.05), seed=1)
    links, held = parts.training_links, parts.validation
    count = round(share * len(links))
    gone = rng.choice(len(links), count, replace=False)
    unseen = {tuple(pair) for pair in held.pairs.tolist()}
    come = sorted(closing_pairs(graph, count, rng) - unseen)
    write_links(folder / "before.txt", links)
    write_links(folder / "after.txt", [*np.delete(links, gone, axis=0).tolist(), *come])
    (folder / "vertices.txt").write_text("".join(f"{vertex}\n" for vertex in range(graph.n_vertices)))
    write_links(folder / "add.txt", come)
    write_links(folder / "remove.txt", links[gone])
    return held.pairs, np.asarray(held.labels, bool)


def main(arguments: Sequence[str] | None = None) -> None:
    """Time both commands on each device and write the report."""
    options = parser(__doc__, repetitions=3, database=False)
    options.add_argument("--graph", type=Path, required=True, help="an undirected graph, such as com-DBLP")
    options.add_argument("-k", type=int, default=1024, help="communities (default 1024)")
    options.add_argument("--share", type=float, default=0.01, help="share of the links that are replaced (default .01)")
    given = options.parse_args(arguments)
    graph = load_graph(given.graph)
    intro = "Seconds are of whole commands, run in turns. AUC is of pairs that neither command has seen."
    report = Report("Updates", intro)
    size = f"{graph.name}: {graph.n_vertices} vertices, {graph.n_links} links"
    report.text(f"{size}; K = {given.k}; {given.share:.1%} of the links were replaced.")
    rows, data = [], {}
    for device in chosen_devices(given.device):
        report.devices.append(device)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            pairs, labels = prepared(graph, given.share, folder)
            on = ("--device", device.spec)
            kind = ("-k", given.k, "--vertices", folder / "vertices.txt", *on)
            command("detect", folder / "before.txt", "-o", folder / "before", *kind)
            times: dict[str, list[float]] = {"detect": [], "update": []}
            for number in range(given.repetitions):
                new = folder / "after.txt", "-o", folder / "detect", "--seed", number
                times["detect"].append(command("detect", *new, *kind))
                changes = "--add", folder / "add.txt", "--remove", folder / "remove.txt", "-o", folder / "update"
                times["update"].append(command("update", folder / "before", *changes, *on))
            taken = {what: Sample(tuple(each)) for what, each in times.items()}
            found = {what: Detection.load(folder / what) for what in ("before", *times)}
            scores = {what: one.predict_links(pairs) for what, one in found.items()}
        told = found["update"].record["update"]
        ratio = statistics.median(times["detect"]) / statistics.median(times["update"])
        areas = [f"{auc(p, labels):.4f} ± {auc_error(p, labels):.1g}" for p in scores.values()]
        rows.append([device.platform, taken["detect"].text(1), taken["update"].text(1), f"{ratio:.3g}", *areas])
        rows[-1] += [f"{told['swept'] / graph.n_vertices:.0%}", f"{told['row_updates'] / graph.n_vertices:.2f}"]
        progress(f"{device.platform}: {rows[-1]}")
        data[device.platform] = {what: one.as_dict() for what, one in taken.items()} | {"update record": told}
    head = ["device", "detect, s", "update, s", "times as fast", "AUC before", "AUC detect", "AUC update"]
    report.table([*head, "vertices swept", "sweeps"], rows)
    report.data["runs"] = data
    report.write("update", given.output)


if __name__ == "__main__":
    main()
