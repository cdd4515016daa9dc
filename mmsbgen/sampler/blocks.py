"""Block mini-batches on a device: what they need beside the state, and their stages 2 and 3.

A block's vertices share their partners, so that no vertex has a list of its own: one launch draws the partners, one
sums what they contribute as two dense products, one adds the links and ends the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mmsbgen.families.mmsb import tensor_kernels
from mmsbgen.families.mmsb.block_workloads import room
from mmsbgen.families.mmsb.tensor_workloads import half_room, half_row
from mmsbgen.graph import Split
from mmsbgen.problem import Problem
from mmsbgen.sampler.buffers import Spec, content
from mmsbgen.sampler.state import Shape

#: The kernels that sum what shared partners contribute, in their order: in single precision, or on tensor cores.
_PRODUCTS = {"single": ("block_shared",), "half": tuple(spec.name for spec in tensor_kernels.KERNELS)}


def kernels(problem: Problem) -> tuple[str, ...]:
    """The kernels of stages 2 and 3, in their order."""
    return ("shared_partners", *_PRODUCTS[str(problem["products"])], "block_links")


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
        *_half_wide(problem, shape),
        content("held_offsets", "adjacency", held.offsets.view(np.uint64)),
        content("held_neighbours", "adjacency", held.neighbours),
        Spec("places", "partners", (shape.n_vertices,), np.uint32),
        *(Spec(name, "partners", (length,), np.uint32) for name in ("draws", "times", "drawn", "shared")),
        Spec("shared_weights", "partners", (length,), shape.real),
        Spec("n_shared", "partners", (1,), np.uint32),
    ]


def _half_wide(problem: Problem, shape: Shape) -> list[Spec]:
    """What tensor cores multiply, two numbers a word."""
    if problem["products"] == "single":
        return []
    row, length, m = half_row(problem) // 2, half_room(problem), shape.slots - shape.n_vertices
    sizes = {"own_factors": (m, row), "shared_factors": (length, row), "shared_rows": (length, row)}
    sizes["scales"] = (m, length // 2)
    return [Spec(name, "products", size, np.uint32) for name, size in sizes.items()]


def launch(queue: Launch, problem: Problem, count: int, values: dict[str, Any], links: str = "block_links") -> None:
    """Queue stages 2 and 3 of an iteration of ``count`` vertices; the new rows are in its spare slots then.

    ``links`` is the kernel that ends the rows.
    """
    queue("partners", "shared_partners", 1, values)
    for name in _PRODUCTS[str(problem["products"])]:
        queue("update_phi", name, count, values)
    queue("update_phi", links, count, values)
