"""Starts of a chain: sets of vertices found in the training links, on which rows of pi put most of their mass.

From a random start, a chain on a sparse graph needs hundreds of sweeps to find its communities, and may miss some.
Sets found by a fast method start the chain near a mode.  :func:`mmsbgen.sampler.run.start_trials.choose` chooses
between starts by held-out metrics.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mmsbgen.base.progress import Stage, stage
from mmsbgen.families.mmsb.numbers.row_layout import PLACED
from mmsbgen.graph import Split
from mmsbgen.graph.ids import in_order
from mmsbgen.kernels.build import BoundKernel
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.starts import contraction
from mmsbgen.sampler.starts.leiden import leiden, network, transitivity
from mmsbgen.sampler.starts.local_moving import Mover, in_threads
from mmsbgen.sampler.state.device_state import State, StateShape

if TYPE_CHECKING:
    import networkit

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]
#: Mass that a vertex's row puts on the communities of its sets.
MASS = 0.9
#: Most runs of Leiden in the search for the resolution with K communities.
_LEIDEN_RUNS = 8
#: Links above which a run of Leiden takes a second or more: few runs are made, in a process of their own.
MANY = 500_000
#: The start that is found by local moving in a graph of more links.
MOVED = "communities"
#: Elements of pi above which a graph is large for trials.
_LARGE = 2_000_000
#: Smallest size of a community that counts towards K, as a share of N/K.
_SIZEABLE = 0.1
#: Largest share of an ego net that may be in earlier ones.
_OVERLAP = 0.5


@dataclass(frozen=True)
class Start:
    """Sets to start from: ``vertices`` ``[S]``, ascending, and their ``communities`` ``[S]``.

    Rows of vertices in no set are drawn from Dirichlet(1, ..., 1); a random start has no sets.
    """

    name: str
    vertices: Ints
    communities: Ints

    def rows(self, first: int, stop: int, shape: StateShape) -> tuple[Ints, Array]:
        """Vertices ``[V]`` in sets, from ``first`` to below ``stop``, and their rows of pi ``[V, LD]``."""
        inside = slice(*np.searchsorted(self.vertices, [first, stop]))
        vertices, at, sets = np.unique(self.vertices[inside], return_inverse=True, return_counts=True)
        rest = (1.0 - MASS) / shape.k
        rows = np.full((vertices.size, shape.row), rest, shape.real)
        rows[:, shape.k :] = 0.0
        rows[at, self.communities[inside]] = rest + MASS / sets[at]
        return vertices, rows

    def place(self, state: State, seed: int, kernel: BoundKernel | None = None) -> None:
        """Write the rows of vertices in sets into a state whose slots are the identity; other rows are unchanged.

        The device computes the rows if the ``kernel`` place_rows is given, else the host, which also rounds rows stored
        in 16 bits.
        """
        if kernel is not None:
            self._place(state, kernel)
            return
        for first, stop in State.chunk_ranges(state.shape):
            vertices, rows = self.rows(first, stop, state.shape)
            ends = [0, *(np.flatnonzero(np.diff(vertices) != 1) + 1).tolist(), vertices.size]
            for begin, end in pairwise(ends):
                if end > begin:
                    state.set_rows(int(vertices[begin]), rows[begin:end], seed)

    def _place(self, state: State, kernel: BoundKernel) -> None:
        if not self.vertices.size:
            return
        device, shape = state.device, state.shape
        sets = np.bincount(self.vertices, minlength=shape.n_vertices)
        rest = (1.0 - MASS) / shape.k
        arrays = {
            "set_offsets": np.concatenate([[0], np.cumsum(sets)]).astype(np.uint32),
            "set_communities": self.communities.astype(np.uint32),
            "set_shares": (rest + MASS / np.maximum(sets, 1)).astype(shape.real),
        }
        scalars = {"rest": shape.real.type(rest), "n_vertices": np.uint64(shape.n_vertices)}
        with ExitStack() as there:
            given = {name: there.enter_context(device.upload(array)) for name, array in arrays.items()}
            kernel.launch(shape.n_vertices * shape.row // PLACED, state.buffers | given | scalars)
            device.synchronize()


def first_theta(density: float, options: Options) -> Floats:
    """Initial theta ``[2, K]``: drawn from Gamma(eta, 1), or for blocks a guess from the graph's ``density``.

    The guess assumes communities five times as dense as the graph; the first sweep of blocks replaces it.
    """
    if options.block:
        strength = min(0.9, max(0.05, 5 * density))
        return np.repeat([[1.0 - strength], [strength]], options.n_communities, axis=1)
    rng = np.random.Generator(np.random.PCG64([options.seed, 2]))
    eta = np.array(options.eta)[:, None]
    return np.maximum(rng.gamma(eta, size=(2, options.n_communities)), 1e-6)


def of_sets(name: str, sets: list[Ints]) -> Start:
    """The start with one community per set."""
    vertices = np.concatenate([np.zeros(0, np.int64), *sets])
    communities = np.repeat(np.arange(len(sets)), [len(members) for members in sets])
    vertices, order = in_order(vertices)
    return Start(name, vertices, communities[order])


_graphs: weakref.WeakKeyDictionary[Split, networkit.Graph] = weakref.WeakKeyDictionary()


def training_graph(split: Split) -> networkit.Graph:
    """The training links as a networkit graph, cached until :func:`forget`."""
    if split not in _graphs:
        _graphs[split] = network(split.graph.n_vertices, split.training_links)
    return _graphs[split]


def forget(split: Split) -> None:
    """Drop the graph cached by :func:`training_graph`."""
    _graphs.pop(split, None)


def of_labels(name: str, labels: Ints, k: int, fewest: float = 2) -> Start:
    """The start with the ``k`` largest communities of ``labels`` ``[N]``, whole numbers, largest first.

    Those with less than ``fewest`` vertices, or only one, are left out.
    """
    sizes = np.bincount(labels)
    first = np.zeros(sizes.size, np.int64)
    first[labels[::-1]] = np.arange(labels.size)[::-1]
    ranked = np.lexsort((first, -sizes))
    ranked = ranked[sizes[ranked] >= max(2, fewest)][:k]
    place = np.full(sizes.size, -1)
    place[ranked] = np.arange(ranked.size)
    found = place[labels]
    vertices = np.flatnonzero(found >= 0)
    return Start(name, vertices, found[vertices])


def communities(split: Split, k: int, seed: int, mover: Mover = in_threads) -> Start:
    """At most ``k`` of Leiden's communities, at a resolution that gives about ``k`` that are large enough.

    ``mover`` finds the moves of local moving in large graphs.
    """
    # Small components are separate at any resolution; if they counted, the large component would not be split.
    fewest = _SIZEABLE * (split.graph.n_vertices - split.unlinked.size) / k
    large = split.n_training_links > MANY
    total = None if large else _LEIDEN_RUNS
    with stage("looking for Leiden's communities", total, "runs", alone=large) as told:
        if large:
            labels = contraction.labels_for(split.training_adjacency, k, fewest, seed, told.tell, mover)
        else:
            labels = _searched(training_graph(split), k, fewest, seed, told)
        return of_labels("communities", labels, k, fewest)


def _searched(graph: networkit.Graph, k: int, fewest: float, seed: int, told: Stage) -> Ints:
    """Search by runs on the whole graph: the labels whose number of communities of ``fewest`` is nearest to ``k``."""
    low, high = 1e-2, 1e4
    resolution, best, least = 1.0, None, np.inf
    for number in range(_LEIDEN_RUNS):
        told.tell(number)
        labels = leiden(graph, resolution, seed)
        count = int(np.count_nonzero(np.bincount(labels) >= max(2, fewest)))
        if abs(count - k) < least:
            best, least = labels, abs(count - k)
        if abs(count - k) <= 0.03 * k:
            break
        low, high = (resolution, high) if count < k else (low, resolution)
        # Near resolution 1 the number of communities is about proportional to the resolution.
        guess = resolution * k / max(1, count)
        resolution = guess if low < guess < high else float(np.sqrt(low * high))
    assert best is not None
    return best


def ego_nets(split: Split, k: int, seed: int) -> Start:
    """Up to ``k`` ego nets of low conductance that overlap little, locally minimal ones first (Gleich, Seshadhri 2012).

    The conductance of a set is the number of links that leave it, over the number of link ends inside or outside,
    whichever is smaller.
    """
    adjacency, n = split.training_adjacency, split.graph.n_vertices
    degrees, offsets, neighbours = adjacency.degrees, adjacency.offsets, adjacency.neighbours
    conductance = _ego_conductance(split)
    least = np.full(n, np.inf)
    linked = np.flatnonzero(degrees)
    if linked.size:
        least[linked] = np.minimum.reduceat(conductance[neighbours], offsets[linked])
    minimal = (degrees >= 2) & (conductance <= least)
    taken = np.zeros(n, bool)
    sets: list[Ints] = []
    # The first pass takes local minima only, the second all ego nets.
    for eligible in (minimal, degrees >= 2):
        for vertex in np.argsort(conductance, kind="stable"):
            if len(sets) == k:
                break
            if not eligible[vertex] or taken[vertex]:
                continue
            net = np.append(neighbours[offsets[vertex] : offsets[vertex + 1]].astype(np.int64), vertex)
            if taken[net].mean() <= _OVERLAP:
                sets.append(np.sort(net))
                taken[net] = True
    return of_sets("ego", sets)


def _ego_conductance(split: Split) -> Floats:
    """Conductance ``[N]`` of the ego net of every vertex; infinite for fewer than two neighbours."""
    adjacency, n = split.training_adjacency, split.graph.n_vertices
    degrees = adjacency.degrees.astype(np.float64)
    share = transitivity(training_graph(split))
    # Rounded, so that nets of equal conductance tie exactly.
    triangles = np.rint(share * degrees * (degrees - 1) / 2)
    ends = degrees[adjacency.neighbours]
    volume = degrees + np.bincount(np.repeat(np.arange(n), adjacency.degrees), ends, minlength=n)
    leaving = volume - 2 * (degrees + triangles)
    other = degrees.sum() - volume
    smaller = np.minimum(volume, other)
    # A net with all links has no ends outside.
    conductance = np.where(smaller > 0, leaving / np.maximum(smaller, 1), 1.0)
    return np.where(degrees >= 2, conductance, np.inf)


def is_large(split: Split, k: int) -> bool:
    """Whether pi of ``k`` communities has so many elements that trials are short."""
    return split.graph.n_vertices * k > _LARGE


def worth_trying(split: Split, k: int) -> list[str]:
    """The starts that ``auto`` tries for ``k`` communities.

    A random start needs more sweeps than a trial of a large graph has.  There ego nets are tried only if ``k`` of mean
    size could hold half of the vertices: from fewer, most rows would start at random.
    """
    n, links = split.graph.n_vertices, split.n_training_links
    left_out = {"random"} if is_large(split, k) else set()
    if links > MANY and k * (1 + 2 * links / n) < n / 2:
        left_out.add("ego")
    return [name for name in STARTS if name not in left_out]


def scattered(split: Split, k: int, seed: int) -> Start:
    """The random start: no sets, every row is drawn."""
    return of_sets("random", [])


STARTS: dict[str, Callable[[Split, int, int], Start]] = {
    "communities": communities,
    "ego": ego_nets,
    "random": scattered,
}
