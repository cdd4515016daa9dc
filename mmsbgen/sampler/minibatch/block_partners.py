"""Block mini-batches on a device: what they need beside the state, and their stages 2 and 3.

A block's vertices share their partners, so that no vertex has a list of its own: one launch draws the partners, one
sums what they contribute as two dense products, one adds the links and ends the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mmsbgen.families.mmsb.blocks import tensor_kernels
from mmsbgen.families.mmsb.numbers.problem_sizes import room
from mmsbgen.graph import Split
from mmsbgen.kernels.problem import Problem
from mmsbgen.sampler.minibatch.partners import Launch, half_wide, held_adjacency
from mmsbgen.sampler.state.buffers import Spec
from mmsbgen.sampler.state.device_state import StateShape

#: block_links as it ends rows in the sweeps that draw after those that do not.
LINKS, LINKS_DRAWN = "block_links", "block_links draws"


def theta_scales(per_sweep: int, non_link_factor: float, real: np.dtype[Any]) -> dict[str, Any]:
    """By what a block's counts become those of all pairs.

    A vertex is in one of ``per_sweep`` blocks, and both ends of a pair count it.
    """
    half = 0.5 * per_sweep
    return {"non_link_scale": real.type(half * non_link_factor), "link_scale": real.type(half)}


class BlockSharedPartners:
    """Partners that the vertices of a block share."""

    in_place = False

    def __init__(self, split: Split, shape: StateShape, problem: Problem) -> None:
        self._split, self._shape, self._problem = split, shape, problem
        half = problem["products"] == "half"
        self._products = tuple(spec.name for spec in tensor_kernels.KERNELS) if half else ("block_shared",)

    @property
    def kernels(self) -> tuple[str, ...]:
        """The draws, the products in single precision or on tensor cores, the ends of the rows."""
        return ("shared_partners", *self._products, LINKS)

    @property
    def bytes_each(self) -> int:
        """Nothing is drawn ahead."""
        return 0

    def specs(self, rounds: int) -> list[Spec]:
        """The arrays that block mini-batches have instead of lists of partners and edge sets."""
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
        """One launch for one iteration."""
        queue("partners", "shared_partners", 1, values)

    def update(self, queue: Launch, count: int, values: dict[str, Any], draws: bool) -> None:
        """The products, then links and the ends of the rows."""
        for name in (*self._products, LINKS_DRAWN if draws else LINKS):
            queue("update_phi", name, count, values)
