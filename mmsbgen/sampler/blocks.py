"""Block mini-batches on a device: what they need beside the state, and their stages 2 and 3.

A block's vertices share their partners, so that no vertex has a list of its own: one launch draws the partners, one
sums what they contribute as two dense products, one adds the links and ends the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mmsbgen.families.mmsb.block_workloads import room
from mmsbgen.graph import Split
from mmsbgen.problem import Problem, Value
from mmsbgen.sampler.buffers import Spec, content
from mmsbgen.sampler.state import Shape

#: The kernels of stages 2 and 3, in their order.
KERNELS = ("shared_partners", "block_shared", "block_links")
#: Modes of theirs: rounding to bfloat16 is nothing that a record may decide.
MODES: dict[str, dict[str, Value]] = {"block_shared": {"product": "fma"}}

Launch = Callable[[str, str, int, dict[str, Any]], None]


def theta_scales(per_sweep: int, non_link_factor: float, real: np.dtype[Any]) -> dict[str, Any]:
    """By what a block's counts become those of all pairs.

    A vertex is in one of ``per_sweep`` blocks, and both ends of a pair count it.
    """
    half = 0.5 * per_sweep
    return {"non_link_scale": real.type(half * non_link_factor), "link_scale": real.type(half)}


def specs(split: Split, problem: Problem, shape: Shape) -> list[Spec]:
    """The arrays that block mini-batches have instead of lists of partners and edge sets."""
    held, length = split.held_out_adjacency, room(problem)
    return [
        content("held_offsets", "adjacency", held.offsets.view(np.uint64)),
        content("held_neighbours", "adjacency", held.neighbours),
        Spec("places", "partners", (shape.n_vertices,), np.uint32),
        *(Spec(name, "partners", (length,), np.uint32) for name in ("draws", "times", "drawn", "shared")),
        Spec("shared_weights", "partners", (length,), shape.real),
        Spec("n_shared", "partners", (1,), np.uint32),
    ]


def launch(queue: Launch, count: int, values: dict[str, Any], links: str = "block_links") -> None:
    """Queue stages 2 and 3 of an iteration of ``count`` vertices; the new rows are in its spare slots then.

    ``links`` is the kernel that ends the rows.
    """
    queue("partners", "shared_partners", 1, values)
    queue("update_phi", "block_shared", count, values)
    queue("update_phi", links, count, values)
