"""Rows of pi by vertex, and what explains a link best, read from the device."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.base.processes import run_side_by_side, side_by_side
from mmsbgen.families.mmsb.numbers.sparse_rows import expanded
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics.explained_links import Array, EntryRows, Explained, Floats, Ints, RowSource
from mmsbgen.sampler.state.sparse_state import SparseState

#: Sparse rows that a thread takes at a time.
_ROWS = 1 << 17


class Rows:
    """Reads rows ``[V, K]`` of pi, or of its posterior mean over ``averaged`` samples if that is not 0.

    Of pi it has ``explained_at`` on the device too, where the chain has the kernel.
    """

    def __init__(self, sampler: Sampler, averaged: int) -> None:
        device, values, shape = sampler.device, sampler.values, sampler.shape
        self._device, self._values, self._shape, self._averaged = device, values, shape, averaged
        # The posterior mean is in the order of vertices.
        self._where = np.arange(shape.n_vertices) if averaged else device.download(values["slots"])
        self._pi = values["mean"] if averaged else values["pi"]
        self._gather = sampler.kernels["mean_rows" if averaged and shape.stored.narrow else "gather_rows"]
        if not averaged and "explain_at" in sampler.kernels:
            self.explained_at = partial(_explained_at, sampler)

    def __call__(self, vertices: Ints) -> Array:
        """The rows of ``vertices`` ``[V]``."""
        device, values, shape = self._device, self._values, self._shape
        step = values["rows"].shape[0]
        found = np.empty((len(vertices), shape.k), shape.real)
        for first in range(0, len(vertices), step):
            part = self._where[vertices[first : first + step]].astype(np.uint32)
            given = {"pi": self._pi, "sums": values["row_sums_out"], "first": np.uint32(0)}
            given["n_rows"] = np.uint32(len(part))
            with device.upload(part) as slots:
                self._gather.launch(len(part) * shape.row, values | given | {"slots": slots})
                found[first : first + step] = device.download_range(values["rows"], 0, len(part))[:, : shape.k]
        if self._averaged:
            found /= shape.real.type(self._averaged)
        return found


def _explained_at(
    sampler: Sampler, links: Ints, beta: Floats, delta: float, at: npt.NDArray[np.integer[Any]]
) -> Iterator[Explained]:
    """As :func:`mmsbgen.sampler.diagnostics.explained_links.explained_at`, a part of the links at a time."""
    device, shape, own = sampler.device, sampler.shape, sampler.values
    values = own | {"pairs_a": own["explained_a"], "pairs_b": own["explained_b"], "places": own["explained_places"]}
    n_places = 2 * at.shape[1]
    step = min(values["pairs_a"].shape[0], values["places"].shape[0] // n_places)
    padded = np.zeros(shape.row, shape.real)
    padded[: shape.k] = beta
    with device.upload(padded) as strengths:
        for first in range(0, len(links), step):
            ends = links[first : first + step].astype(np.int64)
            count = len(ends)
            for name, end in zip(("pairs_a", "pairs_b"), ends.T.astype(np.uint32), strict=True):
                device.write(values[name], np.ascontiguousarray(end))
            device.write(values["places"], at[ends].astype(np.uint32).ravel())
            given = {"beta": strengths, "delta": shape.real.type(delta), "n_pairs": np.uint32(count)}
            sampler.kernels["explain_at"].launch(count, values | given | {"n_places": np.uint32(n_places)})
            shares = device.download_range(values["explained"], 0, count * n_places)
            yield Explained(ends, shares.reshape(count, 2, -1))


class SparseRows:
    """Rows of a state with sparse rows."""

    def __init__(self, sampler: Sampler) -> None:
        self._device, self._values, self._shape = sampler.device, sampler.values, sampler.shape
        self._kernels, self._split = sampler.kernels, sampler.split
        self.explained_at = partial(_explained_at, sampler)

    def entries(self, vertices: Ints) -> tuple[Array, Array]:
        """Communities and values ``[V, R]`` of the entries of ``vertices`` ``[V]``."""
        device, values, step = self._device, self._values, self._values["wanted"].shape[0]
        communities = np.empty((len(vertices), self._shape.entries), np.uint32)
        found = np.empty(communities.shape, self._shape.real)
        for first in range(0, len(vertices), step):
            part = np.ascontiguousarray(vertices[first : first + step], np.uint32)
            device.write(values["wanted"], part)
            self._kernels["sparse_gather"].launch(len(part), values | {"n_wanted": np.uint32(len(part))})
            for name, array in (("found_communities", communities), ("found_values", found)):
                array[first : first + step] = device.download_range(values[name], 0, len(part))
        return communities, found

    def communities(self) -> Array:
        """The communities ``[N, R]`` of all entries; unused ones have NONE."""
        found: Array = self._device.download(self._values["communities"])
        return found

    def __call__(self, vertices: Ints) -> Array:
        """The rows ``[V, K]`` of ``vertices`` ``[V]``."""
        return expanded(*self.entries(vertices), self._shape.k, self._shape.floor).astype(self._shape.real)

    def entry_rows(self, vertices: Ints) -> EntryRows:
        """The same rows, as entries on top of the floor."""
        communities, values = self.entries(vertices)
        return EntryRows.of(communities, values, np.full(len(vertices), self._shape.floor), np.ones(self._shape.k))

    def explained_links(self, members: Array | None = None) -> tuple[Array, Ints]:
        """How many training links each entry explains ``[N, R]``, and the links ``[L, 2]`` that are held out.

        With ``members`` ``[N, r]``, only links to vertices that are members of the entry's community count.
        """
        held = (pairs.pairs[np.asarray(pairs.labels, bool)] for pairs in (self._split.validation, self._split.test))
        return self._counted(members, best=False), np.concatenate(list(held))

    def best_links(self, members: Array | None = None) -> Array:
        """How many training links each entry explains best ``[N, R]``; ``members`` as for :meth:`explained_links`."""
        return self._counted(members, best=True)

    def best_of(self, counts: Array, communities: Array) -> Floats:
        """Sums ``[K]`` by community of ``counts`` ``[N, R]`` of :meth:`best_links`: most links count at both ends."""
        k = self._shape.k

        def of(first: int) -> Floats:
            part = slice(first, first + _ROWS)
            used = counts[part] > 0
            found: Floats = np.bincount(communities[part][used], counts[part][used], k).astype(np.float64)
            return found

        return sum(side_by_side(of, range(0, len(counts), _ROWS)), np.zeros(k))

    def _counted(self, members: Array | None, best: bool) -> Array:
        n = self._shape.n_vertices
        masks = np.zeros((n, 8), np.uint8)

        def pack(first: int) -> None:
            assert members is not None
            part = members[first : first + _ROWS]
            wide = np.zeros((len(part), -(-part.shape[1] // 8) * 8), bool)
            wide[:, : part.shape[1]] = part
            # Far faster than along an axis.
            bits = np.packbits(wide, bitorder="little").reshape(len(part), -1)
            masks[first : first + _ROWS, : bits.shape[1]] = bits

        run_side_by_side(pack, range(0, 0 if members is None else n, _ROWS))
        given = {"n_vertices": np.uint32(n), "only_members": np.uint32(members is not None)}
        given["only_best"] = np.uint32(best)
        with self._device.upload(masks.view(np.uint64).ravel()) as placed:
            self._kernels["sparse_shares"].launch(n, self._values | given | {"members": placed})
            self._device.synchronize()
        found: Array = self._device.download(self._values["explained_links"])
        return found


def row_source(sampler: Sampler, mean: bool = True) -> RowSource:
    """A reader of rows ``[V, K]`` of pi, or with ``mean`` of its posterior mean if there are samples."""
    if isinstance(sampler.state, SparseState):
        return SparseRows(sampler)
    return Rows(sampler, sampler.averaged if mean else 0)


def best_communities(sampler: Sampler, links: Array) -> tuple[Ints, Array]:
    """The community ``[E]`` that explains each of ``links`` ``[E, 2]`` best, and its share ``[E]`` of p(link)."""
    return _explained(sampler, links, sampler.values["beta"])


def leading_communities(sampler: Sampler) -> Ints:
    """The community ``[N]`` of the largest entry of every row of pi.

    It is the one that explains the pair of a vertex with itself best if all communities are equally strong.
    """
    vertices = np.arange(sampler.shape.n_vertices, dtype=np.uint32)[:, None]
    with sampler.device.upload(np.ones(sampler.shape.row, sampler.shape.real)) as alike:
        return _explained(sampler, np.broadcast_to(vertices, (len(vertices), 2)), alike)[0]


def _explained(sampler: Sampler, pairs: Array, beta: Any) -> tuple[Ints, Array]:
    """The best community and its share for ``pairs`` ``[P, 2]``, in parts to bound the memory."""
    device, values = sampler.device, sampler.values
    given = values | {"beta": beta, "pairs_a": values["explained_a"], "pairs_b": values["explained_b"]}
    best, shares = np.empty(len(pairs), np.int64), np.empty(len(pairs), sampler.shape.real)
    step = values["best"].shape[0]
    for first in range(0, len(pairs), step):
        ends = pairs[first : first + step].T
        for name, end in zip(("pairs_a", "pairs_b"), ends, strict=True):
            device.write(given[name], np.ascontiguousarray(end, np.uint32))
        count = ends.shape[1]
        sampler.kernels["explain_links"].launch(count, given | {"n_pairs": np.uint32(count)})
        best[first : first + count] = device.download_range(values["best"], 0, count)
        shares[first : first + count] = device.download_range(values["shares"], 0, count)
    return best, shares
