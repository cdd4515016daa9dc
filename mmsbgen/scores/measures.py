"""Agreement of two covers, all measures over the same set of vertices.

The set of vertices matters: a vertex that is in no community of either cover counts as one on which they agree, so
that measures over fewer vertices come out lower.  Some libraries leave such vertices out.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.base.errors import InputError, MissingDependencyError
from mmsbgen.base.id_text import canonical_word
from mmsbgen.base.progress import Stage, stage

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: Entries of a table of communities by communities, or of vertices by vertices, that are held at a time.
_BLOCK = 1 << 22
#: Pairs of communities from which networkit, which lets no other thread run meanwhile, takes seconds.
_MANY = 1 << 22
#: Sums of entropies that differ by no more than this, some tens of roundings of numbers below one, are equal.
_TIE = 1e-14


@dataclass(frozen=True)
class Scores:
    """What :func:`evaluate` found; the four measures are 1 for equal covers.

    onmi
        Overlapping normalised mutual information of McDaid, Greene and Hurley, normalised by the larger entropy:
        0 to 1, 0 for covers that say nothing of each other and for a single community of all vertices.
    onmi_lfk
        That of Lancichinetti, Fortunato and Kertesz, normalised community by community: 0 to 1, and well above 0
        for covers that have little to do with each other.
    average_f1
        Mean of both directions of the mean F1 of every community with the one that it matches best (Yang and
        Leskovec): 0 to 1.  One community of all vertices can score high where communities are large.
    omega
        Omega index (Collins and Dent): pairs of vertices that share equally many communities in both covers, less
        what is due to chance; at most 1, 0 in the mean for chance.
    vertices
        Number of vertices that all of these are over.
    communities, coverage, memberships
        Of the cover: number of communities, share of the vertices that are in one, communities of such a vertex in
        the mean.
    true_communities, true_coverage, true_memberships
        The same of the truth.
    """

    onmi: float
    onmi_lfk: float
    average_f1: float
    omega: float
    vertices: int
    communities: int
    coverage: float
    memberships: float
    true_communities: int
    true_coverage: float
    true_memberships: float


def evaluate(
    cover: Sequence[Collection[Any]], truth: Sequence[Collection[Any]], vertices: Iterable[Any] | None = None
) -> Scores:
    """Compare a cover with the true one.

    ``cover`` and ``truth`` hold communities as collections of ids; ids are compared as strings, so that 7 and "7" are
    the same vertex.  ``vertices`` are all vertices of the graph, those without a link or a community too; without it
    they are the union of both covers, which lowers the scores where vertices are in no community.  Communities that
    occur twice or have one member count as they are.

    The ONMI and the average F1 are computed by networkit, of which the first leaves out pairs of communities
    without a common vertex, as its authors' program does.

    Raises:
        InputError: a cover is empty, has an empty community, or an id that is not in ``vertices``.
        MissingDependencyError: networkit or scipy is not installed; the message says how to get them.
    """
    found, true = _communities(cover, "cover"), _communities(truth, "truth")
    universe = set().union(*found, *true) if vertices is None else set(map(canonical_word, vertices))
    names = sorted(universe)
    places = {name: place for place, name in enumerate(names)}
    x, y = (_Incidence.of(sets, places, what) for sets, what in ((found, "cover"), (true, "truth")))
    with stage("comparing covers: ONMI and average F1", alone=len(found) * len(true) > _MANY):
        onmi, average_f1 = _by_networkit(x, y)
    with stage("comparing covers: ONMI of Lancichinetti, Fortunato and Kertesz"):
        onmi_lfk = _lfk(x, y)
    with stage("comparing covers: Omega index", len(names), "vertices") as told:
        omega = _omega(x, y, told)
    return Scores(
        onmi=onmi,
        onmi_lfk=onmi_lfk,
        average_f1=average_f1,
        omega=omega,
        vertices=len(names),
        communities=len(found),
        coverage=x.coverage,
        memberships=x.memberships,
        true_communities=len(true),
        true_coverage=y.coverage,
        true_memberships=y.memberships,
    )


def _communities(cover: Sequence[Collection[Any]], what: str) -> list[set[str]]:
    """Communities as sets of strings. Raises InputError for values that are no cover."""
    if isinstance(cover, str | bytes):
        raise InputError(f"the {what} {cover!r} is a string; read a file by mmsbgen.scores.read_cover first")
    sets = []
    for number, community in enumerate(cover, start=1):
        if isinstance(community, str | bytes):
            raise InputError(f"community {number} of the {what}, {community!r}, is a string; give a list of ids")
        sets.append(set(map(canonical_word, community)))
        if not sets[-1]:
            raise InputError(f"community {number} of the {what} has no member; leave it out")
    if not sets:
        raise InputError(f"the {what} has no community; give at least one, which can be a single vertex")
    return sets


@dataclass(frozen=True)
class _Incidence:
    """A cover as pairs of community and vertex numbers, both ``[M]``, by ascending community."""

    community: Ints
    vertex: Ints
    n_communities: int
    n_vertices: int

    @staticmethod
    def of(sets: Sequence[set[str]], places: dict[str, int], what: str) -> _Incidence:
        vertex: list[int] = []
        for number, members in enumerate(sets, start=1):
            strange = members - places.keys()
            if strange:
                raise InputError(
                    f"community {number} of the {what} has the id {min(strange)!r}, which is no vertex of the graph; "
                    "give the graph that the cover belongs to (ids are separated by tabs or spaces and compared as "
                    "they are written)"
                )
            vertex += sorted(map(places.__getitem__, members))
        sizes = np.array([len(members) for members in sets])
        return _Incidence(np.repeat(np.arange(len(sets)), sizes), np.array(vertex), len(sets), len(places))

    @property
    def sizes(self) -> Ints:
        """Members of every community, ``[K]``."""
        return np.bincount(self.community, minlength=self.n_communities)

    @property
    def degrees(self) -> Ints:
        """Communities of every vertex, ``[N]``."""
        return np.bincount(self.vertex, minlength=self.n_vertices)

    @property
    def coverage(self) -> float:
        return int(np.count_nonzero(self.degrees)) / self.n_vertices

    @property
    def memberships(self) -> float:
        return self.vertex.size / int(np.count_nonzero(self.degrees))

    def matrix(self) -> Any:
        """Zeros and ones ``[N, K]``, int64 compressed rows."""
        sparse = _library("scipy.sparse")
        shape = (self.n_vertices, self.n_communities)
        return sparse.csr_array((np.ones(self.vertex.size, np.int64), (self.vertex, self.community)), shape=shape)


def _library(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingDependencyError(
            f"comparing covers needs {name.partition('.')[0]}, which does not load ({error}); "
            "get it with: pip install 'mmsbgen[evaluate]'"
        ) from None


def _by_networkit(x: _Incidence, y: _Incidence) -> tuple[float, float]:
    """ONMI of McDaid, Greene and Hurley (arXiv:1110.2515), and the average F1 of Yang and Leskovec (2013)."""
    nk = _library("networkit")
    graph = nk.Graph(x.n_vertices)
    covers = []
    for side in (x, y):
        covers.append(nk.Cover(side.n_vertices))
        covers[-1].setUpperBound(side.n_communities)
        for community, vertex in zip(side.community.tolist(), side.vertex.tolist(), strict=True):
            covers[-1].addToSubset(community, vertex)
    distance = nk.community.OverlappingNMIDistance(nk.community.Normalization.MAX)
    onmi = 1.0 - distance.getDissimilarity(graph, *covers)
    directions = [nk.community.CoverF1Similarity(graph, one, other) for one, other in (covers, covers[::-1])]
    return onmi, sum(direction.run().getUnweightedAverage() for direction in directions) / 2


def _lfk(x: _Incidence, y: _Incidence) -> float:
    """NMI of two covers by Lancichinetti, Fortunato and Kertesz (New J. Phys. 11, 033015, 2009), appendix B."""
    common = (x.matrix().T @ y.matrix()).tocsr()
    return 1.0 - (_unknown(common, x, y) + _unknown(common.T.tocsr(), y, x)) / 2


def _unknown(common: Any, x: _Incidence, y: _Incidence) -> float:
    """Mean over the communities i of X of H(X_i | Y) / H(X_i); ``common`` ``[K_x, K_y]`` counts common members.

    H(X_i | Y) is the least H(X_i | Y_j), of the j alone for which agreeing says more than disagreeing, else H(X_i).
    A community of all vertices has no entropy.  As in the authors' program it counts as unknown, but not where the
    other cover has it too, so that equal covers score 1.
    """
    n = x.n_vertices
    shares = np.arange(n + 1) / n
    h = np.zeros(n + 1)
    h[1:] = -shares[1:] * np.log2(shares[1:])
    sizes_x, sizes_y = x.sizes, y.sizes
    entropy_x, entropy_y = (h[sizes] + h[n - sizes] for sizes in (sizes_x, sizes_y))
    least = entropy_x.copy()
    step = max(1, _BLOCK // y.n_communities)
    for first in range(0, x.n_communities, step):
        rows = slice(first, first + step)
        both = common[rows].toarray()
        only_x, only_y = sizes_x[rows, None] - both, sizes_y - both
        neither = n - both - only_x - only_y
        agree, differ = h[both] + h[neither], h[only_x] + h[only_y]
        given = np.where(agree > differ + _TIE, agree + differ - entropy_y, np.inf)
        least[rows] = np.minimum(least[rows], given.min(axis=1).clip(min=0.0))
    some = entropy_x > 0
    share = np.full(x.n_communities, 0.0 if np.any(sizes_y == n) else 1.0)
    share[some] = least[some] / entropy_x[some]
    return float(share.mean())


def _omega(x: _Incidence, y: _Incidence, told: Stage) -> float:
    """Omega index (L. M. Collins, C. W. Dent, Multivariate Behav. Res. 23, 231-242, 1988).

    Of the P = N (N - 1) ordered pairs of vertices, A share equally many communities in both covers; T_j and U_j
    share j in the first and in the second.  omega = (A P - E) / (P^2 - E) with E = sum_j T_j U_j; 1 where P^2 = E.
    Time goes with the sum of the squared sizes of the communities.
    """
    n = x.n_vertices
    pairs = n * (n - 1)
    counts: tuple[Counter[int], Counter[int]] = (Counter(), Counter())
    differ = 0
    matrices = (x.matrix(), y.matrix())
    others = [matrix.T.tocsr() for matrix in matrices]
    for first, stop in _row_blocks(matrices[0] @ x.sizes + matrices[1] @ y.sizes):
        shared = [m[first:stop] @ other for m, other in zip(matrices, others, strict=True)]
        differ += int((shared[0] - shared[1]).count_nonzero())
        for count, part in zip(counts, shared, strict=True):
            count.update(_histogram(part.data))
        told.tell(stop)
    # So far with every vertex paired with itself, which shares its own number of communities.
    differ -= int(np.count_nonzero(x.degrees != y.degrees))
    for count, side in zip(counts, (x, y), strict=True):
        count.subtract(_histogram(side.degrees[side.degrees > 0]))
        count[0] = pairs - count.total()
    chance = sum(number * counts[1][level] for level, number in counts[0].items())
    if chance == pairs**2:
        return 1.0
    return ((pairs - differ) * pairs - chance) / (pairs**2 - chance)


def _histogram(values: Ints) -> dict[int, int]:
    levels, numbers = np.unique(values, return_counts=True)
    return dict(zip(levels.tolist(), numbers.tolist(), strict=True))


def _row_blocks(costs: Ints) -> list[tuple[int, int]]:
    """Ranges of rows whose ``costs`` ``[N]`` sum up to about ``_BLOCK`` or that are one row."""
    ends = np.flatnonzero(np.diff(np.cumsum(costs) // _BLOCK)) + 1
    bounds = [0, *ends.tolist(), len(costs)]
    return list(itertools.pairwise(bounds))
