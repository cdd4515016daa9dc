"""The edge set on the host: seconds to build it, its load, and look-ups a second of links and of other pairs.

    scripts/bench/bench_edgeset.py

Random links, by default as many as com-DBLP has, or those of ``--graph``.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from _common import REPORTS, Report, Sample

from mmsbgen.graph import EdgeSet, Graph, load_edge_list
from mmsbgen.graph.graph import distinct_keys, pack_pairs, unpack_pairs

Pairs = npt.NDArray[np.int64]
#: What an edge set is held to.
TARGET_S, TARGET_LOAD = 2.0, 0.9


def random_links(rng: np.random.Generator, n_vertices: int, n_links: int) -> Pairs:
    """Distinct unordered pairs of vertices, ``[n_links, 2]`` int64 in random order, each pair as likely as another."""
    keys = np.empty(0, dtype=np.uint64)
    while keys.size < n_links:
        ends = rng.integers(0, n_vertices, size=(2 * (n_links - keys.size) + 64, 2))
        low, high = ends.min(axis=1), ends.max(axis=1)
        keys = distinct_keys(np.concatenate([keys, pack_pairs(low, high)[low != high]]))
    return unpack_pairs(rng.choice(keys, n_links, replace=False))


def of_graph(graph: Graph, rng: np.random.Generator) -> Pairs:
    """The links of a graph in random order."""
    return rng.permutation(graph.links)


def measure(links: Pairs, n_vertices: int, rounds: int) -> dict[str, Any]:
    """Build and ask ``rounds`` times each; the pairs that are no links are random ones.

    Raises SystemExit when an answer is wrong.
    """
    rng = np.random.default_rng(1)
    others = rng.integers(0, n_vertices, size=links.shape)
    others = others[~np.isin(_keys(others), _keys(links))]
    built, asked, missed = [], [], []
    for seed in range(rounds):
        begin = time.perf_counter()
        table = EdgeSet.build(links, seed=seed)
        built.append(time.perf_counter() - begin)
        for pairs, times, there in ((links, asked, True), (others, missed, False)):
            begin = time.perf_counter()
            found = table.contains(pairs[:, 0], pairs[:, 1])
            times.append((time.perf_counter() - begin) / len(pairs))
            if not np.all(found == there):
                raise SystemExit(f"{np.count_nonzero(found != there)} of {len(pairs)} pairs were answered wrongly")
    return {
        "load": table.load,
        "bytes": table.buckets.nbytes,
        "build": Sample(tuple(built)),
        "links": Sample(tuple(asked)),
        "others": Sample(tuple(missed)),
    }


def _keys(pairs: Pairs) -> npt.NDArray[np.uint64]:
    return pack_pairs(pairs.min(axis=1), pairs.max(axis=1))


def main() -> None:
    """Run the benchmark and write its report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", type=Path, help="take the links of this edge list instead of random ones")
    parser.add_argument("--vertices", type=int, default=317_080, help="vertices of random links (317080, com-DBLP's)")
    parser.add_argument("--links", type=int, default=1_049_866, help="random links (1049866, com-DBLP's)")
    parser.add_argument("--rounds", type=int, default=9, help="sets that are built, each from another seed (9)")
    parser.add_argument("--output", type=Path, default=REPORTS, help="folder of the report")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    if args.graph:
        graph = load_edge_list(args.graph)
        links, n_vertices, what = of_graph(graph, rng), graph.n_vertices, f"the links of {graph.name}"
    else:
        links, n_vertices = random_links(rng, args.vertices, args.links), args.vertices
        what = "random links"
    report = Report(
        "The edge set",
        f"The cuckoo hash of {len(links)} links over {n_vertices} vertices ({what}, in random order), built and asked "
        "by NumPy on the host. Kernels look up in the same tables on the device.",
    )
    found = measure(links, n_vertices, args.rounds)
    rates = {name: 1e-6 / found[name].median for name in ("links", "others")}
    report.table(
        ["", "measured", "target"],
        [
            ["building it, s", found["build"].text(1), f"at most {TARGET_S:g}"],
            ["load: used slots over all", f"{found['load']:.4f}", f"at least {TARGET_LOAD:g}"],
            ["size, MB", f"{found['bytes'] / 1e6:.1f}", "-"],
            ["look-ups of links, million a second", f"{rates['links']:.1f}", "-"],
            ["look-ups of other pairs, million a second", f"{rates['others']:.1f}", "-"],
        ],
    )
    report.data |= {name: part.as_dict() if isinstance(part, Sample) else part for name, part in found.items()}
    report.data |= {"vertices": n_vertices, "links_in_it": len(links), "source": what}
    report.write("edge-set", args.output)


if __name__ == "__main__":
    main()
