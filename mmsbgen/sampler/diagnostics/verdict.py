"""Whether a run has found communities: the verdict, and the two tests behind it.

Both tests compare with graphs that have the same degrees and no other structure (the configuration model):

* Held-out links keep the degrees of their ends and swap partners.  If the model has found communities, it ranks the
  true links above the swapped ones.
* For small graphs, where few links are held out: the second eigenvalue of the whole graph against that of rewired
  graphs.  It stands out as soon as any method can find communities (Nadakuditi and Newman 2012).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from mmsbgen.graph import Graph, Split
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics.explained_links import Floats, Ints, RowSource, as_unknown
from mmsbgen.sampler.diagnostics.state_rows import row_source
from mmsbgen.sampler.starts import leiden

__all__ = ["Ranks", "Spectrum", "Verdict", "decided", "degree_excess", "of_record", "ranks", "spectrum", "verdict"]

#: Sets of swapped pairs, and rounds of swaps between two of them; a round proposes a swap for every pair.
_SETS, _ROUNDS = 199, 2
#: Most held-out links that are tested, and most multiplications for the scores of all pairs of their ends.
_MOST_TESTED, _MULTIPLICATIONS = 2048, 1 << 35
#: Fewest held-out links that show structure by themselves, and the standard deviations that this takes: by chance 7 in
#: 10,000, times three as the run took the best of three starts for its validation pairs.
_ENOUGH, _SIGNIFICANT = 10, 3.3
#: Standard errors between an AUC and what it may still be (1 in 20).
_MAY_BE = 1.645
#: Share of an eigenvector that communities explain, from which they show the structure that it is evidence of.
_AGREEMENT = 0.3
#: Smallest AUC that is not weak, about Cohen's small effect (d = 0.2, AUC .556), and smallest that counts at all.
_CLEAR, _SLIGHT = 0.55, 0.52
#: Density above which ranks are corrected by those of held-out non-links; below it they would add noise only.
_DENSE = 0.02
#: Rewired graphs, and swaps tried for each as a multiple of the links.
_REWIRED, _TRIED = 24, 10
#: Links above which no graph is rewired.
_SMALL = 20_000
#: Vertices up to which all eigenvalues are computed, and relative accuracy of the second one above.
_DENSELY, _ACCURACY = 300, 1e-5
#: Standard deviations by which an eigenvalue or a variance of degrees must stand out (about 3 in 10,000 by chance).
_OUTSTANDING = 4.0

_OF_OLDER_RUNS = "Not known whether there are communities: the run was made by a version that did not test it."

Kind = Literal["found", "weak", "degrees", "none", "unknown"]
Tell = Callable[[str, float], None]
Labels = npt.NDArray[np.integer[Any]]


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
    def may_be_clear(self) -> bool:
        """Whether the AUC may be one that is not weak."""
        return self.auc + _MAY_BE * self.error >= _CLEAR


@dataclass(frozen=True)
class Spectrum:
    """Second eigenvalue of the graph (``found``), and its mean and deviation in rewired graphs.

    ``agreement`` is the share of its eigenvector's variance between the communities, corrected for their number.
    """

    found: float
    rewired: float
    deviation: float
    agreement: float

    @property
    def stands_out(self) -> bool:
        """Whether the eigenvalue is beyond what graphs of the same degrees have."""
        return self.found - self.rewired > _OUTSTANDING * max(self.deviation, 1e-9)

    @property
    def confirms(self) -> bool:
        """Whether it stands out, and the communities are what it stands for."""
        return self.stands_out and self.agreement >= _AGREEMENT


@dataclass(frozen=True)
class Verdict:
    """Whether a run has found communities.

    Attributes:
        kind: ``found``; ``weak``: there is structure, but little, or these communities do not show it; ``degrees``:
            vertices differ in their degrees, and nothing else was found; ``none``; ``unknown``: nothing was tested.
        sentence: the verdict for people.
        links: number of held-out links that were tested.
        auc: probability that the model ranks a held-out link above one of a graph with the same degrees, .5 by chance.
        auc_error: its standard error by chance.
        auc_deviations: standard deviations by which it is above chance, corrected in dense graphs (:func:`ranks`).
        eigenvalue: the graph's second one; None, as the next three, if it was not needed or the graph is large.
        rewired_eigenvalue: its mean in graphs with the same degrees.
        rewired_deviation: its standard deviation in these.
        agreement: share of the eigenvector that the communities explain.
        degree_excess: standard deviations by which the variance of degrees exceeds that of a random graph.
    """

    kind: Kind
    sentence: str
    links: int = 0
    auc: float | None = None
    auc_error: float | None = None
    auc_deviations: float | None = None
    eigenvalue: float | None = None
    rewired_eigenvalue: float | None = None
    rewired_deviation: float | None = None
    agreement: float | None = None
    degree_excess: float | None = None


def verdict(sampler: Sampler, labels: Labels, tell: Tell = lambda what, share: None) -> Verdict:
    """The verdict on the memberships of a chain, whose largest ones are ``labels`` ``[N]``.

    ``tell`` is called with what is being made and the share done.
    """
    split, seed = sampler.split, sampler.options.seed
    rows = as_unknown(row_source(sampler), split.unlinked, np.full(sampler.shape.k, 1.0 / sampler.shape.k))
    weights = sampler.beta() - sampler.options.crossing
    ranked = ranks(split, rows, weights, seed, lambda share: tell("links with the same degrees", share))
    compared = None
    if not (ranked is not None and ranked.significant) and split.graph.n_links <= _SMALL:
        compared = spectrum(split.graph, labels, seed, lambda share: tell("graphs with the same degrees", share))
    return decided(ranked, compared, degree_excess(split.graph.degrees()))


def of_record(record: Mapping[str, Any]) -> Verdict:
    """The verdict in a run record; ``unknown`` for a record of a version that gave none."""
    given = record.get("verdict")
    if given is None:
        return Verdict("unknown", _OF_OLDER_RUNS)
    return Verdict(**{field.name: given[field.name] for field in fields(Verdict) if field.name in given})


def decided(ranked: Ranks | None, compared: Spectrum | None, excess: float) -> Verdict:
    """The verdict from the tests; None for a test that was not made.

    ``found`` needs one of two.  One is an AUC of .55 that is 3.3 standard deviations above chance.  The other is an
    eigenvalue that stands out by 4 standard deviations, with communities that explain .3 of its eigenvector and an AUC
    that may be .55.  ``weak`` is an AUC from .52 on that is 3.3 standard deviations above chance, or an eigenvalue that
    stands out.  By chance a random graph is called ``found`` in less than .3 % of runs.
    """
    stands_out = compared is not None and compared.stands_out
    confirmed = compared is not None and compared.confirms and (ranked is None or ranked.may_be_clear)
    significant = ranked is not None and ranked.significant
    kind: Kind
    if ranked is None and compared is None:
        kind = "unknown"
    elif confirmed or (ranked is not None and significant and ranked.auc >= _CLEAR):
        kind = "found"
    elif significant or stands_out:
        kind = "weak"
    else:
        kind = "degrees" if excess > _OUTSTANDING else "none"
    numbers: dict[str, Any] = {"degree_excess": excess}
    if ranked is not None:
        numbers |= {"links": ranked.links, "auc": ranked.auc, "auc_error": ranked.error}
        numbers["auc_deviations"] = ranked.deviations
    if compared is not None:
        numbers |= {"eigenvalue": compared.found, "rewired_eigenvalue": compared.rewired}
        numbers |= {"rewired_deviation": compared.deviation, "agreement": compared.agreement}
    return Verdict(kind, _sentence(kind, ranked if significant else None, compared), **numbers)


def _sentence(kind: str, ranked: Ranks | None, compared: Spectrum | None) -> str:
    if kind == "unknown":
        return "Not known whether there are communities: no links were held out that could tell (--validation)."
    if kind == "none":
        return "No structure found: the communities are no better than those of random graphs."
    if kind == "degrees":
        return (
            "No structure found beyond degrees: some vertices have many more links than others, but the communities "
            "are no better than those of random graphs with the same degrees."
        )
    what = "Structure found" if kind == "found" else "Structure found, but weak"
    if ranked is not None:
        return (
            f"{what}: the model ranks a held-out link above one of a random graph with the same degrees in "
            f"{ranked.auc:.0%} of cases (chance: 50%)."
        )
    assert compared is not None
    shown = "" if compared.confirms else ", but these communities do not show it"
    return (
        f"{what}: links form groups more than in random graphs with the same degrees (second eigenvalue "
        f"{compared.found:.2f}, there {compared.rewired:.2f}){shown}."
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
    corrected = split.graph.density > _DENSE and len(others) > 1
    tested = np.concatenate([links, others]) if corrected else links
    vertices, at = np.unique(tested, return_inverse=True)
    ends = at.reshape(tested.shape)
    pi = rows(vertices)
    scores = (pi * weights.astype(pi.dtype)) @ pi.T

    def means(drawn: Ints, known: Ints, share: float) -> Floats:
        barred = _barred(vertices, known, split.graph.n_vertices)
        return mean_ranks(drawn, scores, barred, rng, lambda done: tell(share + done / (1 + corrected)))

    found = means(
        ends[: len(links)], np.concatenate([split.training_links, *(p.pairs[~p.labels] for p in held_out)]), 0
    )
    excess = found - means(ends[len(links) :], split.graph.links, 0.5) if corrected else found
    error, spread = float(found[1:].std(ddof=1)), float(excess[1:].std(ddof=1))
    deviations = float(excess[0] - excess[1:].mean()) / spread if spread > 1e-9 else 0.0
    return Ranks(len(links), float(found[0]), error, deviations)


def _some(pairs: Ints, most: int, rng: np.random.Generator) -> Ints:
    """At most ``most`` of ``pairs``, drawn at random."""
    return pairs if len(pairs) <= most else pairs[np.sort(rng.choice(len(pairs), most, replace=False))]


def _barred(vertices: Ints, known: Ints, n_vertices: int) -> npt.NDArray[np.bool_]:
    """Which pairs of ``vertices`` ``[V]`` are in ``known`` ``[P, 2]`` or loops, ``[V, V]``."""
    there = np.zeros(n_vertices, np.bool_)
    there[vertices] = True
    a, b = np.searchsorted(vertices, known[there[known].all(axis=1)]).T
    barred = np.eye(vertices.size, dtype=np.bool_)
    barred[a, b] = barred[b, a] = True
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
    pool = np.sort(values, axis=None)
    below, upto = (np.searchsorted(pool, values, side) for side in ("left", "right"))
    means: Floats = ((below + upto) / (2 * pool.size)).mean(axis=1)
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
        _, at, counts = np.unique(keys, return_inverse=True, return_counts=True)
        once = counts[at] == 1
        made = once[len(links) :].reshape(2, half).all(axis=0)
        may = made & once[first] & once[second] & ~barred[a, d] & ~barred[c, b]
        links = links.copy()
        links[first[may]], links[second[may]] = np.stack([a, d], axis=1)[may], np.stack([c, b], axis=1)[may]
        yield links


def spectrum(graph: Graph, labels: Labels, seed: int, tell: Callable[[float], None] = lambda share: None) -> Spectrum:
    """Second eigenvalues of ``graph`` and of rewired graphs, and how ``labels`` ``[N]`` agree with its vector."""
    values, links, agreement = [], graph.links, 0.0
    for done in range(_REWIRED + 1):
        value, vector, weights = second_eigenpair(links, graph.n_vertices)
        values.append(value)
        if done == 0:
            agreement = _explained_share(vector, weights, labels)
        if done < _REWIRED:
            links = leiden.rewired(leiden.network(graph.n_vertices, links), _TRIED, seed + done)
        tell((done + 1) / (_REWIRED + 1))
    return Spectrum(values[0], float(np.mean(values[1:])), float(np.std(values[1:], ddof=1)), agreement)


def second_eigenpair(links: Ints, n_vertices: int) -> tuple[float, Floats, Floats]:
    """Second largest eigenvalue of (D + c)^-1/2 (A + c/N) (D + c)^-1/2, c the mean degree (Amini et al. 2013).

    Also its eigenvector ``[N]`` divided by the square roots of ``weights`` ``[N]`` = D + c, and these.
    """
    import scipy.sparse.linalg  # takes a quarter of a second, and most runs need it not

    degrees = np.bincount(links.ravel(), minlength=n_vertices)
    mean = float(degrees.mean())
    weights: Floats = degrees.astype(np.float64) + mean
    roots: Floats = np.sqrt(weights)
    entries = 1.0 / (roots[links[:, 0]] * roots[links[:, 1]])
    half = scipy.sparse.coo_array((entries, (links[:, 0], links[:, 1])), (n_vertices, n_vertices))
    sparse, alike, first = (half + half.T).tocsr(), 1.0 / roots, roots / np.linalg.norm(roots)

    def product(vector: Floats) -> Floats:
        # Without the first eigenvector, whose eigenvalue is 1.
        found: Floats = sparse @ vector + mean / n_vertices * alike * (alike @ vector) - first * (first @ vector)
        return found

    if n_vertices <= _DENSELY:
        values, vectors = np.linalg.eigh(sparse + mean / n_vertices * np.outer(alike, alike) - np.outer(first, first))
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
    return 1.0 - within / free * (values.size - 1) / total if free > 0 and total > 0 else 0.0
