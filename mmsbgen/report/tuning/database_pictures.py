"""Pictures of a whole database: roofline, coverage, failures by reason, and history."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from mmsbgen.base.id_text import pairs, plain
from mmsbgen.db.records.tuning_records import Key, RoofRecord, RunRecord, TrialRecord
from mmsbgen.report.style import (
    COLOURS,
    INK,
    MANY_MARKS,
    MUTED,
    Picture,
    bright,
    colour,
    finish_panels,
    log_scale,
    marker,
    on_scale,
    panels,
    scale_of_strength,
    single,
)
from mmsbgen.report.tuning.cases import device_label, problem_texts

#: Most panels, kernels with a colour, reasons, lines of history, and rows or columns of a matrix.
_PANELS, _KERNELS, _REASONS, _LINES, _SIDE = 6, 8, 12, 8, 24
_STATUS_COLOURS = {
    "invalid": MUTED,
    "compile_error": COLOURS[0],
    "launch_error": COLOURS[1],
    "wrong_result": COLOURS[3],
    "timeout": COLOURS[4],
    "crashed": INK,
}


def roofline(trials: Sequence[TrialRecord], roofs: Sequence[RoofRecord]) -> Picture | None:
    """The picture of every trial's rate over the bytes of a call, with the device's roofs; None without rates."""
    rated = [t for t in trials if t.status == "ok" and t.gbps is not None and t.bytes_moved]
    if not rated:
        return None
    devices = Counter(device_label(t.key.device) for t in rated)
    kernels = [name for name, _ in Counter(t.key.kernel.name for t in rated).most_common()]
    labels = [label for label, _ in devices.most_common(_PANELS)]
    columns = min(2, len(labels))
    rows = -(-len(labels) // columns)
    figure, axes = panels(rows, columns, 1.0 + 4.4 * columns, 0.8 + 3.5 * rows)
    flat = [panel for row in axes for panel in row]
    rng = np.random.default_rng(0)
    for panel, label in zip(flat, labels, strict=False):
        here = [t for t in rated if device_label(t.key.device) == label]
        for name in reversed(kernels):
            points = [(t.bytes_moved or 1, t.gbps or 1.0) for t in here if t.key.kernel.name == name]
            number = min(kernels.index(name), _KERNELS)
            shade = colour(number) if number < _KERNELS else MUTED
            if points:
                x, y = (np.array(column, float) for column in zip(*points, strict=True))
                size, x = 13 if len(here) < 300 else 7, x * rng.uniform(0.95, 1.05, x.size)
                panel.scatter(
                    x, y, s=size, color=shade, marker=marker(number), alpha=0.55, linewidths=0,
                    rasterized=len(rated) > MANY_MARKS,
                )  # fmt: skip
        panel.set_yscale("log")
        measured = [roof for roof in roofs if device_label(roof.device) == label]
        _roof_lines(panel, measured, here)
        sizes = [t.bytes_moved or 1 for t in here]
        panel.set_xlim(min(sizes) / 2, max(sizes) * 2)
        log_scale(panel, "x", unit="B")
        log_scale(panel, "y")
        panel.set_title(f"{plain(label, 46)} ({devices[label]} trials)")
        panel.set_xlabel("bytes that a call must move")
    finish_panels(axes, len(labels), "rate of these bytes (GB/s)")
    _kernel_legend(figure, kernels)
    left_out = f" {len(devices) - len(labels)} devices are left out." if len(devices) > len(labels) else ""
    shares = [t.roof_fraction for t in rated if t.roof_fraction is not None]
    alt = (
        f"{len(rated)} trials of {len(kernels)} kernels on {len(devices)} devices"
        + (f", at {min(shares):.2%} to {max(shares):.0%} of their roofs" if shares else "")
        + f".{left_out}"
    )
    caption = (
        "Every configuration that worked is a mark. Solid line: the rate of a plain copy; dashed: of a gather of "
        "random rows (the fastest measured). Above the lines data came from a cache; short calls at the left wait for "
        f"their launch more than for memory.{left_out}"
    )
    return Picture("roofline", "Rate of every trial against the roof", caption, alt, figure)


def _roof_lines(panel: Axes, measured: Sequence[RoofRecord], trials: Sequence[TrialRecord]) -> None:
    rates = {kind: [roof.gbps for roof in measured if roof.kind == kind] for kind in ("copy", "gather")}
    if not rates["gather"]:
        rates["gather"] = [t.roof_gbps for t in trials if t.roof_gbps is not None]
    told = []
    for kind, style in (("copy", "-"), ("gather", "--")):
        if rates[kind]:
            panel.axhline(max(rates[kind]), color=INK, linewidth=1.1, linestyle=style, zorder=1)
            told.append(f"{kind} {max(rates[kind]):,.{0 if max(rates[kind]) >= 100 else 1}f} GB/s")
    low, high = panel.get_ylim()
    panel.set_ylim(low, max(high, 3 * max((rate for of in rates.values() for rate in of), default=0.0)))
    panel.text(0.01, 0.985, ", ".join(told), transform=panel.transAxes, fontsize=8, va="top")


def _kernel_legend(figure: Figure, kernels: Sequence[str]) -> None:
    handles = [
        Line2D([], [], linestyle="", marker=marker(i), color=colour(i), markersize=6, label=plain(name, 30))
        for i, name in enumerate(kernels[:_KERNELS])
    ]
    if len(kernels) > _KERNELS:
        more = f"{len(kernels) - _KERNELS} other{'s' * (len(kernels) > _KERNELS + 1)}"
        handles.append(Line2D([], [], linestyle="", marker=marker(_KERNELS), color=MUTED, markersize=6, label=more))
    figure.legend(handles=handles, loc="outside lower center", ncols=min(5, len(handles)))


def coverage(trials: Sequence[TrialRecord]) -> Picture | None:
    """The picture of the numbers of trials and problems by device and kernel; None without trials."""
    if not trials:
        return None
    counts: Counter[tuple[str, str]] = Counter()
    problems: dict[tuple[str, str], set[str]] = defaultdict(set)
    for trial in trials:
        cell = (device_label(trial.key.device), trial.key.kernel.name)
        counts[cell] += 1
        problems[cell].add(trial.key.problem.key)
    by_label, by_kernel = Counter[str](), Counter[str]()
    for (label, kernel), count in counts.items():
        by_label[label] += count
        by_kernel[kernel] += count
    labels = [label for label, _ in by_label.most_common(_SIDE)]
    kernels = [kernel for kernel, _ in by_kernel.most_common(_SIDE)]
    table = np.array([[counts[label, kernel] for label in labels] for kernel in kernels], float)
    figure, axes = single(min(9.5, 4.2 + 1.35 * len(labels)), 1.4 + 0.34 * len(kernels))
    scale = scale_of_strength()
    norm = LogNorm(1, max(2.0, table.max()))
    axes.imshow(np.ma.masked_where(table == 0, table), cmap=scale, norm=norm, aspect="auto", interpolation="nearest")
    for i, kernel in enumerate(kernels):
        for j, label in enumerate(labels):
            if table[i, j]:
                shade = on_scale(bright(scale(float(norm(table[i, j])))))
                text = f"{table[i, j]:,.0f} / {len(problems[label, kernel])}"
                axes.text(j, i, text, ha="center", va="center", fontsize=8, color=shade)
    axes.set_xticks(range(len(labels)), [_folded(label) for label in labels], fontsize=8)
    axes.set_yticks(range(len(kernels)), [plain(kernel, 30) for kernel in kernels])
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    out = (len(by_label) - len(labels), len(by_kernel) - len(kernels))
    left_out = f" {out[0]} devices and {out[1]} kernels with fewer are left out." if any(out) else ""
    caption = f"Trials / problems of each kernel on each device; empty: nothing was measured.{left_out}"
    alt = (
        f"{len(trials)} trials of {len(by_kernel)} kernels on {len(by_label)} devices; the most, "
        f"{int(table.max())}, of {kernels[int(table.max(axis=1).argmax())]}."
    )
    return Picture("coverage", "Coverage of devices and kernels", caption, alt, figure)


def _folded(label: str) -> str:
    return "\n".join(plain(part, 24) for part in re.split(r", | (?=\()", label))


class Reason(NamedTuple):
    """A reason of failures.

    Attributes:
        status: The trials' status.
        text: The message, with every number replaced by ``#``.
        trials: How many trials failed for it.
        kernels: Names of their kernels.
        example: One of their configurations.
    """

    status: str
    text: str
    trials: int
    kernels: str
    example: str


def reason_of(trial: TrialRecord) -> str:
    """The message of a failed trial, shortened so that failures of the same cause have the same text."""
    lines = [line.strip() for line in trial.message.splitlines() if line.strip()]
    named = [line for line in lines if re.search(r"\b(?:error|fatal)\b", line, re.IGNORECASE)]
    text = named[0] if named and trial.status == "compile_error" else lines[0] if lines else "no message"
    if named and text == named[0]:
        text = re.sub(r"^.*?\b(?:error|fatal)\b\s*:?\s*", "", text, flags=re.IGNORECASE)
    text = re.sub(r"^\w+ \([^)]*=[^)]*\):? ?", "", text)
    text = re.sub(r"^kernel '\w+', grid \([^)]*\), block \([^)]*\): ", "", text)
    text = re.sub(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:e[+-]?\d+)?", "#", text)
    return plain(text, 110)


def reasons(trials: Sequence[TrialRecord]) -> list[Reason]:
    """Failures by status and cause, the most frequent first."""
    groups: dict[tuple[str, str], list[TrialRecord]] = defaultdict(list)
    for trial in trials:
        if trial.status != "ok":
            groups[trial.status, reason_of(trial)].append(trial)
    found = [
        Reason(
            status,
            text,
            len(members),
            ", ".join(sorted({t.key.kernel.name for t in members})),
            pairs(members[0].config),
        )
        for (status, text), members in groups.items()
    ]
    return sorted(found, key=lambda reason: (-reason.trials, reason))


def failures(found: Sequence[Reason], trials: int) -> Picture | None:
    """The picture of the number of failures by reason; None without failures."""
    if not found:
        return None
    shown = list(found[:_REASONS])
    total = sum(reason.trials for reason in found)
    figure, axes = single(8.6, 1.1 + 0.42 * len(shown))
    names = [_wrapped(reason.text) for reason in shown]
    counts = [reason.trials for reason in shown]
    bars = axes.barh(range(len(shown)), counts, color=[_STATUS_COLOURS[r.status] for r in shown], height=0.62)
    axes.bar_label(bars, [f" {count:,}" for count in counts], fontsize=8.5)
    axes.set_yticks(range(len(shown)), names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("configurations")
    axes.margins(x=0.1)
    axes.grid(axis="x")
    present = [status for status in _STATUS_COLOURS if any(reason.status == status for reason in shown)]
    blocks = [Patch(color=_STATUS_COLOURS[status], label=status.replace("_", " ")) for status in present]
    figure.legend(handles=blocks, loc="outside lower center", ncols=len(present))
    rest = f" {len(found) - len(shown)} rarer reasons are left out." if len(found) > len(shown) else ""
    caption = f"{total:,} of {trials:,} trials failed. Every # stands for a number.{rest}"
    alt = f"{total} of {trials} trials failed, most ({shown[0].trials}) with {shown[0].status}: {shown[0].text}.{rest}"
    return Picture("failures", "Failures by reason", caption, alt, figure)


def _wrapped(text: str) -> str:
    if len(text) <= 48:
        return text
    at = text.rfind(" ", 0, 48)
    at = at if at > 20 else 48
    return f"{text[:at]}\n{plain(text[at:], 48)}"


class Series(NamedTuple):
    """Results of all runs of one kernel, device and problem: start, driver, and median seconds of the best."""

    title: str
    when: list[datetime]
    drivers: list[str]
    best_s: list[float]


def history_of(trials: Sequence[TrialRecord], runs: Sequence[RunRecord]) -> list[Series]:
    """Series of at least two runs, those with the most runs first."""
    started = {run.uuid: run.started for run in runs}
    groups: dict[tuple[object, ...], dict[str, list[TrialRecord]]] = defaultdict(lambda: defaultdict(list))
    keys: dict[tuple[object, ...], Key] = {}
    for trial in trials:
        if trial.status == "ok" and trial.run in started:
            kernel = (trial.key.kernel.family, trial.key.kernel.name)
            name: tuple[object, ...] = (trial.key.device.identity, kernel, trial.key.problem)
            groups[name][trial.run].append(trial)
            keys[name] = trial.key
    several = {name: by_run for name, by_run in groups.items() if len(by_run) > 1}
    texts = dict(zip(several, problem_texts(keys[name].problem.params for name in several), strict=True))
    found = []
    for name, by_run in several.items():
        points = sorted((started[run], _ended(members)) for run, members in by_run.items())
        key = keys[name]
        found.append(
            Series(
                f"{key.kernel.name}, {device_label(key.device)}, {texts[name]}",
                [datetime.fromisoformat(when.replace("Z", "+00:00")) for when, _ in points],
                [driver for _, (_, driver) in points],
                [seconds for _, (seconds, _) in points],
            )
        )
    return sorted(found, key=lambda series: (-len(series.when), series.title))


def _ended(trials: Sequence[TrialRecord]) -> tuple[float, str]:
    """Median seconds of a run's best trial, of the final rounds if there were any, and its driver."""
    last = max(trial.round for trial in trials) > 0
    ranked = [trial for trial in trials if (trial.round > 0) == last]
    best = min(ranked, key=lambda trial: trial.median_s or math.inf)
    return best.median_s or math.inf, best.key.device.driver


def history(found: Sequence[Series]) -> Picture | None:
    """The picture of the best of every run over time, one line per series; None without series."""
    if not found:
        return None
    shown = list(found[:_LINES])
    figure, axes = single(8.6, 4.4 + 0.14 * len(shown))
    drivers = sorted({driver for series in shown for driver in series.drivers})
    for number, series in enumerate(shown):
        x = np.array([date2num(when) for when in series.when])  # type: ignore[no-untyped-call]
        axes.plot(x, series.best_s, color=colour(number), linewidth=1.2, label=plain(series.title, 90))
        for place, driver in enumerate(drivers):
            if at := [i for i, name in enumerate(series.drivers) if name == driver]:
                y = np.array(series.best_s)[at]
                axes.plot(x[at], y, marker=marker(place), linestyle="", color=colour(number), markersize=6)
    locator = AutoDateLocator()  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.set_xlabel("start of the run (UTC)")
    axes.set_ylabel("time of the run's best")
    log_scale(axes, "y", unit="s")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower left", fontsize=7.5)
    told = "; ".join(f"{marker(place)} {plain(driver, 30)}" for place, driver in enumerate(drivers))
    rest = f" {len(found) - len(shown)} further lines are left out." if len(found) > len(shown) else ""
    caption = (
        "What the runs of a kernel on the same device and problem ended with, the newest at the right; a step up after "
        f"a change of driver is worth a look. Markers are drivers: {told}.{rest}"
    )
    alt = "; ".join(f"{s.title}: {s.best_s[0] * 1e3:.4g} to {s.best_s[-1] * 1e3:.4g} ms" for s in shown[:4])
    return Picture("history", "Best of every run", caption, f"{alt}.{rest}", figure)
