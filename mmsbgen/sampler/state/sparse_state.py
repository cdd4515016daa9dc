"""The state of a chain with sparse rows on the device: entries of pi, row sums, sums of columns, theta and beta.

A sweep reads the rows and writes new ones into a second pair of arrays; then the pairs take turns.  Vertices that no
sweep contains have no entries, in either pair.
"""

from __future__ import annotations

import numpy as np

from mmsbgen.backends.base import Buffer, Device
from mmsbgen.base.processes import run_side_by_side
from mmsbgen.families.mmsb.numbers.counter_random import below
from mmsbgen.families.mmsb.numbers.row_layout import Purpose
from mmsbgen.families.mmsb.numbers.sparse_rows import NONE, expanded, totals
from mmsbgen.kernels.family import Array
from mmsbgen.sampler.state.arrays import release
from mmsbgen.sampler.state.device_state import State, StateShape

#: Elements of rows moved at a time.
_ELEMENTS = 1 << 20
#: Arrays with the rows and with the new rows, which take turns.
_TURNS = (("communities", "new_communities"), ("values", "new_values"))


class SparseState(State):
    """Device buffers of a state with sparse rows; ``buffers`` maps kernel argument names to them."""

    def __init__(self, device: Device, shape: StateShape, mean: bool = False, spread: bool = False) -> None:
        super().__init__(device, shape, mean, spread)
        self.changed = True
        """Whether rows were written since the last sweep; ranks that share sweeps then need them."""
        self.turn = 0
        """Number of sweeps whose new rows have become the rows."""
        self._turns = [[self.buffers[name] for name in names] for names in _TURNS]

    def exchange(self, turns: int = 1) -> None:
        """Make the new rows the rows, here and for :attr:`users`; negative ``turns`` undo that."""
        self.turn += turns
        now: dict[str, Buffer] = {}
        for names, arrays in zip(_TURNS, self._turns, strict=True):
            at = turns % len(arrays)
            arrays[:] = arrays[at:] + arrays[:at]
            now.update(zip(names, arrays, strict=False))
        for held in (self.buffers, *self.users):
            held.update(now)

    def keep_rows(self) -> None:
        """Allocate a third pair of arrays, so that the rows before a sweep stay during the next sweep too."""
        for arrays in self._turns:
            arrays.append(self.device.alloc(arrays[0].shape, arrays[0].dtype))

    def copy_rows(self) -> None:
        """Copy the rows into the arrays of new rows, for the vertices that no sweep writes."""
        for rows, *others in self._turns:
            for other in others:
                self.device.copy(other, rows)

    def release(self) -> None:
        """Release the device memory."""
        super().release()
        for arrays in self._turns:
            release(arrays)

    def entries(self, first: int = 0, stop: int | None = None) -> tuple[Array, Array]:
        """Communities and values ``[V, R]`` of a range of vertices; unused entries have the community NONE."""
        stop = self.shape.n_vertices if stop is None else stop
        return (
            self.device.download_range(self.buffers["communities"], first, stop),
            self.device.download_range(self.buffers["values"], first, stop),
        )

    def set_entries(self, communities: Array, values: Array) -> None:
        """Write all rows ``[N, R]``; the sums of the columns follow from them."""
        self.changed = True
        self.device.write(self.buffers["communities"], np.ascontiguousarray(communities, np.uint32))
        self.device.write(self.buffers["values"], np.ascontiguousarray(values, self.shape.real))
        self.copy_rows()
        sums = np.zeros(self.shape.row, self.shape.real)
        sums[: self.shape.k] = totals(communities, values, self.shape.k, self.shape.floor)
        self.device.write(self.buffers["totals"], sums)

    def place(self, vertices: Array, communities: Array, left_out: Array, seed: int, row_sum: float) -> None:
        """Start: each vertex keeps the communities of its sets, in equal parts; others keep random ones.

        ``vertices`` ``[S]``, ascending, and ``communities`` ``[S]`` are the sets.  Vertices ``left_out``, ascending,
        keep none.
        """
        n, k, floor, real = self.shape.n_vertices, self.shape.k, self.shape.floor, self.shape.real
        most, sums = min(self.shape.entries, k), np.zeros(self.shape.row)
        self.changed = True
        for first in range(0, n, step := max(1, _ELEMENTS // self.shape.entries)):
            size = min(step, n - first)
            begin, end = np.searchsorted(vertices, [first, first + size])
            own, chosen = vertices[begin:end] - first, communities[begin:end]
            sets = np.bincount(own, minlength=size)
            kept = np.full((size, self.shape.entries), NONE, np.uint32)
            others = np.flatnonzero(sets == 0)
            kept[others, :most] = self.random_communities(first + others, seed)
            rank = np.arange(end - begin) - np.repeat(np.cumsum(sets) - sets, sets)
            inside = rank < most
            kept[own[inside], rank[inside]] = chosen[inside]
            kept[left_out[slice(*np.searchsorted(left_out, [first, first + size]))] - first] = NONE
            count = np.where(sets > 0, np.minimum(sets, most), most)
            share = ((1.0 - (k - count) * floor) / count).astype(real)
            values = np.where(kept != NONE, share[:, None], real.type(0.0))
            self.device.write(self.buffers["communities"], kept, first)
            self.device.write(self.buffers["values"], values, first)
            sums[:k] += totals(kept, values, k, floor)
        self.copy_rows()
        self.device.write(self.buffers["totals"], sums.astype(real))
        self.device.write(self.buffers["row_sums"], np.full(n, row_sum, real))

    def random_communities(self, vertices: Array, seed: int) -> Array:
        """Evenly spaced communities from a drawn one on, ``[V, min(R, K)]``, for ``vertices`` ``[V]``."""
        k, most = self.shape.k, min(self.shape.entries, self.shape.k)
        first = below(seed, 0, vertices, 0, Purpose.init, k)
        found: Array = (first[:, None] + np.arange(most) * max(1, k // most)) % k
        return found

    def move(self, vertices: Array, sources: Array, targets: Array, stays: float) -> None:
        """Move mass from sources to targets: of each source's entry the vertex keeps the share ``stays``.

        All are ``[M]``; a vertex may be among them several times.  Entries that no longer find room, the smallest of a
        row, are dropped.
        """
        kept, values = self.entries()
        order = np.argsort(vertices, kind="stable")
        _, first, counts = np.unique(vertices[order], return_index=True, return_counts=True)
        step = max(1, _ELEMENTS // kept.shape[1])
        for turn in range(int(counts.max(initial=0))):
            now = order[first[counts > turn] + turn]

            def of(begin: int, now: Array = now) -> None:
                some = now[begin : begin + step]
                at = vertices[some]
                ends = sources[some, None], targets[some, None]
                kept[at], values[at] = self._moved(kept[at], values[at], *ends, stays)

            run_side_by_side(of, range(0, now.size, step))
        self.set_entries(kept, values)

    def _moved(self, own: Array, values: Array, source: Array, target: Array, stays: float) -> tuple[Array, Array]:
        """Entries ``[V, R]`` after one move of each row."""
        share = values.astype(np.float64)
        there, known = own == source, own == target
        moved = np.where(there.any(axis=1), (share * there).sum(axis=1), self.shape.floor) * (1.0 - stays)
        share[there] *= stays
        share += known * moved[:, None]
        own = np.concatenate([own, np.where(known.any(axis=1)[:, None], NONE, target)], axis=1)
        share = np.concatenate([share, self.shape.floor + moved[:, None]], axis=1)
        share[own == NONE] = 0.0
        at = np.argsort(-share, axis=1, kind="stable")[:, : values.shape[1]]
        own, share = np.take_along_axis(own, at, axis=1), np.take_along_axis(share, at, axis=1)
        return own, self.scaled(share, own != NONE)

    def shrink(self, communities: Array, factor: float) -> None:
        """Multiply all entries of ``communities`` by ``factor``, and divide their rows by the new sums."""
        kept, values = self.entries()
        shrinks = np.zeros(self.shape.k + 1, bool)
        shrinks[communities] = True
        step = max(1, _ELEMENTS // self.shape.entries)

        def of(first: int) -> None:
            there = shrinks[np.minimum(kept[first : first + step], np.uint32(self.shape.k))]
            at = np.flatnonzero(there.any(axis=1))
            own, share = kept[first + at], values[first + at].astype(np.float64)
            share[there[at]] *= factor
            order = np.argsort(-share, axis=1, kind="stable")
            own, share = np.take_along_axis(own, order, axis=1), np.take_along_axis(share, order, axis=1)
            kept[first + at], values[first + at] = own, self.scaled(share, own != NONE)

        run_side_by_side(of, range(0, len(kept), step))
        self.set_entries(kept, values)

    def scaled(self, shares: Array, used: Array) -> Array:
        """Entries ``[V, R]`` in proportion to ``shares`` where ``used``: rows add up to 1, none is below the floor."""
        k, floor = self.shape.k, self.shape.floor
        shares = np.where(used, shares, 0.0)
        shares *= (1.0 - (k - used.sum(axis=1, keepdims=True)) * floor) / shares.sum(axis=1, keepdims=True)
        return np.where(used, np.maximum(shares, floor), 0.0)

    def rows(self, first: int, stop: int) -> Array:
        """Dense rows ``[V, K]`` of a range of vertices."""
        return expanded(*self.entries(first, stop), self.shape.k, self.shape.floor).astype(self.shape.real)

    def restore_entries(self, communities: Array, values: Array, sums: Array, column_sums: Array) -> None:
        """Write all rows ``[N, R]``, their sums of phi ``[N]``, and the sums of columns ``[K]`` of the last sweep."""
        self.set_entries(communities, values)
        padded = np.zeros(self.shape.row, self.shape.real)
        padded[: self.shape.k] = column_sums
        self.device.write(self.buffers["totals"], padded)
        self.device.write(self.buffers["row_sums"], np.ascontiguousarray(sums, self.shape.real))

    def reset_slots(self) -> None:
        """Sparse rows have no slots."""
