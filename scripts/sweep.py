#!/usr/bin/env python
"""Measure every configuration of a kernel's space, or of a part of it, and write the records to a file.

    scripts/sweep.py --device pocl --kernel update_phi -p K=128 -p m=512 -p N=4096 \\
        --fix block_size=1,16,64 --output docs/reports/sweep-pocl.jsonl.gz

Such a sweep is what a strategy is held against without a device (scripts/replay.py).  Several kernels may be named;
--fix is about those that have the axis.  A file that is there is gone on with, so that a sweep may be interrupted.
On a machine that others use every configuration is measured in several passes, minutes apart.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from mmsbgen.base.errors import MmsbgenError
from mmsbgen.cli.tune import axis_values, pairs
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.families import family
from mmsbgen.tuner.measure.timing import Patience
from mmsbgen.tuner.run.tune import tune
from mmsbgen.tuner.run.tuning_report import KernelReport, Progress


class Told(Progress):
    """A line on standard error a kernel."""

    def finished(self, report: KernelReport) -> None:
        counts = ", ".join(f"{count} {status}" for status, count in report.statuses.most_common())
        click.echo(f"  {report.kernel}: {len(report.space.configs)} configurations: {counts}", err=True)


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.option("--device", help="Device, as mmsbgen devices names it.")
@click.option("--family", "family_name", default="mmsb", show_default=True, help="Family of kernels.")
@click.option("--kernel", "kernels", multiple=True, required=True, help="Kernel; may be repeated.")
@click.option("-p", "--problem", "values", multiple=True, metavar="NAME=VALUE", help="A size or type of the problem.")
@click.option("--fix", "fixed", multiple=True, metavar="AXIS=VALUE,...", help="Keep an axis at these values.")
@click.option("--repetitions", type=click.IntRange(3), default=15, show_default=True, help="Of every configuration.")
@click.option("--seconds", type=float, default=0.05, show_default=True, help="On the device, for each at least.")
@click.option("--passes", type=click.IntRange(0), default=0, show_default=True, help="Over all of them once more.")
@click.option("--roof-mib", type=click.IntRange(1), default=256, show_default=True, help="Buffer to measure roofs in.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), required=True, help="Records, JSON lines.")
def main(
    device: str | None,
    family_name: str,
    kernels: tuple[str, ...],
    values: tuple[str, ...],
    fixed: tuple[str, ...],
    repetitions: int,
    seconds: float,
    passes: int,
    roof_mib: int,
    output: Path,
) -> None:
    found = family(family_name)
    problem = found.problem(**dict(pairs(values, "--problem")))
    axes = axis_values(fixed, [found.kernel(name) for name in kernels])
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "sweep.sqlite3") as store:
        if output.exists():
            store.import_jsonl(output)
        try:
            for number in range(passes + 1):
                report = tune(
                    device,
                    family_name,
                    kernels,
                    problem,
                    store=store,
                    budget_trials=10**9,
                    strategy="exhaustive",
                    progress=Told(),
                    fixed=axes,
                    patience=Patience(repetitions=repetitions, enough_s=seconds),
                    roof_bytes=roof_mib << 20,
                    check=number == 0,
                    retune=number > 0,
                )
                if report.interrupted:
                    break
        finally:
            store.export_jsonl(output)


if __name__ == "__main__":
    try:
        main()
    except MmsbgenError as error:
        raise SystemExit(f"sweep: {error}") from None
