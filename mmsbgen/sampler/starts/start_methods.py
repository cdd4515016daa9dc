"""Where a chain starts: sets of vertices that most of the mass of a row is put on, found in the training links.

A random start of a sparse graph needs hundreds of sweeps to find its communities, and may miss some; sets that a
fast method finds are a start near one of the modes.  They only start the chain: what it makes of them shows in the
held-out metrics, by which :func:`mmsbgen.sampler.run.start_trials.choose` chooses.
"""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mmsbgen.base.progress import Stage, stage
from mmsbgen.families.mmsb.numbers.row_layout import PLACED
from mmsbgen.graph import Graph, Split
from mmsbgen.kernels.build import BoundKernel
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.starts import contraction
from mmsbgen.sampler.state.device_state import State, StateShape

if TYPE_CHECKING:
    import igraph

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]
#: Mass of a vertex's row on the communities of its sets.
MASS = 0.9
#: Runs of Leiden in search of a resolution that gives K communities.
_LEIDEN_RUNS = 8
#: Links from which one of them takes a second, so that few are to do; igraph lets no other thread run meanwhile.
MANY = 500_000
#: Share of N/K vertices from which a community counts towards K.
_SIZEABLE = 0.1
#: Share of an ego net that earlier ones may have taken.
_OVERLAP = 0.5


@dataclass(frozen=True)
class Start:
    """Sets to start from: ``vertices`` ``[S]``, ascending, and the ``communities`` ``[S]`` that they are in.

    A random start has none: its rows are drawn from Dirichlet(1, ..., 1), as are those of vertices in no set.
    """

    name: str
    vertices: Ints
    communities: Ints

    def rows(self, first: int, stop: int, shape: StateShape) -> tuple[Ints, Array]:
        """The vertices ``[V]`` from ``first`` to below ``stop`` that are in sets, and their rows of pi ``[V, LD]``."""
        inside = slice(*np.searchsorted(self.vertices, [first, stop]))
        vertices, at, sets = np.unique(self.vertices[inside], return_inverse=True, return_counts=True)
        rest = (1.0 - MASS) / shape.k
        rows = np.full((vertices.size, shape.row), rest, shape.real)
        rows[:, shape.k :] = 0.0
        rows[at, self.communities[inside]] = rest + MASS / sets[at]
        return vertices, rows

    def place(self, state: State, seed: int, kernel: BoundKernel | None = None) -> None:
        """Write the rows of vertices in sets into a state whose slots are the identity; other rows stay.

        The device makes them by the ``kernel`` place_rows; without it the host does, which rounds those of 16 bits.
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


def first_theta(graph: Graph, options: Options) -> Floats:
    """theta ``[2, K]`` to start from: drawn from Gamma(eta, 1), or for blocks that of a guess at the strengths.

    The first sweep of blocks moves it all the way; communities are denser than the graph.
    """
    if options.block:
        strength = min(0.9, max(0.05, 5 * graph.density))
        return np.repeat([[1.0 - strength], [strength]], options.n_communities, axis=1)
    rng = np.random.Generator(np.random.PCG64([options.seed, 2]))
    eta = np.array(options.eta)[:, None]
    return np.maximum(rng.gamma(eta, size=(2, options.n_communities)), 1e-6)


def of_sets(name: str, sets: list[Ints]) -> Start:
    """The start with one community a set."""
    vertices = np.concatenate([np.zeros(0, np.int64), *sets])
    communities = np.repeat(np.arange(len(sets)), [len(members) for members in sets])
    order = np.argsort(vertices, kind="stable")
    return Start(name, vertices[order], communities[order])


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Let igraph draw from a generator of this seed."""
    import igraph

    igraph.set_random_number_generator(random.Random(seed))
    try:
        yield
    finally:
        igraph.set_random_number_generator(random)


_graphs: weakref.WeakKeyDictionary[Split, igraph.Graph] = weakref.WeakKeyDictionary()


def training_graph(split: Split) -> igraph.Graph:
    """The training links as igraph has them, kept until :func:`forget`: making it takes three times what it holds."""
    if split not in _graphs:
        _graphs[split] = contraction.graph_of(split.graph.n_vertices, split.training_links)
    return _graphs[split]


def forget(split: Split) -> None:
    """Give back what :func:`training_graph` keeps."""
    _graphs.pop(split, None)


def leiden(graph: igraph.Graph, resolution: float, iterations: int = 2) -> list[Ints]:
    """Leiden's communities (Traag, Waltman, van Eck 2019) for modularity, largest first; single vertices left out."""
    found: Any = graph.community_leiden(objective_function="modularity", resolution=resolution, n_iterations=iterations)
    return by_label(np.asarray(found.membership))


def by_label(labels: Ints) -> list[Ints]:
    """The sets of equal labels with more than one member, largest first."""
    order = np.argsort(labels, kind="stable")
    _, starts = np.unique(labels[order], return_index=True)
    sets = [members for members in np.split(order, starts[1:]) if members.size > 1]
    return sorted(sets, key=lambda members: (-members.size, int(members[0])))


def communities(split: Split, k: int, seed: int) -> Start:
    """Leiden's communities at a resolution that gives about ``k`` of some size; at most the ``k`` largest."""
    # Small components stay apart at any resolution: were they counted, the large one would be left in one piece.
    fewest = _SIZEABLE * split.graph.n_vertices / k
    graph, large = training_graph(split), split.n_training_links > MANY
    total = None if large else _LEIDEN_RUNS
    with seeded(seed), stage("looking for Leiden's communities", total, "runs", alone=large) as told:
        if large:
            labels = contraction.labels_for(graph, split.training_links, k, fewest, told.tell)
            return of_sets("communities", [members for members in by_label(labels) if members.size >= fewest][:k])
        return of_sets("communities", _searched(graph, k, fewest, told)[:k])


def _searched(graph: igraph.Graph, k: int, fewest: float, told: Stage) -> list[Ints]:
    """By runs on the whole graph: those sets of ``fewest`` vertices or more whose number came nearest to ``k``."""
    low, high = 1e-2, 1e4
    resolution, best = 1.0, None
    for number in range(_LEIDEN_RUNS):
        told.tell(number)
        sets = [members for members in leiden(graph, resolution) if members.size >= fewest]
        if best is None or abs(len(sets) - k) < abs(len(best) - k):
            best = sets
        if abs(len(sets) - k) <= 0.03 * k:
            break
        low, high = (resolution, high) if len(sets) < k else (low, resolution)
        # Near 1 the number of communities is about as steep in the resolution as this first guess has it.
        guess = resolution * k / max(1, len(sets))
        resolution = guess if low < guess < high else float(np.sqrt(low * high))
    assert best is not None
    return best


def ego_nets(split: Split, k: int, seed: int) -> Start:
    """Up to ``k`` ego nets of low conductance that overlap little, locally minimal ones first (Gleich, Seshadhri 2012).

    The conductance of a set is the share of its links' ends, or of the others' if those are fewer, that leave it.
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
    # A first pass over local minima, a second over all: what there is to find soon overlaps.
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
    """Conductance ``[N]`` of every vertex with its neighbours; infinite below two neighbours."""
    adjacency, n = split.training_adjacency, split.graph.n_vertices
    degrees = adjacency.degrees.astype(np.float64)
    share = np.asarray(training_graph(split).transitivity_local_undirected(mode="zero"))
    # Whole numbers, so that nets of equal conductance tie whatever the rounding of the share.
    triangles = np.rint(share * degrees * (degrees - 1) / 2)
    ends = degrees[adjacency.neighbours]
    volume = degrees + np.bincount(np.repeat(np.arange(n), adjacency.degrees), ends, minlength=n)
    leaving = volume - 2 * (degrees + triangles)
    other = degrees.sum() - volume
    smaller = np.minimum(volume, other)
    # A net that is nearly everything has nothing on its other side.
    conductance = np.where(smaller > 0, leaving / np.maximum(smaller, 1), 1.0)
    return np.where(degrees >= 2, conductance, np.inf)


def scattered(split: Split, k: int, seed: int) -> Start:
    """No sets: every row is drawn."""
    return of_sets("random", [])


STARTS: dict[str, Callable[[Split, int, int], Start]] = {
    "communities": communities,
    "ego": ego_nets,
    "random": scattered,
}
