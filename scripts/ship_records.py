#!/usr/bin/env python
"""Make the file of a device that comes with the package from an export of its tuning database.

    scripts/ship_records.py build/tuning/nvidia-h200.jsonl

Every run of mmsbgen reads the shipped files, so they hold what a look-up may answer with and no more: of each problem
the best configurations in the present state of the templates, with their runs, but without hosts and processes.
Processors are left out, since one name stands for many machines.

What is the fastest by itself need not be so between the other kernels of an iteration.  With --chain, reports of
scripts/bench/bench_chain.py, configurations that are ahead of the chain's fastest by themselves only are left out.
Chains whose medians are apart by less than 1 %, or than the distance of either's quartiles, count as equally fast.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import click

from mmsbgen.db.exchange import formats, jsonl
from mmsbgen.db.exchange.jsonl import Bundle
from mmsbgen.db.records.canonical_json import digest
from mmsbgen.db.records.ranking import candidate, ranked
from mmsbgen.db.records.tuning_records import Key, TrialRecord
from mmsbgen.db.selection.index import SHIPPED
from mmsbgen.tuner.run.changed_keys import present_program

#: Times of a trial that are shipped.
TIMES = 31


#: Chains whose medians are apart by less than this, or by less than either's quartiles are, are as fast as each other.
NOISE = 0.01


class Chain(NamedTuple):
    """Times of a chain by configurations of one kernel: a result of ``bench_chain.py``."""

    device: tuple[str | int, ...]
    kernel: str
    template_digest: str
    problem: dict[str, Any]
    configs: dict[tuple[str, str], tuple[float, float]]
    """Median and distance of the quartiles, seconds, by the digests of a configuration and its program."""

    def is_of(self, key: Key) -> bool:
        """Whether the chain's kernel is that of the key, on such a device."""
        kernel = key.kernel.name, key.kernel.template_digest
        same = kernel == (self.kernel, self.template_digest) and dict(key.problem.params) == self.problem
        return same and key.device.identity == self.device

    @property
    def fastest(self) -> set[tuple[str, str]]:
        """The configuration that the chain is the fastest with, and those that cannot be told from it."""
        best, spread = min(self.configs.values())
        apart = {name: max(NOISE * best, spread, iqr) for name, (_, iqr) in self.configs.items()}
        return {name for name, (median, _) in self.configs.items() if median - best <= apart[name]}


def read_chains(path: Path) -> list[Chain]:
    """The results of a report.  Raises :class:`click.UsageError` for a file that is none."""
    try:
        results = json.loads(path.read_text())["results"]
        if not all(one["configs"] for one in results):
            raise ValueError("a result without a configuration")
        return [
            Chain(
                tuple(one["device"]),
                one["kernel"],
                one["template_digest"],
                one["problem"],
                {
                    (digest(found["config"]), found.get("program", "")): (found["median_s"], found["iqr_s"])
                    for found in one["configs"]
                },
            )
            for one in results
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise click.UsageError(f"--chain {path}: not a report of bench_chain.py ({error!r})") from error


def ahead(trials: Sequence[TrialRecord], chain: Chain) -> set[str]:
    """The configurations of a key that are before the chain's fastest by themselves; none where it has no trial."""
    order, fastest = [(one.config_digest, one.program) for one in ranked(map(candidate, trials))], chain.fastest
    first = next((place for place, config in enumerate(order) if config in fastest), None)
    if first is None:
        click.echo(f"no trial of what the chain of {chain.kernel}, {chain.problem} is the fastest with", err=True)
        return set()
    if first:
        click.echo(f"{first} configurations of {chain.kernel}, {chain.problem} are ahead by themselves only", err=True)
    return {config for config, _ in order[:first]}


def best_of(bundle: Bundle, most: int, chains: Sequence[Chain] = ()) -> Bundle:
    """What of an export is shipped: the ``most`` best configurations of each key, with their last timing in each run.

    Older runs are needed too, so that the ranking of what is shipped is that of the whole.
    """
    by_key: dict[Key, list[TrialRecord]] = defaultdict(list)
    for trial in bundle.trials:
        if trial.status == "ok" and trial.key.device.kind == "gpu" and _is_present(trial):
            by_key[trial.key].append(trial)
    kept: list[TrialRecord] = []
    for key, every in by_key.items():
        left = set().union(*(ahead(every, chain) for chain in chains if chain.is_of(key)))
        trials = [trial for trial in every if trial.config_digest not in left]
        best = {found.config_digest for found in ranked(map(candidate, trials))[:most]}
        last: dict[tuple[str, str], TrialRecord] = {}
        for trial in sorted(trials, key=lambda trial: trial.round):
            last[trial.run, trial.config_digest] = trial
        kept += [replace(trial, times=quantiles(trial.times)) for trial in last.values() if trial.config_digest in best]
    used = {trial.run for trial in kept}
    runs = [run for run in bundle.runs if run.uuid in used]
    roofs = [roof for roof in bundle.roofs if roof.run in used]
    return formats.anonymous(Bundle(runs=runs, roofs=roofs, trials=kept))


def quantiles(times: Sequence[float]) -> tuple[float, ...]:
    """At most :data:`TIMES` of the times, evenly spaced by rank: finals have hundreds, a look-up wants their median."""
    ordered = sorted(times)
    if len(ordered) <= TIMES:
        return tuple(times)
    return tuple(ordered[round(i * (len(ordered) - 1) / (TIMES - 1))] for i in range(TIMES))


def _is_present(trial: TrialRecord) -> bool:
    """Whether a look-up can still find the record: its program is as it was."""
    return bool(trial.program) and trial.program == present_program(trial.key, trial.config)


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.argument("export", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--most", type=click.IntRange(1), default=5, show_default=True, help="Configurations of each problem.")
@click.option(
    "--chain",
    "reports",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Report of bench_chain.py; repeatable.",
)
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), default=SHIPPED, help="Folder.")
def main(export: Path, most: int, reports: tuple[Path, ...], output: Path) -> None:
    every, chains = jsonl.read(export), []
    for path in reports:
        for chain in read_chains(path):
            if not any(chain.is_of(trial.key) for trial in every.trials):
                raise click.UsageError(
                    f"--chain {path}: {export} has no trial of {chain.kernel}, {chain.problem} on {chain.device[3]} in "
                    "that state of its template"
                )
            chains.append(chain)
    bundle = best_of(every, most, chains)
    if not bundle.trials:
        raise click.ClickException(f"{export} has no usable record of a GPU for the present templates: tune it anew")
    output.mkdir(parents=True, exist_ok=True)
    jsonl.write(bundle, output / export.name)
    keys = {trial.key for trial in bundle.trials}
    click.echo(f"{len(bundle.trials)} of {len(every.trials)} trials for {len(keys)} problems in {output / export.name}")


if __name__ == "__main__":
    main()
