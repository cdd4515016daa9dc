"""Checks of what launches leave at the size that is timed, against the reference."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mmsbgen.backends.base import Buffer, Device
from mmsbgen.kernels.build import BoundKernel
from mmsbgen.kernels.family import Array, Judge, KernelSpec, Units, Workload
from mmsbgen.kernels.space import Config

_REFERENCE_S = 0.02
"""Seconds in which the reference is evaluated for further units, for each configuration."""
_JUDGED_S = 0.03
"""Seconds in which a configuration is compared with what is kept of the reference; finalists with all of it."""
_SAMPLE = 16
"""Units that are drawn for each configuration at least, if there are as many."""
_KEPT_BYTES = 16 << 20
"""Size of the outputs that are read at a time, and of those whose reference is kept."""
_READ_BYTES = 64 << 20
"""Largest outputs that are read at once."""
_COMPARED_BYTES = 256 << 20
"""Largest outputs that are compared with those of another configuration."""
_SUSPECTS = 4
"""Units for which the reference is evaluated as two configurations differ most in them."""
_NAMED = 64
"""Most units that are judged one by one to find the wrong one."""


Verdict = Callable[[], str | None]
"""Judges what was read after a launch; returns an error message, or None if that is right.

It needs no device, and holds no compiled code.
"""


def _later(verdict: Verdict, *, at_once: bool) -> Verdict:
    """The verdict, found now if the device is needed for it, or if it holds much memory."""
    if not at_once:
        return verdict
    found = verdict()
    return lambda: found


class FullSizeCheck:
    """Checks launches of one kernel on the inputs that are timed.

    Outputs without units are compared whole.  Of units, all are looked through for some that were left out.  The
    reference is evaluated for units of the first, the middle and the last block, and for units that are drawn after
    the launch.  What was evaluated for a first launch is kept for the configurations that follow: each is compared with
    some of it, and finalists with all.
    """

    def __init__(self, device: Device, spec: KernelSpec, workload: Workload, placed: Mapping[str, Any]) -> None:
        self._device, self._workload, self._placed = device, workload, placed
        self._written = spec.written
        self._known = [_Known(units) for units in workload.units]

    def first(self, bound: BoundKernel, *, whole: bool = False) -> Verdict:
        """The verdict on a launch with the first arguments and initial outputs.

        With ``whole`` all that is kept of the reference is compared, however long that takes.
        """
        if not self._known:
            return self._verified(bound)
        config, edges = bound.config, [self._edges(known.units, bound) for known in self._known]
        outputs = [_Outputs(self._device, self._placed, known.units) for known in self._known]

        def verdict() -> str | None:
            several = zip(self._known, outputs, edges, strict=True)
            return next((wrong for each in several for wrong in self._wrong(*each, config, whole)), None)

        return _later(verdict, at_once=not all([left.read_all() for left in outputs]))

    def last(self, bound: BoundKernel, turn: int) -> Verdict:
        """The verdict on the launch of ``turn``.  Of one that goes on from others, what it leaves has to be finite."""
        if self._workload.repeats == "continued":
            found = self._not_finite(bound)
            return lambda: found
        if not self._known and not self._workload.rotations:
            return self._verified(bound)
        drawn: list[tuple[Units, Array, dict[str, Array]]] = []
        config = bound.config
        for units in (known.units for known in self._known):
            some = np.random.default_rng().integers(0, units.count, min(_SAMPLE, units.count))
            some = np.union1d(self._edges(units, bound), some)
            drawn.append((units, some, _Outputs(self._device, self._placed, units).read(some)))

        def verdict() -> str | None:
            found = (_judged(units, some, turn, units.reference(some, turn), config, got) for units, some, got in drawn)
            return next((wrong for wrong in found if wrong is not None), None)

        return _later(verdict, at_once=sum(_nbytes(got) for _, _, got in drawn) > _READ_BYTES)

    def _verified(self, bound: BoundKernel) -> Verdict:
        got, config = self._everything(), bound.config
        return _later(lambda: self._workload.verify(got, config), at_once=_nbytes(got) > _READ_BYTES)

    def _everything(self) -> dict[str, Array]:
        return {name: self._device.download(self._placed[name]) for name in self._written}

    def _not_finite(self, bound: BoundKernel) -> str | None:
        """A message if a call left values that are not finite, in the units that are looked at or else anywhere."""
        parts = [self._everything()] if not self._known else []
        for known in self._known:
            parts.append(_Outputs(self._device, self._placed, known.units).read(self._edges(known.units, bound)))
        for name, array in itertools.chain.from_iterable(part.items() for part in parts):
            if bad := np.count_nonzero(~np.isfinite(array)) if array.dtype.kind == "f" else 0:
                return f"after repeated calls {bad} of {array.size} values of {name} are not finite"
        return None

    def together(self, launches: Iterable[tuple[BoundKernel, Callable[[], None]]]) -> list[str | None]:
        """Check the first launches of several configurations, also where they differ: a message for each wrong one.

        A fault in a few units, which are hardly among those that are drawn, makes a configuration differ there from
        the first that seems right.  Each comes with a function that restores the inputs, launches it and waits.
        """
        wrong: list[str | None] = []
        other: _Launched | None = None
        for bound, launch in launches:
            launch()
            wrong.append(self.first(bound, whole=True)())
            if wrong[-1] is not None:
                continue
            got = [_Outputs(self._device, self._placed, known.units).everything() for known in self._known]
            this = _Launched(len(wrong) - 1, bound.config, got)
            if other is None or wrong[other.place] is not None:
                other = this
                continue
            for known, *both in zip(self._known, other.outputs, this.outputs, strict=True):
                for launched, message in _judged_where_apart(known.units, (other, this), both):
                    wrong[launched.place] = wrong[launched.place] or message
        return wrong

    def _wrong(self, known: _Known, outputs: _Outputs, edges: Array, config: Config, whole: bool) -> Iterator[str]:
        """Error messages about some of the outputs, those of the units ``edges`` among them."""
        units = known.units
        if units.changed:
            yield from self._left_out(units, outputs)
        kept = [*known.parts]
        needed = [whole or bool(np.isin(edges, some, assume_unique=True).any()) for some, _ in kept]
        parts = [part for part, need in zip(kept, needed, strict=True) if need]
        others = [part for part, need in zip(kept, needed, strict=True) if not need]
        for some, judge in itertools.chain(parts, known.further(edges, outputs.held), _for_a_while(others)):
            if (wrong := _judged(units, some, 0, judge, config, outputs.of(some))) is not None:
                yield wrong

    def _edges(self, units: Units, bound: BoundKernel) -> Array:
        """The first and the last unit of the first, the middle and the last block, if blocks take them in order."""
        grid = bound.spec.launch(bound.problem, bound.config, self._workload.count, bound.traits).grid
        blocks = np.array([0, grid // 2, grid - 1])
        ends = np.concatenate([blocks * units.count // grid, (blocks + 1) * units.count // grid - 1])
        return np.unique(np.clip(ends, 0, units.count - 1))

    def _left_out(self, units: Units, outputs: _Outputs) -> Iterator[str]:
        """A message if a unit's outputs are all as they were."""
        for begin in range(0, units.count, outputs.held):
            some = np.arange(begin, min(units.count, begin + outputs.held))
            got, same = outputs.of(some), np.arange(some.size)
            # Of most units the first number differs, which spares the others.
            for most, name in itertools.product((1, None), got):
                if same.size:
                    before, places = self._workload.arguments[name], units.places(some[same])[name]
                    before = before.reshape(len(before), -1)[places.reshape(same.size, -1)[:, :most], :most]
                    now = got[name].reshape(some.size, -1)[same, :most]
                    same = same[(now == before.reshape(same.size, -1)).all(axis=1)]
            if same.size:
                yield f"result {some[same[0]]} of {units.count} was left out"


class _Launched(NamedTuple):
    """One of several configurations, and what it left in all units, if that can be compared."""

    place: int
    config: Config
    outputs: list[dict[str, Array] | None]


class _Known:
    """Units of a first launch whose reference is kept."""

    def __init__(self, units: Units) -> None:
        self.units = units
        self.parts: list[tuple[Array, Judge]] = []
        self._has = np.zeros(units.count, bool)

    def further(self, edges: Array, most: int) -> Iterator[tuple[Array, Judge]]:
        """Evaluate and keep further units: ``edges``, and others in random order as long as there is time.

        About ``most`` are kept; the oldest make room.
        """
        begin, done, rng = time.perf_counter(), 0, np.random.default_rng()
        while (spent := time.perf_counter() - begin) < _REFERENCE_S or not done:
            left = np.flatnonzero(~self._has)
            size = int(np.clip((_REFERENCE_S - spent) * done / max(spent, 1e-9), _SAMPLE, max(_SAMPLE, most)))
            some = np.union1d(edges[~self._has[edges]], rng.choice(left, min(size, left.size), replace=False))
            if not some.size:
                return
            while self.parts and self._has.sum() + some.size > most:
                self._has[self.parts.pop(0)[0]] = False
            part = some, self.units.reference(some, 0)
            self.parts.append(part)
            self._has[some] = True
            done += some.size
            yield part


def _for_a_while(parts: list[tuple[Array, Judge]]) -> Iterator[tuple[Array, Judge]]:
    """Some of ``parts`` in random order, at least one if there is any."""
    begin = time.perf_counter()
    for place in np.random.default_rng().permutation(len(parts)):
        yield parts[place]
        if time.perf_counter() - begin > _JUDGED_S:
            return


class _Outputs:
    """What a launch left at the places of units: those of all units, or of some at a time where these are too large."""

    def __init__(self, device: Device, placed: Mapping[str, Any], units: Units) -> None:
        self._device, self._placed, self._units = device, placed, units
        self._all: dict[str, Array] | None = None
        self._each = sum(_row_bytes(placed[name]) * at.size for name, at in units.places(np.arange(1)).items())
        self.held = max(1, _KEPT_BYTES // max(1, self._each))
        """Units whose outputs are read at a time."""

    def read_all(self) -> bool:
        """Read the outputs of all units unless they are too large; returns whether they were read."""
        if self._each * self._units.count <= _READ_BYTES:
            self._all = self.read(np.arange(self._units.count))
        return self._all is not None

    def of(self, units: Array) -> dict[str, Array]:
        """The outputs of ``units``, which ascend, by name."""
        if self._all is None:
            return self.read(units)
        whole = units.size > 0 and units[-1] - units[0] + 1 == units.size
        at = slice(units[0], units[-1] + 1) if whole else units
        return {name: array[at] for name, array in self._all.items()}

    def everything(self) -> dict[str, Array] | None:
        """The outputs of all units by name; None if they are too large to be compared."""
        if self._each * self._units.count > _COMPARED_BYTES:
            return None
        return self.read(np.arange(self._units.count))

    def read(self, units: Array) -> dict[str, Array]:
        """The outputs of ``units`` by name, and of no others."""
        places = self._units.places(units)
        return {name: self._device.download_rows(self._placed[name], at) for name, at in places.items()}


def _judged(units: Units, some: Array, turn: int, judge: Judge, config: Config, got: Mapping[str, Array]) -> str | None:
    """An error message about the outputs of ``some`` units that names one of them, or None if they are right."""
    if (wrong := judge(got, config)) is None:
        return None
    for place in range(min(_NAMED, some.size)):
        alone = units.reference(some[place : place + 1], turn)
        found = alone({name: array[place : place + 1] for name, array in got.items()}, config)
        if found is not None:
            return f"result {some[place]} of {units.count}: {found}"
    return wrong


def _judged_where_apart(
    units: Units, both: Sequence[_Launched], outputs: Sequence[dict[str, Array] | None]
) -> Iterator[tuple[_Launched, str]]:
    """Error messages about two launches, from the units in which their outputs differ most."""
    one, other = outputs
    if one is None or other is None:
        return
    apart = _apart(one, other)
    some = np.sort(np.argsort(apart)[-_SUSPECTS:])
    some = some[apart[some] > 0]
    judge = units.reference(some, 0) if some.size else None
    for launched, got in zip(both, (one, other), strict=True):
        if judge is not None:
            found = {name: array[some] for name, array in got.items()}
            if (wrong := _judged(units, some, 0, judge, launched.config, found)) is not None:
                yield launched, wrong


def _apart(one: Mapping[str, Array], other: Mapping[str, Array]) -> Array:
    """How far outputs are apart in each unit: the mean of the relative distances of their elements."""
    count = len(next(iter(one.values())))
    apart: Array = np.zeros(count)
    for name, array in one.items():
        size = max(1, count * _KEPT_BYTES // max(1, array.nbytes))
        for begin in range(0, count, size):
            some = slice(begin, begin + size)
            a, b = (values[some].reshape(len(values[some]), -1).astype(np.float64) for values in (array, other[name]))
            larger = np.maximum(np.abs(a), np.abs(b))
            apart[some] += (np.abs(a - b) / np.where(larger > 0, larger, 1.0)).mean(axis=1)
    return np.nan_to_num(apart, nan=np.inf)


def _nbytes(arrays: Mapping[str, Array]) -> int:
    return sum(array.nbytes for array in arrays.values())


def _row_bytes(buffer: Buffer) -> int:
    return math.prod(buffer.shape[1:]) * buffer.dtype.itemsize
