"""The methods that bench_quality.py compares, and the process that runs one of them.

Run as ``python _quality_methods.py METHOD GRAPH K SEED FOLDER`` it writes ``FOLDER/communities.txt`` and
``FOLDER/found.json`` with the seconds that the method alone took, once the graph was in memory.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _link_scores import NEIGHBOURS, adjacency

from mmsbgen.graph import Graph, Split, load_edge_list
from mmsbgen.sampler.chain.chain_problem import drawn_split
from mmsbgen.sampler.diagnostics.held_out import auc
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.starts.start_methods import STARTS

Communities = Iterable[Sequence[int]]


@dataclass(frozen=True)
class Problem:
    """What a method gets: links ``[E, 2]`` of the vertices 0 .. n - 1, each of which has one, K, and a seed.

    The vertices are numbered upwards in the order in which they come into a library's graph.  This matters: from
    other orders cdlib returns the communities of all methods that go through igraph under wrong names.
    """

    n: int
    links: Any
    k: int
    seed: int

    def networkx(self) -> Any:
        import networkx

        graph = networkx.Graph()
        graph.add_nodes_from(range(self.n))
        graph.add_edges_from(self.links.tolist())
        return graph

    def igraph(self) -> Any:
        import igraph

        return igraph.Graph(self.n, self.links.tolist())

    def networkit(self) -> Any:
        import networkit

        networkit.setSeed(self.seed, False)
        graph = networkit.Graph(self.n)
        for u, v in self.links.tolist():
            graph.addEdge(u, v)
        return graph


def _leiden(problem: Problem) -> Communities:
    return list(problem.igraph().community_leiden(objective_function="modularity", n_iterations=-1))


def _local_fitness(problem: Problem) -> Communities:
    import networkit

    graph = problem.networkit()
    cover = networkit.community.LFM(graph, networkit.scd.LFMLocal(graph, 0.8)).run().getCover()
    return [list(cover.getMembers(subset)) for subset in sorted(cover.getSubsetIds())]


def _cdlib(name: str, **arguments: Any) -> Callable[[Problem], Communities]:
    def run(problem: Problem) -> Communities:
        from cdlib import algorithms

        given = {key: problem.k if value == "K" else value for key, value in arguments.items()}
        return list(getattr(algorithms, name)(problem.networkx(), **given).communities)

    return run


@dataclass(frozen=True)
class Method:
    """A baseline: its ``title`` in tables, what it ``needs`` installed, and whether seeds change what it finds."""

    title: str
    needs: str
    run: Callable[[Problem], Communities]
    seeded: bool = True


METHODS = {
    "leiden": Method("Leiden (disjoint), igraph", "igraph", _leiden),
    "slpa": Method("SLPA, cdlib", "cdlib", _cdlib("slpa")),
    "demon": Method("DEMON (epsilon 0.25), cdlib", "cdlib", _cdlib("demon", epsilon=0.25)),
    "angel": Method("ANGEL (threshold 0.25), cdlib", "cdlib", _cdlib("angel", threshold=0.25)),
    "coach": Method("COACH, cdlib", "cdlib", _cdlib("coach"), seeded=False),
    "egonet": Method("EgoNetSplitter, cdlib", "cdlib", _cdlib("egonet_splitter")),
    "lfm-cdlib": Method("LFM (alpha 1), cdlib", "cdlib", _cdlib("lfm", alpha=1.0)),
    "lfm": Method("LFM with LFMLocal(0.8), networkit", "networkit", _local_fitness),
    "bigclam": Method(
        "BigCLAM (threshold, K given), cdlib",
        "cdlib",
        _cdlib("big_clam", dimensions="K", affiliation_method="threshold"),
    ),
}
MMSBGEN = "mmsbgen"
#: mmsbgen from a random start, whatever the trial of the starts would have said.
FROM_RANDOM = "mmsbgen-random"
#: mmsbgen as it is without any option: held-out pairs choose K.
CHOSEN_K = "mmsbgen-auto"
#: The options of mmsbgen's own rows, of the number of known communities.
OWN: dict[str, Callable[[int], list[str]]] = {
    MMSBGEN: lambda k: ["-k", str(k)],
    FROM_RANDOM: lambda k: ["-k", str(k), "--start", "random"],
    CHOSEN_K: lambda _: [],
}
#: The sets that mmsbgen's chains may start from, as covers, before any sweep.
START_COVERS = {"start-communities": "communities", "start-ego": "ego"}
#: One community of every vertex: what measures give to a cover that says nothing.
ONE = "one"
#: Scores of pairs by their common neighbours in the training links; they rank held-out pairs, not vertices.
COMMON, ADAMIC_ADAR = "common-neighbours", "adamic-adar"

TITLES = {
    MMSBGEN: "mmsbgen, defaults, K given",
    FROM_RANDOM: "mmsbgen --start random",
    CHOSEN_K: "mmsbgen, defaults",
    "start-communities": "mmsbgen's start from Leiden's communities, before any sweep",
    "start-ego": "mmsbgen's start from ego nets, before any sweep",
    ONE: "one community with every vertex",
    COMMON: "common neighbours",
    ADAMIC_ADAR: "Adamic-Adar",
    **{name: method.title for name, method in METHODS.items()},
}


def missing_library(name: str) -> str | None:
    """The library that a baseline needs and that is not here; None when it can run."""
    needs = METHODS[name].needs if name in METHODS else None
    return needs if needs is not None and importlib.util.find_spec(needs) is None else None


def tidy_cover(communities: Communities) -> list[list[int]]:
    """Sorted communities without those of one vertex and those that came before, as `mmsbgen detect` has them."""
    distinct = dict.fromkeys(tuple(sorted({int(member) for member in one})) for one in communities)
    return [list(one) for one in distinct if len(one) > 1]


def write_cover(path: Path, communities: Communities, ids: Any) -> None:
    """Write communities of places in ``ids`` as SNAP has them."""
    path.write_text("".join("\t".join(str(ids[member]) for member in one) + "\n" for one in communities))


def with_links(graph: Graph) -> tuple[Any, Any]:
    """The vertices that have a link, ascending ``[n]``, and the links by their places there ``[E, 2]``."""
    vertices, places = np.unique(graph.links, return_inverse=True)
    return vertices, places.reshape(graph.links.shape)


def run_method(name: str, graph: Graph, k: int, seed: int) -> tuple[list[list[int]], float]:
    """Communities of vertices of the graph, and the seconds that they took."""
    vertices, links = with_links(graph)
    random.seed(seed)
    np.random.seed(seed)
    problem = Problem(len(vertices), links, k, seed)
    # What is imported once a process is no part of the method.
    importlib.import_module(METHODS[name].needs)
    begin = time.perf_counter()
    found = METHODS[name].run(problem)
    seconds = time.perf_counter() - begin
    return [[int(vertices[member]) for member in one] for one in tidy_cover(found)], seconds


def run_limited(command: Sequence[str], limit: float, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in ``folder``; after ``limit`` seconds its group is killed, and TimeoutExpired raised."""
    with (folder / "stdout.txt").open("w+") as out, (folder / "stderr.txt").open("w+") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, cwd=folder, start_new_session=True)
        try:
            process.wait(limit)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(command, process.returncode, out.read(), err.read())


def split_of_run(graph: Graph, seed: int, validation: float | None = None, test: float | None = None) -> Split:
    """The split of `mmsbgen detect` with this seed and, unless they are None, these shares of the links."""
    return drawn_split(graph, Options(1, seed=seed, validation=validation, test=test))


def start_cover(start: str, graph: Graph, k: int, seed: int) -> list[list[int]]:
    """The sets that a chain of `mmsbgen detect` with this seed would start from."""
    found = STARTS[start](split_of_run(graph, seed), k, seed)
    return tidy_cover(found.vertices[found.communities == label].tolist() for label in range(k))


def neighbour_auc(name: str, graph: Graph, shares: tuple[float, float], seed: int) -> tuple[float, float]:
    """AUC of held-out pairs by common neighbours in the training links: of those for validation and for test.

    The pairs are those of mmsbgen's run with these ``shares`` for either.
    """
    parts = split_of_run(graph, seed, *shares)
    rows = adjacency(graph.n_vertices, parts.training_links)
    known, test = (auc(NEIGHBOURS[name](rows, held.pairs), held.labels) for held in (parts.validation, parts.test))
    return known, test


def main() -> None:
    """Run one baseline and leave what it found."""
    name, graph_file, k, seed, folder = sys.argv[1:]
    graph = load_edge_list(graph_file)
    found, seconds = run_method(name, graph, int(k), int(seed))
    write_cover(Path(folder) / "communities.txt", found, graph.ids)
    (Path(folder) / "found.json").write_text(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
