"""One function for each algorithm; all take any graph that :func:`mmsbgen.graph.as_arcs` takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.algorithms.programs import programs
from mmsbgen.base.errors import InputError, MmsbgenError
from mmsbgen.base.id_text import plural
from mmsbgen.families.graph import inputs
from mmsbgen.families.graph.declare import NONE, Rounds
from mmsbgen.families.graph.ranks.pagerank import CHANGE, ROUNDS
from mmsbgen.graph.arc_sources import as_arcs
from mmsbgen.graph.arcs import Arcs


class ConvergenceError(MmsbgenError):
    """An iteration did not reach its tolerance in the rounds that it may take."""


@dataclass(frozen=True, eq=False)
class VertexValues:
    """A value for each vertex.

    Attributes:
        ids: ``[N]``, the ids of the vertices as in the input.
        values: ``[N]``, what was computed.
        parents: Of a search that was asked for them: int64 ``[N]``, indices into ``ids``.
        rounds: Of PageRank, the rounds that it took.
    """

    ids: NDArray[Any]
    values: NDArray[Any]
    parents: NDArray[np.int64] | None = None
    rounds: int | None = None

    def as_dict(self) -> dict[Any, Any]:
        """The values by id."""
        return dict(zip(self.ids.tolist(), self.values.tolist(), strict=True))


def bfs(
    graph: Any,
    source: Any,
    *,
    parents: bool = False,
    directed: bool = False,
    device: str | None = None,
    database: str | Path | None = None,
) -> VertexValues:
    """Breadth-first search: the number of arcs on a shortest path from ``source`` to each vertex.

    Args:
        graph: Any graph that :func:`mmsbgen.graph.as_arcs` takes.
        source: The id of a vertex.
        parents: Whether to find the parents in the tree too: of several, the least in the order of ``ids``.
        directed: Whether pairs of a file, a matrix or a list are arcs.
        device: A device for :func:`mmsbgen.backends.open_device`; the best one by default.
        database: Path or URL of the tuning database; the user's own by default.

    Returns:
        Levels, int64 ``[N]``; -1 for vertices that cannot be reached, as for their parents and that of the source.

    Raises:
        InputError: If ``source`` is no vertex, or the graph cannot be read.
    """
    arcs = as_arcs(graph, directed=directed)
    start = arcs.vertex(source)
    found = programs(device, database)
    (level,) = found.run("bfs", arcs, inputs.state_of_bfs(arcs, start), "level")
    tree = None
    if parents:
        given = {"level": level, "parent": np.zeros(level.size, np.uint32), "n": np.uint32(level.size)}
        (parent,) = found.run("parents", arcs, given, "parent")
        tree = _signed(parent)
        tree[start] = -1
    return VertexValues(arcs.ids, _signed(level), tree)


def sssp(
    graph: Any,
    source: Any,
    *,
    weights: str = "weight",
    directed: bool = False,
    device: str | None = None,
    database: str | Path | None = None,
) -> VertexValues:
    """Shortest paths: the least sum of weights on a path from ``source`` to each vertex.

    Args:
        graph: A networkx graph, a scipy.sparse matrix, :class:`mmsbgen.graph.Arcs`, or a file with weights.
        source: The id of a vertex, or a list of ids: distances are then from the nearest.
        weights: The attribute of a networkx graph that holds weights, 1 where it is missing, or the column of a table;
            without a header that is the third.
        directed: As for :func:`bfs`.
        device: As for :func:`bfs`.
        database: As for :func:`bfs`.

    Returns:
        Distances, float64 ``[N]``; inf for vertices that cannot be reached.

    Raises:
        InputError: For a weight that is negative or NaN, for an empty list, and as :func:`bfs`.  An arc of infinite
            weight is no arc.
    """
    arcs = _weighted(graph, directed, weights)
    sources = source if isinstance(source, list) else [source]
    if not sources:
        raise InputError("there is no source; give at least one id")
    starts = np.unique(np.array([arcs.vertex(one) for one in sources], np.int64))
    found = programs(device, database)
    (dist,) = found.run("sssp", arcs, inputs.state_of_sssp(arcs, starts, found.real), "dist")
    return VertexValues(arcs.ids, dist.astype(np.float64, copy=False))


def widest_paths(
    graph: Any,
    source: Any,
    *,
    weights: str = "weight",
    directed: bool = False,
    device: str | None = None,
    database: str | Path | None = None,
) -> VertexValues:
    """Widest paths: the largest width of a path from ``source`` to each vertex, its least weight.

    The arguments, and what is raised, are those of :func:`sssp`, but for lists of sources.  An infinite weight is no
    limit.

    Returns:
        Widths, float64 ``[N]``: inf at the source, 0 where no path of positive weights leads.
    """
    arcs = _weighted(graph, directed, weights)
    found = programs(device, database)
    (width,) = found.run("widest", arcs, inputs.state_of_widest(arcs, arcs.vertex(source), found.real), "width")
    return VertexValues(arcs.ids, width.astype(np.float64, copy=False))


def _weighted(graph: Any, directed: bool, weights: str) -> Arcs:
    """A graph with weights of 0 or more."""
    arcs = as_arcs(graph, directed=directed, weights=weights)
    if arcs.weights is None:
        raise InputError(f"{arcs.name} has no weights; give some, or use bfs, which counts arcs")
    check_weights(arcs, infinite=True)
    return arcs


def components(
    graph: Any, *, directed: bool = False, device: str | None = None, database: str | Path | None = None
) -> VertexValues:
    """Connected components; of a directed graph the weakly connected ones.

    The arguments are those of :func:`bfs`.

    Returns:
        Numbers of components, int64 ``[N]``: 0 for that of the first vertex of ``ids``, and so on.
    """
    arcs = as_arcs(graph, directed=directed)
    if arcs.n_vertices == 0:
        return VertexValues(arcs.ids, np.zeros(0, np.int64))
    (label,) = programs(device, database).run("components", arcs, inputs.state_of_components(arcs), "label")
    # A component is labelled by its first vertex, so that numbering roots in order numbers components.
    number = np.cumsum(label == np.arange(label.size, dtype=np.uint32)) - 1
    return VertexValues(arcs.ids, number[label])


def cores(
    graph: Any, *, directed: bool = False, device: str | None = None, database: str | Path | None = None
) -> VertexValues:
    """Core numbers: the largest k for which a vertex is in a subgraph of least degree k.

    The arguments are those of :func:`bfs`.  Degrees of a directed graph count arcs in and out, and parallel links
    count each.

    Returns:
        Core numbers, int64 ``[N]``.

    Raises:
        InputError: For a graph with self-loops.
    """
    arcs = _without_loops(as_arcs(graph, directed=directed))
    if arcs.n_vertices == 0:
        return VertexValues(arcs.ids, np.zeros(0, np.int64))
    both = arcs.both_ways
    (core,) = programs(device, database).run("cores", both, inputs.state_of_cores(both), "core")
    return VertexValues(arcs.ids, core.astype(np.int64))


def k_core(
    graph: Any, k: int, *, directed: bool = False, device: str | None = None, database: str | Path | None = None
) -> VertexValues:
    """The k-core, the largest subgraph of least degree k, without all core numbers.

    Degrees are those of :func:`cores`.

    Args:
        graph: As for :func:`bfs`.
        k: The least degree, 0 or more.
        directed: As for :func:`bfs`.
        device: As for :func:`bfs`.
        database: As for :func:`bfs`.

    Returns:
        Whether each vertex is in it, bool ``[N]``.

    Raises:
        InputError: For a graph with self-loops, and a ``k`` that is no whole number of 0 or more.
    """
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 0:
        raise InputError(f"k={k}: give a whole number of 0 or more")
    arcs = _without_loops(as_arcs(graph, directed=directed)).both_ways
    inside = arcs.degrees >= k
    if inside.any() and not inside.all():
        (core,) = programs(device, database).run("cores", arcs, inputs.state_of_core(arcs, int(k)), "core")
        inside = core > 0
    return VertexValues(arcs.ids, inside)


def _without_loops(arcs: Arcs) -> Arcs:
    if arcs.n_loops:
        vertex = arcs.shown(int(arcs.sources[arcs.sources == arcs.targets][0]))
        raise InputError(f"{arcs.name} has {plural(arcs.n_loops, 'self-loop')}, such as at {vertex}; remove them first")
    return arcs


def pagerank(
    graph: Any,
    *,
    alpha: float = 0.85,
    personalization: Mapping[Any, float] | None = None,
    max_iter: int = 100,
    tol: float = 1e-6,
    nstart: Mapping[Any, float] | None = None,
    weights: str | None = None,
    dangling: Mapping[Any, float] | None = None,
    directed: bool = False,
    device: str | None = None,
    database: str | Path | None = None,
) -> VertexValues:
    """PageRank, as networkx defines it: ranks sum to 1, and rank of vertices without arcs out goes to ``dangling``.

    Args:
        graph: As for :func:`bfs`; an undirected link is two arcs.
        alpha: The probability that a walk goes on, 0 to 1.
        personalization: Where walks begin again, by id; other vertices have 0.  Everywhere alike by default.
        max_iter: Most rounds.
        tol: Rounds end when the sum of changes is below N times this.
        nstart: Ranks at the start, by id.
        weights: The attribute that holds weights, as for :func:`mmsbgen.graph.as_arcs`.
        dangling: Where walks go on from vertices without arcs out, by id; as ``personalization`` by default.
        directed: As for :func:`bfs`.
        device: As for :func:`bfs`.
        database: As for :func:`bfs`.

    Returns:
        Ranks, float64 ``[N]``, and the rounds.

    Raises:
        InputError: For an ``alpha`` outside 0 to 1, for weights that are negative or not finite, and for vectors that
            name no vertex or have no positive finite sum.
        ConvergenceError: If ``max_iter`` rounds are not enough.
    """
    if not 0 <= alpha <= 1:
        raise InputError(f"alpha={alpha}: it is a probability, give a number from 0 to 1")
    arcs = as_arcs(graph, directed=directed, weights=weights)
    if arcs.n_vertices == 0:
        return VertexValues(arcs.ids, np.zeros(0), rounds=0)
    check_weights(arcs)
    vectors = [
        _vector(arcs, name, given)
        for name, given in (("personalization", personalization), ("dangling", dangling), ("nstart", nstart))
    ]
    found = programs(device, database)
    n = arcs.n_vertices
    state = inputs.state_of_pagerank(arcs, found.real, alpha, n * tol, max_iter, *vectors)
    rank, settings = found.run("pagerank", arcs, state, "rank", "settings")
    rounds, change = int(settings[ROUNDS]), float(settings[CHANGE])
    if not change < n * tol:
        raise ConvergenceError(
            f"PageRank of {arcs.name} still changes by {change / n:.3g} a vertex after {rounds} rounds, and {tol:.3g} "
            "was asked for: give a larger --tolerance (tol= in Python), or more rounds by max_iter in Python"
        )
    return VertexValues(arcs.ids, rank.astype(np.float64, copy=False), rounds=rounds)


def _signed(numbers: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Numbers of 64 bits, where NONE is -1."""
    found = numbers.astype(np.int64)
    found[numbers == NONE] = -1
    return found


def _vector(arcs: Arcs, name: str, given: Mapping[Any, float] | None) -> NDArray[np.float64] | None:
    """A vector ``[N]`` of sum 1 from values by id."""
    if given is None:
        return None
    vector: NDArray[np.float64] = np.zeros(arcs.n_vertices)
    for key, value in given.items():
        vector[arcs.vertex(key)] = value
    with np.errstate(over="ignore", invalid="ignore"):
        total = vector.sum()
    if not 0 < total < np.inf or vector.min() < 0:
        raise InputError(f"{name} must have a positive finite sum and no negative value; it sums to {total}")
    vector /= total
    return vector


def run_rounds(
    graph: Any,
    rounds: Rounds,
    state: Mapping[str, Any],
    start: Sequence[Any] | None = None,
    *,
    weights: str = "weight",
    directed: bool = False,
    device: str | None = None,
) -> dict[str, NDArray[Any]]:
    """Run an algorithm of your own that is declared in rounds; it becomes a kernel for the device.

    Args:
        graph: Any graph that :func:`mmsbgen.graph.as_arcs` takes.
        rounds: The declaration, or several folded into one, with the combine "min", "max" or "or".
        state: The first values of its arrays, ``[N]`` each, in the order of ``as_arcs(graph).ids``; ``stamp`` is made.
        start: Ids of the vertices that send in the first round; by default all.
        weights: Where the declaration is weighted, as for :func:`mmsbgen.algorithms.sssp`.
        directed: As for :func:`mmsbgen.algorithms.bfs`.
        device: As for :func:`mmsbgen.algorithms.bfs`.

    Returns:
        Its arrays after the last round, when nothing changes any more.

    Raises:
        InputError: For another combine or a refill, an array that is missing, unknown or of another size or type, and a
            graph that cannot be read or lacks weights.
        CompileError: If an expression is not right in C.
    """
    for one in rounds.updates:
        if not one.spreads:
            raise InputError(f"rounds that combine by {one.combine!r}, refill or pull are not run; use min, max or or")
    arcs = _weighted(graph, directed, weights) if rounds.weighted else as_arcs(graph, directed=directed)
    on, n = programs(device), arcs.n_vertices
    first = np.arange(n) if start is None else np.unique(np.array([arcs.vertex(one) for one in start], np.int64))
    found: dict[str, NDArray[Any]] = {}
    types: dict[str, Any] = {"u32": np.uint32, "u64": np.uint64, "real": on.real}
    for array in rounds.state:
        if array.name == "stamp":
            found["stamp"] = np.zeros(n, np.uint32)
            found["stamp"][first] = 1
            continue
        if array.name not in state:
            raise InputError(f"state lacks {array.name!r}: give its first values, one for each of the {n} vertices")
        given = np.asarray(state[array.name])
        found[array.name] = given.astype(types[array.ctype])
        exact = array.ctype == "real" or np.array_equal(found[array.name], given)
        if given.shape != (n,) or not exact:
            raise InputError(
                f"state[{array.name!r}] is {given.dtype} {given.shape}: give {n} numbers that fit {array.ctype}"
            )
    if unknown := sorted(set(state) - found.keys()):
        raise InputError(f"state has {unknown[0]!r}, which the rounds do not declare: leave it out")
    if not n or not first.size:
        return found
    return on.run_declared(rounds, arcs, found | inputs.lists_of(arcs, first))


def check_undirected(arcs: Arcs, why: str) -> None:
    """Raise :class:`InputError` for a directed graph."""
    if arcs.directed:
        raise InputError(
            f"{arcs.name} is directed, and {why}: give an undirected graph, such as graph.to_undirected() of networkx; "
            "leave out --directed"
        )


def check_weights(arcs: Arcs, *, infinite: bool = False) -> None:
    """Raise :class:`InputError` for a weight that is negative, NaN or, unless ``infinite``, infinite."""
    if arcs.weights is None:
        return
    bad = ~(arcs.weights >= 0) | (np.isinf(arcs.weights) & (not infinite))
    if bad.any():
        at = int(np.argmax(bad))
        u, v = arcs.shown(int(arcs.sources[at])), arcs.shown(int(arcs.targets[at]))
        weight = arcs.weights[at]
        kind = "ones" if infinite else "finite ones"
        raise InputError(f"{arcs.name}: the weight from {u} to {v} is {weight}; give {kind} of 0 or more")
