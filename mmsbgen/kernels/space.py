"""Search spaces: axes, constraints with reasons, configurations.  No GPU library and no I/O.

A configuration is a plain mapping of axis names to values.  It is valid or refused by a constraint that
says why; it is never silently changed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from mmsbgen.base.errors import ConfigError
from mmsbgen.kernels.problem import Problem, Value

Config = Mapping[str, Value]


@dataclass(frozen=True)
class Traits:
    """What constraints may know of a device.

    ``sub_group_size`` is 0 where the device has no sub-groups (warps).  Sizes are bytes: ``local_memory`` is what a
    kernel may declare for a block, ``launch_memory`` what a launch may give it instead, 0 where launches give none.
    ``warp_groups`` says that four warps may multiply together (wgmma).  ``platform`` names the runtime, for what its
    compiler alone cannot do; "" where that is not known.
    """

    dialect: str
    kind: str
    max_block_size: int = 1024
    local_memory: int = 48 * 1024
    sub_group_size: int = 0
    fp64: bool = True
    compute_units: int = 1
    launch_memory: int = 0
    warp_groups: bool = False
    platform: str = ""


@dataclass(frozen=True)
class Axis:
    """One tunable name, its values from the simplest on, and what it means."""

    name: str
    values: tuple[Value, ...]
    doc: str


@dataclass(frozen=True)
class Constraint:
    """A rule; ``check`` returns None where the configuration is allowed, else the reason in plain words."""

    name: str
    check: Callable[[Config, Problem, Traits], str | None]


@dataclass(frozen=True)
class Space:
    """Axes and constraints of one kernel; the axes that change a kernel most come first."""

    axes: tuple[Axis, ...]
    constraints: tuple[Constraint, ...] = ()

    def refusal(self, config: Config, problem: Problem, traits: Traits) -> str | None:
        """The first reason why ``config`` cannot be used, or None when it can."""
        names = {axis.name for axis in self.axes}
        if set(config) != names:
            odd = sorted(set(config) ^ names)
            return f"axes {', '.join(odd)}: unknown or missing; the axes are {', '.join(sorted(names))}"
        for axis in self.axes:
            value = config[axis.name]
            if value not in axis.values or isinstance(value, bool) != isinstance(axis.values[0], bool):
                return f"{axis.name}={value!r} is not one of {', '.join(map(str, axis.values))}"
        for constraint in self.constraints:
            reason = constraint.check(config, problem, traits)
            if reason is not None:
                return f"{constraint.name}: {reason}"
        return None

    def check(self, config: Config, problem: Problem, traits: Traits) -> None:
        """Raise :class:`ConfigError` with the reason when ``config`` is refused."""
        reason = self.refusal(config, problem, traits)
        if reason is not None:
            raise ConfigError(f"configuration {describe(config)} is refused: {reason}")

    def complexity(self, config: Config) -> tuple[int, ...]:
        """By which of two configurations that are as fast the simpler one is chosen: the less of these.

        It is the place of every axis's value among that axis's values, in the order of the axes.
        """
        return tuple(axis.values.index(config[axis.name]) for axis in self.axes)

    def product(self) -> Iterator[dict[str, Value]]:
        """Every combination of axis values, valid or not, in the order of the axes."""
        names = [axis.name for axis in self.axes]
        for values in itertools.product(*(axis.values for axis in self.axes)):
            yield dict(zip(names, values, strict=True))

    def judged(self, problem: Problem, traits: Traits) -> Iterator[tuple[dict[str, Value], str | None]]:
        """Every combination of :meth:`product` with its :meth:`refusal`, which is much faster than asking for each.

        Each constraint is asked once for the values that it reads, on which alone its answer must depend.
        """
        answers = [(constraint.name, _Answers(constraint, problem, traits)) for constraint in self.constraints]
        for config in self.product():
            for name, answer in answers:
                if (reason := answer.of(config)) is not None:
                    yield config, f"{name}: {reason}"
                    break
            else:
                yield config, None

    def configs(self, problem: Problem, traits: Traits) -> list[dict[str, Value]]:
        """Every valid configuration for this problem and device."""
        return [config for config, reason in self.judged(problem, traits) if reason is None]


@dataclass
class _Axis:
    """The next axis that a constraint reads, and by its value what it reads then or, in the end, answers."""

    name: str
    then: dict[Value, _Axis | tuple[str | None]]


class _Answers:
    """What a constraint says of configurations, kept by the values that it read: most read two axes or three."""

    def __init__(self, constraint: Constraint, problem: Problem, traits: Traits) -> None:
        self._check, self._given = constraint.check, (problem, traits)
        self._first: _Axis | tuple[str | None] | None = None

    def of(self, config: Config) -> str | None:
        """The constraint's reason, or None."""
        known = self._first
        while isinstance(known, _Axis):
            known = known.then.get(config[known.name])
        return self._new(config) if known is None else known[0]

    def _new(self, config: Config) -> str | None:
        reads = _Reads(config)
        reason = self._check(reads, *self._given)
        names, last = list(reads.names), None
        place = self._first
        while isinstance(place, _Axis):  # as far as other configurations read the same values
            last, place = place, place.then.get(config[place.name])
            names.pop(0)
        known: _Axis | tuple[str | None] = (reason,)
        for name in reversed(names):
            known = _Axis(name, {config[name]: known})
        if last is None:
            self._first = known
        else:
            last.then[config[last.name]] = known
        return reason


class _Reads(Mapping[str, Value]):
    """A configuration that remembers which axes were read, in their order."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.names: dict[str, None] = {}

    def __getitem__(self, name: str) -> Value:
        value = self._config[name]
        self.names[name] = None
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._config)

    def __len__(self) -> int:
        return len(self._config)


def describe(config: Config) -> str:
    """A configuration on one line, for messages: ``block_size=64 placement=RRS ...``."""
    return " ".join(f"{name}={config[name]}" for name in sorted(config))
