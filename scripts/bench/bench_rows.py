#!/usr/bin/env python
"""Rounds over rows of F numbers: against the gather roof, scalar loops, scipy.sparse, and rounds that send changes.

| against | target |
|---|---|
| bytes of gathered rows, of the gather roof for as many rows | 65 % at F = 4, 85 % from F = 32 on |
| one work-item a vertex with a scalar loop over features | 1.85 times as fast at F = 4, 7.7 at F = 128 |
| full rounds, at equal error of harmonic shares | 3 times as fast |
| scipy.sparse ``A @ X``, one thread | reported |

Each pull has the fastest of some configurations near its default, as a tune would find it, and so have scalar loops,
with several sums at a time and several rows in flight.  A round is the difference of 24 and 8 rounds, over 16 (6 and 2
on processors).  Shares are those of four labels known of a tenth of the vertices; errors are differences to conjugate
gradients on ``(D - W) x = b`` with a relative residual of 1e-10.

A share above 100 % of the roof is none: on GPUs the roof reads a row by 32 lanes or more, which does not suit rows
below 128 bytes, and links of a graph are not at random.

Writes docs/reports/rows.md and .json.
"""

from __future__ import annotations

import itertools
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from _harness import chosen_devices, parser, progress
from _report import Report
from scipy import sparse
from scipy.sparse.linalg import cg

from mmsbgen.algorithms import propagate
from mmsbgen.algorithms.label_shares import Solver
from mmsbgen.backends import Device, open_device
from mmsbgen.cli.shared.common import of_roof
from mmsbgen.families import family
from mmsbgen.families.graph.generated import features
from mmsbgen.families.graph.inputs import of_graph
from mmsbgen.families.graph.row_inputs import matrix_in, state_of_rows
from mmsbgen.families.graph.row_kernels import row_length
from mmsbgen.graph import Arcs, as_arcs
from mmsbgen.kernels.build import build, release, traits_of, upload
from mmsbgen.kernels.family import Workload
from mmsbgen.kernels.space import Config, describe
from mmsbgen.tuner.measure.roofs import measure_roofs

FEATURES = (4, 32, 128)
#: Rounds whose difference is timed, by kind of device.
ROUNDS = {"gpu": (8, 24), "cpu": (2, 6)}
GRAPH = family("graph")
SPEC = GRAPH.kernel("propagate")


def inputs(arcs: Arcs, columns: int, rounds: int) -> Workload:
    """So many full rounds of walks from as many vertices as columns."""
    n, degrees = arcs.n_vertices, arcs.degrees
    scale = np.divide(0.85, degrees, out=np.zeros(n), where=degrees > 0)
    vertices = np.random.default_rng(0).choice(n, columns, replace=False)
    given = arcs, np.float32, scale, vertices, 0.15 * np.eye(columns)
    state = state_of_rows(*given, tolerance=0.0, most_rounds=rounds, changes=0)
    for name in ("sent", "row"):
        state[name] = np.zeros((n, row_length(columns)), np.float32)
    return Workload(of_graph(arcs, np.float32) | state, n, lambda got, config: None, repeats="restored")


def round_time(device: Device, arcs: Arcs, columns: int, config: Config, repetitions: int) -> float:
    """Seconds of a full round: the median."""
    problem = GRAPH.problem(**features(arcs), features=columns, dtype="float32")
    bound = build(device, SPEC, problem, config)
    short, long = ROUNDS[device.info.kind]
    placed = {rounds: upload(device, inputs(arcs, columns, rounds)) for rounds in (short, long)}
    taken: dict[int, list[float]] = {short: [], long: []}
    for number in range(repetitions + 1):
        for rounds, values in placed.items():
            seconds = bound.launch(arcs.n_vertices, values).seconds()
            taken[rounds] += [seconds] if number else []
    for values in placed.values():
        release(values)
    return (statistics.median(taken[long]) - statistics.median(taken[short])) / (long - short)


def fastest(device: Device, arcs: Arcs, columns: int, given: list[Config], repetitions: int) -> tuple[float, Config]:
    """The least time of some configurations."""
    problem, traits = GRAPH.problem(features=columns, dtype="float32"), traits_of(device.info)
    valid = [one for one in given if SPEC.space.refusal(one, problem, traits) is None]
    quick = sorted((round_time(device, arcs, columns, one, 1), describe(one)) for one in valid)
    best = [next(one for one in valid if describe(one) == text) for _, text in quick[:2]]
    return min(((round_time(device, arcs, columns, one, repetitions), one) for one in best), key=lambda x: x[0])


def near_default(device: Device, columns: int) -> list[Config]:
    """Configurations near the default in what decides how many rows a device requests at once."""
    problem, traits = GRAPH.problem(features=columns, dtype="float32"), traits_of(device.info)
    default = dict(SPEC.default(problem, traits))
    if device.info.kind == "gpu":
        axes = {
            "block_size": (64, 256),
            "rows_in_flight": (2, 4, 8),
            "order": ("given", "degree"),
            "check_every": (16,),
        }
        more = [{"lanes": int(default["lanes"]) // 2, "chunks": 2}] if int(default["lanes"]) > 1 else []
    else:
        axes = {"rows_in_flight": (1, 2, 8), "per_team": (64, 256)}
        more = []
    names = list(axes)
    found = [default | dict(zip(names, values, strict=True)) for values in itertools.product(*axes.values())]
    return found + [one | other for one in found for other in more]


def scalar(device: Device) -> list[Config]:
    """One work-item a vertex, which goes over features one by one; with one or eight sums at a time."""
    gpu = device.info.kind == "gpu"
    default = {"lanes": 1, "vector_width": 1, "order": "given", "check_every": 16 if gpu else 1}
    shape = {"block_size": 256 if gpu else 1, "per_team": 1 if gpu else 64}
    return [default | shape | {"chunks": c, "rows_in_flight": r} for c in (1, 8) for r in (1, 4)]


def product_time(arcs: Arcs, columns: int, repetitions: int) -> float:
    """Seconds of scipy's product with a matrix ``[N, F]``: the median."""
    matrix = matrix_in(arcs).astype(np.float32)
    rows = np.random.default_rng(0).random((arcs.n_vertices, columns), dtype=np.float32)
    taken = []
    for _ in range(repetitions + 1):
        begin = time.perf_counter()
        matrix @ rows
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken[1:])


def some_labels(arcs: Arcs, columns: int) -> Any:
    rng = np.random.default_rng(1)
    labels = np.full(arcs.n_vertices, -1)
    known = rng.choice(arcs.n_vertices, arcs.n_vertices // 10, replace=False)
    labels[known] = rng.integers(0, columns, known.size)
    return labels


def solved(arcs: Arcs, labels: Any, columns: int) -> Any:
    """Harmonic shares ``[N, F]`` by conjugate gradients."""
    weights = matrix_in(arcs)
    exact = np.zeros((arcs.n_vertices, columns))
    known = labels >= 0
    exact[known, labels[known]] = 1
    inner = weights[~known]
    system = sparse.diags_array(weights.sum(axis=1)[~known]) - inner[:, ~known]
    right = inner[:, known] @ exact[known]
    scale = sparse.diags_array(1 / np.maximum(weights.sum(axis=1)[~known], 1))
    exact[~known] = np.stack([cg(system, column, rtol=1e-10, M=scale)[0] for column in right.T], axis=1)
    return exact


def changes(arcs: Arcs, device: Device, repetitions: int) -> list[list[str]]:
    """Harmonic shares of four labels by full rounds, by changes and by conjugate gradients."""
    labels, rows = some_labels(arcs, 4), []
    exact = solved(arcs, labels, 4)
    solvers: tuple[Solver, ...] = ("rounds", "changes", "gradients")
    for solver, tolerance in itertools.product(solvers, (1e-2, 1e-3, 1e-4)):
        taken = []
        for _ in range(repetitions):
            begin = time.perf_counter()
            found = propagate(
                arcs, labels, tolerance=tolerance, max_rounds=5000, solver=solver, device=device.info.spec
            )
            taken.append(time.perf_counter() - begin)
        error = np.abs(found.shares - exact)[labels < 0]
        rows.append([
            solver, f"{tolerance:g}", str(found.rounds), f"{found.passes:.3g}",
            f"{statistics.median(taken) * 1e3:.4g}", f"{error.mean():.2g}", f"{error.max():.2g}",
        ])  # fmt: skip
        progress(f"{rows[-1]}")
    return rows


def main() -> None:
    """Time all and write the report."""
    options = parser(__doc__, repetitions=5, database=False)
    options.add_argument("--graph", type=Path, required=True, help="an undirected graph, such as com-DBLP")
    given = options.parse_args()
    arcs = as_arcs(given.graph)
    intro = "Full rounds add up the rows of all neighbours. Other rounds send only changes."
    report = Report("Rounds over rows", intro, "")
    report.text(f"{arcs.name}: {arcs.n_vertices} vertices, {arcs.n_arcs // 2} links, float32.")
    products = {columns: product_time(arcs, columns, given.repetitions) for columns in FEATURES}
    for info in chosen_devices(given.device):
        report.devices.append(info)
        table, kept = [], {}
        with open_device(info.spec) as device:
            for columns in FEATURES:
                row_bytes = 4 * row_length(columns)
                roof = measure_roofs(device, row_bytes, row_bytes * arcs.n_vertices).gather
                best, config = fastest(device, arcs, columns, near_default(device, columns), given.repetitions)
                plain, _ = fastest(device, arcs, columns, scalar(device), given.repetitions)
                rate = arcs.n_arcs * row_bytes / best / 1e9
                table.append([
                    str(columns), f"{best * 1e3:.4g}", f"{rate:.4g}", f"{roof:.4g}", of_roof(rate / roof),
                    f"{plain / best:.3g}", f"{products[columns] / best:.3g}",
                ])  # fmt: skip
                kept[columns] = {"round_s": best, "scalar_s": plain, "roof_gbps": roof, "config": dict(config)}
                progress(f"{info.platform}: {table[-1]} {describe(config)}")
            report.text(f"## {info.platform}")
            report.table(["F", "ms a round", "GB/s", "gather roof", "of the roof", "scalar loops", "SciPy"], table)
            shares = changes(arcs, device, min(3, given.repetitions))
        report.table(["rounds", "tolerance", "count", "passes", "ms", "mean error", "largest error"], shares)
        report.data[info.platform] = {"rounds": kept, "changes": shares}
    report.write("rows", given.output)


if __name__ == "__main__":
    main()
