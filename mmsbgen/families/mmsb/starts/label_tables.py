"""Table layout and smallest gain, shared by the kernel best_labels and its callers."""

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
