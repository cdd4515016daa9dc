"""Pictures of the best configurations of a kernel by size and device (figure 5 of the paper), from tuning records."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from _sweep_pictures import dates, lines_by_case, sizes_text, sweep_of, title_of
from matplotlib.ticker import FuncFormatter, PercentFormatter

from mmsbgen.base.id_text import plain
from mmsbgen.report.style import COLOURS, Picture, colour, finish_panels, log_scale, panels, powers, single, times
from mmsbgen.report.tuning.cases import Case, by_device

_BEST, _DEFAULT, _WORST = COLOURS[:3]
#: Most panels in a picture of all devices.
_MOST_PANELS = 12


class Baseline(NamedTuple):
    """Seconds of a kernel in plain C on one core, its problem, and the processor."""

    seconds: float
    problem: dict[str, Any]
    where: str


def read_baseline(path: Path, kernel: str) -> Baseline:
    """The baseline's time from the report of scripts/bench/bench_paper_cpu.py, the median over its devices."""
    report = json.loads(path.read_text("utf-8"))
    measured = [float(taken["baseline"]["median_s"]) for taken in report["times"][kernel].values()]
    return Baseline(statistics.median(measured), dict(report["problem"]), str(report["environment"]["processor"]))


def roof_by_size(cases: Sequence[Case]) -> list[Picture]:
    """The share of the measured roof that the best configuration reaches, by size."""
    having = [(case, case.best.roof_fraction) for case in cases if case.best.roof_fraction is not None]
    if not having:
        return []
    shares = [share for _, share in having]
    lines: dict[str, tuple[list[int], list[float]]] = {}
    for case, share in having:
        sizes, of = lines.setdefault(case.title, ([], []))
        sizes.append(case.size)
        of.append(share)
    first = having[0][0]
    title = f"{first.kernel.name} against the roof, {sizes_text(first)}, {dates(case for case, _ in having)}"
    x = title_of(sweep_of(first), sweep_of(first).size)
    figure, axes = lines_by_case(cases, lines, x, "share of the measured roof", title)
    axes.set_ylim(0, max(1.05, 1.05 * max(shares)))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    caption = (
        "Rate of the best configuration (bytes that must move over its time) as a share of that of reading random rows."
    )
    reached = f"{min(shares):.0%} to {max(shares):.0%}"
    alt = f"The best configurations reach {reached} of the roof that was measured beside them."
    return [Picture("roof", "Share of the measured roof by size", caption, alt, figure)]


def best_default_worst(cases: Sequence[Case]) -> list[Picture]:
    """Times of the best, default and worst configuration by size, a panel per device and variant."""
    groups = list(by_device(cases, lambda case: (case.label, case.variant)).items())[:_MOST_PANELS]
    sweep = sweep_of(cases[0])
    columns = min(2, len(groups))
    rows = -(-len(groups) // columns)
    figure, axes = panels(rows, columns, 1.0 + 4.4 * columns, 0.7 + 3.2 * rows, sharey="row")
    flat = [panel for row in axes for panel in row]
    for panel, ((label, variant), found) in zip(flat, groups, strict=False):
        lines = (
            ("worst", _WORST, "^", [case.worst_s for case in found]),
            ("default", _DEFAULT, "s", [case.default_s for case in found]),
            ("best", _BEST, "o", [case.best_s for case in found]),
        )
        for name, shade, mark, seconds in lines:
            points = [(case.size, s * 1e3) for case, s in zip(found, seconds, strict=True) if s is not None]
            if points:
                size = 9 if name == "default" else 6
                panel.plot(*zip(*points, strict=True), color=shade, marker=mark, label=name, markersize=size)
        for case in found:
            panel.annotate(
                times(case.worst_s / case.best_s),
                (case.size, case.worst_s * 1e3),
                xytext=(0, 6),
                textcoords="offset points",
                fontsize=8,
                ha="center",
            )
        powers(panel, [case.size for case in found])
        panel.margins(y=0.15)
        panel.set_title(f"{plain(label, 50)}\n{variant}, {dates(found)}", fontsize=9)
        panel.set_xlabel(title_of(sweep, sweep.size))
        panel.legend()
    for panel in flat[: len(groups)]:
        log_scale(panel, "y")
        panel.tick_params(labelleft=True)
    finish_panels(axes, len(groups), "time of a call (ms)")
    figure.suptitle(f"{cases[0].kernel.name}: what tuning is worth, {sizes_text(cases[0])}", fontsize=11)
    caption = (
        "The fastest and the slowest measured configuration, and the built-in default of the version that drew this. "
        "If the default was not measured, it is what the first run began with. Numbers are the time of the worst over "
        "that of the best."
    )
    ratios = [case.worst_s / case.best_s for case in cases]
    gains = [case.default_s / case.best_s for case in cases if case.default_s]
    alt = f"The worst configuration takes {times(min(ratios))} to {times(max(ratios))} what the best takes" + (
        f", the default {times(min(gains))} to {times(max(gains))}." if gains else "."
    )
    return [Picture("best-default-worst", f"Best, default and worst by {sweep.size}", caption, alt, figure)]


def speed_ups(cases: Sequence[Case], baseline: Baseline | None) -> list[Picture]:
    """Speed-up of every device's best configuration over one thread of plain C (figure 5 of the paper)."""
    if baseline is None:
        return []
    sweep = sweep_of(cases[0])
    names = (sweep.size, *sweep.sizes)
    found = [c for c in cases if all(c.problem.get(name) == baseline.problem.get(name) for name in names)]
    if not found:
        return []
    found.sort(key=lambda case: -case.best_s)
    values = [baseline.seconds / case.best_s for case in found]
    variants = list(by_device(found, lambda case: case.variant))
    figure, axes = single(8.0, 1.4 + 0.5 * len(found))
    shades = [colour(variants.index(case.variant)) for case in found]
    bars = axes.barh([f"{plain(case.label, 50)}\n{case.variant}" for case in found], values, color=shades, height=0.6)
    axes.bar_label(bars, [times(value) for value in values], padding=4, fontsize=9)
    if max(values) / min(values) > 20:
        axes.set_xscale("log")
        axes.set_xlim(1, max(values) * 2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.margins(x=0.12)
    axes.grid(axis="x")
    step = sweep.variant(baseline.problem)
    what = f"plain C: {baseline.seconds * 1e3:.0f} ms, {step}, one core of {baseline.where}"
    axes.set_xlabel(f"speed-up over one thread of plain C (times)\n{what}", fontsize=9)
    axes.set_title(f"{found[0].kernel.name}, {sweep.size} = {found[0].size}, {sizes_text(found[0])}, {dates(found)}")
    caption = f"The best configuration of every device; {what}."
    told = "; ".join(f"{case.title}: {times(value)}" for case, value in zip(found, values, strict=True))
    return [Picture("speed-up", "Speed-up over the sequential baseline", caption, f"Speed-ups: {told}.", figure)]
