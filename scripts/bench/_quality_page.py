"""docs/quality.md: tables of runs, and what there is to say about them."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from _quality_graphs import GRAPHS, INTRO, LIMITS, QUOTED, QUOTED_AUC, STARTS_INTRO
from _quality_methods import FROM_RANDOM, MMSBGEN, ONE, START_COVERS, SVINET, TITLES
from _report import markdown_table

Run = Mapping[str, Any]

_QUOTED_TITLES = ("svinet communities.txt, K given †", "svinet, pi > 0.1, K given †")
_QUOTED_NOTE = (
    "† svinet (from an earlier measurement on another machine): github.com/premgopalan/svinet at 453de34, "
    "`-link-sampling`, seeds 1 to 3, stochastic variational inference of the same model by its authors (Gopalan and "
    "Blei, PNAS 2013). Its seconds do not compare with the others."
)

_HEAD = (
    "method",
    "runs",
    "communities",
    "coverage",
    "memberships a vertex",
    "ONMI max",
    "LFK",
    "average F1",
    "Omega",
    "seconds",
)


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean."""
    return statistics.fmean(values)


def deviation(values: Sequence[float]) -> str:
    """`` ± 0.012``, the sample standard deviation; nothing for one value."""
    return f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""


def finished(runs: Sequence[Run], method: str) -> list[Run]:
    """Runs of a method that have a result."""
    return [run for run in runs if run["method"] == method and run["status"] == "ok"]


def compared(runs: Sequence[Run]) -> list[str]:
    """The methods of a table that compares: mmsbgen's other starts have a table of their own."""
    return [name for name in dict.fromkeys(run["method"] for run in runs) if name not in (FROM_RANDOM, *START_COVERS)]


def cover_row(title: str, runs: Sequence[Run]) -> list[str]:
    """A row of a table of scores, of all runs of one method on one graph."""
    done = [run for run in runs if run["status"] == "ok"]
    if not done:
        slow, limit = any(run["status"] == "timeout" for run in runs), max(run["limit"] for run in runs)
        why = f"no result in {limit:g} s" if slow else "failed: " + str(runs[0].get("message", "")).replace("|", "/")
        return [title, f"0 of {len(runs)}", *["-"] * 3, why, *["-"] * 3, f"> {limit:g}" if slow else "-"]
    score = {name: [run["scores"][name] for run in done] for name in done[0]["scores"]}
    count = f"{len(done)}" if len(done) == len(runs) else f"{len(done)} of {len(runs)}"
    return [
        title,
        count,
        f"{mean(score['communities']):.1f}",
        f"{mean(score['coverage']):.2f}",
        f"{mean(score['memberships']):.2f}",
        f"{mean(score['onmi']):.3f}{deviation(score['onmi'])}",
        f"{mean(score['onmi_lfk']):.3f}",
        f"{mean(score['average_f1']):.3f}",
        f"{mean(score['omega']):.3f}",
        seconds_text([run["seconds"] for run in done]),
    ]


def seconds_text(values: Sequence[float]) -> str:
    """The median, two digits of it, or all before the point."""
    median = statistics.median(values)
    return f"{median:.2g}" if median < 10 else f"{median:.0f}"


def quoted_row(title: str, row: Sequence[float]) -> list[str]:
    """A row of an earlier measurement."""
    runs, communities, coverage, memberships, onmi, spread, *others, taken = row
    return [
        title,
        f"{runs:.0f}",
        f"{communities:.1f}",
        f"{coverage:.2f}",
        f"{memberships:.2f}",
        f"{onmi:.3f} ± {spread:.3f}",
        *(f"{other:.3f}" for other in others),
        f"({taken:g})",
    ]


def cover_table(graph: str, runs: Sequence[Run]) -> list[str]:
    """The table of a graph, best ONMI first, methods without a result last."""
    rows: list[tuple[float, list[str]]] = []
    for method in compared(runs):
        mine = [run for run in runs if run["method"] == method]
        done = finished(mine, method)
        row = cover_row(TITLES[method], mine)
        if method == MMSBGEN:
            row[0] = f"**{row[0]}**"
        rows.append((mean([run["scores"]["onmi"] for run in done]) if done else -1.0, row))
    if not finished(runs, SVINET):
        pairs = zip(_QUOTED_TITLES, QUOTED.get(graph, ()), strict=False)
        rows += [(row[4], quoted_row(title, row)) for title, row in pairs]
    rows.sort(key=lambda pair: -pair[0])
    return markdown_table(_HEAD, [row for _, row in rows])


def auc_table(graph: str, runs: Sequence[Run]) -> list[str]:
    """The table of a graph without known communities."""
    rows: list[tuple[float, list[str]]] = []
    for method in compared(runs):
        mine = [run for run in runs if run["method"] == method]
        values = [run["auc"] for run in finished(mine, method)]
        title = f"**{TITLES[method]}**" if method == MMSBGEN else TITLES[method]
        if not values:
            why = f"no result in {mine[0]['limit']:g} s" if mine[0]["status"] == "timeout" else "failed"
            rows.append((-1.0, [title, f"0 of {len(mine)}", why, "-", "-"]))
            continue
        taken = seconds_text([run["seconds"] for run in finished(mine, method)])
        tests = [run["test_auc"] for run in finished(mine, method) if "test_auc" in run]
        test = f"{mean(tests):.3f}{deviation(tests)}" if tests else "-"
        rows.append((mean(values), [title, str(len(values)), f"{mean(values):.3f}{deviation(values)}", test, taken]))
    if graph in QUOTED_AUC:
        title, value, seconds = QUOTED_AUC[graph]
        rows.append((value, [title, "1", f"{value:.2f}", "-", f"({seconds})"]))
    rows.sort(key=lambda pair: -pair[0])
    return markdown_table(("method", "runs", "AUC", "AUC of test pairs", "seconds"), [row for _, row in rows])


def standing(graph: str, runs: Sequence[Run]) -> list[str]:
    """A row of the summary: mmsbgen's ONMI on a graph, its place, and the best of the others."""
    by_method: dict[str, float] = {}
    for method in [one for one in compared(runs) if one != ONE]:
        done = finished(runs, method)
        if done:
            by_method[TITLES[method]] = mean([run["scores"]["onmi"] for run in done])
    if TITLES[SVINET] not in by_method:
        by_method |= {title: row[4] for title, row in zip(_QUOTED_TITLES, QUOTED.get(graph, ()), strict=False)}
    ours = by_method.pop(TITLES[MMSBGEN], None)
    best = max(by_method, key=by_method.__getitem__, default=None)
    other = "-" if best is None else f"{by_method[best]:.3f}, {best}"
    if ours is None:
        return [graph, "not run", "-", other]
    place = 1 + sum(value > ours for value in by_method.values())
    return [graph, f"{ours:.3f}", f"{place} of {len(by_method) + 1}", other]


def _score(run: Run) -> float:
    return float(run["scores"]["onmi"] if "scores" in run else run["auc"])


def _own(run: Run, start: str, key: str) -> float | None:
    """What a run's start was worth before any sweep."""
    return next((one[f"own_{key}"] for one in run.get("starts") or () if one["start"] == start), None)


def _average(values: Sequence[float | None], digits: str) -> str:
    there = [value for value in values if value is not None]
    return f"{mean(there):{digits}}" if there else "-"


def starts_row(graph: str, runs: Sequence[Run]) -> list[str]:
    """A row of the table of starts."""
    ours = finished(runs, MMSBGEN)
    row = [graph]
    for method, start in START_COVERS.items():
        covers = [_score(run) for run in finished(runs, method)]
        ranked = [_own(run, start, "auc") for run in ours if "auc" in run]
        row.append(_average(covers or ranked, ".3f"))
    for method in (MMSBGEN, FROM_RANDOM):
        values = [_score(run) for run in finished(runs, method)]
        row.append(f"{mean(values):.3f}{deviation(values)}" if values else "-")
    row.append(_average([_own(run, run["start"], "log_likelihood") for run in ours], ".4g"))
    row.append(_average([run.get("log_likelihood") for run in ours], ".4g"))
    return row


def starts_table(of: Mapping[str, Sequence[Run]]) -> list[str]:
    """What starts are worth by themselves, and what chains make of them."""
    head = ["graph", "Leiden's communities", "ego nets", "end, by default", "end, from random"]
    head += ["log-likelihood at the start", "at the end"]
    return markdown_table(head, [starts_row(graph, runs) for graph, runs in of.items()])


def starts(runs: Sequence[Run]) -> str:
    """Where mmsbgen's chains started, as far as the run records say."""
    names = [str(run["start"]) for run in runs if run["method"] == MMSBGEN and run.get("start") is not None]
    counts = ", ".join(f"{name} {names.count(name)}" for name in dict.fromkeys(names))
    return f"Starts that mmsbgen chose: {counts}." if names else ""


def page(runs: Sequence[Run], graphs: Mapping[str, Mapping[str, Any]], facts: Sequence[str]) -> str:
    """The page.  ``graphs`` has vertices, links and the truth's extents of each graph that was run."""
    covers = [name for name in graphs if graphs[name]["communities"]]
    of = {name: [run for run in runs if run["graph"] == name] for name in graphs}
    ran = any(run["method"] == MMSBGEN for run in runs)
    lines = ["# Quality", "", INTRO.format(command_note="" if ran else "mmsbgen's own rows are yet to be run.").strip()]
    lines += ["", "## In short", ""]
    lines += markdown_table(
        ("graph", "mmsbgen, ONMI max", "place", "best of the others"), [standing(name, of[name]) for name in covers]
    )
    lines += ["", *STARTS_INTRO.splitlines(), "", *starts_table(of)]
    for name, known in graphs.items():
        source, truth = GRAPHS.get(name, (name, "known communities"))
        about = f"{source}. {known['vertices']} vertices, {known['links']} links."
        if name in covers:
            about += (
                f" Known communities ({truth}): {known['communities']}, {known['distinct']} of them distinct; they "
                f"cover {known['coverage']:.0%} of the vertices, each of those {known['memberships']:.2f} times."
            )
            table = cover_table(name, of[name])
        else:
            about += (
                f" No communities are known: K = {known['k']}, {known['validation'] + known['test']:.0%} of the links "
                "and as many non-links are held out, and the AUC is the chance that a link gets the larger probability."
                f" All but svinet rank the same pairs. {known['validation']:.0%} are for validation: mmsbgen has "
                "chosen its start and its end by them, which may flatter it a little. "
                f"{known['test']:.0%} are for test: nothing was chosen by those, but they are few, and their AUC "
                "varies more."
            )
            table = auc_table(name, of[name])
        lines += ["", f"## {name}", "", *textwrap.wrap(about, 120), "", *table]
        if starts(of[name]):
            lines += ["", starts(of[name])]
    lines += ["", *textwrap.wrap(_QUOTED_NOTE, 120), "", LIMITS.strip(), "", "## How it was measured", ""]
    return "\n".join([*lines, *(f"- {fact}" for fact in facts), ""])
