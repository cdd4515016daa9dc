#!/usr/bin/env python
"""How well hidden links are told from non-links: mmsbgen, scores by neighbours, and a factorisation of the adjacency.

A tenth of the links is hidden before any method sees the graph; all methods rank the same pairs.  Writes
docs/reports/links.md, .svg and .json.  Runs are kept under build/links and in the .json; without --data the page is
made of these alone.

The factorisation needs: pip install -e '.[benchmark,report]'.  To renew mmsbgen's own rows:
--only mmsbgen,mmsbgen-chains,mmsbgen-k50.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import _kept
import numpy as np
from _harness import progress
from _kept import Known, Run
from _link_scores import NEIGHBOURS, SEED, LinkCase, adjacency, best_factors, factors
from _quality_methods import run_limited
from _report import REPORTS, ROOT, markdown_table, save_svg

from mmsbgen.export.run_folder import read_run
from mmsbgen.report import style
from mmsbgen.sampler.diagnostics.held_out import auc, auc_error

BUILD = ROOT / "build" / "links"
GRAPHS = ("netscience", "email-Eu-core", "facebook_combined", "CA-GrQc", "CA-HepTh", "CA-CondMat", "amazon-1.90")
#: Makes all runs, if the graphs follow; those of the repository were made in parts.
COMMAND = "python scripts/bench/bench_links.py --data data --graphs"
#: The options of mmsbgen's own rows.
OWN = {"mmsbgen": [], "mmsbgen-chains": ["--chains", "4"], "mmsbgen-k50": ["-k", "50", "--chains", "4"]}
ALS = "als"
TITLES = {
    "mmsbgen": "mmsbgen",
    "mmsbgen-chains": "--chains 4",
    "mmsbgen-k50": "-k 50 --chains 4",
    "common-neighbours": "common neighbours",
    "adamic-adar": "Adamic-Adar",
    "resource-allocation": "resource allocation",
    "preferential-attachment": "preferential attachment",
    ALS: "ALS, implicit",
}
KINDS = ("any pair", "distance 2 or 3")

INTRO = """\
A tenth of the links is hidden at random before any method sees the graph. A vertex that loses all of its links stays.
The AUC is the probability that a hidden link ranks above a non-link; ties count half. Non-links are any pairs, or pairs
at distance 2 or 3 in the graph that the methods see. The latter are harder. There are as many of each as hidden
links. All methods rank the same pairs. ± is DeLong's standard error.

mmsbgen runs in three ways:

* `mmsbgen detect GRAPH`, where held-out pairs choose K
* with `--chains 4`, as [advised](../how-to/choose-k.md) for ranking pairs
* with `-k 50 --chains 4`

ALS factorises the adjacency matrix by alternating least squares, with the library implicit (Hu, Koren and Volinsky).
Its number of factors (16, 64, 128) and its weight of a link (1, 10, 40) are chosen by a second set of hidden links."""

LIMITS = """\
## What this does not show

Each graph was split once. Links that come later may differ from hidden ones. Scores by common neighbours cannot rank
pairs that have none."""


def measures(scores: Any) -> Run:
    """AUC and its error against either kind of non-links, of the scores of the case's pairs."""
    hidden, *others = np.split(np.asarray(scores, float), 3)
    labels = np.arange(2 * hidden.size) < hidden.size
    both = [np.concatenate([hidden, other]) for other in others]
    return {"auc": [auc(one, labels) for one in both], "error": [auc_error(one, labels) for one in both]}


def run_mmsbgen(case: LinkCase, options: Sequence[str], limit: float, device: str | None, folder: Path) -> Run:
    """The command as a user would give it who has the shown links and the names of all vertices."""
    np.savetxt(folder / "graph.txt", case.parts[0], "%d", "\t")
    np.savetxt(folder / "vertices.txt", np.arange(case.graph.n_vertices), "%d")
    command = [str(Path(sys.executable).parent / "mmsbgen"), "detect", "graph.txt", "--vertices", "vertices.txt"]
    command += [*options, "--seed", str(SEED), "-o", "out", *(["--device", device] if device else [])]
    done = run_limited(command, limit, folder)
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-300:])
    record = json.loads((folder / "out" / "run.json").read_text())
    about = {"k": record["options"]["n_communities"], "device": record["device"]["name"]}
    about["versions"] = {"mmsbgen": record["mmsbgen"]}
    return about | measures(read_run(folder / "out")[0].memberships.link_probabilities(case.pairs))


def found(case: LinkCase, method: str, args: argparse.Namespace, folder: Path) -> Run:
    """What a method says of the pairs.  Raises TimeoutExpired."""
    if method in OWN:
        return run_mmsbgen(case, OWN[method], args.limit, args.device, folder)
    rows = adjacency(case.graph.n_vertices, case.parts[0])
    if method in NEIGHBOURS:
        return measures(NEIGHBOURS[method](rows, case.pairs))
    given = best_factors(case.graph.n_vertices, case.parts[0], np.random.default_rng(SEED))
    about = {"factors": given, "versions": _kept.versions_of("implicit")}
    return about | measures(factors(rows, *given)(case.pairs))


def cell(run: Run | None, kind: int) -> str:
    """A method's AUC on a graph."""
    if run is None or run["status"] == "failed":
        return "-" if run is None else "failed"
    return "too slow" if run["status"] == "timeout" else f"{run['auc'][kind]:.3f} ± {run['error'][kind]:.3f}"


def table(runs: Mapping[tuple[str, str], Run], graphs: Mapping[str, Any]) -> list[str]:
    """Two rows a graph, one of each kind of non-links, and a column a method."""
    rows = []
    for kind, title in enumerate(KINDS):
        for graph in graphs:
            texts = [cell(runs.get((graph, method)), kind) for method in TITLES]
            best = max(text for text in texts if text[0].isdigit()) if any(text[0].isdigit() for text in texts) else ""
            rows.append([graph, title, *(f"**{text}**" if text == best else text for text in texts)])
    return markdown_table(("graph", "non-links", *TITLES.values()), rows)


def graph_table(runs: Mapping[tuple[str, str], Run], graphs: Mapping[str, Any]) -> list[str]:
    """The graphs, what is hidden of them, and what was chosen for them."""
    rows = []
    for graph, known in graphs.items():
        own, als = runs.get((graph, "mmsbgen"), {}), runs.get((graph, ALS), {})
        factors_of = "{} / {:g}".format(*als["factors"]) if "factors" in als else "-"
        shares = [f"{known[key]:.0%}" for key in ("common", "alone")]
        rows.append([graph, known["vertices"], known["links"], known["hidden"], *shares, own.get("k", "-"), factors_of])
    head = ("graph", "vertices", "links", "hidden", "with a common neighbour", "with an end that has no link left")
    return markdown_table((*head, "K of mmsbgen", "factors / weight of ALS"), rows)


def picture(runs: Mapping[tuple[str, str], Run], graphs: Mapping[str, Any], path: Path) -> None:
    """AUC of every method on every graph, a panel a kind of non-links."""
    with style.drawing():
        figure, (axes,) = style.panels(1, 2, 9.0, 1.9 + 0.42 * len(graphs), sharey=True)
        for kind, panel in enumerate(axes):
            for number, (method, name) in enumerate(TITLES.items()):
                there = [(place, runs.get((graph, method))) for place, graph in enumerate(graphs)]
                done = [(place, run) for place, run in there if run is not None and run["status"] == "ok"]
                label = f"mmsbgen {name}" if name.startswith("-") else name
                panel.errorbar(
                    [run["auc"][kind] for _, run in done],
                    # Beside each other, for points that would cover each other.
                    [place + 0.09 * (number - (len(TITLES) - 1) / 2) for place, _ in done],
                    xerr=[run["error"][kind] for _, run in done],
                    fmt=style.marker(number),
                    color=style.colour(number),
                    markersize=5 if method in OWN else 4,
                    label=label,
                )
            panel.set_title(f"non-links: {KINDS[kind]}")
            panel.set_xlabel("AUC of hidden links, with its standard error")
            panel.grid(axis="x")
        axes[0].set_yticks(range(len(graphs)), list(graphs))
        axes[0].invert_yaxis()
        figure.suptitle("A tenth of the links hidden: how often one ranks above a non-link", fontsize=11)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    save_svg(figure, path)


def page(runs: Mapping[tuple[str, str], Run], graphs: Mapping[str, Any], facts: Sequence[str], svg: str) -> str:
    """The page."""
    lines = ["# Hidden links", "", INTRO, "", "The best value of a row is bold.", "", *table(runs, graphs), ""]
    lines += [f"![AUC of every method on every graph against either kind of non-links; see the table]({svg})", ""]
    lines += ["## Graphs", "", "Percentages are shares of the hidden links.", "", *graph_table(runs, graphs), ""]
    lines += [LIMITS, ""]
    return "\n".join([*lines, "## How it was measured", "", *(f"- {fact}" for fact in facts), ""])


def write(known: Known, cases: Sequence[LinkCase], args: argparse.Namespace) -> None:
    """Write the report of all runs, the page and its picture."""
    before = json.loads(args.report.read_text())["graphs"] if args.report.exists() else {}
    graphs = before | {case.name: case.facts for case in cases}
    graphs = {name: graphs[name] for name in [*GRAPHS, *graphs] if name in graphs}
    order = {method: place for place, method in enumerate(TITLES)}
    runs = [one for one in known.values() if one["graph"] in graphs]
    runs.sort(key=lambda one: (list(graphs).index(one["graph"]), order[one["method"]]))
    commands = _kept.commands_of(args.report, ran=bool(cases))
    _kept.write_report(args.report, "Hidden links", commands, graphs, runs)
    svg, by_method = args.page.with_suffix(".svg"), {(one["graph"], one["method"]): one for one in runs}
    picture(by_method, graphs, svg)
    facts = _kept.how_measured([f"{COMMAND} {','.join(graphs)}"], runs, args.limit)
    facts.append(f"every run, and the commands of each part: [{args.report.name}]({args.report.name})")
    args.page.write_text(page(by_method, graphs, facts, svg.name))


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with NAME.txt.gz")
    parser.add_argument("--graphs", type=_kept.names, default=list(GRAPHS), help=f"names ({', '.join(GRAPHS)})")
    parser.add_argument("--device", help="mmsbgen's device, as `mmsbgen devices` names it")
    _kept.add_options(parser, REPORTS / "links.md", REPORTS / "links.json", TITLES, limit=900.0)
    args = parser.parse_args()

    wanted = _kept.chosen_methods(parser, args, TITLES)
    cases = [LinkCase(name, args.data / f"{name}.txt.gz") for name in args.graphs] if args.data else []
    missing = [case.file for case in cases if not case.file.exists()]
    if missing:
        parser.error(f"{missing[0]} is not there: name the folder with --data, or other graphs with --graphs")
    known = _kept.known_runs(args.report, BUILD)
    for case in cases:
        for method in wanted:
            make = functools.partial(found, case, method, args)
            run = functools.partial(_kept.attempt, case, method, limit=args.limit, make=make)
            _kept.make_runs(case, method, [SEED], run, known, BUILD, anew=bool(args.only))
    write(known, cases, args)
    progress(f"wrote {args.page} and {args.report}")


if __name__ == "__main__":
    main()
