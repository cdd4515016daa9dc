#!/usr/bin/env python
"""Check a GPU's kernels in one go: variants against the reference, the fused one, and compute-sanitizer over some.

    scripts/gpu_check.py --device cuda:0 --output reports --seconds 240 --jobs 12

Variants are spread over placements, teams, widths and block sizes, over K, float32 and float64, noise on and off;
inputs hold links, non-links and pairs without weight.  Before them memcheck and racecheck run over defaults,
placements and chains, where they are installed; after them chains by the fused kernel star_loop are held against single
launches on CUDA.  Writes gpu-check.json; ends with status 1 when anything failed.  Takes any OpenCL device.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import click
from _loops import Loops, check_loops
from _sanitizer import TOOLS, Verdict, compile_first, find_sanitizer, sanitize
from _variant_worker import Result
from _variants import Variant, in_turns, run, spread
from rich.console import Console

from mmsbgen.backends import DeviceInfo, open_device
from mmsbgen.base.version import __version__
from mmsbgen.families import resolve_family
from mmsbgen.kernels.build import compiler_options, traits_of
from mmsbgen.kernels.family import KernelFamily, KernelSpec
from mmsbgen.kernels.render import sources_digest
from mmsbgen.kernels.space import Traits

KS = (1, 7, 64, 100, 1000, 1024, 2048)
TIMEOUT = 60.0  # a variant that takes longer hangs: the slowest takes seconds, most of them in the compiler
LOOP = "star_loop"


class Checked(NamedTuple):
    """A variant and what became of it."""

    variant: Variant
    result: Result


def sample(
    kernels: KernelFamily, traits: Traits, ks: Sequence[int], only: Sequence[str], most: int | None
) -> Iterator[Variant]:
    """Variants of all kernels, or those named, in turns; at most ``most`` of each kernel and placement."""
    groups: dict[str, Iterator[Variant]] = {}
    for spec in [kernels.kernel(name) for name in only] if only else kernels.written_in(traits.dialect).values():
        for placement in _placements(spec):
            variants = spread(kernels, spec, traits, ks, placement)
            groups[" ".join([spec.name, *placement.values()])] = islice(variants, most)
    return in_turns(groups)


def _placements(spec: KernelSpec) -> list[dict[str, str]]:
    found = [{"placement": str(v)} for axis in spec.space.axes if axis.name == "placement" for v in axis.values]
    return found or [{}]


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.option("--device", default="cuda:0", show_default=True, help="Device, as mmsbgen devices names it.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder of the report.")
@click.option("--seconds", type=float, default=240.0, show_default=True, help="Time for tools, variants, chains.")
@click.option("--jobs", type=click.IntRange(1), default=12, show_default=True, help="Processes that share the device.")
@click.option("--family", default="mmsb", show_default=True, help="Family of the kernels, or FILE.py.")
@click.option("--kernel", "only", multiple=True, help="Only this kernel, or star_loop; repeatable.")
@click.option("-k", "ks", type=click.IntRange(1), multiple=True, default=KS, show_default=True, help="Communities.")
@click.option("--sample", "most", type=click.IntRange(1), help="At most so many of each kernel and placement.")
@click.option("--sanitizer/--no-sanitizer", default=True, help="Run compute-sanitizer on CUDA devices.")
def main(
    device: str,
    output: Path,
    seconds: float,
    jobs: int,
    family: str,
    only: tuple[str, ...],
    ks: tuple[int, ...],
    most: int | None,
    sanitizer: bool,
) -> None:
    kernels = resolve_family(family)
    with open_device(device) as opened:
        info = opened.info
    checked: list[Checked] = []

    def keep(variant: Variant, result: Result) -> None:
        checked.append(Checked(variant, result))
        if result.status != "ok":
            click.echo(f"{result.status}: {variant}: {result.message[:300]}", err=True)

    path = find_sanitizer() if sanitizer and info.backend == "cuda" and family == "mmsb" else None
    verdicts = _sanitize(path, info.spec, seconds) if path else []
    others = [name for name in only if name != LOOP]
    variants = iter(()) if only and not others else sample(kernels, traits_of(info), ks, others, most)
    run(info, variants, keep, seconds=seconds, jobs=jobs, timeout=TIMEOUT, family=family)
    # Alone on the device: blocks that wait for each other are to be there together.
    loops = _loops(info, ks, only, seconds) if family == "mmsb" else Loops(0, [], f"Not run: {LOOP} is of mmsb")
    for row in loops.wrong:
        click.echo(f"wrong_result: {LOOP} K={row['K']} {row['step']} {row['dtype']}: {row['wrong']}", err=True)
    why = "" if path else _why_not(info, sanitizer) if family == "mmsb" else "Not run: it is for mmsb"
    report = as_dict(info, kernels, ks, checked, verdicts, why, loops)
    output.mkdir(parents=True, exist_ok=True)
    output.joinpath("gpu-check.json").write_text(json.dumps(report, indent=1) + "\n")
    for verdict in verdicts:
        click.echo("\n".join(verdict.lines), err=True, nl=bool(verdict.lines))
    click.echo(f"{report['verdict']}; {output / 'gpu-check.json'}")
    raise SystemExit(1 if report["failed"] else 0)


def _sanitize(path: str, device: str, seconds: float) -> list[Verdict]:
    """Both tools at once, and nothing beside them: they take as long as compilers leave them of the processor."""
    with Console(stderr=True).status("compute-sanitizer"), ThreadPoolExecutor(len(TOOLS)) as pool:
        compile_first(device, seconds)
        return list(pool.map(lambda tool: sanitize(path, tool, device, seconds), TOOLS))


def _loops(info: DeviceInfo, ks: Sequence[int], only: Sequence[str], seconds: float) -> Loops:
    if info.backend != "cuda":
        return Loops(0, [], f"Not run: {LOOP} needs CUDA")
    if only and LOOP not in only:
        return Loops(0, [], "Not run: other kernels were asked for")
    return check_loops(info.spec, ks, seconds)


def _why_not(info: DeviceInfo, wanted: bool) -> str:
    if info.backend != "cuda":
        return "Not run: compute-sanitizer is for CUDA devices"
    missing = "compute-sanitizer was not found on the PATH or in /usr/local/cuda/bin"
    return f"Not run: {missing if wanted else 'switched off'}"


def as_dict(
    info: DeviceInfo,
    kernels: KernelFamily,
    ks: Sequence[int],
    checked: Sequence[Checked],
    verdicts: Sequence[Verdict],
    why: str,
    loops: Loops,
) -> dict[str, Any]:
    """The report's content; that nothing was checked is a failure too."""
    traits = traits_of(info)
    failures = [
        {"status": result.status, "variant": str(variant), "message": result.message, "key": variant.key}
        for variant, result in checked
        if result.status != "ok"
    ]
    bad = [verdict for verdict in verdicts if verdict.failed]
    text = f"{len(checked)} variants checked, {len(failures)} failures" + (f", {loops.verdict}" if loops.asked else "")
    text += "".join(f", {verdict.tool} {verdict.verdict}" for verdict in verdicts)
    return {
        "about": {
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "mmsbgen": __version__,
            "device": info.name,
            "platform": info.platform,
            "architecture": info.architecture,
            "driver": info.driver,
            "compiler": info.compiler,
            "options": " ".join(compiler_options(traits)),
            "templates": sources_digest(kernels.kernels.values()),
            "K": ", ".join(map(str, ks)),
        },
        "verdict": text + ("" if verdicts else f"; compute-sanitizer: {why}"),
        "failed": bool(failures or bad or loops.failed or not (checked or loops.rows)),
        "rows": _rows(checked),
        "failures": failures,
        LOOP: loops._asdict(),
        "sanitizer": {"why": why, "verdicts": [verdict._asdict() for verdict in verdicts]},
    }


def _rows(checked: Sequence[Checked]) -> list[dict[str, Any]]:
    groups: dict[str, list[Checked]] = defaultdict(list)
    rows = []
    for one in checked:
        groups[one.variant.group].append(one)
    for name, members in sorted(groups.items()):
        values: dict[str, set[Any]] = defaultdict(set)
        for variant, _ in members:
            for axis, value in {**variant.problem, **variant.config}.items():
                values[axis].add(value)
        rows.append(
            {
                "group": name,
                "checked": len(members),
                "ok": sum(result.status == "ok" for _, result in members),
                "statuses": dict(Counter(result.status for _, result in members)),
                "values": {axis: sorted(found) for axis, found in values.items()},
                "slowest_s": max(result.seconds for _, result in members),
            }
        )
    return rows


if __name__ == "__main__":
    main()
