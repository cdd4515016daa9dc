"""The part of docs/quality.md on the other comparisons: a few figures of each of their reports."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from _quality_methods import CHOSEN_K, MMSBGEN, TITLES
from _report import REPORTS, markdown_table

#: The graph of the hidden links, and the family of the LFR graphs.
GRAPH, FAMILY = "CA-GrQc", "n1000-mu"
INTRO = """\
## Other comparisons

Three reports have details: [planted covers](reports/lfr.md), [hidden links](reports/links.md) (other pairs than in the
section CA-GrQc), and [calibration](reports/calibration.md)."""


def _runs(name: str) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = json.loads((REPORTS / f"{name}.json").read_text())["runs"]
    return runs


def _row(what: str, values: Mapping[str, float], ours: str, own: tuple[str, ...]) -> list[str]:
    """A figure of ours, and the best of the methods that are not our ``own``."""
    others = {name: value for name, value in values.items() if name not in own}
    best = max(others, key=others.__getitem__)
    return [what, f"{values[ours]:.3f}", f"{others[best]:.3f}, {TITLES.get(best, best.replace('-', ' '))}"]


def more() -> list[str]:
    """Lines of the part."""
    by_method: defaultdict[str, list[float]] = defaultdict(list)
    for run in _runs("lfr"):
        if run["graph"].startswith(FAMILY) and run["status"] == "ok":
            by_method[run["method"]].append(run["scores"]["onmi"])
    means = {name: statistics.fmean(values) for name, values in by_method.items()}
    kinds = "LFR, N = 1000, half of the vertices overlap: mean ONMI max of 18 kinds of graphs"
    rows = [_row(kinds, means, CHOSEN_K, (CHOSEN_K, MMSBGEN))]
    found = {run["method"]: run["auc"] for run in _runs("links") if run["graph"] == GRAPH and run["status"] == "ok"}
    own = tuple(name for name in found if name.startswith("mmsbgen"))
    for kind, pairs in enumerate(("any pair", "pairs at distance 2 or 3")):
        auc = {name: both[kind] for name, both in found.items()}
        rows.append(_row(f"{GRAPH}: AUC of hidden links, {pairs}", auc, "mmsbgen", own))
    runs = [run for run in _runs("calibration") if run["before"] and run["after"]]
    before, after = (statistics.fmean(run[key]["ece"] for run in runs) for key in ("before", "after"))
    count = len({run["graph"] for run in runs})
    error = f"calibration error (ECE), mean of {count} graphs"
    rows.append([error, f"{after:.3f}", f"{before:.3f}, mmsbgen without calibration"])
    return [*INTRO.splitlines(), "", *markdown_table(("measure", "mmsbgen", "best of the others"), rows)]
