"""Pictures of time by configuration: times by the value of each axis, and progress of searches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.ticker import FuncFormatter

from mmsbgen.base.id_text import plain
from mmsbgen.report.style import (
    COLOURS,
    INK,
    MANY_MARKS,
    MUTED,
    PAPER,
    Picture,
    colour,
    finish_panels,
    log_scale,
    panels,
    scale_of_strength,
    single,
    slug,
    some,
)
from mmsbgen.report.tuning.cases import Case, problem_texts

#: Most cases with a picture of their own, searches in one, labelled values of an axis, and lines of configurations.
_CASES, _SEARCHES, _VALUES, _LINES = 6, 8, 18, 300
#: A roof is drawn only if it is less than this many times faster than the best configuration.
_FAR = 50


def by_axis(cases: Sequence[Case]) -> list[Picture]:
    """The times of configurations by the value of each axis, a picture for each of the largest cases.

    The largest also has one in parallel coordinates.
    """
    most = sorted(cases, key=lambda case: -len(case.times))
    by_kernel: dict[tuple[str, str], Case] = {}
    for case in most:
        by_kernel.setdefault((case.label, case.kernel.name), case)
    chosen = [case for case in list(by_kernel.values())[:_CASES] if len(case.times) > 3]
    found = [_axes_of(case, cases) for case in chosen]
    return [*found[:1], *some(*map(_parallel, chosen[:1])), *found[1:]]


def _moving(case: Case) -> dict[str, list[Any]]:
    """The values of each axis that has several, in order; axes that matter most come first."""
    by_text: dict[str, dict[str, Any]] = {}
    for config in case.configs.values():
        for name, value in config.items():
            by_text.setdefault(name, {})[repr(value)] = value  # 8.0 and True equal 8 and 1, and are others
    names = sorted((name for name, found in by_text.items() if len(found) > 1), key=lambda name: -_weight(case, name))
    return {name: _ordered(list(by_text[name].values()), case, name) for name in names}


def _parallel(case: Case) -> Picture | None:
    """Configurations as lines through their values, one upright a setting; None where fewer than three differ."""
    values = _moving(case)
    if len(values) < 3:
        return None
    figure, axes = single(max(6.0, 1.3 * (len(values) + 1)), 3.8)
    rng, slowest = np.random.default_rng(0), math.log(case.worst_s / case.best_s) or 1.0
    place = {name: {repr(value): i for i, value in enumerate(order)} for name, order in values.items()}
    fastest = [d for d in sorted(case.times, key=lambda d: case.times[d]) if values.keys() <= case.configs[d].keys()]
    digests = fastest[:: -(-len(fastest) // _LINES)][::-1]
    slow = np.array([math.log(case.times[d] / case.best_s) / slowest for d in digests])
    at = np.array([[place[name][repr(case.configs[d][name])] for name in values] for d in digests], float)
    at = at / [len(order) - 1 for order in values.values()] + rng.uniform(-0.04, 0.04, at.shape)
    lines = np.stack([np.broadcast_to(np.arange(len(values) + 1), (len(slow), len(values) + 1)), np.c_[at, slow]], -1)
    shades = scale_of_strength()(1 - slow)
    axes.add_collection(LineCollection(list(lines), colors=shades, linewidths=0.7, alpha=0.6))
    axes.plot(*lines[-1].T, color=COLOURS[1], linewidth=2)
    for x, order in enumerate(values.values()):
        every = max(1, -(-len(order) // _VALUES))
        for i in range(0, len(order), every):
            text = plain(order[i], 10)
            axes.text(
                x + 0.05,
                i / (len(order) - 1),
                text,
                fontsize=7,
                va="center",
                bbox={"fc": PAPER, "ec": "none", "pad": 0.5},
            )
    ends = (f"{seconds * 1e3:.4g} ms" for seconds in (case.best_s, case.worst_s))
    for y, text in enumerate(ends):
        axes.text(len(values) + 0.05, y, text, fontsize=7, va="center")
    axes.set_xticks(range(len(values) + 1), [*(name.replace("_", "\n") for name in values), "time"], fontsize=7.5)
    axes.set(xlim=(-0.1, len(values) + 0.6), ylim=(-0.1, 1.1), yticks=[])
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    caption = "A line is a configuration, bright if fast; orange: the fastest. Uprights that matter most come first."
    alt = f"{len(slow)} configurations of {case.kernel.name} on {case.label} as lines through {', '.join(values)}."
    name = f"parallel-{slug(case.kernel.name)}-{slug(case.label)}"
    return Picture(name, f"{case.kernel.name}: {plain(case.label, 60)}", caption, alt, figure)


def _axes_of(case: Case, cases: Sequence[Case]) -> Picture:
    values = _moving(case)
    moving = [*values]
    columns = min(3, max(1, len(moving)))
    rows = max(1, -(-len(moving) // columns))
    figure, axes = panels(rows, columns, max(8.6, 0.8 + 2.9 * columns), 0.8 + 2.6 * rows, sharey=True)
    flat = [panel for row in axes for panel in row]
    rng = np.random.default_rng(0)
    for panel, name in zip(flat, moving, strict=False):
        order = values[name]
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


def progress(cases: Sequence[Case]) -> Picture | None:
    """The picture of the best time so far in each case's longest search; None without searches."""
    longest = ((case, max(_times_by_run(case), key=len, default=[])) for case in cases)
    searches = sorted((one for one in longest if len(one[1]) > 5), key=lambda one: -len(one[1]))[:_SEARCHES]
    if not searches:
        return None
    figure, axes = single(8.6, 4.4)
    soon = []
    for number, (case, taken) in enumerate(searches):
        best = np.minimum.accumulate(np.array(taken))
        soon.append(int(np.argmax(best <= 1.05 * best[-1])) + 1)
        text = f"{case.kernel.name}, {plain(case.title, 46)}"
        axes.step(
            np.arange(1, best.size + 1), best / best[-1], where="post", color=colour(number), linewidth=1.5, label=text
        )
    axes.set_xscale("log")
    log_scale(axes, "x")
    axes.set_xlabel("configurations tried that work")
    axes.set_ylabel("best so far over the last best")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.grid(axis="y")
    figure.legend(*axes.get_legend_handles_labels(), fontsize=7.5, loc="outside lower center", ncols=2)
    caption = "How soon a search finds what it ends with; the longest run of each kernel and problem."
    alt = f"{len(searches)} searches came within 5 % of their end after {min(soon)} to {max(soon)} configurations."
    return Picture("search", "How searches went", caption, alt, figure)


def _times_by_run(case: Case) -> list[list[float]]:
    """Median seconds of search trials in order of time, for each run."""
    found: dict[str, list[float]] = {}
    for trial in sorted(case.trials, key=lambda t: t.created_at):
        if trial.round == 0 and trial.median_s is not None:
            found.setdefault(trial.run, []).append(trial.median_s)
    return list(found.values())
