"""What tests of the estimator share: a small graph, a short fit."""

from __future__ import annotations

from typing import Any

from mmsbgen import MMSB
from tests.devices import PROCESSOR

RING = [(a, (a + step) % 30) for a in range(30) for step in (1, 2)]
# So few iterations leave no evidence of members, but shares.
FAST = {"device": PROCESSOR, "rule": "share", "iterations": 6, "start": "random", "mini_batch_size": 8, "n_partners": 4}


def fast(k: int = 5, **params: Any) -> MMSB:
    """An estimator that fits ``RING`` in a moment."""
    return MMSB(k, **{**FAST, **params})


def of_four_shares() -> MMSB:
    """A fit of 20 communities, of which every vertex keeps four shares."""
    return fast(20, top=4, random_state=3).fit(RING)
