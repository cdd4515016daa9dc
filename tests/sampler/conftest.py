"""A small graph with everything awkward in it, and chains on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from mmsbgen.backends import Device
from mmsbgen.base import processes
from mmsbgen.families.mmsb import MMSB
from mmsbgen.graph import Graph, Split, split
from mmsbgen.graph.building import build_graph
from mmsbgen.kernels.runtime import Runtime
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.options.options import Options


def graph_of(n: int, links: list[tuple[int, int]]) -> Graph:
    pairs = np.array(links, np.int64)
    return build_graph(pairs[:, 0], pairs[:, 1], np.arange(n), name="small", directed=False)


@pytest.fixture(scope="session")
def awkward() -> Split:
    """Vertex 0 linked to all but the isolated 11, 12 and 13, so that it has few eligible non-links; six held out."""
    links = [(0, v) for v in range(1, 11)] + [(1, 2), (2, 3), (3, 4), (1, 4), (5, 6), (6, 7), (8, 9), (2, 9)]
    return split(graph_of(14, links), validation=0.17, seed=3)


@pytest.fixture(scope="session")
def middling() -> Split:
    """60 vertices, 200 links at random."""
    rng = np.random.default_rng(5)
    pairs = np.unique(np.sort(rng.integers(0, 56, (260, 2)), axis=1), axis=0)
    pairs = pairs[pairs[:, 0] < pairs[:, 1]]
    return split(graph_of(60, pairs.tolist()), validation=0.1, seed=1)


@pytest.fixture
def chain() -> Iterator[Callable[..., Sampler]]:
    """Make a chain on a device; all are closed at the end of the test."""
    made: list[Sampler] = []

    def make(device: Device, parts: Split, configs: dict | None = None, **options: object) -> Sampler:
        options = {"n_communities": 5, "seed": 11, "mini_batch": "random-node", "noise": True, **options}
        sampler = Sampler(parts, Options(**options), Runtime(device, MMSB, None, configs or {}))
        made.append(sampler)
        return sampler

    yield make
    for sampler in made:
        sampler.close()


@pytest.fixture
def set_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Sets the number of cores that threads are started for; later tests have their own again."""

    def set_to(number: int) -> None:
        monkeypatch.setattr(processes, "cores", lambda: number)
        processes._pool.cache_clear()

    yield set_to
    processes._pool.cache_clear()
