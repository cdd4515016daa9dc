"""Records made from other programs' files, which say less than ours: what they leave out is called unknown.

Such records have an empty template digest and an unknown backend: they are kept, shown and handed on, never selected.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeGuard

from mmsbgen.db.records.canonical_json import digest
from mmsbgen.db.records.tuning_records import DeviceRecord, KernelRecord, Key, ProblemRecord, RunRecord, ToolchainRecord

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Named:
    """What a user says of a file that does not say it itself; empty for what the file says."""

    kernel: str = ""
    """As ``NAME`` or ``FAMILY/NAME``."""
    device: str = ""
    problem: Mapping[str, Any] = field(default_factory=dict)

    def key(self, *, family: str, kernel: str, device: str = "", problem: Mapping[str, Any] | None = None) -> Key:
        """A key with what is named, else with what the file says; all else is unknown."""
        named_family, _, name = self.kernel.rpartition("/")
        family = named_family or family
        return Key(
            DeviceRecord(
                backend=UNKNOWN,
                platform="",
                vendor="",
                name=self.device or device or UNKNOWN,
                architecture="",
                driver="",
                kind=UNKNOWN,
                compute_units=0,
                memory_bytes=0,
            ),
            ToolchainRecord(UNKNOWN, ""),
            KernelRecord(family, name or kernel or UNKNOWN, ""),
            ProblemRecord(family, {**(problem or {}), **self.problem}),
        )


def run_of(content: object, strategy: str, extra: Mapping[str, Any]) -> RunRecord:
    """The run of a file: the same content makes the same run, so that importing it again adds nothing."""
    return RunRecord(uuid=digest(content), strategy=strategy, status="finished", extra=extra)


def moment(text: object) -> dict[str, str]:
    """``created_at`` of a record, in UTC where the text names no offset; nothing where it is no time."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return {}
    return {"created_at": found.isoformat() + ("" if found.tzinfo else "+00:00")}


def seconds(values: object, unit_s: float) -> tuple[float, ...]:
    """Times in seconds.  Raises ``ValueError`` for what is no list of positive numbers."""
    if not isinstance(values, list) or not all(map(positive, values)):
        raise ValueError(f"times must be positive numbers, got {values!r}")
    return tuple(value * unit_s for value in values)


def positive(value: object) -> TypeGuard[float]:
    """Whether a value is a finite number above 0."""
    return _is_number(value) and value > 0


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
