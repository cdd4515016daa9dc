"""Checks of the fields of frozen records; each normalises the named fields, or raises ValueError or TypeError."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from operator import index

from mmsbgen.db.records.canonical_json import json_object, storable_text, utc_timestamp

_LARGEST = 2**63 - 1


def texts(record: object, *names: str) -> None:
    """Require texts, and store them as the database can hold them."""
    for name in names:
        value = getattr(record, name)
        if not isinstance(value, str):
            raise TypeError(f"{name} must be text, got {value!r}")
        object.__setattr__(record, name, storable_text(value))


def mappings(record: object, *names: str) -> None:
    """Require mappings, and store copies as plain JSON."""
    for name in names:
        value = getattr(record, name)
        if not isinstance(value, Mapping):
            raise TypeError(f"{name} must be a mapping, got {value!r}")
        object.__setattr__(record, name, json_object(value))


def counts(record: object, *names: str) -> None:
    """Require whole numbers of 63 bits, or None."""
    for name in names:
        if (value := getattr(record, name)) is None:
            continue
        if isinstance(value, bool) or not hasattr(value, "__index__") or not 0 <= index(value) <= _LARGEST:
            raise ValueError(f"{name} must be a whole number from 0 to 2^63-1, got {value!r}")
        object.__setattr__(record, name, index(value))


def amounts(record: object, *names: str, least: float = 0.0) -> None:
    """Require finite numbers of at least ``least``, or None."""
    for name in names:
        if (value := getattr(record, name)) is None:
            continue
        if not (math.isfinite(value) and value >= least):
            raise ValueError(f"{name} must be a finite number, at least {least:g}, got {value!r}")
        object.__setattr__(record, name, float(value))


def rates(record: object, *names: str) -> None:
    """Require positive finite numbers, or None."""
    amounts(record, *names, least=1e-9)


def times(record: object, *names: str) -> None:
    """Require timestamps or None, and store them in UTC."""
    for name in names:
        if (value := getattr(record, name)) is not None:
            object.__setattr__(record, name, utc_timestamp(value))


def one_of(record: object, name: str, allowed: Iterable[str]) -> None:
    """Require one of the ``allowed`` values."""
    value = getattr(record, name)
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
