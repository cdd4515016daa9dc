"""Posteriors of small graphs: exact ones, and what chains of the sampler's equations make of them.

Communities have no names in the posterior.  So everything is compared by functions of a state that do not depend on
their order, see :func:`looks`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import betaln, gammaln

from mmsbgen.families.mmsb.numbers.row_layout import CLIP, FLOOR, Z_FLOOR
from mmsbgen.families.mmsb.numbers.sparse_rows import THRESHOLD
from mmsbgen.families.mmsb.reference import equations, sparse_draws
from tests.statistics.laws import Floats, Moments


@dataclass(frozen=True)
class Toy:
    """A graph of N vertices with its ``links``, and a model of K communities with eta = (1, 1)."""

    n: int
    k: int
    links: tuple[tuple[int, int], ...]
    delta: float = 1e-3

    @property
    def alpha(self) -> float:
        """The default concentration."""
        return 1 / self.k

    @property
    def linked(self) -> Floats:
        """1 where two vertices are linked, ``[N, N]``."""
        found = np.zeros((self.n, self.n))
        for a, b in self.links:
            found[a, b] = found[b, a] = 1.0
        return found


def looks(pi: Floats, beta: Floats) -> Floats:
    """What is compared of C states, ``[C, Q]``, from pi ``[C, N, K]`` and beta ``[C, K]``.

    The strengths in ascending order, rows of pi in that order, and pi_a . pi_b of all pairs, a = b included.
    """
    order = np.argsort(beta, axis=1)
    rows = np.take_along_axis(pi, order[:, None, :], axis=2)
    a, b = np.triu_indices(pi.shape[1])
    together = (pi[:, a] * pi[:, b]).sum(axis=2)
    return np.concatenate([np.take_along_axis(beta, order, axis=1), rows.reshape(len(pi), -1), together], axis=1)


# Exact --------------------------------------------------------------------------------------------------------


def enumerated(toy: Toy) -> tuple[Floats, Floats]:
    """Mean and standard deviation of the sum of beta and of pi_a . pi_b, a < b, over all communities of all pairs.

    Given those, rows are Dirichlet, strengths are Beta, and what is left has a closed form.  K^(N (N - 1)) terms.
    """
    a, b = np.triu_indices(toy.n, 1)
    y, k = toy.linked[a, b] > 0, toy.k
    z = np.array(list(itertools.product(range(k), repeat=2 * a.size)), np.int8).reshape(-1, 2, a.size)
    same = z[:, 0] == z[:, 1]
    counts = np.zeros((len(z), toy.n, k))
    links, non_links = np.zeros((len(z), k)), np.zeros((len(z), k))
    for community in range(k):
        for pair in range(a.size):
            counts[:, a[pair], community] += z[:, 0, pair] == community
            counts[:, b[pair], community] += z[:, 1, pair] == community
        both = same & (z[:, 0] == community)
        links[:, community], non_links[:, community] = (both & y).sum(axis=1), (both & ~y).sum(axis=1)
    log_weight = gammaln(toy.alpha + counts).sum(axis=(1, 2)) + betaln(1 + links, 1 + non_links).sum(axis=1)
    log_weight += (~same & y).sum(axis=1) * np.log(toy.delta) + (~same & ~y).sum(axis=1) * np.log1p(-toy.delta)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()

    shape = toy.alpha + counts
    total = shape.sum(axis=2)[:, :, None]
    pi = shape / total
    pairs = (pi[:, a] * pi[:, b]).sum(axis=2)
    products = (shape[:, :, :, None] * shape[:, :, None, :] + shape[:, :, :, None] * np.eye(k)) / (total * (total + 1))[
        ..., None
    ]
    squares = (products[:, a] * products[:, b]).sum(axis=(2, 3))
    first, second = 1 + links, 1 + non_links
    strength = first / (first + second)
    spread = strength * (1 - strength) / (first + second + 1)
    sums = strength.sum(axis=1)
    means = np.column_stack([sums, pairs])
    seconds = np.column_stack([sums**2 + spread.sum(axis=1), squares])
    mean = weight @ means
    return mean, np.sqrt(weight @ seconds - mean**2)


class Gibbs:
    """C chains of the exact sampler: communities of pairs given pi and beta, then pi and beta given those."""

    def __init__(self, toy: Toy, chains: int, seed: int = 1) -> None:
        self.toy, self.rng, c = toy, np.random.default_rng(seed), chains
        self.pi, self.beta = self.rng.dirichlet(np.ones(toy.k), (c, toy.n)), self.rng.random((c, toy.k))

    def step(self) -> None:
        """One sweep over everything."""
        toy, rng, c = self.toy, self.rng, len(self.pi)
        a, b = np.triu_indices(toy.n, 1)
        y = toy.linked[a, b] > 0
        link = np.where(np.eye(toy.k, dtype=bool), self.beta[:, :, None], toy.delta)[:, None]
        chance = self.pi[:, a, :, None] * self.pi[:, b, None, :] * np.where(y[:, None, None], link, 1 - link)
        steps = chance.reshape(c, a.size, -1).cumsum(axis=2)
        z = (rng.random((c, a.size, 1)) * steps[:, :, -1:] > steps).sum(axis=2).clip(max=toy.k**2 - 1)
        first, second = z // toy.k, z % toy.k
        counts, chain = np.full((c, toy.n, toy.k), toy.alpha), np.arange(c)[:, None]
        np.add.at(counts, (chain, a, first), 1.0)
        np.add.at(counts, (chain, b, second), 1.0)
        # A small shape may give 0 by itself; u^(1/shape) in logarithms does not before the exponential.
        log_phi = np.log(rng.gamma(counts + 1)) + np.log(rng.random(counts.shape)) / counts
        phi = np.exp(log_phi - log_phi.max(axis=2, keepdims=True))
        self.pi = phi / phi.sum(axis=2, keepdims=True)
        inside = (first == second)[:, :, None] & (first[:, :, None] == np.arange(toy.k))
        self.beta = rng.beta(1 + inside[:, y].sum(axis=1), 1 + inside[:, ~y].sum(axis=1))

    def looks(self) -> Floats:
        """:func:`looks` of the states."""
        return looks(self.pi, self.beta)


# The sampler's equations --------------------------------------------------------------------------------------


class Chains:
    """C independent chains of a whole model, side by side; phi ``[C, N, K]``, theta ``[2, C, K]``.

    phi by the split step with NumPy's draws of its two laws, theta by :func:`equations.update_theta`.
    """

    def __init__(self, toy: Toy, begin: Gibbs, seed: int = 2) -> None:
        self.toy, self.rng, self.seed, self.iteration = toy, np.random.default_rng(seed), seed, 0
        self.phi = np.maximum(begin.pi * self.rng.gamma(1.0, size=(len(begin.pi), 1, 1)), FLOOR)
        self.theta = np.stack([1 - begin.beta, begin.beta]) * self.rng.gamma(2.0, size=begin.beta.shape)

    @property
    def pi(self) -> Floats:
        """Memberships ``[C, N, K]``."""
        pi: Floats = self.phi / self.phi.sum(axis=2, keepdims=True)
        return pi

    @property
    def beta(self) -> Floats:
        """Strengths ``[C, K]``."""
        return equations.beta_of(self.theta.reshape(2, -1)).reshape(self.theta.shape[1:])

    def gradients(self, times: Floats) -> tuple[Floats, Floats]:
        """D ``[C, N, K]`` of all vertices, and what all pairs count for theta ``[2, C, K]``.

        ``times`` ``[C, N]`` are weights of the vertices as non-linked partners.
        """
        toy, pi, beta = self.toy, self.pi, self.beta
        own = pi * (beta - toy.delta)[:, None]
        dots = own @ pi.transpose(0, 2, 1)
        others = (1 - toy.linked) * (1 - np.eye(toy.n))
        link = toy.linked / np.maximum(toy.delta + dots, Z_FLOOR)
        non_link = others * times[:, None, :] / np.maximum(1 - toy.delta - dots, Z_FLOOR)
        of_links, of_others = link @ pi, non_link @ pi
        drift = (beta - toy.delta)[:, None] * (of_links - of_others)
        drift -= ((link - non_link) * dots).sum(axis=2)[:, :, None]
        # Each pair is seen from both of its ends.
        counts = [(1 - beta) * (pi * of_others).sum(axis=1) / 2, beta * (pi * of_links).sum(axis=1) / 2]
        return drift, np.stack(counts)

    def _move_phi(self, drift: Floats, eps: float, which: Floats) -> None:
        tau, alpha = eps / 2, self.toy.alpha
        spread = -np.expm1(-tau)
        flow = np.clip(tau * drift / self.phi.sum(axis=2, keepdims=True), -CLIP, CLIP)
        n = self.rng.poisson(self.phi * np.exp(flow - tau) / spread)
        shape = alpha + n
        log_x = np.log(self.rng.gamma(shape + 1)) + np.log(self.rng.random(shape.shape)) / shape
        new = np.maximum(spread * np.exp(np.maximum(log_x, -200.0)), FLOOR)
        self.phi = np.where(which[:, :, None] > 0, new, self.phi)

    def _move_theta(self, counts: Floats, name: str, step: float) -> None:
        flat = self.theta.reshape(2, -1)
        how = equations.ThetaStep(name, step, seed=self.seed, iteration=self.iteration)
        self.theta = equations.update_theta(flat, counts.reshape(2, -1), how).reshape(self.theta.shape)

    def sweep(self, eps: float, n_partners: int = 512, theta: str = "wright-fisher") -> None:
        """One block of all vertices, with drawn partners."""
        toy, c = self.toy, len(self.phi)
        times = self.rng.multinomial(n_partners, np.full(toy.n, 1 / toy.n), c) * (toy.n / n_partners)
        drift, counts = self.gradients(times)
        self._move_phi(drift, eps, np.ones((c, toy.n)))
        self._move_theta(counts, theta, eps)
        self.iteration += 1

    def star(self, eps: float, theta_eps: float) -> None:
        """One star: all links of a vertex, or all its non-links; all others are partners, and theta sees new rows."""
        toy, c = self.toy, len(self.phi)
        centre, coin = self.rng.integers(0, toy.n, c), self.rng.random(c) < 0.5
        ends = np.where(coin[:, None], toy.linked[centre], 1 - toy.linked[centre] - np.eye(toy.n)[centre])
        drift, _ = self.gradients(np.ones((c, toy.n)))
        empty = ends.sum(axis=1) == 0
        self._move_phi(drift, eps, np.where(empty[:, None], 0, ends + np.eye(toy.n)[centre]))
        pi, beta = self.pi, self.beta
        both = pi[np.arange(c), centre][:, None] * pi
        dots = (both @ (beta - toy.delta)[:, :, None])[:, :, 0]
        z = np.where(coin[:, None], toy.delta + dots, 1 - toy.delta - dots)
        seen = toy.n * ((ends / np.maximum(z, Z_FLOOR))[:, :, None] * both).sum(axis=1)
        link = coin[:, None]
        self._move_theta(np.stack([~link * (1 - beta) * seen, link * beta * seen]), "reflected", theta_eps)
        self.iteration += 1

    def looks(self) -> Floats:
        """:func:`looks` of the states."""
        return looks(self.pi, self.beta)


class SparseChains(Chains):
    """As :class:`Chains`, with rows that keep at most R entries; every community is a candidate."""

    def __init__(self, toy: Toy, begin: Gibbs, eps: float, entries: int, floor: float) -> None:
        super().__init__(toy, begin)
        self.floor, self.entries = floor, entries
        self.noise = sparse_draws.SparseNoise(THRESHOLD * eps / 2, 0, 0)
        self._cut(self.phi)

    @property
    def pi(self) -> Floats:
        """Memberships ``[C, N, K]``: what is not kept has the floor."""
        return self._pi

    def _cut(self, phi: Floats) -> None:
        self.mask = sparse_draws.kept(phi, self.entries, self.noise)
        known = np.where(self.mask, np.maximum(phi, self.noise.threshold), 0.0)
        count = self.mask.sum(axis=2)
        inside = 1.0 - (self.toy.k - count) * self.floor
        self.sums = known.sum(axis=2) / inside
        self._pi = np.where(self.mask, np.maximum(known / self.sums[:, :, None], self.floor), self.floor)
        smallest = np.where(self.mask, known, np.inf).min(axis=2)
        self.bound = sparse_draws.bound_of(smallest, count == self.entries, self.noise.threshold)

    def _move_phi(self, drift: Floats, eps: float, which: Floats) -> None:
        def below() -> Floats:
            return np.log(self.bound)[:, :, None] + np.log(self.rng.random(self.mask.shape)) / self.toy.alpha

        log_x, pending = below(), ~self.mask
        while np.any(refused := pending & (self.rng.random(log_x.shape) > np.exp(-np.exp(log_x)))):
            log_x, pending = np.where(refused, below(), log_x), refused
        hidden = np.exp(np.maximum(log_x, -200.0))
        self.phi = np.where(self.mask, self._pi * self.sums[:, :, None], np.maximum(hidden, FLOOR))
        super()._move_phi(drift * self.phi.sum(axis=2, keepdims=True) / self.sums[:, :, None], eps, which)
        self._cut(self.phi)


@cache
def exact(toy: Toy, chains: int, sweeps: int, seed: int = 1) -> tuple[Moments, Gibbs]:
    """Moments of the posterior by Gibbs chains, a third of whose sweeps are burn-in, and these at their end.

    Several tests have both, and change neither.
    """
    gibbs = Gibbs(toy, chains, seed)
    found = Moments(0.5)
    for sweep in range(sweeps):
        gibbs.step()
        if 3 * sweep >= sweeps:
            found.add(gibbs.looks())
    return found, gibbs
