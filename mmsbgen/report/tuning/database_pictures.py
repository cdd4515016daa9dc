"""The roofline of a whole database, its coverage and history, and reasons of failures."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mmsbgen.base.id_text import pairs, plain
from mmsbgen.db.records.tuning_records import RoofRecord, RunRecord, TrialRecord
from mmsbgen.report.style import INK, MANY_MARKS, MUTED, Picture, colour, finish_panels, log_scale, marker, panels
from mmsbgen.report.tuning.cases import device_label, problem_texts

#: Most panels, and kernels with a colour.
_PANELS, _KERNELS = 6, 8


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
        + (f", at {min(1.0, *shares):.2%} to {min(1.0, max(shares)):.0%} of their roofs" if shares else "")
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
        rates["gather"] = [t.roof_gbps for t in trials if t.roof_gbps is not None and not t.extra.get("roof")]
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


def coverage(trials: Sequence[TrialRecord]) -> tuple[list[str], list[list[str]]]:
    """The devices, and a row for each kernel: its numbers of trials and problems on each of them."""
    counts: Counter[tuple[str, str]] = Counter()
    problems: dict[tuple[str, str], set[str]] = defaultdict(set)
    for trial in trials:
        cell = (device_label(trial.key.device), trial.key.kernel.name)
        counts[cell] += 1
        problems[cell].add(trial.key.problem.key)
    labels = [label for label, _ in Counter(device_label(trial.key.device) for trial in trials).most_common()]
    rows = []
    for kernel, _ in Counter(trial.key.kernel.name for trial in trials).most_common():
        cells = ((label, kernel) for label in labels)
        rows.append([kernel, *(f"{counts[c]:,} / {len(problems[c])}" if counts[c] else "" for c in cells)])
    return labels, rows


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


def reasons(trials: Sequence[TrialRecord]) -> list[tuple[str, str, int, str, str]]:
    """Failures by status and cause, the most frequent first.

    Rows have the status, the message with every number as ``#``, how many trials failed so, the names of their kernels
    and one of their configurations.
    """
    groups: dict[tuple[str, str], list[TrialRecord]] = defaultdict(list)
    for trial in trials:
        if trial.status != "ok":
            groups[trial.status, reason_of(trial)].append(trial)
    found = [
        (status, text, len(alike), ", ".join(sorted({t.key.kernel.name for t in alike})), pairs(alike[0].config))
        for (status, text), alike in groups.items()
    ]
    return sorted(found, key=lambda row: (-row[2], row))


def history_of(trials: Sequence[TrialRecord], runs: Sequence[RunRecord]) -> list[tuple[str, str, str, float]]:
    """The best of every run of a kernel that was tuned again for a device and a problem.

    Rows have these three in words, the start, the driver and the median seconds; what has most runs comes first.
    """
    started = {run.uuid: run.started for run in runs}
    groups: dict[tuple[object, ...], dict[str, list[TrialRecord]]] = defaultdict(lambda: defaultdict(list))
    for trial in trials:
        if trial.status == "ok" and trial.run in started:
            kernel = (trial.key.kernel.family, trial.key.kernel.name)
            groups[trial.key.device.identity, kernel, trial.key.problem][trial.run].append(trial)
    several = sorted((by_run for by_run in groups.values() if len(by_run) > 1), key=len, reverse=True)
    keys = [next(iter(by_run.values()))[-1].key for by_run in several]
    found = []
    for by_run, key, text in zip(several, keys, problem_texts(key.problem.params for key in keys), strict=True):
        title = f"{key.kernel.name}, {device_label(key.device)}, {text}"
        points = sorted((started[run], _ended(members)) for run, members in by_run.items())
        found += [(title, when, driver, seconds) for when, (seconds, driver) in points]
    return found


def _ended(trials: Sequence[TrialRecord]) -> tuple[float, str]:
    """Median seconds of a run's best trial, of the final rounds if there were any, and its driver."""
    last = max(trial.round for trial in trials) > 0
    ranked = [trial for trial in trials if (trial.round > 0) == last]
    best = min(ranked, key=lambda trial: trial.median_s or math.inf)
    return best.median_s or math.inf, best.key.device.driver
