"""Leiden's algorithm and its neighbours: known graphs, modularity by hand, seeds, threads and signals."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time

import networkx
import numpy as np
import pytest

from mmsbgen.sampler.starts.leiden import leiden, modularity, network, rewired, terminating, transitivity


def of(graph: networkx.Graph) -> tuple[int, np.ndarray]:
    return len(graph), np.array(sorted(map(sorted, graph.edges)), np.int64).reshape(-1, 2)


KARATE = of(networkx.karate_club_graph())


def test_the_karate_club_has_its_best_modularity():
    """.4198, the largest of all partitions (Brandes and others 2008)."""
    found = [modularity(KARATE[1], leiden(network(*KARATE), 1.0, seed)) for seed in range(10)]
    assert max(found) == pytest.approx(0.41979, abs=1e-5)
    assert min(found) > 0.415


@pytest.mark.parametrize("resolution", [0.5, 1.0, 3.0])
def test_modularity_is_that_of_networkx(resolution):
    graph = networkx.gnm_random_graph(40, 120, seed=1)
    labels = np.random.default_rng(0).integers(0, 5, 40)
    sets = [set(np.flatnonzero(labels == label).tolist()) for label in range(5)]
    right = networkx.community.modularity(graph, sets, resolution=resolution)
    assert modularity(of(graph)[1], labels, resolution) == pytest.approx(right)


def test_without_links_every_vertex_is_alone():
    nothing = np.zeros((0, 2), np.int64)
    assert leiden(network(4, nothing), 1.0, 0).tolist() == [0, 1, 2, 3]
    assert modularity(nothing, np.arange(4)) == 0.0


def test_labels_count_without_gaps():
    found = leiden(network(*KARATE), 1.0, 2**64 + 3)
    assert sorted(set(found.tolist())) == list(range(found.max() + 1))


def test_threads_give_what_one_gives():
    """Seed and number of threads are those of the process: runs wait for each other."""
    rng = np.random.default_rng(0)
    graph = network(400, np.array([pair for pair in rng.integers(0, 400, (1500, 2)) if pair[0] != pair[1]]))
    right = [leiden(graph, 1.0, seed) for seed in range(8)]
    assert len({labels.tobytes() for labels in right}) > 1
    found: dict[int, np.ndarray] = {}
    threads = [
        threading.Thread(target=lambda seed=seed: found.update({seed: leiden(graph, 1.0, seed)})) for seed in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(found[seed], right[seed]) for seed in range(8))


@pytest.mark.parametrize("resolution", [1e-3, 0.5, 1.0, 824.4258671985696, 1e9])
def test_resolutions_that_terminate_are_near(resolution):
    for links in (1, 15443, 2053 * 4093, 10**9):
        found = terminating(resolution, links)
        assert found == pytest.approx(resolution, rel=0.01)
        odd = int(found * 2.0 ** (12 - math.frexp(found)[1]))
        assert links % odd
        assert all(odd % factor for factor in range(2, 64))


@pytest.mark.slow
def test_it_ends_at_any_resolution():
    """At resolutions with more digits networkit moves vertices to and fro for ever, here in every tenth run."""
    code = """
import faulthandler
import numpy as np
from mmsbgen.sampler.starts.leiden import leiden, network
rng = np.random.default_rng(1)
links = np.unique(np.sort(rng.integers(3000, size=(9000, 2)), axis=1), axis=0)
links = links[links[:, 0] != links[:, 1]]
graph = network(3000, links)
for number in range(100):
    faulthandler.dump_traceback_later(20, exit=True)
    leiden(graph, float(np.exp(rng.uniform(-3, 9))), number)
print("ended")
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert ran.stdout == "ended\n", ran.stderr


@pytest.mark.slow
def test_an_interrupt_is_an_exception_after_the_run():
    """networkit's own handler would end the process; Python's is there during and after a run."""
    rng = np.random.default_rng(0)
    graph = network(100_000, rng.integers(0, 100_000, (600_000, 2)))
    before = signal.getsignal(signal.SIGINT)
    heard: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        began = time.monotonic()
        leiden(graph, 1.0, 0, 2)
        assert time.monotonic() - began > 0.1, "the signal came after the run"
        timer.join()
        os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [signal.SIGINT] * 2


@pytest.mark.slow
def test_no_interrupt_is_lost_between_short_runs():
    """A handler that networkit sets for a moment in each run would take a part of them, and fail the runs."""
    graph, heard = network(*KARATE), []
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    ended = threading.Event()

    def send() -> None:
        while not ended.wait(0.001):
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=send)
    try:
        thread.start()
        for seed in range(1500):
            leiden(graph, 1.0, seed)
    finally:
        ended.set()
        thread.join()
        signal.signal(signal.SIGINT, before)
    assert len(heard) > 50


def test_transitivity_is_that_of_networkx():
    graph = networkx.gnm_random_graph(60, 250, seed=2)
    right = networkx.clustering(graph)
    assert transitivity(network(*of(graph))) == pytest.approx([right[vertex] for vertex in range(60)])


@pytest.mark.slow
def test_rewiring_keeps_degrees_and_draws_graphs_evenly():
    """Of the 2-regular graphs of 6 vertices 60 are one cycle and 10 two triangles."""
    start = of(networkx.cycle_graph(6))
    drawn = [rewired(network(*start), 10, seed) for seed in range(1400)]
    assert all((np.bincount(links.ravel(), minlength=6) == 2).all() for links in drawn)
    assert all(len({tuple(sorted(link)) for link in links.tolist()}) == 6 for links in drawn)
    cycles = sum(networkx.is_connected(networkx.Graph(links.tolist())) for links in drawn)
    # 1200 expected, with a standard deviation of 13.
    assert abs(cycles - 1200) < 4 * 13.1
