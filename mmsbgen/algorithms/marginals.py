"""Belief propagation: marginals of a pairwise model on a graph."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mmsbgen.algorithms.programs import Programs, programs
from mmsbgen.algorithms.row_rounds import check_number, check_tolerance
from mmsbgen.base.errors import InputError
from mmsbgen.base.host_memory import need_host_memory
from mmsbgen.base.id_text import plural
from mmsbgen.families.graph.messages.message_inputs import simple, state_of_messages
from mmsbgen.families.graph.messages.message_kernels import CHANGE, ENERGY, MOST_STATES, ROUNDS
from mmsbgen.graph.arc_sources import as_arcs
from mmsbgen.graph.arcs import Arcs

__all__ = ["Marginals", "belief_propagation"]

#: Smallest tolerance that float32 reaches, and the same over the largest degree.
_SINGLE, _SINGLE_A_LINK = 1e-5, 1e-6
#: Arrays of messages in memory at once: two on the device, and those of the start while they are made.
_COPIES = 4


@dataclass(frozen=True, eq=False)
class Marginals:
    """Marginals of a pairwise model.

    Attributes:
        ids: The ids of the vertices as in the input, ``[N]``.
        marginals: ``[N, Q]``; rows sum to 1.
        log_partition: The logarithm of the sum over all states of the product of weights, by Bethe's approximation;
            exact on trees.
        converged: Whether ``residual`` is at most the tolerance.
        rounds: Rounds that were made.
        residual: The largest change of a log message in the last round.
    """

    ids: NDArray[Any]
    marginals: NDArray[np.floating[Any]]
    log_partition: float
    converged: bool
    rounds: int
    residual: float


def belief_propagation(
    graph: Any,
    priors: ArrayLike,
    coupling: ArrayLike,
    *,
    damping: float = 0.0,
    tolerance: float = 1e-6,
    max_rounds: int = 1000,
    device: str | None = None,
    database: str | Path | None = None,
) -> Marginals:
    """Marginals of ``p(x) ~ prod_v priors[v, x_v] prod_uv coupling[x_u, x_v]``, v the vertices and uv the links.

    Exact on trees.  On other graphs an approximation, which is good where loops are long or couplings weak; rounds may
    then not converge, and more damping helps.  Weights of 0 are taken as tiny: that nothing is possible is not noticed.

    Args:
        graph: Any undirected graph that :func:`mmsbgen.graph.as_arcs` takes; self-loops, weights and further links of a
            pair do not count.
        priors: ``[N, Q]``, weights of the states of each vertex, in the order of the ids; 0 for what is impossible.
        coupling: ``[Q, Q]``, symmetric, weights of the states of two neighbours.
        damping: The share of the old logarithm of a message in the new one, 0 or more and below 1.
        tolerance: Rounds end when no logarithm of a message changes by more.
        max_rounds: Most rounds.
        device: As for :func:`mmsbgen.algorithms.bfs`.
        database: As for :func:`mmsbgen.algorithms.bfs`.

    Raises:
        InputError: For a directed graph, weights that are negative or not finite or that allow a vertex no state, and
            values outside their range.
    """
    arcs = undirected(graph)
    weights = _weights("coupling", coupling, (None, None))
    if len(weights) != weights.shape[1] or not np.array_equal(weights, weights.T):
        raise InputError("coupling is not symmetric: links have no direction, give coupling[x, y] = coupling[y, x]")
    states = weights.shape[0]
    if states > MOST_STATES:
        raise InputError(f"{states} states: give at most {MOST_STATES}")
    given = _weights("priors", priors, (arcs.n_vertices, states))
    check_how(damping, tolerance, max_rounds)
    most = given.max(axis=1, keepdims=True, initial=0)
    if not (most > 0).all():
        raise InputError(f"priors: vertex {arcs.shown(int(np.argmin(most)))} has no state of positive weight")
    if not weights.any():
        raise InputError("coupling is 0 for all states: give a positive weight")
    if arcs.n_vertices == 0:
        return Marginals(arcs.ids, given, 0.0, True, 0, 0.0)
    found = programs(device, database)
    real = real_for(found, arcs, tolerance)
    need_messages(arcs, states, real)
    with np.errstate(divide="ignore"):
        logs = np.maximum(np.log(given / most), np.log(np.finfo(real).tiny))
    state = state_of_messages(
        arcs,
        real,
        weights / weights.max(),
        logs,
        np.zeros((arcs.n_arcs, states)),
        tolerance=tolerance,
        most_rounds=max_rounds,
        damping=damping,
    )
    with found.running("messages", arcs, state, {}, real, features=states) as on:
        on.launch()
        settings, beliefs = on.read("settings"), on.read("beliefs")
    change = float(settings[CHANGE])
    scale = float(np.log(most).sum() + arcs.n_arcs // 2 * np.log(weights.max()))
    log_partition = float(settings[ENERGY]) + scale
    return Marginals(arcs.ids, np.exp(beliefs), log_partition, change <= tolerance, int(settings[ROUNDS]), change)


def undirected(graph: Any) -> Arcs:
    """The links of a graph, each once; raises :class:`InputError` for a directed one."""
    arcs = as_arcs(graph)
    if arcs.directed:
        raise InputError(
            f"{arcs.name} is directed, and messages go both ways: give an undirected graph, such as "
            "graph.to_undirected() of networkx; leave out --directed"
        )
    return simple(arcs)


def check_how(damping: float, tolerance: float, max_rounds: int) -> None:
    """Raise :class:`InputError` for values outside their range."""
    if not 0 <= damping < 1:
        raise InputError(f"damping={damping}: give a number of 0 or more and below 1")
    check_tolerance(tolerance)
    check_number("max_rounds", max_rounds)


def real_for(found: Programs, arcs: Arcs, tolerance: float) -> Any:
    """The type of messages that reach a tolerance; sums of many of them are less exact."""
    single = max(_SINGLE, _SINGLE_A_LINK * float(arcs.degrees.max(initial=0)))
    return np.float32 if tolerance >= single else found.real


def need_messages(arcs: Arcs, states: int, real: Any) -> None:
    """Raise :class:`InputError` where messages do not fit the memory."""
    size = _COPIES * np.dtype(real).itemsize * states * (arcs.n_arcs + arcs.n_vertices)
    need_host_memory(size, f"messages of {states} states on {plural(arcs.n_arcs, 'arc')}", "give fewer states")


def _weights(name: str, given: ArrayLike, shape: tuple[int | None, ...]) -> NDArray[np.float64]:
    found = np.asarray(given, dtype=np.float64)
    wanted = f"[{', '.join('Q' if each is None else str(each) for each in shape)}]"
    if found.ndim != len(shape) or any(w not in (None, had) for w, had in zip(shape, found.shape, strict=True)):
        raise InputError(f"{name} has shape {list(found.shape)}: give {wanted}")
    if not (np.isfinite(found).all() and (found >= 0).all()):
        raise InputError(f"{name} has a weight that is negative or not finite; give finite ones of 0 or more")
    return found
