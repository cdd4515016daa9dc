#!/usr/bin/env python
"""Hold the search strategies against recorded sweeps, without a device.

    cd docs/reports
    ../../scripts/bench/bench_replay.py tuning-h200-cuda.jsonl.gz tuning-h200-sizes.jsonl.gz sweep-*.jsonl.gz \\
        --seeds 100 --least 95 \\
        --known transfer-h200-cuda.jsonl.gz tuning-h200.jsonl.gz tuning-h200-opencl.jsonl.gz tuning-cpu.jsonl.gz

All strategies and Optuna get a twentieth of a sweep, and look for a configuration within 1 % and 3 % of its best.  The
default strategy is also searched with what these files and those of --known have of other problems.  What a tenth
finds, and what other records save, tests/scripts/test_replay.py tells.  Writes docs/reports/replay.{md,json}.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from _harness import progress
from _report import Report
from replay import Replay, Sweep, known_of_others, replay, sweeps

from mmsbgen.base.errors import MmsbgenError
from mmsbgen.db.exchange import jsonl
from mmsbgen.db.selection.index import Index
from mmsbgen.families import family
from mmsbgen.report.tuning.cases import device_label
from mmsbgen.tuner.search.strategies import STRATEGIES

#: It tries configurations in the order of the file, in which the best ones may come first.
COMPARED = (*(name for name in STRATEGIES if name != "exhaustive"), "optuna_tpe")
#: The default strategy that knows what was recorded for other problems on the device.
KNOWING = "default, knowing other problems"
#: What all strategies have of a sweep, and how near to its best they shall come.
TWENTIETH = 0.05
NEARER, NEAR = 0.01, 0.03


def found(runs: Iterable[Replay], near: float) -> int:
    """How many runs came near enough to the best."""
    return sum(run.loss <= near for run in runs)


def names_of(have: Sequence[Sweep]) -> tuple[list[str], str]:
    """What tells sweeps apart, of each, and what they have in common."""
    words = [[*sweep.label.split(), device_label(sweep.key.device)] for sweep in have]
    shared = [word for word in words[0] if all(word in other for other in words)]
    if len(have) == 1:
        return [" ".join(shared)], ""
    return [" ".join(word for word in one if word not in shared) for one in words], " ".join(shared)


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
            expected = known_of_others(sweep, index, family()) if strategy == KNOWING else ()
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


def main() -> None:
    """Replay, and write the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="RECORDS", help="files of tuning records")
    parser.add_argument("--seeds", type=int, default=10, help="searches of each kind (default: 10)")
    parser.add_argument("--least", type=int, default=100, help="configurations that a sweep must have (default: 100)")
    parser.add_argument("--known", nargs="+", type=Path, default=[], metavar="RECORDS", help="more that is known")
    args = parser.parse_args()
    records = {path: jsonl.read(path).trials for path in [*args.files, *args.known]}
    have = [sweep for path in args.files for sweep in sweeps(records[path], family(), least=args.least)]
    if not have:
        raise SystemExit(f"no sweep of at least {args.least} configurations in these files")
    report = Report(
        "Strategies on recorded sweeps",
        f"{args.seeds} seeded searches a sweep, without a device. Each has a twentieth of the configurations. One "
        "counts with the least of its repetitions; one that the sweep lacks cannot be tried.",
        behind="",
    )
    side_by_side(report, have, Index.of_trials(trial for of in records.values() for trial in of), args.seeds)
    report.write("replay")


if __name__ == "__main__":
    try:
        main()
    except MmsbgenError as error:
        raise SystemExit(f"bench_replay: {error}") from None
