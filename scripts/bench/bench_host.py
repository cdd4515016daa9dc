"""What a run does on the host: seconds from a loaded graph to the first iteration, and parts by themselves.

    scripts/bench/bench_host.py --graph com-dblp.txt.gz

To compare two versions, run it in turns in a checkout of each.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from mmsbgen.backends import open_device
from mmsbgen.detection.detect import Request, perform
from mmsbgen.families.mmsb import MMSB
from mmsbgen.graph import Graph, Split, load_edge_list, split
from mmsbgen.kernels.runtime import Runtime
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics.communities import cover
from mmsbgen.sampler.diagnostics.evaluation import evaluation, of_result
from mmsbgen.sampler.diagnostics.state_rows import row_source
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.run import results
from mmsbgen.sampler.starts import start_methods

SHARES = {"validation": 0.01, "test": 0.01}


class _Reached(BaseException):
    """The first iteration is done; nothing of the package catches it."""


def to_first_iteration(graph: Graph, k: int, device: str) -> float:
    """Seconds from a loaded graph to the end of the first iteration from Leiden's communities."""

    def stop(sampler: Sampler, trace: Any) -> None:
        sampler.device.synchronize()
        raise _Reached

    options = {"n_communities": k, "iterations": 1, "start": "communities", **SHARES}
    begin = time.perf_counter()
    with contextlib.suppress(_Reached):
        perform(graph, Request(options, device=device, on_progress=stop))
    return time.perf_counter() - begin


def parts(data: Split, k: int, device_name: str) -> Iterator[tuple[str, float]]:
    """Names and seconds of parts; each is done as a run does it, with nothing beside it."""

    def timed(make: Callable[[], Any]) -> tuple[Any, float]:
        begin = time.perf_counter()
        made = make()
        return made, time.perf_counter() - begin

    leiden, seconds = timed(lambda: start_methods.communities(data, k, 0))
    yield "Leiden's communities", seconds
    yield "ego nets", timed(lambda: start_methods.ego_nets(data, k, 0))[1]
    start_methods.forget(data)
    with open_device(device_name) as device:
        sampler, seconds = timed(lambda: Sampler(data, Options(k, **SHARES), Runtime(device, MMSB, None)))
        yield "edge sets, arrays, kernels from the cache", seconds
        # The first start finds pages that nobody has touched.
        sampler.initialise(None)
        drawn = timed(sampler.initialise)[1]
        yield "a start from drawn rows", drawn
        yield "placing the rows of sets", timed(lambda: sampler.initialise(leiden))[1] - drawn
        for _ in range(sampler.per_sweep):
            sampler.step()
        evaluation(sampler, 0.0)
        yield "an evaluation", median(timed(lambda: evaluation(sampler, 0.0))[1] for _ in range(5))
        found, seconds = timed(lambda: results.memberships(sampler, 16))
        yield "largest entries of all rows", seconds
        links = data.graph.links
        yield "communities by the rule share", timed(lambda: cover(found, links, "share", rows=row_source(sampler)))[1]
        yield (
            "metrics of the held-out pairs",
            sum(timed(lambda pairs=pairs: of_result(sampler, pairs))[1] for pairs in (data.validation, data.test)),
        )
        sampler.close()


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", type=Path, required=True, help="an edge list, for example com-dblp.txt.gz")
    parser.add_argument("-k", type=int, default=1024, help="communities (1024)")
    parser.add_argument("--device", default="intel", help="a device as 'mmsbgen devices' names it (intel)")
    args = parser.parse_args()
    graph = load_edge_list(args.graph)
    print(f"{to_first_iteration(graph, args.k, args.device):7.2f}  from loading to the first iteration", flush=True)
    for name, seconds in parts(split(graph, **SHARES, seed=0), args.k, args.device):
        print(f"{seconds:7.2f}  {name}", flush=True)


if __name__ == "__main__":
    main()
