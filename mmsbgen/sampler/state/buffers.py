"""Device arrays other than the state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mmsbgen.families.mmsb.axes.small_spaces import edge_set_arguments
from mmsbgen.graph import EdgeSet, Split
from mmsbgen.sampler.state.arrays import Spec, content
from mmsbgen.sampler.state.device_state import StateShape

#: Blocks that sum the log-likelihoods of the held-out pairs.
HELD_OUT_BLOCKS = 16
#: Links processed at a time when finding the communities that explain them.
EXPLAINED = 1 << 18
#: Most sparse rows read at a time.
GATHERED = 1 << 16
#: Most shares computed at a time over all links, and most communities for each end of a link.
EXPLAINED_AT, MOST_AT = 1 << 22, 256


@dataclass(frozen=True)
class Capacity:
    """Sizes of mini-batch arrays.

    ``vertices`` and ``pairs`` are those of the largest mini-batch, ``rounds`` the number of mini-batches held,
    ``listed`` the vertices held of all of them, and ``groups`` the groups of theta's counts.
    """

    vertices: int
    listed: int
    rounds: int
    pairs: int
    groups: int


def specs(split: Split, shape: StateShape, capacity: Capacity, export_rows: int) -> list[Spec]:
    """All arrays except those of the state and of partners."""
    real, m, rounds = shape.real, capacity.vertices, capacity.rounds
    pairs = max(capacity.pairs, rounds * m)
    kept = split.validation.pairs
    count = max(1, len(kept))
    return [
        content("neighbour_offsets", "adjacency", split.training_adjacency.offsets.view(np.uint64)),
        content("neighbours", "adjacency", split.training_adjacency.neighbours),
        Spec("vertices", "mini-batch", (capacity.listed,), np.uint32),
        Spec("centres", "mini-batch", (rounds,), np.uint32),
        Spec("sizes", "mini-batch", (rounds,), np.uint32),
        Spec("star_weights", "mini-batch", (rounds,), real),
        Spec("clip_counts", "mini-batch", (m,), np.uint32),
        Spec("pairs_a", "mini-batch", (pairs,), np.uint32),
        Spec("pairs_b", "mini-batch", (pairs,), np.uint32),
        Spec("pair_weights", "mini-batch", (pairs,), real),
        Spec("counts", "theta counts", (capacity.groups, 2, shape.row), real),
        *_export(split, shape, export_rows),
        content("pairs_a", "held-out pairs", kept[:, 0].astype(np.uint32), held_out=True),
        content("pairs_b", "held-out pairs", kept[:, 1].astype(np.uint32), held_out=True),
        content("labels", "held-out pairs", split.validation.labels.astype(np.uint32), held_out=True),
        Spec("probabilities", "held-out pairs", (count,), np.float64, held_out=True),
        Spec("published", "held-out pairs", (count,), np.float64, held_out=True),
        Spec("sums", "held-out pairs", (count,), np.float64, held_out=True),
        Spec("partial", "held-out pairs", (HELD_OUT_BLOCKS, 6), np.float64, held_out=True),
    ]


def _export(split: Split, shape: StateShape, rows: int) -> list[Spec]:
    """Arrays through which rows are read."""
    if not shape.entries:
        return [
            Spec("rows", "export", (rows, shape.row), shape.real),
            Spec("row_sums_out", "export", (rows,), shape.real),
        ]
    size = min(shape.n_vertices, GATHERED)
    return [
        Spec("wanted", "export", (size,), np.uint32),
        Spec("found_communities", "export", (size, shape.entries), np.uint32),
        Spec("found_values", "export", (size, shape.entries), shape.real),
        Spec("explained_links", "export", (shape.n_vertices, shape.entries), shape.real),
    ]


def explained_specs(n_links: int, shape: StateShape) -> list[Spec]:
    """Arrays for the communities that explain links: ends, best community and its share, and selected shares."""
    size = (max(1, min(n_links, EXPLAINED)),)
    places = (max(1, min(EXPLAINED_AT, size[0] * 2 * min(MOST_AT, shape.k))),)
    ends = [Spec(f"explained_{end}", "explained links", size, np.uint32) for end in "ab"]
    return [
        *ends,
        Spec("best", "explained links", size, np.uint32),
        Spec("shares", "explained links", size, shape.real),
        Spec("explained_places", "explained links", places, np.uint32),
        Spec("explained", "explained links", places, shape.real),
    ]


def edge_set_scalars(links: EdgeSet, held: EdgeSet) -> dict[str, Any]:
    """Scalar kernel arguments of both edge sets."""
    both = edge_set_arguments("link", links) | edge_set_arguments("held", held)
    return {name: value for name, value in both.items() if not isinstance(value, np.ndarray)}
