"""Sweep figures (figures 3 to 6 of the paper) from tuning records of a kernel that declares them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, PercentFormatter

from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import plain
from mmsbgen.kernels.family import Sweep
from mmsbgen.report.style import (
    COLOURS,
    MUTED,
    Picture,
    colour,
    finish_panels,
    log_scale,
    marker,
    panels,
    powers,
    single,
    slug,
    times,
)
from mmsbgen.report.tuning.cases import Case, by_device

_BEST, _DEFAULT, _WORST = COLOURS[:3]
_STYLES = ("-", "--", ":", "-.")
#: Most devices with a picture of their own.
MOST_DEVICES = 6
#: A variant is drawn if it has at least this fraction of the configurations of the largest one.
_OF_THE_MOST = 0.1
#: Most variants in a picture of one device, and panels in a picture of all devices.
_MOST_ROWS, _MOST_PANELS = 4, 12


class Baseline(NamedTuple):
    """Seconds of a kernel in plain C on one core, its problem, and the processor."""

    seconds: float
    problem: dict[str, Any]
    where: str


def read_baseline(path: Path, kernel: str) -> Baseline:
    """The baseline's time from the report of scripts/bench/bench_paper_cpu.py.

    Raises :class:`InputError` if the file cannot be read or is not such a report.
    """
    try:
        report = json.loads(path.read_text("utf-8"))
        measured = [float(taken["baseline"]["median_s"]) for taken in report["times"][kernel].values()]
        return Baseline(statistics.median(measured), dict(report["problem"]), str(report["environment"]["processor"]))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} is no report of scripts/bench/bench_paper_cpu.py with times of {kernel} ({error!r})"
        ) from error


def comparable(cases: Sequence[Case]) -> list[Case]:
    """The largest group of cases of one kernel with sweep figures that have the same fixed sizes."""
    swept = [case for case in cases if case.spec is not None and case.spec.sweep is not None]
    groups = by_device(swept, lambda case: (case.kernel.family, case.kernel.name, sizes_text(case)))
    return max(groups.values(), key=len, default=[])


def sizes_text(case: Case) -> str:
    """The fixed sizes of a sweep figure, as text."""
    assert case.spec is not None
    assert case.spec.sweep is not None
    found = [(name, case.problem.get(name)) for name in case.spec.sweep.sizes]
    return ", ".join(str(value) if isinstance(value, str) else f"{name} = {value}" for name, value in found)


def pictures(cases: Sequence[Case], size: int, baseline: Baseline | None) -> list[Picture]:
    """All sweep figures of cases from :func:`comparable`.

    Figures of a single size show the problem nearest to ``size``.
    """
    found = [*block_sizes(cases, size), *vector_widths(cases, size), *roof_by_size(cases), *best_default_worst(cases)]
    return found + speed_ups(cases, baseline)


def _sweep(case: Case) -> Sweep:
    assert case.spec is not None
    assert case.spec.sweep is not None
    return case.spec.sweep


def _title(sweep: Sweep, name: str) -> str:
    return sweep.titles.get(name, name)


def dates(cases: Iterable[Case]) -> str:
    """The range of days of the cases' newest trials, as text."""
    days = sorted({case.date for case in cases})
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"


def sizes_of(cases: Iterable[Case]) -> str:
    """The sizes of cases, as text."""
    return ", ".join(map(str, sorted({case.size for case in cases})))


def _nearest(cases: Sequence[Case], size: int) -> int:
    return min({case.size for case in cases}, key=lambda have: (abs(have - size), have))


def _at(cases: Sequence[Case], size: int) -> list[Case]:
    """The case nearest to ``size``, for each device and variant."""
    groups = by_device(cases, lambda case: case.title).values()
    return [min(found, key=lambda case: (abs(case.size - size), case.size)) for found in groups]


def _line_styles(cases: Sequence[Case]) -> dict[str, dict[str, Any]]:
    """Plot styles by case title: a colour and marker per device, a line style per variant."""
    labels, variants = list(by_device(cases)), list(by_device(cases, lambda case: case.variant))
    return {
        case.title: {
            "color": colour(labels.index(case.label)),
            "marker": marker(labels.index(case.label)),
            "linestyle": _STYLES[variants.index(case.variant) % len(_STYLES)],
            "markerfacecolor": "none" if variants.index(case.variant) else colour(labels.index(case.label)),
        }
        for case in cases
    }


def block_sizes(cases: Sequence[Case], size: int) -> list[Picture]:
    """Time along one axis by the values of another, one picture per device (figures 3 and 4 of the paper)."""
    found = []
    for label, of_device in list(by_device(cases).items())[:MOST_DEVICES]:
        nearest = _nearest(of_device, size)
        rows = [case for case in of_device if case.size == nearest]
        # A search measures few configurations; beside a full sweep its panel would be almost empty.
        most = max(len(case.times) for case in rows)
        rows = [case for case in rows if len(case.times) >= _OF_THE_MOST * most][:_MOST_ROWS]
        sweep = _sweep(rows[0])
        figure, axes = panels(len(rows), len(sweep.panels), 9.5, 0.6 + 3.4 * len(rows), sharex=True, sharey="row")
        ticks = [int(x) for case in rows for _, x in case.fastest_by(sweep.lines, sweep.along)]
        for case, row in zip(rows, axes, strict=True):
            for panel, (kind, lines) in zip(row, sweep.panels.items(), strict=True):
                _lines(panel, case, sweep, lines)
                powers(panel, ticks)
                panel.set_title(f"{case.variant}, {kind}", fontsize=10)
            row[0].set_ylabel("time of a call (ms)")
            log_scale(row[0], "y")
            low, high = row[0].get_ylim()
            row[0].set_ylim(top=high * (high / low) ** 0.3)  # room for the legends
            for panel in row[1:]:
                panel.grid(axis="y")
        for panel in axes[-1]:
            panel.set_xlabel(_title(sweep, sweep.along))
        kernel = rows[0].kernel.name
        figure.suptitle(
            f"{kernel} on {plain(label, 60)}, {dates(rows)}: {sweep.size} = {nearest}, {sizes_text(rows[0])}",
            fontsize=10.5,
        )
        caption = (
            f"Each point is the fastest configuration at that {sweep.lines} and {_title(sweep, sweep.along)}. The grey "
            "line is the time in which the roof of the same run moves the bytes."
        )
        alt = f"{kernel} on {label}: " + "; ".join(
            f"{case.variant}: {len(case.times)} configurations, {case.best_s * 1e3:.4g} to {case.worst_s * 1e3:.4g} "
            f"ms, the best with {sweep.lines} {case.best.config.get(sweep.lines)}"
            for case in rows
        )
        title = f"Time over {sweep.along.replace('_', ' ')} by {sweep.lines}: {label}"
        found.append(Picture(f"{slug(sweep.along)}-{slug(label)}", title, caption, f"{alt}.", figure))
    return found


def _lines(axes: Axes, case: Case, sweep: Sweep, lines: Sequence[str]) -> None:
    fastest = case.fastest_by(sweep.lines, sweep.along)
    for i, line in enumerate(lines):
        if points := sorted((int(x), s) for (name, x), s in fastest.items() if name == line):
            x, y = zip(*((at, s * 1e3) for at, s in points), strict=True)
            axes.plot(x, y, marker=marker(i), color=colour(i), label=line, linewidth=1.2, markersize=5)
    if case.roof_s is not None:
        axes.axhline(case.roof_s * 1e3, color=MUTED, linestyle="--", linewidth=1, label="bytes at the roof")
    if not any(name in lines for name, _ in fastest):
        axes.text(0.5, 0.5, "none measured", transform=axes.transAxes, ha="center", color=MUTED)
    axes.legend(fontsize=7.5, ncols=3, loc="upper center")


def vector_widths(cases: Sequence[Case], size: int) -> list[Picture]:
    """Time by vector width, relative to the narrowest (figure 6 of the paper)."""
    sweep = _sweep(cases[0])
    figure, axes = single(7.6, 5.0)
    styles, shown, all_widths = _line_styles(cases), [], set()
    told = []
    for case in _at(cases, size):
        fastest = {int(width): s for (width,), s in case.fastest_by(sweep.widths).items()}
        if len(fastest) > 1:
            widths = sorted(fastest)
            relative = [fastest[width] / fastest[widths[0]] for width in widths]
            axes.plot(widths, relative, label=case.title, markersize=6, **styles[case.title])
            shown.append(case)
            all_widths.update(widths)
            best = min(fastest, key=lambda width: fastest[width])
            told.append(f"{case.title}: {best}, {fastest[best] / fastest[widths[0]]:.2f}")
    if not shown:
        return []
    powers(axes, all_widths)
    axes.set_ylim(bottom=0)
    axes.axhline(1.0, color=MUTED, linewidth=0.8)
    axes.grid(axis="y")
    axes.set_xlabel(_title(sweep, sweep.widths))
    axes.set_ylabel("time over that of the narrowest")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    name = sweep.widths.replace("_", " ")
    kernel = cases[0].kernel.name
    axes.set_title(f"{kernel} by {name}, {sweep.size} = {sizes_of(shown)}, {dates(shown)}")
    caption = f"Time of the fastest configuration at each {name} over that at the narrowest. Lower is faster."
    alt = f"Best {name} in elements, and its time over that of the narrowest: {'; '.join(told)}."
    return [Picture(slug(sweep.widths), f"Time by {name}", caption, alt, figure)]


def roof_by_size(cases: Sequence[Case]) -> list[Picture]:
    """The share of the measured roof that the best configuration reaches, by size."""
    if not (having := [case for case in cases if case.roof_fraction is not None]):
        return []
    sweep = _sweep(having[0])
    figure, axes = single(7.6, 5.0)
    styles = _line_styles(cases)
    for title, found in by_device(having, lambda case: case.title).items():
        x, y = [case.size for case in found], [case.roof_fraction or 0.0 for case in found]
        axes.plot(x, y, label=title, markersize=6, **styles[title])
    powers(axes, [case.size for case in having])
    axes.axhline(1.0, color=MUTED, linewidth=0.8)
    axes.set_ylim(0, max(1.05, 1.05 * max(case.roof_fraction or 0.0 for case in having)))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.grid(axis="y")
    axes.set_xlabel(_title(sweep, sweep.size))
    axes.set_ylabel("share of the measured roof")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    axes.set_title(f"{having[0].kernel.name} against the roof, {sizes_text(having[0])}, {dates(having)}")
    caption = (
        "Rate of the best configuration (bytes that must move over its time) as a share of that of reading random rows."
    )
    low, high = (pick(case.roof_fraction or 0.0 for case in having) for pick in (min, max))
    alt = f"The best configurations reach {low:.0%} to {high:.0%} of the roof that was measured beside them."
    return [Picture("roof", "Share of the measured roof by size", caption, alt, figure)]


def best_default_worst(cases: Sequence[Case]) -> list[Picture]:
    """Times of the best, default and worst configuration by size, a panel per device and variant."""
    groups = list(by_device(cases, lambda case: (case.label, case.variant)).items())[:_MOST_PANELS]
    sweep = _sweep(cases[0])
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
        panel.set_xlabel(_title(sweep, sweep.size))
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
    sweep = _sweep(cases[0])
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
