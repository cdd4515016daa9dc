"""New rows of stars whose partners are labelled are written where the old ones were; all others are exchanged."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.mark.parametrize(("partners", "in_place"), [("shared-uniform", True), ("shared", False), ("uniform", False)])
def test_rows_stay_in_their_slots_where_no_other_row_is_read(processor, chain, middling, partners, in_place):
    sampler = chain(processor, middling, mini_batch="random-node", mini_batch_size=30, partners=partners, n_partners=16)
    sampler.initialise()
    n = middling.graph.n_vertices
    before, _ = sampler.rows(0, n)
    moved = np.zeros(n, bool)
    for _ in range(5):
        batch = sampler.step()
        vertices = sampler.device.download_range(
            sampler.values["vertices"], batch.first, batch.first + batch.n_vertices
        )
        moved[vertices] = True
    after, _ = sampler.rows(0, n)
    slots = sampler.device.download(sampler.values["slots"])
    assert sampler.partners.in_place == in_place
    assert np.array_equal(slots, np.arange(n)) == in_place
    assert np.array_equal(np.any(after != before, axis=1), moved)
    assert moved.any()
