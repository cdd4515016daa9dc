"""networkx's functions by ``backend="mmsbgen"``, and networkx's own tests of them."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from mmsbgen.backends import Device
from mmsbgen.networkx_backend.info import FUNCTIONS, get_info
from mmsbgen.networkx_backend.interface import backend

#: networkx's tests of what the backend has.
TESTS = (
    "algorithms/tests/test_cluster.py",
    "algorithms/tests/test_core.py",
    "algorithms/centrality/tests/test_closeness_centrality.py",
    "algorithms/components/tests/test_connected.py",
    "algorithms/components/tests/test_weakly_connected.py",
    "algorithms/link_analysis/tests/test_pagerank.py",
    "algorithms/shortest_paths",
    "algorithms/traversal/tests/test_bfs.py",
)


@pytest.fixture(autouse=True)
def _no_note_on_caches() -> Any:
    before = set(nx.config.warnings_to_ignore)
    nx.config.warnings_to_ignore = {*before, "cache"}
    yield
    nx.config.warnings_to_ignore = before


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_networkxs(name: str, processor: Device) -> None:
    graph = nx.disjoint_union(nx.karate_club_graph(), nx.path_graph(["a", "b"]))
    graph = nx.DiGraph(graph) if "weakly" in name else graph
    given = (3,) if "single_source" in name or "shortest" in name or "node_" in name else ()
    given = {"has_path": (3, 35), "descendants_at_distance": (3, 2)}.get(name, given)
    given = ([3, 30, 3],) if "multi_source" in name else given
    ours, theirs = getattr(nx, name)(graph, *given, backend="mmsbgen"), getattr(nx, name)(graph, *given)
    assert type(ours) is type(theirs)
    if name == "k_core":
        ours, theirs = ours.adj, theirs.adj
    elif name in ("connected_components", "weakly_connected_components"):
        ours, theirs = list(ours), list(theirs)
        assert {type(members) for members in ours} == {set}
    elif name == "pagerank":
        theirs = pytest.approx(theirs, abs=1e-12)
    assert ours == theirs


def test_lengths_to_a_target_and_within_a_cutoff(processor: Device) -> None:
    graph = nx.path_graph(6)
    graph.add_node("far")
    assert nx.shortest_path_length(graph, 0, 4, backend="mmsbgen") == 4
    assert nx.single_source_shortest_path_length(graph, 0, cutoff=2, backend="mmsbgen") == {0: 0, 1: 1, 2: 2}
    assert next(iter(nx.single_source_shortest_path_length(graph, 3, backend="mmsbgen"))) == 3
    with pytest.raises(nx.NetworkXNoPath, match="No path between 0 and far"):
        nx.shortest_path_length(graph, 0, "far", backend="mmsbgen")
    assert nx.multi_source_dijkstra_path_length(graph, {0, 5}, cutoff=1, backend="mmsbgen") == {0: 0, 5: 0, 1: 1, 4: 1}
    assert nx.has_path(graph, 0, 5, backend="mmsbgen")
    assert nx.descendants_at_distance(graph, 0, -1, backend="mmsbgen") == set()
    for name, given, error in (
        ("multi_source_dijkstra_path_length", ([],), ValueError),
        ("multi_source_dijkstra_path_length", ([0, 9],), nx.NodeNotFound),
        ("single_source_bellman_ford_path_length", (9,), nx.NodeNotFound),
        ("has_path", (0, 9), nx.NodeNotFound),
        ("descendants_at_distance", (9, 1), nx.NetworkXError),
        ("node_connected_component", (9,), KeyError),
    ):
        for how in ({}, {"backend": "mmsbgen"}):
            with pytest.raises(error):
                getattr(nx, name)(graph, *given, **how)
    with pytest.raises(nx.NodeNotFound, match="Source 9 is not in G"):
        nx.single_source_shortest_path_length(graph, 9, backend="mmsbgen")


def test_a_core_of_some_k_keeps_attributes(processor: Device) -> None:
    graph = nx.karate_club_graph()
    for k in (0, 2, 3, 9):
        assert nx.utils.graphs_equal(nx.k_core(graph, k, backend="mmsbgen"), nx.k_core(graph, k))
    assert backend.can_run("k_core", (graph, 2, {0: 1}), {}) == "core numbers are given"


def test_weights_are_those_of_the_call_whatever_was_converted_before(processor: Device) -> None:
    graph = nx.MultiGraph(nx.path_graph(["7", 7, "x"]))
    nx.set_edge_attributes(graph, {("7", 7, 0): 200.0, (7, "x", 0): 0.5}, "weight")
    simple, lengths = nx.Graph(graph), ("single_source_dijkstra", "multi_source_dijkstra", "single_source_bellman_ford")
    nx.k_core(simple, 1, backend="mmsbgen")
    for name in ("pagerank", *(f"{each}_path_length" for each in lengths)):
        given = {"pagerank": (), "multi_source_dijkstra_path_length": (["x"],)}.get(name, ("x",))
        for weight, of in itertools.product(("weight", None, "none"), (graph, simple)):
            theirs, ours = (getattr(nx, name)(of, *given, weight=weight, **how) for how in ({}, {"backend": "mmsbgen"}))
            assert ours == pytest.approx(theirs, abs=1e-9), (name, weight, of)


def test_closeness_of_a_node(processor: Device) -> None:
    graph = nx.gn_graph(40, seed=2)
    for given in ({"u": 3}, {"wf_improved": False}, {"u": 0, "wf_improved": False}):
        assert nx.closeness_centrality(graph, **given, backend="mmsbgen") == nx.closeness_centrality(graph, **given)
    with pytest.raises(nx.NodeNotFound, match="Source 99 is not in G"):
        nx.closeness_centrality(graph, 99, backend="mmsbgen")
    assert backend.can_run("closeness_centrality", (graph, None, "weight"), {}) == "weights count"


def test_clustering_of_some_nodes(processor: Device) -> None:
    graph = nx.barbell_graph(5, 1)
    graph.add_edge(5, 5)
    for name in ("triangles", "clustering"):
        function = getattr(nx, name)
        for nodes in (4, [10, 4, 5], []):
            assert function(graph, nodes, backend="mmsbgen") == function(graph, nodes)
    for given in ({"nodes": [4, 5]}, {"count_zeros": False}):
        assert nx.average_clustering(graph, **given, backend="mmsbgen") == nx.average_clustering(graph, **given)
    assert backend.can_run("clustering", (graph, None, "weight"), {}) == "weights count"
    assert "is directed" in str(backend.can_run("clustering", (nx.DiGraph(graph),), {}))


def test_what_is_not_done_here_says_why(processor: Device) -> None:
    graph = nx.path_graph(3)
    assert backend.can_run("shortest_path_length", (graph, None, None, None, "dijkstra"), {}) == "there is no source"
    function = (graph, 0, None, lambda u, v, data: 1)
    assert backend.can_run("single_source_dijkstra_path_length", function, {}) == "weights are a function"
    for weight in (None, "weight"):
        asked = {"G": graph, "source": 0, "weight": weight, "method": "bellman-ford"}
        assert backend.can_run("shortest_path_length", (), asked) == "the method is bellman-ford"
    assert "2 links are converted as fast" in str(backend.should_run("core_number", (graph,), {}))
    assert "2 links are converted as fast" in str(backend.should_run("core_number", (), {"G": graph}))
    nx.set_edge_attributes(graph, -1, "weight")
    with pytest.raises(NotImplementedError) as raised:
        nx.single_source_dijkstra_path_length(graph, 0, backend="mmsbgen")
    assert "the weight from 0 to 1 is -1.0" in str(raised.value.__cause__ or raised.value.__context__)


def test_the_description_names_each_function_of_the_backend() -> None:
    assert set(get_info()["functions"]) == set(FUNCTIONS)
    assert all(callable(getattr(backend, name)) for name in FUNCTIONS)
    loaded = "import sys, mmsbgen.networkx_backend.info; print('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True).stdout == "False\n"


@pytest.mark.slow
def test_networkxs_own_tests(processor: Device, tmp_path: Path) -> None:
    """Every graph is converted; a function that is missing would pass too, so calls are counted."""
    counter = tmp_path / "counter.py"
    counter.write_text(
        "import atexit, collections, mmsbgen.algorithms as a\n"
        "calls = collections.Counter()\n"
        "def counted(name, function):\n"
        "    def call(*args, **more):\n"
        "        calls[name] += 1\n"
        "        return function(*args, **more)\n"
        "    return call\n"
        "for name in ('bfs', 'closeness', 'components', 'cores', 'k_core', 'pagerank', 'sssp', 'triangles'):\n"
        "    setattr(a, name, counted(name, getattr(a, name)))\n"
        f"atexit.register(lambda: open({str(tmp_path / 'calls')!r}, 'w').write(' '.join(sorted(calls))))\n"
    )
    environment = os.environ | {
        "NETWORKX_TEST_BACKEND": "mmsbgen",
        "NETWORKX_FALLBACK_TO_NX": "True",
        "PYTHONPATH": str(tmp_path),
    }
    folder = Path(nx.__file__).parent
    options = ("-q", "-p", "no:cacheprovider", "-p", "counter", "--rootdir", str(folder))
    command = [sys.executable, "-m", "pytest", *options]
    done = subprocess.run(
        [*command, *(str(folder / name) for name in TESTS)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert (tmp_path / "calls").read_text() == "bfs closeness components cores k_core pagerank sssp triangles"
