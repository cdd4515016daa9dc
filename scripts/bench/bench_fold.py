#!/usr/bin/env python
"""Algorithms in rounds one after another, and folded into one pass over the same vertices and arcs, in turns.

    scripts/bench/bench_fold.py --device cuda:0 --graph com-dblp.txt.gz --graph rmat:20 --words 2

Each of ``--words`` algorithms finds which of 64 sources reach each vertex, by their bits.  Sources are drawn from all
vertices.  Times go from the first launch to the end of the last, with graph and state on the device.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np
from _bench_graphs import graph_of

from mmsbgen.backends import Device, open_device
from mmsbgen.families.graph import GRAPH, declared_kernel, inputs
from mmsbgen.families.graph.declare import Rounds, fold
from mmsbgen.families.graph.generated import features
from mmsbgen.graph import Arcs
from mmsbgen.kernels.build import BoundKernel, build, traits_of
from mmsbgen.kernels.family import Argument

STAMP = Argument("stamp", "u32", "inout", "[n] the last round that vertex was put into the frontier for")


def reach(name: str) -> Rounds:
    """Which sources reach a vertex: one algorithm."""
    state = (Argument(name, "u64", "inout", "[n] a bit for each source"), STAMP)
    return Rounds(state, name, f"{name}[v]", "sent", "or", "stamp[v] == step")


def bound(device: Device, a: Rounds, arcs: Arcs) -> BoundKernel:
    """Its kernel in the default configuration."""
    spec, problem = declared_kernel(a), GRAPH.problem(**features(arcs))
    return build(device, spec, problem, spec.default(problem, traits_of(device.info)))


def measure(device: Device, arcs: Arcs, words: int, repeat: int) -> None:
    """Print both times; results must be equal."""
    n, rng = arcs.n_vertices, np.random.default_rng(0)
    names = [f"reached_{word}" for word in range(words)]
    starts = rng.integers(0, n, (words, 64))
    state: dict[str, Any] = {name: np.zeros(n, np.uint64) for name in names} | {"stamp": np.zeros(n, np.uint32)}
    for name, those in zip(names, starts, strict=True):
        np.bitwise_or.at(state[name], those, np.uint64(1) << np.arange(64, dtype=np.uint64))
    ways = {"one by one": [reach(name) for name in names], "folded": [fold(*(reach(name) for name in names))]}
    kernels = {way: [bound(device, a, arcs) for a in those] for way, those in ways.items()}
    fixed = {"offsets": arcs.offsets, "targets": arcs.targets, "next": np.zeros(n, np.uint32)}
    placed = {name: device.upload(array) for name, array in (fixed | state).items()}
    placed |= {"queue": device.zeros(n, np.uint32), "counts": device.zeros(inputs.COUNTS, np.uint32)}
    times: dict[str, list[float]] = {way: [] for way in ways}
    results = {}
    for _ in range(repeat + 1):
        for way, those in kernels.items():
            for name in names:
                device.write(placed[name], state[name])
            spent = 0.0
            for part, kernel in zip([starts] if way == "folded" else starts[:, None], those, strict=True):
                lists = inputs.lists_of(arcs, np.unique(part))
                for name in ("queue", "counts"):
                    device.write(placed[name], lists[name])
                device.write(placed["stamp"], state["stamp"])
                device.synchronize()
                begin = time.perf_counter()
                kernel.launch(n, placed)
                device.synchronize()
                spent += time.perf_counter() - begin
            times[way].append(spent)
            results[way] = [device.download(placed[name]) for name in names]
    assert all(np.array_equal(*pair) for pair in zip(*results.values(), strict=True)), "results differ"
    alone, folded = (statistics.median(of[1:]) * 1e3 for of in times.values())
    print(f"  {words} times 64 sources: one by one {alone:.3f} ms, folded {folded:.3f} ms, {alone / folded:.2f} times")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--graph", action="append", required=True, help="a file, rmat:SCALE, grid:SIDE or path:N")
    parser.add_argument("--words", action="append", type=int, help="2 and 4 by default")
    parser.add_argument("--repeat", type=int, default=7)
    options = parser.parse_args()
    with open_device(options.device) as device:
        print(f"{device.info.name}, {device.info.driver}")
        for text in options.graph:
            arcs = graph_of(text)
            print(f"{text}: {arcs.n_vertices:,} vertices, {arcs.n_arcs:,} arcs", flush=True)
            for words in options.words or (2, 4):
                measure(device, arcs, words, options.repeat)


if __name__ == "__main__":
    main()
