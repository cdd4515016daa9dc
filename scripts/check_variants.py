#!/usr/bin/env python
"""Check every configuration of every kernel on a device against the reference, in as many runs as that takes.

    scripts/check_variants.py --device pocl --seconds 900

A configuration is valid for several K and types: each round takes it at another of them, with the other parameters of
the problem drawn at random, the same every time.  What an earlier run has checked counts as long as the check would
do the same: its source, launch, inputs, reference and tolerance, on that device with that driver and compiler.  It is
read from the report in docs/reports/ and from build/check-variants/, where every result is kept as it comes: a run
may be interrupted at any time, and then still writes its report.
"""

from __future__ import annotations

import random
import signal
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import click
from _checked import Checked, Fingerprints, Journal, from_report
from _variant_report import write_report
from _variant_worker import Result
from _variants import DRAWN, Variant, in_turns, run

from mmsbgen.backends import open_device
from mmsbgen.build import compiler_options, traits_of
from mmsbgen.errors import InputError, MmsbgenError
from mmsbgen.families import family
from mmsbgen.families.mmsb.storage import STORAGES
from mmsbgen.family import KernelFamily, KernelSpec
from mmsbgen.space import Traits, describe

ROOT = Path(__file__).resolve().parent.parent
KS = (1, 3, 7, 64, 100, 257, 1024)
#: Names of report files by the first word of the platform.
SLUGS = {"Intel(R)": "intel", "Portable": "pocl", "NVIDIA": "nvidia"}
#: How often the other parameters of a problem are drawn again where a configuration is not valid with them.
_DRAWS = 10


class Plan(NamedTuple):
    """What there is to check in one row of the report: ``asked`` in the order of the rounds."""

    configurations: int
    valid: int
    asked: list[Variant]


def plan(
    kernels: KernelFamily, traits: Traits, only: tuple[str, ...], ks: tuple[int, ...], rounds: int
) -> dict[str, Plan]:
    """By row, all configurations of the kernels named, or of all, each in so many rounds as it has problems for.

    The order is random and the same every time; a configuration's problems do not depend on what else there is.
    """
    found: dict[str, Plan] = {}
    for spec in kernels.written_in(traits.dialect).values():
        if only and spec.name not in only:
            continue
        shapes: dict[str, list[dict[str, Any]]] = defaultdict(list)
        configs: dict[str, dict[str, Any]] = {}
        for shape in _shapes(spec, ks):
            for config in spec.space.configs(spec.check_problem(kernels.problem(**shape)), traits):
                name = describe(config)
                configs[name] = config
                shapes[name].append(shape)
        names = sorted(configs)
        random.Random(spec.name).shuffle(names)
        for name in names:
            random.Random(f"{spec.name} {name}").shuffle(shapes[name])
        for turn in range(rounds):
            for name in names:
                if turn >= len(shapes[name]):
                    continue
                variant = _drawn(kernels, spec, traits, shapes[name][turn], configs[name])
                row = found.get(variant.group, Plan(0, 0, []))
                row.asked.append(variant)
                new = turn == 0
                found[variant.group] = Plan(row.configurations + new, row.valid + new * len(shapes[name]), row.asked)
    return found


def _shapes(spec: KernelSpec, ks: tuple[int, ...]) -> list[dict[str, Any]]:
    """The problems at each of which every valid configuration is a variant."""
    found: list[dict[str, Any]] = []
    for k in ks if "K" in spec.parameters else ks[:1]:
        types = [("float32", name) for name in STORAGES if name == STORAGES[0] or "storage" in spec.parameters]
        types += [("float64", STORAGES[0])] if "dtype" in spec.parameters else []
        found += [{"K": k, "dtype": dtype, "storage": storage} for dtype, storage in types]
    return found


def _drawn(
    kernels: KernelFamily, spec: KernelSpec, traits: Traits, shape: dict[str, Any], config: dict[str, Any]
) -> Variant:
    """The variant of a configuration at a shape, with what is drawn beside if it is valid with it."""
    fixed = {name: value for name, value in shape.items() if name in spec.parameters}
    rng = random.Random(f"{spec.name} {describe(shape)} {describe(config)}")
    for _ in range(_DRAWS):
        drawn = {name: rng.choice(values) for name, values in DRAWN.items() if name in spec.parameters}
        if "rows_in_flight" in config and "n" in drawn:
            drawn["n"] = max(drawn["n"], int(config["rows_in_flight"]))
        try:
            small = spec.check_problem(kernels.problem(**drawn, **fixed))
        except InputError:
            continue  # values that make no problem together
        if spec.space.refusal(config, small, traits) is None:
            return Variant(spec.name, drawn | fixed, config)
    return Variant(spec.name, fixed, config)


@click.command(help="\n\n".join((__doc__ or "").split("\n\n")[::2]))
@click.option("--device", default="0", show_default=True, help="As in mmsbgen devices: a number or a part of a name.")
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
    device: str,
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
    kernels = family()
    try:
        with open_device(device) as opened:
            info = opened.info
    except MmsbgenError as error:
        raise click.UsageError(str(error)) from error
    traits = traits_of(info)
    slug = SLUGS.get(info.platform.split()[0], info.platform.split()[0].lower())
    toolchain = {"device": info.name, "platform": info.platform, "driver": info.driver, "compiler": info.compiler}
    own = ROOT / "docs" / "reports" / f"variants-{slug}.json"
    source = resume_from or own
    earlier, told = from_report(source, toolchain) if source.exists() else (Checked(), "begun anew")
    rounds = max(rounds, earlier.rounds)
    journal = Journal(ROOT / "build" / "check-variants" / f"{slug}.jsonl", toolchain)
    for record in journal.records:
        earlier.add(record)
    rows = plan(kernels, traits, only, ks, rounds)
    fingerprints = Fingerprints(kernels, traits)
    numbers = {variant.key: fingerprints.of(variant) for row in rows.values() for variant in row.asked}
    checked = earlier.only({group: {numbers[variant.key] for variant in row.asked} for group, row in rows.items()})
    click.echo(f"{told}; {checked.count} of {len(numbers)} variants are checked as they are today", err=True)
    turns = in_turns({group: iter(row.asked[:sample]) for group, row in rows.items()})
    todo = [variant for variant in turns if numbers[variant.key] not in checked.known[variant.group]]

    def keep(variant: Variant, result: Result) -> None:
        checked.add(journal.add(variant, numbers[variant.key], result))
        if result.status != "ok":
            click.echo(f"{result.status}: {variant}: {result.message[:300]}", err=True)

    try:
        run(info, iter(todo), keep, total=len(todo), seconds=seconds, jobs=jobs)
    except KeyboardInterrupt:
        click.echo("interrupted: what has been checked is kept", err=True)
    click.echo(f"{checked.count} of {len(numbers)} variants checked, {len(checked.failures)} failures")
    if report and not only and ks == KS:
        about = {"options": " ".join(compiler_options(traits)), "K": ", ".join(map(str, ks)), "rounds": rounds}
        write_report(own, toolchain | about, rows, checked)
    raise SystemExit(1 if checked.failures else 0)


if __name__ == "__main__":
    main()
