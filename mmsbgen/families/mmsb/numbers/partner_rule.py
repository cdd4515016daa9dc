"""Rules for drawing partners and non-links, shared by the sampler, the reference and the tests."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mmsbgen.families.mmsb.numbers import counter_random

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PartnerRule:
    """Rule for drawing partners: ``name`` is a value of the problem's ``partners``; ``n``, ``n_link`` are counts."""

    name: str
    n: int
    n_link: int = 0
    seed: int = 0
    iteration: int = 0

    @property
    def shared(self) -> bool:
        """Whether all vertices of a mini-batch have the same draws."""
        return self.name in ("block", "shared", "shared-uniform")


def distinct_non_links(
    centre: int, n_total: int, refused: Collection[int], count: int, seed: int, iteration: int
) -> Ints:
    """The first ``count`` vertices of a random permutation, without ``centre`` and the ``refused`` vertices."""
    order = counter_random.permuted(seed, centre, iteration, n_total)
    kept = order[~np.isin(order, np.fromiter({centre, *refused}, np.int64))]
    return kept[:count]
