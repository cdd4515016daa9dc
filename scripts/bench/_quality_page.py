"""docs/quality.md: tables of runs, and what there is to say about them."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Mapping, Sequence
from statistics import fmean as mean
from typing import Any, NamedTuple

from _quality_graphs import COVERS_INTRO, GRAPHS, INTRO, LIMITS, QUOTED, QUOTED_AUC, STARTS_INTRO
from _quality_methods import FROM_RANDOM, MMSBGEN, ONE, START_COVERS, TITLES
from _quality_more import more
from _report import markdown_table

Run = Mapping[str, Any]

_QUOTED_TITLES = ("svinet communities.txt, K given †", "svinet, pi > 0.1, K given †")
_QUOTED_NOTE = (
    "† svinet was measured earlier on another machine: github.com/premgopalan/svinet at 453de34, `-link-sampling`, "
    "seeds 1 to 3. It fits the same model by stochastic variational inference (Gopalan and Blei, PNAS 2013). Its "
    "seconds cannot be compared with the others."
)

#: The measures of a page: heading, and the name in a :class:`Result`.
_MEASURES = (("ONMI max", "onmi"), ("Average F1", "average_f1"), ("Omega index (1 is perfect, 0 is chance)", "omega"))


class Result(NamedTuple):
    """What a method got on a graph: means of scores, the median time, and the deviation of ONMI over several runs."""

    onmi: float
    spread: float | None
    average_f1: float
    omega: float
    seconds: float
    quoted: bool = False
    note: str = ""
    """How many runs have a result, where not all of them have."""


def deviation(values: Sequence[float]) -> str:
    """`` ± 0.012``, the sample standard deviation; nothing for one value."""
    return f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""


def finished(runs: Sequence[Run], method: str) -> list[Run]:
    """Runs of a method that have a result."""
    return [run for run in runs if run["method"] == method and run["status"] == "ok"]


def compared(runs: Sequence[Run]) -> list[str]:
    """The methods of a table that compares: mmsbgen's other starts have a table of their own."""
    return [name for name in dict.fromkeys(run["method"] for run in runs) if name not in (FROM_RANDOM, *START_COVERS)]


def result(runs: Sequence[Run]) -> Result | str:
    """The result of all runs of one method on one graph, or why there is none."""
    done = [run for run in runs if run["status"] == "ok"]
    if not done:
        if any(run["status"] == "timeout" for run in runs):
            return f"none in {max(run['limit'] for run in runs):g} s"
        return "failed: " + str(runs[0].get("message", "")).replace("|", "/")
    onmi, f1, omega = ([run["scores"][name] for run in done] for name in ("onmi", "average_f1", "omega"))
    spread = statistics.stdev(onmi) if len(onmi) > 1 else None
    seconds, note = statistics.median(run["seconds"] for run in done), ""
    if len(done) < len(runs):
        note = f" ({len(done)} of {len(runs)} runs)"
    return Result(mean(onmi), spread, mean(f1), mean(omega), seconds, note=note)


def results(graph: str, runs: Sequence[Run]) -> dict[str, Result | str]:
    """The result of every method on a graph, by its title; for svinet rows of an earlier measurement."""
    found = {TITLES[one]: result([run for run in runs if run["method"] == one]) for one in compared(runs)}
    for title, row in zip(_QUOTED_TITLES, QUOTED.get(graph, ()), strict=False):
        found[title] = Result(row[4], row[5], row[7], row[8], row[9], quoted=True)
    return found


def seconds_text(values: Sequence[float]) -> str:
    """The median, two digits of it, or all before the point."""
    median = statistics.median(values)
    return f"{median:.2g}" if median < 10 else f"{median:.0f}"


def score_table(of: Mapping[str, Sequence[Run]], name: str) -> list[str]:
    """A table of one measure, a column for each graph; best mean ONMI first, no result counting 0.

    That of ONMI has the seconds too, from the fastest to the slowest graph.
    """
    found = {graph: results(graph, runs) for graph, runs in of.items()}
    titles = list(dict.fromkeys(title for each in found.values() for title in each))
    titles.sort(key=lambda title: -sum(one.onmi for one in _of(found, title) if isinstance(one, Result)))
    timed = name == "onmi"
    rows = []
    for title in titles:
        shown = f"**{title}**" if title == TITLES[MMSBGEN] else title
        cells = [_cell(one, name) for one in _of(found, title)]
        if timed:
            cells.append("-" if title == TITLES[ONE] else _times(_of(found, title)))
        rows.append([shown, *cells])
    return markdown_table(("method", *of, *(["seconds"] if timed else [])), rows)


def _times(found: Sequence[Result | str]) -> str:
    done = sorted((one for one in found if isinstance(one, Result)), key=lambda one: one.seconds)
    if not done:
        return "-"
    ends = dict.fromkeys(seconds_text([one.seconds]) for one in (done[0], done[-1]))
    return f"({' to '.join(ends)})" if done[0].quoted else " to ".join(ends)


def _of(found: Mapping[str, Mapping[str, Result | str]], title: str) -> list[Result | str]:
    return [each.get(title, "-") for each in found.values()]


def _cell(one: Result | str, name: str) -> str:
    if isinstance(one, str):
        return one
    spread = f" ± {one.spread:.3f}" if one.spread is not None else ""
    return f"{one.onmi:.3f}{spread}{one.note}" if name == "onmi" else f"{getattr(one, name):.3f}"


def auc_table(graph: str, runs: Sequence[Run]) -> list[str]:
    """The table of a graph without known communities."""
    rows: list[tuple[float, list[str]]] = []
    for method in compared(runs):
        mine = [run for run in runs if run["method"] == method]
        values = [run["auc"] for run in finished(mine, method)]
        title = "**mmsbgen**" if method == MMSBGEN else TITLES[method]
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
    head = ("method", "runs", "AUC of validation pairs", "of test pairs", "seconds")
    return markdown_table(head, [row for _, row in rows])


def standing(graph: str, runs: Sequence[Run]) -> list[str]:
    """A row of the summary: mmsbgen's ONMI on a graph, its place, and the best of the others."""
    by_method = {title: one.onmi for title, one in results(graph, runs).items() if isinstance(one, Result)}
    by_method.pop(TITLES[ONE], None)
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
    chosen = [str(run["start"]) for run in ours if run.get("start") is not None]
    return [*row, ", ".join(f"{name} {chosen.count(name)}" for name in dict.fromkeys(chosen)) or "-"]


def starts_table(of: Mapping[str, Sequence[Run]]) -> list[str]:
    """The covers of the starts, and of the chains that begin with them."""
    head = ["graph", "Leiden's communities", "ego nets", "end, by default", "end, from random"]
    head += ["log-likelihood at the start", "at the end", "starts chosen"]
    return markdown_table(head, [starts_row(graph, runs) for graph, runs in of.items()])


def covers_table(of: Mapping[str, Sequence[Run]], graphs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The graphs, and the extents of their known communities beside those that mmsbgen finds (/)."""
    rows = []
    for name, runs in of.items():
        known, ours = graphs[name], finished(runs, MMSBGEN)
        columns = [("communities", ".1f"), ("coverage", ".2f"), ("memberships", ".2f")]
        found = [_average([run["scores"][key] for run in ours], digits) for key, digits in columns]
        rows.append(
            [
                f"{name}: {GRAPHS.get(name, name)}",
                str(known["vertices"]),
                str(known["links"]),
                f"{known['distinct']} / {found[0]}",
                f"{known['coverage']:.2f} / {found[1]}",
                f"{known['memberships']:.2f} / {found[2]}",
            ]
        )
    return markdown_table(("graph", "vertices", "links", "communities", "coverage", "memberships a vertex"), rows)


def page(runs: Sequence[Run], graphs: Mapping[str, Mapping[str, Any]], facts: Sequence[str]) -> str:
    """The page.  ``graphs`` has vertices, links and the truth's extents of each graph that was run."""
    of = {name: [run for run in runs if run["graph"] == name] for name in graphs}
    known = {name: of[name] for name in graphs if graphs[name]["communities"]}
    ran = any(run["method"] == MMSBGEN for run in runs)
    note = "" if ran else " mmsbgen's own rows are yet to be run."
    lines = ["# Quality", "", INTRO.format(command_note=note).strip()]
    lines += ["", "## In short", ""]
    lines += markdown_table(
        ("graph", "mmsbgen, ONMI max", "rank", "best of the others"), [standing(name, of[name]) for name in known]
    )
    lines += ["", *textwrap.wrap(_QUOTED_NOTE, 120), "", *more()]
    lines += ["", *COVERS_INTRO.splitlines(), "", *covers_table(known, graphs)]
    for heading, name in _MEASURES:
        lines += ["", f"## {heading}", "", *score_table(known, name)]
    for name in [one for one in graphs if one not in known]:
        lines += ["", f"## {name}", "", *textwrap.wrap(_about(name, graphs[name]), 120), "", *auc_table(name, of[name])]
    lines += ["", *STARTS_INTRO.splitlines(), "", *starts_table(of)]
    lines += ["", LIMITS.strip(), "", "## How it was measured", ""]
    return "\n".join([*lines, *(f"- {fact}" for fact in facts), ""])


def _about(name: str, known: Mapping[str, Any]) -> str:
    """What there is to say about a graph without known communities."""
    return (
        f"{GRAPHS.get(name, name)}; {known['vertices']} vertices, {known['links']} links. K = {known['k']}. "
        f"{known['validation']:.0%} of the links are held out as validation pairs and {known['test']:.0%} as test "
        "pairs, with as many non-links. Validation pairs chose mmsbgen's start and end; the test pairs are too few for "
        "a precise AUC. All methods but svinet rank the same pairs."
    )
