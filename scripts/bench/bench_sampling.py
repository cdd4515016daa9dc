#!/usr/bin/env python
"""What runs that sample say of their samples, and what the samples cost.

Of every graph: R-hat and effective sample sizes, how many of the draws of held-out pairs lie in 90 % intervals of their
link probabilities, by single chains and by their mixture, and the part of the run's time that draws and moments take.
Pairs with a vertex that has no training link are left out, whose row is the prior's.

Writes docs/reports/sampling.md and .json.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from _harness import chosen_devices, parser, progress
from _report import ROOT, Report

from mmsbgen.detection.detect import Detection, detect
from mmsbgen.sampler.diagnostics.memberships import Memberships

#: Graphs and K.
GRAPHS = {"CA-GrQc": 50, "email-Eu-core": 42, "netscience": 100}
LEVEL = 0.9


def held(m: Memberships, draws: npt.NDArray[np.floating[Any]]) -> dict[str, float]:
    """The share of ``draws`` ``[T, H]`` within their intervals, of links and of non-links."""
    assert m.draws is not None
    _, ends = m.link_intervals(m.draws.pairs, LEVEL)
    inside = ((draws >= ends[:, 0]) & (draws <= ends[:, 1])).mean(axis=0)
    known = ~np.isin(m.draws.pairs, m.unlinked).any(axis=1)
    return {
        "links": float(inside[known & m.draws.links].mean()),
        "non_links": float(inside[known & ~m.draws.links].mean()),
    }


def measured(name: str, found: Detection) -> dict[str, Any]:
    """The numbers of one run."""
    m, record = found.memberships, found.record
    alone = [held(replace(one, others=()), one.draws.link_probabilities) for one in (m, *m.others) if one.draws]
    return {
        "graph": name,
        "k": m.k,
        "sampling": record["sampling"],
        "alone": {kind: float(np.mean([one[kind] for one in alone])) for kind in alone[0]},
        "pooled": held(m, np.concatenate([draws.link_probabilities for draws in m.all_draws])),
        "seconds": record["seconds"],
        "posterior_seconds": record["stage_seconds"]["posterior"],
        "bytes": record["memory"]["device"]["posterior mean"] + record["memory"]["device"]["posterior deviations"],
    }


def told(report: Report, rows: list[dict[str, Any]]) -> None:
    """Tables of the runs."""
    report.text("## R-hat and effective sample sizes of link probabilities")
    head = ("graph", "K", "chains", "draws", "R-hat, median", "above 1.01", "above 1.1", "bulk ESS, median", "tail ESS")
    lines = []
    for row in rows:
        of, links = row["sampling"], row["sampling"]["link_probabilities"]
        shares = (f"{links[name]:.0%}" for name in ("above_1.01", "above_1.1"))
        sizes = (f"{links[name]:.0f}" for name in ("ess_bulk_median", "ess_tail_median"))
        lines.append(
            (row["graph"], row["k"], of["chains"], of["draws"], f"{links['r_hat_median']:.3f}", *shares, *sizes)
        )
    report.table(head, lines)
    report.text("## Draws within 90 % intervals, and what the samples cost")
    head = ("graph", "chains", "links, alone", "non-links", "links, pooled", "non-links", "of the run's time")
    report.table(
        head,
        [
            (
                row["graph"],
                row["sampling"]["chains"],
                *(f"{row[which][kind]:.3f}" for which in ("alone", "pooled") for kind in ("links", "non_links")),
                f"{row['posterior_seconds'] / row['seconds']:.1%}",
            )
            for row in rows
        ],
    )


def main() -> None:
    """Run all graphs and write the report."""
    options = parser(__doc__, repetitions=1, database=False)
    options.add_argument("--data", type=Path, default=ROOT / "tests" / "data", help="folder of the graphs")
    options.add_argument("--sweeps", type=int, default=2000, help="sampling sweeps (%(default)s)")
    options.add_argument("--chains", type=int, default=2, help="chains (%(default)s)")
    given = options.parse_args()
    device = chosen_devices(given.device)[0]
    report = Report(
        "Samples of the posterior",
        f"Each run has {given.sweeps} sampling sweeps. Intervals come from single chains (alone) or from all of them "
        "(pooled). They use means and deviations of pi and beta only. Shares within 90 % intervals are of the draws of "
        "held-out pairs.",
        behind="",
    )
    report.devices.append(device)
    rows = []
    for name, k in GRAPHS.items():
        found = detect(
            given.data / f"{name}.txt.gz", k, device=device.spec, sample_sweeps=given.sweeps, chains=given.chains
        )
        rows.append(measured(name, found))
        progress(f"{name}: {found.record['sampling']['text']}")
    told(report, rows)
    report.data["runs"] = rows
    report.write("sampling", given.output)


if __name__ == "__main__":
    main()
