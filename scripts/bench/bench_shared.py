"""The whole phi and pi update of a star: own uniform partners against partners that its vertices share.

    scripts/bench/bench_shared.py --device cuda:0 --database h200.sqlite3

Chains of three kinds on one synthetic graph (or --graph) take turns: own partners, ``shared`` (all links of every
vertex and shared non-links) and ``shared-uniform`` (a shared draw from all vertices, as the uniform own ones).  Timed
are the launches that a run makes from the mini-batch and its partners on, which are drawn ahead, to the new rows in
their places: update_phi, or the factors, products and ends of rows, and exchange_slots where rows are in spare slots.
Launches follow each other behind others that keep the device busy while the host queues them, so that the device's
clock alone counts.  Each kernel's part is then measured with an event before and after each launch.  Rows are as sparse
as those of a chain after burn-in.  Configurations are those that a run would get.
Writes docs/reports/shared.md and .json, or shared-NAME with --name.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _common import (
    REPORTS,
    Report,
    Sample,
    add_device_option,
    add_roofs,
    chain,
    chosen_devices,
    interleave,
    progress,
    wall,
)

from mmsbgen.backends import Device, Event, open_device
from mmsbgen.families.mmsb import MMSB
from mmsbgen.families.mmsb.numbers.storage import storage_of
from mmsbgen.families.mmsb.reference.workloads import memberships
from mmsbgen.graph import Split, load_edge_list, split
from mmsbgen.graph.graph import build_graph
from mmsbgen.sampler.chain.chain_problem import products_of
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.minibatch.drawn_ahead import Ahead
from mmsbgen.sampler.options.options import Options
from mmsbgen.tuner.measure.roofs import measure_roofs

#: Links of the largest hub, and of a vertex in the mean, of the synthetic graph: those of com-DBLP.
HUB, MEAN_DEGREE = 343, 6.6
_CHUNK = 16384


@dataclass(frozen=True)
class Way:
    """One kind of partners, and its chain."""

    name: str
    sampler: Sampler

    def values(self, number: int) -> dict[str, Any]:
        """What the launches of a round take: the mini-batches drawn ahead in turns."""
        sampler, batches = self.sampler, self.sampler.batches
        assert isinstance(batches, Ahead)
        batch = batches.batch(1 + number % batches.count, sampler.launch)
        real, eps = sampler.shape.real, sampler.options.step_sizes(1.0)
        return sampler.values | {
            "iteration": np.uint32(1 + number),
            "n_vertices": np.uint32(batch.n_vertices),
            "first_vertex": np.uint32(batch.first),
            "shared_round": np.uint32(batch.first // batches.stride),
            "half_step": real.type(eps / 2),
            "decay": real.type(np.exp(-eps / 2)),
            "spread": real.type(-np.expm1(-eps / 2)),
        }

    def update(self, queue: Callable[..., None], number: int, exchange: bool) -> None:
        """Queue one update."""
        values = self.values(number)
        count = int(values["n_vertices"])
        self.sampler.partners.update(queue, count, values, False)
        if exchange and not self.sampler.partners.in_place:
            queue("update_pi", "exchange_slots", count, values)


def synthetic(n: int, seed: int) -> Split:
    """A random graph with one hub, 1 % held out."""
    rng = np.random.default_rng(seed)
    pairs = rng.integers(0, n, (int(n * MEAN_DEGREE / 2), 2))
    hub = np.stack([np.zeros(HUB, np.int64), rng.choice(np.arange(1, n), min(HUB, n - 1), replace=False)], axis=1)
    pairs = np.concatenate([pairs, hub])
    pairs = np.unique(np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1), axis=0)
    graph = build_graph(pairs[:, 0], pairs[:, 1], np.arange(n), name=f"a random graph of {n}", directed=False)
    return split(graph, validation=0.01, seed=0)


@contextmanager
def sparse(device: Device, parts: Split, options: Options, database: str | None) -> Iterator[Sampler]:
    """A chain with sparse rows."""
    with chain(device, parts, options, database) as sampler:
        rows = memberships(np.random.default_rng(1), _CHUNK, sampler.shape.k, storage_of(sampler.problem))
        for first in range(0, sampler.shape.slots, _CHUNK):
            device.write(sampler.values["pi"], rows[: sampler.shape.slots - first], first)
        yield sampler


class Busy:
    """Keeps the device at work while the host queues what is timed."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler, self.times = sampler, 1
        first, stop = sampler.state_chunks()[0]
        self._count = (stop - first) * sampler.shape.row
        self._values = sampler.values | {
            "sums": sampler.values["row_sums_out"],
            "first": np.uint32(first),
            "n_rows": np.uint32(stop - first),
        }

    def __call__(self) -> None:
        """Queue what keeps it busy."""
        for _ in range(self.times):
            self._sampler.kernels["gather_rows"].launch(self._count, self._values)


def timed(way: Way, busy: Busy, count: int, exchange: bool) -> Callable[[int], float]:
    """Seconds of one of ``count`` updates in a row on the device's clock; the host has queued all of them before."""
    device = way.sampler.device

    def queue(stage: str, kernel: str, units: int, values: dict[str, Any]) -> None:
        way.sampler.kernels[kernel].launch(units, values)

    def run(number: int) -> float:
        while True:
            device.synchronize()
            begin = time.perf_counter()
            busy()
            first = device.mark()
            for i in range(count):
                way.update(queue, number * count + i, exchange)
            last = device.mark()
            queued = time.perf_counter() - begin
            first.wait()
            waited = time.perf_counter() - begin
            last.wait()
            # On CPUs the host and the device are one.
            if device.info.kind == "cpu" or waited > 1.05 * queued or busy.times >= 1 << 12:
                return last.seconds_since(first) / count
            busy.times *= 2

    return run


def parts_of(way: Way, busy: Busy, count: int) -> dict[str, float]:
    """Median seconds of each kernel, an event before and after each launch."""
    device, events = way.sampler.device, defaultdict[str, list[Event]](list)

    def queue(stage: str, kernel: str, units: int, values: dict[str, Any]) -> None:
        events[kernel].append(way.sampler.kernels[kernel].launch(units, values))

    profiling, device.profiling = device.profiling, True
    try:
        busy()
        for i in range(count):
            way.update(queue, i, True)
        device.synchronize()
        return {name: statistics.median(event.seconds() for event in found) for name, found in events.items()}
    finally:
        device.profiling = profiling


def draws_of(way: Way) -> float:
    """Seconds of the draws of an iteration's partners, many iterations ahead in one launch."""
    sampler, taken = way.sampler, []
    batches, name = sampler.batches, sampler.partners.kernels[0]
    assert isinstance(batches, Ahead)
    places = batches.count * batches.stride
    scalars = {
        "iteration": np.uint32(1),
        "n_rounds": np.uint32(batches.count),
        "stride": np.uint32(batches.stride),
        "n_vertices": np.uint32(places),
    }

    def queue(stage: str, kernel: str, units: int, values: dict[str, Any]) -> None:
        event = sampler.kernels[kernel].launch(units, values)
        taken.append(event.seconds())

    profiling, sampler.device.profiling = sampler.device.profiling, True
    try:
        for _ in range(5):
            sampler.partners.draw(queue, batches.count, places, sampler.values | scalars)
    finally:
        sampler.device.profiling = profiling
    assert name in sampler.kernels
    return statistics.median(taken) / batches.count


def iterations(sampler: Sampler, count: int) -> None:
    """Make whole iterations by single launches, and wait for them."""
    for _ in range(count):
        sampler.step()
    sampler.device.synchronize()


def best_products(device: Device) -> str:
    """Tensor cores where a device has them: a run of stars has to ask for them."""
    return products_of(Options(n_communities=1, mini_batch="block"), device.info)


CASES = {"split": ("split", False), "split, draws": ("split", True), "reflected, draws": ("reflected", True)}


def measure(
    report: Report, device: Device, parts: Split, args: argparse.Namespace, case: str
) -> tuple[list[list[str]], list[str]]:
    """One step: a line a kind of partners, and the configurations."""
    step, noise = CASES[case]
    base = {
        "n_communities": args.k,
        "mini_batch": "random-node-non-link",
        "mini_batch_size": args.m,
        "step": step,
        "noise": noise,
        "seed": 1,
    }
    rows, told = [], []
    with ExitStack() as stack:
        ways = []
        for partners in ("uniform", *args.partners):
            n = args.own if partners == "uniform" else args.n
            products = None if partners == "uniform" else args.products or best_products(device)
            options = Options(**base, partners=partners, n_partners=n, products=products)
            ways.append(Way(partners, stack.enter_context(sparse(device, parts, options, args.database))))
        busy = Busy(ways[0].sampler)
        device.profiling = False
        runs = {way.name: timed(way, busy, args.count, True) for way in ways}
        runs |= {f"{way.name}, rows left in the spares": timed(way, busy, args.count, False) for way in ways}
        found: dict[str, Sample] = interleave(runs, args.repetitions, args.limit)
        for way in ways:
            whole, bare = found[way.name], found[f"{way.name}, rows left in the spares"]
            by_kernel, draws = parts_of(way, busy, args.count), draws_of(way)
            iteration = wall(way.sampler, iterations, 4 * args.count, min(args.repetitions, 15))
            device.profiling = False
            progress(f"{case}, {way.name}: {whole.text(1e6)} us")
            ratios = [found["uniform"].median / whole.median]
            ratios.append(found["uniform, rows left in the spares"].median / bare.median)
            split_up = ", ".join(f"{name} {seconds * 1e6:.1f}" for name, seconds in by_kernel.items())
            label = f"{way.name}, n = {way.sampler.rule.n}"
            cells = [whole.text(1e6), f"{ratios[0]:.2f}", bare.text(1e6), f"{ratios[1]:.2f}"]
            cells += [f"{draws * 1e6:.1f}", iteration.text(1e6)]
            rows.append([case, label, *cells, split_up])
            configs = {name: dict(way.sampler.kernels[name].config) for name in way.sampler.partners.kernels}
            told += [f"{case}, {way.name}: {name} {config}  " for name, config in configs.items()]
            report.data["results"].append(
                {
                    "device": device.info.spec,
                    "case": case,
                    "partners": way.name,
                    "n": way.sampler.rule.n,
                    "times": whole.as_dict(),
                    "without exchange": bare.as_dict(),
                    "faster": ratios,
                    "kernels": by_kernel,
                    "draws of partners": draws,
                    "iteration": iteration.as_dict(),
                    "configs": configs,
                    "busy": busy.times,
                }
            )
    return rows, told


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_device_option(parser)
    add_roofs(parser)
    parser.add_argument("--graph", type=Path, help="edge list (a random graph of N vertices)")
    parser.add_argument("-N", type=int, default=317080, help="vertices of the random graph (317080)")
    parser.add_argument("-k", type=int, default=1024, help="communities (1024)")
    parser.add_argument("-m", type=int, default=4096, help="non-links of a star (4096)")
    parser.add_argument("-n", type=int, default=256, help="shared partners (256)")
    parser.add_argument("--own", type=int, default=32, help="partners of a vertex with partners of its own (32)")
    parser.add_argument("--partners", action="append", choices=("shared", "shared-uniform"), help="only these")
    parser.add_argument("--products", choices=("single", "half"), help="of shared partners (half on tensor cores)")
    parser.add_argument("--case", action="append", choices=list(CASES), help="steps, with draws or without (all)")
    parser.add_argument("--count", type=int, default=16, help="updates of a repetition (16)")
    parser.add_argument("--repetitions", type=int, default=40, help="repetitions (40)")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds after which one is not repeated (60)")
    parser.add_argument("--database", metavar="URL", help="tuning database (default: the user's)")
    parser.add_argument("--name", default="", help="report shared-NAME")
    parser.add_argument("--output", type=Path, default=REPORTS, help="folder of the report (docs/reports)")
    args = parser.parse_args()
    args.partners = args.partners or ["shared", "shared-uniform"]

    parts = split(load_edge_list(args.graph), validation=0.01, seed=0) if args.graph else synthetic(args.N, 7)
    graph = parts.graph
    report = Report(
        "Partners that a star's vertices share",
        f"{graph.name}: N = {graph.n_vertices}, {len(parts.training_links)} links, K = {args.k}, m = {args.m}, "
        "float32. Microseconds of a whole phi and pi update, to the new rows in their places, and with the rows left "
        f"in the spares: medians of {args.repetitions} repetitions of {args.count} in a row, in turns, and distances "
        "between quartiles. Draws of partners are made ahead and come in addition; an iteration is all of it with "
        "theta, by the clock on the wall, a launch a kernel; kernels are single, by events.",
    )
    report.data["results"] = []
    for info in chosen_devices(args.device):
        with open_device(info.spec) as device:
            report.devices.append(info)
            roof = measure_roofs(device, MMSB.row_bytes(MMSB.problem(K=args.k)), args.roof_mib << 20)
            report.text(f"## {info.platform}: {info.name}")
            report.text(f"Random rows {roof.gather:.0f} GB/s, copy {roof.copy:.0f} GB/s.")
            lines, told = [], []
            for case in args.case or CASES:
                rows, configs = measure(report, device, parts, args, case)
                lines += rows
                told += configs
            head = ["step", "partners", "update, us", "times faster", "rows left in spares, us", "times faster"]
            head += ["draws of partners, us", "iteration, us", "kernels by events, us"]
            report.table(head, lines)
            report.text(*told)
    report.write(f"shared-{args.name}" if args.name else "shared", folder=args.output)


if __name__ == "__main__":
    main()
