"""How rows of pi are stored: in the problem's real type, or in 16 bits, rounded stochastically.

Arithmetic is in float32 whatever the rows are stored in.  A value between two neighbours of the 16-bit type is stored
as the upper one with the chance that makes the expected stored value the value itself: random bits are added below
the last place that is kept, and what lies below is cut off.  These functions define the bits; the templates'
``narrow`` does the same.

* ``bfloat16`` is the upper half of a float32: 8 significant bits, every exponent.
* ``float16`` holds ``2**15 * pi``, as IEEE half precision: 11 significant bits down to 1.9e-9, then steps of 1.8e-12,
  and 0 below.  Without the factor steps of 6e-8 would begin at 6e-5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.families.mmsb.numbers import counter_random
from mmsbgen.families.mmsb.numbers.row_layout import Purpose

Array = npt.NDArray[Any]
#: Choices of the problem's ``storage``; the first is the type of the arithmetic.
STORAGES = ("float32", "bfloat16", "float16")
#: float16 holds pi times this power of two: pi is at most 1, and half precision ends at 65504.
HALF_SCALE = 2.0**15
#: Half precision is normal from here on; below, its steps are all of one size.
HALF_NORMAL = 2.0**-14


@dataclass(frozen=True)
class Storage:
    """One way to store rows: ``dtype`` is the NumPy type of the stored elements, raw bits where they are 16."""

    name: str
    dtype: np.dtype[Any]

    @property
    def narrow(self) -> bool:
        """Whether rows are stored in 16 bits."""
        return self.name != STORAGES[0]

    @property
    def step(self) -> float:
        """The largest distance of neighbours, relative to the value, where the type is normal."""
        return {"float32": 0.0, "bfloat16": 2.0**-7, "float16": 2.0**-10}[self.name]

    def values(self, stored: Array) -> Array:
        """What stored elements stand for, exactly: float32, or the stored array itself where it is no 16 bits."""
        if self.name == "bfloat16":
            return (stored.astype(np.uint32) << 16).view(np.float32)
        if self.name == "float16":
            return stored.view(np.float16).astype(np.float32) * np.float32(1.0 / HALF_SCALE)
        return stored

    def rounded(self, values: Array, bits: Array | int) -> Array:
        """Stored elements for non-negative ``values`` and random ``bits``, uniform integers below 2**16.

        Values are taken as float32.  For equal bits a larger value never gives a smaller element.
        """
        if not self.narrow:
            return values.astype(self.dtype)
        x = np.asarray(values, np.float32)
        if self.name == "bfloat16":
            return ((x.view(np.uint32) + np.asarray(bits, np.uint32)) >> 16).astype(np.uint16)
        y = x * np.float32(HALF_SCALE)
        drawn = np.asarray(bits, np.uint32)
        # The exponent's bias is 127 in float32 and 15 in half precision.
        normal = ((y.view(np.uint32) + (drawn >> 3)) >> 13) - np.uint32((127 - 15) << 10)
        even = ((np.minimum(y, np.float32(HALF_NORMAL)) * np.float32(2.0**40)).astype(np.uint32) + drawn) >> 16
        return np.where(y < np.float32(HALF_NORMAL), even, normal).astype(np.uint16)

    def nearest(self, values: Array) -> Array:
        """Stored elements nearest to ``values``; exact for those that the type has."""
        return self.rounded(values, 1 << 15)

    def drawn(self, values: Array, vertices: Array, seed: int, iteration: int, draw: int = 0) -> Array:
        """Rows ``[V, .]`` of ``vertices`` ``[V]``, rounded with an iteration's bits; ``draw`` tells draws apart."""
        if not self.narrow:
            return values.astype(self.dtype, copy=False)
        return self.rounded(values, random_bits(seed, values.shape[1], vertices, iteration, draw))


def random_bits(seed: int, k: int, vertices: Array, iteration: int, draw: int = 0) -> npt.NDArray[np.uint32]:
    """16 random bits ``[V, k]`` for every coordinate of the rows of ``vertices`` ``[V]``.

    A call of Philox, whose index is that of the coordinate divided by 8, serves eight coordinates, and a word of it
    two: its lower half the first one.
    """
    calls = np.arange(-(-k // 8))[None, :]
    words = np.stack(
        counter_random.philox(seed, calls, np.asarray(vertices)[:, None], iteration, (Purpose.storage << 24) + draw),
        axis=-1,
    ).astype(np.uint32)
    halves = np.stack([words & np.uint32(0xFFFF), words >> np.uint32(16)], axis=-1)
    return halves.reshape(len(words), -1)[:, :k]


def storage_named(name: str, dtype: str = "float32") -> Storage:
    """The storage called ``name`` of problems whose arithmetic is in ``dtype``."""
    return Storage(name, np.dtype(dtype if name == STORAGES[0] else np.uint16))


def storage_of(problem: Mapping[str, Any]) -> Storage:
    """The storage of a problem, which has the name only where it is not the first one."""
    return storage_named(str(problem.get("storage", STORAGES[0])), str(problem["dtype"]))


def refusal(problem: Mapping[str, Any]) -> str | None:
    """Why a problem's storage does not go with its other values, or None."""
    storage = storage_of(problem)
    if not storage.narrow:
        return None
    if problem["dtype"] != "float32":
        return f"storage={storage.name} goes with dtype=float32, in which its rows are computed, not {problem['dtype']}"
    if problem["partners"] not in ("uniform", "stratified"):
        return (
            f"storage={storage.name} is for mini-batches of stars, with uniform or stratified partners; vertices that "
            f"share partners keep their rows in {STORAGES[0]}"
        )
    return None
