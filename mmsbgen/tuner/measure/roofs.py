"""The device's roofs, as measured: the rates of copying, of rows at random places, of launches and of barriers.

A roof is the best rate of the device, so a few shapes of each kernel are tried and the fastest counts.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from mmsbgen.backends.base import Device, DeviceInfo, Event
from mmsbgen.base.errors import CompileError, InputError, LaunchError, MmsbgenError
from mmsbgen.kernels.build import BoundKernel, build, compile_side_by_side, traits_of
from mmsbgen.kernels.family import KernelSpec
from mmsbgen.kernels.host_program import Span
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.roof import RoofKind, told
from mmsbgen.kernels.space import describe
from mmsbgen.tuner.measure.roof_kernels import LARGEST_TEAM, ROOF_COPY, ROOF_GATHER, ROOFS, SMALL_ROW
from mmsbgen.tuner.measure.timing import Patience, time_launches

BUFFER_BYTES = 2 << 30
_SHORT_S = 120.0
_MOVED_PART = 4
_SEARCH = Patience(repetitions=3, enough_s=0.0, limit_s=0.3, hopeless=(math.inf, 1.3))
_FINAL = Patience(repetitions=9, enough_s=0.2)
_QUICK = Patience(repetitions=1, enough_s=0.0)
"""Of each shape on a processor, where a launch takes a tenth of a second of all cores; the best two are timed again."""
_AGAIN = Patience(repetitions=5, enough_s=0.0)
_MANY = Patience(repetitions=25, enough_s=0.0, hopeless=(math.inf,))
_LENGTHS = {"rows_in_flight", "vectors"}
"""Axes with only the largest possible value in a search on a processor."""
_PARTS = 4
"""Parts of the rows, one a launch, while the shapes are searched on a processor."""
_READ_AGAIN_BYTES = 256 << 20
_CHANGED_BYTES = {"update": (256 << 20, 512 << 20), "adds": (64 << 20, 512 << 20), "counts": (64 << 20, 512 << 20)}
"""Bytes of rows that launches change on a processor, by a sixteenth each, and on a GPU."""
_CHANGED_PARTS = 16
_MOST_ROWS = 1 << 24
_LAUNCHES, _BARRIERS = 64, 1024
_MOST_TEAMS = 1 << 15
_ROWS_PER_TEAM = 32


@dataclass(frozen=True)
class Roofs:
    """Rates in GB/s: ``copy`` counts bytes read and written, ``gather`` the bytes of rows of ``row_bytes``.

    ``shape`` is the configuration that reached the rate of gathering, if this run measured it.
    """

    copy: float
    gather: float
    row_bytes: int
    shape: str = ""
    others: Mapping[RoofKind, float] = field(default_factory=dict)
    """Rates of other kinds: of rows in GB/s read and written, of launches and barriers in 10^9 a second."""
    age_s: float | None = None
    """Seconds since an earlier run measured them; None if this run did."""

    @property
    def rates(self) -> str:
        """All rates in words."""
        found = [f"copy {self.copy:.1f} GB/s", f"random {self.row_bytes}-byte rows {self.gather:.1f} GB/s"]
        return ", ".join(found + [told(str(kind), kind.row_bytes, rate) for kind, rate in self.others.items()])

    def seconds_of(self, rounds: Sequence[int]) -> float:
        """The least seconds between so many launches, and of barriers in them; those without a rate take none."""
        gaps = max(0, rounds[0] - 1)
        rates = self.others.get(RoofKind("launch")), self.others.get(RoofKind("barrier"))
        rated = zip((gaps, rounds[1]), rates, strict=True)
        return sum(count / rate / 1e9 for count, rate in rated if rate)


@dataclass(frozen=True)
class CacheRoof:
    """The best rate in GB/s of reading ``working_set`` bytes again and again, out of the cache that holds them.

    ``limit`` is as far above the best rate as that is above the median of all shapes' repetitions: another shape, or a
    quieter moment, may be faster than what was measured, but hardly by more than the measurements differ.
    """

    working_set: int
    best: float
    limit: float


def measure_roofs(
    device: Device, row_bytes: int, buffer_bytes: int = BUFFER_BYTES, others: Sequence[RoofKind] = ()
) -> Roofs:
    """Measure how fast ``device`` copies, how fast it gathers random rows of ``row_bytes``, and ``others``.

    Rows are gathered from ``buffer_bytes``, which should be far larger than any cache, or from a third of the device's
    memory if that is less.  Of ``others``, those that the device cannot do are left out.  Raises :class:`InputError`
    for rows that are not a whole number of floats or do not fit.
    """
    if row_bytes < 4 or row_bytes % 4:
        raise InputError(f"rows of {row_bytes} bytes: a gather roof needs a multiple of 4")
    most = _most_bytes(device, buffer_bytes)
    copy = _copy_roof(device, most)
    gather, shape = _row_roof(device, ROOF_GATHER, row_bytes, most, most // _MOVED_PART)
    rates = {}
    for kind in others:
        # Some devices have no such barriers, and some without sub-groups no shape for small rows.
        with contextlib.suppress(InputError if kind.row_bytes else LaunchError):
            rates[kind] = _other_roof(device, kind)
    return Roofs(copy, gather, row_bytes, shape, rates)


def within_budget(buffer_bytes: int, info: DeviceInfo, seconds: float | None) -> int:
    """The bytes of the buffer for a tune of so many seconds: 2 GiB take a processor 3 s, 512 MiB 1.5 s."""
    short = info.kind == "cpu" and seconds is not None and seconds < _SHORT_S and buffer_bytes == BUFFER_BYTES
    return buffer_bytes // 4 if short else buffer_bytes


def measure_cache_roof(device: Device, working_set: int) -> CacheRoof:
    """Measure how fast random rows are read again and again out of ``working_set`` bytes."""
    row = 1 << min(12, max(6, (working_set // 4).bit_length() - 1))
    n_rows, teams = max(1, working_set // row), min(_MOST_TEAMS, _READ_AGAIN_BYTES // row // _ROWS_PER_TEAM)
    problem = ROOFS.problem(row_bytes=row, n_rows=n_rows, n_teams=teams, rows_per_team=_ROWS_PER_TEAM)
    ids = np.random.default_rng(0).integers(0, n_rows, teams * _ROWS_PER_TEAM).astype(np.uint32)
    with (
        device.zeros((n_rows, row // 4), np.float32) as data,
        device.upload(ids) as placed,
        device.zeros(teams * LARGEST_TEAM, np.float32) as sums,
    ):
        values = {"data": data, "ids": placed, "sums": sums, "n_teams": np.uint32(teams)}
        launch = partial(_launched, count=teams, turns=itertools.repeat(values))
        times = [seconds for found, _ in _shapes(device, ROOF_GATHER, problem, launch, _SEARCH) for seconds in found]
    best, median = (ROOF_GATHER.traffic(problem) / seconds / 1e9 for seconds in (min(times), statistics.median(times)))
    return CacheRoof(working_set, best, best * best / median)


def _most_bytes(device: Device, wanted: int) -> int:
    info = device.info
    return min(wanted, info.global_memory // 3 or wanted, info.max_allocation or wanted)


def _copy_roof(device: Device, most: int) -> float:
    count = max(16, most // (2 * _MOVED_PART) // 64 * 16)
    problem = ROOFS.problem(n_elements=count)
    with device.zeros(count, np.float32) as source, device.zeros(count, np.float32) as target:
        values = {"source": source, "target": target, "n_elements": np.uint64(count)}
        launch = partial(_launched, count=count, turns=itertools.repeat(values))
        seconds, _ = _fastest(device, ROOF_COPY, problem, launch, launch)

        def driver(turn: int) -> Event:
            begin = device.mark()
            device.copy(target, source)
            return Span(begin, device.mark())

        patience = _AGAIN if device.info.kind == "cpu" else _FINAL
        by_driver = statistics.median(time_launches(device, driver, patience).times)
    return ROOF_COPY.traffic(problem) / min(seconds, by_driver) / 1e9


def _other_roof(device: Device, kind: RoofKind) -> float:
    """The rate of one kind in 10^9 a second: bytes, launches or barriers."""
    spec = ROOFS.kernel(f"roof_{kind.kind}")
    if kind.row_bytes is not None:
        moved = min(_CHANGED_BYTES[kind.kind][device.info.kind == "gpu"], _MOST_ROWS * kind.row_bytes)
        return _row_roof(device, spec, kind.row_bytes, _most_bytes(device, kind.working_set), moved, best=True)[0]
    problem = ROOFS.problem(n_rounds=_LAUNCHES if kind.kind == "launch" else _BARRIERS)
    count = problem.integer("n_rounds")
    with device.zeros(1, np.uint32) as arrived:
        values: dict[str, Any] = {"arrived": arrived, "n_rounds": np.uint32(count)}

        def launch(bound: BoundKernel, turn: int) -> Event:
            device.write(arrived, np.zeros(1, np.uint32))  # as barriers count arrivals
            return bound.launch(count, values)

        found = _shapes(device, spec, problem, launch, _MANY, batched=False)
    return count / min(min(times) for times, _ in found) / 1e9


def _row_roof(
    device: Device, spec: KernelSpec, row_bytes: int, most: int, moved: int, *, best: bool = False
) -> tuple[float, str]:
    """GB/s of rows of ``most`` bytes, and the shape; a launch takes ``moved`` bytes of rows.

    The rate is the median one of the fastest shape, or the ``best``, of parts on a processor.
    """
    n_rows = max(1, min(most // row_bytes, 2**32 - 1))
    wanted = max(1, min(moved // row_bytes, 2**31))
    teams_wanted = 64 * max(1, device.info.compute_units)
    gpu, n_parts = device.info.kind == "gpu", _CHANGED_PARTS if best else _PARTS
    lanes = LARGEST_TEAM if row_bytes >= SMALL_ROW else SMALL_ROW // 4
    # The ids that a work-item of a GPU reads alone lie in one sector.
    sizes = (8, 4, 2, 1) if gpu and row_bytes < SMALL_ROW else (32, 16, 8, 4, 2, 1)
    per_team = next(size for size in sizes if size == 1 or wanted // size >= teams_wanted)
    teams = max(1, wanted // per_team)
    problem = ROOFS.problem(row_bytes=row_bytes, n_rows=n_rows, n_teams=teams, rows_per_team=per_team)
    ids = np.random.default_rng(0).integers(0, n_rows, teams * per_team).astype(np.uint32)
    with (
        device.zeros((n_rows, row_bytes // 4), np.float32) as data,
        device.upload(ids) as placed,
        device.zeros(1 if best else teams * (lanes if gpu else 1), np.float32) as sums,
    ):
        values = {"data": data, "ids": placed, "sums": sums, "n_teams": np.uint32(teams)}
        part = whole = partial(_launched, count=teams, turns=itertools.repeat(values))
        with contextlib.ExitStack() as held:
            if not gpu and teams >= n_parts:
                # Each launch reads other rows than the one before, which would be in a cache.
                each = teams // n_parts
                several = ids[: n_parts * each * per_team].reshape(n_parts, -1)
                parts = [held.enter_context(device.upload(rows)) for rows in several]
                turns = [values | {"ids": rows, "n_teams": np.uint32(each)} for rows in parts]
                part = partial(_launched, count=each, turns=itertools.cycle(turns))
                teams = each * n_parts if best else teams
            if best:
                seconds, shape = _fastest(device, spec, problem, part, part, min)
                seconds *= 1 if part is whole else n_parts
            else:
                seconds, shape = _fastest(device, spec, problem, part, whole)
    return spec.traffic(problem.replace(n_teams=teams)) / seconds / 1e9, shape


_Launched = Callable[[BoundKernel, int], Event]
"""Launches a shape in a turn."""


def _launched(bound: BoundKernel, turn: int, *, count: int, turns: Iterator[dict[str, Any]]) -> Event:
    return bound.launch(count, next(turns))


def _fastest(
    device: Device,
    spec: KernelSpec,
    problem: Problem,
    search: _Launched,
    launch: _Launched,
    of: Callable[[Sequence[float]], float] = statistics.median,
) -> tuple[float, str]:
    """Seconds of the fastest shape, and that shape; ``search`` may do a part of what ``launch`` does."""
    cpu = device.info.kind == "cpu"
    found = _shapes(device, spec, problem, search, _QUICK if cpu else _SEARCH)
    found.sort(key=lambda shape: of(shape[0]))
    if not cpu:
        times, best = found[0]
        seconds = min(of(times), of(_times(device, best, launch, _FINAL, None)))
        return seconds, describe(best.config)
    return min((of(_times(device, one, launch, _AGAIN, None)), describe(one.config)) for _, one in found[:2])


def _shapes(
    device: Device, spec: KernelSpec, problem: Problem, launch: _Launched, patience: Patience, *, batched: bool = True
) -> list[tuple[tuple[float, ...], BoundKernel]]:
    """The repetitions in seconds of every shape; those that do not compile or run here are skipped."""
    found: list[tuple[tuple[float, ...], BoundKernel]] = []
    best = math.inf
    failure: MmsbgenError | None = None
    configs = spec.space.configs(problem, traits_of(device.info))
    if patience is _QUICK:
        for name in _LENGTHS & configs[0].keys():
            most = max(int(config[name]) for config in configs)
            configs = [config for config in configs if config[name] == most]
    compile_side_by_side(device, [(spec, problem, config) for config in configs])
    for config in configs:
        try:
            bound = build(device, spec, problem, config)
            times = _times(device, bound, launch, patience, best if found else None, batched=batched)
        except (CompileError, LaunchError) as error:
            failure = error
            continue
        found.append((times, bound))
        best = min(best, statistics.median(times))
    if not found:
        raise failure or InputError(f"{spec.name}: no shape is possible for {describe(problem)} on {device.info.name}")
    return found


def _times(
    device: Device,
    bound: BoundKernel,
    launch: _Launched,
    patience: Patience,
    best: float | None,
    *,
    batched: bool = True,
) -> tuple[float, ...]:
    return time_launches(device, partial(launch, bound), patience, best, batched=batched).times
