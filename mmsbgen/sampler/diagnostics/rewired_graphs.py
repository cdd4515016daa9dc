"""The graph beside graphs rewired to the same degrees: the second eigenvalue, and the best modularity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.graph import Graph
from mmsbgen.sampler.diagnostics.explained_links import Floats
from mmsbgen.sampler.starts import leiden

#: Share of an eigenvector that communities explain, from which they show the structure that it is evidence of.
_AGREEMENT = 0.3
#: Rewired graphs, and swaps tried for each as a multiple of the links.
_REWIRED, _TRIED = 24, 10
#: Vertices up to which all eigenvalues are computed, and relative accuracy of the second one above.
_DENSELY, _ACCURACY = 300, 1e-5
#: Standard deviations by which a statistic must stand out (less than 1 in 1000 by chance).
OUTSTANDING = 4.0

Labels = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Statistic:
    """A statistic of the graph (``found``), and its mean and standard deviation in rewired graphs."""

    found: float
    rewired: float
    deviation: float

    @property
    def stands_out(self) -> bool:
        """Whether it is beyond what graphs of the same degrees have."""
        return self.found - self.rewired > OUTSTANDING * max(self.deviation, 1e-9)

    @staticmethod
    def of(values: Sequence[float]) -> Statistic:
        """The statistic from its values in the graph and in the rewired graphs."""
        return Statistic(values[0], float(np.mean(values[1:])), float(np.std(values[1:], ddof=1)))


@dataclass(frozen=True)
class Rewired:
    """The second eigenvalue, and the modularity of Leiden's communities, in the graph and in rewired graphs.

    ``agreement`` is the share of the eigenvector's variance between the communities found, corrected for their number.
    """

    eigenvalue: Statistic
    modularity: Statistic
    agreement: float

    @property
    def stands_out(self) -> bool:
        """Whether either statistic does."""
        return self.eigenvalue.stands_out or self.modularity.stands_out

    @property
    def agrees(self) -> bool:
        """Whether the eigenvalue stands out, and the communities are what it stands for."""
        return self.eigenvalue.stands_out and self.agreement >= _AGREEMENT


def rewired(
    graph: Graph, labels: Labels, seed: int, tell: Callable[[float], None] = lambda share: None
) -> Rewired | None:
    """``graph`` beside graphs rewired to the same degrees; ``labels`` ``[N]`` are beside its eigenvector.

    Vertices without links are left out.  None if an eigenvalue does not converge.
    """
    from scipy.sparse.linalg import ArpackNoConvergence

    vertices, at = np.unique(graph.links, return_inverse=True)
    links: npt.NDArray[Any] = at.reshape(graph.links.shape)
    eigenvalues, modularities, agreement = [], [], 0.0
    for done in range(_REWIRED + 1):
        try:
            value, vector, weights = second_eigenpair(links, vertices.size)
        except ArpackNoConvergence:
            return None
        drawn = leiden.network(vertices.size, links)
        eigenvalues.append(value)
        modularities.append(leiden.modularity(links, leiden.leiden(drawn, 1.0, seed + done)))
        if done == 0:
            agreement = _explained_share(vector, weights, labels[vertices])
        if done < _REWIRED:
            links = leiden.rewired(drawn, _TRIED, seed + done)
        tell((done + 1) / (_REWIRED + 1))
    return Rewired(Statistic.of(eigenvalues), Statistic.of(modularities), agreement)


def second_eigenpair(links: npt.NDArray[Any], n_vertices: int) -> tuple[float, Floats, Floats]:
    """Second largest eigenvalue of (D + c)^-1/2 (A + c/N) (D + c)^-1/2, c the mean degree (Amini et al. 2013).

    Also its eigenvector ``[N]`` divided by the square roots of ``weights`` ``[N]`` = D + c, and these.
    """
    import scipy.sparse.linalg  # takes a quarter of a second, and few runs need it

    degrees = np.bincount(links.ravel(), minlength=n_vertices)
    mean = float(degrees.mean())
    weights: Floats = degrees.astype(np.float64) + mean
    roots: Floats = np.sqrt(weights)
    entries = 1.0 / (roots[links[:, 0]] * roots[links[:, 1]])
    half = scipy.sparse.coo_array((entries, (links[:, 0], links[:, 1])), (n_vertices, n_vertices))
    sparse, alike, first = (half + half.T).tocsr(), 1.0 / roots, roots / np.linalg.norm(roots)

    def product(vector: Floats) -> Floats:
        # The first eigenvector, whose eigenvalue is 1, gets the eigenvalue -1.
        found: Floats = sparse @ vector + mean / n_vertices * alike * (alike @ vector) - 2.0 * first * (first @ vector)
        return found

    if n_vertices <= _DENSELY:
        values, vectors = np.linalg.eigh(
            sparse + mean / n_vertices * np.outer(alike, alike) - 2.0 * np.outer(first, first)
        )
    else:
        operator = scipy.sparse.linalg.LinearOperator((n_vertices, n_vertices), product, dtype=np.float64)
        begin = np.random.Generator(np.random.PCG64(n_vertices)).normal(size=n_vertices)
        values, vectors = scipy.sparse.linalg.eigsh(operator, 1, which="LA", v0=begin, tol=_ACCURACY)
    return float(values[-1]), vectors[:, -1] / roots, weights


def _explained_share(values: Floats, weights: Floats, labels: Labels) -> float:
    """Share of the variance of ``values`` ``[N]`` between groups of equal ``labels``, corrected for their number."""
    _, groups = np.unique(labels, return_inverse=True)
    sizes = np.bincount(groups, weights)
    means = np.bincount(groups, weights * values) / sizes
    within = float(weights @ (values - means[groups]) ** 2)
    total = float(weights @ (values - np.average(values, weights=weights)) ** 2)
    free = values.size - sizes.size
    if free <= 0 or total <= 0:
        return 0.0
    return float(np.clip(1.0 - within / free * (values.size - 1) / total, 0.0, 1.0))
