#!/usr/bin/env python
"""Seconds of a sweep over sparse rows that several ranks share, on a planted graph.

Run it once for each number of ranks, with the same --graph, a file that the first run makes:

    python scripts/bench/bench_ranks.py --graph /tmp/planted.pickle --json one.json
    mpirun -n 2 python scripts/bench/bench_ranks.py --graph /tmp/planted.pickle --json two.json

A planted graph has K equal communities; 0.8 of the links are inside them.  Rows start at the communities.  Each turn is
some sweeps without an evaluation; the first turn, which compiles, is left out, and ranges are cut anew after it.
``digest`` is of the rows after all turns: the same for every number of ranks on devices of one kind.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import pickle
import statistics
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from mmsbgen.backends import find_device, opened
from mmsbgen.backends.ranks.starting import started_together
from mmsbgen.backends.ranks.world import World
from mmsbgen.detection.ranks.following import device_of_rank, follow_rank
from mmsbgen.detection.ranks.forming import formed_team, open_ranks
from mmsbgen.families.mmsb import MMSB
from mmsbgen.graph import Split, as_graph, split
from mmsbgen.kernels.runtime import Runtime
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.ranks.sharing import Team
from mmsbgen.sampler.starts.start_methods import Start
from mmsbgen.sampler.state.sparse_state import SparseState

INSIDE = 0.8


def planted(n: int, links: int, k: int, seed: int = 0) -> np.ndarray:
    """Links ``[E, 2]`` of n vertices, of which v is in community v % k; about ``links`` of them, none twice."""
    rng = np.random.default_rng(seed)
    inside = round(INSIDE * links)
    size = n // k
    community = rng.integers(0, k, inside)
    ends = [community + k * rng.integers(0, size, inside) for _ in range(2)]
    pairs = np.concatenate([np.stack(ends, 1), rng.integers(0, n, (links - inside, 2))])
    return np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)


def made(args: argparse.Namespace) -> Split:
    """The split graph, from the file or made and kept there."""
    if args.graph.exists():
        with args.graph.open("rb") as file:
            found: Split = pickle.load(file)
        return found
    parts = split(as_graph(planted(args.vertices, args.links, args.k)), validation=0.01, seed=0)
    _ = parts.training_adjacency
    with args.graph.open("wb") as file:
        pickle.dump(parts, file, protocol=5)
    return parts


def measured(args: argparse.Namespace, device: str | None, world: World | None) -> dict[str, Any]:
    """Seconds of sweeps on this device and on those of the other ranks."""
    if world is not None:
        open_ranks(world)
    begin = time.monotonic()
    parts = made(args)
    n = parts.graph.n_vertices
    made_s = time.monotonic() - begin
    options = Options(n_communities=args.k, rows="sparse", mini_batch="block", refine=False)
    with opened(find_device(device)) as opened_device:
        team: Team | None = None if world is None else formed_team(world, opened_device, args.configs)
        begin = time.monotonic()
        sampler = Sampler(parts, options, Runtime(opened_device, MMSB, None, dict(args.configs)), False, team=team)
        build_s = time.monotonic() - begin
        vertices = np.arange(n)
        sampler.initialise(Start("planted", vertices, vertices % args.k))
        turns, kernel_s = [], []
        for turn in range(args.turns + 1):
            sampler.device.synchronize()
            begin = time.perf_counter()
            sampler.iterate(args.sweeps)
            sampler.device.synchronize()
            if turn:
                turns.append((time.perf_counter() - begin) / args.sweeps)
            sampler.clipped()
            if sampler.shared is not None:
                kernel_s = sampler.shared.noted()["rank_seconds"]
        assert isinstance(sampler.state, SparseState)
        digest = hashlib.sha256()
        for part in sampler.state.entries():
            digest.update(np.ascontiguousarray(part))
        found = {
            "date": datetime.date.today().isoformat(),
            "nccl": version("nvidia-nccl-cu13") if team is not None and team.exchange.name == "NCCL" else "",
            "sweeps_a_turn": args.sweeps,
            "configs": args.configs,
            "device": opened_device.info.name,
            "ranks": 1 if world is None else world.size,
            "exchange": "" if team is None else team.exchange.name,
            "vertices": n,
            "links": parts.graph.n_links,
            "k": args.k,
            "entries": sampler.shape.entries,
            "graph_s": made_s,
            "build_s": build_s,
            "sweep_s": statistics.median(turns),
            "quartiles_s": statistics.quantiles(turns, n=4)[::2],
            "turns_s": turns,
            "kernel_s": kernel_s,
            "config": dict(sampler.kernels["sparse_rows"].config),
            "digest": digest.hexdigest()[:16],
        }
        sampler.close()
        if team is not None:
            team.close()
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", type=Path, required=True, help="file of the graph; made if it does not exist")
    parser.add_argument("--vertices", type=int, default=4_000_000)
    parser.add_argument("--links", type=int, default=36_000_000)
    parser.add_argument("-k", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--sweeps", type=int, default=4, help="sweeps of a turn")
    parser.add_argument("--configs", type=json.loads, default={}, help="configurations by kernel, as JSON")
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
