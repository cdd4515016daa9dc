#!/usr/bin/env python
"""Seconds of a sweep over sparse rows on N devices: a model, checked against measured runs, and what it predicts.

    python scripts/bench/scale_model.py one.json two.json four.json ...

The files are of bench_ranks.py.  A sweep takes the kernel's seconds on one device, divided among the ranks, and what
the exchange of rows adds.  Each rank gets the rows of all others, in pieces, while it sweeps the next piece:

    t(P) = c / q + (q - 1) max(c / q, x / q) + x / q + h,    c = c_1 / P,    x = (P - 1) / P N (8 R + 4) / B

with q pieces, N vertices, R entries a row, the link's rate B a device and direction, and a constant h for messages,
the sums and theta.  c_1 is that of the run on one rank and h that of two ranks; the other runs are checks.
Where rows go between hosts, B is the rate of a host's network over its devices.

Writes docs/reports/scaling.json and prints tables.  Without files it reads the runs of that record again.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _report import REPORTS, markdown_table

from mmsbgen.backends.ranks.nccl_exchange import NcclExchange

#: Assumed rates in bytes a second: NVLink of an H100 at two thirds of its 450 GB/s, and networks at four fifths.
NVLINK, IB_400, ETHERNET_100 = 300e9, 40e9, 10e9
PIECES = NcclExchange.pieces


@dataclass(frozen=True)
class Model:
    """A chain: seconds of its kernel on one device, its rows, and the constant part of a sweep of several ranks."""

    kernel_s: float
    vertices: int
    entries: int
    constant_s: float = 0.0

    def sweep(self, ranks: int, rate: float) -> float:
        """Seconds of a sweep of ``ranks`` devices, each of which gets rows at ``rate`` bytes a second."""
        if ranks == 1:
            return self.kernel_s
        compute = self.kernel_s / ranks / PIECES
        rows = (ranks - 1) / ranks * self.vertices * (8 * self.entries + 4)
        exchange = rows / rate / PIECES
        return compute + (PIECES - 1) * max(compute, exchange) + exchange + self.constant_s


def fitted(runs: dict[int, dict[str, Any]]) -> Model:
    """The model of the runs on one and two ranks."""
    one, two = runs[1], runs[2]
    plain = Model(one["sweep_s"], one["vertices"], one["entries"])
    return Model(one["sweep_s"], one["vertices"], one["entries"], max(0.0, two["sweep_s"] - plain.sweep(2, NVLINK)))


def row(name: str, model: Model, ranks: int, rate: float) -> list[str]:
    seconds = model.sweep(ranks, rate)
    return [name, str(ranks), f"{rate / 1e9:g}", f"{seconds * 1e3:.1f}", f"{model.kernel_s / seconds:.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="*")
    record = REPORTS / "scaling.json"
    files = parser.parse_args().runs
    runs = [json.loads(path.read_text()) for path in files] if files else json.loads(record.read_text())["runs"]
    measured, predicted = [], []
    groups: dict[tuple[int, int], dict[int, dict[str, Any]]] = defaultdict(dict)
    for run in runs:
        groups[run["vertices"], run["config"]["slots"]][run["ranks"]] = run
    for (vertices, slots), of in sorted(groups.items()):
        assert len({run["digest"] for run in of.values()}) == 1, "the same chain on every number of ranks"
        model = fitted(of)
        name = f"{vertices / 1e6:.0f} M vertices, {slots} slots"
        for ranks, run in sorted(of.items()):
            low, high = (1e3 * value for value in run["quartiles_s"])
            time = f"{1e3 * run['sweep_s']:.1f} ({low:.1f} to {high:.1f})"
            told = "fitted" if ranks < 4 else f"{1e3 * model.sweep(ranks, NVLINK):.1f}"
            measured.append([name, str(ranks), time, f"{of[1]['sweep_s'] / run['sweep_s']:.2f}", told])
        predicted.append(row(f"{name}: 8 GPUs of a host", model, 8, NVLINK))
        predicted.append(row(f"{name}: 16 hosts, 400 Gb/s", model, 16, IB_400))
        predicted.append(row(f"{name}: 16 hosts, 100 Gb/s", model, 16, ETHERNET_100))
    heads = (
        ["graph and hash table", "GPUs", "ms a sweep", "times one GPU", "model, ms"],
        ["run", "devices", "GB/s a device", "ms a sweep", "times one GPU"],
    )
    print("\n".join([*markdown_table(heads[0], measured), "", *markdown_table(heads[1], predicted)]))
    print("\nThe model is fitted to one and two GPUs, so only four check it. Nothing of the second table is measured.")
    pairs = zip(heads, (measured, predicted), strict=True)
    tables = [[dict(zip(head, cells, strict=True)) for cells in rows] for head, rows in pairs]
    command = "mpirun -n RANKS python scripts/bench/bench_ranks.py --json FILE --configs CONFIGS"
    found = {"command": command, "runs": runs, "measured": tables[0], "predicted": tables[1]}
    record.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
