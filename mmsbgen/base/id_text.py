"""Sort keys and text of ids of any type, the same in every process, and text for messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

#: An integer of 64 bits as Python writes it: of ids in text others, such as 007, stay text.
INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")

#: First characters of what spreadsheets take for formulas.
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?(e[-+]?[0-9]+)?", re.I)
_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")


def canonical_key(item: Any) -> tuple[Any, ...]:
    """A sort key for ids; the keys of any two ids are comparable."""
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
    """The ``repr`` of an id with frozensets sorted, so that it is the same in every process."""
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
    """Untrusted text on one line, without unprintable characters and with at most ``limit`` characters."""
    # The beginning is enough, and bounds the work for long text.
    text = " ".join(str(value)[: 4 * limit].split())
    text = "".join(c if c.isprintable() else "\ufffd" for c in text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def pairs(values: Mapping[str, object]) -> str:
    """``name=value`` of all ``values`` but those that are None, on one line."""
    return " ".join(f"{name}={value}" for name, value in values.items() if value is not None)


def budget_text(budget: Mapping[str, object]) -> str:
    """The budget of a tuning run, seconds with one decimal."""
    return pairs({name: round(most, 1) if isinstance(most, float) else most for name, most in budget.items()})


def error_text(error: float) -> str:
    """A standard error with two digits, as it stands behind its value: `` ± 0.020``."""
    return f" ± {error:#.2g}".removesuffix(".")


def plural(count: int, word: str, many: str = "") -> str:
    """A count with its noun: ``1 link``, ``2 links``; ``many`` is an irregular plural."""
    return f"{count} {word if count == 1 else many or word + 's'}"


#: A number with a decimal comma: of 1,500 the comma may separate thousands.
_DECIMAL_COMMA = re.compile(r"[-+]?(?:0,[0-9]+|[0-9]+,(?:[0-9]{1,2}|[0-9]{4,}))")


def with_point(word: str) -> str:
    """A number with a decimal comma, such as 4,5, with a point; any other word as it is."""
    return word.replace(",", ".") if _DECIMAL_COMMA.fullmatch(word) else word


def is_number(text: str) -> bool:
    """Whether a word is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_formula(text: str) -> bool:
    """Whether a spreadsheet would take a cell for a formula; numbers are none."""
    return text[:1] in _FORMULAS and _NUMBER.fullmatch(text) is None


def moment_text(timestamp: str | None) -> str:
    """A stored timestamp for people, without the fraction of a second; empty for None."""
    return (timestamp or "")[:19].replace("T", " ")
