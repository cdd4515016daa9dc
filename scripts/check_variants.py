#!/usr/bin/env python
"""Check every configuration of every kernel on a device against the reference, in as many runs as that takes.

    scripts/check_variants.py --device pocl --seconds 900

A configuration is valid for several K and types: each round takes it at another of them, with the other parameters of
the problem drawn at random, the same every time.  What an earlier run has checked counts as long as the check would
do the same: its source, launch, inputs, reference and tolerance, on that device with that driver and compiler.  It is
read from the report in docs/reports/ and from build/check-variants/, where every result is kept as it comes: a run
may be interrupted at any time, and then still writes its report.  Of configurations that differ alone in the number of
teams that they deal the work out to, the one with the fewest comes before any other.
"""

from __future__ import annotations

import hashlib
import itertools
import signal
import threading
from pathlib import Path

import click
from _checked import Checked, Journal, from_report
from _plan import Watch, in_order, kept_plan
from _variant_report import write_report
from _variant_worker import Result
from _variants import Variant, digests, run

from mmsbgen.backends import DeviceInfo, open_device
from mmsbgen.base.errors import MmsbgenError
from mmsbgen.families import family
from mmsbgen.kernels.build import compiler_options, traits_of

ROOT = Path(__file__).resolve().parent.parent
KS = (1, 3, 7, 64, 100, 257, 1024)
#: Names of report files by the first word of the platform.
SLUGS = {"Intel(R)": "intel", "Portable": "pocl", "NVIDIA": "nvidia"}


@click.command(help="\n\n".join((__doc__ or "").split("\n\n")[::2]))
@click.option(
    "--device",
    "devices",
    multiple=True,
    help="As mmsbgen devices names it; several that are alike share the work.  [default: the best one]",
)
@click.option(
    "--kernel",
    "only",
    type=click.Choice(list(family().kernels)),
    metavar="NAME",
    multiple=True,
    help="Only this kernel; may be given several times.",
)
@click.option("-k", "ks", type=click.IntRange(1), multiple=True, default=KS, show_default=True, help="Communities.")
@click.option(
    "--rounds", type=click.IntRange(1), default=1, show_default=True, help="Problems at which to take a configuration."
)
@click.option("--sample", type=click.IntRange(1), help="At most so many variants of each kernel and placement.")
@click.option("--seconds", type=float, help="Stop after this time; the next run goes on from there.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes.")
@click.option(
    "--resume-from",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A report (JSON) whose results count.  [default: the device's own in docs/reports/]",
)
@click.option(
    "--report/--no-report",
    default=True,
    help="Write docs/reports/variants-*.md and .json; never done by a run of some kernels or of other K.",
)
def main(
    devices: tuple[str, ...],
    only: tuple[str, ...],
    ks: tuple[int, ...],
    rounds: int,
    sample: int | None,
    seconds: float | None,
    jobs: int,
    resume_from: Path | None,
    report: bool,
) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    watch = Watch()
    kernels = family()
    try:
        infos = [_info(device) for device in devices or (None,)]
    except MmsbgenError as error:
        raise click.UsageError(str(error)) from error
    info = infos[0]
    traits = traits_of(info)
    slug = SLUGS.get(info.platform.split()[0], info.platform.split()[0].lower())
    toolchain = _toolchain(info)
    for other in infos[1:]:
        if (_toolchain(other), traits_of(other)) != (toolchain, traits):
            raise click.UsageError(f"{other.spec} ({_toolchain(other)}) is another than {info.spec} ({toolchain})")
    own = ROOT / "docs" / "reports" / f"variants-{slug}.json"
    source = resume_from or own
    earlier, told = from_report(source, toolchain) if source.exists() else (Checked(), "begun anew")
    rounds = max(rounds, earlier.rounds)
    work = ROOT / "build" / "check-variants"
    journal = Journal(work / f"{slug}.jsonl", toolchain)
    for record in journal.records:
        earlier.add(record)
    rows = kept_plan(work / f"{slug}-plan.json", kernels, traits, only, ks, rounds)
    checked = earlier.only({group: {number for _, number in row.asked} for group, row in rows.items()})
    total = sum(len(row.asked) for row in rows.values())
    click.echo(f"{told}; {checked.count} of {total} variants are checked as they are today", err=True)
    numbers = {variant.key: number for row in rows.values() for variant, number in row.asked}
    todo = list(in_order(rows, checked.known, sample))
    # What gave no answer before may do so again, and is not to take the time of every run.
    todo.sort(key=lambda variant: numbers[variant.key] in checked.failures)
    edited = threading.Event()

    def keep(variant: Variant, result: Result) -> None:
        # The processes read templates as they are then: what is checked after an edit is not what was planned.
        if edited.is_set() or watch.edited():
            edited.set()
            return
        checked.add(journal.add(variant, numbers[variant.key], result))
        if result.status != "ok":
            click.echo(f"{result.status}: {variant}: {result.message[:300]}", err=True)

    pending = itertools.takewhile(lambda _: not edited.is_set(), todo)
    try:
        run(infos, pending, keep, total=len(todo), seconds=seconds, jobs=jobs)
    except KeyboardInterrupt:
        click.echo("interrupted: what has been checked is kept", err=True)
    if edited.is_set():
        click.echo("stopped, for code or templates were edited: run it again", err=True)
    click.echo(f"{checked.count} of {total} variants checked, {len(checked.failures)} failures")
    if report and not only and ks == KS:
        about = {
            "options": " ".join(compiler_options(traits)),
            "digest of all templates": hashlib.sha256(digests(kernels, traits.dialect).encode()).hexdigest()[:12],
            "K": ", ".join(map(str, ks)),
            "rounds": rounds,
        }
        write_report(own, toolchain | about, rows, checked)
    raise SystemExit(1 if checked.failures else 0)


def _info(device: str | None) -> DeviceInfo:
    with open_device(device) as opened:
        return opened.info


def _toolchain(info: DeviceInfo) -> dict[str, str]:
    """What results are of: one device, driver and compiler."""
    return {"device": info.name, "platform": info.platform, "driver": info.driver, "compiler": info.compiler}


if __name__ == "__main__":
    main()
