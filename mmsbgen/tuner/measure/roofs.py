"""The device's memory roofs, as measured: the rates of copying, and of gathering random rows.

A roof is the best rate of the device, so a few shapes of each kernel are tried and the fastest counts.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from mmsbgen.backends.base import Device, DeviceInfo, Event
from mmsbgen.base.errors import CompileError, InputError, LaunchError, MmsbgenError
from mmsbgen.kernels.build import BoundKernel, build, compile_side_by_side, traits_of
from mmsbgen.kernels.dialect import dialect
from mmsbgen.kernels.family import Argument, Array, KernelFamily, KernelSpec, Launch, Workload
from mmsbgen.kernels.host_program import Span
from mmsbgen.kernels.problem import Parameter, Problem
from mmsbgen.kernels.space import Axis, Config, Constraint, Space, Traits, describe
from mmsbgen.tuner.measure.timing import Patience, time_launches

BUFFER_BYTES = 2 << 30
_SHORT_S = 120.0
_MOVED_PART = 4
_LARGEST_TEAM = 256
_SEARCH = Patience(repetitions=3, enough_s=0.0, limit_s=0.3, hopeless=(math.inf, 1.3))
_FINAL = Patience(repetitions=9, enough_s=0.2)
_QUICK = Patience(repetitions=1, enough_s=0.0)
"""Of each shape on a processor, where a launch takes a tenth of a second of all cores; the best two are timed again."""
_AGAIN = Patience(repetitions=5, enough_s=0.0)
_LENGTHS = {"rows_in_flight": 4, "vectors": 4}
"""Values of axes, or the largest possible ones, below which a search on a processor leaves shapes out."""
_PARTS = 4
"""Parts of the rows, one a launch, while the shapes are searched on a processor."""
_READ_AGAIN_BYTES = 256 << 20
_MOST_TEAMS = 1 << 15
_ROWS_PER_TEAM = 32


@dataclass(frozen=True)
class Roofs:
    """Rates in GB/s: ``copy`` counts bytes read and written, ``gather`` the bytes of rows of ``row_bytes``.

    ``shapes`` has the configuration that reached each rate; a copy by the driver has the shape "driver".
    """

    copy: float
    gather: float
    row_bytes: int
    shapes: Mapping[str, str] = field(default_factory=dict)
    age_s: float | None = None
    """Seconds since an earlier run measured them; None if this run did."""


@dataclass(frozen=True)
class CacheRoof:
    """The best rate in GB/s of reading ``working_set`` bytes again and again, out of the cache that holds them.

    ``limit`` is as far above the best rate as that is above the median of all shapes' repetitions: another shape, or a
    quieter moment, may be faster than what was measured, but hardly by more than the measurements differ.
    """

    working_set: int
    best: float
    limit: float


PARAMETERS = (
    Parameter("row_bytes", 4096, "bytes of a row", minimum=4),
    Parameter("n_rows", 1 << 19, "rows of the buffer", minimum=1, maximum=2**32 - 1),
    Parameter("n_teams", 4096, "teams that gather", minimum=1, maximum=2**32 - 1),
    Parameter("rows_per_team", 32, "rows that a team gathers", minimum=1, maximum=1024),
    Parameter("n_elements", 1 << 26, "numbers to copy, a multiple of 16", minimum=16, maximum=2**40),
)

VECTOR_WIDTH = Axis("vector_width", (1, 2, 4, 8, 16), "elements of a vector load")
TEAM = Axis("team", ("item", "subgroup", "block"), "who reads a row")
GATHER_BLOCK = Axis("block_size", (1, 16, 64, 128, 256), "work-items of a block")
COPY_BLOCK = Axis("block_size", (256, 1024), "work-items of a block")
ROWS = Axis("rows_in_flight", (1, 2, 4, 8), "rows read side by side")
VECTORS = Axis("vectors", (1, 4), "vectors that a work-item copies")


def _shape(config: Config, problem: Problem, traits: Traits) -> str | None:
    width, cpu = int(config["vector_width"]), traits.kind == "cpu"
    if width > dialect(traits.dialect).max_vector_width or (width > 4 and not cpu):
        return "too wide a vector for the device"
    if width < (8 if cpu else 2) and problem.integer("row_bytes") % 64 == 0:
        return "narrow vectors do not reach the roof"
    if int(config["block_size"]) > traits.max_block_size:
        return "too large a block for the device"
    return None


def _row(config: Config, problem: Problem, traits: Traits) -> str | None:
    block, team = int(config["block_size"]), config["team"]
    if problem.integer("row_bytes") % (4 * int(config["vector_width"])):
        return "a row is not a whole number of vectors"
    if problem.integer("rows_per_team") % int(config["rows_in_flight"]):
        return "a team's rows are not a whole number of turns"
    if config["rows_in_flight"] == 1 < problem.integer("rows_per_team"):
        return "rows read one after the other do not reach the roof"
    if (team == "item") != (traits.kind == "cpu"):
        return "a row is read by one work-item on CPUs and by a team on GPUs"
    if team == "item" and block > 16:
        return "a few work-items keep a core busy"
    if team == "subgroup" and (not traits.sub_group_size or block % traits.sub_group_size):
        return "not a whole number of sub-groups"
    if team == "subgroup" and block == traits.sub_group_size:
        return "the same as a block of that size"
    return "too few work-items for a row" if team == "block" and block < 64 else None


def _team_size(config: Config, traits: Traits) -> int:
    team = config["team"]
    return 1 if team == "item" else traits.sub_group_size if team == "subgroup" else int(config["block_size"])


def _gather_variables(problem: Problem, config: Config, traits: Traits) -> dict[str, Any]:
    size, row = _team_size(config, traits), problem.integer("row_bytes") // 4
    width = int(config["vector_width"])
    return {
        "W": width,
        "T": size,
        "teams": int(config["block_size"]) // size,
        "rows": config["rows_in_flight"],
        "rows_per_team": problem["rows_per_team"],
        "LD": row,
        "row_vectors": row // width,
    }


def _gather_launch(problem: Problem, config: Config, count: int, traits: Traits) -> Launch:
    block = int(config["block_size"])
    return Launch(-(-count // (block // _team_size(config, traits))), block)


def _copy_launch(problem: Problem, config: Config, count: int, traits: Traits) -> Launch:
    block = int(config["block_size"])
    return Launch(-(-count // (block * int(config["vectors"]) * int(config["vector_width"]))), block)


GATHER_SPACE = Space((TEAM, VECTOR_WIDTH, GATHER_BLOCK, ROWS), (Constraint("shape", _shape), Constraint("row", _row)))
COPY_SPACE = Space((VECTOR_WIDTH, COPY_BLOCK, VECTORS), (Constraint("shape", _shape),))


def _gather_workload(problem: Problem, seed: int) -> Workload:
    """Small whole numbers, so that sums are exact in any order."""
    rng = np.random.default_rng(seed)
    n, teams, per_team = (problem.integer(name) for name in ("n_rows", "n_teams", "rows_per_team"))
    data = rng.integers(0, 16, (n, problem.integer("row_bytes") // 4)).astype(np.float32)
    ids = rng.integers(0, n, teams * per_team).astype(np.uint32)

    def verify(got: Mapping[str, Array], config: Config) -> str | None:
        right, sum_ = float(data[ids].sum(dtype=np.float64)), float(got["sums"].sum(dtype=np.float64))
        return None if right == sum_ else f"the rows add up to {sum_} instead of {right}"

    sums = np.zeros(teams * _LARGEST_TEAM, np.float32)
    return Workload({"data": data, "ids": ids, "sums": sums, "n_teams": np.uint32(teams)}, teams, verify)


def _copy_workload(problem: Problem, seed: int) -> Workload:
    count = problem.integer("n_elements")
    source = np.random.default_rng(seed).random(count, np.float32)

    def verify(got: Mapping[str, Array], config: Config) -> str | None:
        return None if np.array_equal(got["target"], source) else "the copy differs"

    return Workload({"source": source, "target": np.zeros_like(source), "n_elements": np.uint64(count)}, count, verify)


def _small(problem: Problem) -> Problem:
    return problem.replace(n_rows=61, n_teams=7, n_elements=4176)


ROOF_GATHER = KernelSpec(
    name="roof_gather",
    template="common/roofs/roof_gather.jinja",
    doc="read rows at random places",
    arguments=(
        Argument("data", "real", "in", "[n_rows, row_bytes / 4]"),
        Argument("ids", "u32", "in", "[n_teams * rows_per_team] rows to read"),
        Argument("sums", "real", "out", "[n_teams, team] what each lane read, added up"),
        Argument("n_teams", "u32", "scalar", ""),
    ),
    parameters=("row_bytes", "n_rows", "n_teams", "rows_per_team"),
    space=GATHER_SPACE,
    default=lambda problem, traits: GATHER_SPACE.configs(problem, traits)[0],
    variables=_gather_variables,
    launch=_gather_launch,
    traffic=lambda problem: (
        problem.integer("n_teams") * problem.integer("rows_per_team") * problem.integer("row_bytes")
    ),
    workload=_gather_workload,
    check_problem=_small,
)

ROOF_COPY = KernelSpec(
    name="roof_copy",
    template="common/roofs/roof_copy.jinja",
    doc="copy one array to another",
    arguments=(
        Argument("source", "real", "in", "[n_elements]"),
        Argument("target", "real", "out", "[n_elements]"),
        Argument("n_elements", "u64", "scalar", ""),
    ),
    parameters=("n_elements",),
    space=COPY_SPACE,
    default=lambda problem, traits: COPY_SPACE.configs(problem, traits)[0],
    variables=lambda problem, config, traits: {"W": config["vector_width"], "vectors": config["vectors"]},
    launch=_copy_launch,
    traffic=lambda problem: 8 * problem.integer("n_elements"),
    workload=_copy_workload,
    check_problem=_small,
)

ROOFS = KernelFamily(
    name="roofs",
    doc="what a device's memory can do",
    parameters=PARAMETERS,
    kernels={spec.name: spec for spec in (ROOF_COPY, ROOF_GATHER)},
    row_bytes=lambda problem: problem.integer("row_bytes"),
)


def measure_roofs(device: Device, row_bytes: int, buffer_bytes: int = BUFFER_BYTES) -> Roofs:
    """Measure how fast ``device`` copies, and how fast it gathers random rows of ``row_bytes``.

    Rows are gathered from ``buffer_bytes``, which should be far larger than any cache, or from a third of the device's
    memory if that is less.  Raises :class:`InputError` for rows that are not a whole number of floats or do not fit.
    """
    if row_bytes < 4 or row_bytes % 4:
        raise InputError(f"rows of {row_bytes} bytes: a gather roof needs a multiple of 4")
    copy, copy_shape = _copy_roof(device, _most_bytes(device, buffer_bytes))
    gather, gather_shape = _gather_roof(device, row_bytes, _most_bytes(device, buffer_bytes))
    return Roofs(copy, gather, row_bytes, {"copy": copy_shape, "gather": gather_shape})


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
        device.zeros(teams * _LARGEST_TEAM, np.float32) as sums,
    ):
        values = {"data": data, "ids": placed, "sums": sums, "n_teams": np.uint32(teams)}
        launch = partial(_launched, count=teams, turns=[values])
        times = [seconds for found, _ in _shapes(device, ROOF_GATHER, problem, launch, _SEARCH) for seconds in found]
    best, median = (ROOF_GATHER.traffic(problem) / seconds / 1e9 for seconds in (min(times), statistics.median(times)))
    return CacheRoof(working_set, best, best * best / median)


def _most_bytes(device: Device, wanted: int) -> int:
    info = device.info
    return min(wanted, info.global_memory // 3 or wanted, info.max_allocation or wanted)


def _copy_roof(device: Device, most: int) -> tuple[float, str]:
    count = max(16, most // (2 * _MOVED_PART) // 64 * 16)
    problem = ROOFS.problem(n_elements=count)
    with device.zeros(count, np.float32) as source, device.zeros(count, np.float32) as target:
        values = {"source": source, "target": target, "n_elements": np.uint64(count)}
        launch = partial(_launched, count=count, turns=[values])
        seconds, shape = _fastest(device, ROOF_COPY, problem, launch, launch)

        def driver(turn: int) -> Event:
            begin = device.mark()
            device.copy(target, source)
            return Span(begin, device.mark())

        patience = _AGAIN if device.info.kind == "cpu" else _FINAL
        by_driver = statistics.median(time_launches(device, driver, patience).times)
    moved = ROOF_COPY.traffic(problem)
    return (moved / by_driver / 1e9, "driver") if by_driver < seconds else (moved / seconds / 1e9, shape)


def _gather_roof(device: Device, row_bytes: int, most: int) -> tuple[float, str]:
    n_rows = max(1, min(most // row_bytes, 2**32 - 1))
    wanted = max(1, min(most // _MOVED_PART // row_bytes, 2**31))
    teams_wanted = 64 * max(1, device.info.compute_units)
    per_team = next(size for size in (32, 16, 8, 4, 2, 1) if size == 1 or wanted // size >= teams_wanted)
    teams = max(1, wanted // per_team)
    problem = ROOFS.problem(row_bytes=row_bytes, n_rows=n_rows, n_teams=teams, rows_per_team=per_team)
    ids = np.random.default_rng(0).integers(0, n_rows, teams * per_team).astype(np.uint32)
    with (
        device.zeros((n_rows, row_bytes // 4), np.float32) as data,
        device.upload(ids) as placed,
        device.zeros(teams * _LARGEST_TEAM if device.info.kind == "gpu" else teams, np.float32) as sums,
    ):
        values = {"data": data, "ids": placed, "sums": sums, "n_teams": np.uint32(teams)}
        part = whole = partial(_launched, count=teams, turns=[values])
        with contextlib.ExitStack() as held:
            if device.info.kind == "cpu" and teams >= _PARTS:
                # Each launch reads other rows than the one before, which would be in a cache.
                each = teams // _PARTS
                several = ids[: _PARTS * each * per_team].reshape(_PARTS, -1)
                parts = [held.enter_context(device.upload(rows)) for rows in several]
                turns = [values | {"ids": rows, "n_teams": np.uint32(each)} for rows in parts]
                part = partial(_launched, count=each, turns=turns)
            seconds, shape = _fastest(device, ROOF_GATHER, problem, part, whole)
    return ROOF_GATHER.traffic(problem) / seconds / 1e9, shape


_Launched = Callable[[BoundKernel, int], Event]
"""Launches a shape with the inputs of a turn."""


def _launched(bound: BoundKernel, turn: int, *, count: int, turns: list[dict[str, Any]]) -> Event:
    return bound.launch(count, turns[turn % len(turns)])


def _fastest(
    device: Device, spec: KernelSpec, problem: Problem, search: _Launched, launch: _Launched
) -> tuple[float, str]:
    """Seconds of the fastest shape, and that shape; ``search`` may do a part of what ``launch`` does."""
    cpu = device.info.kind == "cpu"
    found = _shapes(device, spec, problem, search, _QUICK if cpu else _SEARCH)
    found.sort(key=lambda shape: statistics.median(shape[0]))
    if not cpu:
        times, best = found[0]
        seconds = min(statistics.median(times), statistics.median(_times(device, best, launch, _FINAL, None)))
        return seconds, describe(best.config)
    return min(
        (statistics.median(_times(device, one, launch, _AGAIN, None)), describe(one.config)) for _, one in found[:2]
    )


def _shapes(
    device: Device, spec: KernelSpec, problem: Problem, launch: _Launched, patience: Patience
) -> list[tuple[tuple[float, ...], BoundKernel]]:
    """The repetitions in seconds of every shape; those that do not compile or run here are skipped."""
    found: list[tuple[tuple[float, ...], BoundKernel]] = []
    best = math.inf
    failure: MmsbgenError | None = None
    configs = spec.space.configs(problem, traits_of(device.info))
    if patience is _QUICK:
        most = {name: max(int(config[name]) for config in configs) for name in _LENGTHS.keys() & configs[0]}
        configs = [c for c in configs if all(int(c[name]) >= min(_LENGTHS[name], most[name]) for name in most)]
    compile_side_by_side(device, [(spec, problem, config) for config in configs])
    for config in configs:
        try:
            bound = build(device, spec, problem, config)
            times = _times(device, bound, launch, patience, best if found else None)
        except (CompileError, LaunchError) as error:
            failure = error
            continue
        found.append((times, bound))
        best = min(best, statistics.median(times))
    if not found:
        raise failure or InputError(f"{spec.name}: no shape is possible for {describe(problem)} on {device.info.name}")
    return found


def _times(
    device: Device, bound: BoundKernel, launch: _Launched, patience: Patience, best: float | None
) -> tuple[float, ...]:
    return time_launches(device, partial(launch, bound), patience, best).times
