"""The graphs of bench_quality.py, rows of an earlier measurement, and texts of the page."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from _kept import GraphCase

from mmsbgen.scores import evaluate, read_cover

#: Graphs without known communities: their K and the shares of links held out for validation and for test.
HELD_OUT = {"CA-GrQc": (50, 0.09, 0.01)}
#: The graphs: what they are, what their known communities are, and where they are from.
GRAPHS = {
    "fb_348": "Facebook ego network, social circles; SNAP, as in shchur/overlapping-community-detection (MIT)",
    "fb_686": "likewise",
    "fb_1684": "likewise, circles nearly disjoint",
    "lfr-n1000-k28": "LFR, planted, overlapping; comes with premgopalan/svinet",
    "email-Eu-core": "e-mail in a research institute, departments, disjoint; SNAP",
    "amazon-1.90": "part of com-amazon, tiny product categories; SNAP, as in FDUDSDE/KDD2022CLARE",
    "CA-GrQc": "Collaboration in general relativity, SNAP",
}

#: Rows of an earlier measurement with the same measures over the same vertices: runs, communities, coverage,
#: memberships, ONMI and its deviation, LFK, average F1, Omega, seconds; the rules are communities.txt and pi > 0.1.
QUOTED: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "fb_348": (
        (3, 14.0, 0.94, 2.42, 0.230, 0.015, 0.229, 0.509, 0.080, 6.7),
        (3, 14.0, 0.99, 1.63, 0.272, 0.025, 0.257, 0.515, -0.022, 6.7),
    ),
    "fb_686": (
        (3, 14.0, 0.92, 2.87, 0.154, 0.001, 0.157, 0.482, 0.116, 3.4),
        (3, 14.0, 0.99, 2.27, 0.152, 0.001, 0.147, 0.457, 0.084, 3.4),
    ),
    "fb_1684": (
        (3, 17.0, 0.96, 2.35, 0.172, 0.024, 0.168, 0.421, 0.302, 3.9),
        (3, 17.0, 0.99, 1.81, 0.201, 0.024, 0.202, 0.428, 0.384, 3.9),
    ),
    "lfr-n1000-k28": (
        (3, 27.7, 1.00, 2.48, 0.824, 0.030, 0.834, 0.914, 0.847, 6.1),
        (3, 27.7, 1.00, 2.47, 0.898, 0.030, 0.900, 0.938, 0.921, 6.1),
    ),
    "email-Eu-core": (
        (3, 42.0, 0.86, 4.03, 0.048, 0.002, 0.056, 0.309, 0.117, 6.1),
        (3, 42.0, 0.98, 1.99, 0.186, 0.023, 0.191, 0.424, 0.291, 6.1),
    ),
    "amazon-1.90": (
        (3, 626.0, 0.86, 1.22, 0.373, 0.020, 0.393, 0.627, 0.416, 39.6),
        (3, 626.0, 1.00, 1.32, 0.384, 0.023, 0.366, 0.614, 0.401, 39.6),
    ),
}
#: AUC and seconds, of the same measurement.
QUOTED_AUC = {"CA-GrQc": ("svinet, on 1 % of its own choice †", 0.93, 8)}


INTRO = """\
This page compares the communities of mmsbgen and of other methods with known ones.{command_note}

Every graph was run as `mmsbgen detect GRAPH -k K --seed S -o OUT`. K is the number of distinct known communities.
CA-GrQc has none, and was run with `-k 50 --validation 0.09 --test 0.01`.

## Reading the tables

* **Scores** are those of [`mmsbgen evaluate --graph`](how-to/compare.md). Look at [ONMI](reference/glossary.md#chain)
  max first (1 is perfect); the first row of its table has the best mean. Average F1 is high even for one community with
  every vertex. Repeated communities and those of one vertex are left out.
* **K** is given to mmsbgen, svinet and BigCLAM, which is an advantage; but mmsbgen and svinet hold out links that the
  others see.
* **±** is the standard deviation over five seeds, three for slow methods; in the README, after an AUC, its standard
  error.
* **Seconds** are the medians of the fastest and of the slowest graph, on a busy machine. For mmsbgen they are of the
  whole command, for the others of the method alone.
* **Parameters** of the others are their libraries' defaults, unless a name shows another value.
"""

LIMITS = """\
## What this does not show

mmsbgen ran on seven small graphs, on one machine, with defaults except on CA-GrQc. K is given here; [choose
K](how-to/choose-k.md) shows how well mmsbgen chooses it. Where communities are disjoint or tiny, [another
method](when-not-to-use-it.md) may be better or faster: on email-Eu-core, Leiden with about K communities, mmsbgen's own
start, is.
"""


COVERS_INTRO = """\
## The graphs

The last three columns: of the distinct known communities / of mmsbgen's (mean over seeds)."""

STARTS_INTRO = """\
## Starts and ends

A chain [starts](statistics.md#what-a-run-does) from sets that a fast method finds, or at random. The table compares two
starts, Leiden's communities and ego nets, before any sweep, with the covers at the end. It gives the mean ONMI max, or
for CA-GrQc the AUC of validation pairs. Log-likelihoods are of the start that was chosen, in nats a validation pair."""


@dataclass
class Case(GraphCase):
    """A graph with its known communities, if there are any."""

    @cached_property
    def truth(self) -> list[list[str]] | None:
        path = self.file.with_name(f"{self.name}.cmty.txt.gz")
        return None if self.name in HELD_OUT else read_cover(path)

    @property
    def distinct(self) -> int:
        return len({frozenset(one) for one in self.truth or []})

    @property
    def k(self) -> int:
        return HELD_OUT[self.name][0] if self.truth is None else self.distinct

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What the page says of the graph."""
        known: dict[str, Any] = {"vertices": self.graph.n_vertices, "links": self.graph.n_links, "k": self.k}
        if self.truth is None:
            return known | {"communities": 0, "validation": HELD_OUT[self.name][1], "test": HELD_OUT[self.name][2]}
        members = [member for one in self.truth for member in one]
        covered = len(set(members))
        return known | {
            "communities": len(self.truth),
            "distinct": self.distinct,
            "coverage": covered / self.graph.n_vertices,
            "memberships": len(members) / covered,
        }

    def scores(self, cover: Path) -> dict[str, Any]:
        """All scores of a file of communities."""
        assert self.truth is not None
        return asdict(evaluate(read_cover(cover), self.truth, self.graph.ids.tolist()))
