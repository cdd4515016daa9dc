"""Link probabilities from rows of pi, and the share of a link that each community explains (eq. 3.5).

These functions compute on the host unless noted, a part of the links at a time.  The best community of a link is found
on the device (:func:`mmsbgen.sampler.diagnostics.best_community.best_communities`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]
#: Rows of pi ``[V, K]`` of the vertices ``[V]``.
RowSource = Callable[[Ints], Array]
#: Elements of rows of pi processed at a time.
_BLOCK = 1 << 21
#: Elements of products of rows summed at a time; they fit into a core's cache.
_CACHED = 1 << 17


def as_unknown(rows: RowSource, unlinked: Ints, prior: Floats) -> RowSource:
    """``rows`` for predictions, with the prior's mean row ``[K]`` for the vertices ``unlinked`` (ascending).

    The fit puts a vertex without training links into communities without links, so that no link of it would be
    predicted.  But the links of such a vertex are mostly held out or not known yet.
    """
    if not unlinked.size:
        return rows

    def read(vertices: Ints) -> Array:
        unknown = unlinked[np.minimum(np.searchsorted(unlinked, vertices), unlinked.size - 1)] == vertices
        if not unknown.any():
            return rows(vertices)
        known: Array = rows(vertices[~unknown])
        found = np.repeat(prior[None].astype(known.dtype), len(vertices), axis=0)
        found[~unknown] = known
        return found

    return read


def link_probabilities(pairs: Ints, rows: RowSource, beta: Floats, delta: float) -> Floats:
    """p(link) ``[P]`` of ``pairs`` ``[P, 2]`` of vertices, eq. (2.2)."""
    found = np.empty(len(pairs))
    step = max(1, _BLOCK // beta.size)
    for first in range(0, len(pairs), step):
        a, b = (rows(end).astype(np.float64) for end in pairs[first : first + step].T)
        both = a * b
        found[first : first + step] = both @ beta + delta * (1.0 - both.sum(axis=1)).clip(min=0.0)
    return found


class Explained(NamedTuple):
    """Some links: their ``ends`` ``[C, 2]``, and the ``shares`` ``[C, K]`` of p(link) that communities explain.

    The rest of the shares to 1 is the probability that the ends acted in different communities.
    """

    ends: Ints
    shares: Floats


def explained(links: Ints, rows: RowSource, beta: Floats, delta: float) -> Iterator[Explained]:
    """The shares of ``links`` ``[E, 2]`` for all communities, a part of the links at a time to bound the memory.

    Whole rows are needed: small entries of two rows together can explain a link better than their largest common one.
    """
    step = max(1, _BLOCK // beta.size)
    for first in range(0, len(links), step):
        ends = links[first : first + step]
        there, at = np.unique(ends, return_inverse=True)
        a, b = at.reshape(ends.shape).T
        pi = rows(there)
        shares = np.multiply(pi[a], pi[b], dtype=np.float64)
        across = delta * (1.0 - shares.sum(axis=1)).clip(min=0.0)
        shares *= beta
        shares /= (shares.sum(axis=1) + across)[:, None]  # eq. (2.2)
        yield Explained(ends, shares)


def explained_at(
    links: Ints, rows: RowSource, beta: Floats, delta: float, at: npt.NDArray[np.integer[Any]]
) -> Iterator[Explained]:
    """The shares ``[C, 2, r]`` of links that the communities ``at`` ``[N, r]`` of both ends explain.

    As :func:`explained`, for selected communities and in the precision of the rows.  The sum over all communities is
    one dot product per link, Z = delta + sum_k (beta_k - delta) pi_ak pi_bk.  If ``rows`` has a method
    ``explained_at`` (:class:`mmsbgen.sampler.diagnostics.state_rows.StateRows`), it is used.
    """
    on_device = getattr(rows, "explained_at", None)
    if on_device is not None:
        yield from on_device(links, beta, delta, at)
        return
    step, cached = max(1, _BLOCK // beta.size), max(1, _CACHED // beta.size)
    for first in range(0, len(links), step):
        ends = links[first : first + step]
        there, index = np.unique(ends, return_inverse=True)
        index = index.reshape(ends.shape)
        pi = rows(there)
        weighted = pi * (beta - delta).astype(pi.dtype)
        z = np.empty(len(ends), pi.dtype)
        for begin in range(0, len(ends), cached):
            a, b = index[begin : begin + cached].T
            np.einsum("ck,ck->c", weighted[a], pi[b], out=z[begin : begin + cached])
        z = np.maximum(z + pi.dtype.type(delta), np.finfo(pi.dtype).tiny)
        wanted = at[ends]
        both = pi[index[:, 0, None, None], wanted] * pi[index[:, 1, None, None], wanted]
        yield Explained(ends, both * beta.astype(pi.dtype)[wanted] / z[:, None, None])
