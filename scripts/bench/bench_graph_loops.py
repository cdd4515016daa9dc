#!/usr/bin/env python
"""Graph programs by launches and by fused loops, in turns on one device, with equal results.

    scripts/bench/bench_graph_loops.py --device cuda:0 --graph com-dblp.txt.gz --graph rmat:22 --graph grid:968

Graphs are files, ``rmat:SCALE`` (16 links a vertex), ``grid:SIDE``, ``path:N``, or .npz with offsets and targets.
A time goes from the first launch to the end of the last, on the host's clock, with graph and state on the device.
Weights are 1 to 255.  PageRank takes 20 rounds, of arcs that are sorted before.  ``--vary`` adds neighbours of the
default: each axis's other values.  ``--fold WORDS`` times so many searches from 64 sources each instead, one after
another and folded into one pass over the same vertices and arcs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any

import numpy as np
from _bench_graphs import graph_of

from mmsbgen.backends import Device, open_device
from mmsbgen.base.errors import MmsbgenError
from mmsbgen.families.graph import GRAPH, declared_kernel, inputs
from mmsbgen.families.graph.declare import Rounds, fold
from mmsbgen.families.graph.generated import features
from mmsbgen.families.graph.ranks.tiles import arranged
from mmsbgen.graph import Arcs
from mmsbgen.kernels.build import BoundKernel, build, compile_side_by_side, traits_of
from mmsbgen.kernels.family import Argument
from mmsbgen.kernels.space import Config, describe

RESULTS = {"bfs": "level", "sssp": "dist", "cores": "core", "pagerank": "rank", "components": "label"}
RANK_ROUNDS = 20


def weights_of(arcs: Arcs, real: Any) -> Any:
    """The same weight for both directions of a link."""
    low, high = np.minimum(arcs.sources, arcs.targets), np.maximum(arcs.sources, arcs.targets)
    mixed = low * np.uint32(2654435761) + high * np.uint32(40503)
    return ((mixed >> np.uint32(7)) % np.uint32(255) + np.uint32(1)).astype(real)


def state_of(name: str, arcs: Arcs, source: int, real: Any) -> dict[str, Any]:
    if name == "bfs":
        return inputs.state_of_bfs(arcs, source)
    if name == "sssp":
        state = inputs.state_of_sssp(arcs, source, real)
        return {**state, "mean_weight": np.full(1, 128, real)}
    if name == "cores":
        return inputs.state_of_cores(arcs)
    if name == "components":
        return inputs.state_of_components(arcs)
    return inputs.state_of_pagerank(arcs, real, 0.85, 0.0, RANK_ROUNDS)


def changed(default: Config, text: str) -> dict[str, Any]:
    """The default with values of axes as ``--with`` names them, of which kernels take those that they have."""
    given = dict(each.split("=") for each in text.split(","))
    found = {name: int(value) if value.isdigit() else value for name, value in given.items()}
    return dict(default) | {name: value for name, value in found.items() if name in default}


def variants(name: str, problem: Any, traits: Any, vary: bool, those: list[str]) -> list[Config]:
    """By launches, the default, and the default with changes, or with each other value of an axis if asked for."""
    spec = GRAPH.kernel(name)
    default = dict(spec.default(problem, traits))
    found = [default, *(changed(default, text) for text in those)]
    if "loop" in default:
        unfused = {"loop": "launches", "team": "item", "blocks_per_unit": 1, "lanes": 1, "block_size": 64, "sums": 1}
        unfused |= {"visited": "state", "order": "given", "caching": "all", "balance": "rows", "held": 0}
        found.insert(0, {axis: unfused.get(axis, value) for axis, value in default.items()})
        group = {"loop": "whole", "block_size": 64, "per_item": 1, "walk": 0}
        found += [{axis: group.get(axis, value) for axis, value in default.items()}] if traits.kind == "cpu" else []
    if vary:
        found += [default | {axis.name: value} for axis in spec.space.axes for value in axis.values]
    valid = [one for one in found if spec.space.refusal(one, problem, traits) is None]
    return list({describe(one): one for one in valid}.values())


class Case:
    """One kernel in one configuration, on the graph's buffers."""

    def __init__(self, device: Device, bound: BoundKernel, n: int) -> None:
        self.device, self.bound, self.n = device, bound, n
        self.once = 0.0
        self.times: list[float] = []

    def run(self, placed: dict[str, Any], state: dict[str, Any]) -> None:
        # Arcs are sorted once a graph, but anew where the case before had another order.
        for _ in range(2 if self.bound.config.get("balance", "rows") != "rows" else 1):
            for key, value in state.items():
                self.device.write(placed[key], value)
            self.device.synchronize()
            begin = time.perf_counter()
            self.bound.launch(self.n, placed)
            self.device.synchronize()
        self.times.append(time.perf_counter() - begin)


def measure(device: Device, name: str, arcs: Arcs, shared: dict[str, Any], options: Any) -> bool:
    """Print the times of a kernel's variants; whether their results agree."""
    real = np.dtype(options.dtype).type
    problem = GRAPH.problem(**features(arcs), dtype=options.dtype)
    spec, traits = GRAPH.kernel(name), traits_of(device.info)
    configs = variants(name, problem, traits, options.vary, options.changes)
    compile_side_by_side(device, [(spec, problem, one) for one in configs])
    device.profiling = False
    source = int(np.argmax(arcs.degrees)) if options.source is None else options.source
    state, good = state_of(name, arcs, source, real), True
    placed = dict(shared) | {key: device.upload(value) for key, value in state.items()}
    if name == "pagerank":
        placed["in_weights"] = device.upload(np.zeros(1, real))
        placed |= {key: device.upload(value) for key, value in arranged(arcs, real).items()}
    cases, first = [], None
    for config in configs:
        case = Case(device, build(device, spec, problem, config), arcs.n_vertices)
        try:
            case.run(placed, state)
        except MmsbgenError as error:
            print(f"  {name} {describe(config)}: {error}", flush=True)
            continue
        got = device.download(placed[RESULTS[name]])
        first = got if first is None else first
        equal = np.allclose(got, first, rtol=1e-4, atol=0) if name == "pagerank" else np.array_equal(got, first)
        if not equal:
            good = False
            print(f"  {name} {describe(config)}: WRONG at {int(np.sum(got != first))} vertices", flush=True)
        case.once = case.times.pop()
        if cases and case.once > options.give_up * min(each.once for each in cases):
            print(f"  {name} {describe(config)}: {case.once * 1e3:.3f} ms once", flush=True)
            continue
        cases.append(case)
    for _ in range(options.repeat):
        for case in cases:
            case.run(placed, state)
    for case in sorted(cases, key=lambda each: statistics.median(each.times)):
        middle = statistics.median(case.times) * 1e3
        print(
            f"  {name} {middle:9.3f} ms (least {min(case.times) * 1e3:.3f})  {describe(case.bound.config)}", flush=True
        )
    for key, value in placed.items():
        if key not in shared:
            value.release()
    return good


STAMP = Argument("stamp", "u32", "inout", "[n] the last round that vertex was put into the frontier for")


def reach(name: str) -> Rounds:
    """Which sources reach a vertex: one algorithm."""
    state = (Argument(name, "u64", "inout", "[n] a bit for each source"), STAMP)
    return Rounds(state, name, f"{name}[v]", "sent", "or", "stamp[v] == step")


def bound_of(device: Device, a: Rounds, arcs: Arcs) -> BoundKernel:
    """The kernel of an algorithm in the default configuration."""
    spec, problem = declared_kernel(a), GRAPH.problem(**features(arcs))
    return build(device, spec, problem, spec.default(problem, traits_of(device.info)))


def measure_folded(device: Device, arcs: Arcs, words: int, repeat: int) -> None:
    """Print the times of so many algorithms one by one and folded into one; results must be equal.

    Each finds which of 64 sources reach each vertex, by their bits.
    """
    n, rng = arcs.n_vertices, np.random.default_rng(0)
    names = [f"reached_{word}" for word in range(words)]
    starts = rng.integers(0, n, (words, 64))
    state: dict[str, Any] = {name: np.zeros(n, np.uint64) for name in names} | {"stamp": np.zeros(n, np.uint32)}
    for name, those in zip(names, starts, strict=True):
        np.bitwise_or.at(state[name], those, np.uint64(1) << np.arange(64, dtype=np.uint64))
    ways = {"one by one": [reach(name) for name in names], "folded": [fold(*(reach(name) for name in names))]}
    kernels = {way: [bound_of(device, a, arcs) for a in those] for way, those in ways.items()}
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


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--graph", action="append", required=True, help="a file, rmat:SCALE, grid:SIDE or path:N")
    parser.add_argument("--algorithm", action="append", choices=sorted(RESULTS), help="all by default")
    parser.add_argument("--source", type=int, help="a vertex of the largest degree by default")
    parser.add_argument("--dtype", default="float32", choices=("float32", "float64"))
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--vary", action="store_true")
    parser.add_argument("--fold", type=int, metavar="WORDS", help="compare so many searches with one of all of them")
    parser.add_argument(
        "--with",
        dest="changes",
        action="append",
        default=[],
        metavar="AXIS=VALUE,...",
        help="also the default with these values",
    )
    parser.add_argument("--give-up", type=float, default=20.0, help="leave out what is so much slower than the fastest")
    options = parser.parse_args()
    good, real = True, np.dtype(options.dtype).type
    with open_device(options.device) as device:
        print(f"{device.info.name}, {device.info.driver}, {options.dtype}")
        for text in options.graph:
            arcs = graph_of(text)
            print(f"{text}: {arcs.n_vertices:,} vertices, {arcs.n_arcs:,} arcs", flush=True)
            if options.fold:
                measure_folded(device, arcs, options.fold, options.repeat)
                continue
            shared = {"offsets": device.upload(arcs.offsets), "targets": device.upload(arcs.targets)}
            shared |= {"in_offsets": shared["offsets"], "sources": shared["targets"]}
            names = options.algorithm or sorted(RESULTS)
            if "sssp" in names:
                shared["weights"] = device.upload(weights_of(arcs, real))
            for name in names:
                good = measure(device, name, arcs, shared, options) and good
            for key in ("offsets", "targets", "weights"):
                if key in shared:
                    shared[key].release()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
