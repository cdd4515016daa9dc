#!/usr/bin/env python
"""Schedules of matrix factorisation on ratings of unlike shape: which is fastest, and which one ``auto`` takes.

The sets are generated, with the numbers of users, items and ratings and about the skew of MovieLens and of the inputs
of two papers on schedules, some of them in part; and of a grid of roads, jokes that nearly all have rated, and few
items.  Told are the seconds of a sweep and of placing, and for K = 32 the error on held-out ratings after 20 sweeps.

Schedules that lose changes are left out, and those whose ratings are coloured one by one on the host, which takes
longer than a fit by others.  Sets are placed side by side, and sweeps timed one at a time.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from typing import Any

import numpy as np
from _harness import chosen_devices, parser, progress
from _report import Report, markdown_table

from mmsbgen.backends import open_device
from mmsbgen.backends.device_lock import device_lock
from mmsbgen.factorisation import MatrixFactorization
from mmsbgen.factorisation.device_sweeps import StochasticSweeps
from mmsbgen.factorisation.fit_loop import Scaled
from mmsbgen.families.mf.generated import generated_ratings, order_of, start_factors
from mmsbgen.families.mf.layout import Cells
from mmsbgen.families.mf.reference import Factors
from mmsbgen.families.mf.schedules import REPEATING, SCHEDULES
from mmsbgen.families.mf.workloads import features
from mmsbgen.ratings import Ratings, as_ratings

INTRO = """\
Millions of ratings a second, medians of sweeps. Sets are generated, with about the shape and skew of those that they
are named after. A loss is how much longer a sweep takes than by the fastest schedule here, or by the faster of the two
whose bits repeat, tiles and block-diagonals."""
#: Users, items, ratings and skew.
SETS = {
    "MovieLens 100K": (943, 1682, 100_000, 1.0),
    "MovieLens 1M": (6040, 3706, 1_000_209, 1.0),
    "MovieLens 10M, a quarter": (34_939, 5338, 2_500_014, 1.0),
    "Netflix, a 20th": (107_373, 3973, 4_953_605, 1.0),
    "Yahoo, a 100th": (100_099, 62_496, 2_528_002, 1.0),
    "games, a quarter": (60_000, 18_000, 1_504_335, 1.1),
    "IMDB, a half": (448_000, 214_000, 1_891_231, 0.5),
    "STACK": (545_000, 97_000, 1_302_439, 0.8),
    "POKEC, an 8th": (204_000, 204_000, 2_787_745, 0.6),
    "jokes": (5000, 100, 330_000, 0.3),
    "few items": (200_000, 20, 1_000_000, 0.5),
}
#: Sets by the shapes that the papers tell apart.
SHAPES = {
    "ratings": ("MovieLens 10M, a quarter", "Netflix, a 20th", "Yahoo, a 100th", "games, a quarter"),
    "scale-free": ("IMDB, a half", "STACK", "POKEC, an 8th"),
    "roads": ("roads", "more roads"),
}
#: What the papers found: hybrid and nodes against locks, and the best locking schedule against the best without locks.
THEIRS = {"ratings": (">1", "<1", "1.3"), "scale-free": (">1", "<1", "1.3"), "roads": (">1", ">1", "2")}
PAPERS = """\
Ratios of rates at K = 32, geometric means; in brackets those of the papers on a K40 at K = 16. *Locking* is the best of
locks, nodes and hybrid, and *others* the best of tiles and block-diagonals; theirs were matchings and diagonals. On
ratings the order differs: their kernels moved 3 to 6 % of what memory could, so that locks cost them little, and they
had no tiles. Matchings are left out here, since they take longer to place than a fit. On roads nearly all ratings are
done in one pass, so that hybrid only adds another."""
PREPARED = """\
The host shuffles for all schedules, and sorts for most. Matchings, which it colours rating by rating, take 2.1 s of a
core a million, where tiles take 0.09."""
#: Sides of square grids, whose links to the right and down are ratings.
ROADS = {"roads": 512, "more roads": 1024}
KINDS = ((32, "float32"), (128, "bfloat16"))
LOCKING = ("locks", "nodes", "hybrid")
TRIED = ("adds", *REPEATING, *LOCKING)
FITTED = ("adds", "tiles")
_SWEEPS, _SECONDS, _EPOCHS = 9, 0.3, 20


def ratings_of(name: str) -> Ratings:
    """The ratings of a set."""
    if name not in ROADS:
        m, n, count, skew = SETS[name]
        return as_ratings(generated_ratings(m, n, count, 0, skew=skew))
    side = ROADS[name]
    at = np.arange(side * side).reshape(side, side)
    users = np.concatenate([at[:, :-1].ravel(), at[:-1].ravel()])
    items = np.concatenate([at[:, 1:].ravel(), at[1:].ravel()])
    return as_ratings((users, items, 1.0 + (7 * users + 3 * items) % 5))


def waits(cells: Cells, tiles: int) -> dict[str, int]:
    """What a sweep waits by the schedules that repeat."""
    shuffled = cells.at(order_of(0, cells.users.size))
    return {name: sum(part.waits for part in SCHEDULES[name].placed(shuffled, tiles)) for name in REPEATING}


def timed(cells: Cells, start: Factors, storage: str, schedule: str, device: str) -> dict[str, Any]:
    """Seconds of placing and of a sweep, the median, and the steps of a sweep."""
    how: dict[str, Any] = {"schedule": schedule, "bias": True, "seed": 0, "storage": storage}
    with StochasticSweeps(cells, start, device, None, **how) as on, device_lock(on.device.hardware):
        on.sweep(0.0, 0.0)
        taken: list[float] = []
        while len(taken) < 3 or (len(taken) < _SWEEPS and sum(taken) < _SECONDS):
            begin = time.perf_counter()
            on.sweep(0.0, 0.0)
            taken.append(time.perf_counter() - begin)
        return {"placing": on.placing_s, "sweep": float(np.median(taken)), "steps": on.steps}


def studied(job: tuple[str, str]) -> list[dict[str, Any]]:
    """All that is told of a set."""
    name, device = job
    ratings = ratings_of(name)
    cells = Scaled.of(ratings.values).cells(ratings)
    found = []
    for k, storage in KINDS:
        p, q = start_factors(0, cells.n_users, cells.n_items, k, bias=True)
        start = Factors(p, q, np.zeros(cells.n_users), np.zeros(cells.n_items))
        by = {schedule: timed(cells, start, storage, schedule, device) for schedule in TRIED}
        row: dict[str, Any] = {"set": name, "K": k, "storage": storage, **features(cells)}
        row |= {what: {schedule: each[what] for schedule, each in by.items()} for what in ("placing", "sweep")}
        row["tiles"] = by["tiles"]["steps"]
        row["waits"] = waits(cells, row["tiles"])
        if k == KINDS[0][0]:
            row["rmse"] = {schedule: error(ratings, k, schedule, device) for schedule in FITTED}
        found.append(row)
    return found


def error(ratings: Ratings, k: int, schedule: str, device: str) -> float:
    """The error on a 20th of the ratings, held out, after the last sweep."""
    fit = MatrixFactorization(
        k, n_epochs=_EPOCHS, schedule=schedule, holdout=0.05, patience=_EPOCHS, device=device, random_state=0
    )
    with open_device(device) as opened, device_lock(opened.hardware):  # others are timed
        return float(fit.fit(ratings).history_[-1]["rmse"])


def loss(row: dict[str, Any], schedule: str, among: tuple[str, ...]) -> float:
    """How much longer a sweep by a schedule takes than by the fastest, as a part."""
    return float(row["sweep"][schedule] / min(row["sweep"][each] for each in among) - 1)


def left_out(rows: list[dict[str, Any]], name: str) -> str:
    """The schedule with the least mean logarithm of seconds over all sets but one."""
    others = [row for row in rows if row["set"] != name]
    return min(TRIED, key=lambda schedule: float(np.mean([np.log(row["sweep"][schedule]) for row in others])))


def main() -> None:
    """Time all schedules on all sets and write the report."""
    options = parser(__doc__, repetitions=1, database=False)
    options.add_argument("--sets", nargs="*", choices=[*SETS, *ROADS], default=[*SETS, *ROADS])
    options.add_argument("--jobs", type=int, default=1, help="sets that are placed side by side")
    given = options.parse_args()
    report = Report("Schedules by shape of the ratings", INTRO, "")
    for device in chosen_devices(given.device):
        report.devices.append(device)
        rows: list[dict[str, Any]] = []
        with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
            for found in pool.imap_unordered(studied, [(name, device.spec) for name in given.sets]):
                rows += found
                progress(f"{device.spec}: {found[0]['set']}")
        rows.sort(key=lambda row: (row["K"], given.sets.index(row["set"])))
        report.data[device.platform] = rows
        for line in page_of(rows, device.platform):
            report.lines.append(line)
    report.write("mf-schedules", given.output)


def losses(own: list[dict[str, Any]]) -> str:
    """What is lost by the choices of schedules for the rows of one K."""
    by_others = {row["set"]: left_out(own, row["set"]) for row in own}
    repeats = {row["set"]: min(REPEATING, key=lambda schedule: row["waits"][schedule]) for row in own}
    lost = max(loss(row, by_others[row["set"]], TRIED) for row in own)
    lost_too = max(loss(row, repeats[row["set"]], REPEATING) for row in own)
    names = ", ".join(sorted(set(by_others.values())))
    told = ", ".join(f"{count} times {name}" for name, count in Counter(repeats.values()).items())
    return (
        f"The schedule that is fastest over all other sets ({names}) loses {lost:.0%} at most; what `auto` takes where "
        f"bits have to repeat ({told}) {lost_too:.0%}."
    )


def page_of(rows: list[dict[str, Any]], platform: str) -> list[str]:
    """The lines of the report that follow from a platform's record."""
    kinds = [f"K = {k}, {storage}" for k, storage in KINDS]
    lines = [f"## {platform}, {' / '.join(kinds)}", ""]
    for (k, _), kind in zip(KINDS, kinds, strict=True):
        lines += [f"{kind}. {losses([row for row in rows if row['K'] == k])}", ""]
    names = list(dict.fromkeys(row["set"] for row in rows))
    sets = [told([row for row in rows if row["set"] == name]) for name in names]
    lines += [*markdown_table(["set", "ratings", *TRIED], sets), "", f"## The papers, {platform}", "", PAPERS, ""]
    head = ["shape", "hybrid/locks", "nodes/locks", "locking/others"]
    return [*lines, *markdown_table(head, beside_papers(rows)), "", "## Preparation", "", PREPARED, prepared(rows), ""]


def prepared(rows: list[dict[str, Any]]) -> str:
    """Seconds of placing and of as many sweeps as a fit has, for the largest set at K = 32."""
    row = max((row for row in rows if row["K"] == KINDS[0][0]), key=lambda row: row["ratings"])
    fit = MatrixFactorization().n_epochs
    placing, sweeps = (
        ", ".join(f"{name} {times * row[what][name]:.2g}" for name in TRIED)
        for what, times in (("placing", 1), ("sweep", fit))
    )
    return f"Seconds of it for {row['set']}: {placing}. Those of {fit} sweeps: {sweeps}."


def told(own: list[dict[str, Any]]) -> list[str]:
    """A row of the report: a set, and the rates of its kinds."""
    rates = [
        "/".join(f"{row['ratings'] / row['sweep'][schedule] / 1e6:.4g}" for row in own) for schedule in TRIED
    ]  # fmt: skip
    return [own[0]["set"], str(own[0]["ratings"]), *rates]


def beside_papers(rows: list[dict[str, Any]]) -> list[list[str]]:
    """For each shape of ratings what its record has at K = 32, beside :data:`THEIRS`."""
    found = []
    for shape, sets in SHAPES.items():
        sweeps = [row["sweep"] for row in rows if row["K"] == KINDS[0][0] and row["set"] in sets]
        if not sweeps:
            continue
        ratios = [
            [each["locks"] / each["hybrid"] for each in sweeps],
            [each["locks"] / each["nodes"] for each in sweeps],
            [min(each[x] for x in REPEATING) / min(each[x] for x in LOCKING) for each in sweeps],
        ]
        means = [f"{np.exp(np.mean(np.log(ratio))):.2g}" for ratio in ratios]
        found.append([shape, *(f"{ours} ({theirs})" for ours, theirs in zip(means, THEIRS[shape], strict=True))])
    return found


if __name__ == "__main__":
    main()
