"""Canonical JSON, digests and timestamps.

Keys of the database are digests of canonical JSON, so equal values must give equal bytes in every process: keys sorted,
no blanks, ASCII only, no NaN or infinity.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any


def _plain(value: object) -> object:
    """Convert scalars of numeric libraries to Python's; raises TypeError for anything else."""
    item = getattr(value, "item", None)
    if callable(item):
        return item()
    raise TypeError(f"{type(value).__name__} cannot be stored as JSON")


def canonical_json(value: object) -> str:
    """JSON text of ``value`` with sorted keys and no blanks.

    Raises ``ValueError`` for NaN or infinity and ``TypeError`` for what JSON cannot hold.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain)


def plain_json(value: Any) -> Any:
    """``value`` as JSON types; numbers that are not finite become None, unknown types become text."""
    item = getattr(value, "item", None)
    if callable(item) and not getattr(value, "shape", ()):
        value = item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(one) for one in value]
    return value if isinstance(value, str | int | bool) or value is None else str(value)


def json_object(value: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of ``value`` as plain JSON (tuples become lists); raises as :func:`canonical_json`."""
    copy: dict[str, Any] = json.loads(canonical_json(dict(value)))
    return copy


def digest(value: object) -> str:
    """The first 32 hexadecimal digits of the SHA-256 of the canonical JSON of ``value``."""
    return hashlib.sha256(canonical_json(value).encode("ascii")).hexdigest()[:32]


def utc_now() -> str:
    """The current time in the stored form: ``2026-01-31T12:00:00.000000Z``."""
    return _format(datetime.now(UTC))


def utc_timestamp(text: str) -> str:
    """Converts an ISO 8601 time with an offset to the stored form: UTC with microseconds.

    Raises ``ValueError`` when the text is not a time or has no offset.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"the time {text!r} has no UTC offset")
    return _format(moment.astimezone(UTC))


def _format(moment: datetime) -> str:
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def storable_text(text: str) -> str:
    """``text`` with NUL and lone surrogates replaced, which databases refuse and compilers' logs may contain."""
    return text.replace("\0", "\ufffd").encode("utf-8", "backslashreplace").decode("utf-8")
