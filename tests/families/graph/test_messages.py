"""Belief propagation's kernels: numbers of states at both ends, hubs, and rounds that go on from others."""

from __future__ import annotations

import numpy as np
import pytest

from mmsbgen.backends import Device
from mmsbgen.base.errors import ConfigError
from mmsbgen.families import family
from mmsbgen.families.graph.generated import workload
from mmsbgen.families.graph.messages.message_kernels import one_round, simple
from mmsbgen.kernels.build import build, check_built, release, traits_of, upload
from tests.families.graph.shapes import arcs, random_graphs, shapes

GRAPH = family("graph")
SPEC = GRAPH.kernel("messages")


@pytest.mark.parametrize(
    ("states", "config", "product"),
    [
        (1, None, "sum"),
        (3, {"block_size": 64, "lanes": 8}, "sum"),
        (3, {"block_size": 64, "lanes": 4}, "max"),
        (64, {"block_size": 8, "lanes": 1}, "sum"),
        (33, None, "max"),
    ],
)
def test_any_number_of_states(states: int, config: dict[str, int] | None, product: str, opencl_device: Device) -> None:
    problem = GRAPH.problem(features=states, dtype="float32", n=300, product=product)
    traits = traits_of(opencl_device.info)
    bound = build(opencl_device, SPEC, problem, config or SPEC.default(problem, traits))
    assert check_built(opencl_device, bound) is None
    hub = arcs([(0, leaf) for leaf in range(1, 2001)], 2001)
    random = dict(enumerate(graph for graph, _ in random_graphs(10)))
    for shape, graph in ({"hub": hub} | random if states == 3 else {"path": shapes()["path"]}).items():
        given = workload("messages", graph, problem, 0)
        placed = upload(opencl_device, given)
        bound.launch(given.count, placed).wait()
        got = {name: opencl_device.download(placed[name]) for name in SPEC.written}
        release(placed)
        assert given.verify(got, bound.config) is None, shape


def test_more_states_than_kernels_are_made_for_are_refused(pocl_device: Device) -> None:
    problem = GRAPH.problem(features=65)
    with pytest.raises(ConfigError, match="messages have at most 64 states"):
        build(pocl_device, SPEC, problem, SPEC.default(problem, traits_of(pocl_device.info)))


def test_links_count_once_and_both_ways() -> None:
    graph = simple(arcs([(0, 1), (1, 0), (0, 1), (2, 2), (3, 1)], 5, directed=True))
    assert (graph.offsets.tolist(), graph.targets.tolist()) == ([0, 1, 3, 3, 4, 4], [1, 0, 3, 1])
    assert simple(graph) is graph
    assert simple(arcs([], 0)).n_vertices == 0


def test_the_reference_is_exact_on_a_link() -> None:
    """After a round of messages: the marginals of a link, its pairs and its partition function."""
    rng = np.random.default_rng(1)
    coupling = rng.uniform(0.1, 2, (3, 3))
    coupling, priors = coupling + coupling.T, rng.uniform(0.1, 2, (2, 3))
    link, joint = simple(arcs([(0, 1)], 2)), priors[0][:, None] * coupling * priors[1]
    messages = np.zeros((2, 3))
    for _ in range(2):
        found = one_round(link, coupling, np.log(priors), messages, 0.0, 0.0, np.zeros((2, 3)))
        messages = found.messages
    assert np.exp(found.beliefs) == pytest.approx(np.stack([joint.sum(1), joint.sum(0)]) / joint.sum())
    assert found.pairs == pytest.approx(joint / joint.sum())
    assert found.energy == pytest.approx(np.log(joint.sum()))
    assert found.change == pytest.approx(0)
    messages = np.zeros((2, 3))
    for _ in range(2):
        found = one_round(link, coupling, np.log(priors), messages, 0.0, 0.0, np.zeros((2, 3)), best=True)
        messages = found.messages
    assert np.exp(found.beliefs) == pytest.approx(np.stack([joint.max(1), joint.max(0)]) / joint.max())
    assert found.energy == pytest.approx(np.log(joint.max()))
