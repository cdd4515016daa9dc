"""Draws of the posterior that a chain keeps: quantities of a state that have the same meaning in every chain.

Communities have no names in the model, so those of two chains cannot be matched.  Kept are therefore the log-likelihood
and the link probabilities of held-out pairs, and the effective number of communities.  Strengths are kept too, for
comparisons within their chain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import plural

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
#: Most draws of a chain, and most held-out pairs of which they have link probabilities: 4 MiB.
MOST_DRAWS, MOST_PAIRS = 1024, 1024
_PREFIX = "draws_"
#: What the arrays are, by their names in files.
ARRAYS = {
    "draws_pairs": "held-out pairs of vertices",
    "draws_links": "which of these pairs are links",
    "draws_iterations": "iteration of every draw",
    "draws_log_likelihoods": "log-likelihood of all held-out pairs by draw, in nats a pair",
    "draws_effective_communities": "effective number of communities by draw",
    "draws_link_probabilities": "p(link) by draw and pair",
    "draws_strengths": "beta by draw and column of the chain",
}


def spaced(count: int, most: int) -> Ints:
    """At most ``most`` of the numbers from 0 to ``count`` - 1, evenly spaced."""
    kept = min(count, most)
    return np.arange(kept) * count // max(1, kept)


def effective_number(shares: npt.NDArray[Any]) -> float:
    """exp of the entropy of ``shares`` ``[K]``, which need not sum to 1; 0 if all are 0."""
    positive = shares[shares > 0]
    if not positive.size:
        return 0.0
    positive = positive / positive.sum()
    return float(np.exp(-(positive * np.log(positive)).sum()))


@dataclass(frozen=True)
class Draws:
    """T draws of one chain.

    Attributes:
        pairs: held-out pairs ``[H, 2]`` of vertices.
        links: which of them are links ``[H]``.
        iterations: the iteration ``[T]`` of every draw.
        log_likelihoods: mean log-likelihood ``[T]`` of all held-out pairs, in nats a pair.
        effective_communities: exp of the entropy of the mean row ``[T]``, of at most 4 million entries of pi.
        link_probabilities: p(link) ``[T, H]``.
        strengths: beta ``[T, K]``, in the order of the chain's own columns.
    """

    pairs: Ints
    links: npt.NDArray[np.bool_]
    iterations: Ints
    log_likelihoods: Floats
    effective_communities: Floats
    link_probabilities: npt.NDArray[np.float32]
    strengths: npt.NDArray[np.float32]

    def __repr__(self) -> str:
        return f"<Draws: {plural(len(self), 'draw')} of {plural(len(self.pairs), 'held-out pair')}>"

    def __len__(self) -> int:
        return len(self.iterations)

    def arrays(self) -> dict[str, Array]:
        """The arrays for a file, by names that begin with ``draws_``."""
        return {_PREFIX + field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Array], prefix: str = "") -> Self | None:
        """The inverse of :meth:`arrays`, for names with a ``prefix``; None if there are no draws.

        Raises ValueError or KeyError for arrays that do not fit together.
        """
        if f"{prefix}{_PREFIX}iterations" not in arrays:
            return None
        made = cls(**{field.name: arrays[f"{prefix}{_PREFIX}{field.name}"] for field in fields(cls)})
        count, pairs = len(made), len(made.pairs)
        if (
            made.pairs.shape != (pairs, 2)
            or made.links.shape != (pairs,)
            or made.link_probabilities.shape != (count, pairs)
            or made.strengths.ndim != 2
            or not len(made.log_likelihoods) == len(made.effective_communities) == len(made.strengths) == count
        ):
            raise ValueError("its draws do not fit together")
        return made

    def last(self, count: int, every: int) -> Self:
        """The last ``count`` of every ``every``-th draw."""
        part = slice(None, None, every)
        per_draw = fields(self)[2:]
        return type(self)(self.pairs, self.links, *(getattr(self, f.name)[part][-count:] for f in per_draw))


class DrawRecorder:
    """Keeps draws of a running chain within :data:`MOST_DRAWS`.

    When that many are kept, every second one is dropped, and from then on only every second state is kept.
    """

    def __init__(self, pairs: Ints, links: npt.NDArray[np.bool_], k: int) -> None:
        self.places = spaced(len(pairs), MOST_PAIRS)
        """Which of the held-out pairs are kept."""
        self._pairs, self._links, self._k = pairs[self.places], np.asarray(links, bool)[self.places], k
        self.clear()

    def clear(self) -> None:
        """Drop all draws."""
        self._every, self._seen = 1, 0
        self._kept: list[tuple[int, float, float, npt.NDArray[np.float32], npt.NDArray[np.float32]]] = []

    @staticmethod
    def bytes(n_pairs: int, k: int) -> int:
        """Most bytes that draws of ``n_pairs`` held-out pairs and K communities take."""
        return MOST_DRAWS * (4 * (min(n_pairs, MOST_PAIRS) + k) + 24)

    def wants_next(self) -> bool:
        """Count the next state; returns whether it is to be kept."""
        self._seen += 1
        return (self._seen - 1) % self._every == 0

    def keep(
        self,
        iteration: int,
        log_likelihood: float,
        effective_communities: float,
        link_probabilities: Floats,
        strengths: Floats,
    ) -> None:
        """Keep a state; ``link_probabilities`` are those of all held-out pairs, in their order."""
        p, beta = link_probabilities[self.places].astype(np.float32), strengths.astype(np.float32)
        self._kept.append((iteration, log_likelihood, effective_communities, p, beta))
        if len(self._kept) == MOST_DRAWS:
            self._kept, self._every = self._kept[::2], 2 * self._every

    def draws(self) -> Draws:
        """The draws so far."""
        columns = list(zip(*self._kept, strict=True)) or [(), (), (), (), ()]
        count = len(self._kept)
        return Draws(
            self._pairs,
            self._links,
            np.array(columns[0], np.int64),
            np.array(columns[1], np.float64),
            np.array(columns[2], np.float64),
            np.array(columns[3], np.float32).reshape(count, len(self._pairs)),
            np.array(columns[4], np.float32).reshape(count, self._k),
        )

    def saved(self) -> dict[str, Array]:
        """The arrays for a checkpoint."""
        return self.draws().arrays() | {f"{_PREFIX}taken": np.array([self._every, self._seen])}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Go on from :meth:`saved`; raises ValueError or KeyError for arrays of another chain."""
        there = Draws.of_arrays(arrays)
        if there is None or not np.array_equal(there.pairs, self._pairs) or there.strengths.shape[1] != self._k:
            raise ValueError("its draws are not of this chain")
        self._every, self._seen = (int(value) for value in arrays[f"{_PREFIX}taken"])
        rows = (there.iterations.tolist(), there.log_likelihoods.tolist(), there.effective_communities.tolist())
        self._kept = list(zip(*rows, there.link_probabilities, there.strengths, strict=True))


def aligned(chains: list[Draws]) -> list[Draws]:
    """The draws of several chains, the same number of each and as far apart.

    Raises :class:`InputError` without draws.
    """
    if not chains or not all(map(len, chains)):
        raise InputError("there are no draws: this run did not sample, or not yet; see --sample-sweeps")
    # Of every chain the distance is a power of two times that of the evaluations.
    apart = [float(np.median(np.diff(one.iterations))) if len(one) > 1 else 1.0 for one in chains]
    widest = max(apart)
    every = [max(1, round(widest / each)) for each in apart]
    count = min(-(-len(one) // step) for one, step in zip(chains, every, strict=True))
    return [one.last(count, step) for one, step in zip(chains, every, strict=True)]
