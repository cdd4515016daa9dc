"""What leaves the sampler."""

from __future__ import annotations

import numpy as np
import pytest

from mmsbgen.sampler.diagnostics.convergence import StabilityWatch
from mmsbgen.sampler.diagnostics.memberships import Memberships
from mmsbgen.sampler.diagnostics.state_rows import row_source


def test_a_vertex_in_two_communities_keeps_both(monkeypatch):
    """Which of two nearly equal shares is the larger changes; of vertex 3, the largest share left its community."""
    monkeypatch.setattr("mmsbgen.sampler.diagnostics.convergence._ROWS", 1)
    watch = StabilityWatch()
    watch.moments = [(10, np.array([0, 1, 2, 0])), (20, np.array([1, 1, 0, 0]))]  # vertex 1 is in no snapshot
    indices = np.array([[1, 0], [0, 1], [1, 0], [0, 2], [0, 1]], np.int32)
    values = np.array([[0.55, 0.45], [0.5, 0.5], [0.9, 0.1], [0.8, 0.2], [0.6, 0.4]])
    found = Memberships(np.arange(5), indices, values, np.ones(3))
    assert watch.agreement(0, found, np.array([1])) == 0.75


@pytest.mark.opencl
@pytest.mark.parametrize("average", [False, True])
def test_rows_of_any_vertices(processor, chain, middling, average):
    sampler = chain(processor, middling, average=average)
    sampler.initialise()
    for _ in range(5):
        sampler.step()
        if average:
            sampler.accumulate()
    n = sampler.shape.n_vertices
    right = sampler.rows(0, n, mean=True)[0]
    assert not np.array_equal(right, sampler.rows(0, n)[0]) or not average
    slots = sampler.device.download(sampler.values["slots"])
    assert not np.array_equal(slots, np.arange(n)), "rows are not in the order of vertices"
    more_than_fit = np.random.default_rng(1).integers(0, n, 3 * n + 1)
    rows = row_source(sampler)
    held = sampler.device.allocated
    assert np.array_equal(rows(more_than_fit), right[more_than_fit])
    assert rows(more_than_fit[:0]).shape == (0, sampler.shape.k)
    assert sampler.device.allocated == held
