"""The one way this package turns values into JSON, digests and timestamps.

Keys of the database are digests of canonical JSON, so two processes that describe the same thing must
produce the same bytes: keys sorted, no blanks, ASCII only, no NaN or infinity.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any


def _plain(value: object) -> object:
    """Scalars of numeric libraries become Python's; anything else is refused."""
    item = getattr(value, "item", None)
    if callable(item):
        return item()
    raise TypeError(f"{type(value).__name__} cannot be stored as JSON")


def canonical_json(value: object) -> str:
    """JSON text of ``value`` with sorted keys and no blanks.

    Raises ``ValueError`` for NaN or infinity and ``TypeError`` for what JSON cannot hold.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain)


def json_object(value: Mapping[str, Any]) -> dict[str, Any]:
    """A detached copy of ``value`` that holds plain JSON only (tuples become lists); raises as above."""
    copy: dict[str, Any] = json.loads(canonical_json(dict(value)))
    return copy


def digest(value: object) -> str:
    """32 hexadecimal digits that name ``value``: the start of the SHA-256 of its canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode("ascii")).hexdigest()[:32]


def utc_now() -> str:
    """The present time as stored: ``2026-01-31T12:00:00.000000Z``."""
    return _format(datetime.now(UTC))


def utc_timestamp(text: str) -> str:
    """An ISO 8601 time with an offset, as stored: in UTC, with microseconds.

    Raises ``ValueError`` when the text is no time or has no offset.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"the time {text!r} has no UTC offset")
    return _format(moment.astimezone(UTC))


def _format(moment: datetime) -> str:
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def storable_text(text: str) -> str:
    """``text`` without what a database refuses: NUL and lone surrogates, as compilers' logs may have them."""
    return text.replace("\0", "\ufffd").encode("utf-8", "backslashreplace").decode("utf-8")
