"""How many communities: a search over a geometric grid, the held-out log-likelihood choosing.

Of the numbers whose log-likelihood is within one standard error of the best one's, the smallest is taken (the
one-standard-error rule of Breiman et al. 1984): more communities than the data tell apart are no gain.  The standard
error is that of the difference to the best one.  It has two parts: which pairs happened to be held out, and which mode
a chain happened to find, as the spread of chains that differ in their seed alone shows it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mmsbgen.errors import DeviceMemoryError, InputError
from mmsbgen.graph import Split
from mmsbgen.sampler import heldout
from mmsbgen.sampler.communities import largest
from mmsbgen.sampler.course import REFINE_SWEEPS
from mmsbgen.sampler.evaluation import evaluate
from mmsbgen.sampler.refine import refine
from mmsbgen.sampler.sampler import Sampler
from mmsbgen.sampler.starts import Start, by_label, communities, leiden, of_sets, seeded

Floats = npt.NDArray[np.float64]
#: Share of a row from which a vertex is in a set of a warm start.
_INSIDE = 0.2
#: Numbers in a row that are no better before the grid ends.
_PATIENCE = 2
#: Ratios at which neighbours of the best number are tried, after the grid's 2.
_RATIOS = (math.sqrt(2), 2**0.25)
#: Chains of the best number and its neighbours; as many smaller and larger numbers count as neighbours.
_CHAINS, _NEIGHBOURS = 3, 2


@dataclass(frozen=True)
class Tried:
    """One number of communities: its start, and means over its chains of log-likelihood a held-out pair and of AUC."""

    k: int
    start: str
    log_likelihood: float
    auc: float
    standard_error: float
    """Of the log-likelihood's difference to the best one tried: of the pairs held out and of the chains' seeds."""
    chains: int
    """Chains that were run from that start."""
    seed_deviation: float
    """Standard deviation of log-likelihoods of chains that differ in their seed, pooled over all numbers."""


class _Fit(NamedTuple):
    start: Start
    auc: float
    logs: Floats
    """Log-likelihood ``[H]`` of every held-out pair."""
    value: float
    """Their mean, both classes by their share in the graph."""
    sets: Start


def choose_k(
    split: Split,
    make: Callable[[int, int], Sampler],
    seed: int,
    say: Callable[[str], None],
    asked: Callable[[], bool],
) -> tuple[int, list[Tried]]:
    """The number of communities for a split graph, and what was tried, in the order of K.

    ``make`` builds a chain of K communities with a seed, which is closed here.  The grid begins at half the number of
    Leiden's communities and doubles as long as that pays; then the neighbours of the best at a ratio of the square
    root of 2 are tried, then those at its root.  Each is optimised from Leiden's communities and, warm, from the sets
    that the one before has found.  At last the best and its neighbours get chains of other seeds.

    Raises :class:`InputError` where no pairs are held out, and KeyboardInterrupt once ``asked`` is true.
    """
    if not len(split.validation.pairs):
        raise InputError("the number of communities is chosen on held-out pairs: give --validation a positive share")
    search = _Search(split, make, seed, say, asked)
    search.grid()
    if not search.fits:
        raise InputError(f"no number of communities could be tried for {split.graph.n_vertices} vertices; give -k")
    search.neighbours()
    search.repeat()
    tried = search.tried()
    goal = max(one.log_likelihood for one in tried)
    return next(one.k for one in tried if one.log_likelihood >= goal - one.standard_error), tried


class _Search:
    """The chains that were run, by their number of communities; those of a number have one start and many seeds."""

    def __init__(
        self,
        split: Split,
        make: Callable[[int, int], Sampler],
        seed: int,
        say: Callable[[str], None],
        asked: Callable[[], bool],
    ) -> None:
        self.split, self.make, self.seed, self.say, self.asked = split, make, seed, say, asked
        self.labels = np.asarray(split.validation.labels, bool)
        self.fits: dict[int, list[_Fit]] = {}
        self.most = max(2, split.graph.n_vertices // 2)

    def value(self, k: int) -> float:
        """The mean log-likelihood of a number's chains."""
        return float(np.mean([fit.value for fit in self.fits[k]]))

    @property
    def best(self) -> int:
        """The number whose chains have the best mean."""
        return max(self.fits, key=self.value)

    def grid(self) -> None:
        """Double as long as that pays."""
        with seeded(self.seed):
            natural = len(leiden(self.split.graph.n_vertices, self.split.training_links, 1.0))
        k, misses, warm = max(2, natural // 2), 0, None
        while k <= self.most and misses < _PATIENCE:
            self.fit(k, warm)
            misses = 0 if self.fits and self.best == k else misses + 1
            warm = self.fits[k][0].sets if k in self.fits else warm
            k *= 2

    def neighbours(self) -> None:
        """Close in on the best number from both sides."""
        for ratio in _RATIOS:
            for near in (round(self.best / ratio), round(self.best * ratio)):
                if 1 < near <= self.most and near not in self.fits:
                    below = [k for k in self.fits if k < near]
                    self.fit(near, self.fits[max(below)][0].sets if below else None)

    def fit(self, k: int, warm: Start | None) -> None:
        """Run k from Leiden's communities and from ``warm``, and keep the better chain; none where k does not fit."""
        starts = [communities(self.split, k, self.seed)]
        if warm is not None:
            keep = warm.communities < k
            starts.append(Start("the one before", warm.vertices[keep], warm.communities[keep]))
        self.say(f"Trying K={k}")
        fits = self.run(k, self.seed, starts)
        if fits:
            best = max(fits, key=lambda fit: fit.value)
            self.fits[k] = [best]
            self.say(
                f"K={k}: log-likelihood {best.value:.5g} a held-out pair, AUC {best.auc:.4f}, from {best.start.name}"
            )

    def repeat(self) -> None:
        """Run the best number and its neighbours with other seeds, and again where that makes another one the best."""
        while True:
            numbers = sorted(self.fits)
            at = numbers.index(self.best)
            near = numbers[max(0, at - _NEIGHBOURS) : at + _NEIGHBOURS + 1]
            wanting = [k for k in near if len(self.fits[k]) < _CHAINS]
            if not wanting:
                return
            self.say(f"Trying {', '.join(f'K={k}' for k in wanting)} with other seeds")
            for k in wanting:
                for other in range(len(self.fits[k]), _CHAINS):
                    more = self.again(k, (self.seed + other) % 2**64)
                    # What fitted once and does not now, since memory is shared, counts as it is.
                    self.fits[k] += more or self.fits[k][:1]

    def again(self, k: int, seed: int) -> list[_Fit]:
        """A chain of another seed; where it starts from Leiden's communities, these are found anew."""
        start = self.fits[k][0].start
        return self.run(k, seed, [communities(self.split, k, seed) if start.name == "communities" else start])

    def run(self, k: int, seed: int, starts: list[Start]) -> list[_Fit]:
        """Chains of k from each start; none where they do not fit in memory."""
        try:
            sampler = self.make(k, seed)
        except DeviceMemoryError:
            self.say(f"K={k} does not fit in memory")
            return []
        try:
            return [self.one(sampler, start) for start in starts]
        finally:
            sampler.close()

    def one(self, sampler: Sampler, start: Start) -> _Fit:
        """One chain: two phases of sweeps with a refinement between them."""
        sampler.initialise(start)
        for last in (False, True):
            for _ in range(REFINE_SWEEPS * sampler.per_sweep):
                if self.asked():
                    raise KeyboardInterrupt
                sampler.step()
            if not last and not (sampler.options.refine and refine(sampler)):
                break
        metrics: Any = evaluate(sampler, burnt_in=False)
        logs = heldout.log_likelihoods(sampler.device.download(sampler.held_values["probabilities"]), self.labels)
        return _Fit(start, metrics.auc, logs, metrics.sample_log_likelihood, _sets(sampler))

    def tried(self) -> list[Tried]:
        """What the search has to say of every number, in order."""
        chains = [np.array([fit.value for fit in fits]) for fits in self.fits.values()]
        free = sum(values.size - 1 for values in chains)
        variance = sum(float(((values - values.mean()) ** 2).sum()) for values in chains) / free if free else 0.0
        best, told = self.best, []
        best_logs = np.mean([fit.logs for fit in self.fits[best]], axis=0)
        for k in sorted(self.fits):
            fits = self.fits[k]
            difference = best_logs - np.mean([fit.logs for fit in fits], axis=0)
            of_pairs = heldout.weighted_error(difference, self.labels, self.split.graph.density)
            of_seeds = 0.0 if k == best else variance * (1 / len(fits) + 1 / len(self.fits[best]))
            error = math.sqrt(of_pairs**2 + of_seeds)
            auc = float(np.mean([fit.auc for fit in fits]))
            told.append(Tried(k, fits[0].start.name, self.value(k), auc, error, len(fits), math.sqrt(variance)))
        return told


def _sets(sampler: Sampler) -> Start:
    """The sets that the chain has found, largest first."""
    vertices, labels = [], []
    for first, stop in sampler.state_chunks():
        at, values = largest(sampler.rows(first, stop)[0], min(sampler.shape.k, int(1 / _INSIDE)))
        row, column = np.nonzero(values > _INSIDE)
        vertices.append(row + first)
        labels.append(at[row, column].astype(np.int64))
    vertex = np.concatenate(vertices)
    return of_sets("the one before", [vertex[members] for members in by_label(np.concatenate(labels))])
