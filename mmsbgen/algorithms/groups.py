"""Groups of vertices by belief propagation of the stochastic blockmodel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.algorithms.marginals import check_how, need_messages, real_for, undirected
from mmsbgen.algorithms.programs import Running, programs
from mmsbgen.algorithms.row_rounds import check_number
from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import plural
from mmsbgen.families.graph.messages.message_kernels import (
    CHANGE,
    ENERGY,
    MOST_ROUNDS,
    MOST_STATES,
    ROUNDS,
    SHARES,
    state_of_messages,
)
from mmsbgen.graph.arcs import Arcs

#: Rounds between two updates of shares and affinities.
_ROUNDS = 5
#: Deviation of log messages at the start; least share and affinity.
_NOISE, _LEAST = 0.3, 1e-6

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Blockmodel:
    """A blockmodel of K groups; the largest group comes first.

    Attributes:
        ids: The ids of the vertices as in the input, ``[N]``.
        marginals: ``[N, K]``, how probable each group is for each vertex; rows sum to 1.
        shares: ``[K]``, the groups' shares of the vertices.
        affinities: ``[K, K]``, N times the probability of a link between vertices of two groups.
        free_energy: Bethe's free energy a vertex: minus the logarithm of the likelihood of the links over N, up to a
            number that does not depend on K.
        converged: Whether messages and affinities came to rest.
        rounds: Rounds of the start that was taken.
    """

    ids: NDArray[Any]
    marginals: NDArray[np.floating[Any]]
    shares: Array
    affinities: Array
    free_energy: float
    converged: bool
    rounds: int

    @property
    def labels(self) -> NDArray[np.int64]:
        """The most probable group of each vertex, ``[N]``."""
        found: NDArray[np.int64] = self.marginals.argmax(axis=1)
        return found

    @property
    def description(self) -> float:
        """``free_energy`` and what the parameters cost a vertex, by the Bayesian information criterion.

        More groups than there are fit noise, which makes ``free_energy`` alone a little less with each.
        """
        n, k = len(self.ids), self.shares.size
        pairs, free = max(1, n * (n - 1) // 2), k * (k + 1) // 2
        return self.free_energy + float(free * np.log(pairs) + (k - 1) * np.log(max(1, n))) / (2 * max(1, n))


def blockmodel(
    graph: Any,
    k: int,
    *,
    starts: int = 4,
    seed: int = 0,
    tolerance: float = 1e-3,
    max_rounds: int = 500,
    device: str | None = None,
    database: str | Path | None = None,
) -> Blockmodel:
    """Fit a stochastic blockmodel of ``k`` groups by belief propagation and expectation maximisation.

    Vertices of two groups have a link with a probability that depends on the groups alone (Decelle, Krzakala, Moore,
    Zdeborova 2011).  Degrees do not count otherwise, so that hubs may become a group.  Of several starts, with more
    links within groups, with more between them and at random, the one of least free energy is taken.  The same seed
    gives the same groups on a device.

    Args:
        graph: As for :func:`mmsbgen.algorithms.belief_propagation`.
        k: The number of groups, 1 to 64 and at most N.
        starts: The number of starts.
        seed: Of the messages at the start.
        tolerance: Rounds end when no logarithm of a message changes by more, and no affinity by more than this times
            the mean degree.
        max_rounds: Most rounds of a start.
        device: As for :func:`mmsbgen.algorithms.bfs`.
        database: As for :func:`mmsbgen.algorithms.bfs`.

    Raises:
        InputError: For a directed graph, and values outside their range.
    """
    arcs = undirected(graph)
    most = min(MOST_STATES, max(1, arcs.n_vertices))
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= most:
        size = plural(arcs.n_vertices, "vertex", "vertices")
        raise InputError(f"k={k} groups for {arcs.name}, which has {size}: give a whole number from 1 to {most}")
    check_how(0.0, tolerance, max_rounds)
    check_number("starts", starts)
    if seed < 0:
        raise InputError(f"seed={seed}: give a whole number of 0 or more")
    if arcs.n_vertices == 0:
        return Blockmodel(arcs.ids, np.zeros((0, k)), np.full(k, 1 / k), np.zeros((k, k)), 0.0, True, 0)
    found = programs(device, database)
    real = real_for(found, arcs, tolerance)
    need_messages(arcs, k, real)
    shares = np.full(k, 1 / k)
    state = state_of_messages(
        arcs,
        real,
        np.zeros((k, k)),
        np.zeros((1, k)),
        np.zeros((arcs.n_arcs, k)),
        tolerance=tolerance,
        most_rounds=max_rounds,
        pairs=True,
        log_shares=np.log(shares),
    )
    best: Blockmodel | None = None
    with found.running("messages", arcs, state, {}, real, features=k) as on:
        for start in range(starts if k > 1 else 1):
            rng = np.random.default_rng((seed, start))
            one = _fit(on, arcs, real, _affinities(start, k, arcs, rng), rng, tolerance, max_rounds)
            if best is None or one.free_energy < best.free_energy:
                best = one
    assert best is not None
    order = np.argsort(-best.shares, kind="stable")
    marginals, affinities = best.marginals[:, order], best.affinities[order][:, order]
    return replace(best, marginals=marginals, shares=best.shares[order], affinities=affinities)


def _affinities(start: int, k: int, arcs: Arcs, rng: np.random.Generator) -> Array:
    """Affinities at a start ``[K, K]``: more links within groups, or between them, or at random."""
    kind = start % 4
    made = rng.exponential(size=(k, k)) if kind == 3 else np.ones((k, k))
    np.fill_diagonal(made, made.diagonal() * (0.3 if kind == 1 else 1.0) + (k if kind in (0, 2) else 0))
    made = made + made.T
    return np.asarray(made * (arcs.n_arcs / arcs.n_vertices / made.mean()))


def _fit(
    on: Running, arcs: Arcs, real: Any, affinities: Array, rng: np.random.Generator, tolerance: float, max_rounds: int
) -> Blockmodel:
    """Shares and affinities from one start: some rounds, then those that explain the marginals best, and so on."""
    n, k = arcs.n_vertices, len(affinities)
    shares: Array = np.full(k, 1 / k)
    degree = arcs.n_arcs / n
    on.write("received", rng.standard_normal((max(1, arcs.n_arcs), k), dtype=real) * real(_NOISE))
    settings, rounds, mean = on.read("settings"), 0, shares
    while True:
        settings[MOST_ROUNDS] = min(_ROUNDS, max_rounds - rounds)
        settings[SHARES:] = np.log(shares)
        on.write("settings", settings)
        on.write("coupling", affinities.astype(real))
        on.write("priors", (np.log(shares) - affinities @ mean)[None].astype(real))
        on.launch()
        settings = on.read("settings")
        rounds += int(settings[ROUNDS])
        mean = on.read("slots")[:, 2:].sum(axis=0, dtype=np.float64) / n
        # The likelihood of pairs without a link is that of all pairs up to what is of order 1.
        energy = -float(settings[ENERGY]) / n - float(mean @ affinities @ mean) / 2
        pairs = on.read("pairs").sum(axis=0, dtype=np.float64)
        before = affinities
        shares = np.maximum(mean, _LEAST)
        affinities = ((pairs + pairs.T) / (n * np.outer(shares, shares))).clip(_LEAST, n)
        moved = float(np.abs(affinities - before).max())
        converged = bool(settings[CHANGE] <= tolerance and moved <= tolerance * max(1.0, degree))
        if converged or rounds >= max_rounds:
            return Blockmodel(arcs.ids, np.exp(on.read("beliefs")), shares, affinities, energy, converged, rounds)
