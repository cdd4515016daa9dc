"""The report of bench_paper_cpu.py: the paper's figure 2 and table 2, and what compiler options add to the baseline."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from _harness import Sample
from _report import Report, save_svg
from baseline import Baseline

from mmsbgen.report import style

WIDTHS = (1, 2, 4, 8, 16)
FASTER_ARITHMETIC = ("-O3", "-march=native", "-ffast-math")


@dataclass(frozen=True)
class Stage:
    """A kernel and what the paper's table 2 calls it, with its seconds there; ``sampled``: once an evaluation."""

    kernel: str
    paper: str
    paper_s: float
    sampled: bool = False


STAGES = (
    Stage("perplexity_pairs", "PPX CALC", 0.0364737, sampled=True),
    Stage("perplexity_sum", "PPX ACCUM", 0.083, sampled=True),
    Stage("sample_partners", "SAMPLING", 0.535599),
    Stage("update_phi", "UPDATE PHI", 25.6598),
    Stage("update_pi", "UPDATE PI", 0.645875),
    Stage("theta_partial", "GRADS PAR", 1.92919),
    # What the paper has as GRADS SUM (9.31122), UPDATE THETA (0.0548013) and NORM THETA (0.001) is one kernel here.
    Stage("theta_end", "GRADS SUM to NORM THETA", 9.36702),
)


def seconds_of(times: dict[str, Sample], width: int) -> float:
    """The median at a width; kernels without vectors have one time for all."""
    return times[str(width)].median if str(width) in times else times["1"].median


def per_thousand(stage: Stage, interval: int) -> float:
    """Calls in a thousand iterations."""
    return 1000 / interval if stage.sampled else 1000.0


def figure(path: Path, speedups: dict[str, dict[str, list[float]]], title: str) -> None:
    """Speed-up over the baseline by vector width, as the paper's figure 2."""
    with style.drawing():
        plot, axes = style.single(6.4, 4.0)
        for number, (device, lines) in enumerate(speedups.items()):
            look = {"color": style.colour(number), "marker": style.marker(number)}
            for line, (what, values) in zip(("-", "--"), lines.items(), strict=True):
                axes.plot(range(len(WIDTHS)), values, line, label=f"{device}, {what}", **look)
        axes.set_xticks(range(len(WIDTHS)), [str(width) for width in WIDTHS])
        axes.set_xlabel("vector width (elements)")
        axes.set_ylabel("speed-up over one thread of plain C (times)")
        axes.set_ylim(bottom=0)
        axes.set_title(title)
        axes.grid(axis="y")
        plot.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_svg(plot, path)


Results = dict[str, dict[str, dict[str, Sample]]]


def whole_iteration(results: Results, device: str, interval: int, width: int | None) -> float:
    """Seconds of an iteration with its share of the evaluations; ``width`` None is the baseline."""
    total = 0.0
    for stage in STAGES:
        times = results[stage.kernel][device]
        seconds = times["baseline"].median if width is None else seconds_of(times, width)
        total += seconds * per_thousand(stage, interval) / 1000
    return total


def widths(report: Report, results: Results, interval: int, name: str, folder: Path) -> None:
    """Figure 2: the table and the picture."""
    report.text("## Speed-up over the C baseline by vector width (the paper's figure 2)")
    speedups: dict[str, dict[str, list[float]]] = {}
    rows = []
    for info in report.devices:
        phi = results["update_phi"][info.spec]
        base = whole_iteration(results, info.spec, interval, None)
        lines = {
            "update_phi": [phi["baseline"].median / seconds_of(phi, width) for width in WIDTHS],
            "whole iteration": [base / whole_iteration(results, info.spec, interval, width) for width in WIDTHS],
        }
        speedups[info.platform] = lines
        rows += [[f"{info.platform}: {what}", *(f"{v:.2f}" for v in values)] for what, values in lines.items()]
    report.table(["", *(f"width {width}" for width in WIDTHS)], rows)
    report.text(
        "The paper reports 9.8 without vectors and 20.9 at width 8, on two 8-core processors. In its figure 2, width "
        "16 is a little slower than width 8."
    )
    figure(folder / f"{name}.svg", speedups, f"{report.devices[0].compute_units} cores")
    report.text(f"![Speed-up over the C baseline by vector width]({name}.svg)")
    report.data["speedups"] = speedups


def kernels(report: Report, results: Results, interval: int, rounds: int) -> None:
    """Table 2: time by kernel, without vectors and with the best width."""
    for info in report.devices:
        rows: list[list[object]] = []
        totals = [0.0, 0.0, 0.0]
        for stage in STAGES:
            times = results[stage.kernel][info.spec]
            calls = per_thousand(stage, interval)
            best = min(seconds_of(times, width) for width in WIDTHS)
            spent = [times["baseline"].median * calls, seconds_of(times, 1) * calls, best * calls]
            totals = [total + part for total, part in zip(totals, spent, strict=True)]
            rows.append(
                [
                    f"{stage.kernel} ({stage.paper})",
                    *(f"{s:.4g}" for s in spent),
                    f"{spent[0] / spent[2]:.2f}",
                    stage.paper_s,
                ]
            )
        rows.append(["total", *(f"{s:.4g}" for s in totals), f"{totals[0] / totals[2]:.2f}", 38.5858])
        report.text(f"## Time by kernel (the paper's table 2): {info.platform}")
        report.table(
            ["kernel", "C baseline, s", "width 1, s", "best width, s", "baseline / best", "the paper's width 1, s"],
            rows,
        )
    report.text(
        f"Seconds are for 1000 iterations with an evaluation every {interval}: the median of {rounds} calls times the "
        "number of calls. They do not include the choice of the mini-batch. The baseline adds up pairs in one group, "
        "so its theta_end has only one to add. The paper's column is from two 8-core processors. Its THETA SUM (0.048 "
        "s) is a part of theta_end here. Its total has more parts than the rows."
    )


def baseline(report: Report, results: Results, dtype: str) -> None:
    """What the compiler's options would add to the baseline."""
    first = report.devices[0].spec
    phi = results["update_phi"][first]
    report.text("## The baseline")
    report.text(
        f"{Baseline(dtype).command}; one thread, strict arithmetic, the platform's basic instruction set. "  # type: ignore[arg-type]
        "Speed-ups refer to these times. The other columns are for comparison only."
    )
    rows = [
        ["update_phi, ms", phi["baseline"].text(), phi["faster"].text(), phi["fused"].text()],
        [
            "theta_partial, ms",
            results["theta_partial"][first]["baseline"].text(),
            results["theta_partial"][first]["faster"].text(),
            "-",
        ],
    ]
    report.table(["", "-O3", " ".join(FASTER_ARITHMETIC), "-O3, update_phi in the kernels' form"], rows)
