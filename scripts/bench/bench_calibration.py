#!/usr/bin/env python
"""Calibration of link probabilities on links that the run does not know of.

Takes a tenth of the links out of a graph, runs the defaults on what is left, and compares link probabilities with the
share of pairs that are linked: of the links taken out, of non-links at distance 2, and of others.  Graphs are LFR ones
and real ones (--data).  Writes docs/reports/calibration.md, .svg and .json.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse
from _harness import chosen_devices, parser, progress
from _kept import GraphCase
from _lfr import lfr
from _report import Report, save_svg

from mmsbgen.detection.detect import detect
from mmsbgen.report import style
from mmsbgen.sampler.calibration.reliability import reliability
from mmsbgen.sampler.diagnostics.held_out import log_likelihoods

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: K by real graph.
REAL = {
    "CA-GrQc": 50,
    "CA-HepTh": 100,
    "netscience": 100,
    "email-Eu-core": 42,
    "fb_348": 14,
    "fb_1684": 17,
    "amazon-1.90": 626,
    "lfr-n1000-k28": 28,
}
#: N, mean and largest degree, sizes of communities, mixing, share of overlapping vertices, memberships of these.
LFR = {
    "LFR N=1000, mu=0.3": (1000, 20.0, 50, (20, 50), 0.3, 0.5, 2),
    "LFR N=5000, mu=0.3": (5000, 20.0, 100, (20, 100), 0.3, 0.5, 2),
}
#: Share of the links that is taken out.
HIDDEN = 0.1
#: Most non-links at distance 2, and at larger distances.
MOST = 1_000_000
#: Panels beside each other.
ACROSS = 5


class Sample(NamedTuple):
    """Pairs ``[S, 2]``, which of them are links, and for how many pairs of the graph each stands."""

    pairs: Ints
    links: npt.NDArray[np.bool_]
    weights: Floats


def graph_of(name: str, data: Path | None) -> tuple[Ints, int, int]:
    """The links of a graph by vertex numbers, the number of vertices, and K."""
    if name in LFR:
        links, members = lfr(*LFR[name], seed=7)
        return links, LFR[name][0], len(members)
    assert data is not None
    graph = GraphCase(name, data / f"{name}.txt.gz").graph
    return np.array(graph.links), graph.n_vertices, REAL[name]


def sample(n: int, given: Ints, hidden: Ints, rng: np.random.Generator) -> Sample:
    """Pairs that are no links of the ``given`` graph, weighted to be all pairs of a graph like it.

    The whole graph has a share q of pairs of one probability linked, the given one (1 - h) q, as every link is taken
    out with chance h.  This is what a run on the given graph should predict.  Links taken out stand for 1 / h links
    each: (1 - h) / h of them in a graph like the given one, where the rest are non-links.
    """
    share = len(hidden) / (len(hidden) + len(given))
    ones = np.ones(2 * len(given))
    adjacency = scipy.sparse.csr_array((ones, np.concatenate([given, given[:, ::-1]]).T), shape=(n, n))
    near = scipy.sparse.triu(adjacency @ adjacency, 1).tocoo()
    keys = near.coords[0].astype(np.int64) * n + near.coords[1]
    linked = np.sort(np.concatenate([given, hidden]) @ [n, 1])
    keys = keys[~np.isin(keys, linked)]
    drawn = rng.choice(keys, min(MOST, keys.size), replace=False)
    far = n * (n - 1) // 2 - linked.size - keys.size
    others = np.sort(rng.integers(0, n, (MOST, 2)), axis=1)
    others = np.unique(others[others[:, 0] < others[:, 1]] @ [n, 1])
    others = others[~np.isin(others, linked) & ~np.isin(others, keys)]
    hidden_keys = hidden @ [n, 1]
    parts = (
        (hidden_keys, True, (1 - share) / share),
        (hidden_keys, False, 1.0),
        (drawn, False, keys.size / max(1, drawn.size)),
        (others, False, far / max(1, others.size)),
    )
    every = np.concatenate([part for part, _, _ in parts])
    pairs = np.stack([every // n, every % n], axis=1)
    links, weights = (np.concatenate([np.full(len(p[0]), p[i]) for p in parts]) for i in (1, 2))
    return Sample(pairs, links, weights)


def run(name: str, seed: int, device: str, data: Path | None) -> dict[str, Any]:
    """ECE of one run, by the model's probabilities and by the calibrated ones."""
    links, n, k = graph_of(name, data)
    rng = np.random.default_rng([seed, 0])
    out = np.zeros(len(links), bool)
    out[rng.choice(len(links), round(HIDDEN * len(links)), replace=False)] = True
    begin = time.perf_counter()
    found = detect(links[~out], k, random_state=seed, device=device, vertices=range(n))
    seconds = time.perf_counter() - begin
    seen = sample(n, links[~out], links[out], rng)
    model = found.predict_links(seen.pairs, calibrated=False)
    p = found.memberships.calibrated(model)
    row: dict[str, Any] = {"graph": name, "seed": seed, "k": k, "links": len(links), "seconds": seconds}
    row["calibration"] = {key: value for key, value in found.record["calibration"].items() if key != "curve"}
    for key, values in (("before", model), ("after", p)):
        row[key] = reliability(values, model, seen.links, seen.weights, seed)
        row[f"log_likelihood_{key}"] = float(np.average(log_likelihoods(values, seen.links), weights=seen.weights))
    progress(f"{name}, seed {seed}: " + ", ".join(f"{one} {_ece(row[one])}" for one in ("before", "after")))
    return row


def _ece(found: dict[str, Any] | None) -> str:
    return "unknown" if found is None else f"{found['ece']:.3f} ± {found['ece_error']:.3f}"


def _mean(rows: list[dict[str, Any]], of: str, key: str) -> str:
    values = [row[of][key] for row in rows if row[of] is not None]
    return f"{np.mean(values):.3f}" if values else "unknown"


def told(report: Report, rows: list[dict[str, Any]]) -> None:
    """One line a graph, and the diagram of every graph."""
    by_graph: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_graph[row["graph"]].append(row)
    lines = []
    for name, those in by_graph.items():
        tests = [row["calibration"] for row in those]
        lines.append(
            (
                name,
                those[0]["k"],
                _mean(those, "before", "ece"),
                _mean(those, "after", "ece"),
                _mean(those, "after", "ece_error"),
                _mean(those, "after", "ece_by_chance"),
                _mean(tests, "test", "ece"),
                _mean(tests, "test", "ece_by_chance"),
                *(f"{np.mean([row[f'log_likelihood_{one}'] for row in those]):.5f}" for one in ("before", "after")),
            )
        )
    head = (
        "graph",
        "K",
        "before",
        "after",
        "error",
        "by chance",
        "by the run",
        "by chance there",
        "log-likelihood before",
        "after",
    )
    report.table(head, lines)
    report.text(
        "![Share of linked pairs over mean probability, before and after; see the table](calibration.svg)",
        "",
        "The diagrams show seed 0, in the same ten groups.",
    )


def picture(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Share of linked pairs over mean probability, a panel a graph."""
    first = [row for row in rows if row["seed"] == 0]
    with style.drawing():
        down = math.ceil(len(first) / ACROSS)
        figure, axes = style.panels(down, ACROSS, 9.0, 1.2 + 2.0 * down, sharex=True, sharey=True)
        places = [panel for line in axes for panel in line]
        for panel in places[len(first) :]:
            panel.remove()
        for row, panel in zip(first, places, strict=False):
            panel.plot([0, 1], [0, 1], color="0.6", linewidth=1.0, label="perfect")
            for number, key in enumerate(("before", "after")):
                bins = row[key]["bins"] if row[key] else []
                x, y = ([one[name] for one in bins] for name in ("p", "observed"))
                panel.plot(x, y, color=style.colour(number), marker=style.marker(number), markersize=4, label=key)
            panel.set_title(row["graph"], fontsize=9)
            panel.set_xlim(0, 1)
            panel.set_ylim(0, 1)
            panel.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
        for line in axes:
            line[0].set_ylabel("share of linked pairs")
        for panel in axes[-1]:
            panel.set_xlabel("mean probability")
        figure.suptitle("Calibration of link probabilities", fontsize=11)
        figure.legend(*places[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    save_svg(figure, path)


def main() -> None:
    """Run all graphs and write the report."""
    options = parser(__doc__, repetitions=3, database=False)
    options.add_argument("--data", type=Path, help="folder with the real graphs")
    options.add_argument("--graphs", help="names of graphs, with semicolons between them (default: all)")
    given = options.parse_args()
    device = chosen_devices(given.device)[0]
    report = Report(
        "Calibration of link probabilities",
        "The expected calibration error (ECE) is the mean difference between the probability of pairs and the share "
        "that is linked. It is taken in ten equal groups of the pairs of probability .1 or more. A tenth of the links "
        "was taken out before the run. Values are means over seeds. `before` is the ECE of the model and `after` that "
        "of calibrated probabilities. `error` is the standard error of `after` in one run. `by chance` is the ECE "
        "that a perfect model would show with as many pairs. `by the run` is `calibration.test.ece` of `run.json`, "
        "from 1 % of the links. Log-likelihoods are of any pair, in nats.",
        behind="",
    )
    report.devices.append(device)
    names = given.graphs.split(";") if given.graphs else [*(REAL if given.data else ()), *LFR]
    rows = [run(name, seed, device.spec, given.data) for name in names for seed in range(given.repetitions)]
    told(report, rows)
    given.output.mkdir(parents=True, exist_ok=True)
    picture(rows, given.output / "calibration.svg")
    report.data["runs"] = rows
    report.write("calibration", given.output)


if __name__ == "__main__":
    main()
