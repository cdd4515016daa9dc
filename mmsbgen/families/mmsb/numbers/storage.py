"""Storage types of rows of pi: the problem's real type, or 16 bits with stochastic rounding.

Rows of 16 bits are computed in float32.  Stochastic rounding is unbiased: random bits are added below the last stored
place, and the rest is truncated.  These functions define the stored bits; the templates' ``narrow`` gives the same.

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
#: Factor of pi in float16. pi is at most 1, and the largest half-precision number is 65504.
HALF_SCALE = 2.0**15
#: Smallest normal number of half precision. Below it all steps have the same size.
HALF_NORMAL = 2.0**-14


@dataclass(frozen=True)
class Storage:
    """A storage type of rows: ``dtype`` is the NumPy type of stored elements, uint16 bits for 16-bit types."""

    name: str
    dtype: np.dtype[Any]

    @property
    def narrow(self) -> bool:
        """Whether rows are stored in 16 bits."""
        return self.name != STORAGES[0]

    @property
    def step(self) -> float:
        """Largest relative distance of adjacent normal numbers; 0 for float32."""
        return {"float32": 0.0, "bfloat16": 2.0**-7, "float16": 2.0**-10}[self.name]

    def values(self, stored: Array) -> Array:
        """Exact values of stored elements: float32 for 16-bit types, else the stored array itself."""
        if self.name == "bfloat16":
            return (stored.astype(np.uint32) << 16).view(np.float32)
        if self.name == "float16":
            return stored.view(np.float16).astype(np.float32) * np.float32(1.0 / HALF_SCALE)
        return stored

    def rounded(self, values: Array, bits: Array | int) -> Array:
        """Stored elements for non-negative ``values`` and random ``bits``, uniform integers below 2**16.

        16-bit types convert values to float32 first.  For equal bits the result is monotone in the value.
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
        """Stored elements nearest to ``values``; exact for representable values."""
        return self.rounded(values, 1 << 15)

    def drawn(self, values: Array, vertices: Array, seed: int, iteration: int, draw: int = 0) -> Array:
        """Rows ``[V, .]`` of ``vertices`` ``[V]``, rounded with the random bits of ``iteration`` and ``draw``."""
        if not self.narrow:
            return values.astype(self.dtype, copy=False)
        return self.rounded(values, random_bits(seed, values.shape[1], vertices, iteration, draw))


def random_bits(seed: int, k: int, vertices: Array, iteration: int, draw: int = 0) -> npt.NDArray[np.uint32]:
    """16 random bits ``[V, k]`` for every coordinate of the rows of ``vertices`` ``[V]``.

    Philox call ``k // 8`` gives the bits of eight coordinates, two per word; the lower half is the first one's.
    """
    calls = np.arange(-(-k // 8))[None, :]
    words = np.stack(
        counter_random.philox(seed, calls, np.asarray(vertices)[:, None], iteration, (Purpose.storage << 24) + draw),
        axis=-1,
    ).astype(np.uint32)
    halves = np.stack([words & np.uint32(0xFFFF), words >> np.uint32(16)], axis=-1)
    return halves.reshape(len(words), -1)[:, :k]


def storage_named(name: str, dtype: str = "float32") -> Storage:
    """Storage type ``name`` of a problem with arithmetic in ``dtype``."""
    return Storage(name, np.dtype(dtype if name == STORAGES[0] else np.uint16))


def storage_of(problem: Mapping[str, Any]) -> Storage:
    """Storage type of a problem; the first of :data:`STORAGES` if the problem names none."""
    return storage_named(str(problem.get("storage", STORAGES[0])), str(problem["dtype"]))


def refusal(problem: Mapping[str, Any]) -> str | None:
    """An error message if a problem's storage conflicts with its other values, else None."""
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
