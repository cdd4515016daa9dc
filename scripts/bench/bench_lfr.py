#!/usr/bin/env python
"""Covers of LFR graphs by memberships and mixing: mmsbgen without options and with K given, and other methods.

Writes docs/reports/lfr.md, .svg and .json.  Each run is a process of its own with a time limit, and is kept under
build/lfr and in the .json, so that a benchmark that was interrupted goes on where it stopped.  With --families, and
none named, the page is made of these alone.

The baselines need: pip install -e '.[benchmark]'.  To renew mmsbgen's own rows: --only mmsbgen-auto,mmsbgen.
"""

from __future__ import annotations

import argparse
import gzip
import statistics
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import _kept
from _harness import progress
from _kept import Known, Run
from _lfr import lfr
from _quality_graphs import Case
from _quality_methods import CHOSEN_K, MMSBGEN, OWN
from _report import REPORTS, ROOT, markdown_table, save_svg
from bench_quality import run

from mmsbgen.report import style

BUILD = ROOT / "build" / "lfr"
#: The methods, and what tables call them.
METHODS = {
    CHOSEN_K: "mmsbgen",
    MMSBGEN: "mmsbgen, K given",
    "leiden": "Leiden",
    "lfm-cdlib": "LFM",
    "lfm": "LFM, networkit",
    "slpa": "SLPA",
    "bigclam": "BigCLAM, K given",
    "demon": "DEMON",
}
MIXINGS = (0.1, 0.3, 0.5)
MEMBERSHIPS = (1, 2, 3, 4, 5, 6)
DEGREE = 20.0


class Family(NamedTuple):
    """Graphs of ``n`` vertices: largest degree, sizes of communities, and the share of the overlapping vertices."""

    title: str
    n: int
    most: int
    sizes: tuple[int, int]
    overlapping: float


FAMILIES = {
    "n1000": Family("N = 1000, half overlap", 1000, 50, (20, 50), 0.5),
    "n5000": Family("N = 5000, half overlap", 5000, 100, (20, 100), 0.5),
    "n1000-tenth": Family("N = 1000, a tenth overlaps", 1000, 50, (20, 50), 0.1),
}

INTRO = """\
This page shows how well covers agree with the planted one on LFR graphs (Lancichinetti and Fortunato), by ONMI (max).
An ONMI of 1 means the same cover. A half or a tenth of the vertices overlap: they are in as many communities as the
first column says. The others are in one. The mixing mu is the share of a vertex's links that leave its communities.
The mean degree is 20.

mmsbgen runs as `mmsbgen detect GRAPH`, where held-out pairs choose K, and with the true K. BigCLAM gets the true K
too. The other methods and their parameters are those of [quality](../quality.md)."""

LIMITS = """\
## What this does not show

A planted community is a random graph inside, as the model assumes. The communities that people know are not. Degrees
and sizes are of one kind. Differences below the spread mean nothing. With one graph a cell, the spread is not known."""


def lfr_case(family: str, mixing: float, memberships: int, number: int, folder: Path) -> Case:
    """A graph of a kind as files in ``folder``, where they stay."""
    _, n, most, sizes, overlapping = FAMILIES[family]
    name = f"{family}-mu{mixing}-m{memberships}-{number}"
    case = Case(name, folder / f"{name}.txt.gz")
    if not case.file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        links, members = lfr(n, DEGREE, most, sizes, mixing, overlapping, memberships, seed=number)
        for file, rows in ((folder / f"{name}.cmty.txt.gz", members), (case.file, links)):
            with gzip.open(file, "wt") as out:
                out.writelines("\t".join(map(str, row.tolist())) + "\n" for row in rows)
    return case


def scores(runs: Sequence[Run], family: str, mixing: float, memberships: int, method: str) -> list[float]:
    """ONMI of a method on the graphs of a kind."""
    kind = f"{family}-mu{mixing}-m{memberships}-"
    mine = [one for one in runs if one["graph"].startswith(kind) and one["method"] == method]
    return [one["scores"]["onmi"] for one in mine if one["status"] == "ok"]


def means(runs: Sequence[Run], family: str, mixing: float, method: str) -> dict[int, float]:
    """Mean ONMI by memberships, where there are results."""
    found = {one: scores(runs, family, mixing, one, method) for one in MEMBERSHIPS}
    return {one: statistics.fmean(values) for one, values in found.items() if values}


def table(runs: Sequence[Run], family: str) -> list[str]:
    """A row a kind of graph and a column a method."""
    rows = []
    for mixing in MIXINGS:
        columns = [means(runs, family, mixing, method) for method in METHODS]
        for one in MEMBERSHIPS:
            texts = [f"{column[one]:.3f}" if one in column else "-" for column in columns]
            best = max(texts) if any(one in column for column in columns) else ""
            rows.append([one, mixing, *(f"**{text}**" if text == best else text for text in texts)])
    return markdown_table(("memberships", "mu", *METHODS.values()), rows)


def families_of(runs: Sequence[Run]) -> dict[str, Family]:
    """The families that there are runs of; all if there are none."""
    there = {one["graph"].partition("-mu")[0] for one in runs}
    return {name: about for name, about in FAMILIES.items() if name in there} or FAMILIES


def summary(runs: Sequence[Run]) -> list[str]:
    """A row a method: mean ONMI by family, and how far graphs of a kind lie apart."""
    rows, families = [], families_of(runs)
    for method, title in METHODS.items():
        row: list[object] = [title]
        spreads: list[float] = []
        for family in families:
            mine = [scores(runs, family, mixing, one, method) for mixing in MIXINGS for one in MEMBERSHIPS]
            values = [statistics.fmean(one) for one in mine if one]
            few = "" if len(values) == len(mine) else f" ({len(values)} of {len(mine)})"
            row.append(f"{statistics.fmean(values):.3f}{few}" if values else "-")
            spreads += [statistics.variance(one) for one in mine if len(one) > 1]
        late = sum(one["method"] == method and one["status"] == "timeout" for one in runs)
        rows.append([*row, f"{statistics.fmean(spreads) ** 0.5:.3f}" if spreads else "-", late or "-"])
    head = ("method", *(family.title for family in families.values()), "spread", "over the limit")
    return markdown_table(head, rows)


def picture(runs: Sequence[Run], path: Path) -> None:
    """ONMI over memberships, a panel a family and mixing."""
    families = families_of(runs)
    with style.drawing():
        height = 1.3 + 2.1 * len(families)
        figure, axes = style.panels(len(families), len(MIXINGS), 9.0, height, sharex=True, sharey=True)
        for (family, about), row in zip(families.items(), axes, strict=True):
            for mixing, panel in zip(MIXINGS, row, strict=True):
                for number, (method, title) in enumerate(METHODS.items()):
                    found = means(runs, family, mixing, method)
                    look: dict[str, Any] = {"color": style.colour(number), "marker": style.marker(number)}
                    look["linewidth"] = 2.2 if method in OWN else 1.1
                    panel.plot([*found], [*found.values()], label=title, markersize=4.5, **look)
                panel.set_title(f"{about.title}, mixing {mixing:g}", fontsize=9)
                panel.set_xticks(MEMBERSHIPS)
                panel.set_ylim(-0.03, 1.03)
                panel.grid(axis="y")
            row[0].set_ylabel("ONMI (max)")
        for panel in axes[-1]:
            panel.set_xlabel("communities of an overlapping vertex")
        figure.suptitle("Agreement with the planted communities of LFR graphs", fontsize=11)
        figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    save_svg(figure, path)


def page(runs: Sequence[Run], facts: Sequence[str], svg: str) -> str:
    """The page."""
    lines = ["# Covers of LFR graphs", "", INTRO, "", "## In short", ""]
    lines += [
        "ONMI is the mean over the 18 kinds of graphs. `spread` is the standard deviation between graphs of a kind.",
        "",
    ]
    lines += [*summary(runs), "", f"![ONMI by memberships, mixing and kind of graph; see the tables]({svg})", ""]
    lines += ["The best value of a row is bold below. A dash means: not run, or no result within the limit."]
    for family, about in families_of(runs).items():
        low, high = about.sizes
        lines += [
            "",
            f"## {about.title}",
            "",
            f"Communities have {low} to {high} vertices. No degree is above {about.most}.",
        ]
        lines += ["", *table(runs, family)]
    lines += ["", LIMITS, "", "## How it was measured", "", *(f"- {fact}" for fact in facts), ""]
    return "\n".join(lines)


def kept_part(one: Run) -> Run:
    """What the report keeps of a run."""
    keys = ("graph", "digest", "method", "seed", "limit", "date", "processor", "cores", "load", "status")
    short = {key: one[key] for key in (*keys, "message", "revision", "seconds", "versions") if key in one}
    if one["status"] == "ok":
        short["scores"] = {key: one["scores"][key] for key in ("onmi", "communities", "true_communities")}
    if "options" in one:
        short["options"] = {"n_communities": one["options"]["n_communities"]}
    return short


def write(known: Known, args: argparse.Namespace, ran: bool) -> None:
    """Write the report of all runs, the page and its picture."""
    order = {method: place for place, method in enumerate(METHODS)}
    runs = sorted(map(kept_part, known.values()), key=lambda one: (one["graph"], order[one["method"]]))
    commands = _kept.commands_of(args.report, ran)
    _kept.write_report(args.report, "LFR", commands, {}, runs)
    svg = args.page.with_suffix(".svg")
    picture(runs, svg)
    facts = [
        *_kept.how_measured(commands, runs, args.limit),
        "seeds: 0 for each method; graphs of a kind have different seeds",
    ]
    facts.append(
        f"every run with its K, the number of communities, date and limit: [{args.report.name}]({args.report.name})"
    )
    args.page.write_text(page(runs, facts, svg.name))


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="*", choices=FAMILIES, default=list(FAMILIES), help="graphs (all)")
    parser.add_argument("--mixings", nargs="+", type=float, choices=MIXINGS, default=MIXINGS, help="links across (all)")
    parser.add_argument("--memberships", nargs="+", type=int, choices=MEMBERSHIPS, default=MEMBERSHIPS, help="(all)")
    parser.add_argument("--graphs", type=int, default=2, help="graphs of a kind, with seeds from 0 on (2)")
    _kept.add_options(parser, REPORTS / "lfr.md", REPORTS / "lfr.json", METHODS, limit=180.0)
    args = parser.parse_args()

    wanted = _kept.chosen_methods(parser, args, METHODS)
    known = _kept.known_runs(args.report, BUILD)
    kinds = [*product(args.families, args.mixings, args.memberships)]
    for number, (family, mixing, memberships) in product(range(args.graphs), kinds):
        case = lfr_case(family, mixing, memberships, number, BUILD / "graphs")
        for method in wanted:
            make = partial(run, method, case, args=args)
            _kept.make_runs(case, method, [0], make, known, BUILD, anew=bool(args.only))
    write(known, args, ran=bool(args.families))
    progress(f"wrote {args.page} and {args.report}")


if __name__ == "__main__":
    main()
