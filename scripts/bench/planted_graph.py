#!/usr/bin/env python
"""Write a large planted graph as an edge list, and its communities: of many sizes, overlapping, for whole runs.

Vertices are in one (60 %), two (30 %) or three communities.  85 % of the links are within communities, chosen by their
sizes, the others between any two vertices.  A line of the file of communities has the vertices of one.  The whole graph
is in memory: 200 bytes a link.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def planted(n: int, links: int, communities: int, seed: int) -> tuple[Ints, list[Ints]]:
    """At most ``links`` distinct links ``[E, 2]``, u < v, in random order, and the members of each community."""
    rng = np.random.default_rng(seed)
    shares = rng.pareto(2.0, communities) + 0.5
    counts = rng.choice([1, 2, 3], n, p=[0.6, 0.3, 0.1])
    vertex = np.repeat(np.arange(n), counts)
    keys = np.unique(rng.choice(communities, vertex.size, p=shares / shares.sum()) * n + vertex)
    community, vertex = np.divmod(keys, n)
    sizes = np.bincount(community, minlength=communities)
    first = np.cumsum(sizes) - sizes
    # A few more than are wanted, as some come twice.
    chosen = rng.choice(communities, int(0.867 * links), p=sizes / sizes.sum())
    ends = [vertex[first[chosen] + (rng.random(chosen.size) * sizes[chosen]).astype(np.int64)] for _ in range(2)]
    pairs = np.concatenate([np.stack(ends, axis=1), rng.integers(n, size=(int(0.15 * links), 2))])
    pairs = np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)
    keys = np.unique(pairs[:, 0] * n + pairs[:, 1])
    return np.stack(np.divmod(keys[rng.permutation(keys.size)][:links], n), axis=1), np.split(vertex, first[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="the file to write")
    parser.add_argument("members", type=Path, nargs="?", help="the file of communities to write")
    parser.add_argument("-n", "--vertices", type=int, default=1_000_000)
    parser.add_argument("-e", "--links", type=int, default=10_000_000)
    parser.add_argument("-k", "--communities", type=int, default=512)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    links, communities = planted(given.vertices, given.links, given.communities, given.seed)
    with given.output.open("w") as file:
        for first in range(0, len(links), 1 << 20):
            file.write("".join(f"{u}\t{v}\n" for u, v in links[first : first + (1 << 20)].tolist()))
    if given.members:
        lines = (" ".join(map(str, members.tolist())) + "\n" for members in communities if members.size)
        given.members.write_text("".join(lines))


if __name__ == "__main__":
    main()
