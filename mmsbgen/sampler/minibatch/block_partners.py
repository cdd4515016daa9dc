"""Partners of block mini-batches: their device arrays, and stages 2 and 3.

All vertices of a block share their partners.  One launch draws the partners, one sums their contributions as two
dense products, and one adds the links and completes the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mmsbgen.families.mmsb.blocks import tensor_kernels
from mmsbgen.families.mmsb.numbers.row_layout import room
from mmsbgen.graph import Split
from mmsbgen.kernels.problem import Problem
from mmsbgen.sampler.minibatch.partners import Launch, half_wide, held_adjacency
from mmsbgen.sampler.state.arrays import Spec
from mmsbgen.sampler.state.device_state import StateShape

#: The kernel that completes rows, without noise and with the noise of sampling sweeps.
LINKS, LINKS_DRAWN = "block_links", "block_links draws"
#: The kernel that moves theta: to its expected counts, and with the noise of sampling sweeps.
THETA, THETA_DRAWN = "theta_end", "theta_end draws"


def theta_scales(per_sweep: int, non_link_factor: float, real: np.dtype[Any]) -> dict[str, Any]:
    """Factors that scale a block's counts to all pairs.

    A vertex is in one of ``per_sweep`` blocks, and a pair is counted by both of its ends.
    """
    half = 0.5 * per_sweep
    return {"non_link_scale": real.type(half * non_link_factor), "link_scale": real.type(half)}


class BlockSharedPartners:
    """Partners shared by the vertices of a block."""

    in_place = False
    bytes_each = 0

    def __init__(self, split: Split, shape: StateShape, problem: Problem) -> None:
        self._split, self._shape, self._problem = split, shape, problem
        half = problem["products"] == "half"
        self._products = tuple(spec.name for spec in tensor_kernels.KERNELS) if half else ("block_shared",)
        self.kernels = ("shared_partners", *self._products, LINKS)

    def specs(self, rounds: int) -> list[Spec]:
        """The arrays of shared partners, which replace partner lists and edge sets."""
        length = room(self._problem)
        return [
            *half_wide(self._problem, self._shape),
            *held_adjacency(self._split),
            Spec("places", "partners", (self._shape.n_vertices,), np.uint32),
            *(Spec(name, "partners", (length,), np.uint32) for name in ("draws", "times", "drawn", "shared")),
            Spec("shared_weights", "partners", (length,), self._shape.real),
            Spec("n_shared", "partners", (1,), np.uint32),
        ]

    def draw(self, queue: Launch, rounds: int, places: int, values: dict[str, Any]) -> None:
        """Queue one launch for one iteration."""
        queue("partners", "shared_partners", 1, values)

    def update(self, queue: Launch, count: int, values: dict[str, Any], draws: bool) -> None:
        """Queue the products, then the links and the completion of rows."""
        for name in (*self._products, LINKS_DRAWN if draws else LINKS):
            queue("update_phi", name, count, values)
