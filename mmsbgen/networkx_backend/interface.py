"""What networkx calls: a function for each of its own that is computed here, with the same results."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, wraps
from itertools import pairwise
from typing import Any, TypeVar

import networkx as nx
import numpy as np

from mmsbgen import algorithms
from mmsbgen.algorithms import ConvergenceError, VertexValues
from mmsbgen.base.errors import InputError
from mmsbgen.graph import Arcs, as_arcs
from mmsbgen.networkx_backend.info import FUNCTIONS

#: Fewest links of a graph whose conversion is worth its time.
_FEWEST_LINKS = 100_000
#: Functions that count triangles of simple undirected graphs.
_CLUSTERING = frozenset({"triangles", "clustering", "average_clustering", "transitivity"})
F = TypeVar("F", bound=Callable[..., Any])


class BackendGraph:
    """A networkx graph converted for the programs."""

    __networkx_backend__ = "mmsbgen"

    def __init__(self, original: Any, arcs: Arcs, weight: str | None) -> None:
        self.original, self.arcs, self._weight = original, arcs, weight

    @cached_property
    def plain(self) -> Arcs:
        """The arcs without their weights."""
        return self.arcs if self.arcs.weights is None else replace(self.arcs, weights=None)

    def weighted(self, weight: str | None) -> Arcs:
        """The arcs with the weights of an attribute; all 1 for None.

        networkx hands over the conversion of an earlier call if it kept more, such as all attributes for ``k_core``.
        """
        if weight is None:
            return replace(self.arcs, weights=np.ones(self.arcs.n_arcs))
        return self.arcs if weight == self._weight else as_arcs(self.original, weights=weight)

    def is_directed(self) -> bool:
        """As networkx's."""
        return self.arcs.directed

    def is_multigraph(self) -> bool:
        """As networkx's."""
        return bool(self.original.is_multigraph())

    def __len__(self) -> int:
        return self.arcs.n_vertices

    def __iter__(self) -> Iterator[Any]:
        return iter(self.original)

    def __contains__(self, node: object) -> bool:
        return node in self.original


def _handed_back(function: F) -> F:
    """Raise NotImplementedError, after which networkx may compute it itself, where an input is refused here."""

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except InputError as error:
            raise NotImplementedError(str(error)) from error

    return called  # type: ignore[return-value]


def convert_from_nx(graph: Any, *, edge_attrs: Mapping[str, Any] | None = None, **others: Any) -> BackendGraph:
    """Convert a graph; of its attributes only the weights that ``edge_attrs`` names are kept."""
    weight, default = next(iter((edge_attrs or {}).items()), (None, 1))
    if weight is not None and default != 1:
        raise InputError(f"links without {weight!r} would have the weight {default!r}; only 1 can be")
    return BackendGraph(graph, as_arcs(graph, weights=weight), weight)


def convert_to_nx(obj: Any, **others: Any) -> Any:
    """The graph that was converted; results as they are."""
    return obj.original if isinstance(obj, BackendGraph) else obj


def can_run(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool | str:
    """Whether a call can be done; else why not."""
    if name not in FUNCTIONS:
        return f"{name} is no function of this backend"
    given = _arguments(name, args, kwargs)
    if callable(given.get("weight")):
        return "weights are a function"
    if name == "closeness_centrality" and given.get("distance") is not None:
        return "weights count"
    if given.get("core_number") is not None:
        return "core numbers are given"
    if name in _CLUSTERING:
        if given.get("weight") is not None:
            return "weights count"
        if given["G"].is_directed() or given["G"].is_multigraph():
            return "the graph is directed, or has parallel links"
    if name == "shortest_path_length":
        if given.get("source") is None:
            return "there is no source"
        if given.get("method", "dijkstra") != "dijkstra":
            return f"the method is {given['method']}"
    return True


def should_run(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool | str:
    """Whether a call is worth a conversion; else why not."""
    links = _arguments(name, args, kwargs)["G"].number_of_edges()
    return True if links >= _FEWEST_LINKS else f"{links} links are converted as fast as networkx computes"


def single_source_shortest_path_length(G: Any, source: Any, cutoff: float | None = None) -> dict[Any, int]:
    """Levels by node, in their order."""
    _check_node(G, source, "Source {} is not in G")
    return _near_first(algorithms.bfs(G.plain, source), cutoff)


def single_source_dijkstra_path_length(
    G: Any, source: Any, cutoff: float | None = None, weight: str = "weight"
) -> dict[Any, float]:
    """Distances by node, in their order."""
    _check_node(G, source, "Node {} not found in graph")
    return _near_first(algorithms.sssp(G.weighted(weight), source), cutoff)


def shortest_path_length(
    G: Any, source: Any = None, target: Any = None, weight: str | None = None, method: str = "dijkstra"
) -> Any:
    """Lengths from a source to all nodes, or to one."""
    _check_node(G, source, "Source {} is not in G")
    found = _near_first(
        algorithms.bfs(G.plain, source) if weight is None else algorithms.sssp(G.weighted(weight), source)
    )
    if target is None:
        return found
    if target not in G:
        raise nx.NodeNotFound(f"Either source {source} or target {target} is not in G")
    if target not in found:
        raise nx.NetworkXNoPath(f"No path between {source} and {target}.")
    return found[target]


def multi_source_dijkstra_path_length(
    G: Any, sources: Any, cutoff: float | None = None, weight: str = "weight"
) -> dict[Any, float]:
    """Distances from the nearest of some nodes, in their order."""
    if not sources:
        raise ValueError("sources must not be empty")
    for source in sources:
        _check_node(G, source, "Node {} not found in graph")
    return _near_first(algorithms.sssp(G.weighted(weight), list(sources)), cutoff)


def single_source_bellman_ford_path_length(G: Any, source: Any, weight: str = "weight") -> dict[Any, float]:
    """Distances by node, in their order."""
    _check_node(G, source, "Source {} not in G")
    return _near_first(algorithms.sssp(G.weighted(weight), source))


def has_path(G: Any, source: Any, target: Any) -> bool:
    """Whether there is a path from a node to another one."""
    if source not in G or target not in G:
        raise nx.NodeNotFound(f"Either source {source} or target {target} is not in G")
    return bool(algorithms.bfs(G.plain, source).values[G.plain.vertex(target)] >= 0)


def descendants_at_distance(G: Any, source: Any, distance: int) -> set[Any]:
    """The nodes at a number of links from a node."""
    if source not in G:
        raise nx.NetworkXError(f"The node {source} is not in the graph.")
    found = algorithms.bfs(G.plain, source)
    return set(found.ids[(found.values == distance) & (found.values >= 0)].tolist())


def is_connected(G: Any) -> bool:
    """Whether there is one component; directions do not count."""
    if len(G) == 0:
        raise nx.NetworkXPointlessConcept("Connectivity is undefined for the null graph.")
    return not algorithms.components(G.plain).values.any()


def node_connected_component(G: Any, n: Any) -> set[Any]:
    """The nodes of a node's component."""
    if n not in G:
        raise KeyError(n)
    found = algorithms.components(G.plain)
    return set(found.ids[found.values == found.values[G.plain.vertex(n)]].tolist())


def connected_components(G: Any) -> Iterator[set[Any]]:
    """Sets of nodes, in the order of their first ones."""
    found = algorithms.components(G.plain)
    order = np.argsort(found.values, kind="stable")
    ends = np.cumsum(np.bincount(found.values)).tolist()
    nodes = found.ids[order].tolist()
    return (set(nodes[begin:end]) for begin, end in pairwise([0, *ends]))


def number_connected_components(G: Any) -> int:
    """The number of components."""
    return int(algorithms.components(G.plain).values.max(initial=-1)) + 1


is_weakly_connected = is_connected
weakly_connected_components = connected_components
number_weakly_connected_components = number_connected_components


def core_number(G: Any) -> dict[Any, int]:
    """Core numbers by node."""
    _check_loops(G)
    return algorithms.cores(G.plain).as_dict()


def k_core(G: Any, k: int | None = None, core_number: Mapping[Any, int] | None = None) -> Any:
    """The subgraph of the k-core, with its attributes; by default of the largest k."""
    _check_loops(G)
    if k is None:
        values = algorithms.cores(G.plain).values
        inside = values == values.max()
    else:
        inside = algorithms.k_core(G.plain, k).values
    return G.original.subgraph(G.plain.ids[inside].tolist()).copy()


def closeness_centrality(G: Any, u: Any = None, distance: str | None = None, wf_improved: bool = True) -> Any:
    """Closeness by node, or of one node."""
    if u is None:
        return algorithms.closeness(G.plain, wf_improved=wf_improved).as_dict()
    _check_node(G, u, "Source {} is not in G")
    return algorithms.closeness(G.plain, [u], wf_improved=wf_improved).values.item()


def triangles(G: Any, nodes: Any = None) -> Any:
    """Triangles by node, or of one node."""
    return _of_nodes(G, algorithms.triangles(G.plain).values.tolist(), nodes)


def clustering(G: Any, nodes: Any = None, weight: str | None = None) -> Any:
    """Clustering by node, or of one node."""
    return _of_nodes(G, algorithms.triangles(G.plain).clustering.tolist(), nodes)


def average_clustering(G: Any, nodes: Any = None, weight: str | None = None, count_zeros: bool = True) -> float:
    """The mean of clustering, over ``nodes``."""
    found = clustering(G, nodes).values()
    shares: list[float] = [one for one in found if count_zeros or one > 0]
    return sum(shares) / len(shares)


def transitivity(G: Any) -> float:
    """The share of pairs of neighbours that are linked."""
    return algorithms.triangles(G.plain).transitivity


def pagerank(
    G: Any,
    alpha: float = 0.85,
    personalization: Mapping[Any, float] | None = None,
    max_iter: int = 100,
    tol: float = 1.0e-6,
    nstart: Mapping[Any, float] | None = None,
    weight: str | None = "weight",
    dangling: Mapping[Any, float] | None = None,
) -> dict[Any, float]:
    """Ranks by node."""
    arcs = G.weighted(weight)
    if np.all(arcs.weights == 1):
        arcs = G.plain
    if personalization is not None and not any(personalization.get(node, 0) for node in G):
        raise ZeroDivisionError
    vectors: dict[str, Any] = {
        name: None if given is None else {node: value for node, value in given.items() if node in G}
        for name, given in (("personalization", personalization), ("nstart", nstart), ("dangling", dangling))
    }
    try:
        return algorithms.pagerank(arcs, alpha=alpha, max_iter=max_iter, tol=tol, **vectors).as_dict()
    except ConvergenceError:
        raise nx.PowerIterationFailedConvergence(max_iter) from None


def _arguments(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name, without those that are left out."""
    return inspect.signature(globals()[name]).bind(*args, **kwargs).arguments


def _check_node(graph: BackendGraph, node: Any, text: str) -> None:
    if node not in graph:
        raise nx.NodeNotFound(text.format(node))


def _check_loops(graph: BackendGraph) -> None:
    if graph.plain.n_loops:
        raise nx.NetworkXNotImplemented(
            "Input graph has self loops which is not permitted; Consider using G.remove_edges_from("
            "nx.selfloop_edges(G))."
        )


def _of_nodes(graph: BackendGraph, values: list[Any], nodes: Any) -> Any:
    """All values by node, those of some nodes, or that of one."""
    found = dict(zip(graph.arcs.ids.tolist(), values, strict=True))
    if nodes is None:
        return found
    if nodes in graph:
        return found[nodes]
    return {node: found[node] for node in graph.original.nbunch_iter(nodes)}


def _near_first(found: VertexValues, cutoff: float | None = None) -> dict[Any, Any]:
    """Lengths of paths by node, the least first; without nodes that are not reached or beyond ``cutoff``."""
    lengths = found.values
    near = np.flatnonzero((lengths >= 0) & np.isfinite(lengths) & (lengths <= (np.inf if cutoff is None else cutoff)))
    near = near[np.argsort(lengths[near], kind="stable")]
    return dict(zip(found.ids[near].tolist(), lengths[near].tolist(), strict=True))


backend = sys.modules[__name__]


# Afterwards, so that no function is left out.
globals().update({name: _handed_back(globals()[name]) for name in (*FUNCTIONS, "convert_from_nx")})
