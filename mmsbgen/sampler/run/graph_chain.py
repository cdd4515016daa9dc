"""Short chains of a graph, for tuning: the state that kernels are timed on, and sweeps as tuned and by the defaults."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mmsbgen.backends import Device, open_device
from mmsbgen.backends.device_lock import having_device
from mmsbgen.base.progress import stage
from mmsbgen.db.selection.index import Index
from mmsbgen.db.store.tuning_store import Store
from mmsbgen.families.mmsb import MMSB
from mmsbgen.graph import Split
from mmsbgen.kernels.build import BoundKernel
from mmsbgen.kernels.runtime import Runtime
from mmsbgen.sampler.chain.plan import Plan
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.run.refine import mover_of
from mmsbgen.sampler.starts.start_methods import Start, communities, forget

_TURNS, _FEWEST = 7, 5
_FIRST = 20
"""Sweeps before the turns, if there is time: the rows of a start have other sizes than those of most of a run."""
_FIRST_SHARE = 0.4
"""Largest share of the time for these."""
_TURN_S = 0.25
"""Seconds of one turn of a chain, if there is time for it."""


@dataclass(frozen=True)
class ChainGain:
    """Seconds a sweep in each turn, by the defaults and as tuned; for stars a sweep is one iteration."""

    default: tuple[float, ...]
    tuned: tuple[float, ...]

    @property
    def ratios(self) -> list[float]:
        """How many times faster the tuned chain was in each turn."""
        return [a / b for a, b in zip(self.default, self.tuned, strict=True)]

    @property
    def ratio(self) -> float:
        """The median by the defaults over that as tuned, which lies between the smallest and the largest ratio."""
        return statistics.median(self.default) / statistics.median(self.tuned)

    @property
    def slower(self) -> bool:
        """Whether the tuned chain lost every turn, of so many that chance does it in one of 32 cases at most."""
        return len(self.ratios) >= _FEWEST and max(self.ratios) < 1.0

    def as_dict(self) -> dict[str, Any]:
        """The medians of both and their ratio, and the ratios of the turns, for JSON."""
        return {
            "default_s": statistics.median(self.default),
            "tuned_s": statistics.median(self.tuned),
            "ratio": self.ratio,
            "ratios": self.ratios,
            "defaults_kept": self.slower,
        }


class GraphChain:
    """Short chains of a graph: kernels are tuned on their state, and compared with the defaults in their sweeps."""

    def __init__(self, parts: Split, options: Options) -> None:
        self.parts = parts
        self.options = options
        self._start: Start | None = None

    def start(self, sampler: Sampler) -> Start:
        """The communities that a run starts at: of others, rows have fewer candidates or more."""
        if self._start is None:
            mover = mover_of(sampler, "starts are sought")
            self._start = communities(self.parts, self.options.n_communities, self.options.seed, mover)
            forget(self.parts)
        return self._start

    def record(self, device_spec: str | None, file: Path, seconds: float) -> bool:
        """Write the state after some sweeps by the defaults to ``file``, in the form that :data:`MMSB` reads.

        Returns whether there is one: times over dense rows do not depend on what is in them.  Raises the errors of
        :meth:`gain`.
        """
        graph = self.parts.graph
        if not self.options.sized_for(graph.n_vertices, graph.n_links).sparse:
            return False
        with ExitStack() as stack:
            told = stack.enter_context(stage("making the sparse rows that kernels are tuned on"))
            device = stack.enter_context(open_device(device_spec))
            sampler = self._sampler(device, None, stack)
            stack.enter_context(having_device(device.hardware, lambda: told.tell(0)))
            self.start(sampler)
            self._first_sweeps(sampler, time.monotonic() + seconds)
            adjacency, held = self.parts.training_adjacency, sampler.state.buffers | sampler.values
            communities, values = (device.download(held[name]) for name in ("communities", "values"))
            # The kernel is measured on all vertices: those that a run leaves out get one entry.
            k, left_out = sampler.shape.k, sampler.left_out
            communities[left_out, 0], values[left_out, 0] = left_out % k, 1.0 - (k - 1) * sampler.shape.floor
            np.savez(
                file,
                neighbour_offsets=adjacency.offsets,
                neighbours=adjacency.neighbours,
                communities=communities,
                values=values,
                row_sums=device.download(held["row_sums"]),
                beta=device.download(held["beta"]),
            )
        return True

    def gain(self, device_spec: str, store: Store, seconds: float) -> ChainGain:
        """Time sweeps of one chain by the kernels of both in turns, A B A B, for about ``seconds``.

        Of two chains with the same kernels, one may be a quarter faster by where its arrays lie in memory.

        Raises :class:`mmsbgen.base.errors.DeviceMemoryError` if the chain does not fit on the device, and
        :class:`mmsbgen.base.errors.LaunchError` if a configuration fails.
        """
        with ExitStack() as stack:
            told = stack.enter_context(stage("comparing sweeps as tuned with sweeps by the defaults"))
            device = stack.enter_context(open_device(device_spec))
            with ExitStack() as released:
                tuned = self._sampler(device, Index(store), released).kernels
            sampler = self._sampler(device, None, stack)
            kernels = dict(sampler.kernels), tuned
            stack.enter_context(having_device(device.hardware, lambda: told.tell(0)))
            self.start(sampler)
            end = time.monotonic() + seconds
            self._first_sweeps(sampler, end - (1 - _FIRST_SHARE) * seconds, *kernels)
            longest = max(_sweep_s(sampler, 1, each) for each in kernels)
            turn_s = min(_TURN_S, max(0.0, end - time.monotonic()) / (2 * _TURNS))
            count = max(1, round(turn_s / longest))
            found: tuple[list[float], list[float]] = ([], [])
            for turn in range(_TURNS):
                if turn and time.monotonic() + 2 * count * longest > end:
                    break
                for place in (0, 1) if turn % 2 == 0 else (1, 0):
                    found[place].append(_sweep_s(sampler, count, kernels[place]))
        return ChainGain(tuple(found[0]), tuple(found[1]))

    def _sampler(self, device: Device, index: Index | None, stack: ExitStack) -> Sampler:
        device.profiling = False
        plan = Plan(self.parts, self.options, device.info)
        plan.require(device.allocated)
        sampler = Sampler(self.parts, self.options, Runtime(device, MMSB, index), False, plan)
        stack.callback(sampler.close)
        return sampler

    def _first_sweeps(self, sampler: Sampler, end: float, *kernels: dict[str, BoundKernel]) -> None:
        """Start a chain and make its first sweeps by all ``kernels``, which processors compile in the first one."""
        sampler.initialise(self.start(sampler))
        for each in kernels or (sampler.kernels,):
            _sweep_s(sampler, 1, each)
        for _ in range(_FIRST):
            if time.monotonic() < end:
                _sweep_s(sampler, 1)


def _sweep_s(sampler: Sampler, count: int, kernels: Mapping[str, BoundKernel] | None = None) -> float:
    """Seconds a sweep, over ``count`` sweeps, by ``kernels`` from now on."""
    if kernels is not None:
        every = dict(kernels)
        sampler.kernels.clear()  # one may have kernels that the other does without
        sampler.kernels.update(every)
    sampler.device.synchronize()
    begin = time.perf_counter()
    sampler.iterate(count * sampler.per_sweep)
    sampler.device.synchronize()
    return (time.perf_counter() - begin) / count
