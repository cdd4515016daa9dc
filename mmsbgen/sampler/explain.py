"""How much of a link each community explains: the responsibilities of eq. (3.5) for links."""

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
#: Elements of rows of pi that are worked on at a time.
_BLOCK = 1 << 21


class Explained(NamedTuple):
    """Some links: their ``ends`` ``[C, 2]``, and ``shares`` ``[C, K]`` of p(link) that communities explain.

    What the shares lack to 1 is the chance that the ends acted in different communities.
    """

    ends: Ints
    shares: Floats


def explained(links: Ints, rows: RowSource, beta: Floats, delta: float) -> Iterator[Explained]:
    """The shares of ``links`` ``[E, 2]``, a part at a time: whole rows are too many to be held at once.

    What the tails of two rows have in common can explain a link better than the largest entry that they share.
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
