#!/usr/bin/env python
"""Seconds of a sweep over sparse rows that several ranks share, on a planted graph.

    python scripts/bench/bench_ranks.py --json one.json
    mpirun -n 2 python scripts/bench/bench_ranks.py --json two.json
    python scripts/bench/bench_ranks.py --vertices 65608366 --links 1806067135 -k 10000 --json friendster.json

The device makes the graph (_device_graph.py), whose links are nowhere listed: memory for them is not counted, and no
pairs are held out.  Rows start at the planted communities.  Each turn is some sweeps as they follow one another between
two evaluations of a run: where NCCL exchanges rows, each is queued during the one before, and the turn ends when all
ranks have the last one.  The first turn, which compiles, is left out, and ranges are cut anew after it.  ``digest`` is
of the first rows after all turns: the same for every number of ranks on devices of one kind.  ``mass`` is the sum of
all rows over their number.  One rank can go on with other configurations of the kernel that sweeps (``--then``), each
of which has turns of its own, and one more that is left out.

``roof_share`` is that of the rate at which the device gathers rows as long as half a sparse row: its communities, or
its values.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import statistics
import sys
import time
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from _device_graph import planted

from mmsbgen.backends import find_device, opened
from mmsbgen.backends.ranks.starting import started_together
from mmsbgen.backends.ranks.world import World
from mmsbgen.detection.ranks.following import device_of_rank, follow_rank
from mmsbgen.detection.ranks.forming import formed_team, open_ranks
from mmsbgen.families.mmsb import MMSB
from mmsbgen.graph import Graph, Split
from mmsbgen.graph.graph import Adjacency
from mmsbgen.graph.split import held_out
from mmsbgen.kernels.runtime import Runtime
from mmsbgen.sampler.chain.plan import Plan
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.ranks.sharing import Team
from mmsbgen.sampler.starts.start_methods import Start
from mmsbgen.sampler.state.sparse_state import SparseState
from mmsbgen.tuner.measure.roofs import measure_roofs

#: Most rows of the digest.
HASHED = 1 << 22


class Planted(Split):
    """A split graph of which only the adjacency of its links is in memory."""

    def __init__(self, adjacency: Adjacency) -> None:
        links, none = np.zeros((0, 2), np.int64), held_out(np.zeros((0, 2), np.int64), np.zeros((0, 2), np.int64))
        n, n_links = adjacency.n_vertices, adjacency.neighbours.size // 2
        graph = SimpleNamespace(
            name="planted", n_vertices=n, n_links=n_links, links=links, density=2 * n_links / n / (n - 1)
        )
        super().__init__(cast(Graph, graph), 0, none, none)
        vars(self)["training_adjacency"] = adjacency

    @property
    def n_training_links(self) -> int:
        return self.graph.n_links


def turns_of(sampler: Sampler, args: argparse.Namespace) -> list[float]:
    """Seconds of a sweep in each turn but the first."""
    turns = []
    for _ in range(args.turns + 1):
        sampler.device.synchronize()
        begin = time.perf_counter()
        sampler.iterate(args.sweeps)
        sampler.device.synchronize()
        turns.append((time.perf_counter() - begin) / args.sweeps)
        print(f"{turns[-1]:.4f} s a sweep", file=sys.stderr, flush=True)
        sampler.clipped()
    return turns[1:]


def times(turns: list[float], bytes_moved: int, roof_gbs: float) -> dict[str, Any]:
    """What the record says of the seconds of a sweep in ``turns``."""
    median = statistics.median(turns)
    rate = bytes_moved / median / 1e9
    return {
        "sweep_s": median,
        "quartiles_s": np.quantile(turns, [0.25, 0.75]).tolist(),
        "turns_s": turns,
        "roof_share": rate / roof_gbs,
    }


def measured(args: argparse.Namespace, device: str | None, world: World | None) -> dict[str, Any]:
    """Seconds of sweeps on this device and on those of the other ranks."""
    if world is not None:
        open_ranks(world)
    options = Options(n_communities=args.k, rows="sparse", mini_batch="block", refine=False)
    with opened(find_device(device)) as opened_device:
        info, begin = opened_device.info, time.monotonic()
        adjacency, vertices, communities = planted(opened_device, args.vertices, args.links, args.k)
        parts = Planted(adjacency)
        n, graph_s, begin = args.vertices, time.monotonic() - begin, time.monotonic()
        team: Team | None = None if world is None else formed_team(world, opened_device, args.configs)
        plan = Plan(parts, options, info)
        runtime = Runtime(opened_device, MMSB, None, dict(args.configs))
        sampler = Sampler(parts, options, runtime, False, plan, team)
        build_s, begin = time.monotonic() - begin, time.monotonic()
        sampler.initialise(Start("planted", vertices, communities))
        start_s = time.monotonic() - begin
        assert isinstance(sampler.state, SparseState)
        roof = measure_roofs(opened_device, 4 * sampler.shape.entries).gather
        # A row for each end of a link, each vertex's old and new one; ends; offsets, row sums and order of vertices.
        ends = adjacency.neighbours.size
        moved = 8 * sampler.shape.entries * (2 * n + ends) + 4 * ends + 20 * n
        kernel, turns = sampler.kernels["sparse_rows"], turns_of(sampler, args)
        digest = hashlib.sha256()
        for part in sampler.state.entries(0, min(n, HASHED)):
            digest.update(np.ascontiguousarray(part))
        found = {
            "date": datetime.date.today().isoformat(),
            "nccl": version("nvidia-nccl-cu13") if team is not None and team.exchange.name == "NCCL" else "",
            "sweeps_a_turn": args.sweeps,
            "configs": args.configs,
            "device": info.name,
            "ranks": 1 if world is None else world.size,
            "exchange": "" if team is None else team.exchange.name,
            "vertices": n,
            "links": parts.n_training_links,
            "k": args.k,
            "entries": sampler.shape.entries,
            "graph_s": graph_s,
            "build_s": build_s,
            "start_s": start_s,
            "device_bytes": plan.needs.device_total,
            "bytes_a_sweep": moved,
            "roof_gbs": roof,
            **times(turns, moved, roof),
            "kernel_s": [] if sampler.shared is None else sampler.shared.noted()["rank_seconds"],
            "config": dict(kernel.config),
            "mass": float(opened_device.download(sampler.values["totals"]).sum(dtype=np.float64)) / n,
            "digest": digest.hexdigest()[:16],
        }
        found["then"] = []
        for config in args.then:
            other = Runtime(opened_device, MMSB, None, {"sparse_rows": dict(kernel.config) | config})
            sampler.kernels["sparse_rows"] = other.kernel("sparse_rows", sampler.problem)
            found["then"].append({"config": config, **times(turns_of(sampler, args), moved, roof)})
        sampler.close()
        if team is not None:
            team.close()
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vertices", type=int, default=4_000_000)
    parser.add_argument("--links", type=int, default=36_000_000)
    parser.add_argument("-k", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--sweeps", type=int, default=4, help="sweeps of a turn")
    parser.add_argument("--configs", type=json.loads, default={}, help="configurations by kernel, as JSON")
    parser.add_argument("--then", type=json.loads, default=[], help="values of axes of sparse_rows, a JSON list")
    parser.add_argument("--device", help="for all ranks; by default each takes another one of the best kind")
    parser.add_argument("--json", type=Path, help="file for the figures")
    args = parser.parse_args()
    world = World() if started_together() else None
    device = args.device if world is None else device_of_rank(world, args.device, [])
    if world is not None and world.rank:
        follow_rank(world, device, None)
    else:
        text = json.dumps(measured(args, device, world), indent=1)
        print(text, flush=True)
        if args.json:
            args.json.write_text(text + os.linesep)
    if world is not None:
        world.close()


if __name__ == "__main__":
    main()
