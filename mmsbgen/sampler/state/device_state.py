"""The chain's state on the device: pi, its row sums, theta and beta.

Rows are stored in slots: ``slots[v]`` is the slot of vertex v, and there are as many spare slots as a mini-batch has
vertices.  A step writes new rows into spare slots and then exchanges the slots, so that old rows stay valid while
other vertices read them.  No phi matrix is needed: the phi rows of a mini-batch are the rows in its spare slots.  If
the last kernel reads no other rows (:attr:`mmsbgen.sampler.minibatch.partners.Partners.in_place`), new rows replace
the old ones in place and slots do not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmsbgen.backends.base import Device
from mmsbgen.families.mmsb.numbers.row_layout import row_length
from mmsbgen.families.mmsb.numbers.storage import STORAGES, Storage, storage_named
from mmsbgen.families.mmsb.sparse.sparse_sizes import floor_of, table_groups
from mmsbgen.kernels.family import Array
from mmsbgen.sampler.state.arrays import Spec, content, place, release

#: Most rows copied from or to the device at a time.
CHUNK_ROWS = 16384


@dataclass(frozen=True)
class StateShape:
    """Sizes and types of the state: N vertices, K communities, spare rows, type of reals, storage type of rows.

    ``entries`` is the number of entries that a sparse row keeps, 0 for dense rows.
    """

    n_vertices: int
    k: int
    spare_rows: int
    dtype: str
    storage: str = STORAGES[0]
    entries: int = 0

    @property
    def row(self) -> int:
        """Elements of a stored row."""
        return row_length(self.k)

    @property
    def real(self) -> np.dtype[Any]:
        """NumPy type of real numbers."""
        return np.dtype(self.dtype)

    @property
    def stored(self) -> Storage:
        """Storage type of rows of pi."""
        return storage_named(self.storage, self.dtype)

    @property
    def slots(self) -> int:
        """Number of allocated rows."""
        return self.n_vertices + self.spare_rows

    @property
    def floor(self) -> float:
        """pi of the communities without an entry in a sparse row."""
        return floor_of(self.k, self.real)

    @property
    def tables(self) -> int:
        """Tables of candidates of a sweep over sparse rows."""
        return table_groups(self.k, self.real.itemsize)

    def arrays(self, mean: bool = False, spread: bool = False) -> list[Spec]:
        """The state's arrays, with those of the posterior's ``mean`` and ``spread``."""
        n, row, real = self.n_vertices, self.row, self.real
        model = [Spec("theta", "theta and beta", (2, row), real), Spec("beta", "theta and beta", (row,), real)]
        model += [Spec("mean", "posterior mean", (n, row), real)] * mean
        model += [Spec("squares", "posterior deviations", (n, row), real)] * spread
        if self.entries:
            rows, groups = (n, self.entries), self.tables
            return [
                Spec("communities", "pi", rows, np.uint32),
                Spec("new_communities", "pi", rows, np.uint32),
                Spec("values", "pi", rows, real),
                Spec("new_values", "pi", rows, real),
                Spec("row_sums", "row sums", (n,), real),
                Spec("tables", "candidates", (groups, self.k, 2), real),
                Spec("used_lists", "candidates", (groups, self.k), np.uint32),
                Spec("table_locks", "candidates", (groups,), np.uint32),
                Spec("totals", "theta and beta", (row,), real),
                Spec("fixed_sums", "theta and beta", (3, row), np.uint64),
                *model,
            ]
        return [
            Spec("pi", "pi", (self.slots, row), self.stored.dtype),
            Spec("row_sums", "row sums", (self.slots,), real),
            Spec("slots", "slots", (n,), np.uint32),
            content("spares", "slots", np.arange(n, self.slots, dtype=np.uint32)),
            *model,
        ]


class State:
    """Device buffers of the state; ``buffers`` maps kernel argument names to them.

    ``mean`` holds sums of rows over the samples, ``squares`` sums of their squared deviations from the mean.
    """

    def __init__(self, device: Device, shape: StateShape, mean: bool = False, spread: bool = False) -> None:
        self.device = device
        self.shape = shape
        self.buffers, _ = place(device, shape.arrays(mean, spread))
        self.users: list[dict[str, Any]] = []
        """Arguments of kernels that have these buffers."""

    def release(self) -> None:
        """Release the device memory."""
        release(self.buffers.values())

    def theta(self) -> Array:
        """theta ``[2, K]`` in float64: non-link, link."""
        return self.device.download(self.buffers["theta"])[:, : self.shape.k].astype(np.float64)

    def beta(self) -> Array:
        """beta ``[K]`` in float64."""
        return self.device.download(self.buffers["beta"])[: self.shape.k].astype(np.float64)

    def set_theta(self, theta: Array) -> None:
        """Write theta ``[2, K]``; it is padded with 1, so that beta of the padding is finite."""
        padded = np.ones((2, self.shape.row), self.shape.real)
        padded[:, : self.shape.k] = theta
        self.device.write(self.buffers["theta"], padded)

    @staticmethod
    def chunk_ranges(shape: StateShape) -> Iterator[tuple[int, int]]:
        """Ranges of vertices ``(first, stop)`` for copying rows, at most 64 MiB each unless a row is larger."""
        rows = max(1, min(CHUNK_ROWS, (64 << 20) // (shape.row * shape.real.itemsize)))
        for first in range(0, shape.n_vertices, rows):
            yield first, min(first + rows, shape.n_vertices)

    def set_rows(self, first: int, rows: Array, seed: int) -> None:
        """Write rows ``[R, LD]`` of the vertices ``first, first + 1, ...``; row sums of phi are unchanged.

        Only for a state whose slots are the identity.  Rows stored in 16 bits are rounded stochastically by ``seed``,
        with the draws of iteration 0.
        """
        vertices = np.arange(first, first + len(rows))
        self._write_rows(first, self.shape.stored.drawn(rows, vertices, seed, 0))

    def restore_rows(self, first: int, stored: Array, sums: Array) -> None:
        """As :meth:`set_rows`, for rows ``[R, LD]`` in the storage type, with their sums ``[R]``."""
        self._write_rows(first, stored)
        self.device.write(self.buffers["row_sums"], np.ascontiguousarray(sums, self.shape.real), first)

    def _write_rows(self, first: int, stored: Array) -> None:
        self.device.write(self.buffers["pi"], np.ascontiguousarray(stored, self.shape.stored.dtype), first)

    def replace_rows(self, vertices: Array, rows: Array, seed: int = 0, iteration: int = 0) -> None:
        """Write rows of pi ``[V, K]`` of ``vertices`` ``[V]`` into their slots; row sums of phi are unchanged.

        Rows stored in 16 bits are rounded stochastically, with draws that the steps of ``iteration`` do not use.
        """
        slots = self.device.download(self.buffers["slots"])[vertices]
        padded = np.zeros((len(vertices), self.shape.row), self.shape.real)
        padded[:, : self.shape.k] = rows
        padded = self.shape.stored.drawn(padded, vertices, seed, iteration, draw=1)
        for i, slot in enumerate(slots.tolist()):
            self.device.write(self.buffers["pi"], padded[i : i + 1], slot)

    def leave_out(self, vertices: Array) -> None:
        """Give ``vertices`` ``[V]``, which no block contains, one row in common, below the rounding of sums over rows.

        Only for a state whose slots are the identity.
        """
        if not vertices.size:
            return
        row = np.zeros((1, self.shape.row), self.shape.real)
        row[:, : self.shape.k] = np.finfo(self.shape.real).eps / self.shape.k
        self._write_rows(int(vertices[0]), row)
        slots = np.arange(self.shape.n_vertices, dtype=np.uint32)
        slots[vertices] = vertices[0]
        self.device.write(self.buffers["slots"], slots)

    def reset_slots(self) -> None:
        """Reset the slots: vertex v in slot v, followed by the spare slots."""
        n = self.shape.n_vertices
        self.device.write(self.buffers["slots"], np.arange(n, dtype=np.uint32))
        self.device.write(self.buffers["spares"], np.arange(n, self.shape.slots, dtype=np.uint32))
