"""The graph programs of a device: compiled once a process, and what they read uploaded once a graph."""

from __future__ import annotations

import atexit
import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from mmsbgen.backends import Device, open_device
from mmsbgen.base.progress import stage
from mmsbgen.families.graph import GRAPH, SIZES, declared_kernel
from mmsbgen.families.graph.declare import Rounds
from mmsbgen.families.graph.generated import features
from mmsbgen.families.graph.inputs import GRAPH_ARRAYS, SCRATCH, graph_array
from mmsbgen.families.graph.ranks.tiles import ARRANGED, arranged_array
from mmsbgen.families.graph.row_kernels import row_length
from mmsbgen.graph.arcs import Arcs
from mmsbgen.kernels.build import BoundKernel, build, traits_of
from mmsbgen.kernels.family import KernelSpec
from mmsbgen.kernels.problem import Problem, Value
from mmsbgen.kernels.runtime import ChosenKernel, look_up, opened_runtime
from mmsbgen.kernels.space import Config

#: Arrays of an undirected graph that are equal to others.
_SAME = {"in_offsets": "offsets", "sources": "targets", "in_weights": "weights"}
#: How names of arrays of real numbers end.
_OF_REALS = ("weights", "tile_sums", "carries")


@dataclass(frozen=True)
class Running:
    """A program with its arguments on a device."""

    kernel: ChosenKernel
    count: int
    values: dict[str, Any]
    device: Device

    def launch(self) -> None:
        """Queue one call."""
        self.kernel.launch(self.count, self.values)

    def read(self, name: str) -> NDArray[Any]:
        """An argument's array, as the calls so far leave it."""
        return self.device.download(self.values[name])

    def write(self, name: str, array: NDArray[Any]) -> None:
        """Overwrite the first rows of an argument's array."""
        self.device.write(self.values[name], array)


class Programs:
    """The graph programs of one device, in the configurations of one tuning database."""

    def __init__(self, device: str | None, database: str | Path | None) -> None:
        with contextlib.ExitStack() as opened:
            self.device = opened.enter_context(open_device(device))
            self.runtime = opened.enter_context(opened_runtime(self.device, GRAPH, database))
            self.close = opened.pop_all().close
        self._lock = threading.Lock()
        self._built: dict[Any, ChosenKernel] = {}
        self._chosen: dict[tuple[str, Problem], ChosenKernel] = {}
        self._declared: dict[Any, BoundKernel] = {}
        self._placed: WeakKeyDictionary[Arcs, dict[Any, Any]] = WeakKeyDictionary()

    @property
    def real(self) -> type[np.floating[Any]]:
        """The widest type of real numbers that the device has."""
        return np.float64 if self.device.info.has_fp64 else np.float32

    def run(self, name: str, arcs: Arcs, state: dict[str, Any], *results: str) -> list[NDArray[Any]]:
        """Run a program on a graph that is not empty.

        Args:
            name: The program.
            arcs: The graph; its arrays stay on the device as long as it is in use.
            state: The other arguments by name.
            results: Names of the arguments to return.
        """
        with self._lock, stage(f"running {name} on {arcs.name}"):
            placed = self._placed.setdefault(arcs, {})
            kernel = self._kernel(name, arcs, self.real)
            values = placed.setdefault((name, "state"), {})
            for key, value in state.items():
                if not isinstance(value, np.ndarray):
                    values[key] = value
                elif key not in values:
                    values[key] = self.device.upload(value)
                elif key not in SCRATCH:
                    self.device.write(values[key], value)
            self._place(kernel, arcs, values, self.real)
            kernel.launch(arcs.n_vertices, values)
            return [self.device.download(values[result]) for result in results]

    def run_rows(
        self,
        arcs: Arcs,
        state: dict[str, Any],
        features: int,
        rule: str,
        real: Any,
        goes_on: Callable[[NDArray[Any], Callable[[], NDArray[Any]]], bool],
        name: str = "propagate",
    ) -> list[NDArray[Any]]:
        """Run rounds over rows of ``features`` numbers of type ``real``, which are on the device only meanwhile.

        Args:
            arcs: The graph; its arrays stay on the device as long as it is in use.
            state: The arguments by name, without the graph and the rows.
            features: F, the length of a row.
            rule: As the problem parameter of that name.
            real: Type of the rows and weights.
            goes_on: Gets ``settings``, which it may change, and what downloads the rows ``[N, F]``; whether more rounds
                follow.
            name: The program.

        Returns:
            The rows ``[N, F]``, and ``settings``.
        """
        length = row_length(features)  # one build serves all rows that are stored alike
        rows_of = ("sent", "row", "left", "image") if name == "solve" else ("sent", "row")
        empty = dict.fromkeys(rows_of, (arcs.n_vertices, length))
        with self.running(name, arcs, state, empty, real, features=length, rule=rule) as on:
            while True:
                on.launch()
                settings = on.read("settings")
                rows = cache(lambda: on.read("row")[:, :features])
                if not goes_on(settings, rows):
                    return [rows(), settings]
                on.write("settings", settings)

    def run_declared(self, declared: Rounds, arcs: Arcs, state: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The arrays of ``state`` after an algorithm in rounds of somebody's own, in its default configuration."""
        with self._lock, stage(f"running rounds on {arcs.name}"), contextlib.ExitStack() as held:
            spec = declared_kernel(declared)
            problem = _problem(spec, arcs, self.real)
            config = spec.default(problem, traits_of(self.device.info))
            key = (declared, *_source_key(problem, config))
            if key not in self._declared:
                self._declared[key] = build(self.device, spec, problem, config)
            kernel = self._declared[key]
            values = {name: held.enter_context(self.device.upload(array)) for name, array in state.items()}
            self._place(kernel, arcs, values, self.real)
            kernel.launch(arcs.n_vertices, values).wait()
            return {one.name: self.device.download(values[one.name]) for one in declared.state}

    @contextlib.contextmanager
    def running(
        self,
        name: str,
        arcs: Arcs,
        state: dict[str, Any],
        empty: Mapping[str, tuple[int, ...]],
        real: Any,
        **more: Value,
    ) -> Iterator[Running]:
        """A program whose arrays are on the device meanwhile, to launch it several times.

        Args:
            name: The program.
            arcs: The graph; its arrays stay on the device as long as it is in use.
            state: The other arguments by name.
            empty: Shapes of those of type ``real`` that it writes before it reads them.
            real: Type of real numbers.
            more: Other parameters of the problem.
        """
        with self._lock, stage(f"running {name} on {arcs.name}"), contextlib.ExitStack() as held:
            kernel = self._kernel(name, arcs, real, **more)
            values: dict[str, Any] = {}
            for key, shape in empty.items():
                values[key] = held.enter_context(self.device.alloc(shape, real))
            for key, value in state.items():
                array = isinstance(value, np.ndarray)
                values[key] = held.enter_context(self.device.upload(value)) if array else value
            self._place(kernel, arcs, values, real)
            yield Running(kernel, arcs.n_vertices, values, self.device)

    def _place(self, kernel: ChosenKernel | BoundKernel, arcs: Arcs, values: dict[str, Any], real: Any) -> None:
        """Add the graph's arrays that a kernel takes to its arguments, unless they are there.

        Equal ones of an undirected graph are one.
        """
        placed = self._placed.setdefault(arcs, {})
        taken = (one.name for entry in kernel.spec.entry_points(kernel.config).values() for one in entry)
        for name in dict.fromkeys(taken):
            if name not in (*GRAPH_ARRAYS, *ARRANGED) or name in values:
                continue
            array = name if arcs.directed else _SAME.get(name, name)
            key = (array, np.dtype(real).name) if array.endswith(_OF_REALS) else array
            if key not in placed:
                made = arranged_array if array in ARRANGED else graph_array
                placed[key] = self.device.upload(made(arcs, array, real))
            values[name] = placed[key]

    def _kernel(self, name: str, arcs: Arcs, real: Any, **more: Value) -> ChosenKernel:
        """The program in its best configuration; the same source serves all graphs."""
        problem = _problem(GRAPH.kernel(name), arcs, real, **more)
        if (name, problem) not in self._chosen:
            index = self.runtime.index
            assert index is not None
            found = look_up(index, self.device.info, GRAPH, name, problem)
            key = (name, *_source_key(problem, found.config))
            if key not in self._built:
                self._built[key] = self.runtime.kernel(name, problem)
            self._chosen[name, problem] = self._built[key]
        return self._chosen[name, problem]


def _problem(spec: KernelSpec, arcs: Arcs, real: Any, **more: Value) -> Problem:
    """The problem of a kernel on a graph, with real numbers of type ``real``."""
    weights = "none" if arcs.weights is None else "real"
    problem = GRAPH.problem(**features(arcs), dtype=np.dtype(real).name, weights=weights, **more)
    return problem.only(spec.parameters)


def _source_key(problem: Problem, config: Config) -> tuple[Any, ...]:
    """What the source of a kernel depends on: all but sizes."""
    return (*(value for name, value in problem.items() if name not in SIZES), *sorted(config.items()))


_OPENED: dict[tuple[str | None, str | None], Programs] = {}
_OPENING = threading.Lock()


def programs(device: str | None = None, database: str | Path | None = None) -> Programs:
    """The programs of a device, opened at the first call.

    Args:
        device: As :func:`mmsbgen.backends.open_device` takes it; the best one by default.
        database: Path or URL of the tuning database; the user's own by default.
    """
    key = (device, None if database is None else str(database))
    with _OPENING:
        if key not in _OPENED:
            _OPENED[key] = Programs(device, database)
            atexit.register(_OPENED[key].close)
        return _OPENED[key]
