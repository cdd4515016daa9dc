"""Moves for :mod:`mmsbgen.sampler.starts.local_moving` on a device, which keeps the labels."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mmsbgen.backends import find_device, opened
from mmsbgen.base.errors import MmsbgenError
from mmsbgen.families.mmsb import MMSB
from mmsbgen.families.mmsb.starts.label_tables import NO_GAIN, label_places, table_places
from mmsbgen.graph.ids import in_order
from mmsbgen.kernels.build import BoundKernel, build
from mmsbgen.kernels.space import Config
from mmsbgen.sampler.starts.local_moving import JOINED, MOST_ENDS, Mover, Moving, Weighted, even_parts, in_threads

if TYPE_CHECKING:
    from mmsbgen.backends.base import Buffer
    from mmsbgen.kernels.problem import Problem
    from mmsbgen.kernels.runtime import Runtime

__all__ = ["MovingKernels", "by_kernels", "moving_kernels", "on_device"]

log = logging.getLogger(__name__)

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class MovingKernels(NamedTuple):
    """Kernels of one device, for a move and a contraction."""

    best: BoundKernel
    move: BoundKernel
    join: BoundKernel
    gather: BoundKernel

    @classmethod
    def of(cls, best: BoundKernel) -> MovingKernels:
        """The kernel best_labels, and the others by their defaults; raises CompileError."""
        device, problem = best.device, best.problem
        others = [MMSB.kernel(name) for name in ("move_labels", "join_links", "gather_links")]
        return cls(best, *(build(device, spec, problem, spec.default(problem, best.traits)) for spec in others))


@contextmanager
def on_device(name: str, config: Callable[[], Config | None]) -> Iterator[Mover]:
    """Opens the device called ``name`` and finds moves on it by a configuration of best_labels.

    ``config`` waits for it until the device may be opened; if it is None, threads find the moves.
    """
    info = find_device(name)
    if (chosen := config()) is None:
        yield in_threads
        return
    with opened(info) as device:
        # The source is the same for graphs of all sizes.
        yield by_kernels(MovingKernels.of(build(device, MMSB.kernel("best_labels"), MMSB.problem(), chosen)))


def moving_kernels(runtime: Runtime, problem: Problem, what: str) -> MovingKernels | None:
    """The kernels of a run that move vertices; None, with a warning on what for, if they do not compile."""
    try:
        return MovingKernels.of(runtime.kernel("best_labels", problem))
    except MmsbgenError as error:
        log.warning("vertices move in threads when %s: %s", what, error)
        return None


def by_kernels(kernels: MovingKernels) -> Mover:
    """Moves vertices by kernels of a device that is open."""
    return partial(_moving, kernels)


@contextmanager
def _moving(kernels: MovingKernels, graph: Weighted, costs: Floats, labels: Ints) -> Iterator[Moving]:
    if int(graph.volumes.sum()) >= MOST_ENDS:
        with in_threads(graph, costs, labels) as moving:
            yield moving
        return
    with ExitStack() as there:
        yield _OnDevice(kernels, graph, costs, labels, there)


class _OnDevice:
    """Labels on a device; ``there`` releases its arrays."""

    def __init__(self, kernels: MovingKernels, graph: Weighted, costs: Floats, labels: Ints, there: ExitStack) -> None:
        self._device, self._kernels, self._graph, n = kernels.best.device, kernels, graph, labels.size
        device, self._degrees = self._device, np.diff(graph.offsets)
        arrays: dict[str, npt.NDArray[Any]] = {
            "neighbour_offsets": graph.offsets.astype(np.uint64),
            "neighbours": graph.ends.astype(np.uint32, copy=False) if graph.ends.size else np.zeros(1, np.uint32),
            "weights": np.zeros(1, np.uint32) if graph.weights is None else graph.weights,
            "volumes": graph.volumes.astype(np.uint32),
            "costs": costs * graph.volumes,
            "labels": labels.astype(np.uint32),
            "label_volumes": np.bincount(labels, graph.volumes, n).astype(np.uint32),
        }
        self._there = there
        self._values: dict[str, Any] = {name: self._placed(device.upload(one)) for name, one in arrays.items()}
        for name, size in (("vertices", n), ("best", n), ("tables", 1)):
            self._values[name] = self._placed(device.alloc(size, np.uint32))
        self._values["table_places"] = self._placed(device.alloc(n, np.uint64))
        self._values |= {"weighted": np.uint32(graph.weights is not None), "no_gain": np.float64(NO_GAIN)}

    def _placed(self, buffer: Buffer) -> Buffer:
        return self._there.enter_context(buffer)

    def move(self, vertices: Ints) -> None:
        if not vertices.size:
            return
        device, values = self._device, self._values
        places, numbers = table_places(self._degrees[vertices], int(self._kernels.best.config["slots"]))
        if numbers:
            device.write(values["table_places"], places)
        if numbers > values["tables"].shape[0]:
            values["tables"].release()
            values["tables"] = self._placed(device.alloc(numbers + numbers // 8, np.uint32))
        device.write(values["vertices"], vertices.astype(np.uint32))
        values["n_vertices"] = np.uint32(vertices.size)
        for kernel in (self._kernels.best, self._kernels.move):
            kernel.launch(vertices.size, values)

    def labels(self) -> Ints:
        return self._device.download(self._values["labels"]).astype(np.int64)

    def contracted(self, labels: Ints) -> Weighted:
        device, values, graph = self._device, self._values, self._graph
        for name in ("tables", "table_places"):
            values[name].release()
        places = label_places(labels, self._degrees)
        table_begins: Ints = places.astype(np.int64)
        count, order = places.size - 1, in_order(labels)[1].astype(np.uint32)
        firsts = np.concatenate([[0], np.cumsum(np.bincount(labels, minlength=count))])
        device.write(values["labels"], labels.astype(np.uint32))
        values["label_places"] = self._placed(device.upload(places))
        values["counts"] = self._placed(device.zeros(max(1, count), np.uint32))
        counts = np.zeros(count, np.int64)
        # Only what is written takes memory.
        ends, weights = (np.empty(graph.ends.size, np.uint32) for _ in range(2))
        for part in even_parts(np.diff(table_begins), JOINED):
            first, stop = int(part.start), int(part.stop)
            of_part = order[firsts[first] : firsts[stop]]
            device.write(values["vertices"], of_part)
            values |= {"n_vertices": np.uint32(of_part.size), "n_labels": np.uint32(stop - first)}
            values["first_label"] = np.uint32(first)
            with ExitStack() as there:
                size = 2 * int(table_begins[stop] - table_begins[first])
                values["joined"] = there.enter_context(device.zeros(max(1, size), np.uint32))
                self._kernels.join.launch(of_part.size, values)
                counts[part] = device.download_range(values["counts"], first, stop)
                begins = np.concatenate([[0], np.cumsum(counts[part])])
                values["row_places"] = there.enter_context(device.upload(begins[:-1].astype(np.uint64)))
                size, at = int(begins[-1]), int(counts[:first].sum())
                for name in ("joined_ends", "joined_weights"):
                    values[name] = there.enter_context(device.alloc(max(1, size), np.uint32))
                self._kernels.gather.launch(stop - first, values)
                for name, found in (("joined_ends", ends), ("joined_weights", weights)):
                    found[at : at + size] = device.download_range(values[name], 0, size)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        volumes = np.bincount(labels, graph.volumes, count).astype(np.int64)
        return Weighted(offsets, ends[: offsets[-1]], weights[: offsets[-1]], volumes)
