#!/usr/bin/env python
"""Hold the search strategies against recorded sweeps, without a device.

    scripts/bench/bench_replay.py docs/reports/tuning-h200-cuda.jsonl.gz docs/reports/sweep-*.jsonl.gz

A strategy gets a tenth of a sweep: of its configurations, or of the seconds that compiling and measuring them took.
It has found what it looked for when its best is within 3 % of the sweep's.  Writes docs/reports/replay.{md,json}.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from _common import Report, progress

from mmsbgen.db import exchange
from mmsbgen.errors import MmsbgenError
from mmsbgen.families import family
from mmsbgen.tuner.replay import Replay, Sweep, replay, sweeps
from mmsbgen.tuner.search import STRATEGIES

NEAR = 0.03
SHARE = 0.1
#: It tries configurations in the order of the file, in which the best ones may come first.
COMPARED = tuple(name for name in STRATEGIES if name != "exhaustive")


def found(runs: Iterable[Replay]) -> int:
    """How many runs came near enough to the best."""
    return sum(run.loss <= NEAR for run in runs)


def default_row(sweep: Sweep, runs: dict[str, list[Replay]]) -> list[str]:
    """The default strategy's row for one sweep."""
    one = runs["trials"][0]
    cost = statistics.median(run.cost_s for run in runs["trials"]) / sweep.total_s
    tried = statistics.median(run.tried for run in runs["seconds"])
    worst = max(run.loss for run in runs["trials"])
    return [
        f"{sweep.label}, {sweep.key.device.label}",
        f"{len(sweep.configs)} of {sweep.valid()}",
        str(sum(s <= (1 + NEAR) * sweep.best_s for s in sweep.seconds.values())),
        str(one.tried),
        f"{found(runs['trials'])}",
        f"{found(runs['blind'])}",
        f"{worst:.1%}",
        f"{cost:.0%}",
        f"{found(runs['seconds'])}",
        f"{tried:.0f}",
    ]


def main() -> None:
    """Replay, and write the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="RECORDS", help="files of tuning records")
    parser.add_argument("--seeds", type=int, default=10, help="searches of each kind (default: 10)")
    parser.add_argument("--least", type=int, default=100, help="configurations that a sweep must have (default: 100)")
    args = parser.parse_args()
    have = [sweep for path in args.files for sweep in sweeps(exchange.read(path).trials, family(), least=args.least)]
    if not have:
        raise SystemExit(f"no sweep of at least {args.least} configurations in these files")
    report = Report(
        "Strategies on recorded sweeps",
        f"{args.seeds} seeded searches a sweep, each with a tenth of it: of its configurations, or of the seconds that "
        f"compiling and measuring all of them took. A search has found what it looked for when its best is within "
        f"{NEAR:.0%} of the sweep's. A configuration counts with the least of its recorded repetitions; one that the "
        "sweep lacks cannot be tried.",
    )
    rows, data = [], []
    for sweep in have:
        progress(f"{sweep.label}: {len(sweep.configs)} configurations")
        kinds: dict[str, dict[str, Any]] = {"trials": {}, "seconds": {"unit": "seconds"}, "blind": {"blind": True}}
        runs = {
            kind: [replay(sweep, "default", seed=s, share=SHARE, **how) for s in range(args.seeds)]
            for kind, how in kinds.items()
        }
        rows.append(default_row(sweep, runs))
        data.append(
            {
                "sweep": sweep.label,
                "device": sweep.key.device.label,
                "recorded": len(sweep.configs),
                "valid": sweep.valid(),
                "best_s": sweep.best_s,
                "total_cost_s": sweep.total_s,
                "runs": {kind: [asdict(run) for run in made] for kind, made in runs.items()},
            }
        )
    report.text("## The default strategy")
    report.table(
        [
            "sweep",
            "recorded of valid",
            f"within {NEAR:.0%}",
            "trials",
            f"found of {args.seeds}",
            "blind",
            "worst loss",
            "cost",
            "found by cost",
            "trials by cost",
        ],
        rows,
    )
    report.text(
        "*recorded of valid*: what the sweep has of the whole space; *within*: how many of these are that near to the "
        "best; *blind*: found when the search does not begin with the built-in default, which may have been chosen on "
        "this very device; *cost*: what the trials took of the seconds of the whole sweep; *by cost*: the tenth is one "
        "of those seconds."
    )
    report.text("## All strategies, blind")
    table, compared = [], {}
    for name in COMPARED:
        progress(name)
        counts, losses = [], []
        for sweep in have:
            made = [replay(sweep, name, seed=s, share=SHARE, blind=True) for s in range(args.seeds)]
            counts.append(found(made))
            losses += [run.loss for run in made]
        compared[name] = {"found": counts, "median_loss": statistics.median(losses)}
        table.append([name, *map(str, counts), str(sum(counts)), f"{statistics.median(losses):.1%}"])
    table.sort(key=lambda row: -int(row[-2]))
    heads = [f"{sweep.spec.name}, {sweep.key.device.label}" for sweep in have]
    report.table(["strategy", *heads, "all", "median loss"], table)
    report.data |= {"share": SHARE, "near": NEAR, "sweeps": data, "strategies": compared}
    report.write("replay")


if __name__ == "__main__":
    try:
        main()
    except MmsbgenError as error:
        raise SystemExit(f"bench_replay: {error}") from None
