"""Checks of the fields of frozen records by their types."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable, Mapping
from functools import cache
from operator import index
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from mmsbgen.db.records.canonical_json import json_object, storable_text, utc_timestamp

_LARGEST = 2**63 - 1
_LEAST_RATE = 1e-9
_RUNS = ("uuid", "run")
_TIMES = ("started", "finished", "measured_at", "created_at")


class CheckedRecord:
    """A frozen dataclass whose fields are checked, and kept as the database can hold them.

    Texts lose characters that no database takes, timestamps are in UTC, names of runs are hexadecimal digits, and
    mappings are copies as plain JSON.  Raises ValueError or TypeError for anything else.
    """

    def __post_init__(self) -> None:
        for name, kinds in kinds_of(type(self)).items():  # type: ignore[arg-type]
            if (value := getattr(self, name)) is not None or len(kinds) == 1:
                object.__setattr__(self, name, _checked(name, kinds[0], value))

    def values(self, *leave_out: str) -> dict[str, Any]:
        """The fields by name."""
        return {name: getattr(self, name) for name in kinds_of(type(self)) if name not in leave_out}  # type: ignore[arg-type]


@cache
def kinds_of(record: type[Any]) -> dict[str, tuple[Any, ...]]:
    """The types that each field of a record may have, None last."""
    hints = get_type_hints(record).items()
    return {name: get_args(hint) if isinstance(hint, UnionType) else (hint,) for name, hint in hints}


def one_of(record: object, name: str, allowed: Iterable[str]) -> None:
    """Require one of the ``allowed`` values."""
    value = getattr(record, name)
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")


def _checked(name: str, kind: Any, value: Any) -> Any:
    if name in _RUNS:
        return uuid.UUID(value).hex
    if name in _TIMES:
        return utc_timestamp(value)
    if kind is str:
        if not isinstance(value, str):
            raise TypeError(f"{name} must be text, got {value!r}")
        return storable_text(value)
    if kind is int:
        if isinstance(value, bool) or not hasattr(value, "__index__") or not 0 <= index(value) <= _LARGEST:
            raise ValueError(f"{name} must be a whole number from 0 to 2^63-1, got {value!r}")
        return index(value)
    if kind is float:
        least = _LEAST_RATE if name.endswith("gbps") else 0.0
        if not (math.isfinite(value) and value >= least):
            raise ValueError(f"{name} must be a finite number, at least {least:g}, got {value!r}")
        return float(value)
    if get_origin(kind) is Mapping:
        if not isinstance(value, Mapping):
            raise TypeError(f"{name} must be a mapping, got {value!r}")
        return json_object(value)
    return value
