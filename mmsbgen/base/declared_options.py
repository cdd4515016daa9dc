"""Options declared once, as the fields of a dataclass.

A field declares its default, bounds, choices and help.  The command line, the service's models and the validation of
jobs are derived from it.  :class:`Parameters` are those of an estimator.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from types import NoneType
from typing import Any, Literal, Self, get_args, get_type_hints

from mmsbgen.base.errors import InputError, ParameterError

Audience = Literal["everybody", "advanced", "expert", "python"]
"""Where an option is offered.

| audience | ``--help`` | ``--help-all`` | service | Python and jobs |
|---|---|---|---|---|
| everybody | yes | yes | yes | yes |
| advanced | no | yes | yes | yes |
| expert | no | yes | no | yes |
| python | no | no | no | yes |
"""


@dataclass(frozen=True)
class DeclaredOption:
    """One option; ``least`` and ``most`` are inclusive bounds, ``above`` and ``below`` exclusive ones."""

    name: str
    hint: Any
    """The annotation, such as ``int | None``."""
    default: Any
    help: str = ""
    audience: Audience = "python"
    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf
    choices: Sequence[str] = ()
    flag: str = ""
    """A short flag of the command line, such as ``-n``."""
    metavar: str | None = None
    group: str = ""
    """Heading in ``--help-all``, where the options of a declaration have several."""

    @property
    def kind(self) -> Any:
        """The type of a value that is not None."""
        kinds = [kind for kind in get_args(self.hint) if kind is not NoneType]
        return kinds[0] if NoneType in get_args(self.hint) and len(kinds) == 1 else self.hint

    def checked(self, value: Any) -> Any:
        """The validated value, a NumPy scalar as Python's; raises :class:`InputError` for an invalid one."""
        if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
            value = value.item()
        if value is None and NoneType in get_args(self.hint):
            return None
        shown = f"{self.name}={value!r}"
        if self.choices and value not in self.choices:
            raise InputError(f"{shown} is not one of {', '.join(self.choices)}")
        if self.kind is str and not isinstance(value, str):
            raise InputError(f"{shown}: it must be a text")
        if self.kind is bool and not isinstance(value, bool):
            raise InputError(f"{shown}: it must be true or false")
        if self.kind is int:
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                raise InputError(f"{shown}: it must be an integer")
            value = operator.index(value)
        elif self.kind is float and (isinstance(value, bool) or not isinstance(value, Real)):
            raise InputError(f"{shown}: it must be a number")
        if self.kind in (int, float) and not self._allows(value):
            raise InputError(f"{self.name}={value}: it must be {self.bounds}")
        return value

    def _allows(self, value: float) -> bool:
        if self.kind is float and not math.isfinite(value):
            return False
        return self.least <= value <= self.most and self.above < value < self.below

    @property
    def bounds(self) -> str:
        """The allowed values in words: ``at least 1 and at most 256``."""
        words = {"at least": self.least, "above": self.above, "at most": self.most, "below": self.below}
        told = [f"{word} {bound}" for word, bound in words.items() if math.isfinite(bound)]
        return " and ".join(told) or "a finite number"


def option(default: Any, help: str, audience: Audience = "expert", **more: Any) -> Any:
    """A dataclass field that declares an option; ``more`` are fields of :class:`DeclaredOption`."""
    return dataclasses.field(default=default, metadata={"help": help, "audience": audience, **more})


def options_of(declaration: type[Any]) -> dict[str, DeclaredOption]:
    """The options that a dataclass declares, by name."""
    if declaration not in _known:
        hints = get_type_hints(declaration)
        _known[declaration] = {
            field.name: DeclaredOption(field.name, hints[field.name], field.default, **field.metadata)
            for field in dataclasses.fields(declaration)
            if field.metadata
        }
    return _known[declaration]


_known: dict[type[Any], dict[str, DeclaredOption]] = {}


def check_options(record: Any) -> None:
    """Validate and normalise the values of a frozen dataclass by its declared options; raises :class:`InputError`."""
    for name, declared in options_of(type(record)).items():
        object.__setattr__(record, name, declared.checked(getattr(record, name)))


class Parameters:
    """scikit-learn's ``get_params`` and ``set_params``, and a ``repr`` that shows the non-default parameters.

    The parameters are the arguments of the class's constructor, which only stores them.
    """

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        parameters = list(inspect.signature(cls).parameters.values())
        return {parameter.name: parameter.default for parameter in parameters}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All parameters by name; ``deep`` has no effect, as no parameter is an estimator."""
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; returns the estimator.

        Raises :class:`mmsbgen.base.errors.ParameterError` (a ValueError) for an unknown name, and sets none then.
        """
        known = self._defaults()
        if (odd := next((name for name in params if name not in known), None)) is not None:
            raise ParameterError(f"{type(self).__name__} has no parameter {odd!r}; there are {', '.join(known)}")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        changed = {
            name: getattr(self, name)
            for name, default in self._defaults().items()
            if not _same(getattr(self, name), default)
        }
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in changed.items())})"


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))
