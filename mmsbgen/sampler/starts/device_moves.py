"""Moves for :mod:`mmsbgen.sampler.starts.local_moving`, found on a device by the kernel best_labels."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mmsbgen.backends import find_device, opened
from mmsbgen.base.errors import MmsbgenError
from mmsbgen.families.mmsb import MMSB
from mmsbgen.families.mmsb.starts.label_tables import NO_GAIN, table_places
from mmsbgen.kernels.build import BoundKernel, build
from mmsbgen.kernels.space import Config
from mmsbgen.sampler.starts.local_moving import Best, Mover, Weighted, in_threads

if TYPE_CHECKING:
    from mmsbgen.kernels.problem import Problem
    from mmsbgen.kernels.runtime import Runtime

__all__ = ["by_kernel", "moving_kernel", "on_device"]

log = logging.getLogger(__name__)

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
#: Weights are added up in 32 bits.
_MOST_ENDS = 2**32


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
        yield by_kernel(build(device, MMSB.kernel("best_labels"), MMSB.problem(), chosen))


def moving_kernel(runtime: Runtime, problem: Problem, what: str) -> BoundKernel | None:
    """The kernel best_labels of a run; None, with a warning on what it was for, if it does not compile."""
    try:
        return runtime.kernel("best_labels", problem)
    except MmsbgenError as error:
        log.warning("vertices move in threads when %s: %s", what, error)
        return None


def by_kernel(kernel: BoundKernel) -> Mover:
    """Finds moves by the kernel best_labels of a device that is open."""
    return partial(_moves, kernel)


@contextmanager
def _moves(kernel: BoundKernel, graph: Weighted, costs: Floats) -> Iterator[Best]:
    if int(graph.volumes.sum()) >= _MOST_ENDS:
        with in_threads(graph, costs) as best:
            yield best
        return
    device, n, slots = kernel.device, graph.volumes.size, int(kernel.config["slots"])
    degrees = np.diff(graph.offsets)
    weights = np.zeros(1, np.uint32) if graph.weights is None else graph.weights.astype(np.uint32)
    with ExitStack() as there:
        arrays: dict[str, npt.NDArray[Any]] = {
            "neighbour_offsets": graph.offsets.astype(np.uint64),
            "neighbours": graph.ends.astype(np.uint32) if graph.ends.size else np.zeros(1, np.uint32),
            "weights": weights,
            "volumes": graph.volumes.astype(np.float64),
            "costs": costs * graph.volumes,
        }
        values: dict[str, Any] = {name: there.enter_context(device.upload(array)) for name, array in arrays.items()}
        values |= {"weighted": np.uint32(graph.weights is not None), "no_gain": np.float64(NO_GAIN)}
        # Arrays that every batch writes again.
        labels_there, volumes_there, chosen, places_there, found = (
            there.enter_context(device.alloc(n, kind))
            for kind in (np.uint32, np.float64, np.uint32, np.uint64, np.uint32)
        )
        tables, in_slots = device.alloc(1, np.uint32), 2 * int(degrees.max(initial=0)) <= slots
        there.callback(lambda: tables.release())

        def best(vertices: Ints, labels: Ints, volumes: Ints) -> tuple[Ints, Ints]:
            nonlocal tables
            if not vertices.size:
                return vertices, vertices
            if not in_slots:
                places, numbers = table_places(degrees[vertices], slots)
                if numbers > tables.size:
                    tables.release()
                    tables = device.alloc(numbers, np.uint32)
                device.write(places_there, places)
            device.write(labels_there, labels.astype(np.uint32))
            device.write(volumes_there, volumes.astype(np.float64))
            device.write(chosen, vertices.astype(np.uint32))
            kernel.launch(
                vertices.size,
                values
                | {
                    "labels": labels_there,
                    "label_volumes": volumes_there,
                    "vertices": chosen,
                    "table_places": places_there,
                    "tables": tables,
                    "best": found,
                    "n_vertices": np.uint32(vertices.size),
                },
            )
            to = device.download_range(found, 0, vertices.size).astype(np.int64)
            moves = np.flatnonzero(to != labels[vertices])
            return vertices[moves], to[moves]

        yield best
