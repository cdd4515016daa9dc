"""Whether a run has found communities: the verdict, and the two tests behind it.

Both tests compare with graphs that have the same degrees and no other structure (the configuration model):

* Held-out links keep the degrees of their ends and swap partners.  If the model has found communities, it ranks the
  true links above the swapped ones.
* For small graphs, where few links are held out: the second eigenvalue and the best modularity of the whole graph
  against those of rewired graphs.  Few large communities show in the first, many small ones in the second.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from mmsbgen.base.processes import side_by_side
from mmsbgen.graph import Split
from mmsbgen.graph.graph import Adjacency
from mmsbgen.graph.ids import in_order
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics.evaluation import predicting_rows
from mmsbgen.sampler.diagnostics.explained_links import Floats, Ints, RowSource
from mmsbgen.sampler.diagnostics.rewired_graphs import OUTSTANDING, Labels, Rewired, rewired

#: Sets of swapped pairs, and rounds of swaps between two of them; a round proposes a swap for every pair.
_SETS, _ROUNDS = 199, 2
#: Fewer held-out links than these are told with what they show.
FEW_LINKS = 100
#: Most held-out links that are tested, and most multiplications for the scores of all pairs of their ends.
_MOST_TESTED, _MULTIPLICATIONS = 2048, 1 << 35
#: Rows of scores that a thread takes at a time.
_ROWS = 256
#: Fewest held-out links that show structure by themselves, and the standard deviations that this takes: by chance 7 in
#: 10,000, times three as the run took the best of three starts for its validation pairs.
_ENOUGH, _SIGNIFICANT = 10, 3.3
#: Standard errors between an AUC and what it may still be (1 in 20).
_MAY_BE = 1.645
#: Smallest AUC that is not weak, about Cohen's small effect (d = 0.2, AUC .556), and smallest that counts at all.
_CLEAR, _SLIGHT = 0.55, 0.52
#: Links and vertices above which no graph is rewired.
_SMALL, _FEW_VERTICES = 20_000, 100_000
#: Density above which ranks are corrected by those of held-out non-links; below it they would add noise only.
_DENSE = 0.02

_OF_OLDER_RUNS = "Not known whether there are communities: the run was made by a version that did not test it."

Kind = Literal["found", "weak", "degrees", "none", "unknown"]
Tell = Callable[[str, float], None]


@dataclass(frozen=True)
class Ranks:
    """How the model ranks held-out links among links of graphs with the same degrees.

    Attributes:
        links: number of held-out links that were tested.
        auc: probability that one of them ranks above a link of such a graph, .5 without communities.
        error: standard error of ``auc`` without communities.
        deviations: standard deviations by which ``auc`` is above chance, corrected in dense graphs (:func:`ranks`).
    """

    links: int
    auc: float
    error: float
    deviations: float

    @property
    def significant(self) -> bool:
        """Whether the ranks by themselves show communities."""
        return self.links >= _ENOUGH and self.deviations >= _SIGNIFICANT and self.auc >= _SLIGHT

    @property
    def clear(self) -> bool:
        """Whether the communities that they show are not weak."""
        return self.significant and self.auc >= _CLEAR

    @property
    def may_be_clear(self) -> bool:
        """Whether the AUC may be one that is not weak, or nothing could be swapped."""
        return self.error == 0 or (self.auc >= 0.5 and self.auc + _MAY_BE * self.error >= _CLEAR)

    @property
    def confirms(self) -> bool:
        """Whether the ranks agree with a modularity that stands out."""
        return self.auc >= _CLEAR and self.auc - 0.5 >= _MAY_BE * self.error


@dataclass(frozen=True)
class Verdict:
    """Whether a run has found communities.

    Attributes:
        kind: ``found``; ``weak``: there is structure, but little, or these communities do not show it; ``degrees``:
            vertices differ in their degrees, and nothing else was found; ``none``; ``unknown``: nothing was tested.
        sentence: the verdict for people.
        links: number of held-out links that were tested.
        auc: probability that the model ranks a held-out link above a link of a graph with the same degrees, .5 by
            chance.
        auc_error: its standard error by chance.
        auc_deviations: standard deviations by which it is above chance, corrected in dense graphs (:func:`ranks`).
        modularity: the graph's best modularity; None, as the next ones, if it was not needed or the graph is large.
        rewired_modularity: its mean in graphs with the same degrees.
        rewired_deviation: its standard deviation in these.
        eigenvalue: the graph's second one.
        rewired_eigenvalue: its mean in graphs with the same degrees.
        eigenvalue_deviation: its standard deviation in these.
        agreement: share of the eigenvector that the communities explain.
        degree_excess: standard deviations by which the variance of degrees exceeds that of a random graph.
    """

    kind: Kind
    sentence: str
    links: int = 0
    auc: float | None = None
    auc_error: float | None = None
    auc_deviations: float | None = None
    modularity: float | None = None
    rewired_modularity: float | None = None
    rewired_deviation: float | None = None
    eigenvalue: float | None = None
    rewired_eigenvalue: float | None = None
    eigenvalue_deviation: float | None = None
    agreement: float | None = None
    degree_excess: float | None = None

    @property
    def refuted(self) -> bool:
        """Whether no structure was found, so that the communities are not to be used."""
        return self.kind in ("none", "degrees")


def verdict(sampler: Sampler, labels: Labels, tell: Tell = lambda what, share: None) -> Verdict:
    """The verdict on the memberships of a chain, whose largest ones are ``labels`` ``[N]``.

    ``tell`` is called with what is being made and the share done.
    """
    split, seed = sampler.split, sampler.options.seed
    weights = sampler.beta() - sampler.options.crossing
    ranked = ranks(
        split, predicting_rows(sampler), weights, seed, lambda share: tell("links with the same degrees", share)
    )
    compared = None
    clear = ranked is not None and ranked.clear
    if not clear and split.graph.n_links <= _SMALL and split.graph.n_vertices <= _FEW_VERTICES:
        compared = rewired(split.graph, labels, seed, lambda share: tell("graphs with the same degrees", share))
    return decided(ranked, compared, degree_excess(split.degrees))


def of_record(record: Mapping[str, Any]) -> Verdict:
    """The verdict in a run record; ``unknown`` for a record of a version that gave none."""
    if (given := record.get("verdict")) is None:
        return Verdict("unknown", _OF_OLDER_RUNS)
    return Verdict(**{field.name: given[field.name] for field in fields(Verdict) if field.name in given})


def decided(ranked: Ranks | None, compared: Rewired | None, excess: float) -> Verdict:
    """The verdict from the tests; None for a test that was not made.

    ``found`` needs one of three:

    * an AUC of .55 that is 3.3 standard deviations above chance
    * an eigenvalue that stands out by 4 standard deviations, communities that explain .3 of its eigenvector, and an AUC
      that may be .55
    * a modularity that stands out by 4 standard deviations, and an AUC of .55 that is 1.6 errors above chance

    ``weak`` is an AUC from .52 on that is 3.3 standard deviations above chance, or either statistic that stands out.
    """
    stands_out = compared is not None and compared.stands_out
    confirmed = compared is not None and (
        (compared.agrees and (ranked is None or ranked.may_be_clear))
        or (compared.modularity.stands_out and ranked is not None and ranked.confirms)
    )
    significant = ranked is not None and ranked.significant
    kind: Kind
    if ranked is None and compared is None:
        kind = "unknown"
    elif confirmed or (ranked is not None and ranked.clear):
        kind = "found"
    elif significant or stands_out:
        kind = "weak"
    else:
        kind = "degrees" if excess > OUTSTANDING else "none"
    numbers: dict[str, Any] = {"degree_excess": excess}
    if ranked is not None:
        numbers |= {"links": ranked.links, "auc": ranked.auc, "auc_error": ranked.error}
        numbers["auc_deviations"] = ranked.deviations
    if compared is not None:
        for name, one in (("modularity", compared.modularity), ("eigenvalue", compared.eigenvalue)):
            numbers |= {name: one.found, f"rewired_{name}": one.rewired}
        numbers |= {"rewired_deviation": compared.modularity.deviation, "agreement": compared.agreement}
        numbers["eigenvalue_deviation"] = compared.eigenvalue.deviation
    return Verdict(kind, _sentence(kind, ranked, compared), **numbers)


def _sentence(kind: str, ranked: Ranks | None, compared: Rewired | None) -> str:
    if kind == "unknown":
        return "Not known whether there are communities: no links were held out that could tell (--validation)."
    share = ""
    if ranked is not None:
        few = f"{ranked.links} " if ranked.links < FEW_LINKS else ""
        digits = 0 if ranked.error >= 0.005 else 1
        share = (
            f"{few}held-out links outscore links of random graphs with the same degrees in {ranked.auc:.{digits}%} of "
            f"pairs (chance: 50% ± {ranked.error:.{digits}%})."
        )
    if kind in ("none", "degrees"):
        beyond = "" if kind == "none" else " beyond degrees"
        why = "links form no more groups than in random graphs with the same degrees."
        if ranked is not None and ranked.links >= _ENOUGH:
            why = share
        elif compared is None:
            why = "too few links are held out to show any (--validation)."
        return f"No structure found{beyond}: {why} Do not use the communities."
    what = "Structure found" if kind == "found" else "Structure found, but weak"
    if ranked is not None and ranked.significant:
        return f"{what}: {share}"
    assert compared is not None
    shown = "" if kind == "found" else ", but these communities hardly show it"
    by_vector = compared.eigenvalue.stands_out
    name, one = ("second eigenvalue", compared.eigenvalue) if by_vector else ("modularity", compared.modularity)
    return (
        f"{what}: links form groups more than in random graphs with the same degrees ({name} {one.found:.2f}, there "
        f"{one.rewired:.2f}){shown}."
    )


def degree_excess(degrees: Ints) -> float:
    """Standard deviations by which the variance of ``degrees`` ``[N]`` exceeds that of a random graph.

    In a graph whose pairs are linked with one probability, sum (d - mean)^2 / mean is about chi-squared with N - 1
    degrees of freedom, or less.
    """
    mean, free = float(degrees.mean()), degrees.size - 1
    if free < 1 or mean == 0:
        return 0.0
    return (float(((degrees - mean) ** 2).sum()) / mean - free) / math.sqrt(2 * free)


def ranks(
    split: Split, rows: RowSource, weights: Floats, seed: int, tell: Callable[[float], None] = lambda share: None
) -> Ranks | None:
    """How a model ranks the held-out links of ``split``; None for fewer than two links.

    Pairs are scored by p(link) - delta, eq. (2.2), from ``rows`` of pi and ``weights`` beta - delta ``[K]``.  Swaps
    keep every vertex's number of held-out links and make no loop, no double link and no pair that is known.

    The fit has not seen held-out pairs as non-links, but swapped ones.  In dense graphs this alone raises the ranks of
    held-out links.  It raises those of held-out non-links as much; these are subtracted for ``deviations``.
    """
    rng = np.random.Generator(np.random.PCG64([seed, 5]))
    held_out = (split.validation, split.test)
    most = min(_MOST_TESTED, math.isqrt(_MULTIPLICATIONS // 16 // weights.size))
    links = _some(np.concatenate([part.pairs[part.labels] for part in held_out]), most, rng)
    others = _some(np.concatenate([part.pairs[~part.labels] for part in held_out]), most, rng)
    if len(links) < 2:
        return None
    corrected = split.density > _DENSE and len(others) > 1
    tested = np.concatenate([links, others]) if corrected else links
    vertices, at = np.unique(tested, return_inverse=True)
    ends = at.reshape(tested.shape)
    pi = rows(vertices)
    weighted = pi * weights.astype(pi.dtype)
    scores = np.empty((len(pi), len(pi)), pi.dtype)
    parts = [slice(first, first + _ROWS) for first in range(0, len(pi), _ROWS)]
    list(side_by_side(lambda part: np.matmul(weighted[part], pi.T, out=scores[part]), parts))

    def means(drawn: Ints, known: list[npt.NDArray[Any]], share: float) -> Floats:
        barred = _barred(vertices, split.training_adjacency, known)
        return mean_ranks(drawn, scores, barred, rng, lambda done: tell(share + done / (1 + corrected)))

    found = means(ends[: len(links)], [part.pairs[~part.labels] for part in held_out], 0)
    also = [part.pairs[part.labels] for part in held_out]
    excess = found - means(ends[len(links) :], also, 0.5) if corrected else found
    error, spread = float(found[1:].std(ddof=1)), float(excess[1:].std(ddof=1))
    deviations = float(excess[0] - excess[1:].mean()) / spread if spread > 1e-9 else 0.0
    return Ranks(len(links), float(found[0]), error, deviations)


def _some(pairs: Ints, most: int, rng: np.random.Generator) -> Ints:
    """At most ``most`` of ``pairs``, drawn at random."""
    return pairs if len(pairs) <= most else pairs[np.sort(rng.choice(len(pairs), most, replace=False))]


def _barred(vertices: Ints, adjacency: Adjacency, known: list[npt.NDArray[Any]]) -> npt.NDArray[np.bool_]:
    """Which pairs of ``vertices`` ``[V]`` are linked, in arrays ``known`` ``[P, 2]``, or loops, ``[V, V]``."""
    place = np.full(adjacency.n_vertices, -1)
    place[vertices] = np.arange(vertices.size)
    barred = np.eye(vertices.size, dtype=np.bool_)
    for at, vertex in enumerate(vertices.tolist()):
        near = place[adjacency.row(vertex)]
        barred[at, near[near >= 0]] = True
    for pairs in known:
        a, b = place[pairs].T
        there = (a >= 0) & (b >= 0)
        barred[a[there], b[there]] = barred[b[there], a[there]] = True
    return barred


def mean_ranks(
    pairs: Ints,
    scores: npt.NDArray[Any],
    barred: npt.NDArray[np.bool_],
    rng: np.random.Generator,
    tell: Callable[[float], None] = lambda share: None,
) -> Floats:
    """Mean rank by ``scores`` ``[V, V]`` of ``pairs`` ``[H, 2]`` and of 199 sets swapped from them, ``[200]``.

    A rank is the share of all pairs of these sets that score less, ties counting half.
    """
    sets = [pairs]
    # Two walks from the pairs that were held out: then these are a random member of one stationary sequence.
    before = int(rng.integers(_SETS + 1))
    for count in (before, _SETS - before):
        for drawn in islice(swapped(pairs, barred, rng), _ROUNDS - 1, _ROUNDS * count, _ROUNDS):
            sets.append(drawn)
            tell(len(sets) / (_SETS + 1))
    values = np.stack([scores[drawn[:, 0], drawn[:, 1]] for drawn in sets])
    order = np.argsort(values, axis=None)
    ascending = values.ravel()[order]
    bounds = np.flatnonzero(np.concatenate([[True], ascending[1:] != ascending[:-1], [True]]))
    shares = np.empty(values.size)
    shares[order] = np.repeat((bounds[:-1] + bounds[1:]) / (2 * values.size), np.diff(bounds))
    means: Floats = shares.reshape(values.shape).mean(axis=1)
    return means


def swapped(links: Ints, barred: npt.NDArray[np.bool_], rng: np.random.Generator) -> Iterator[Ints]:
    """Walk over the sets of links with the degrees of ``links`` ``[H, 2]``, all with one probability; after each round.

    A round pairs the links at random and swaps partners of a pair unless that makes a pair in ``barred`` or a double
    link.  It also leaves alone what another swap of the round would make or unmake, so that every round can be undone
    with the same probability.
    """
    n, half = len(barred), len(links) // 2
    while True:
        first, second = rng.permutation(len(links))[: 2 * half].reshape(2, half)
        turned = rng.random(half) < 0.5
        a, b = links[first].T
        c, d = np.where(turned[:, None], links[second][:, ::-1], links[second]).T
        ends = np.concatenate([links.T, [a, d], [c, b]], axis=1)
        keys = ends.min(axis=0) * n + ends.max(axis=0)
        ascending, places = in_order(keys)
        again = np.concatenate([[False], ascending[1:] == ascending[:-1], [False]])
        once = np.empty(keys.size, bool)
        once[places] = ~(again[1:] | again[:-1])
        made = once[len(links) :].reshape(2, half).all(axis=0)
        may = made & once[first] & once[second] & ~barred[a, d] & ~barred[c, b]
        links = links.copy()
        links[first[may]], links[second[may]] = np.stack([a, d], axis=1)[may], np.stack([c, b], axis=1)[may]
        yield links
