"""Pictures of a chain: held-out metrics, calibration, row sums and step size, and the choice of K."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from mmsbgen.report.style import COLOURS, MUTED, Picture, log_scale, panels, powers, single

Floats = npt.NDArray[np.float64]
Record = dict[str, Any]

_UPDATES = "updates of a vertex, in the mean"
#: First part of a trace that may lie outside the picture.
_BEGIN = 0.08


def _column(rows: Sequence[Record], name: str) -> Floats:
    return np.array([np.nan if row.get(name) is None else row[name] for row in rows], float)


def _moments(record: Record) -> tuple[list[tuple[float, str]], float | None]:
    """Updates per vertex at which the run was refined or settled, with labels, and at which averaging begins."""
    trace, course = record["trace"], record.get("course", {})
    iterations, updates = _column(trace, "iteration"), _column(trace, "updates_per_vertex")

    def at(iteration: float) -> float:
        return float(np.interp(iteration, iterations, updates))

    found = [(at(done["iteration"]), "refined") for done in course.get("refinements", []) if done["filled"]]
    if course.get("settled_at") is not None:
        found.append((at(course["settled_at"]), "settled"))
    averaged = [row["updates_per_vertex"] for row in trace if row.get("burnt_in")]
    return found, averaged[0] if averaged else None


def held_out(record: Record) -> Picture | None:
    """The picture of log-likelihood, AUC and perplexity of validation pairs; None for a run without evaluations."""
    rows = [row for row in record["trace"] if row.get("auc") is not None or "log_likelihood" in row]
    if not rows:
        return None
    x = _column(rows, "updates_per_vertex")
    figure, axes = panels(3, 1, 8.6, 6.4, sharex=True)
    top, middle, bottom = (row[0] for row in axes)
    moments, means_from = _moments(record)
    test = (record.get("held_out") or {}).get("test")
    _metric(top, rows, x, "log_likelihood", test)
    top.set_ylabel("log-likelihood\n(nats a pair)")
    _metric(middle, rows, x, "auc", test)
    middle.set_ylabel("AUC")
    _metric(bottom, rows, x, "perplexity", test)
    bottom.set_ylabel("balanced perplexity")
    bottom.set_xlabel(_UPDATES)
    for panel in (top, middle, bottom):
        panel.grid(axis="y")
        for when, what in moments:
            style = {"settled": "-", "refined": ":"}[what]
            panel.axvline(when, color=MUTED, linewidth=1, linestyle=style, zorder=1)
        if means_from is not None and len(rows) > 1:
            panel.axvspan(means_from, x[-1], color=COLOURS[4], alpha=0.13, linewidth=0)
    figure.legend(*top.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    last = rows[-1]
    verdict = record.get("convergence", {}).get("text", "")
    alt = (
        f"Held-out metrics over the run: log-likelihood {_known(last['log_likelihood'])} nats a pair, AUC "
        f"{_known(last.get('auc'))} and balanced perplexity {_known(last['perplexity'])} at the end, after "
        f"{x[-1]:.3g} updates of a vertex. {verdict}"
    )
    caption = (
        "Blue: the state at that moment; orange: the running mean of link probabilities, which counts. Shaded: where "
        "that mean is taken. Dotted: empty communities were refilled; grey line: the run had settled. The first "
        "evaluations may lie outside the picture. Test pairs are others than the validation pairs."
    )
    return Picture("held-out", "Held-out pairs as the run went on", caption, alt, figure)


_SAMPLED = {"log_likelihood": "sample_log_likelihood", "perplexity": "sample_perplexity", "auc": "auc"}


def _metric(axes: Axes, rows: Sequence[Record], x: Floats, name: str, test: Record | None) -> None:
    sample, mean = _column(rows, _SAMPLED[name]), _column(rows, name)
    averaged = _column(rows, "samples") > 1
    if name == "auc":  # once there is a running mean, the AUC is its
        sample, mean = np.where(averaged, np.nan, sample), sample
    axes.plot(x, sample, color=COLOURS[0], linewidth=1.1, marker="o", markersize=2.5, label="single states")
    if averaged.any():
        axes.plot(x[averaged], mean[averaged], color=COLOURS[1], linewidth=2, label="running mean")
    shown = [sample[x >= x[0] + _BEGIN * (x[-1] - x[0])], mean[averaged]]
    if test is not None and test.get(name) is not None:
        error = test.get(f"{name}_error") or 0.0
        place = x[-1] + 0.02 * max(1.0, x[-1] - x[0])
        axes.errorbar(
            [place], [test[name]], [error], fmt="D", color=COLOURS[2], markersize=5, capsize=3, label="test ± s.e."
        )
        shown.append(np.array([test[name] - error, test[name] + error]))
    values = np.concatenate(shown)
    values = values[np.isfinite(values)]
    if values.size:
        low, high = float(values.min()), float(values.max())
        pad = 0.1 * (high - low) or 0.05 * abs(high) or 0.1
        most = 1 + 0.05 * (1 - low + pad) if name == "auc" else np.inf  # no AUC is larger than 1
        axes.set_ylim(low - pad, min(high + pad, most))


def _known(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"


def health(record: Record) -> Picture | None:
    """The picture of mean row sum and step size over the run; None without a trace."""
    if not (rows := record["trace"]):
        return None
    x = _column(rows, "updates_per_vertex")
    figure, ((left, right),) = panels(1, 2, 8.6, 2.9)
    for axes, name, title in ((left, "mean_row_sum", "mean row sum of phi"), (right, "eps", "step size")):
        values = _column(rows, name)
        axes.plot(x, values, color=COLOURS[0], marker="o", markersize=2.5, linewidth=1.2)
        axes.set_xlabel(_UPDATES)
        axes.set_ylabel(title)
        finite = values[np.isfinite(values) & (values > 0)]
        if finite.size and finite.max() / finite.min() > 4:
            log_scale(axes, "y")
        axes.grid(axis="y")
    sums = _column(rows, "mean_row_sum")
    alt = f"The mean row sum went from {sums[0]:.4g} to {sums[-1]:.4g}, the step size to {rows[-1]['eps']:.4g}."
    caption = (
        "Rows of phi are free to grow; what counts is pi, the rows divided by their sums. A mean row sum that runs "
        "away or falls to nothing says that the step size does not fit."
    )
    return Picture("row-sums", "Mean row sum and step size", caption, alt, figure)


def reliability(record: Record) -> Picture | None:
    """The reliability diagram of the test pairs; None if there are too few for one."""
    found: Record | None = (record.get("calibration") or {}).get("test")
    if found is None:
        return None
    p, before, observed, error = (_column(found["bins"], name) for name in ("p", "before", "observed", "error"))
    figure, axes = single(3.9, 3.6)
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.8, linestyle="--")
    if record["calibration"]["calibrated"]:
        axes.plot(before, observed, "s", color=COLOURS[4], markersize=4, label="of the model")
    label = "calibrated" if record["calibration"]["calibrated"] else "of the model"
    axes.errorbar(p, observed, error, fmt="o", color=COLOURS[0], capsize=2, markersize=4, label=label)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_aspect("equal")
    axes.set_xlabel("mean link probability")
    axes.set_ylabel("share of linked pairs")
    axes.grid()
    axes.legend(loc="upper left")
    caption = (
        "Test pairs of a link probability of 0.1 or more, in bins of equal mass: on the dashed line probabilities are "
        "right, above it too small. Bars: standard errors."
    )
    points = ", ".join(f"{x:.2f} and {y:.2f}" for x, y in zip(p, observed, strict=True))
    alt = f"Link probability and share of linked pairs: {points}."
    return Picture("reliability", "Reliability of link probabilities", caption, alt, figure)


def choice_of_k(record: Record) -> Picture | None:
    """The picture of log-likelihood by number of communities; None if K was given."""
    tried: list[Record] = record.get("tried") or []
    if not tried:
        return None
    chosen = record["options"]["n_communities"]
    k, value = _column(tried, "k"), _column(tried, "log_likelihood")
    error = np.nan_to_num(_column(tried, "standard_error"))
    figure, axes = single(8.6, 3.1)
    axes.errorbar(k, value, error, fmt="o-", color=COLOURS[0], capsize=3, linewidth=1, markersize=5)
    at = k == chosen
    axes.plot(k[at], value[at], "D", color=COLOURS[1], markersize=9, label=f"taken: K = {chosen}")
    best = int(np.nanargmax(value))
    axes.axhline(value[best], color=MUTED, linewidth=0.8, linestyle="--")
    powers(axes, k)
    axes.set_xticks(k, [f"{x:g}" for x in k], rotation=0 if len(k) < 10 else 45)
    axes.set_xlabel("communities K")
    axes.set_ylabel("log-likelihood\n(nats a validation pair)")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:.4g}"))
    axes.grid(axis="y")
    axes.legend(loc="lower right")
    caption = (
        "The K of the highest held-out log-likelihood was taken, or a smaller one if larger K only add empty "
        "communities. Bars: standard error of the difference to the highest."
    )
    alt = f"Of {len(tried)} numbers of communities tried, K = {chosen} was taken; the best one was K = {k[best]:g}."
    return Picture("choice-of-k", "Choice of the number of communities", caption, alt, figure)
