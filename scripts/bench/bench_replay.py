#!/usr/bin/env python
"""Hold the search strategies against recorded sweeps, without a device.

    cd docs/reports
    ../../scripts/bench/bench_replay.py tuning-h200-cuda.jsonl.gz tuning-h200-sizes.jsonl.gz sweep-*.jsonl.gz \\
        --seeds 100 --least 95 \\
        --held-out transfer-h200-cuda.jsonl.gz tuning-h200.jsonl.gz tuning-h200-opencl.jsonl.gz tuning-cpu.jsonl.gz

The default strategy gets a tenth of a sweep: of its configurations, or of the seconds that compiling and measuring them
took.  It has found what it looked for when its best is within 3 % of the sweep's.  All strategies and Optuna get a
twentieth, and look for 1 % and 3 %.  No constant of the strategy was chosen by the sweeps of --held-out.  Writes
docs/reports/replay.{md,json}.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from _harness import progress
from _report import Report
from replay import Replay, Sweep, replay, sweeps
from replay_transfer import AFTER, expected_by, transfer

from mmsbgen.base.errors import MmsbgenError
from mmsbgen.db.exchange import jsonl
from mmsbgen.db.selection.index import Index
from mmsbgen.families import family
from mmsbgen.report.tuning.cases import device_label
from mmsbgen.tuner.search.strategies import STRATEGIES

NEAR = 0.03
#: Searches of the strategies that are compared, and of the first number in a column of two.
FEW = 10
SHARE = 0.1
#: It tries configurations in the order of the file, in which the best ones may come first.
COMPARED = (*(name for name in STRATEGIES if name != "exhaustive"), "optuna_tpe")
#: The default strategy that knows what was recorded for other problems on the device.
KNOWING = "default, knowing other problems"
#: What all strategies have of a sweep, and how near to its best they shall come.
TWENTIETH = 0.05
NEARER = 0.01
#: Fewest configurations of a sweep in the study of transfer, and of one that chose its constants.
SMALL = 20
CHOSE = 60

KINDS: dict[str, dict[str, Any]] = {"trials": {}, "seconds": {"unit": "seconds"}, "blind": {"blind": True}}


def found(runs: Iterable[Replay], near: float = NEAR) -> int:
    """How many runs came near enough to the best."""
    return sum(run.loss <= near for run in runs)


def both(runs: Sequence[Replay]) -> str:
    """How many of the first ten did, and of all where there are more."""
    return f"{found(runs[:FEW])}" + (f", {found(runs)}" if len(runs) > FEW else "")


def names_of(have: Sequence[Sweep]) -> tuple[list[str], str]:
    """What tells sweeps apart, of each, and what they have in common."""
    words = [[*sweep.label.split(), device_label(sweep.key.device)] for sweep in have]
    shared = [word for word in words[0] if all(word in other for other in words)]
    if len(have) == 1:
        return [" ".join(shared)], ""
    return [" ".join(word for word in one if word not in shared) for one in words], " ".join(shared)


def default_row(name: str, sweep: Sweep, runs: dict[str, list[Replay]]) -> list[str]:
    """The default strategy's row for one sweep."""
    one = runs["trials"][0]
    cost = statistics.median(run.cost_s for run in runs["trials"]) / sweep.total_s
    tried = statistics.median(run.tried for run in runs["seconds"])
    worst = max(run.loss for run in runs["trials"])
    return [
        name,
        f"{len(sweep.configs)} of {sweep.valid()}",
        str(sum(s <= (1 + NEAR) * sweep.best_s for s in sweep.seconds.values())),
        str(one.tried),
        both(runs["trials"]),
        both(runs["blind"]),
        f"{worst:.1%}",
        f"{cost:.0%}",
        both(runs["seconds"]),
        f"{tried:.0f}",
    ]


def columns(runs: Sequence[Replay]) -> dict[str, list[float]]:
    """Of each search how many it tried, what that cost, and what it lost, to four digits."""
    return {name: [float(f"{getattr(run, name):.4g}") for run in runs] for name in ("tried", "cost_s", "loss")}


def searched(have: Sequence[Sweep], seeds: int) -> tuple[list[list[str]], list[dict[str, Any]]]:
    """The default strategy on sweeps: rows of a table, and all numbers."""
    rows, data = [], []
    for name, sweep in zip(names_of(have)[0], have, strict=True):
        progress(f"{sweep.label}: {len(sweep.configs)} configurations")
        runs = {
            kind: [replay(sweep, "default", seed=s, share=SHARE, **how) for s in range(seeds)]
            for kind, how in KINDS.items()
        }
        rows.append(default_row(name, sweep, runs))
        data.append(
            {
                "sweep": sweep.label,
                "device": sweep.key.device.label,
                "recorded": len(sweep.configs),
                "valid": sweep.valid(),
                "best_s": sweep.best_s,
                "total_cost_s": sweep.total_s,
                "runs": {kind: columns(made) for kind, made in runs.items()},
            }
        )
    return rows, data


def side_by_side(report: Report, have: Sequence[Sweep], index: Index, seeds: int) -> None:
    """All strategies at a twentieth of each sweep, from the default and blind."""
    names, shared = names_of(have)
    made: dict[str, list[tuple[list[Replay], list[Replay]]]] = {}
    each_ms: dict[str, float] = {}
    for strategy in (KNOWING, *COMPARED):
        progress(strategy)
        name, began = "default" if strategy == KNOWING else strategy, time.perf_counter()
        pairs = made[strategy] = []
        for sweep in have:
            expected = expected_by(sweep, index, family()) if strategy == KNOWING else ()
            how: dict[str, Any] = {"share": TWENTIETH, "expected": expected}
            begun, blind = (
                [replay(sweep, name, seed=s, blind=blind, **how) for s in range(seeds)] for blind in (False, True)
            )
            pairs.append((begun, blind))
        tried = sum(run.tried for pair in pairs for runs in pair for run in runs)
        each_ms[strategy] = 1e3 * (time.perf_counter() - began) / tried
    letters = [chr(ord("A") + place) for place in range(len(have))]
    for near in (NEARER, NEAR):
        report.text(f"## All strategies at a twentieth, within {near:.0%}", "", shared)
        counts = {name: [[found(runs, near) for runs in pair] for pair in pairs] for name, pairs in made.items()}
        rows = []
        for name in sorted(counts, key=lambda name: -sum(map(sum, counts[name]))):
            sums = [sum(column) for column in zip(*counts[name], strict=True)]
            cells = [f"{begun}, {blind}" for begun, blind in (*counts[name], sums)]
            rows.append([name, *cells, f"{each_ms[name]:.1f}"])
        report.table(["strategy", *letters, "sum", "ms a trial"], rows)
        report.data[f"found within {near}"] = counts
    trials = [round(TWENTIETH * len(sweep.configs)) for sweep in have]
    close = [sum(s <= (1 + NEARER) * sweep.best_s for s in sweep.seconds.values()) for sweep in have]
    report.text(f"Found of {seeds} searches, with and without the built-in default as a start. The sweeps:")
    report.text(
        *(
            f"- {letter}: {name}; {count} trials of {len(sweep.configs)}, {good} of these within {NEARER:.0%}"
            for letter, name, sweep, count, good in zip(letters, names, have, trials, close, strict=True)
        )
    )


def transferred(report: Report, have: Sequence[Sweep], index: Index, seeds: int) -> None:
    """Searches that know the device's records of other problems."""
    report.text("## Searches that know records of other problems")
    table = []
    for title, some in (
        (f"from {CHOSE} on", [sweep for sweep in have if len(sweep.configs) >= CHOSE]),
        (f"{SMALL} to {CHOSE - 1}", [sweep for sweep in have if len(sweep.configs) < CHOSE]),
    ):
        progress(f"transfer: {title} configurations")
        table.append([title, *transfer(some, index, family(), seeds)])
    after = [f"after {count}" for count in AFTER]
    report.table(["configurations", "sweeps", *after, "to 1 %", "to 3 %", "sooner, same, later", "most"], table)
    report.text(
        f"Median loss after so many trials, and median trials to within 1 % and 3 % of the best, without and with "
        f"these records ({seeds} seeds). *Sooner*: sweeps in which these records save trials until the loss is 3 %; "
        f"*most*: trials that they cost at worst. The constants were chosen by the sweeps from {CHOSE} "
        "configurations on."
    )
    report.data["transfer"] = table


def main() -> None:
    """Replay, and write the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="RECORDS", help="files of tuning records")
    parser.add_argument("--seeds", type=int, default=10, help="searches of each kind (default: 10)")
    parser.add_argument("--least", type=int, default=100, help="configurations that a sweep must have (default: 100)")
    parser.add_argument("--held-out", nargs="+", type=Path, default=[], metavar="RECORDS", help="sweeps from 50 on")
    args = parser.parse_args()
    have = [sweep for path in args.files for sweep in sweeps(jsonl.read(path).trials, family(), least=args.least)]
    held_out = [sweep for path in args.held_out for sweep in sweeps(jsonl.read(path).trials, family(), least=50)]
    if not have:
        raise SystemExit(f"no sweep of at least {args.least} configurations in these files")
    report = Report(
        "Strategies on recorded sweeps",
        f"{args.seeds} seeded searches a sweep, without a device. Each has a tenth of the sweep: of its "
        "configurations, or of the seconds that compiling and measuring all of them took. It has found what it looked "
        f"for when its best is within {NEAR:.0%} of the sweep's. A configuration counts with the least of its "
        "repetitions; one that the sweep lacks cannot be tried.",
        behind="",
    )
    rows, data = searched(have, args.seeds)
    heads = ["sweep", "recorded of valid", f"within {NEAR:.0%}", "trials", "found", "blind", "worst loss", "cost"]
    heads += ["found by cost", "trials by cost"]
    report.text("## The default strategy", "", names_of(have)[1])
    report.table(heads, rows)
    of = f"of {FEW} searches, and of {args.seeds}" if args.seeds > FEW else f"of {args.seeds} searches"
    report.text(
        "- *recorded of valid*: what the sweep has of the whole space",
        "- *within*: how many of these are that near to the best",
        f"- *found*: {of}",
        "- *blind*: found without the built-in default, which may have been chosen on this very device",
        "- *cost*: what the trials took of the seconds of the whole sweep; *by cost*: a tenth of these seconds",
    )
    if held_out:
        report.text("## The default strategy on smaller sweeps", "", names_of(held_out)[1])
        more, numbers = searched(held_out, args.seeds)
        few = [0, 3, 4, 5, 6]
        report.table([heads[i] for i in few], [[row[i] for i in few] for row in more])
        report.data["held_out"] = numbers
        report.text(
            "No constant of the strategy was chosen by these. They are records of earlier searches and of "
            "configurations carried over from other sizes."
        )
    records = [trial for path in [*args.files, *args.held_out] for trial in jsonl.read(path).trials]
    index = Index.of_trials(records)
    side_by_side(report, have, index, args.seeds)
    transferred(report, sweeps(records, family(), least=SMALL), index, min(FEW, args.seeds))
    report.data |= {"share": SHARE, "near": NEAR, "sweeps": data}
    report.write("replay")


if __name__ == "__main__":
    try:
        main()
    except MmsbgenError as error:
        raise SystemExit(f"bench_replay: {error}") from None
