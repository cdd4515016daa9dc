"""What leaves the sampler."""

from __future__ import annotations

import numpy as np
import pytest

from mmsbgen.sampler.diagnostics.state_rows import row_source


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
