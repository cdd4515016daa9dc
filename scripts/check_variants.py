#!/usr/bin/env python
"""Check every valid variant of every kernel on a device against the reference, or a sample of them.

    scripts/check_variants.py --device pocl --seconds 900

Variants are every valid configuration at each K of the list, with the other parameters of the problem drawn at
random.  The first pass takes every configuration once, at a K drawn for it; ``--first-pass`` stops there.  The order
is the same every time and spreads over kernels and placements.  Results go to
build/check-variants/, from where a later run goes on; the report to docs/reports/.
"""

from __future__ import annotations

import hashlib
import json
import platform
import random
from collections import Counter, defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from _variant_worker import Result
from _variants import DRAWN, Variant, digests, in_turns, run

from mmsbgen import __version__
from mmsbgen.backends import DeviceInfo, open_device
from mmsbgen.build import compiler_options, traits_of
from mmsbgen.families import family
from mmsbgen.families.mmsb.storage import STORAGES
from mmsbgen.family import KernelFamily, KernelSpec
from mmsbgen.space import Traits, describe

ROOT = Path(__file__).resolve().parent.parent
KS = (1, 3, 7, 64, 100, 257, 1024)
#: Names of report files by the first word of the platform.
SLUGS = {"Intel(R)": "intel", "Portable": "pocl", "NVIDIA": "nvidia"}


def variants(kernels: KernelFamily, spec: KernelSpec, traits: Traits, ks: tuple[int, ...]) -> list[Variant]:
    """All valid variants of a kernel: first every configuration once, then the others, both in an order that is
    random but the same every time.
    """
    found = []
    for k in ks if "K" in spec.parameters else ks[:1]:
        types = [("float32", name) for name in STORAGES if name == STORAGES[0] or "storage" in spec.parameters]
        types += [("float64", STORAGES[0])] if "dtype" in spec.parameters else []
        for dtype, storage in types:
            shape: dict[str, Any] = {"K": k, "dtype": dtype, "storage": storage}
            problem = spec.check_problem(kernels.problem(**shape))
            for config in spec.space.configs(problem, traits):
                rng = random.Random(f"{spec.name} {k} {dtype} {storage} {describe(config)}")
                drawn = {name: rng.choice(values) for name, values in DRAWN.items() if name in spec.parameters}
                if "rows_in_flight" in config and "n" in drawn:
                    drawn["n"] = max(drawn["n"], int(config["rows_in_flight"]))
                drawn |= {name: value for name, value in shape.items() if name in spec.parameters}
                small = spec.check_problem(kernels.problem(**drawn))
                if spec.space.refusal(config, small, traits) is None:
                    found.append(Variant(spec.name, drawn, dict(config)))
    random.Random(spec.name).shuffle(found)
    once = {variant.configuration: variant for variant in found}
    first = list(once.values())
    return first + [variant for variant in found if once[variant.configuration] is not variant]


def still_valid(kernels: KernelFamily, traits: Traits, key: str) -> bool:
    """Whether a constraint that is newer than a result does not refuse its variant by now."""
    name, problem, config = json.loads(key)
    spec = kernels.kernel(name)
    return spec.space.refusal(config, spec.check_problem(kernels.problem(**problem)), traits) is None


class Journal:
    """Results so far, one JSON line each, valid for one device, driver and state of the templates."""

    def __init__(self, path: Path, head: dict[str, str]) -> None:
        self.path = path
        self.results: dict[str, dict[str, Any]] = {}
        lines = path.read_text().splitlines() if path.exists() else []
        if lines and json.loads(lines[0]) == head:
            for line in lines[1:]:
                record = json.loads(line)
                if record["status"] != "timeout":  # perhaps the machine was busy: tried again
                    self.results[record["key"]] = record
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(head) + "\n")

    def add(self, variant: Variant, **record: Any) -> None:
        """Keep one result on disk."""
        self.results[variant.key] = {"key": variant.key, "group": variant.group, **record}
        with self.path.open("a") as out:
            out.write(json.dumps(self.results[variant.key]) + "\n")


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.option("--device", default="0", show_default=True, help="As in mmsbgen devices: a number or a part of a name.")
@click.option("--kernel", "only", multiple=True, help="Only this kernel; may be given several times.")
@click.option("-k", "ks", type=int, multiple=True, default=KS, show_default=True, help="Communities.")
@click.option("--first-pass", is_flag=True, help="Every configuration once, at a K drawn for it.")
@click.option("--sample", type=int, help="At most so many variants of each kernel and placement.")
@click.option("--seconds", type=float, help="Stop after this time; the next run goes on from there.")
@click.option("--jobs", type=int, default=1, show_default=True, help="Processes.")
@click.option("--report/--no-report", default=True, help="Write docs/reports/variants-*.md and .json.")
def main(
    device: str,
    only: tuple[str, ...],
    ks: tuple[int, ...],
    first_pass: bool,
    sample: int | None,
    seconds: float | None,
    jobs: int,
    report: bool,
) -> None:
    kernels = family()
    with open_device(device) as opened:
        info = opened.info
    traits = traits_of(info)
    groups: dict[str, list[Variant]] = defaultdict(list)
    for spec in kernels.written_in(traits.dialect).values():
        if not only or spec.name in only:
            for variant in variants(kernels, spec, traits, ks):
                groups[variant.group].append(variant)
    valid = {name: len(members) for name, members in groups.items()}
    slug = SLUGS.get(info.platform.split()[0], info.platform.split()[0].lower())
    head = {"device": info.name, "driver": info.driver, "templates": digests(kernels, traits.dialect)}
    journal = Journal(ROOT / "build" / "check-variants" / f"{slug}.jsonl", head)
    passes = {name: len({member.configuration for member in members}) for name, members in groups.items()}
    limits = {name: min(sample or valid[name], passes[name] if first_pass else valid[name]) for name in groups}
    turns = in_turns({name: iter(members[: limits[name]]) for name, members in groups.items()})
    todo = [variant for variant in turns if variant.key not in journal.results]

    def keep(variant: Variant, result: Result) -> None:
        journal.add(variant, **result._asdict())

    run(info, iter(todo), keep, total=len(todo), seconds=seconds, jobs=jobs)
    done = [record for record in journal.results.values() if still_valid(kernels, traits, record["key"])]
    failures = [record for record in done if record["status"] != "ok"]
    for record in failures[:20]:
        click.echo(f"{record['status']}: {_plain(record)}: {record['message'][:300]}")
    click.echo(f"{len(done)} of {sum(valid.values())} variants checked, {len(failures)} failures")
    if report:
        write_report(slug, info, valid, passes, done)
    raise SystemExit(1 if failures else 0)


def write_report(
    slug: str, info: DeviceInfo, valid: dict[str, int], passes: dict[str, int], done: list[dict[str, Any]]
) -> None:
    """Counts by kernel and placement, and every failure, as Markdown for readers and JSON for programs."""
    rows: list[dict[str, Any]] = []
    for group, count in valid.items():
        mine = [record for record in done if record["group"] == group]
        statuses = Counter(record["status"] for record in mine)
        slowest = max((record["seconds"] for record in mine), default=0.0)
        configurations = len({_configuration(record) for record in mine})
        rows.append(
            {
                "group": group,
                "configurations": passes[group],
                "configurations checked": configurations,
                "valid": count,
                "checked": len(mine),
                "slowest": slowest,
                **statuses,
            }
        )
    failures = [record for record in done if record["status"] != "ok"]
    traits = traits_of(info)
    about = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "mmsbgen": __version__,
        "device": info.name,
        "platform": info.platform,
        "driver": info.driver,
        "compiler": info.compiler,
        "options": " ".join(compiler_options(traits)),
        "host": f"{platform.system()} {platform.machine()}",
        "digest of all templates": hashlib.sha256(digests(family(), traits.dialect).encode()).hexdigest()[:12],
        "K": ", ".join(map(str, KS)),
        "seconds": f"{sum(record['seconds'] for record in done):.0f}",
    }
    folder = ROOT / "docs" / "reports"
    folder.mkdir(parents=True, exist_ok=True)
    content = {"about": about, "rows": rows, "failures": failures}
    folder.joinpath(f"variants-{slug}.json").write_text(json.dumps(content, indent=1) + "\n")
    total, checked = sum(valid.values()), len(done)
    configurations, once = sum(passes.values()), sum(int(row["configurations checked"]) for row in rows)
    lines = [
        f"# Variants checked on {info.platform}",
        "",
        "Every variant is compiled, run on a small problem and held against the NumPy reference with the derived",
        "tolerance, at the values of K below, in float32 and float64; step, noise, partners and n are drawn at random.",
        "A configuration is valid at several K: the first pass takes each once, at a K drawn for it.",
        f"Made by `scripts/check_variants.py --device {slug} --first-pass`, which goes on where it stopped.",
        "",
        *(f"- {name}: {value}" for name, value in about.items() if value),
        "",
        f"**{once} of {configurations} configurations checked at least once ({checked} of {total} variants), "
        f"{len(failures)} failures.**",
        "",
        "| kernel, placement | configurations | checked | variants | checked | ok | failures | slowest check |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        ok = row.get("ok", 0)
        bad = row["checked"] - ok
        times = f"{row['configurations']} | {row['configurations checked']}"
        lines.append(
            f"| {row['group']} | {times} | {row['valid']} | {row['checked']} | {ok} | {bad} | {row['slowest']:.1f} s |"
        )
    if failures:
        lines += ["", "## Failures", ""]
        lines += [f"- {record['status']}: `{_plain(record)}`: {_first_line(record['message'])}" for record in failures]
    folder.joinpath(f"variants-{slug}.md").write_text("\n".join(lines) + "\n")


def _configuration(record: dict[str, Any]) -> str:
    return Variant(*json.loads(record["key"])).configuration


def _plain(record: dict[str, Any]) -> str:
    return str(Variant(*json.loads(record["key"])))


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0][:300] if text.strip() else ""


if __name__ == "__main__":
    main()
