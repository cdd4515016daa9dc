"""The configurations of the database against the built-in defaults, in whole sweeps of a graph."""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from mmsbgen.backends import open_device
from mmsbgen.base.progress import stage
from mmsbgen.db.selection.index import Index
from mmsbgen.db.store.tuning_store import Store
from mmsbgen.families.mmsb import MMSB
from mmsbgen.graph import Split
from mmsbgen.kernels.runtime import Runtime
from mmsbgen.sampler.chain.plan import Plan
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.starts.leiden import propagated
from mmsbgen.sampler.starts.start_methods import Start, by_label, communities, forget, of_sets, training_graph
from mmsbgen.tuner.measure.device_lock import having_device

__all__ = ["ChainGain", "chain_gain"]

_TURNS = 7
_FIRST = 20
"""Sweeps before the turns, if there is time: the rows of a start have other sizes than those of most of a run."""
_FIRST_SHARE = 0.4
"""Largest share of the time for these."""
_LEIDEN_LINKS = 2_000_000
"""Links up to which Leiden's algorithm takes a few seconds."""
_TURN_S = 0.25
"""Seconds of one turn of a chain, if there is time for it."""


@dataclass(frozen=True)
class ChainGain:
    """Seconds a sweep in each turn, by the defaults and as tuned; for stars and pairs a sweep is one iteration."""

    default: tuple[float, ...]
    tuned: tuple[float, ...]

    @property
    def ratios(self) -> list[float]:
        """How many times faster the tuned chain was in each turn."""
        return [a / b for a, b in zip(self.default, self.tuned, strict=True)]

    @property
    def slower(self) -> bool:
        """Whether the tuned chain lost every turn."""
        return max(self.ratios) < 1.0

    def as_dict(self) -> dict[str, Any]:
        """The medians of both and of the ratios, and the turns, for JSON."""
        default_s, tuned_s = statistics.median(self.default), statistics.median(self.tuned)
        return {
            "default_s": default_s,
            "tuned_s": tuned_s,
            "ratio": statistics.median(self.ratios),
            "ratios": self.ratios,
            "defaults_kept": self.slower,
        }


def chain_gain(device_spec: str, parts: Split, options: Options, store: Store, seconds: float) -> ChainGain:
    """Time two chains in turns, A B A B, for about ``seconds``; both start at the same communities.

    Raises :class:`mmsbgen.base.errors.DeviceMemoryError` if they do not fit on the device together, and
    :class:`mmsbgen.base.errors.LaunchError` if a configuration fails.
    """
    end = time.monotonic() + seconds
    with ExitStack() as stack:
        told = stack.enter_context(stage("comparing sweeps as tuned with sweeps by the defaults"))
        device = stack.enter_context(open_device(device_spec))
        device.profiling = False
        samplers = []
        for index in (None, Index(store)):
            plan = Plan(parts, options, device.info)
            plan.require(device.allocated)
            samplers.append(Sampler(parts, options, Runtime(device, MMSB, index), False, plan))
            stack.callback(samplers[-1].close)
        start = _start(parts, options)
        stack.enter_context(having_device(device.hardware, lambda: told.tell(0)))
        ready = end - (1 - _FIRST_SHARE) * seconds
        for sampler in samplers:
            sampler.initialise(start)
            _sweep_s(sampler, 1)  # processors compile at a kernel's first launch
        for _ in range(_FIRST):
            if time.monotonic() < ready:
                for sampler in samplers:
                    _sweep_s(sampler, 1)
        longest = max(_sweep_s(sampler, 1) for sampler in samplers)
        turn_s = min(_TURN_S, max(0.0, end - time.monotonic()) / (2 * _TURNS))
        count = max(1, round(turn_s / longest))
        found: tuple[list[float], list[float]] = ([], [])
        for turn in range(_TURNS):
            if turn and time.monotonic() + 2 * count * longest > end:
                break
            for place in (0, 1) if turn % 2 == 0 else (1, 0):
                found[place].append(_sweep_s(samplers[place], count))
    return ChainGain(tuple(found[0]), tuple(found[1]))


def _start(parts: Split, options: Options) -> Start:
    """Leiden's communities as in a run; of many links those of label propagation, which take seconds."""
    k, seed = options.n_communities, options.seed
    graph = training_graph(parts)
    if parts.n_training_links <= _LEIDEN_LINKS:
        start = communities(parts, k, seed)
    else:
        start = of_sets("communities", by_label(propagated(graph, seed))[:k])
    forget(parts)
    return start


def _sweep_s(sampler: Sampler, count: int) -> float:
    """Seconds a sweep, over ``count`` sweeps."""
    sampler.device.synchronize()
    begin = time.perf_counter()
    sampler.iterate(count * sampler.per_sweep)
    sampler.device.synchronize()
    return (time.perf_counter() - begin) / count
