"""Completes a partial configuration to the valid one nearest to the default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mmsbgen.base.errors import ConfigError, InputError
from mmsbgen.kernels.family import KernelSpec
from mmsbgen.kernels.problem import Problem, Value
from mmsbgen.kernels.space import Space, Traits, describe

_BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


@dataclass(frozen=True)
class Completion:
    """A valid configuration, and those of its values that were not given.

    ``filled`` are default values.  ``adjusted`` differ from the default because it conflicts with the given values.
    """

    config: dict[str, Value]
    filled: dict[str, Value]
    adjusted: dict[str, Value]


def parse_value(spec: KernelSpec, name: str, text: str) -> Value:
    """The value of the axis ``name`` that ``text`` denotes; raises :class:`InputError` that lists what is allowed."""
    axes = {axis.name: axis for axis in spec.space.axes}
    if name not in axes:
        raise InputError(f"{spec.name} has no axis {name!r}; it has {', '.join(axes)}")
    axis = axes[name]
    if isinstance(axis.values[0], bool) and text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    for value in axis.values:
        if str(value).lower() == text.lower():
            return value
    raise InputError(f"{axis.name}={text} is not one of {', '.join(map(str, axis.values))}")


def complete(spec: KernelSpec, problem: Problem, traits: Traits, given: Mapping[str, Value]) -> Completion:
    """The valid configuration with the ``given`` values that is nearest to the default.

    It has the fewest values that differ from the default.  Ties are broken by the order of the axes.

    Raises:
        ConfigError: No configuration with these values is valid; the message has the reason of the nearest one.
    """
    default = spec.default(problem, traits)
    names = [axis.name for axis in spec.space.axes]
    free = [axis for axis in spec.space.axes if axis.name not in given]

    def distance(config: Mapping[str, Value]) -> int:
        return sum(config[axis.name] != default[axis.name] for axis in free)

    candidates = sorted((dict(given) | rest for rest in Space(tuple(free)).product()), key=distance)
    nearest = ""
    for candidate in candidates:
        if (reason := spec.space.refusal(candidate, problem, traits)) is None:
            config = {name: candidate[name] for name in names}
            filled = {axis.name: config[axis.name] for axis in free}
            adjusted = {name: value for name, value in filled.items() if value != default[name]}
            return Completion(config, {n: v for n, v in filled.items() if n not in adjusted}, adjusted)
        nearest = nearest or reason
    whose = "configuration" if not free else "every configuration with"
    raise ConfigError(f"{spec.name}: {whose} {describe(given)} is refused: {nearest}")
