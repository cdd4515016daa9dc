"""Belief propagation: marginals and the most probable states of a pairwise model on a graph."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import connected_components

from mmsbgen.algorithms.functions import check_undirected
from mmsbgen.algorithms.programs import Programs, programs
from mmsbgen.algorithms.row_rounds import check_number, check_tolerance
from mmsbgen.base.errors import InputError
from mmsbgen.base.host_memory import need_host_memory
from mmsbgen.base.id_text import plural
from mmsbgen.families.graph.messages.message_kernels import (
    CHANGE,
    ENERGY,
    MOST_STATES,
    ROUNDS,
    simple,
    state_of_messages,
)
from mmsbgen.graph.arc_sources import as_arcs
from mmsbgen.graph.arcs import Arcs

Array = NDArray[Any]

#: Smallest tolerance that float32 reaches, and the same over the largest degree.
_SINGLE, _SINGLE_A_LINK = 1e-5, 1e-6
#: Logarithm of a prior of 0: below what all messages to a vertex add up to, and finite.
_IMPOSSIBLE = -1e30
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
    then not converge, and more damping helps.  Couplings of 0 are taken as tiny, so that impossible
    states may be found.

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
    model = _model(graph, priors, coupling)
    check_how(damping, tolerance, max_rounds)
    if model.arcs.n_vertices == 0:
        return Marginals(model.arcs.ids, model.priors, 0.0, True, 0, 0.0)
    settings, beliefs, _ = _rounds(model, "sum", damping, tolerance, max_rounds, device, database)
    change = float(settings[CHANGE])
    log_partition = float(settings[ENERGY]) + model.log_scale
    return Marginals(model.arcs.ids, np.exp(beliefs), log_partition, change <= tolerance, int(settings[ROUNDS]), change)


@dataclass(frozen=True, eq=False)
class ProbableStates:
    """The most probable states of a pairwise model.

    Attributes:
        ids: The ids of the vertices as in the input, ``[N]``.
        states: int64 ``[N]``, a state of each vertex.
        log_weight: The logarithm of the product of their weights; -inf if they are impossible together.
        converged: Whether ``residual`` is at most the tolerance.
        rounds: Rounds that were made.
        residual: The largest change of a log message in the last round.
    """

    ids: NDArray[Any]
    states: NDArray[np.int64]
    log_weight: float
    converged: bool
    rounds: int
    residual: float


def most_probable_states(
    graph: Any,
    priors: ArrayLike,
    coupling: ArrayLike,
    *,
    damping: float = 0.0,
    tolerance: float = 1e-6,
    max_rounds: int = 1000,
    device: str | None = None,
    database: str | Path | None = None,
) -> ProbableStates:
    """The states x of largest ``prod_v priors[v, x_v] prod_uv coupling[x_u, x_v]``, by max-product messages.

    The message from u to v is ``m(y) = max_x priors[u, x] coupling[x, y] prod_w m_wu(x)``, w the neighbours of u other
    than v.  States are then chosen from one vertex of each component on, each with that of the vertex that it was met
    from.  Exact on trees, ties included.  Couplings of 0 are taken as tiny.

    The arguments, and what is raised, are those of :func:`belief_propagation`.
    """
    model = _model(graph, priors, coupling)
    arcs = model.arcs
    check_how(damping, tolerance, max_rounds)
    if arcs.n_vertices == 0:
        return ProbableStates(arcs.ids, np.zeros(0, np.int64), 0.0, True, 0, 0.0)
    settings, beliefs, received = _rounds(model, "max", damping, tolerance, max_rounds, device, database)
    change = float(settings[CHANGE])
    states = _chosen(arcs, beliefs, received, _log(model.coupling, np.log(np.finfo(received.dtype).tiny)))
    once = arcs.sources < arcs.targets
    pairs = model.coupling[states[arcs.sources[once]], states[arcs.targets[once]]]
    with np.errstate(divide="ignore"):
        own = np.log(model.priors[np.arange(states.size), states]).sum()
        log_weight = float(own + np.log(pairs).sum()) + model.log_scale
    return ProbableStates(arcs.ids, states, log_weight, change <= tolerance, int(settings[ROUNDS]), change)


@dataclass(frozen=True, eq=False)
class _Model:
    """A pairwise model whose largest weights are 1; ``log_scale`` is the logarithm of what they were."""

    arcs: Arcs
    priors: Array
    coupling: Array
    log_scale: float


def _model(graph: Any, priors: ArrayLike, coupling: ArrayLike) -> _Model:
    arcs = undirected(graph)
    weights = _weights("coupling", coupling, None)
    if not np.array_equal(weights, weights.T):
        raise InputError("coupling is not symmetric: links have no direction, give coupling[x, y] = coupling[y, x]")
    states = weights.shape[0]
    if states > MOST_STATES:
        raise InputError(f"{states} states: give at most {MOST_STATES}")
    given = _weights("priors", priors, (arcs.n_vertices, states))
    most = given.max(axis=1, keepdims=True, initial=0)
    if not (most > 0).all():
        raise InputError(f"priors: vertex {arcs.shown(int(np.argmin(most)))} has no state of positive weight")
    if not weights.any():
        raise InputError("coupling is 0 for all states: give a positive weight")
    scale = float(np.log(most).sum() + arcs.n_arcs // 2 * np.log(weights.max()))
    return _Model(arcs, given / most, weights / weights.max(), scale)


def _rounds(
    model: _Model,
    product: Literal["sum", "max"],
    damping: float,
    tolerance: float,
    max_rounds: int,
    device: str | None,
    database: str | Path | None,
) -> tuple[Array, Array, Array]:
    """Settings of the kernel after its rounds, logarithms of beliefs ``[N, Q]``, and the messages that made them."""
    found, arcs, states = programs(device, database), model.arcs, len(model.coupling)
    real = real_for(found, arcs, tolerance)
    need_messages(arcs, states, real)
    state = state_of_messages(
        arcs,
        real,
        _log(model.coupling, np.log(np.finfo(real).tiny)) if product == "max" else model.coupling,
        _log(model.priors, _IMPOSSIBLE),
        np.zeros((arcs.n_arcs, states)),
        tolerance=tolerance,
        most_rounds=max_rounds,
        damping=damping,
    )
    with found.running("messages", arcs, state, {}, real, features=states, product=product) as on:
        on.launch()
        sent = on.read("sent") if product == "max" else np.zeros((0, states))
        return on.read("settings"), on.read("beliefs"), sent


def _log(weights: Array, least: float) -> Array:
    """Logarithms of weights, at ``least`` for 0."""
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(weights), least)


def _chosen(arcs: Arcs, beliefs: Array, received: Array, log_coupling: Array) -> NDArray[np.int64]:
    """States ``[N]``, from the first vertex of each component on: each the best with that of its parent."""
    states: NDArray[np.int64] = beliefs.argmax(axis=1)
    mate = np.argsort(arcs.targets, kind="stable")
    front = np.unique(connected_components(arcs.to_scipy(), directed=False)[1], return_index=True)[1]
    met: NDArray[np.bool_] = np.zeros(arcs.n_vertices, bool)
    met[front] = True
    while front.size:
        at = arcs.out_of(front)
        at = at[~met[arcs.targets[at]]]
        front, first = np.unique(arcs.targets[at], return_index=True)
        at = at[first]
        met[front] = True
        # What a vertex believes without its parent's message, and how well states go with the parent's.
        states[front] = (beliefs[front] - received[mate[at]] + log_coupling[states[arcs.sources[at]]]).argmax(axis=1)
    return states


def undirected(graph: Any) -> Arcs:
    """The links of a graph, each once; raises :class:`InputError` for a directed one."""
    arcs = as_arcs(graph)
    check_undirected(arcs, "messages go both ways")
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


def _weights(name: str, given: ArrayLike, shape: tuple[int, int] | None) -> NDArray[np.float64]:
    """Weights of a shape, or else ``[Q, Q]``."""
    found = np.asarray(given, dtype=np.float64)
    if found.ndim != 2 or (found.shape != shape if shape else found.shape[0] != found.shape[1]):
        raise InputError(f"{name} has shape {list(found.shape)}: give {list(shape) if shape else '[Q, Q]'}")
    if not (np.isfinite(found).all() and (found >= 0).all()):
        raise InputError(f"{name} has a weight that is negative or not finite; give finite ones of 0 or more")
    return found
