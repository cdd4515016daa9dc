"""Layouts of tables and the smallest gain, shared by the kernels of local moving and their callers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

#: Gain, relative to the weight, that is none: rounding may give as much.
NO_GAIN = 1e-9


def table_places(degrees: npt.NDArray[Any], slots: int) -> tuple[npt.NDArray[np.uint64], int]:
    """The offset ``[V]`` of each vertex's table for its degree ``[V]``, and the length of all tables together.

    Vertices whose labels have room in ``slots`` places have no table in global memory.
    """
    numbers = np.where(2 * degrees > slots, 4 * degrees, 0)
    ends = np.cumsum(numbers)
    return (ends - numbers).astype(np.uint64), int(ends[-1]) if ends.size else 0


def label_places(labels: npt.NDArray[Any], degrees: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Where the table of each label ``[L + 1]`` begins, by labels and degrees ``[N]`` of the vertices.

    Labels count from 0 without gaps.  A table has two places for each link of the label's vertices or for each label.
    """
    links = np.bincount(labels, degrees).astype(np.int64)
    sizes = 2 * np.minimum(links, links.size)
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.uint64)
