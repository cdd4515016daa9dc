#!/usr/bin/env python
"""Figures of update_phi from a tuning database, and a page that shows them.

    scripts/figures.py --database tuning.sqlite3 --output docs/figures

Takes a database, or a file that `mmsbgen db export` wrote; several are read together.  Writes one picture a question
into the output folder and a page of the folder's name beside it.  The speed-up over plain C needs the baseline's time,
which scripts/bench/bench_paper_cpu.py measures.  Needs matplotlib: pip install 'mmsbgen[report]'.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import matplotlib
from _records import Case, by_device, cases_of

from mmsbgen.db import exchange
from mmsbgen.db.records import TrialRecord
from mmsbgen.db.store import open_store

matplotlib.use("agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, PercentFormatter

ROOT = Path(__file__).resolve().parent.parent
BASELINE = ROOT / "docs" / "reports" / "paper_cpu.json"
#: Told apart by colour-blind readers (Okabe and Ito).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999933")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
ROLLED = ("THREAD", "NAIVE", "GLOBAL", "SHARED")
UNROLLED = ("RRR", "RRS", "RSR", "RSS", "SRR", "SRS", "SSR", "SSS")
BEST, DEFAULT, WORST = COLOURS[:3]


class Picture(NamedTuple):
    """A picture that was written, with its sentence."""

    file: str
    title: str
    sentence: str


class Baseline(NamedTuple):
    """Seconds of update_phi in plain C on one core, and the problem."""

    seconds: float
    problem: dict[str, Any]
    where: str


def read_trials(source: str) -> list[TrialRecord]:
    """The trials of an exported file or a database."""
    if source.endswith((".jsonl", ".jsonl.gz")):
        return exchange.read(Path(source)).trials
    with open_store(source, read_only=True) as store:
        if store.missing:
            raise click.ClickException(f"there is no tuning database at {store.location}")
        return store.trials(kernel="update_phi", status="ok")


def read_baseline(path: Path) -> Baseline | None:
    """The baseline's time from the report of bench_paper_cpu.py; None where there is no such report."""
    if not path.exists():
        return None
    report = json.loads(path.read_text())
    measured = [times["baseline"]["median_s"] for times in report["times"]["update_phi"].values()]
    return Baseline(statistics.median(measured), report["problem"], report["environment"]["processor"])


# What the figures share


def _figure(rows: int, columns: int, width: float, height: float) -> tuple[Figure, list[list[Axes]]]:
    figure, axes = plt.subplots(
        rows, columns, figsize=(width, height), layout="constrained", squeeze=False, sharey="row"
    )
    return figure, [list(row) for row in axes]


def _write(figure: Figure, folder: Path, name: str) -> str:
    figure.savefig(folder / f"{name}.png", dpi=150, metadata={"Software": None})
    plt.close(figure)
    return f"{name}.png"


def _milliseconds(axes: Axes) -> None:
    """A logarithmic axis of times, labelled 0.2, 0.5, 1, 2 ... where the range is short."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    few = high / low > 100
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if few else (1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="y", alpha=0.3)


def _powers(axes: Axes, values: Iterable[int]) -> None:
    """A logarithmic axis that has ``values``; between powers of two there is no room for labels."""
    found = sorted(set(values))
    shown = [value for value in found if value & (value - 1) == 0] or found
    axes.set_xscale("log", base=2)
    axes.set_xticks(shown, [str(value) for value in shown])
    axes.minorticks_off()
    if len(found) == 1:
        axes.set_xlim(found[0] / 2, found[0] * 2)
    axes.grid(axis="x", alpha=0.15)


def _times(value: float) -> str:
    return f"{value:.0f}x" if value >= 100 else f"{value:.3g}x"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _dates(cases: Iterable[Case]) -> str:
    days = sorted({case.date for case in cases})
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"


def _sizes(problem: dict[str, Any]) -> str:
    return f"m = {problem['m']}, n = {problem['n']}, N = {problem['N']}, {problem['dtype']}"


def _line_styles(cases: Sequence[Case]) -> dict[tuple[str, str], dict[str, Any]]:
    """One colour and marker a device, one style of line a step."""
    labels, steps = list(by_device(cases)), list(by_device(cases, lambda case: case.step))
    styles = ("-", "--", ":", "-.")
    return {
        (label, step): {
            "color": COLOURS[i % len(COLOURS)],
            "marker": MARKERS[i % len(MARKERS)],
            "linestyle": styles[j % len(styles)],
            "markerfacecolor": COLOURS[i % len(COLOURS)] if j == 0 else "white",
        }
        for i, label in enumerate(labels)
        for j, step in enumerate(steps)
    }


# The figures


def block_sizes(cases: Sequence[Case], k: int, folder: Path) -> list[Picture]:
    """Time over block size by placement, one picture a device: the paper's figures 3 and 4."""
    pictures = []
    for label, found in by_device(cases).items():
        nearest = min({case.k for case in found}, key=lambda have: (abs(have - k), have))
        rows = [case for case in found if case.k == nearest]
        figure, axes = _figure(len(rows), 2, 9.5, 0.8 + 3.4 * len(rows))
        for case, pair in zip(rows, axes, strict=True):
            for panel, placements, kind in zip(pair, (ROLLED, UNROLLED), ("rolled", "unrolled"), strict=True):
                _placements(panel, case, placements)
                panel.set_title(f"{case.step}, {kind} loops", fontsize=10)
            pair[0].set_ylabel("time of a call (ms)")
            _milliseconds(pair[0])
            low, high = pair[0].get_ylim()
            pair[0].set_ylim(top=high * (high / low) ** 0.25)  # room for the legends
            pair[1].grid(axis="y", alpha=0.3)
        for panel in axes[-1]:
            panel.set_xlabel("block size (work-items)")
        figure.suptitle(f"update_phi on {label}, {_dates(rows)}: K = {nearest}, {_sizes(rows[0].problem)}", fontsize=11)
        sentence = (
            f"Each point is the fastest configuration that was measured at that placement and block size on {label}; "
            "the grey line is the time that moving the rows takes at the gather rate of the same run."
        )
        file = _write(figure, folder, f"block-size-{_slug(label)}")
        pictures.append(Picture(file, f"Time over block size by placement: {label}", sentence))
    return pictures


def _placements(axes: Axes, case: Case, placements: Sequence[str]) -> None:
    fastest = case.fastest_by("placement", "block_size")
    for i, placement in enumerate(placements):
        points = sorted((int(block), s) for (name, block), s in fastest.items() if name == placement)
        if points:
            x, y = zip(*((block, s * 1e3) for block, s in points), strict=True)
            axes.plot(x, y, marker=MARKERS[i], color=COLOURS[i], label=placement, linewidth=1.2, markersize=5)
    if case.roof_s is not None:
        axes.axhline(case.roof_s * 1e3, color="0.5", linestyle="--", linewidth=1, label="rows at the gather rate")
    _powers(axes, [int(block) for _, block in fastest])
    if not any(name in placements for name, _ in fastest):
        axes.text(0.5, 0.5, "none measured", transform=axes.transAxes, ha="center", color="0.4")
    axes.legend(fontsize=8, ncols=3, loc="upper center")


def vector_widths(cases: Sequence[Case], k: int, folder: Path) -> list[Picture]:
    """Time by vector width over that of the narrowest: the paper's figure 6."""
    figure, ((axes,),) = _figure(1, 1, 7.0, 4.2)
    styles, shown, all_widths = _line_styles(cases), [], set()
    for case in _at(cases, k):
        fastest = {int(width): s for (width,), s in case.fastest_by("vector_width").items()}
        if len(fastest) > 1:
            widths = sorted(fastest)
            relative = [fastest[width] / fastest[widths[0]] for width in widths]
            name = f"{case.label}, {case.step}"
            axes.plot(widths, relative, label=name, markersize=6, **styles[case.label, case.step])
            shown.append(case)
            all_widths.update(widths)
    if not shown:
        plt.close(figure)
        return []
    _powers(axes, all_widths)
    axes.set_ylim(bottom=0)
    axes.axhline(1.0, color="0.5", linewidth=0.8)
    axes.grid(axis="y", alpha=0.3)
    axes.set_xlabel("vector width (elements)")
    axes.set_ylabel("time over that of the narrowest vectors")
    axes.legend(fontsize=8)
    axes.set_title(f"update_phi by vector width, K = {_ks(shown)}, {_dates(shown)}", fontsize=11)
    sentence = "The fastest configuration at each vector width, over the fastest at the narrowest; lower is faster."
    return [Picture(_write(figure, folder, "vector-width"), "Time by vector width", sentence)]


def _at(cases: Sequence[Case], k: int) -> list[Case]:
    """Of each device and step the case whose K is nearest to ``k``."""
    groups = by_device(cases, lambda case: (case.label, case.step)).values()
    return [min(found, key=lambda case: (abs(case.k - k), case.k)) for found in groups]


def _ks(cases: Iterable[Case]) -> str:
    return ", ".join(map(str, sorted({case.k for case in cases})))


def roof_by_k(cases: Sequence[Case], folder: Path) -> list[Picture]:
    """The share of the measured gather rate that the best configuration reaches, by K."""
    having = [case for case in cases if case.roof_fraction is not None]
    if not having:
        return []
    figure, ((axes,),) = _figure(1, 1, 7.0, 4.2)
    styles = _line_styles(cases)
    for (label, step), found in by_device(having, lambda case: (case.label, case.step)).items():
        x, y = [case.k for case in found], [case.roof_fraction or 0.0 for case in found]
        axes.plot(x, y, label=f"{label}, {step}", markersize=6, **styles[label, step])
    _powers(axes, [case.k for case in having])
    axes.axhline(1.0, color="0.5", linewidth=0.8)
    axes.set_ylim(0, max(1.05, 1.05 * max(case.roof_fraction or 0.0 for case in having)))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.grid(axis="y", alpha=0.3)
    axes.set_xlabel("communities K")
    axes.set_ylabel("share of the measured gather rate")
    axes.legend(fontsize=8)
    axes.set_title(f"update_phi against the roof, {_sizes(having[0].problem)}, {_dates(having)}", fontsize=10)
    sentence = (
        "Bytes that must move over the time of the best configuration, as a share of the rate of a random-row gather."
    )
    return [Picture(_write(figure, folder, "roof"), "Share of the measured roof by K", sentence)]


def best_default_worst(cases: Sequence[Case], folder: Path) -> list[Picture]:
    """Times of the best, the default and the worst configuration by K, a panel a device and step."""
    panels = list(by_device(cases, lambda case: (case.label, case.step)).items())
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = _figure(rows, columns, 1.0 + 4.4 * columns, 0.8 + 3.4 * rows)
    flat = [panel for row in axes for panel in row]
    for panel, ((label, step), found) in zip(flat, panels, strict=False):
        lines = (
            ("worst", WORST, "^", [case.worst_s for case in found]),
            ("default", DEFAULT, "s", [case.default_s for case in found]),
            ("best", BEST, "o", [case.best_s for case in found]),
        )
        for name, colour, marker, seconds in lines:
            points = [(case.k, s * 1e3) for case, s in zip(found, seconds, strict=True) if s is not None]
            if points:
                size = 9 if name == "default" else 6
                panel.plot(*zip(*points, strict=True), color=colour, marker=marker, label=name, markersize=size)
        for case in found:
            panel.annotate(
                _times(case.worst_s / case.best_s),
                (case.k, case.worst_s * 1e3),
                xytext=(0, 6),
                textcoords="offset points",
                fontsize=8,
                ha="center",
            )
        _powers(panel, [case.k for case in found])
        _milliseconds(panel)
        panel.margins(y=0.15)
        panel.set_title(f"{label}\n{step}, {_dates(found)}", fontsize=9)
        panel.set_xlabel("communities K")
        panel.legend(fontsize=8)
    for row in axes:
        row[0].set_ylabel("time of a call (ms)")
    for panel in flat[len(panels) :]:
        panel.set_visible(False)
    figure.suptitle(f"update_phi: what tuning is worth, {_sizes(cases[0].problem)}", fontsize=11)
    sentence = (
        "The fastest and the slowest configuration that were measured and the built-in default; numbers say how many "
        "times the worst takes what the best takes."
    )
    return [Picture(_write(figure, folder, "best-default-worst"), "Best, default and worst by K", sentence)]


def speed_ups(cases: Sequence[Case], baseline: Baseline | None, folder: Path) -> list[Picture]:
    """The best configuration of every device over one thread of plain C: the paper's figure 5."""
    if baseline is None:
        return []
    sizes = ("K", "N", "m", "n", "dtype")
    found = [case for case in cases if all(case.problem[name] == baseline.problem[name] for name in sizes)]
    if not found:
        return []
    found.sort(key=lambda case: -case.best_s)
    values = [baseline.seconds / case.best_s for case in found]
    steps = list(by_device(found, lambda case: case.step))
    figure, ((axes,),) = _figure(1, 1, 8.0, 1.4 + 0.5 * len(found))
    colours = [COLOURS[steps.index(case.step) % len(COLOURS)] for case in found]
    bars = axes.barh([f"{case.label}\n{case.step}" for case in found], values, color=colours, height=0.6)
    axes.bar_label(bars, [_times(value) for value in values], padding=4, fontsize=9)
    if max(values) / min(values) > 20:
        axes.set_xscale("log")
        axes.set_xlim(1, max(values) * 2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.margins(x=0.12)
    axes.tick_params(axis="y", labelsize=9)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    what = f"plain C: {baseline.seconds * 1e3:.0f} ms, {baseline.problem['step']} step, one core of {baseline.where}"
    axes.set_xlabel(f"speed-up over one thread of plain C (times)\n{what}", fontsize=9)
    axes.set_title(f"update_phi, K = {found[0].k}, {_sizes(found[0].problem)}, {_dates(found)}", fontsize=10)
    sentence = f"The best configuration of every device; {what}."
    return [Picture(_write(figure, folder, "speed-up"), "Speed-up over the sequential baseline", sentence)]


def page(pictures: Sequence[Picture], cases: Sequence[Case], folder: Path) -> str:
    """The page that shows the pictures."""
    lines = [
        "# Figures",
        "",
        "update_phi, from the tuning database. Made by `scripts/figures.py`; devices and drivers:",
        "",
    ]
    drivers = {(case.label, case.device.driver): by_device(cases)[case.label] for case in cases}
    for (label, driver), found in drivers.items():
        count = sum(len(case.times) for case in found)
        lines.append(f"- {label}: driver {driver}, {count} configurations at K = {_ks(found)}, {_dates(found)}")
    for picture in pictures:
        lines += ["", f"## {picture.title}", "", picture.sentence, ""]
        lines.append(f"![{picture.title}]({folder.name}/{picture.file})")
    return "\n".join(lines) + "\n"


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.option("--database", "sources", multiple=True, required=True, help="A database, its URL, or an exported file.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), default=ROOT / "docs" / "figures")
@click.option("-k", type=int, default=1024, show_default=True, help="K of the figures that are for one K.")
@click.option("--baseline", type=click.Path(path_type=Path), default=BASELINE, help="Report of bench_paper_cpu.py.")
def main(sources: tuple[str, ...], output: Path, k: int, baseline: Path) -> None:
    # One size of mini-batch: others are not to be compared within a picture.
    every = cases_of(trial for source in sources for trial in read_trials(source))
    if not every:
        raise click.ClickException("no trial of update_phi that works: tune first, with scripts/gpu_tune.py")
    groups = by_device(every, lambda case: _sizes(case.problem))
    cases = max(groups.values(), key=len)
    output.mkdir(parents=True, exist_ok=True)
    pictures = [
        *block_sizes(cases, k, output),
        *vector_widths(cases, k, output),
        *roof_by_k(cases, output),
        *best_default_worst(cases, output),
        *speed_ups(cases, read_baseline(baseline), output),
    ]
    output.with_suffix(".md").write_text(page(pictures, cases, output))
    click.echo(f"{len(pictures)} pictures in {output}, shown in {output.with_suffix('.md')}")


if __name__ == "__main__":
    main()
