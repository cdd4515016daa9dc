"""The best community of each link or vertex, found on the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics.explained_links import Array, Ints


def best_communities(sampler: Sampler, links: Ints) -> tuple[Ints, Array]:
    """The community ``[E]`` that explains each of ``links`` ``[E, 2]`` best, and its share ``[E]`` of p(link)."""
    return _explained(sampler, links, sampler.values["beta"])


def leading_communities(sampler: Sampler) -> Ints:
    """The community ``[N]`` of the largest entry of every row of pi.

    It is the one that explains the pair of a vertex with itself best if all communities are equally strong.
    """
    vertices = np.arange(sampler.shape.n_vertices)
    with sampler.device.upload(np.ones(sampler.shape.row, sampler.shape.real)) as alike:
        return _explained(sampler, np.stack([vertices, vertices], axis=1), alike)[0]


def _explained(sampler: Sampler, pairs: Ints, beta: Any) -> tuple[Ints, Array]:
    """The best community and its share for ``pairs`` ``[P, 2]``, in parts to bound the memory."""
    device, values = sampler.device, sampler.values
    given = values | {"beta": beta, "pairs_a": values["explained_a"], "pairs_b": values["explained_b"]}
    best, shares = np.empty(len(pairs), np.int64), np.empty(len(pairs), sampler.shape.real)
    step = values["best"].shape[0]
    for first in range(0, len(pairs), step):
        ends = pairs[first : first + step].T.astype(np.uint32)
        for name, end in zip(("pairs_a", "pairs_b"), ends, strict=True):
            device.write(given[name], np.ascontiguousarray(end))
        count = ends.shape[1]
        sampler.kernels["explain_links"].launch(count, given | {"n_pairs": np.uint32(count)})
        best[first : first + count] = device.download_range(values["best"], 0, count)
        shares[first : first + count] = device.download_range(values["shares"], 0, count)
    return best, shares
