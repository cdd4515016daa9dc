#!/usr/bin/env python
"""Tune a device's kernels over a range of K into one database, and export what was measured.

    scripts/gpu_tune.py --device cuda:0 --output reports --seconds 60

update_phi is tuned at each K for the split step with noise, as `mmsbgen detect` has it, and for the reflected step
with and without.  With --all-kernels the other kernels follow at each K, those of blocks at sizes of their own
(--block-size, --block-partners) and those of stars that share --shared-partners, on CUDA devices with their products on
tensor cores.
With --sweep all block sizes of every placement are measured, of the split step at each K and of the reflected one at
the K nearest to 1024: the tuner visits them here and there only, and the figures over block sizes want them all.  It
says what it did not come to; --sweep-only leaves all else out.  Running it again goes on with the same database.  Ends
with DEVICE.jsonl in the output folder, as `mmsbgen db export` writes it.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import click

from mmsbgen.backends import DeviceInfo, open_device
from mmsbgen.base.errors import MmsbgenError
from mmsbgen.db.store.tuning_store import Store, open_store
from mmsbgen.families import family
from mmsbgen.families.mmsb.numbers.storage import STORAGES
from mmsbgen.kernels.build import traits_of
from mmsbgen.kernels.family import KernelSpec
from mmsbgen.kernels.problem import Problem, Value
from mmsbgen.kernels.space import describe
from mmsbgen.tuner.measure.roofs import Roofs
from mmsbgen.tuner.run.tune import tune
from mmsbgen.tuner.run.tuning_report import KernelReport, Progress, TuneReport

KS = (128, 256, 512, 1024, 2048, 4096)
STEPS = (
    {"step": "split", "noise": "on"},
    {"step": "reflected", "noise": "off"},
    {"step": "reflected", "noise": "on"},
)
PHI = "update_phi"


class Part(NamedTuple):
    """One run of the tuner."""

    kernels: list[str]
    problem: Problem
    seconds: float
    fixed: dict[str, Value]
    """Axes that keep one value; the rest is then tried whole."""
    configurations: int | None = None
    """How many there are then."""

    @property
    def strategy(self) -> str:
        return "exhaustive" if self.fixed else "default"

    def __str__(self) -> str:
        p = self.problem
        what = self.kernels[0] if len(self.kernels) == 1 else f"{len(self.kernels)} kernels"
        text = f"{what} K={p['K']} {p['step']} step, noise {p['noise']}"
        text += f", rows in {p['storage']}" if "storage" in p else ""
        return f"{text}, {describe(self.fixed)}" if self.fixed else text


class Told(Progress):
    """Says on standard error how far a run is."""

    def roofs(self, roofs: Roofs) -> None:
        rates = f"copy {roofs.copy:.0f} GB/s, random {roofs.row_bytes}-byte rows {roofs.gather:.0f} GB/s"
        click.echo(f"  roofs: {rates}", err=True)

    def finished(self, report: KernelReport) -> None:
        click.echo(f"  {told(report)}", err=True)


def told(report: KernelReport) -> str:
    """A kernel's result in one line."""
    counts = ", ".join(f"{count} {status}" for status, count in report.statuses.most_common())
    best = report.best
    if best is None or best.median_s is None:
        return f"{report.kernel}: {counts}; no configuration works"
    text = f"{report.kernel}: {counts}; best {best.median_s * 1e6:.4g} us"
    if best.roof_fraction is not None:
        text += f", {best.roof_fraction:.0%} of the roof"
    if report.speedup_over_default is not None and report.speedup_over_worst is not None:
        text += f", {report.speedup_over_default:.3g} x the default, {report.speedup_over_worst:.3g} x the worst"
    return text


def parts(
    ks: tuple[int, ...],
    sizes: Mapping[str, int | str],
    seconds: float,
    other_seconds: float,
    blocks: Mapping[str, int | str],
    shared: Mapping[str, int | str],
) -> list[Part]:
    """What is tuned, update_phi first, so that a run that is cut short has what matters most.

    The other kernels are left out where ``other_seconds``, for each of them, is 0; those of blocks, and of stars
    that share partners, have sizes of their own, ``blocks`` and ``shared``.
    """
    kernels = family()
    found = [Part([PHI], kernels.problem(K=k, **sizes, **step), seconds, {}) for step in STEPS for k in ks]
    # What does not depend on rows of 16 bits is tuned with those of float32.
    narrow = kernels.problem(**sizes).get("storage")
    if other_seconds:
        used = kernels.worth_tuning(kernels.problem(**sizes))
        rest = [name for name in used if not narrow or "storage" in kernels.kernels[name].parameters]
        rest.remove(PHI)
        # Together, as the tuner gives what a small space leaves to the kernels after it.
        found += [Part(rest, kernels.problem(K=k, **sizes), other_seconds * len(rest), {}) for k in ks]
    if other_seconds and not narrow:
        # As `mmsbgen detect` has them: the optimum is looked for without draws.
        settings = {**sizes, **blocks, "partners": "block", "noise": "off", "theta_step": "gain"}
        every = kernels.worth_tuning(kernels.problem(**settings))
        mine = [name for name in every if name not in used or name == "theta_end"]
        found += [Part(mine, kernels.problem(K=k, **settings), other_seconds * len(mine), {}) for k in ks]
        drawing = [name for name in mine if "noise" in kernels.kernels[name].parameters]
        settings |= {"noise": "on"}  # sweeps that sample after the optimum
        found += [Part(drawing, kernels.problem(K=k, **settings), other_seconds * len(drawing), {}) for k in ks]
        for partners in ("shared", "shared-uniform"):
            settings = {**sizes, **shared, "partners": partners}
            every = kernels.worth_tuning(kernels.problem(**settings))
            # What does not depend on links is the same for both.
            mine = [n for n in every if n not in used and (partners == "shared" or _of_partners(kernels.kernels[n]))]
            found += [Part(mine, kernels.problem(K=k, **settings), other_seconds * len(mine), {}) for k in ks]
    return found


def _of_partners(spec: KernelSpec) -> bool:
    return "partners" in spec.parameters


def sweep(info: DeviceInfo, ks: tuple[int, ...], sizes: Mapping[str, int | str], seconds: float) -> list[Part]:
    """All block sizes of the placements that are valid here, with two rows in flight and else as the default has it."""
    kernels, traits, found = family(), traits_of(info), []
    spec, near = kernels.kernel(PHI), min(ks, key=lambda have: abs(have - 1024))
    for k, step in [*((k, STEPS[0]) for k in ks), *((near, step) for step in STEPS[1:])]:
        problem = kernels.problem(K=k, **sizes, **step)
        default = spec.default(problem, traits)
        fixed = {name: default[name] for name in ("vector_width", "prefetch", "normalise")}
        fixed["rows_in_flight"] = min(2, problem.integer("n"))
        valid = sum(spec.space.refusal(config, problem, traits) is None for config in _with(spec, fixed))
        if valid:
            found.append(Part([PHI], problem, seconds, fixed, valid))
    return found


def _with(spec: KernelSpec, fixed: dict[str, Value]) -> Iterator[dict[str, Value]]:
    """Every configuration, valid or not, that has these values."""
    free = [axis for axis in spec.space.axes if axis.name not in fixed]
    for values in itertools.product(*(axis.values for axis in free)):
        yield fixed | dict(zip((axis.name for axis in free), values, strict=True))


def slug(info: DeviceInfo) -> str:
    """A device's name as a file's: ``nvidia-h200``; OpenCL devices have their platform in it."""
    name = info.name if info.backend == "cuda" else f"{info.platform} {info.name}"
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.option("--device", default="cuda:0", show_default=True, help="Device, as mmsbgen devices names it.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder of the export.")
@click.option("--database", metavar="URL", help="Tuning database; else tuning.sqlite3 in the output folder.")
@click.option("-k", "ks", type=click.IntRange(1), multiple=True, default=KS, show_default=True, help="Communities.")
@click.option("-m", type=click.IntRange(1), default=4096, show_default=True, help="Vertices of a mini-batch.")
@click.option("-n", type=click.IntRange(1), default=32, show_default=True, help="Partners of a vertex.")
@click.option("-N", "vertices", type=click.IntRange(2), default=317080, show_default=True, help="Vertices.")
@click.option("--storage", type=click.Choice(STORAGES), default=STORAGES[0], show_default=True, help="Of rows of pi.")
@click.option("--seconds", type=float, default=60.0, show_default=True, help="For update_phi at one K and step.")
@click.option("--all-kernels", is_flag=True, help="The other kernels too, at each K.")
@click.option("--other-seconds", type=float, default=15.0, show_default=True, help="For each of them, on average.")
@click.option("--block-size", type=click.IntRange(1), default=32768, show_default=True, help="Vertices of a block.")
@click.option("--block-partners", type=click.IntRange(1), default=512, show_default=True, help="Those it shares.")
@click.option("--shared-partners", type=click.IntRange(1), default=256, show_default=True, help="Those a star shares.")
@click.option("--sweep", "swept", is_flag=True, help="All block sizes of every placement of update_phi too.")
@click.option("--sweep-only", is_flag=True, help="These alone.")
@click.option("--sweep-seconds", type=float, default=300.0, show_default=True, help="At most for each K and step.")
@click.option("--trials", type=click.IntRange(2), default=300, show_default=True, help="Most configurations a kernel.")
@click.option("--total-seconds", type=float, help="Begin nothing more after this time.")
@click.option("--jobs", type=click.IntRange(0), help="Compilers ahead of the tuner; else all cores but one.")
@click.option("--roof-mib", type=click.IntRange(1), default=2048, show_default=True, help="Buffer to measure roofs in.")
def main(
    device: str,
    output: Path,
    database: str | None,
    ks: tuple[int, ...],
    m: int,
    n: int,
    vertices: int,
    storage: str,
    seconds: float,
    all_kernels: bool,
    other_seconds: float,
    block_size: int,
    block_partners: int,
    shared_partners: int,
    swept: bool,
    sweep_only: bool,
    sweep_seconds: float,
    trials: int,
    total_seconds: float | None,
    jobs: int | None,
    roof_mib: int,
) -> None:
    with open_device(device) as opened:
        info = opened.info
    output.mkdir(parents=True, exist_ok=True)
    file = output / f"{slug(info)}.jsonl"
    sizes: dict[str, int | str] = {"m": m, "n": n, "N": vertices, "storage": storage}
    products = "half" if info.backend == "cuda" else "single"
    blocks: dict[str, int | str] = {"m": min(block_size, vertices), "n": block_partners, "products": products}
    shared: dict[str, int | str] = {"n": min(shared_partners, vertices), "products": products}
    todo = [] if sweep_only else parts(ks, sizes, seconds, other_seconds if all_kernels else 0.0, blocks, shared)
    todo += sweep(info, ks, sizes, sweep_seconds) if swept or sweep_only else []
    end = time.monotonic() + (total_seconds or float("inf"))
    failed = False
    with open_store(database or output / "tuning.sqlite3") as store:
        for number, part in enumerate(todo, start=1):
            if time.monotonic() > end:
                click.echo(f"time is up after {number - 1} of {len(todo)} parts; run it again to go on", err=True)
                break
            click.echo(f"[{number}/{len(todo)}] {part} on {info.name}", err=True)
            try:
                report = _tune(info, part, store, trials, jobs, roof_mib)
            except MmsbgenError as error:  # such as rows that do not fit into this device's memory
                click.echo(f"  failed: {error}", err=True)
                failed = True
                continue
            # A part takes minutes: what was measured so far is there if this process is ended.
            store.export_jsonl(file)
            if report.interrupted:
                break
            if part.configurations and (lack := part.configurations - sum(report.kernels[0].statuses.values())) > 0:
                click.echo(f"  {lack} of {part.configurations} are left; run it again to go on", err=True)
        count = store.export_jsonl(file)
    click.echo(f"{count} trials in {file}")
    raise SystemExit(1 if failed else 0)


def _tune(info: DeviceInfo, part: Part, store: Store, trials: int, jobs: int | None, roof_mib: int) -> TuneReport:
    return tune(
        info.spec,
        "mmsb",
        part.kernels,
        part.problem,
        store=store,
        budget_trials=max(trials, part.configurations or 0),
        budget_seconds=part.seconds,
        strategy=part.strategy,
        fixed=part.fixed,
        progress=Told(),
        roof_bytes=roof_mib << 20,
        compilers=jobs,
    )


if __name__ == "__main__":
    main()
