"""A problem: the sizes and types for which kernels are generated, tuned and selected.

The family of kernels declares the parameters; this module does not interpret them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from mmsbgen.base.errors import InputError, did_you_mean

Value = int | str | bool


@dataclass(frozen=True)
class Parameter:
    """One name that a family declares: its default, its bounds (integers) or its choices (strings).

    Attributes:
        soft: Whether records with another value of this parameter may still be transferred, as it changes result or
            time only a little.  An example is a mode of the arithmetic, but not a data type.  Numbers count by their
            distance.
        implicit: Whether a problem leaves the parameter out at its default.  This keeps the keys of records that are
            older than the parameter.
        weight: The contribution of a factor of e in a size to the distance between two problems.
    """

    name: str
    default: Value
    doc: str
    minimum: int = 0
    maximum: int = 2**62
    choices: tuple[str, ...] = ()
    soft: bool = False
    implicit: bool = False
    weight: float = 1.0

    def check(self, value: object) -> Value:
        """Return ``value`` in its declared type; raise :class:`InputError` if it is not allowed."""
        if self.choices:
            if value not in self.choices:
                raise InputError(f"{self.name}={value!r} is not one of {', '.join(self.choices)}")
            return str(value)
        if isinstance(self.default, bool):
            if not isinstance(value, bool):
                raise InputError(f"{self.name}={value!r} is not true or false")
            return value
        try:
            number = int(str(value))
        except ValueError:
            raise InputError(f"{self.name}={value!r} is not an integer") from None
        if not self.minimum <= number <= self.maximum:
            raise InputError(f"{self.name}={number} is outside {self.minimum} to {self.maximum}")
        return number


def implied(parameters: Iterable[Parameter]) -> dict[str, Value]:
    """Values of the parameters that problems leave out at their default."""
    return {p.name: p.default for p in parameters if p.implicit}


@dataclass(frozen=True)
class Problem(Mapping[str, Value]):
    """An immutable mapping of declared names to values, ordered by name; equal problems have equal keys."""

    family: str
    items_: tuple[tuple[str, Value], ...]

    @classmethod
    def of(cls, family: str, parameters: Iterable[Parameter], values: Mapping[str, object]) -> Problem:
        """Check ``values`` against the declared ``parameters``, fill in defaults and freeze.

        Raises :class:`InputError` for unknown names and for values that are not allowed.  Implicit parameters at their
        default are left out.
        """
        declared = {p.name: p for p in parameters}
        if unknown := sorted(set(values) - set(declared)):
            near = did_you_mean(unknown[0], declared) or f"; it has {', '.join(declared)}"
            raise InputError(f"{family} has no parameter {unknown[0]!r}{near}")
        checked = {name: p.check(values.get(name, p.default)) for name, p in declared.items()}
        kept = {name: x for name, x in checked.items() if not (declared[name].implicit and x == declared[name].default)}
        return cls(family, tuple(sorted(kept.items())))

    def __getitem__(self, name: str) -> Value:
        for key, value in self.items_:
            if key == name:
                return value
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(key for key, _ in self.items_)

    def __len__(self) -> int:
        return len(self.items_)

    def integer(self, name: str) -> int:
        """The value of an integer parameter."""
        value = self[name]
        if not isinstance(value, int):
            raise TypeError(f"{name} is {value!r}, not an integer")
        return value

    def only(self, names: Iterable[str]) -> Problem:
        """The part of this problem that one kernel depends on: the key under which its trials are stored."""
        keep = set(names)
        return Problem(self.family, tuple((k, v) for k, v in self.items_ if k in keep))

    def replace(self, **values: Value) -> Problem:
        """A copy with some values replaced; the values are not checked."""
        merged = dict(self.items_) | values
        return Problem(self.family, tuple(sorted(merged.items())))

    @property
    def key(self) -> str:
        """Canonical JSON of the values: sorted names, no white space."""
        return json.dumps(dict(self.items_), sort_keys=True, separators=(",", ":"))
