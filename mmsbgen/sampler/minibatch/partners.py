"""Partners of a mini-batch's vertices, and phi's update from them.

Either each vertex has its own list (``uniform``, ``stratified``), or the vertices of a star share their partners
(``shared``, ``shared-uniform``).  With shared partners no pair is looked up and the gradient is two dense products;
links are added separately (``shared``) or labelled among the partners (``shared-uniform``).  Sparse rows have all
vertices as partners.  For blocks see :mod:`mmsbgen.sampler.minibatch.block_partners`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from mmsbgen.backends.base import Event
from mmsbgen.families.mmsb.numbers.row_layout import half_room, half_row, room
from mmsbgen.families.mmsb.stars import star_kernels
from mmsbgen.families.mmsb.stars.star_kernels import LABELS
from mmsbgen.graph import EdgeSet, Split
from mmsbgen.kernels.problem import Problem
from mmsbgen.sampler.state.arrays import Spec, content
from mmsbgen.sampler.state.device_state import StateShape

Launch = Callable[[str, str, int, dict[str, Any]], Event]


class Partners(Protocol):
    """Kernels, arrays and launches of stages 2 and 3."""

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the kernels, in launch order."""

    @property
    def bytes_each(self) -> int:
        """Bytes per iteration drawn in advance."""

    @property
    def in_place(self) -> bool:
        """Whether new rows replace the old ones in place instead of using spare slots."""

    def specs(self, rounds: int) -> list[Spec]:
        """The arrays for ``rounds`` iterations, without the adjacency of training links."""

    def draw(self, queue: Launch, rounds: int, places: int, values: dict[str, Any]) -> None:
        """Queue the draws of ``rounds`` iterations with room for ``places`` vertices in total.

        ``values`` holds the first ``iteration``.
        """

    def update(self, queue: Launch, count: int, values: dict[str, Any], draws: bool) -> None:
        """Queue phi's update of ``count`` vertices; new rows go to spare slots, unless ``in_place``.

        ``draws`` adds noise in the sampling sweeps of a run that otherwise has none.
        """


class OwnPartners:
    """A separate list of ``n`` partners for each vertex; every pair is looked up."""

    kernels = ("sample_partners", "update_phi")
    in_place = False

    def __init__(self, links: EdgeSet, held: EdgeSet, shape: StateShape, n: int) -> None:
        self._sets, self._listed, self._real = (links, held), shape.spare_rows * n, shape.real
        self.bytes_each = self._listed * (4 + self._real.itemsize)

    def specs(self, rounds: int) -> list[Spec]:
        """Edge sets and partner lists."""
        return [
            *edge_sets(*self._sets),
            Spec("partners", "partners", (rounds * self._listed,), np.uint32),
            Spec("weights", "partners", (rounds * self._listed,), self._real),
        ]

    def draw(self, queue: Launch, rounds: int, places: int, values: dict[str, Any]) -> None:
        """Queue one launch for all vertices of these iterations."""
        queue("partners", "sample_partners", places, values)

    def update(self, queue: Launch, count: int, values: dict[str, Any], draws: bool) -> None:
        """Queue one launch."""
        queue("update_phi", "update_phi", count, values)


class StarSharedPartners:
    """Partners shared by the vertices of a star."""

    def __init__(self, split: Split, links: EdgeSet, held: EdgeSet, shape: StateShape, problem: Problem) -> None:
        self._split, self._sets, self._shape, self._problem = split, (links, held), shape, problem
        half = problem["products"] == "half"
        self._drawn = ("draw_shared", star_kernels.AHEAD.name) if half else ("draw_shared",)
        products = tuple(spec.name for spec in star_kernels.KERNELS) if half else ("star_shared",)
        self._update = (*products, "star_rows")
        self.kernels = (*self._drawn, *self._update)
        # The last kernel reads rows of other vertices of the mini-batch only if links have their own stratum.
        self.in_place = problem["partners"] == LABELS

    @property
    def bytes_each(self) -> int:
        """Bytes of an iteration's partners, of every vertex's index among them, and of the pair bits."""
        marks = self._problem["products"] == "half"
        looked_up = self._shape.spare_rows * half_room(self._problem) // 4 if marks else 0
        return 4 * (self._shape.n_vertices + 1) + room(self._problem) * (12 + self._shape.real.itemsize) + looked_up

    def specs(self, rounds: int) -> list[Spec]:
        """Edge sets, drawn partners, and held-out pairs by vertex."""
        length, real = room(self._problem), self._shape.real
        return [
            *edge_sets(*self._sets),
            *held_adjacency(self._split),
            *half_wide(self._problem, self._shape, rounds),
            Spec("places", "partners", (rounds, self._shape.n_vertices), np.uint32),
            *(Spec(name, "partners", (rounds, length), np.uint32) for name in ("draws", "times", "drawn")),
            Spec("shared_weights", "partners", (rounds, length), real),
            Spec("n_shared", "partners", (rounds,), np.uint32),
        ]

    def draw(self, queue: Launch, rounds: int, places: int, values: dict[str, Any]) -> None:
        """Queue the draws, then (on tensor cores) the marks of pairs that must not count."""
        queue("partners", "draw_shared", rounds, values | {"n_rounds": np.uint32(rounds)})
        for name in self._drawn[1:]:
            queue("partners", name, places, values)

    def update(self, queue: Launch, count: int, values: dict[str, Any], draws: bool) -> None:
        """Queue the products, then the links and the completion of rows."""
        for name in self._update:
            queue("update_phi", name, count, values)


#: The kernel that sweeps over sparse rows, without noise and with the noise of sampling sweeps.
SWEEP, SWEEP_DRAWN = "sparse_rows", "sparse_draws"


class AllPartners:
    """All vertices as partners, to first order, in sweeps over sparse rows: non-links count by the sums of columns.

    New rows are in their places when the state has exchanged its arrays
    (:meth:`mmsbgen.sampler.state.sparse_state.SparseState.exchange`).
    """

    kernels = (SWEEP, "sparse_totals")
    in_place = True
    bytes_each = 0

    def specs(self, rounds: int) -> list[Spec]:
        """No arrays but those of the state."""
        return []

    def draw(self, queue: Launch, rounds: int, places: int, values: dict[str, Any]) -> None:
        """Nothing is drawn."""

    def update(self, queue: Launch, count: int, values: dict[str, Any], draws: bool) -> None:
        """Queue the sweep, then the sums."""
        for name in (SWEEP_DRAWN if draws else SWEEP, "sparse_totals"):
            queue("update_phi", name, count, values)


def edge_sets(links: EdgeSet, held: EdgeSet) -> list[Spec]:
    """Arrays of the edge sets for looking up pairs."""
    return [
        content("link_buckets", "edge sets", links.buckets),
        content("held_buckets", "edge sets", held.buckets),
    ]


def held_adjacency(split: Split) -> list[Spec]:
    """Arrays of the held-out pairs by vertex."""
    held = split.held_out_adjacency
    return [
        content("held_offsets", "adjacency", held.offsets.view(np.uint64)),
        content("held_neighbours", "adjacency", held.neighbours),
    ]


def half_wide(problem: Problem, shape: StateShape, rounds: int = 0) -> list[Spec]:
    """Operands of tensor cores, two numbers per word; for stars also pair bits for ``rounds`` iterations."""
    if problem["products"] == "single":
        return []
    row, length, m = half_row(problem) // 2, half_room(problem), shape.spare_rows
    sizes: dict[str, tuple[int, ...]] = {"own_factors": (m, row), "shared_factors": (length, row)}
    sizes |= {"shared_rows": (length, row), "scales": (m, length // 2)}
    if rounds:
        sizes |= dict.fromkeys(("marked", "labelled"), (rounds, m, length // 32))
    return [Spec(name, "products", size, np.uint32) for name, size in sizes.items()]
