"""How far chains are from posteriors that are known: the prior alone, conjugate toys, mini-batches, strengths.

Every row of a table is a thousand or so chains that run side by side on a device through the kernels of a run
(tests/statistics holds those tables' first rows to 5 %).  Writes docs/reports/statistics.md and .json.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from _common import ROOT, Report, add_device_option, chosen_devices, progress
from scipy import stats

from mmsbgen.backends import Device, open_device

sys.path.insert(0, str(ROOT))
from tests.statistics.laws import Moments, exact_dirichlet, mean_largest
from tests.statistics.toys import ListedRows, Strengths

K = 10
INTRO = """What the step sizes of a run cost in accuracy, against laws that are known exactly. Chains start far from
the law, run for a time (eps / 2 times iterations) of 6, strengths of 3, and are then looked at 60 times over as much
time again. Percentages say how far the chains' mean or standard deviation is from the exact one; the largest standard
error of a table's percentages stands below it, or in a column. S is the mean sum of a row's phi, which is 1 without
data. Steps and their equations: docs/statistics.md."""


def prior(device: Device, k: int, eps: float, step: str, chains: int) -> dict[str, Any]:
    """Rows without data: mean sum and mean largest membership."""
    pi, sums = np.full((chains, k), 1 / k), np.full(chains, 2.0)
    with ListedRows(device, pi, sums, eps, step=step, seed=51) as rows:
        found = look(rows.advance, lambda: summary(rows), Moments([1.0, 0.6]), eps)
    return {"K": k, "eps": eps, "step": step, "mean": found.mean.tolist(), "error": found.mean_error.tolist()}


def summary(rows: ListedRows) -> Any:
    pi, sums = rows.rows()
    return np.stack([sums, pi.max(axis=1)], axis=1)


def look(
    advance: Callable[[int], None], at: Callable[[], Any], found: Moments, eps: float, span: float = 6.0
) -> Moments:
    """Let a time of ``span`` pass, and then look at the chains 60 times over as much time again."""
    steps = max(60, round(span / (eps / 2)))
    advance(steps)
    for _ in range(60):
        advance(max(1, steps // 60))
        found.add(at())
    return found


def memberships(
    device: Device, counts: tuple[int, ...], eps: float, step: str, drawn: int | None, chains: int
) -> dict[str, Any]:
    """Rows with ``counts`` links to vertices of one community each; ``drawn`` of them an iteration, or all."""
    concentrations = np.full(K, 1 / K)
    concentrations[: len(counts)] += counts
    mean, sd = exact_dirichlet(concentrations)
    total, rounds = sum(counts), 64
    rng = np.random.default_rng(52)
    owner = np.repeat(np.arange(len(counts)), counts)
    given: dict[str, Any] = {"anchors": np.eye(K), "beta": np.full(K, 0.5), "step": step, "seed": 53}
    if drawn is None:
        given |= {"partners": np.arange(len(counts)), "weights": counts}
    else:
        given |= {"partners": np.zeros((rounds, chains, drawn), int), "weights": np.full(drawn, total / drawn)}
    with ListedRows(device, np.full((chains, K), 1 / K), np.ones(chains), eps, **given) as rows:

        def advance(count: int) -> None:
            """Iterations with fresh observations each time that the lists have been gone through."""
            assert drawn is not None
            for first in range(0, count, rounds):
                rows.set_partners(owner[rng.integers(0, total, (rounds, chains, drawn))], given["weights"])
                rows.iteration += -rows.iteration % rounds
                rows.advance(min(count - first, rounds))

        found = Moments(np.append(mean, 1.0))
        look(rows.advance if drawn is None else advance, lambda: np.column_stack(rows.rows()), found, eps)
        clips = rows.clips() / (rows.m * rows.k * rows.iteration)
    linked = len(counts)
    errors = np.stack([found.mean_error[:linked] / mean[:linked], found.sd_error[:linked] / sd[:linked]])
    return {
        "counts": counts,
        "eps": eps,
        "step": step,
        "drawn": drawn,
        "mean": (found.mean[:linked] / mean[:linked]).tolist(),
        "sd": (found.sd[:linked] / sd[:linked]).tolist(),
        "rest": float(found.mean[linked:K].mean() / mean[linked]),
        "error": float(errors.max()),
        "sum": float(found.mean[K]),
        "clips": clips,
    }


def strengths(device: Device, links: int, non_links: int, eps: float) -> dict[str, Any]:
    """theta of 256 communities by the reflected step, all pairs at every iteration."""
    exact = stats.beta(1 + links, 1 + non_links)
    with Strengths(device, 256, links, non_links, eps, seed=54) as chains:
        found = look(chains.advance, lambda: chains.beta()[:, None], Moments([exact.mean()]), eps, span=3.0)
    return {
        "links": links,
        "non_links": non_links,
        "eps": eps,
        "mean": float(found.mean[0] / exact.mean()),
        "sd": float(found.sd[0] / exact.std()),
        "error": float(max(found.mean_error[0] / exact.mean(), found.sd_error[0] / exact.std())),
    }


def percent(ratio: float) -> str:
    """How far a ratio is from 1."""
    return f"{100 * (ratio - 1):+.1f} %"


def _with_errors(row: dict[str, Any]) -> list[str]:
    return [f"{x:.3f} ± {e:.3f}" for x, e in zip(row["mean"], row["error"], strict=True)]


def membership_row(row: dict[str, Any]) -> list[str]:
    counts = ", ".join(map(str, row["counts"]))
    total = sum(row["counts"])
    drawn = "all" if row["drawn"] is None else f"{row['drawn']} of {total}, weight {total / row['drawn']:g}"
    ratios = [percent(ratio) for ratio in (*row["mean"], *row["sd"], row["rest"])]
    return [f"{row['step']}: {counts}; {drawn}", f"{row['eps']:g}", *ratios, f"{row['sum']:.2f}", f"{row['clips']:.1e}"]


HEAD = [
    "step: links; drawn",
    "eps",
    "mean 1",
    "mean 2",
    "mean 3",
    "sd 1",
    "sd 2",
    "sd 3",
    "others' mean",
    "S",
    "bounded",
]


def tables(device: Device, report: Report, chains: int) -> None:
    """All measurements on one device."""
    report.text(f"## {device.info.platform}")
    report.text("### The prior alone")
    rows = []
    for k in (10, 50, 300):
        for step, eps in (("split", 0.03), ("split", 0.01), ("reflected", 0.03), ("reflected", 0.01)):
            progress(f"prior, K = {k}, {step}, eps = {eps}")
            row = prior(device, k, eps, step, chains)
            rows.append(row | {"exact": mean_largest(k, 1 / k)})
    report.table(
        ["step", "K", "eps", "mean S (exact 1)", "mean largest pi", "exact"],
        [[r["step"], r["K"], f"{r['eps']:g}", *_with_errors(r), f"{r['exact']:.3f}"] for r in rows],
    )
    report.text("Behind ± are standard errors here.")
    report.data.setdefault("prior", []).extend(rows)

    def membership_table(title: str, text: str, plan: list[tuple[tuple[int, ...], float, str, int | None]]) -> None:
        report.text(f"### {title}")
        report.text(text)
        found = []
        for counts, eps, step, drawn in plan:
            progress(f"{title}: {counts}, eps = {eps}, {step}, {drawn or 'all'}")
            found.append(memberships(device, counts, eps, step, drawn, chains))
        report.table(HEAD, [membership_row(row) for row in found])
        report.text(f"Largest standard error of a ratio: {100 * max(row['error'] for row in found):.1f} %.")
        report.data.setdefault(title, []).extend(found)

    few, many = (12, 6, 2), (120, 60, 20)
    membership_table(
        "Memberships, all data at every iteration",
        "A vertex of K = 10 with links to vertices of communities 1, 2 and 3: its posterior is Dirichlet(0.1 + links). "
        "Others' mean is that of communities without links; bounded is the share of coordinates whose flow met its "
        "bound. The bias grows with eps times the number of links; the published step has another law altogether.",
        [
            *((few, eps, "split", None) for eps in (1e-3, 3e-3, 1e-2)),
            *((few, 1e-3, step, None) for step in ("reflected", "published")),
            *((many, eps, "split", None) for eps in (3e-4, 1e-3, 3e-3)),
            *((many, 1e-3, step, None) for step in ("reflected", "published")),
            ((1200, 600, 200), 1e-3, "split", None),
        ],
    )
    membership_table(
        "Memberships, mini-batches",
        "The same with some of the links drawn at every iteration, their weight so that the gradient is right on "
        "average. What the mini-batch adds to the noise is not corrected for: the spread grows.",
        [
            *((few, 1e-3, "split", drawn) for drawn in (10, 5, 2, 1)),
            *((few, 3e-4, "split", drawn) for drawn in (5, 1)),
            *((many, 1e-3, "split", drawn) for drawn in (50, 10)),
            *((many, 3e-4, "split", drawn) for drawn in (50, 10)),
        ],
    )
    report.text("### Strengths")
    report.text(
        "theta by the reflected step (3.8), all pairs at every iteration: the posterior of beta is Beta(1 + links, "
        "1 + non-links). eps here is that of theta."
    )
    found = []
    for links, non_links, eps in (
        *((30, 70, eps) for eps in (3e-4, 1e-3, 3e-3, 1e-2)),
        (300, 700, 1e-4),
        (300, 700, 1e-3),
        (1, 9, 1e-3),
        (1, 9, 1e-2),
    ):
        progress(f"strengths, {links} links, {non_links} non-links, eps = {eps}")
        found.append(strengths(device, links, non_links, eps))
    report.table(
        ["links, non-links", "eps", "eps times pairs", "mean", "sd", "standard error"],
        [
            [
                f"{r['links']}, {r['non_links']}",
                f"{r['eps']:g}",
                f"{r['eps'] * (r['links'] + r['non_links']):g}",
                percent(r["mean"]),
                percent(r["sd"]),
                f"{100 * r['error']:.1f} %",
            ]
            for r in found
        ],
    )
    report.data.setdefault("strengths", []).extend(found)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_device_option(parser)
    parser.add_argument("--chains", type=int, default=1024, help="chains of a row of a table (default: %(default)s)")
    given = parser.parse_args()
    report = Report("Accuracy of the chains' laws", INTRO)
    for info in chosen_devices(given.device)[: None if given.device else 1]:
        report.devices.append(info)
        with open_device(info.spec) as device:
            tables(device, report, given.chains)
    report.write("statistics")


if __name__ == "__main__":
    main()
