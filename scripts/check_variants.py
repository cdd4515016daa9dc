#!/usr/bin/env python
"""Check every configuration of every kernel on a device against the reference, in as many runs as that takes.

    scripts/check_variants.py --device pocl --seconds 900

Each round takes a configuration at another K and type that it is valid for.  Results are kept in build/check-variants/:
a later run checks what is left and what renders to another program since.  Remove the file there to check all anew.
"""

from __future__ import annotations

import json
import random
import signal
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import click
from _variant_report import Row, write_report
from _variant_worker import Result
from _variants import DRAWN, Variant, in_turns, run

from mmsbgen.backends import DeviceInfo, open_device
from mmsbgen.base.errors import InputError, MmsbgenError
from mmsbgen.families import family
from mmsbgen.families.mmsb.numbers.storage import STORAGES
from mmsbgen.kernels.build import compiler_options, traits_of
from mmsbgen.kernels.family import KernelFamily, KernelSpec
from mmsbgen.kernels.render import render
from mmsbgen.kernels.space import Traits, describe

ROOT = Path(__file__).resolve().parent.parent
KS = (1, 3, 7, 64, 100, 257, 1024)
#: Names of report files by the first word of the platform.
SLUGS = {"Intel(R)": "intel", "Portable": "pocl", "NVIDIA": "nvidia"}
#: A machine may have had no time, and a device that others use too no memory left: these are tried again.
NO_ANSWER = frozenset(["timeout", "launch_error", "no_memory"])
#: How often the other parameters of a problem are drawn again where a configuration is not valid with them.
_DRAWS = 10


class Results:
    """Results by variant, kept in a file as they come: one JSON line each, of one device, driver and compiler."""

    def __init__(self, path: Path, toolchain: Mapping[str, str], kernels: KernelFamily, traits: Traits) -> None:
        self.path, self.kernels, self.traits = path, kernels, traits
        self.found: dict[str, dict[str, Any]] = {}
        self._program = cache(self._rendered)
        text = path.read_text() if path.exists() else ""
        head, *lines = map(_record, text.splitlines() or [""])
        if head == toolchain:
            self.found = {record["key"]: record for record in lines if record}
            if not text.endswith("\n"):
                path.write_text(text + "\n")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(toolchain) + "\n")

    def of(self, variant: Variant) -> dict[str, Any] | None:
        """The result of a variant, None where there is none of its present program."""
        record = self.found.get(variant.key)
        return record if record and record["program"] == self._program(variant.key) else None

    def add(self, variant: Variant, result: Result) -> None:
        """Keep a result."""
        record = {"key": variant.key, "program": self._program(variant.key), **result._asdict()}
        self.found[variant.key] = record
        with self.path.open("a") as out:
            out.write(json.dumps(record) + "\n")

    def _rendered(self, key: str) -> str:
        variant = Variant(*json.loads(key))
        spec = self.kernels.kernel(variant.kernel)
        problem = spec.check_problem(self.kernels.problem(**variant.problem))
        return render(spec, problem, variant.config, self.traits).digest


def _record(line: str) -> dict[str, Any]:
    """A line's record; empty for one that was cut off as it was written."""
    try:
        found: dict[str, Any] = json.loads(line)
    except ValueError:
        return {}
    return found


def planned(
    kernels: KernelFamily, traits: Traits, only: Sequence[str], ks: Sequence[int], rounds: int
) -> dict[str, list[Variant]]:
    """By row of the report all configurations of the kernels, each at up to ``rounds`` problems, round after round.

    The order is random and the same every time.
    """
    found: defaultdict[str, list[Variant]] = defaultdict(list)
    for spec in kernels.written_in(traits.dialect).values():
        if only and spec.name not in only:
            continue
        shapes: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
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
                if turn < len(shapes[name]):
                    variant = _drawn(kernels, spec, traits, shapes[name][turn], configs[name])
                    found[variant.group].append(variant)
    return dict(found)


def _shapes(spec: KernelSpec, ks: Sequence[int]) -> list[dict[str, Any]]:
    """The K and types of the problems that a kernel is checked at."""
    types = [("float32", name) for name in STORAGES if name == STORAGES[0] or "storage" in spec.parameters]
    types += [("float64", STORAGES[0])] if "dtype" in spec.parameters else []
    return [
        {"K": k, "dtype": dtype, "storage": storage}
        for k in (ks if "K" in spec.parameters else ks[:1])
        for dtype, storage in types
    ]


def _drawn(
    kernels: KernelFamily, spec: KernelSpec, traits: Traits, shape: dict[str, Any], config: dict[str, Any]
) -> Variant:
    """The variant of a configuration at a shape, with the other parameters drawn where it is valid with them."""
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


def left(rows: Mapping[str, Sequence[Variant]], results: Results, most: int | None) -> Iterator[Variant]:
    """The first ``most`` variants of each row that have no result, rows in turns; what gave no answer comes last."""
    again: list[Variant] = []

    def new(variants: Sequence[Variant]) -> Iterator[Variant]:
        for variant in variants[:most]:
            record = results.of(variant)
            if record is None:
                yield variant
            elif record["status"] in NO_ANSWER:
                again.append(variant)

    yield from in_turns({group: new(variants) for group, variants in rows.items()})
    yield from again


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
    "--report/--no-report",
    default=True,
    help="Write docs/reports/variants-*.md; never done by a run of some kernels or of other K.",
)
def main(
    devices: tuple[str, ...],
    only: tuple[str, ...],
    ks: tuple[int, ...],
    rounds: int,
    sample: int | None,
    seconds: float | None,
    jobs: int,
    report: bool,
) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    kernels = family()
    try:
        infos = [_info(device) for device in devices or (None,)]
    except MmsbgenError as error:
        raise click.UsageError(str(error)) from error
    info = infos[0]
    traits, toolchain = traits_of(info), _toolchain(info)
    slug = SLUGS.get(info.platform.split()[0], info.platform.split()[0].lower())
    for other in infos[1:]:
        if (_toolchain(other), traits_of(other)) != (toolchain, traits):
            raise click.UsageError(f"{other.spec} ({_toolchain(other)}) is another than {info.spec} ({toolchain})")
    results = Results(ROOT / "build" / "check-variants" / f"{slug}.jsonl", toolchain, kernels, traits)
    rows = planned(kernels, traits, only, ks, rounds)

    def keep(variant: Variant, result: Result) -> None:
        results.add(variant, result)
        if result.status != "ok":
            click.echo(f"{result.status}: {variant}: {result.message[:300]}", err=True)

    try:
        run(infos, left(rows, results, sample), keep, total=None, seconds=seconds, jobs=jobs)
    except KeyboardInterrupt:
        click.echo("interrupted: what has been checked is kept", err=True)
    told = [
        Row.of(group, variants, [one for one in map(results.of, variants) if one is not None])
        for group, variants in sorted(rows.items())
    ]
    failures = sum(len(row.failures) for row in told)
    checked, asked = sum(row.checked for row in told), sum(row.asked for row in told)
    click.echo(f"{checked} of {asked} variants checked, {failures} failures")
    if report and not only and ks == KS:
        options = " ".join(compiler_options(traits))
        about = toolchain | {"options": options, "K": ", ".join(map(str, ks)), "rounds": rounds}
        write_report(ROOT / "docs" / "reports" / f"variants-{slug}.md", about, told)
    raise SystemExit(1 if failures else 0)


def _info(device: str | None) -> DeviceInfo:
    with open_device(device) as opened:
        return opened.info


def _toolchain(info: DeviceInfo) -> dict[str, str]:
    """What results are of: one device, driver and compiler."""
    return {"device": info.name, "platform": info.platform, "driver": info.driver, "compiler": info.compiler}


if __name__ == "__main__":
    main()
