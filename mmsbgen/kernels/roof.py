"""What a kernel's rate is compared with, if not with a gather of random rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True)
class RoofKind:
    """One kind of work and its sizes, of which a device's best rate is measured.

    Attributes:
        kind: "update": rows at random places are read, and written back.
            "adds", "counts": float32 or 32-bit whole numbers of rows at random places are added to, by atomics.
            "launch": a launch after another.
            "barrier": the blocks of a grid, one on each compute unit, wait for each other.
        row_bytes: Bytes of a row; None without rows.
        working_set: Bytes of all rows.
    """

    kind: Literal["update", "adds", "counts", "launch", "barrier"]
    row_bytes: int | None = None
    working_set: int = 0

    def __str__(self) -> str:
        """The kind with the working set, which is a power of two."""
        if self.row_bytes is None:
            return self.kind
        place = (self.working_set.bit_length() - 1) // 10
        return f"{self.kind} in {self.working_set >> 10 * place} {_UNITS[place]}"

    def within(self, most: int) -> RoofKind:
        """The same in the largest power of two of at most ``most`` bytes that is no more than the working set.

        Problems of about the same size share a measurement then, and the roof of a smaller set is no lower.
        """
        if self.row_bytes is None:
            return self
        size = max(self.row_bytes, min(most, self.working_set))
        return replace(self, working_set=1 << (size.bit_length() - 1))


def told(kind: str, row_bytes: int | None, rate: float) -> str:
    """A roof in words, from the text of its kind, its rows and its rate in 10^9 a second."""
    return f"{kind} {1 / rate / 1e3:.3g} us" if row_bytes is None else f"{kind} by {row_bytes} bytes {rate:.3g} GB/s"


def of_roof(share: float | None, digits: int = 1) -> str:
    """The share of a roof in a table; a rate above that roof is a share of nothing."""
    return "" if share is None else ">100%" if share > 1 else f"{share:.{digits}%}"
