"""A draw from the model is found again."""

from __future__ import annotations

import numpy as np
import pytest

import mmsbgen
from mmsbgen.backends import Device
from mmsbgen.scores import evaluate
from tests.sampler.test_statistics import planted


@pytest.mark.parametrize(("noise", "seed"), [(False, 0), (True, 1)], ids=["optimised", "sampled"])
def test_planted_communities_are_found(chain_device: Device, noise: bool, seed: int) -> None:
    """N = 400, K = 4, beta = 0.3: of four random starts the one that the held-out pairs prefer.

    alpha = 0.02 leaves few members near the threshold. At 0.05 the exact posterior of each vertex, given the truth
    about all others, finds 0.88 to 0.90 in such graphs: no sampler can tell who is a member there.
    """
    pi, links = planted(alpha=0.02, seed=seed)
    right = [np.flatnonzero(pi[:, k] > 0.2).tolist() for k in range(4)]
    runs = [
        mmsbgen.detect(
            links,
            n_communities=4,
            random_state=start,
            device=chain_device.info.spec,
            rule="threshold",
            threshold=0.2,
            start="random",
            mini_batch="block",
            mini_batch_size=400,
            n_partners=512,
            iterations=100 if noise else 60,
            noise=noise,
            average=noise,
            evaluate_every=20,
            validation=0.05,
            delta=1e-3,
        )
        for start in range(4)
    ]
    best = max(runs, key=lambda run: run.trace[-1]["log_likelihood"])
    assert evaluate(best.communities, right, range(400)).onmi > 0.9
    assert np.all(np.abs(best.memberships.beta - 0.3) < 0.08)
