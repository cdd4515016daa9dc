"""Options declared once, as the fields of a dataclass.

A field declares its default, bounds, choices and help.  The command line, the service's models and the validation of
jobs are derived from it.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from types import NoneType
from typing import Any, Literal, get_args, get_type_hints

from mmsbgen.base.errors import InputError

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
