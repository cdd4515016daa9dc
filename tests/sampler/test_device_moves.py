"""Local moving on a device gives the labels that threads give, and threads take over where a device fails."""

from __future__ import annotations

import numpy as np
import pytest

from mmsbgen.base.errors import CompileError
from mmsbgen.graph.graph import Adjacency
from mmsbgen.sampler.run import refine
from mmsbgen.sampler.starts import device_moves, search_process
from mmsbgen.sampler.starts.device_moves import on_device
from mmsbgen.sampler.starts.local_moving import Weighted, coarsened, corrected, in_threads, moved, separated
from mmsbgen.sampler.starts.start_methods import STARTS
from tests.sampler.test_local_moving import random_links
from tests.sampler.test_sought import same

pytestmark = pytest.mark.opencl
CONFIG = {"team": "item", "slots": 64, "block_size": 16}


def with_hubs(n: int, seed: int) -> Weighted:
    """Groups, two hubs with links to many, isolated vertices."""
    rng = np.random.default_rng(seed)
    links = random_links(n - 5, 8, 7, seed)
    hubs = [np.stack([np.full(n // 3, hub), rng.choice(np.arange(2, n - 5), n // 3, False)], axis=1) for hub in (0, 1)]
    return Weighted.of(Adjacency.from_pairs(np.unique(np.concatenate([links, *hubs]), axis=0), n))


def matrix(graph: Weighted) -> np.ndarray:
    """The weights ``[N, N]``."""
    weights = np.zeros((graph.volumes.size, graph.volumes.size), np.int64)
    weights[np.repeat(np.arange(len(weights)), np.diff(graph.offsets)), graph.ends] = graph.weights
    return weights


@pytest.mark.parametrize("seed", [0, 1])
def test_a_device_finds_the_labels_of_threads(opencl_device, seed, monkeypatch):
    """With costs that differ, from single vertices and from labels, without weights and, contracted, with them.

    Contractions go by parts.
    """
    monkeypatch.setattr(device_moves, "JOINED", 1000)
    rng = np.random.default_rng(seed)
    graph = with_hubs(3000, seed)
    costs = rng.choice([5.0, 20.0], graph.volumes.size) / graph.ends.size
    with on_device(opencl_device.info.spec, lambda: CONFIG) as mover:
        found = coarsened(graph, costs, seed, mover=mover)
        labels, smaller = coarsened(graph, costs, seed)
        assert smaller.bits > 1
        assert np.array_equal(found[0], labels)
        assert np.array_equal(matrix(found[1]), matrix(smaller))
        merged = labels % 50
        assert np.array_equal(corrected(graph, merged, costs, seed, mover), corrected(graph, merged, costs, seed))


def test_refinement_of_many_links_uses_the_device_of_the_run(processor, chain, middling, monkeypatch, caplog):
    """It finds the communities that threads find; a kernel that does not compile leaves it to them, with a warning."""
    sampler = chain(processor, middling, n_communities=4, mini_batch="block", noise=None)
    assert refine.mover_of(sampler) is in_threads
    monkeypatch.setattr(refine, "MANY", 0)
    graph = with_hubs(3000, 2)
    costs = np.random.default_rng(2).choice([5.0, 20.0], graph.volumes.size) / graph.ends.size
    on_device = refine.mover_of(sampler)
    assert on_device is not in_threads
    assert np.array_equal(separated(graph, costs, 2, on_device), separated(graph, costs, 2))

    def refused(*_):
        raise CompileError("no such instruction")

    monkeypatch.setattr(sampler.runtime, "kernel", refused)
    assert refine.mover_of(sampler) is in_threads
    assert "vertices move in threads when communities are split: no such instruction" in caplog.text


def test_a_graph_without_links_has_no_moves(processor):
    graph = Weighted.of(Adjacency.from_pairs(np.zeros((0, 2), np.int64), 4))
    with on_device(processor.info.spec, lambda: CONFIG) as mover:
        assert moved(graph, 1.0, np.random.default_rng(0), mover=mover).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["pocl", "no such device"])
def test_the_search_takes_threads_if_the_device_fails(middling, monkeypatch, tmp_path, name):
    monkeypatch.setattr("mmsbgen.sampler.starts.start_methods.MANY", 10)
    used = []
    real = device_moves._moving
    monkeypatch.setattr(device_moves, "_moving", lambda *given: used.append(1) or real(*given))
    adjacency = middling.training_adjacency
    with (tmp_path / "links").open("w+b") as links:
        for array in (adjacency.offsets, adjacency.neighbours):
            np.save(links, array)
        links.seek(0)
        *warnings, start = search_process.find(
            middling.graph.n_vertices, 5, 1, name, ["communities"], links, lambda: CONFIG
        )
    right = STARTS["communities"](middling, 5, 1)
    assert same(start, right)
    assert bool(used) == (name == "pocl")
    assert [text.split(",")[0] for text in warnings] == [
        "vertices move in threads when starts are sought" for _ in range(name != "pocl")
    ]
