"""Choice of the number of communities: a search over a geometric grid by held-out log-likelihood.

The smallest K whose log-likelihood is within one standard error of the best one is taken (the one-standard-error rule
of Breiman et al. 1984).  The standard error is that of the difference to the best K.  It has two parts: the sampling
of the held-out pairs, and the mode that a chain finds, estimated by chains that differ only in their seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mmsbgen.base.errors import DeviceMemoryError, InputError
from mmsbgen.base.id_text import plural
from mmsbgen.base.progress import stage
from mmsbgen.graph import Split
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics import held_out
from mmsbgen.sampler.diagnostics.evaluation import evaluate
from mmsbgen.sampler.diagnostics.memberships import largest
from mmsbgen.sampler.options.phases import REFINE_SWEEPS
from mmsbgen.sampler.run.refine import refine
from mmsbgen.sampler.starts.start_methods import Start, by_label, communities, leiden, of_sets, seeded, training_graph

Floats = npt.NDArray[np.float64]
#: Share of a row above which a vertex is in a set of a warm start.
_INSIDE = 0.2
#: Successive K without an improvement by a standard error before the grid ends.
_PATIENCE = 2
#: Ratio of the K taken to the next smaller K tried, at which the search ends.
_RATIO = 1.15
#: Chains with different seeds for each K that decides.
_CHAINS = 3


@dataclass(frozen=True)
class KTrial:
    """Trial of one K: its start, and the means over its chains of log-likelihood per held-out pair and of AUC."""

    k: int
    start: str
    log_likelihood: float
    auc: float
    standard_error: float
    """Standard error of the difference in log-likelihood to the best K, from held-out pairs and seeds."""
    chains: int
    """Number of chains run from that start."""
    seed_deviation: float
    """Standard deviation of log-likelihoods between chains that differ in their seed, pooled over all K."""


class _Fit(NamedTuple):
    start: Start
    auc: float
    logs: Floats
    """Log-likelihood ``[H]`` of every held-out pair."""
    value: float
    """Their mean, classes weighted by their share in the graph."""
    sets: Start


def choose_k(
    split: Split,
    make: Callable[[int, int], Sampler],
    seed: int,
    say: Callable[[str], None],
    asked: Callable[[], bool],
) -> tuple[int, list[KTrial]]:
    """Choose K for a split graph; returns it and the trials in the order of K.

    The grid begins at half the number of Leiden's communities and doubles while the log-likelihood improves.  Then the
    interval between the smallest K within a standard error of the best and the next smaller K is bisected
    geometrically.  Each K is optimised from Leiden's communities and from the sets found with a smaller K.  The best K,
    the one taken and the next smaller one get chains with other seeds.

    Args:
        split: the graph with its held-out pairs.
        make: builds a chain for a K and a seed; it is closed here.
        seed: seed of the first chain of every K.
        say: called with messages.
        asked: returns true if the user asks to stop.

    Raises:
        InputError: if no pairs are held out or no K could be tried.
        KeyboardInterrupt: if ``asked`` returns true.
    """
    if not len(split.validation.pairs):
        n_links, chosen = split.graph.n_links, "the number of communities is chosen on held-out pairs"
        if n_links < 2:
            raise InputError(f"{chosen}, and {plural(n_links, 'link')} cannot be held out: give the number with -k")
        raise InputError(f"{chosen}: give --validation a positive share")
    search = _KSearch(split, make, seed, say, asked)
    search.grid()
    if not search.fits:
        raise InputError(f"no number of communities could be tried for {split.graph.n_vertices} vertices; give -k")
    search.narrow()
    return search.taken, [search.told(k) for k in sorted(search.fits)]


class _KSearch:
    """State of the search: the chains by K; all chains of a K have the same kind of start and different seeds."""

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
        """Mean log-likelihood of the chains of ``k``."""
        return float(np.mean([fit.value for fit in self.fits[k]]))

    @property
    def best(self) -> int:
        """The K with the best mean log-likelihood."""
        return max(self.fits, key=self.value)

    @property
    def taken(self) -> int:
        """The smallest K within a standard error of the best one."""
        best = self.best
        return min(k for k in self.fits if self.value(best) - self.value(k) <= self.error(k, best))

    @property
    def seed_variance(self) -> float:
        """Variance of log-likelihoods between chains that differ in their seed, pooled over all K."""
        chains = [np.array([fit.value for fit in fits]) for fits in self.fits.values()]
        free = sum(values.size - 1 for values in chains)
        return sum(float(((values - values.mean()) ** 2).sum()) for values in chains) / free if free else 0.0

    def error(self, k: int, other: int) -> float:
        """Standard error of the difference in log-likelihood between two K, from held-out pairs and seeds."""
        if k == other:
            return 0.0
        difference = np.mean([fit.logs for fit in self.fits[other]], axis=0)
        difference -= np.mean([fit.logs for fit in self.fits[k]], axis=0)
        of_pairs = held_out.weighted_error(difference, self.labels, self.split.graph.density)
        return math.sqrt(of_pairs**2 + self.seed_variance * sum(1 / len(self.fits[one]) for one in (k, other)))

    def grid(self) -> None:
        """Double K while the log-likelihood improves."""
        with seeded(self.seed):
            natural = len(leiden(training_graph(self.split), 1.0))
        k, misses, warm = max(2, natural // 2), 0, None
        while k <= self.most and misses < _PATIENCE:
            before = self.best if self.fits else None
            self.fit(k, warm)
            pays = k in self.fits and (before is None or self.value(k) > self.value(before) + self.error(k, before))
            misses = 0 if pays else misses + 1
            warm = self.fits[k][0].sets if k in self.fits else warm
            k *= 2

    def narrow(self) -> None:
        """Find the smallest K within a standard error of the best, with several chains of each K that decides."""
        while True:
            taken = self.taken
            smaller = [k for k in sorted(self.fits) if k < taken]
            below = max(smaller, default=1)
            between = max(round(math.sqrt(taken * below)), below + 1)
            deciding = [self.best] if between < taken > _RATIO * below else [self.best, taken, *smaller[-1:]]
            single = [k for k in deciding if len(self.fits[k]) < _CHAINS]
            if single:
                self.repeat(single[0])
            elif len(deciding) > 1 or not self.fit(between, self.fits[below][0].sets if smaller else None):
                return

    def fit(self, k: int, warm: Start | None) -> bool:
        """Run ``k`` from Leiden's communities and from ``warm`` and keep the better chain; False if none fits."""
        starts = [communities(self.split, k, self.seed)]
        if warm is not None:
            keep = warm.communities < k
            starts.append(Start("the one before", warm.vertices[keep], warm.communities[keep]))
        self.say(f"Trying K={k}")
        fits = self.run(k, self.seed, starts)
        if fits:
            best = max(fits, key=lambda fit: fit.value)
            self.fits[k] = [best]
            auc = "unknown (one class only)" if math.isnan(best.auc) else f"{best.auc:.4f}"
            self.say(f"K={k}: log-likelihood {best.value:.5g} a held-out pair, AUC {auc}, from {best.start.name}")
        return bool(fits)

    def repeat(self, k: int) -> None:
        """Run ``k`` again with other seeds."""
        self.say(f"Trying K={k} with other seeds")
        for other in range(len(self.fits[k]), _CHAINS):
            # If the chain does not fit any more, as other programs use the memory, its first result is counted again.
            self.fits[k] += self.again(k, (self.seed + other) % 2**64) or self.fits[k][:1]

    def again(self, k: int, seed: int) -> list[_Fit]:
        """A chain with another seed; Leiden's communities, if they are its start, are found again with that seed."""
        start = self.fits[k][0].start
        return self.run(k, seed, [communities(self.split, k, seed) if start.name == "communities" else start])

    def run(self, k: int, seed: int, starts: list[Start]) -> list[_Fit]:
        """Chains of ``k``, one from each start; empty if they do not fit in memory."""
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
        steps = REFINE_SWEEPS * sampler.per_sweep
        for last in (False, True):
            with stage(f"trying K={sampler.shape.k}, phase {last + 1} of 2", steps, "iterations") as heard:
                for done in range(steps):
                    if self.asked():
                        raise KeyboardInterrupt
                    sampler.step()
                    heard.tell(done + 1)
            if not last and not (sampler.options.refine and refine(sampler)):
                break
        metrics, _ = evaluate(sampler, burnt_in=False)
        assert metrics is not None
        logs = held_out.log_likelihoods(sampler.device.download(sampler.held_values["probabilities"]), self.labels)
        return _Fit(start, metrics.auc, logs, metrics.sample_log_likelihood, _sets(sampler))

    def told(self, k: int) -> KTrial:
        """The trial of ``k`` for the record."""
        fits, auc = self.fits[k], float(np.mean([fit.auc for fit in self.fits[k]]))
        error, deviation = self.error(k, self.best), math.sqrt(self.seed_variance)
        return KTrial(k, fits[0].start.name, self.value(k), auc, error, len(fits), deviation)


def _sets(sampler: Sampler) -> Start:
    """The sets of vertices that the chain has found, largest first."""
    vertices, labels = [], []
    for first, stop in sampler.state_chunks():
        at, values = largest(sampler.rows(first, stop)[0], min(sampler.shape.k, int(1 / _INSIDE)))
        row, column = np.nonzero(values > _INSIDE)
        vertices.append(row + first)
        labels.append(at[row, column].astype(np.int64))
    vertex = np.concatenate(vertices)
    return of_sets("the one before", [vertex[members] for members in by_label(np.concatenate(labels))])
