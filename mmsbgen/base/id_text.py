"""Ids of any type as text: an order and words that are the same in every process, and what a reader is shown."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")


def canonical_key(item: Any) -> tuple[Any, ...]:
    """What ids are ordered by; keys of any two ids can be compared."""
    if isinstance(item, np.generic):
        item = item.item()
    if item is None:
        return ("",)
    if isinstance(item, int | float):
        return ("number", item) if item == item else ("nan",)
    if isinstance(item, str | bytes):
        return (("str" if isinstance(item, str) else "bytes"), item)
    if isinstance(item, tuple):
        return ("tuple", tuple(map(canonical_key, item)))
    if isinstance(item, frozenset):
        return ("frozenset", tuple(sorted(map(canonical_key, item))))
    return (f"{type(item).__module__}.{type(item).__qualname__}", _ADDRESS.sub("", repr(item)))


def canonical_text(item: Any) -> str:
    """The ``repr`` of an id, the same in every process: that of a frozenset depends on the hashes of strings."""
    if isinstance(item, np.generic):
        item = item.item()
    if type(item) is tuple:
        return f"({', '.join(map(canonical_text, item))}{',' * (len(item) == 1)})"
    if type(item) is frozenset:
        return f"frozenset({{{', '.join(canonical_text(part) for part in sorted(item, key=canonical_key))}}})"
    return repr(item)


def canonical_word(item: Any) -> str:
    """The ``str`` of an id, the same in every process."""
    if isinstance(item, np.generic):
        item = item.item()
    return canonical_text(item) if type(item) in (tuple, frozenset) else str(item)


def plain(value: object, limit: int = 40) -> str:
    """Text of foreign origin on one line: nothing unprintable, at most ``limit`` characters."""
    # A look at the beginning is enough, however long it is.
    text = " ".join(str(value)[: 4 * limit].split())
    text = "".join(c if c.isprintable() else "\ufffd" for c in text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def plural(count: int, word: str, many: str = "") -> str:
    """A number of things for a reader: ``1 link``, ``2 links``; ``many`` where it is not the word with an s."""
    return f"{count} {word if count == 1 else many or word + 's'}"
