"""Rows of stars that end where they are, on a CUDA device, against rows that end in spare slots."""

from __future__ import annotations

import numpy as np
import pytest

from mmsbgen.families.mmsb import MMSB, star_ends
from mmsbgen.runtime import Runtime
from mmsbgen.sampler.options import Options
from mmsbgen.sampler.sampler import Sampler
from tests.sampler.test_iteration import everything


def started(device, parts, **options):
    """A chain of stars with labelled shared partners; close it."""
    given = {"n_communities": 40, "seed": 3, "mini_batch": "random-node", "mini_batch_size": 50, "n_partners": 64}
    sampler = Sampler(parts, Options(**given, partners="shared-uniform", **options), Runtime(device, MMSB))
    sampler.initialise()
    return sampler


@pytest.mark.parametrize(("step", "noise"), [("split", False), ("split", True), ("reflected", True)])
def test_rows_in_place_are_those_by_spare_slots(cuda_device, middling, monkeypatch, step, noise):
    options = {"step": step, "noise": noise, "products": "half"}
    here = started(cuda_device, middling, **options)
    monkeypatch.setattr(star_ends, "usable", lambda problem, traits: False)
    spare = started(cuda_device, middling, **options)
    try:
        assert here.partners.in_place
        assert not spare.partners.in_place
        assert "star_rows" not in here.kernels
        before = everything(here)[0]
        for _ in range(5):
            here.step()
            spare.step()
        assert here.vertex_updates == spare.vertex_updates > 0
        assert np.array_equal(here.device.download(here.values["slots"]), np.arange(middling.graph.n_vertices))
        for x, y in zip(everything(here), everything(spare), strict=True):
            # Sums in another order; a draw that is on the verge falls to one side here and to the other there.
            close = np.isclose(x, y, rtol=2e-3, atol=1e-6)
            assert close.mean() > 0.999
        assert not np.array_equal(everything(here)[0], before)
    finally:
        here.close()
        spare.close()
