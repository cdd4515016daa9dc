#!/usr/bin/env python
"""Figures of update_phi from a tuning database, and a page that shows them.

    scripts/figures.py --database tuning.sqlite3 --output docs/figures

Takes a database, or a file that `mmsbgen db export` wrote; several are read together, and of several states of a
template the newest counts.  Writes the pictures into the output folder, and a page of the same name beside it.  The
speed-up over plain C needs the baseline's time, which scripts/bench/bench_paper_cpu.py measures.
Needs Matplotlib: pip install 'mmsbgen[report]'.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import _size_pictures as by_size
import _sweep_pictures as by_axis
import click

from mmsbgen.db.exchange import jsonl
from mmsbgen.db.records.tuning_records import TrialRecord
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.report.style import Picture, drawing
from mmsbgen.report.tuning.cases import Case, by_device, cases_of

ROOT = Path(__file__).resolve().parent.parent
BASELINE = ROOT / "docs" / "reports" / "paper_cpu.json"
KERNEL = "update_phi"


def read_trials(source: str) -> list[TrialRecord]:
    """The trials of an exported file or a database."""
    if source.endswith((".jsonl", ".jsonl.gz")):
        return [trial for trial in jsonl.read(Path(source)).trials if trial.key.kernel.name == KERNEL]
    with open_store(source, read_only=True) as store:
        if store.missing:
            raise click.ClickException(f"there is no tuning database at {store.location}")
        return store.trials(kernel=KERNEL, status="ok")


def cases_in(sources: Iterable[str]) -> list[Case]:
    """Cases of one size of mini-batch, as others are not to be compared within a picture."""
    return by_axis.comparable(cases_of(trial for source in sources for trial in read_trials(source)))


def pictures_of(cases: Sequence[Case], size: int, baseline: by_size.Baseline | None) -> list[Picture]:
    """All pictures of cases from :func:`cases_in`; those of a single size show the problem nearest to ``size``."""
    found = [*by_axis.block_sizes(cases, size), *by_axis.vector_widths(cases, size), *by_size.roof_by_size(cases)]
    return [*found, *by_size.best_default_worst(cases), *by_size.speed_ups(cases, baseline)]


def page(pictures: Sequence[Picture], cases: Sequence[Case], folder: Path) -> str:
    """The page that shows the pictures."""
    lines = ["# Figures", "", f"{KERNEL}, from the tuning database. `scripts/figures.py` drew these records:", ""]
    drivers = {(case.label, case.device.driver): by_device(cases)[case.label] for case in cases}
    for (label, driver), found in drivers.items():
        count = sum(len(case.times) for case in found)
        sizes, dates = by_axis.sizes_of(found), by_axis.dates(found)
        lines.append(f"- {label}: driver {driver}, {count} configurations at K = {sizes}, {dates}")
    said: set[str] = set()
    for picture in pictures:
        lines += ["", f"## {picture.title}", ""]
        if picture.caption not in said:
            lines += [picture.caption, ""]
            said.add(picture.caption)
        lines.append(f"![{picture.alt}]({folder.name}/{picture.name}.png)")
    return "\n".join(lines) + "\n"


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.option("--database", "sources", multiple=True, required=True, help="A database, its URL, or an exported file.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), default=ROOT / "docs" / "figures")
@click.option("-k", type=int, default=1024, show_default=True, help="K of the figures that are for one K.")
@click.option("--baseline", type=click.Path(path_type=Path), default=BASELINE, help="Report of bench_paper_cpu.py.")
def main(sources: tuple[str, ...], output: Path, k: int, baseline: Path) -> None:
    cases = cases_in(sources)
    if not cases:
        raise click.ClickException(f"no trial of {KERNEL} that works: tune first, with mmsbgen tune --kernel {KERNEL}")
    plain_c = by_size.read_baseline(baseline, KERNEL) if baseline.exists() else None
    output.mkdir(parents=True, exist_ok=True)
    with drawing():
        pictures = pictures_of(cases, k, plain_c)
    for picture in pictures:
        (output / f"{picture.name}.png").write_bytes(picture.png())
    output.with_suffix(".md").write_text(page(pictures, cases, output))
    click.echo(f"{len(pictures)} pictures in {output}, shown in {output.with_suffix('.md')}")


if __name__ == "__main__":
    main()
