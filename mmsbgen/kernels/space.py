"""Search spaces: axes, constraints with reasons, configurations.  No GPU library and no I/O.

A configuration is a plain mapping of axis names to values.  It is either valid or refused with a reason; it is never
changed silently.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mmsbgen.base.errors import ConfigError, MmsbgenError
from mmsbgen.kernels.problem import Problem, Value

Config = Mapping[str, Value]


@dataclass(frozen=True)
class Traits:
    """The properties of a device that constraints use.

    Attributes:
        local_memory: Bytes of local memory that a kernel may declare for a block.
        launch_memory: Bytes of dynamic shared memory that a launch may request instead; 0 without such launches.
        sub_group_size: Work-items of a sub-group (warp); 0 for a device without sub-groups.
        warp_groups: Whether four warps can multiply matrices together (wgmma).
        platform: Name of the runtime, for limitations of its compiler; "" if unknown.
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
    """One tunable parameter; its values are ordered from the simplest."""

    name: str
    values: tuple[Value, ...]
    doc: str


@dataclass(frozen=True)
class Constraint:
    """A constraint; ``check`` returns why a configuration is refused, or None if it is allowed."""

    name: str
    check: Callable[[Config, Problem, Traits], str | None]

    def reason(self, config: Config, problem: Problem, traits: Traits) -> str | None:
        """The result of ``check``; a mistake in it, as in a user's file, raises :class:`ConfigError`."""
        try:
            return self.check(config, problem, traits)
        except MmsbgenError:
            raise
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise ConfigError(f"{self.name}: {why}, for {describe(config)}; mend the declaration") from error


@dataclass(frozen=True)
class Space:
    """Axes and constraints of one kernel; the axes with the largest effect come first."""

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
            if (reason := constraint.reason(config, problem, traits)) is not None:
                return f"{constraint.name}: {reason}"
        return None

    def check(self, config: Config, problem: Problem, traits: Traits) -> None:
        """Raise :class:`ConfigError` with the reason when ``config`` is refused."""
        if (reason := self.refusal(config, problem, traits)) is not None:
            raise ConfigError(f"configuration {describe(config)} is refused: {reason}")

    def complexity(self, config: Config) -> tuple[int, ...]:
        """A sort key that is less for simpler configurations, to choose between equally fast ones.

        It has the index of each value among its axis's values, in the order of the axes.
        """
        return tuple(axis.values.index(config[axis.name]) for axis in self.axes)

    def product(self) -> Iterator[dict[str, Value]]:
        """Every combination of axis values, valid or not, in the order of the axes."""
        names = [axis.name for axis in self.axes]
        for values in itertools.product(*(axis.values for axis in self.axes)):
            yield dict(zip(names, values, strict=True))

    def judged(
        self, problem: Problem, traits: Traits, kept: Mapping[str, Sequence[Value]] | None = None
    ) -> Iterator[tuple[dict[str, Value], str | None, int]]:
        """Every combination of :meth:`product` with its :meth:`refusal`, much faster than single calls.

        Combinations in a row that are refused for the same reason come once, the first of them with their number.
        ``kept`` restricts axes to some of their values.

        Each constraint is evaluated once for each combination of the axis values that it reads.  Its result must depend
        on these values only.
        """
        given = kept or {}
        axes = {axis.name: [v for v in axis.values if v in given.get(axis.name, axis.values)] for axis in self.axes}
        names, values = list(axes), list(axes.values())
        if not all(values):
            return
        answers = [(one.name, _Answers(one, problem, traits, names)) for one in self.constraints]
        # How many combinations have the same values of the first axes.
        alike = [math.prod(map(len, values[count:])) for count in range(len(values) + 1)]
        places = [0] * len(values)
        # Answers that hold for the combination at hand.
        held: list[_Answer | None] = [None] * len(answers)
        while True:
            config = {name: those[at] for name, those, at in zip(names, values, places, strict=True)}
            deepest, reason = -1, None
            for at, (name, answer) in enumerate(answers):
                found, read = held[at] = held[at] or answer.of(config)
                if read > deepest:
                    deepest = read
                if found is not None:
                    reason = f"{name}: {found}"
                    break
            turned = len(values) - 1 if reason is None else deepest
            yield config, reason, alike[turned + 1]
            # The next values of the last axis that was read; nothing depends on those after it.
            while turned >= 0 and places[turned] + 1 == len(values[turned]):
                turned -= 1
            if turned < 0:
                return
            places[turned] += 1
            places[turned + 1 :] = [0] * (len(places) - turned - 1)
            held = [None if one is None or one[1] >= turned else one for one in held]

    def configs(self, problem: Problem, traits: Traits) -> list[dict[str, Value]]:
        """Every valid configuration for this problem and device."""
        return [config for config, reason, _ in self.judged(problem, traits) if reason is None]


@dataclass(frozen=True)
class Sweep:
    """How the measurements of a kernel are plotted.

    Attributes:
        size: The problem parameter on the x axis of plots over problems.
        sizes: The parameters that are equal within a figure.
        lines: The axis with one plotted line for each value.
        along: The axis along which the lines run.
        widths: The axis whose values are compared with the smallest one.
        panels: The values of ``lines`` in each panel, by the panel's title.
        titles: Labels with units of parameters and axes.
        variant: Returns a label for the parameters of a problem other than its sizes.
    """

    size: str
    sizes: tuple[str, ...]
    lines: str
    along: str
    widths: str
    panels: Mapping[str, tuple[str, ...]]
    titles: Mapping[str, str]
    variant: Callable[[Mapping[str, Any]], str] = lambda params: ""


_Answer = tuple[str | None, int]
"""A constraint's reason or None, and the position of the last axis that it read, -1 for none."""


@dataclass
class _Axis:
    """A node of a decision tree: the axis that a constraint reads next, and the child node or result by its value."""

    name: str
    then: dict[Value, _Axis | _Answer]


class _Answers:
    """A cache of a constraint's results by the axis values that it read, as most read only two or three axes."""

    def __init__(self, constraint: Constraint, problem: Problem, traits: Traits, axes: list[str]) -> None:
        self._check, self._given = constraint.reason, (problem, traits)
        self._place = {name: at for at, name in enumerate(axes)}
        self._first: _Axis | _Answer | None = None

    def of(self, config: Config) -> _Answer:
        """The constraint's answer."""
        known = self._first
        while isinstance(known, _Axis):
            known = known.then.get(config[known.name])
        return self._new(config) if known is None else known

    def _new(self, config: Config) -> _Answer:
        reads = Reads(config)
        reason = self._check(reads, *self._given)
        names, last = list(reads.names), None
        place = self._first
        while isinstance(place, _Axis):  # follow the part of the tree that exists already
            last, place = place, place.then.get(config[place.name])
            names.pop(0)
        answer = (reason, max(map(self._place.__getitem__, reads.names), default=-1))
        known: _Axis | _Answer = answer
        for name in reversed(names):
            known = _Axis(name, {config[name]: known})
        if last is None:
            self._first = known
        else:
            last.then[config[last.name]] = known
        return answer


class Reads(Mapping[str, Any]):
    """Values by name, such as a configuration, that record which were read, in order."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given
        self.names: dict[str, None] = {}

    def __getitem__(self, name: str) -> Any:
        value = self._given[name]
        self.names[name] = None
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)


def describe(config: Config) -> str:
    """A configuration on one line, for messages: ``block_size=64 placement=RRS ...``."""
    return " ".join(f"{name}={config[name]}" for name in sorted(config))
