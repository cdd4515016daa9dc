#!/usr/bin/env python
"""What selection loses where nothing was tuned: leave recorded problems out in turn and select for them.

    scripts/bench/bench_selection.py        # writes docs/reports/selection.json and selection.md

Efficiency is the time of the best recorded configuration over that of the one selected, both as recorded for the
problem left out.  Where what is selected was not tried there, nobody knows its time: such cases are counted, and the
next choice that was tried stands for it, in a column of its own.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from _report import REPORTS, markdown_table

from mmsbgen.db.exchange import jsonl
from mmsbgen.db.records.canonical_json import digest
from mmsbgen.db.records.ranking import candidate, ranked
from mmsbgen.db.records.tuning_records import Key, TrialRecord
from mmsbgen.db.selection import transfer
from mmsbgen.db.selection.index import Index
from mmsbgen.families import family
from mmsbgen.kernels.record_key import recorded_traits
from mmsbgen.kernels.space import describe
from mmsbgen.report.tuning.cases import device_label

SWEEPS = (
    "transfer-h200-cuda.jsonl.gz",
    "tuning-h200-cuda.jsonl.gz",
    "tuning-h200-opencl.jsonl.gz",
    "tuning-cpu.jsonl.gz",
)
MMSB = family()
#: Columns of the tables, and what they are of a summary.
COLUMNS = {
    "problems": "problems",
    "tried": "choice tried",
    "median": "median",
    "minimum": "minimum",
    "stood in": "next one stood in",
    "median then": "median with these",
    "minimum then": "minimum with these",
    "nothing tried": "nothing tried",
    "least median": "median with 0 for all that is not known",
}


@dataclass(frozen=True)
class Fold:
    """One problem that was left out, and what was selected for it."""

    sweep: str
    device: str
    kernel: str
    problem: dict[str, Any]
    tier: str
    config: str
    tried: bool
    """Whether what was selected had been tried for this problem; else ``efficiency`` is of the next that had."""
    efficiency: float | None
    """None where nothing that could be selected had been tried."""


@dataclass(frozen=True)
class Set:
    """What is left out with a problem, and what must be left for a problem to count."""

    leaves_out: Callable[[Key, Key], bool]
    answers: Callable[[Key, Key], bool]


def _same(target: Key, key: Key, *names: str) -> bool:
    """Whether a record is of the same device and kernel, and of a problem with the same values of ``names``."""
    a, b = target.problem.params, key.problem.params
    here = target.device.key == key.device.key and target.kernel == key.kernel
    return here and all(a.get(name) == b.get(name) for name in names)


SETS = {
    "another K": Set(lambda target, key: _same(target, key, "K"), _same),
    "another m or n": Set(
        lambda target, key: _same(target, key, "K", "m", "n"), lambda target, key: _same(target, key, "K")
    ),
    "another device": Set(lambda target, key: target.device.identity == key.device.identity, lambda target, key: True),
}


def load(folder: Path = REPORTS) -> list[tuple[str, TrialRecord]]:
    """The trials that worked, each with the name of its sweep."""
    return [(name, t) for name in SWEEPS for t in jsonl.read(folder / name).trials if t.status == "ok"]


def folds(records: Sequence[tuple[str, TrialRecord]], left_out: Set, *, always: bool = False) -> list[Fold]:
    """One fold for each recorded problem for which something is left; ``always`` carries over also what is valid."""
    by_key: dict[Key, list[TrialRecord]] = {}
    sweeps: dict[Key, str] = {}
    for sweep, trial in records:
        by_key.setdefault(trial.key, []).append(trial)
        sweeps.setdefault(trial.key, sweep)
    found = []
    for key, trials in by_key.items():
        there = [trial for _, trial in records if trial.key.kernel.name == key.kernel.name]
        rest = [trial for trial in there if not left_out.leaves_out(key, trial.key)]
        if any(left_out.answers(key, trial.key) for trial in rest):
            found.append(_fold(sweeps[key], key, trials, Index.of_trials(rest), always))
    return found


def _fold(sweep: str, key: Key, trials: Iterable[TrialRecord], index: Index, always: bool) -> Fold:
    spec, traits = MMSB.kernel(key.kernel.name), recorded_traits(key.device)
    problem = MMSB.problem(**key.problem.params)
    order = ranked(map(candidate, trials))
    times: dict[str, float] = {}
    for one in order:
        times.setdefault(one.config_digest, one.median_s)
    carry = MMSB.carried(key.kernel.name, traits)
    if always and spec.carry is not None:
        relative = spec.carry

        def carry(config: Any, before: Any, after: Any) -> Any:
            return dict(relative(config, MMSB.problem(**before), MMSB.problem(**after), traits))

    def select(allowed: Callable[[dict[str, Any]], bool]) -> Any:
        return index.select(
            key,
            valid=lambda config: spec.space.refusal(config, problem, traits) is None and allowed(config),
            default=spec.default(problem, traits),
            irrelevant=MMSB.soft_parameters,
            weights=MMSB.weights,
            carry=carry,
        )

    first = select(lambda config: True)
    tried = digest(first.config) in times
    used = first if tried else select(lambda config: digest(config) in times)
    time = times.get(digest(used.config))
    efficiency = None if time is None else round(min(1.0, order[0].median_s / time), 4)
    return Fold(
        sweep,
        device_label(key.device),
        key.kernel.name,
        dict(key.problem.params),
        first.tier,
        describe(first.config),
        tried,
        efficiency,
    )


def summary(found: Sequence[Fold]) -> dict[str, Any]:
    """Counts, medians and minima: over the folds whose choice was tried, and over all with the ones that stood in."""
    tried = [fold.efficiency for fold in found if fold.tried and fold.efficiency is not None]
    every = [fold.efficiency for fold in found if fold.efficiency is not None]
    least = [fold.efficiency if fold.tried and fold.efficiency is not None else 0.0 for fold in found]
    return {
        "problems": len(found),
        "choice tried": len(tried),
        "median": round(statistics.median(tried), 4) if tried else None,
        "minimum": min(tried, default=None),
        "next one stood in": len(every) - len(tried),
        "median with these": round(statistics.median(every), 4) if every else None,
        "minimum with these": min(every, default=None),
        "nothing tried": len(found) - len(every),
        "median with 0 for all that is not known": round(statistics.median(least), 4) if least else None,
    }


def report(records: Sequence[tuple[str, TrialRecord]]) -> dict[str, Any]:
    """Everything that selection.json holds."""
    made: dict[str, list[Fold]] = {name: folds(records, left_out) for name, left_out in SETS.items()}
    swept = [one for one in records if one[0] == SWEEPS[0]]
    ways = {"all near problems, adapted only where not valid (in use)": summary(folds(swept, SETS["another K"]))}
    ways["the same, with every block adapted to K"] = summary(folds(swept, SETS["another K"], always=True))
    nearest = transfer.NEAREST
    try:
        transfer.NEAREST = 1
        ways["the nearest problem alone"] = summary(folds(swept, SETS["another K"]))
    finally:
        transfer.NEAREST = nearest
    return {
        "sets": {
            name: {
                "all sweeps": summary(found),
                **{sweep: summary([fold for fold in found if fold.sweep == sweep]) for sweep in SWEEPS},
            }
            for name, found in made.items()
        },
        "ways": ways,
        "folds": {name: [asdict(fold) for fold in found] for name, found in made.items()},
    }


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _row(name: str, s: dict[str, Any]) -> list[str]:
    numbers = {key: _number(value) if key.startswith(("median", "minimum")) else str(value) for key, value in s.items()}
    return [name, *(numbers[key] for key in COLUMNS.values())]


def page(made: dict[str, Any]) -> str:
    """The report for a reader."""
    lines = [
        "# Selection where nothing was tuned",
        "",
        "How much selection loses for a problem that was never tuned: another K, another m or n, or another device.",
        "",
        "Every recorded problem is left out in turn, with all records of its K, its sizes or its device. The rest make",
        "the choice.",
        "Efficiency is the best recorded time of the problem over the recorded time of the choice.",
        "Medians and minima are of efficiencies.",
        "",
        "- *tried*: problems for which the choice had been tried; the first median and minimum are of these",
        "- *stood in*: the choice had not been tried; the second median and minimum take the next one that had",
        "- *nothing tried*: no choice had been tried there",
        "- *least median*: a choice whose time is not known counts as 0",
        "",
        "Each problem is in [selection.json](selection.json). Command: `scripts/bench/bench_selection.py`.",
        "",
    ]
    for name, parts in made["sets"].items():
        shown = {sweep: s for sweep, s in parts.items() if s["problems"]}
        rows = [_row(sweep, s) for sweep, s in shown.items()]
        lines += [f"## {name[0].upper()}{name[1:]}", "", *markdown_table(("what", *COLUMNS), rows), ""]
    lines += ["## Ways compared, for another K", ""]
    lines += [f"On {SWEEPS[0]}, in which most near problems have the same configurations.", ""]
    lines += markdown_table(("what", *COLUMNS), [_row(name, s) for name, s in made["ways"].items()])
    return "\n".join(lines) + "\n"


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.option("--output", type=click.Path(path_type=Path), default=REPORTS, help="Folder of the report.")
def main(output: Path) -> None:
    made = report(load())
    (output / "selection.json").write_text(json.dumps(made, indent=1) + "\n")
    (output / "selection.md").write_text(page(made))
    for name, parts in made["sets"].items():
        click.echo(f"{name}: {parts['all sweeps']}")


if __name__ == "__main__":
    main()
