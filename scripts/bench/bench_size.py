"""Chains whose state has rows beyond 2^31 and 2^32 elements, and a state that does not fit: refused, with numbers.

    scripts/bench/bench_size.py --device cuda:0

Chains of blocks and of stars, those on CUDA by single launches and fused, on a random graph of 4,000,000 vertices: at
K = 1024, whose state takes more than 16 GB and has rows beyond 2^31 elements, and at K = 1100, where rows lie beyond
2^32 too.  Rows of the start at both ends of the state and about these offsets are the reference's.  Rows of some
mini-batches are read before and after: each has changed and sums to 1, and those of other vertices have not; of a star
some are held against the reference, which reads rows of partners anywhere.  After the timed iterations all rows sum to
1.  Then K = 16384 is to be refused before anything is allocated.
Writes docs/reports/size.md and .json; ends with status 1 when a check failed.
"""

from __future__ import annotations

import argparse
import gc
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _common import REPORTS, Report, advance, chain, chosen_devices, progress, wall
from _size_checks import WITNESSES, CheckError, beyond, check_all_rows, check_reference, check_start, check_updates

from mmsbgen.backends import Device, DeviceInfo, open_device
from mmsbgen.base.errors import DeviceMemoryError, InputError, LaunchError, MmsbgenError
from mmsbgen.base.host_memory import readable
from mmsbgen.families.mmsb import MMSB
from mmsbgen.graph import Split, split
from mmsbgen.graph.graph import build_graph
from mmsbgen.kernels.runtime import Runtime
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.options.options import Options

KS = (1024, 1100)
OFFSETS = (2**31, 2**32)


class Way(NamedTuple):
    """How a chain is made."""

    mini_batch: str
    fused: bool

    def __str__(self) -> str:
        return f"{self.mini_batch}{', fused' if self.fused else ''}"


def random_graph(n_vertices: int, degree: float, seed: int) -> Split:
    """Pairs drawn uniformly, ``degree`` links a vertex in the mean; some are held out as a run does."""
    rng = np.random.default_rng(seed)
    first, second = rng.integers(0, n_vertices, (2, max(1, round(n_vertices * degree / 2))))
    graph = build_graph(first, second, np.arange(n_vertices), name="random", directed=False)
    return split(graph, validation=Options(1).held_out_share(graph.n_links), seed=seed)


def options_of(k: int, mini_batch: str, args: argparse.Namespace) -> Options:
    """The options of a chain from random rows."""
    sized = {"mini_batch_size": args.m, "n_partners": args.n}
    return Options(k, mini_batch=mini_batch, start="random", refine=False, seed=args.seed, **sized)


def measure(sampler: Sampler, way: Way, args: argparse.Namespace) -> dict[str, Any]:
    """Check and time a started chain."""
    shape = sampler.shape
    n = shape.n_vertices
    found: dict[str, Any] = {
        "k": shape.k,
        "way": str(way),
        "mini_batch_size": sampler.options.size,
        "state_bytes": sum(shape.bytes().values()),
        "device_bytes": sampler.device.allocated,
        "elements": n * shape.row,
        "offsets": args.offset,
        "vertices_beyond": [max(0, n - beyond(sampler, offset)) for offset in args.offset],
        "choices": {name: choice.tier for name, choice in sampler.runtime.choices.items()},
        "failed": "",
    }
    try:
        found["start_rows"] = check_start(sampler, args.offset)
        found["updates"] = check_updates(sampler, args.offset, args.looks)._asdict()
        if way.mini_batch != "block":
            found["reference"] = check_reference(sampler, args.offset)._asdict()
        advance(sampler, args.count)
        begin = sampler.chain.vertex_updates
        sample = wall(sampler, advance, args.count, args.repetitions)
        found["iteration"] = sample.as_dict() | {"text": sample.text()}
        found["vertices_of_an_iteration"] = (sampler.chain.vertex_updates - begin) / (args.count * args.repetitions)
        reading = time.perf_counter()
        found["worst_sum"] = check_all_rows(sampler)
        found["reading_s"] = time.perf_counter() - reading
    except CheckError as error:
        found["failed"] = str(error)
    return found


def free_bytes(device: Device) -> int | None:
    """Free memory of the device as its driver tells it, where it does."""
    active: Callable[..., Any] | None = getattr(device, "active", None)
    if active is None:
        return None
    with active(LaunchError, "cannot ask for the free memory"):
        return int(device.driver.mem_get_info()[0])  # type: ignore[attr-defined]


def refusal(device: Device, parts: Split, k: int, args: argparse.Namespace) -> dict[str, Any]:
    """Ask for a chain that does not fit: what was said, and the device's memory before and after."""
    gc.collect()  # kernels that nothing refers to any more would be unloaded at some time in between
    before = device.allocated, free_bytes(device)
    said = ""
    try:
        Sampler(parts, options_of(k, "block", args), Runtime(device, MMSB)).close()
    except DeviceMemoryError as error:
        said = str(error)
    after = device.allocated, free_bytes(device)
    failed = "" if said else f"K = {k} was not refused"
    if said and (after[0] != before[0] or (after[1] or 0) < (before[1] or 0)):
        failed = f"the refusal of K = {k} left {after} bytes allocated and free, before it were {before}"
    names = ("allocated_before", "free_before", "allocated_after", "free_after")
    return {"k": k, "said": said, "failed": failed} | dict(zip(names, before + after, strict=True))


def tables(report: Report, results: Sequence[dict[str, Any]], offsets: Sequence[int]) -> None:
    """What was timed, and what was looked at."""
    head = ["chain", "state", "device memory", "vertices an iteration", "iteration, ms", "failed"]
    rows = []
    for one in results:
        timed = one.get("iteration", {}).get("text", "-")
        size = f"{one['vertices_of_an_iteration']:.0f}" if "vertices_of_an_iteration" in one else "-"
        memory = [readable(one[name]) for name in ("state_bytes", "device_bytes")]
        rows.append([f"K = {one['k']}, {one['way']}", *memory, size, timed, one["failed"] or "-"])
    report.table(head, rows)
    names = [name_of(offset) for offset in offsets]
    head = ["chain", *(f"vertices beyond {name}" for name in names), "rows of mini-batches"]
    head += [f"read, written beyond {name}" for name in names]
    rows = []
    for one in results:
        seen = one.get("updates") or {"rows": "-", "read": ["-"] * len(names), "written": ["-"] * len(names)}
        pairs = [f"{read}, {wrote}" for read, wrote in zip(seen["read"], seen["written"], strict=True)]
        rows.append([f"K = {one['k']}, {one['way']}", *one["vertices_beyond"], seen["rows"], *pairs])
    head += ["held against the reference", "sum of a row from 1"]
    report.table(head, [[*row, against(one), worst(one)] for row, one in zip(rows, results, strict=True)])


def against(one: dict[str, Any]) -> str:
    """How many rows were held against the reference, and how many partners of theirs lay beyond the offsets."""
    seen = one.get("reference")
    return f"{seen['rows']}, partners beyond {', '.join(map(str, seen['partners']))}" if seen else "-"


def worst(one: dict[str, Any]) -> str:
    """The largest deviation of a sum, of all rows at the end."""
    return f"{one['worst_sum']:.1e}" if "worst_sum" in one else "-"


def name_of(offset: int) -> str:
    """An offset in words: a power of two as such."""
    return f"2^{offset.bit_length() - 1}" if offset & (offset - 1) == 0 else str(offset)


def refused_text(one: dict[str, Any]) -> str:
    """The refusal in one paragraph."""
    told = f"K = {one['k']}: {one['said'] or 'not refused'}\n\n"
    told += f"Allocated before and after: {one['allocated_before']} and {one['allocated_after']} bytes"
    if one["free_before"] is not None:
        told += f"; free, as the driver says: {one['free_before']} and {one['free_after']}"
    return f"{told}.{' Failed: ' + one['failed'] + '.' if one['failed'] else ''}"


def bench(info: DeviceInfo, args: argparse.Namespace) -> bool:
    """Run all of it and write the report; whether every check held."""
    progress(f"a random graph of {args.N} vertices")
    begin = time.perf_counter()
    parts = random_graph(args.N, args.degree, args.seed)
    graph_s = time.perf_counter() - begin
    report = Report(
        "Size of the state",
        f"A random graph of {args.N} vertices and {parts.graph.n_links} links, made and split in {graph_s:.0f} s. "
        "Milliseconds of an iteration: medians and distances between quartiles, launches queued ahead. Offsets are in "
        "elements of the state; rows that mini-batches read and wrote beyond them have each changed, those of "
        f"{WITNESSES} vertices spread over the state have not where they were in no mini-batch.",
    )
    report.devices.append(info)
    ways = [Way("block", False), Way("random-node", False), *([Way("random-node", True)] * (info.backend == "cuda"))]
    results = []
    with open_device(info.spec) as device:
        for k in args.k or KS:
            for way in ways:
                options = options_of(k, way.mini_batch, args)
                with chain(device, parts, options, args.database, fused=way.fused) as sampler:
                    found = measure(sampler, way, args)
                results.append(found)
                told = found["failed"] or f"{found['iteration']['text']} ms an iteration"
                progress(f"K = {k}, {way}: {told}")
        refused = refusal(device, parts, args.refused_k, args)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    report.data |= {"n_vertices": args.N, "n_links": parts.graph.n_links, "results": results, "refused": refused}
    report.data["peak_host_bytes"] = peak
    tables(report, results, args.offset)
    report.text("## A state that does not fit", "", refused_text(refused))
    report.text(f"Host memory of this process at its peak: {readable(peak)}.")
    report.write("size", folder=args.output)
    return not any(one["failed"] for one in [*results, refused])


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="a device as 'mmsbgen devices' names it, or pocl, intel (an OpenCL CPU)")
    parser.add_argument("-N", type=int, default=4_000_000, help="vertices (4000000)")
    parser.add_argument("-k", type=int, action="append", help="communities; repeat for several (1024, 1100)")
    parser.add_argument("-m", type=int, help="vertices of a block, non-links of a star (as a run has them)")
    parser.add_argument("-n", type=int, help="partners (as a run has them)")
    parser.add_argument("--degree", type=float, default=10.0, help="links of a vertex in the mean (10)")
    parser.add_argument("--offset", type=int, action="append", help="elements, beyond which rows lie (2^31, 2^32)")
    parser.add_argument("--refused-k", type=int, default=16384, help="communities that do not fit (16384)")
    parser.add_argument("--looks", type=int, default=4, help="mini-batches whose rows are looked at, at least (4)")
    parser.add_argument("--count", type=int, default=128, help="iterations of a repetition (128)")
    parser.add_argument("--repetitions", type=int, default=5, help="repetitions (5)")
    parser.add_argument("--seed", type=int, default=1, help="of graph and chains (1)")
    parser.add_argument("--database", metavar="URL", help="tuning database (default: the user's)")
    parser.add_argument("--output", type=Path, default=REPORTS, help="folder of the report (docs/reports)")
    args = parser.parse_args()
    args.offset = args.offset or list(OFFSETS)
    try:
        for name, least in (("N", 3), ("looks", 1), ("count", 1), ("repetitions", 1), ("degree", 0.01)):
            if getattr(args, name) < least:
                raise InputError(f"{'-' * (1 + (len(name) > 1))}{name} {getattr(args, name)}: give at least {least}")
        right = bench(chosen_devices([args.device] if args.device else None)[0], args)
    except MmsbgenError as error:
        parser.error(str(error))
    raise SystemExit(0 if right else 1)


if __name__ == "__main__":
    main()
