#!/usr/bin/env python
"""The records that the package ships of a device: the best of each problem, also within a chain.

    mmsbgen db export build/h200.jsonl.gz --device H200
    scripts/ship_records.py build/h200.jsonl.gz mmsbgen/db/shipped/nvidia-h200.jsonl --chain docs/reports/chain.json

The reports of scripts/bench/bench_chain.py tell which configurations are slower within a chain than the fastest there;
those are left out.  The rest is what `mmsbgen db export --best N` writes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import click

from mmsbgen.base.errors import InputError, MmsbgenError
from mmsbgen.cli.db.filter_options import current_best
from mmsbgen.db.exchange import formats, jsonl
from mmsbgen.db.exchange.jsonl import Bundle
from mmsbgen.db.records.canonical_json import digest
from mmsbgen.db.records.ranking import by_key, candidate, of_newest_programs, ranked
from mmsbgen.db.records.tuning_records import Key, TrialRecord
from mmsbgen.tuner.run.changed_keys import of_program

NOISE = 0.01
"""Chains whose medians differ by less than this fraction, or by less than an interquartile range, are equally fast."""


class ChainTimes(NamedTuple):
    """Times of a Markov chain with different configurations of one kernel, from scripts/bench/bench_chain.py."""

    device: tuple[str | int, ...]
    kernel: str
    template_digest: str
    problem: dict[str, Any]
    configs: dict[tuple[str, str], tuple[float, float]]
    """Median and interquartile range in seconds, by the digests of configuration and program."""

    def is_of(self, key: Key) -> bool:
        """Whether the chain ran the kernel, template and problem of a key on its device."""
        kernel = key.kernel.name, key.kernel.template_digest
        same = kernel == (self.kernel, self.template_digest) and dict(key.problem.params) == self.problem
        return same and key.device.identity == self.device

    def slower(self, trials: Sequence[TrialRecord]) -> set[str]:
        """Digests of configurations that rank before the chain's fastest one; empty if that one has no trial."""
        best, spread = min(self.configs.values())
        fastest = {
            name for name, (median, iqr) in self.configs.items() if median - best <= max(NOISE * best, spread, iqr)
        }
        order = [(found.config_digest, found.program) for found in ranked(map(candidate, trials))]
        first = next((place for place, config in enumerate(order) if config in fastest), 0)
        return {config for config, _ in order[:first]}


def read_chain_times(path: Path) -> list[ChainTimes]:
    """The results in a report of scripts/bench/bench_chain.py; raises ``InputError`` for any other file."""
    try:
        results = json.loads(path.read_text())["results"]
        if not all(one["configs"] for one in results):
            raise ValueError("a result without a configuration")
        return [
            ChainTimes(
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
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not a report of bench_chain.py: {error!r}") from error


def without_slower(bundle: Bundle, chains: Sequence[ChainTimes]) -> Bundle:
    """The records without configurations that rank before the fastest one of a chain.

    Raises ``InputError`` if a chain has no trial in ``bundle``, or only ones of other programs.
    """
    worked = by_key(trial for trial in bundle.trials if trial.status == "ok")
    left_out: set[tuple[Key, str]] = set()
    for chain in chains:
        mine = {key: trials for key, trials in worked.items() if chain.is_of(key)}
        pairs = {(t.config_digest, t.program) for trials in mine.values() for t in trials}
        tuned = {config for config, _ in pairs}
        measured = [found for found in chain.configs if found[0] in tuned]
        if not pairs or (measured and not pairs.intersection(measured)):
            raise InputError(
                f"no trial of {chain.kernel}, {chain.problem} on {chain.device[3]} with the programs of the chain: "
                "time the chain again"
            )
        left_out |= {(key, name) for key, trials in mine.items() for name in chain.slower(of_newest_programs(trials))}
    return replace(bundle, trials=[t for t in bundle.trials if (t.key, t.config_digest) not in left_out])


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--best", type=click.IntRange(1), default=5, show_default=True, help="Configurations of each problem.")
@click.option("--chain", "reports", multiple=True, type=click.Path(path_type=Path), help="A report of bench_chain.py.")
def main(source: Path, out: Path, best: int, reports: tuple[Path, ...]) -> None:
    try:
        chains = [chain for report in reports for chain in read_chain_times(report)]
        bundle = jsonl.read(source)
        bundle = replace(bundle, trials=[trial for trial in bundle.trials if not of_program(trial)])
        bundle = current_best(without_slower(bundle, chains), best)
        jsonl.write(formats.anonymous(bundle), out)
    except MmsbgenError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{len(bundle.trials)} trials written to {out}")


if __name__ == "__main__":
    main()
