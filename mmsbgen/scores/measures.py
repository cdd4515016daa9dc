"""Agreement of two covers; all measures are over the same set of vertices.

A vertex that is in no community of either cover counts as agreement, so leaving such vertices out lowers the scores.
Some libraries leave them out.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.base.id_text import canonical_word
from mmsbgen.base.libraries import networkit
from mmsbgen.base.progress import Stage, stage
from mmsbgen.scores.incidence import MemberPairs, communities_of

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: Entries of a table (communities by communities, or vertices by vertices) that are computed at a time.
_BLOCK = 1 << 22
#: From so many pairs of communities on, networkit takes seconds; no other thread can run meanwhile.
_MANY = 1 << 22
#: Sums of entropies that differ by no more than this, some tens of rounding errors of numbers below one, are equal.
_TIE = 1e-14


@dataclass(frozen=True)
class Scores:
    """Result of :func:`evaluate`; the four measures are 1 for equal covers.

    onmi
        Overlapping normalised mutual information of McDaid, Greene and Hurley, normalised by the larger entropy: 0
        to 1.  It is 0 for covers without mutual information and for a single community of all vertices.
    onmi_lfk
        The measure of Lancichinetti, Fortunato and Kertesz, normalised community by community: 0 to 1, and well above 0
        even for unrelated covers.
    average_f1
        Mean over both directions of the mean F1 of each community with its best match (Yang and Leskovec): 0 to 1.
        One community of all vertices can score high where communities are large.
    omega
        Omega index (Collins and Dent): agreement on the number of communities that each pair of vertices shares,
        corrected for chance; at most 1, and 0 on average for chance.
    vertices
        Number of vertices over which the measures are computed.
    communities, coverage, memberships
        Of the cover: number of communities, share of the vertices that are in one, and mean number of communities of
        such a vertex.
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

    Duplicate communities and communities of one member count like any others.

    networkit computes the ONMI and the average F1.  Its ONMI leaves out pairs of communities without a common vertex,
    as the program of its authors does.

    Args:
        cover: communities as collections of ids.  Ids are compared as strings: 7 and "7" are the same vertex.
        truth: the true communities, in the same form.
        vertices: all vertices of the graph, including those without a link or a community.  By default the union of
            both covers, which lowers the scores if some vertices are in no community.

    Raises:
        InputError: a cover is empty, has an empty community, or an id that is not in ``vertices``.
    """
    found, true = communities_of(cover, "cover"), communities_of(truth, "truth")
    universe = set().union(*found, *true) if vertices is None else set(map(canonical_word, vertices))
    names = sorted(universe)
    places = {name: place for place, name in enumerate(names)}
    x, y = (MemberPairs.of(sets, places, what) for sets, what in ((found, "cover"), (true, "truth")))
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


def _by_networkit(x: MemberPairs, y: MemberPairs) -> tuple[float, float]:
    """ONMI of McDaid, Greene and Hurley (arXiv:1110.2515), and the average F1 of Yang and Leskovec (2013)."""
    nk = networkit()

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


def _lfk(x: MemberPairs, y: MemberPairs) -> float:
    """NMI of two covers by Lancichinetti, Fortunato and Kertesz (New J. Phys. 11, 033015, 2009), appendix B."""
    common = (x.matrix().T @ y.matrix()).tocsr()
    return 1.0 - (_unknown(common, x, y) + _unknown(common.T.tocsr(), y, x)) / 2


def _unknown(common: Any, x: MemberPairs, y: MemberPairs) -> float:
    """Mean over the communities i of X of H(X_i | Y) / H(X_i); ``common`` ``[K_x, K_y]`` counts common members.

    With h(m) = -(m/N) log2(m/N), H(X_i | Y) is the least H(X_i | Y_j) over the communities j for which the terms h of
    agreement (vertices in both, in neither) exceed those of disagreement (in one only).  It is H(X_i) if that is less,
    or if there is no such j.  A community of all vertices has no entropy.  As in the authors' program its ratio is 1,
    unless the other cover has it too; so equal covers score 1.
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


def _omega(x: MemberPairs, y: MemberPairs, told: Stage) -> float:
    """Omega index (L. M. Collins, C. W. Dent, Multivariate Behav. Res. 23, 231-242, 1988).

    Of the P = N (N - 1) ordered pairs of vertices, A share equally many communities in both covers; T_j and U_j pairs
    share j communities in the first and in the second.  omega = (A P - E) / (P^2 - E) with E = sum_j T_j U_j; 1 where
    P^2 = E.  The time grows with the sum of the squared sizes of the communities.
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
    # Remove the pairs of a vertex with itself, which share all communities of that vertex.
    differ -= int(np.count_nonzero(x.degrees != y.degrees))
    for count, side in zip(counts, (x, y), strict=True):
        count.subtract(_histogram(side.degrees[side.degrees > 0]))
        count[0] = pairs - count.total()
    chance = sum(number * counts[1][level] for level, number in counts[0].items())
    return 1.0 if chance == pairs**2 else ((pairs - differ) * pairs - chance) / (pairs**2 - chance)


def _histogram(values: Ints) -> dict[int, int]:
    levels, numbers = np.unique(values, return_counts=True)
    return dict(zip(levels.tolist(), numbers.tolist(), strict=True))


def _row_blocks(costs: Ints) -> list[tuple[int, int]]:
    """Ranges of rows whose ``costs`` ``[N]`` sum to about ``_BLOCK``, or of a single row that costs more."""
    ends = np.flatnonzero(np.diff(np.cumsum(costs) // _BLOCK)) + 1
    bounds = [0, *ends.tolist(), len(costs)]
    return list(itertools.pairwise(bounds))
