"""Does it find what is there: a planted model, and the law of a chain without data."""

from __future__ import annotations

import numpy as np
import pytest

from mmsbgen.detection.detect import Request, perform
from mmsbgen.graph.building import build_graph
from mmsbgen.sampler.options.schedule import Schedule
from tests.devices import PROCESSOR

pytestmark = pytest.mark.opencl


def planted(n=400, k=4, beta=0.3, alpha=0.05, delta=1e-3, seed=0):
    """A draw from the model: memberships [N, K] and links [E, 2]."""
    rng = np.random.default_rng(seed)
    pi = rng.dirichlet(np.full(k, alpha), n)
    a, b = np.triu_indices(n, 1)
    same = (pi[a] * pi[b]).sum(axis=1)
    linked = rng.random(a.size) < beta * same + delta * (1 - same)
    return pi, np.stack([a[linked], b[linked]], axis=1)


def f1(found: list[set[int]], right: list[set[int]]) -> float:
    """The mean over both covers of every community's best F1 in the other."""

    def one_way(these, those):
        return np.mean([max(2 * len(x & y) / (len(x) + len(y)) for y in those) for x in these])

    return float(one_way(found, right) + one_way(right, found)) / 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "starts"),
    [
        ({"mini_batch": "block", "iterations": 100, "average": True}, 2),
        ({"iterations": 1500, "average": True}, 2),
        ({"mini_batch": "random-node", "partners": "shared", "iterations": 1500, "average": True}, 3),
    ],
    ids=["averaged", "defaults", "shared by stars"],
)
def test_planted_communities_are_found(options, starts):
    """A random start may end in a poorer optimum: of several, held-out pairs tell which to keep.

    Runs of blocks without noise are in tests/statistics/test_planted.py.
    """
    pi, links = planted()
    graph = build_graph(links[:, 0], links[:, 1], np.arange(400), name="planted", directed=False)
    right = [set(np.flatnonzero(pi[:, k] > 0.2).tolist()) for k in range(4)]
    runs = []
    for seed in range(starts):
        given = {"n_communities": 4, "seed": seed, "validation": 0.05, "delta": 1e-3, "evaluate_every": 20, **options}
        runs.append(perform(graph, Request(given, device=PROCESSOR)))
    best = max(runs, key=lambda run: run.trace[-1]["log_likelihood"])
    assert f1([set(c) for c in best.communities], right) > 0.9
    assert np.all(np.abs(best.memberships.beta - 0.3) < 0.08)


class _Nothing:
    """In place of the partners: no pair has any weight, so that only the prior is left."""

    def __init__(self, kernel, device):
        self.kernel, self.device = kernel, device

    def launch(self, count, values):
        return self.device.mark()


@pytest.mark.parametrize(
    ("mini_batch", "partners"),
    [("block", "uniform"), ("random-node-non-link", "uniform"), ("random-node-non-link", "shared")],
)
def test_without_data_the_split_step_keeps_the_prior(pocl_device, chain, middling, mini_batch, partners):
    """Row sums are Gamma(K alpha) = Gamma(1), and rows Dirichlet(alpha), whatever the step size."""
    k = 10
    sampler = chain(
        pocl_device,
        middling,
        n_communities=k,
        mini_batch=mini_batch,
        partners=partners,
        mini_batch_size=60,
        schedule=Schedule(1.0, 1.0, 0.0),
    )
    drawn = sampler.partners.kernels[0]
    sampler.kernels[drawn] = _Nothing(sampler.kernels[drawn], sampler.device)
    if drawn != "sample_partners":
        # One partner, of weight 0, and no links.
        sampler.device.write(sampler.values["n_shared"], np.ones(1, np.uint32))
        sampler.device.write(sampler.values["neighbour_offsets"], np.zeros(61, np.uint64))
    sampler.initialise()
    sums, tops = [], []
    for iteration in range(800):
        sampler.step()
        if iteration >= 40 and iteration % 10 == 0:
            pi, total = (np.delete(part, sampler.left_out, axis=0) for part in sampler.rows(0, 60))
            sums.append(total.astype(np.float64))
            tops.append(pi.max(axis=1))
    # Ten iterations of tau = 1/2, in nine of which a star has a vertex, leave a correlation of 1 % at most; about 4500
    # draws of variance 1.
    draws = np.concatenate(sums)
    assert draws.mean() == pytest.approx(1.0, abs=5 / np.sqrt(draws.size))
    assert draws.var() == pytest.approx(1.0, abs=5 * np.sqrt(8 / draws.size))
    law = np.random.default_rng(0).dirichlet(np.full(k, 1 / k), 20000).max(axis=1)
    found = np.concatenate(tops)
    assert found.mean() == pytest.approx(law.mean(), abs=5 * law.std() / np.sqrt(found.size))
