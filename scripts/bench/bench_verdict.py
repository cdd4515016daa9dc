#!/usr/bin/env python
"""How often the verdict says that communities were found: on random graphs, and on graphs with planted communities.

Random graphs have no communities: pairs linked with one probability, stubs of power-law degrees matched at random, and
random bipartite graphs.  Planted graphs have equal communities; their signal is (c_in - c_out)^2 / (K^2 c) for a mean
degree c, below 1 of which no method can find them (Decelle, Krzakala, Moore and Zdeborova 2011).

Runs take the defaults of `mmsbgen detect`.  Writes docs/reports/verdict.md and .json.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from _harness import chosen_devices, in_processes, parser, progress
from _report import Report

from mmsbgen.detection.detect import detect

Links = npt.NDArray[np.int64]

#: Vertices of the random graphs and how many of a hundred have so many.
SIZES = {100: 36, 300: 28, 1000: 24, 3000: 8, 10_000: 3, 20_000: 1}
KINDS = ("G(n, p)", "power-law degrees", "bipartite")
#: Vertices, K and mean degree of the planted graphs, and their signals.
PLANTED = ((100, 2, 10.0), (300, 3, 10.0), (1000, 4, 10.0), (1000, 4, 20.0))
SIGNALS = (1.5, 2.0, 3.0)
VERDICTS = ("found", "weak", "degrees", "none")


@dataclass(frozen=True)
class Case:
    """A graph: its ``kind``, ``n`` vertices of mean degree ``degree``, and for planted ones ``k`` and ``signal``."""

    kind: str
    n: int
    k: int
    degree: float
    number: int
    signal: float | None = None

    def links(self) -> Links:
        """The links ``[E, 2]``; the same for the same case."""
        rng = np.random.default_rng([self.number, self.n, self.k, round(1000 * (self.signal or 0))])
        if self.signal is not None:
            return planted(self.n, self.k, self.degree, self.signal, rng)
        if self.kind == "power-law degrees":
            return of_degrees(power_law(self.n, self.degree, rng), rng)
        split = self.n // 2 if self.kind == "bipartite" else None
        return uniform(self.n, round(self.n * self.degree / 2), rng, split)


def simple(pairs: Links) -> Links:
    """The pairs without loops and repetitions."""
    pairs = np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)
    return np.unique(pairs, axis=0)


def uniform(n: int, count: int, rng: np.random.Generator, split: int | None = None) -> Links:
    """About ``count`` links between any of ``n`` vertices, or between those below and from ``split`` on."""
    if split is None:
        return simple(rng.integers(0, n, (count, 2)))
    return simple(np.stack([rng.integers(0, split, count), rng.integers(split, n, count)], axis=1))


def power_law(n: int, mean: float, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Degrees ``[n]`` whose tail has an exponent between 2.1 and 3, at most sqrt(n mean)."""
    tail = 1 + rng.pareto(rng.uniform(1.1, 2.0), n)
    return np.clip(np.rint(tail * mean / tail.mean()), 1, np.sqrt(n * mean)).astype(np.int64)


def of_degrees(degrees: npt.NDArray[np.int64], rng: np.random.Generator) -> Links:
    """Links of the configuration model: stubs matched at random."""
    stubs = rng.permutation(np.repeat(np.arange(degrees.size), degrees))
    return simple(stubs[: stubs.size // 2 * 2].reshape(-1, 2))


def planted(n: int, k: int, degree: float, signal: float, rng: np.random.Generator) -> Links:
    """Links of ``k`` equal communities, the vertices with equal remainders by ``k``."""
    strength = np.sqrt(signal / degree)
    share = (1 + (k - 1) * strength) / k
    first = rng.integers(0, n, round(n * degree / 2))
    size = n // k
    inside = rng.integers(0, size, first.size) * k + first % k
    away = (first + rng.integers(1, k, first.size)) % k
    outside = rng.integers(0, size, first.size) * k + away
    return simple(np.stack([first, np.where(rng.random(first.size) < share, inside, outside)], axis=1))


def random_cases(count: int) -> Iterator[Case]:
    """``count`` random graphs, the same for the same number."""
    rng = np.random.default_rng(0)
    for number in range(count):
        n = int(rng.choice(list(SIZES), p=np.array(list(SIZES.values())) / 100))
        yield Case(KINDS[number % 3], n, int(rng.choice([2, 5, 10, 20])), float(rng.uniform(3, 20)), number)


def planted_cases(count: int) -> Iterator[Case]:
    """``count`` planted graphs of each size and signal."""
    for number in range(count):
        for n, k, degree in PLANTED:
            for signal in SIGNALS:
                yield Case("planted", n, k, degree, number, signal)


def run(case: Case, device: str) -> dict[str, Any]:
    """The case with the verdict on it and the seconds of the run."""
    begin = time.perf_counter()
    found = detect(case.links(), case.k, random_state=case.number, device=device)
    seconds = time.perf_counter() - begin
    row = asdict(case) | {"links": found.record["graph"]["links"], "seconds": seconds}
    progress(f"{case.kind} N={case.n} K={case.k} {case.signal or ''} {found.verdict.kind} {seconds:.1f} s")
    return row | {"verdict": found.record["verdict"]}


def told(report: Report, rows: list[dict[str, Any]]) -> None:
    """Tables of the verdicts."""
    by_kind: defaultdict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        key = (row["kind"], "N up to 1000" if row["n"] <= 1000 else "N above 1000")
        if row["signal"] is not None:
            key = (f"N = {row['n']}, K = {row['k']}, mean degree {row['degree']:g}", f"{row['signal']:g}")
        by_kind[key].append(row)
    for title, signals in (("Random graphs", False), ("Planted communities", True)):
        lines = []
        for key, those in by_kind.items():
            if (those[0]["signal"] is not None) is signals:
                counts = Counter(row["verdict"]["kind"] for row in those)
                ranked = [row["verdict"]["auc"] for row in those if row["verdict"]["auc"] is not None]
                auc = f"{np.mean(ranked):.3f}" if ranked else "unknown"
                lines.append((*key, len(those), *(counts[kind] for kind in VERDICTS), auc))
        if lines:
            report.text(f"## {title}")
            head = ("graphs", "signal" if signals else "size", "number", *VERDICTS, "mean AUC")
            report.table(head, lines)


def main() -> None:
    """Run all cases and write the report."""
    options = parser(__doc__, repetitions=20, database=False)
    options.add_argument("--random", type=int, default=200, help="random graphs (%(default)s)")
    options.add_argument("--processes", type=int, default=1, help="runs at a time (%(default)s)")
    given = options.parse_args()
    device = chosen_devices(given.device)[0]
    report = Report(
        "Verdicts on random and on planted graphs",
        "How many graphs of each kind got which verdict. AUC is that of held-out links against links of graphs with "
        "the same degrees, .5 by chance. Random graphs are fitted with K of 2 to 20, planted ones with the K planted.",
        behind="",
    )
    report.devices.append(device)
    cases = (*random_cases(given.random), *planted_cases(given.repetitions))
    rows = list(in_processes(partial(run, device=device.spec), cases, given.processes))
    told(report, rows)
    report.data["runs"] = rows
    report.write("verdict", given.output)


if __name__ == "__main__":
    main()
