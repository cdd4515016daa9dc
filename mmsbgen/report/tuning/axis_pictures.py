"""Pictures of time by configuration: spread, times by axis value, and progress of searches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import FuncFormatter

from mmsbgen.base.id_text import plain
from mmsbgen.report.style import (
    COLOURS,
    INK,
    MANY_MARKS,
    MUTED,
    Picture,
    colour,
    finish_panels,
    log_scale,
    panels,
    single,
    slug,
)
from mmsbgen.report.tuning.cases import Case, by_device, problem_texts

#: Most cases with a picture of their own, kernels of a device in one picture, and labelled values of an axis.
_CASES, _KERNELS, _VALUES = 6, 8, 18
#: A roof is drawn only if it is less than this many times faster than the best configuration.
_FAR = 50


def spreads(cases: Sequence[Case]) -> list[Picture]:
    """The times of all configurations of each kernel relative to the best one, a panel per device."""
    devices = {label: _largest(found) for label, found in by_device(cases).items()}
    if not (devices := {label: found for label, found in devices.items() if found}):
        return []
    shown = list(devices.items())[:6]
    columns = min(2, len(shown))
    rows = -(-len(shown) // columns)
    figure, axes = panels(rows, columns, 1.0 + 4.4 * columns, 0.5 + 3.3 * rows, sharey="row")
    flat = [panel for row in axes for panel in row]
    order = sorted({case.kernel.name for _, found in shown for case in found})
    told = []
    for panel, (label, found) in zip(flat, shown, strict=False):
        for case in found:
            ratios = np.sort(np.array(list(case.times.values()))) / case.best_s
            share = 100 * np.arange(1, ratios.size + 1) / ratios.size
            number = order.index(case.kernel.name)
            panel.plot(
                share, ratios, color=colour(number), linestyle=("-", "--")[number // len(COLOURS) % 2], linewidth=1.5,
                label=f"{case.kernel.name} ({ratios.size})",
            )  # fmt: skip
        worst = max(found, key=lambda case: case.worst_s / case.best_s)
        told.append(f"{label}: up to {worst.worst_s / worst.best_s:.3g} times the best, {worst.kernel.name}")
        panel.set_title(plain(label, 50))
        panel.set_xlabel("configurations, fastest first (%)")
        panel.set_xlim(0, 100)
        panel.legend(fontsize=7.5, loc="upper left")
    for panel in flat[: len(shown)]:
        log_scale(panel, "y")
        panel.tick_params(labelleft=True)
    finish_panels(axes, len(shown), "time over the best")
    caption = (
        "Each line is a kernel on its problem with the most configurations (their number in brackets), each "
        "configuration's time over that of the best one. A line that rises late has many good configurations."
    )
    return [Picture("spread", "How far configurations lie apart", caption, f"{'; '.join(told)}.", figure)]


def _largest(cases: Sequence[Case]) -> list[Case]:
    """The largest case of each kernel with at least three configurations, at most ``_KERNELS`` of them."""
    found = [max(of, key=lambda c: len(c.times)) for of in by_device(cases, lambda c: c.kernel.name).values()]
    found = sorted((case for case in found if len(case.times) > 2), key=lambda case: -len(case.times))
    return found[:_KERNELS]


def by_axis(cases: Sequence[Case]) -> list[Picture]:
    """The times of configurations by the value of each axis, a picture for each of the largest cases."""
    most = sorted(cases, key=lambda case: -len(case.times))
    chosen: dict[tuple[str, str], Case] = {}
    for case in most:
        chosen.setdefault((case.label, case.kernel.name), case)
    return [_axes_of(case, cases) for case in list(chosen.values())[:_CASES] if len(case.times) > 3]


def _axes_of(case: Case, cases: Sequence[Case]) -> Picture:
    by_text: dict[str, dict[str, Any]] = {}
    for config in case.configs.values():
        for name, value in config.items():
            by_text.setdefault(name, {})[repr(value)] = value  # 8.0 and True equal 8 and 1, and are others
    values = {name: list(found.values()) for name, found in by_text.items()}
    moving = [name for name, found in values.items() if len(found) > 1]
    moving.sort(key=lambda name: -_weight(case, name))
    columns = min(3, max(1, len(moving)))
    rows = max(1, -(-len(moving) // columns))
    figure, axes = panels(rows, columns, max(8.6, 0.8 + 2.9 * columns), 0.8 + 2.6 * rows, sharey=True)
    flat = [panel for row in axes for panel in row]
    rng = np.random.default_rng(0)
    for panel, name in zip(flat, moving, strict=False):
        order = _ordered(values[name], case, name)
        place = {repr(value): i for i, value in enumerate(order)}
        points = [(place[repr(config[name])], case.times[d]) for d, config in case.configs.items() if name in config]
        x, y = (np.array(column, float) for column in zip(*points, strict=True))
        jitter = rng.uniform(-0.22, 0.22, x.size)
        panel.scatter(
            x + jitter, y, s=9 if x.size < 300 else 5, color=COLOURS[0], alpha=0.65, linewidths=0,
            rasterized=x.size > MANY_MARKS // 3,
        )  # fmt: skip
        fastest = [min(y[x == i]) for i in range(len(order))]
        panel.plot(range(len(order)), fastest, color=COLOURS[1], linewidth=1.3, marker="_", markersize=11)
        every = max(1, -(-len(order) // _VALUES))
        texts = [plain(value, 10) if i % every == 0 else "" for i, value in enumerate(order)]
        turned = sum(map(len, texts)) > 30
        panel.set_xticks(range(len(order)), texts, rotation=90 if turned else 0, fontsize=7.5)
        panel.set_xlim(-0.6, len(order) - 0.4)
        panel.set_title(name.replace("_", " "))
    # A roof that is far from all times would compress the rest of the picture.
    roof_s = case.roof_s if case.roof_s is not None and case.roof_s > case.best_s / _FAR else None
    for panel in flat[: len(moving)]:
        if roof_s is not None:
            panel.axhline(roof_s, color=MUTED, linestyle="--", linewidth=1)
        if case.default_s is not None:
            panel.axhline(case.default_s, color=COLOURS[2], linestyle=":", linewidth=1.3)
    log_scale(flat[0], "y", unit="s")
    for panel in flat[1 : len(moving)]:
        panel.grid(axis="y")
    finish_panels(axes, len(moving), "time of a call")
    same = [other.problem for other in cases if other.kernel.name == case.kernel.name]
    problem = problem_texts([case.problem, *same])[0]
    figure.suptitle(f"{case.kernel.name} on {plain(case.label, 50)}: {plain(problem, 70)}", fontsize=10.5, color=INK)
    caption = (
        f"Each of the {len(case.times)} configurations is a dot in every panel; orange: the fastest at each value."
        + (" Dashed: the bytes at the roof." if roof_s is not None else "")
        + (" Green dots: the built-in default." if case.default_s is not None else "")
        + " Axes that matter most come first."
    )
    best = ", ".join(f"{name}={case.best.config[name]}" for name in moving if name in case.best.config)
    alt = (
        f"{len(case.times)} configurations of {case.kernel.name} on {case.label}: {case.best_s * 1e3:.4g} to "
        f"{case.worst_s * 1e3:.4g} ms; the best has {best}."
    )
    name = f"configurations-{slug(case.kernel.name)}-{slug(case.label)}"
    return Picture(name, f"{case.kernel.name} by configuration: {plain(case.label, 60)}", caption, alt, figure)


def _weight(case: Case, axis: str) -> float:
    """The effect of an axis: the ratio of the fastest time at its worst value to that at its best value."""
    fastest = list(case.fastest_by(axis).values())
    return max(fastest) / min(fastest)


def _ordered(found: list[Any], case: Case, axis: str) -> list[Any]:
    """The values of an axis in order: numbers by size, others as declared, or else by name."""
    declared: tuple[Any, ...] = ()
    if case.spec is not None:
        declared = next((one.values for one in case.spec.space.axes if one.name == axis), ())
    if all(isinstance(value, int | float) for value in found):
        return sorted(found)
    if all(value in declared for value in found):
        return sorted(found, key=declared.index)
    return sorted(found, key=str)


def measured_over_time(figure_cases: Sequence[Case]) -> Picture | None:
    """The picture of the best time so far in each case's longest search; None without searches."""
    searches = []
    for case in figure_cases:
        if runs := by_run(case):
            searches.append((case, max(runs.values(), key=len)))
    searches = sorted((one for one in searches if len(one[1]) > 5), key=lambda one: -len(one[1]))[:_KERNELS]
    if not searches:
        return None
    figure, axes = single(8.6, 4.4)
    for number, (case, taken) in enumerate(searches):
        best = np.minimum.accumulate(np.array(taken))
        axes.step(
            np.arange(1, best.size + 1), best / best[-1], where="post", color=colour(number), linewidth=1.5,
            label=f"{case.kernel.name}, {plain(case.title, 46)}"
            + (f", {case.spec.sweep.size} = {case.size}" if case.spec and case.spec.sweep else ""),
        )  # fmt: skip
    axes.set_xscale("log")
    log_scale(axes, "x")
    axes.set_xlabel("configurations tried that work")
    axes.set_ylabel("best so far over the last best")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.grid(axis="y")
    figure.legend(*axes.get_legend_handles_labels(), fontsize=7.5, loc="outside lower center", ncols=2)
    caption = "How soon a search finds what it ends with; the longest run of each kernel and problem."
    soon = [int(np.argmax(np.minimum.accumulate(taken) <= 1.05 * min(taken))) + 1 for _, taken in searches]
    alt = f"{len(searches)} searches came within 5 % of their end after {min(soon)} to {max(soon)} configurations."
    return Picture("search", "How searches went", caption, alt, figure)


def by_run(case: Case) -> dict[str, list[float]]:
    """Median seconds of search trials in order of time, by run."""
    found: dict[str, list[float]] = {}
    for trial in sorted(case.trials, key=lambda t: t.created_at):
        if trial.round == 0 and trial.median_s is not None:
            found.setdefault(trial.run, []).append(trial.median_s)
    return found
