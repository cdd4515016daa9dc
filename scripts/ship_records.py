#!/usr/bin/env python
"""Make the file of a device that comes with the package from an export of its tuning database.

    scripts/ship_records.py build/tuning/nvidia-h200.jsonl

Every run of mmsbgen reads the shipped files, so they hold what a look-up may answer with and no more: of each problem
the best configurations in the present state of the templates, with their runs, but without hosts and processes.
Processors are left out, since one name stands for many machines.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from mmsbgen.db import exchange, formats
from mmsbgen.db.exchange import Bundle
from mmsbgen.db.ranking import candidate, ranked
from mmsbgen.db.records import Key, TrialRecord
from mmsbgen.db.selection import SHIPPED
from mmsbgen.errors import InputError
from mmsbgen.families import family
from mmsbgen.rendering import template_digest

#: Times of a trial that are shipped.
TIMES = 31


def best_of(bundle: Bundle, most: int) -> Bundle:
    """What of an export is shipped: the ``most`` best configurations of each key, with their last timing in each run.

    Older runs are needed too, so that the ranking of what is shipped is that of the whole.
    """
    by_key: dict[Key, list[TrialRecord]] = defaultdict(list)
    for trial in bundle.trials:
        if trial.status == "ok" and trial.key.device.kind == "gpu" and _is_present(trial.key):
            by_key[trial.key].append(trial)
    kept: list[TrialRecord] = []
    for trials in by_key.values():
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


def _is_present(key: Key) -> bool:
    """Whether a look-up can still find the record: its kernel's template is as it was."""
    dialect = "cuda" if key.device.backend == "cuda" else "opencl"
    try:
        spec = family(key.kernel.family).kernel(key.kernel.name)
    except InputError:  # a kernel that there is no more
        return False
    return template_digest(spec.template, dialect) == key.kernel.template_digest


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.argument("export", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--most", type=click.IntRange(1), default=5, show_default=True, help="Configurations of each problem.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), default=SHIPPED, help="Folder.")
def main(export: Path, most: int, output: Path) -> None:
    every = exchange.read(export)
    bundle = best_of(every, most)
    if not bundle.trials:
        raise click.ClickException(f"{export} has no usable record of a GPU for the present templates: tune it anew")
    exchange.write(bundle, output / export.name)
    keys = {trial.key for trial in bundle.trials}
    click.echo(f"{len(bundle.trials)} of {len(every.trials)} trials for {len(keys)} problems in {output / export.name}")


if __name__ == "__main__":
    main()
