"""Sweeps over those vertices only whose rows still move, from the rows of an earlier result.

The rounds are change-driven: a vertex is swept while its row moves, and its neighbours when the row has moved by more
than a tolerance since they were last told.  Net distances count, as rows of neighbours that are swept together waver.
Strengths stay as they were.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mmsbgen.base.processes import run_side_by_side
from mmsbgen.families.mmsb.numbers.sparse_rows import NONE
from mmsbgen.families.mmsb.sparse.sparse_sizes import FIXED_POINT
from mmsbgen.graph import Adjacency
from mmsbgen.graph.changes import Change
from mmsbgen.graph.graph import numbers_of_ranges
from mmsbgen.kernels.family import Array
from mmsbgen.sampler.chain.kernel_arguments import StepScalars
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics.memberships import Memberships
from mmsbgen.sampler.minibatch.batch_sources import Batch
from mmsbgen.sampler.options.phases import Phases
from mmsbgen.sampler.state.device_state import StateShape
from mmsbgen.sampler.state.sparse_state import SparseState

Ints = npt.NDArray[np.int64]

#: L1 distance of a row from the one that its neighbours were told of beyond which they are swept: half of its mass.
TOLERANCE = 1.0
#: L1 distance that a row moves in a round below which it has come to rest.
REST = 0.02
#: Most rounds. A step closes a tenth of the distance that is left.
MOST_ROUNDS = 20
#: Distance of a row's sum from 1 that is rounding.
_ROUNDING = 1e-5
#: Elements of rows handled at a time, and by one thread.
_ELEMENTS, _AT_A_TIME = 1 << 22, 1 << 19


@dataclass(frozen=True)
class LocalSweeps:
    """What local sweeps did.

    Attributes:
        rounds: rounds, of one sweep over the vertices that were active.
        touched: vertices that were swept at least once.
        moved: vertices whose row moved by more than the tolerance, ascending.
        updates: updates of rows in all rounds.
        moving: vertices whose row still moved at the end.
    """

    rounds: int
    touched: int
    moved: Ints
    updates: int
    moving: int


def start_from(sampler: Sampler, before: Memberships, change: Change) -> None:
    """Give vertices the rows of an earlier result, and each new one the mean of its neighbours' rows.

    Vertices of which the earlier result knew no training link are new too.  New vertices that no path links to old ones
    get even parts of some communities, drawn at random.  ``sampler`` has sparse rows, and the graph after the change.
    """
    state, shape, adjacency = sampler.state, sampler.shape, sampler.split.training_adjacency
    assert isinstance(state, SparseState)
    n, k, most, place = shape.n_vertices, shape.k, min(shape.entries, shape.k), change.place
    communities = np.full((n, shape.entries), NONE, np.uint32)
    values = np.zeros((n, shape.entries), shape.real)
    # Rows with codes are made dense.
    step = max(1, _AT_A_TIME // (before.width if before.codes.size else shape.entries))

    def put(first: int) -> None:
        part = np.arange(first, min(first + step, len(place)))
        communities[place[part]], values[place[part]] = _entries(before, part, shape.entries, shape.floor)

    run_side_by_side(put, range(0, len(place), step))
    new = np.union1d(change.new_vertices, place[before.unlinked])
    for unknown in (new, sampler.left_out):
        communities[unknown], values[unknown] = NONE, 0.0
    left = _from_neighbours(communities, values, np.setdiff1d(new, sampler.left_out), adjacency)
    communities[left, :most] = state.random_communities(left, sampler.options.seed)
    values[left, :most] = 1.0
    used = communities != NONE
    sizes = values.sum(axis=1, dtype=np.float64) + (k - used.sum(axis=1)) * shape.floor
    off = (np.abs(sizes - 1.0) > _ROUNDING) & used.any(axis=1)
    values[off] = state.scaled(values[off], used[off])
    state.set_entries(communities, values)
    sampler.device.write(sampler.values["row_sums"], np.ones(n, shape.real))
    beta = np.zeros(k)
    of_model = before.columns >= 0
    beta[before.columns[of_model]] = before.beta[of_model]
    sampler.set_theta(np.stack([1.0 - beta, beta]))
    sampler.chain = sampler.chain.first(len(sampler.split.validation.pairs), k)._replace(course=Phases("results"))


def _entries(before: Memberships, vertices: Ints, r: int, floor: float) -> tuple[Array, Array]:
    """The ``r`` largest entries of rows of a result, by the columns of its chain; stored ones as they are."""
    at, sizes = before.indices[vertices].astype(np.int64), before.values[vertices]
    if before.codes.size and at.shape[1] < min(r, before.width):
        others = before.completed_rows(vertices).astype(sizes.dtype)
        np.put_along_axis(others, at, 0.0, axis=1)
        total = others.sum(axis=1, keepdims=True)
        others *= np.divide(before.rest[vertices, None], total, out=np.zeros_like(total), where=total > 0)
        more = np.argsort(-others, axis=1, kind="stable")[:, : r - at.shape[1]]
        at = np.concatenate([at, more], axis=1)
        sizes = np.concatenate([sizes, np.take_along_axis(others, more, axis=1)], axis=1)
    at, sizes = at[:, :r], sizes[:, :r]
    columns = before.columns[at]
    used = (columns >= 0) & (sizes > floor * (1 + 1e-6))
    columns, sizes = np.where(used, columns, NONE), np.where(used, sizes, 0.0)
    if not (sizes[:, 1:] <= sizes[:, :-1]).all():  # stored ones mostly are in order, and sorting takes long
        order = np.argsort(-sizes, axis=1, kind="stable")
        columns, sizes = np.take_along_axis(columns, order, axis=1), np.take_along_axis(sizes, order, axis=1)
    found, kept = np.full((len(vertices), r), NONE, np.uint32), np.zeros((len(vertices), r), sizes.dtype)
    found[:, : at.shape[1]], kept[:, : at.shape[1]] = columns, sizes
    return found, kept


def _from_neighbours(communities: Array, values: Array, vertices: Ints, adjacency: Adjacency) -> Ints:
    """Set the rows of ``vertices`` to means of their neighbours' rows, nearest first; returns those without any."""
    while vertices.size:
        step = max(1, _ELEMENTS // (communities.shape[1] * max(1, int(adjacency.degrees[vertices].max()))))
        parts = [vertices[first : first + step] for first in range(0, vertices.size, step)]
        means = [_means(communities, values, part, adjacency) for part in parts]
        for rows, own, sizes in means:
            communities[rows], values[rows] = own, sizes
        found = np.concatenate([rows for rows, _, _ in means])
        if not found.size:
            break
        vertices = np.setdiff1d(vertices, found)
    return vertices


def _means(communities: Array, values: Array, vertices: Ints, adjacency: Adjacency) -> tuple[Ints, Array, Array]:
    """Those of ``vertices`` of which a neighbour has a row, and the largest entries of the mean of these rows."""
    owners, ends = _links(adjacency, vertices)
    near = communities[ends]
    there = near != NONE
    r, k = near.shape[1], int(near[there].max(initial=0)) + 1
    keys, at = np.unique((owners[:, None] * k + near)[there], return_inverse=True)
    mass = np.bincount(at, values[ends][there], keys.size)
    owner, community = np.divmod(keys.astype(np.int64), k)
    order = np.lexsort((community, -mass, owner))
    owner, community, mass = owner[order], community[order], mass[order]
    rank = np.arange(owner.size) - np.searchsorted(owner, owner)
    inside = rank < r
    found, row = np.unique(owner[inside], return_inverse=True)
    own, sizes = np.full((found.size, r), NONE, np.uint32), np.zeros((found.size, r), values.dtype)
    own[row, rank[inside]], sizes[row, rank[inside]] = community[inside], mass[inside]
    return vertices[found], own, sizes / sizes.sum(axis=1, keepdims=True)


def _links(adjacency: Adjacency, vertices: Ints) -> tuple[Ints, Ints]:
    """The place in ``vertices`` and the neighbour of each of their links."""
    counts = adjacency.degrees[vertices]
    places = numbers_of_ranges(adjacency.offsets[vertices], counts)
    return np.repeat(np.arange(vertices.size), counts), adjacency.neighbours[places].astype(np.int64)


def told_bytes(shape: StateShape) -> int:
    """Bytes on the device of what local sweeps keep beside the state."""
    return shape.n_vertices * (shape.entries * (4 + shape.real.itemsize) + 2 * shape.real.itemsize)


def sweep_locally(sampler: Sampler, vertices: Ints) -> LocalSweeps:
    """Sweep ``vertices``, and whatever their changes reach, until no row moves or for ``MOST_ROUNDS``."""
    n, device, shape = sampler.split.graph.n_vertices, sampler.device, sampler.shape
    adjacency, real = sampler.split.training_adjacency, shape.real
    if "sparse_replace" not in sampler.kernels:
        sampler.kernels["sparse_replace"] = sampler.runtime.kernel("sparse_replace", sampler.problem)
    state, sweeps = sampler.state, sampler.sweeps
    assert isinstance(state, SparseState)
    assert sweeps is not None
    sums = device.download(sampler.values["totals"]).astype(np.float64)
    cleared = np.zeros((3, shape.row), np.uint64)
    touched, changed = np.zeros(n, bool), np.zeros(n, bool)
    active = np.asarray(vertices[adjacency.degrees[vertices] > 0], np.int64)
    done = updates = 0
    with ExitStack() as stack:
        told = {name: stack.enter_context(device.alloc(n, real)) for name in ("moved", "since_told")}
        for name in ("communities", "values"):
            rows = state.buffers[name]
            told[f"told_{name}"] = stack.enter_context(device.alloc(rows.shape, rows.dtype))
            device.copy(told[f"told_{name}"], rows)
        while active.size and done < MOST_ROUNDS:
            active = active[np.argsort(-adjacency.degrees[active], kind="stable")]
            batch = Batch(0, active.size, 0)
            scalars = StepScalars.of(done, batch, 0, sampler.options.step_sizes(0.0), 0.0, 1, real.type)._asdict()
            device.write(sampler.values["vertices"], active.astype(np.uint32))
            values = sampler.values | scalars | told | {"tolerance": real.type(TOLERANCE)}
            for kernel in ("sparse_rows", "sparse_replace"):
                sampler.launch("update_phi", kernel, active.size, values)
            change = device.download(sampler.values["fixed_sums"])[2].view(np.int64)
            sums += change / FIXED_POINT
            device.write(sampler.values["totals"], sums.astype(real))
            device.write(sampler.values["fixed_sums"], cleared)
            moved, since = (device.download_range(told[name], 0, active.size) for name in ("moved", "since_told"))
            done, updates = done + 1, updates + active.size
            touched[active] = True
            telling = active[since > TOLERANCE]
            changed[telling] = True
            active = np.union1d(active[moved > REST], _links(adjacency, telling)[1])
    device.write(sampler.values["vertices"], sweeps.order(0)[0])
    chain = sampler.chain.counted(done, updates)
    sampler.chain = chain._replace(course=Phases("results", end=done))
    return LocalSweeps(done, int(touched.sum()), np.flatnonzero(changed), updates, int(active.size))
