"""Pictures of a kernel's time by the values of its axes (figures 3, 4 and 6 of the paper), from tuning records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mmsbgen.base.id_text import plain
from mmsbgen.kernels.family import Sweep
from mmsbgen.report.style import MUTED, Picture, colour, log_scale, marker, panels, powers, single, slug
from mmsbgen.report.tuning.cases import Case, by_device

_STYLES = ("-", "--", ":", "-.")
#: Most devices with a picture of their own.
MOST_DEVICES = 6
#: A variant is drawn if it has at least this fraction of the configurations of the largest one.
_OF_THE_MOST = 0.1
#: Most variants in a picture of one device.
_MOST_ROWS = 4


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


def sweep_of(case: Case) -> Sweep:
    assert case.spec is not None
    assert case.spec.sweep is not None
    return case.spec.sweep


def title_of(sweep: Sweep, name: str) -> str:
    return sweep.titles.get(name, name)


def dates(cases: Iterable[Case]) -> str:
    """The range of days of the cases' newest trials, as text."""
    days = sorted({max(trial.created_at for trial in case.trials)[:10] for case in cases})
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


def block_sizes(cases: Sequence[Case], size: int) -> list[Picture]:
    """Time along one axis by the values of another, one picture per device (figures 3 and 4 of the paper)."""
    found = []
    for label, of_device in list(by_device(cases).items())[:MOST_DEVICES]:
        nearest = _nearest(of_device, size)
        rows = [case for case in of_device if case.size == nearest]
        # A search measures few configurations; beside a full sweep its panel would be almost empty.
        most = max(len(case.times) for case in rows)
        rows = [case for case in rows if len(case.times) >= _OF_THE_MOST * most][:_MOST_ROWS]
        sweep = sweep_of(rows[0])
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
            panel.set_xlabel(title_of(sweep, sweep.along))
        kernel = rows[0].kernel.name
        figure.suptitle(
            f"{kernel} on {plain(label, 60)}, {dates(rows)}: {sweep.size} = {nearest}, {sizes_text(rows[0])}",
            fontsize=10.5,
        )
        caption = (
            f"Each point is the fastest configuration at that {sweep.lines} and {title_of(sweep, sweep.along)}. "
            "The grey line is the time in which the roof of the same run moves the bytes."
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


def lines_by_case(
    cases: Sequence[Case], lines: Mapping[str, tuple[Sequence[int], Sequence[float]]], x: str, y: str, title: str
) -> tuple[Figure, Axes]:
    """A figure with a line for each case title that has one, in the style that it has among ``cases``; 1 is marked."""
    figure, axes = single(7.6, 5.0)
    labels, variants = list(by_device(cases)), list(by_device(cases, lambda case: case.variant))
    style = {case.title: (labels.index(case.label), variants.index(case.variant)) for case in cases}
    for name, (at, values) in lines.items():
        device, variant = style[name]
        axes.plot(
            at,
            values,
            label=name,
            markersize=6,
            color=colour(device),
            marker=marker(device),
            linestyle=_STYLES[variant % len(_STYLES)],
            markerfacecolor="none" if variant else colour(device),
        )
    powers(axes, [one for at, _ in lines.values() for one in at])
    axes.set_ylim(bottom=0)
    axes.axhline(1.0, color=MUTED, linewidth=0.8)
    axes.grid(axis="y")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure, axes


def vector_widths(cases: Sequence[Case], size: int) -> list[Picture]:
    """Time by vector width, relative to the narrowest (figure 6 of the paper)."""
    sweep, lines, shown, told = sweep_of(cases[0]), {}, [], []
    for case in _at(cases, size):
        fastest = {int(width): s for (width,), s in sorted(case.fastest_by(sweep.widths).items())}
        if len(fastest) > 1:
            narrowest = next(iter(fastest.values()))
            lines[case.title] = list(fastest), [seconds / narrowest for seconds in fastest.values()]
            shown.append(case)
            best = min(fastest, key=lambda width: fastest[width])
            told.append(f"{case.title}: {best}, {fastest[best] / narrowest:.2f}")
    if not shown:
        return []
    name = sweep.widths.replace("_", " ")
    title = f"{cases[0].kernel.name} by {name}, {sweep.size} = {sizes_of(shown)}, {dates(shown)}"
    figure, _ = lines_by_case(cases, lines, title_of(sweep, sweep.widths), "time over that of the narrowest", title)
    caption = f"Time of the fastest configuration at each {name} over that at the narrowest. Lower is faster."
    alt = f"Best {name} in elements, and its time over that of the narrowest: {'; '.join(told)}."
    return [Picture(slug(sweep.widths), f"Time by {name}", caption, alt, figure)]
