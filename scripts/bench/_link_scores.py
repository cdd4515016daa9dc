"""Pairs to predict, which are hidden links and non-links, and scores of pairs by the adjacency of what is shown."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import igraph
import numpy as np
import numpy.typing as npt
from _kept import GraphCase
from scipy.sparse import csr_array, csr_matrix

from mmsbgen.sampler.diagnostics.held_out import auc

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
#: Distances of near non-links in the graph that is shown.
NEAR = (2, 3)
#: Share of the links that is hidden, and the seed of which.
SHARE, SEED = 0.1, 0
#: Factors and weights of alternating least squares among which links that are hidden once more choose.
SIZES, ALPHAS = (16, 64, 128), (1.0, 10.0, 40.0)


def hide(links: Ints, share: float, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """The links ``[E, 2]`` that are shown and those that are hidden, a ``share`` of them at random."""
    hidden = np.zeros(len(links), bool)
    hidden[rng.choice(len(links), round(share * len(links)), replace=False)] = True
    return links[~hidden], links[hidden]


def _keys(pairs: Ints, n: int) -> Ints:
    return pairs.min(axis=1) * n + pairs.max(axis=1)


def _distinct(draw: Callable[[int], Ints], count: int, links: Ints, n: int) -> Ints:
    """``count`` distinct pairs that ``draw`` makes and that are no links, in the order drawn."""
    known, found = set(_keys(links, n).tolist()), dict[int, None]()
    for _ in range(1000):
        keys = _keys(draw(count), n).tolist()
        found |= dict.fromkeys(key for key in keys if key not in known and key // n != key % n)
        if len(found) >= count:
            chosen = np.array([*found][:count], np.int64)
            return np.stack([chosen // n, chosen % n], axis=1)
    raise ValueError(f"the graph has no {count} non-links of this kind")


def any_non_links(n: int, links: Ints, count: int, rng: np.random.Generator) -> Ints:
    """``count`` of all pairs that are no ``links``, each as likely as any other."""
    return _distinct(lambda size: rng.integers(0, n, (size, 2)), count, links, n)


def near_non_links(n: int, links: Ints, shown: Ints, count: int, rng: np.random.Generator) -> Ints:
    """``count`` of the pairs at distance 2 or 3 by the ``shown`` links that are no ``links``, all equally likely."""
    graph = igraph.Graph(n, shown)
    sizes = np.array(graph.neighborhood_size(order=NEAR[1], mindist=NEAR[0]), float)

    def draw(size: int) -> Ints:
        firsts = rng.choice(n, size, p=sizes / sizes.sum())
        around = graph.neighborhood(np.unique(firsts), order=NEAR[1], mindist=NEAR[0])
        of = dict(zip(np.unique(firsts).tolist(), around, strict=True))
        return np.array([(first, of[first][rng.integers(len(of[first]))]) for first in firsts.tolist()], np.int64)

    return _distinct(draw, count, links, n)


def adjacency(n: int, links: Ints) -> Any:
    """The symmetric adjacency ``[n, n]`` as scipy's csr_array of float64."""
    ends = np.concatenate([links, links[:, ::-1]])
    return csr_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(n, n))


@dataclass
class LinkCase(GraphCase):
    """A graph with a tenth of its links hidden, and the pairs to rank."""

    @cached_property
    def parts(self) -> tuple[Ints, Ints, Ints, Ints]:
        """The links that are shown, those that are hidden, any non-links and near ones."""
        rng, n, links = np.random.default_rng(SEED), self.graph.n_vertices, self.graph.links.astype(np.int64)
        shown, hidden = hide(links, SHARE, rng)
        count = len(hidden)
        return shown, hidden, any_non_links(n, links, count, rng), near_non_links(n, links, shown, count, rng)

    @property
    def pairs(self) -> Ints:
        """Hidden links, any non-links and near ones, as many of each, one after another."""
        return np.concatenate(self.parts[1:])

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What the page says of the graph."""
        shown, hidden, *_ = self.parts
        rows = adjacency(self.graph.n_vertices, shown)
        common = rows[hidden[:, 0]].multiply(rows[hidden[:, 1]]).sum(axis=1)
        alone = np.bincount(shown.ravel(), minlength=self.graph.n_vertices)[hidden].min(axis=1) == 0
        return {
            "vertices": self.graph.n_vertices,
            "links": self.graph.n_links,
            "hidden": len(hidden),
            "alone": float(alone.mean()),
            "common": float((common > 0).mean()),
        }


def _common(weigh: Callable[[Floats], Floats]) -> Callable[[Any, Ints], Floats]:
    """Scores that add the weights of common neighbours, which are a function of their degrees."""

    def score(rows: Any, pairs: Ints) -> Floats:
        weights = weigh(np.maximum(rows.sum(axis=1), 2.0))
        scores: Floats = rows[pairs[:, 0]].multiply(rows[pairs[:, 1]]) @ weights
        return scores

    return score


def preferential(rows: Any, pairs: Ints) -> Floats:
    """The product of the degrees (Barabasi and Albert 1999)."""
    degrees = rows.sum(axis=1)
    product: Floats = degrees[pairs[:, 0]] * degrees[pairs[:, 1]]
    return product


#: Scores of pairs ``[P]`` by the adjacency.  A common neighbour has at least two links, so no degree below is weighed.
NEIGHBOURS: dict[str, Callable[[Any, Ints], Floats]] = {
    "common-neighbours": _common(np.ones_like),
    "adamic-adar": _common(lambda degrees: 1 / np.log(degrees)),
    "resource-allocation": _common(lambda degrees: 1 / degrees),
    "preferential-attachment": preferential,
}


def factors(rows: Any, size: int, alpha: float) -> Callable[[Ints], Floats]:
    """Scores of pairs ``[P]`` by alternating least squares of the adjacency, with ``size`` factors.

    Links have the weight 1 + ``alpha``, all other pairs 1 (Hu, Koren and Volinsky 2008).
    """
    import implicit
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, "blas"):  # as the library advises
        model = implicit.als.AlternatingLeastSquares(size, alpha=alpha, regularization=0.1, random_state=0)
        model.fit(csr_matrix(rows), show_progress=False)
    left, right = model.user_factors, model.item_factors

    def score(pairs: Ints) -> Floats:
        first, second = pairs.T
        scores: Floats = (left[first] * right[second] + left[second] * right[first]).sum(axis=1)
        return scores

    return score


def best_factors(n: int, shown: Ints, rng: np.random.Generator) -> tuple[int, float]:
    """Size and weight with the best AUC of a tenth of the ``shown`` links, hidden once more, against other pairs."""
    rest, hidden = hide(shown, 0.1, rng)
    pairs = np.concatenate([hidden, any_non_links(n, shown, len(hidden), rng)])
    labels, rows = np.arange(len(pairs)) < len(hidden), adjacency(n, rest)
    return max(itertools.product(SIZES, ALPHAS), key=lambda given: auc(factors(rows, *given)(pairs), labels))
