"""The graphs of bench_quality.py, rows of an earlier measurement, and texts of the page."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mmsbgen.graph import Graph, GraphWarning, load_edge_list
from mmsbgen.scores import evaluate, read_cover

#: Graphs without known communities: their K and the shares of links held out for validation and for test.
HELD_OUT = {"CA-GrQc": (50, 0.09, 0.01)}
#: The graphs, where they are from, and what their known communities are.
GRAPHS = {
    "fb_348": ("Facebook ego network 348, SNAP, as in shchur/overlapping-community-detection (MIT)", "social circles"),
    "fb_686": ("Facebook ego network 686, of the same source", "social circles"),
    "fb_1684": ("Facebook ego network 1684, of the same source", "social circles, nearly disjoint"),
    "lfr-n1000-k28": ("LFR benchmark graph that comes with premgopalan/svinet", "planted, overlapping"),
    "email-Eu-core": ("E-mail in a research institute, SNAP", "departments, disjoint"),
    "amazon-1.90": ("Part of SNAP's com-amazon, as in FDUDSDE/KDD2022CLARE", "product categories, tiny"),
    "CA-GrQc": ("Collaboration in general relativity, SNAP", "none known: held-out links instead"),
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
How well the communities that mmsbgen finds with its defaults agree with known ones, next to other methods on the same
graphs. {command_note}

The command is `mmsbgen detect GRAPH -k K --seed S -o OUT` for every graph; K is the number of distinct known
communities. Nothing else was chosen for a graph, but that CA-GrQc, of which none are known, has K = 50 and
`--validation 0.09 --test 0.01`.

## Reading the tables

* All scores are those of `mmsbgen evaluate COMMUNITIES TRUTH --graph GRAPH`, over all vertices of the graph, isolated
  ones too; communities that occur twice in the truth or have one member count. Communities of one vertex and repeated
  ones are left out of what methods find.
* Read ONMI max first (McDaid, Greene and Hurley). The average F1 rewards one community of all vertices where
  communities are large: see the row of that name, whose ONMI and Omega are 0.
* mmsbgen, svinet and BigCLAM are told K, the others find their own number. This is an advantage of these three, and
  the known communities are what people wrote down, not the only structure of a graph: no method comes near 1 on most.
  Of the links mmsbgen and svinet hold some out, the others see all.
* Means over seeds, ± the standard deviation over them. Seconds are the median: for mmsbgen of the whole command, with
  reading the graph and compiling kernels, for the others of the method alone; the machine did other work meanwhile.
* The rows of mmsbgen are by the rule `share`, the default when they were measured. By `evidence`, the default now,
  ONMI of the same chains differs by -.021 (email-Eu-core) to +.011 (fb_1684):
  [both](statistics.md#from-memberships-to-communities).
* The methods run as their libraries have them, with the parameters that their names show; other parameters could
  serve them better, as they could mmsbgen. A method that does not end within the limit is said to have no result.
"""

LIMITS = """\
## What this does not show

Seven small graphs, one machine, defaults only. Networks of millions of vertices have no known communities of this
kind that cover them. K is given: how well it can be chosen is in [statistics.md](statistics.md). Where communities are
disjoint or tiny the model has little to gain from mixed memberships: there take the method that stands first in such
a table. The table of starts shows where Leiden at about K communities alone agrees better with known ones.
"""


STARTS_INTRO = """\
## Starts, and what becomes of them

A chain of mmsbgen starts from sets that a fast method finds, or at random ([statistics.md](statistics.md)). A start
must not carry the score alone: here are the covers that the starts are, before any sweep, beside what the chains end
with; means over seeds. ONMI max for graphs with known communities, AUC of validation pairs for the other. The
log-likelihood is that of a validation pair (nats; classes by their share in the graph), of the start that was chosen
before any sweep, and at the end."""


@dataclass
class Case:
    """A graph with its known communities, if there are any."""

    name: str
    file: Path

    @cached_property
    def graph(self) -> Graph:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GraphWarning)
            return load_edge_list(self.file)

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
