"""Ids as files have them: integers if all are, else strings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.errors import InputError, warn_user
from mmsbgen.graph.graph import Graph, GraphWarning, Int64Array
from mmsbgen.graph.library_graphs import graph_of_ends

MOST_SIGNS = 20  # of a 64-bit integer; Python converts no numbers of thousands of digits
INTEGER = re.compile(rb"0|-?[1-9][0-9]*")
#: Words, in lower case, that other programs write for a value that is missing.
_MISSING = frozenset({b"na", b"n/a", b"nan", b"nil", b"none", b"null"})
_LONGEST = max(map(len, _MISSING))
#: Rows of fewer links may have no id in common by chance.
FEW_ROWS = 10


def as_int64(words: Sequence[bytes]) -> Int64Array | None:
    """The words as int64 ``[L]``; None if any is no 64-bit integer in its shortest form."""
    if not all(map(INTEGER.fullmatch, words)) or max(map(len, words), default=0) > MOST_SIGNS:
        return None
    numbers = [int(word) for word in words]
    if numbers and not (min(numbers) >= -(2**63) and max(numbers) < 2**63):
        return None
    return np.array(numbers, dtype=np.int64)


def refuse_missing(file: Path, distinct: Sequence[bytes]) -> None:
    """Raise :class:`InputError` if ids of ``file`` are integers, but for words that stand for a missing value."""
    missing = {word for word in distinct if len(word) <= _LONGEST and word.lower() in _MISSING}
    if 0 < len(missing) < len(distinct) and all(word in missing or INTEGER.fullmatch(word) for word in distinct):
        raise InputError(
            f"{file}: the id {min(missing).decode()!r} is beside integers, as if a value were missing; delete such "
            "rows, or give the vertex another name"
        )


class DisjointEndsWarning(GraphWarning):
    """No id is in both columns, which may not be the two ends of links."""


def warn_of_disjoint(columns: Sequence[Any]) -> None:
    """Warn that the two ``columns`` that the user has named have no id in common."""
    named = " and ".join(repr(str(column)[:40]) for column in columns[:2])
    warn_user(
        f"the columns {named} have no id in common: this is right if vertices are of two kinds, such as customers and "
        "products; otherwise, name other columns",
        DisjointEndsWarning,
    )


def is_number(word: str, least: int, most: int) -> bool:
    """Whether a word is a number without a sign from ``least`` to ``most``."""
    return word.isascii() and word.isdigit() and len(word) <= MOST_SIGNS and least <= int(word) <= most


def graph_of_words(
    vertices: Iterable[str],
    links: Iterable[tuple[str, str]],
    name: str,
    is_directed: bool | None = None,
    kept: NDArray[np.bool_] | None = None,
) -> Graph:
    """The graph of ``vertices`` and ``links`` ``[L]`` of words, of which those ``kept`` are links; None for all."""
    place: dict[str, int] = {}
    for vertex in vertices:
        place.setdefault(vertex, len(place))
    ends = [(place.setdefault(u, len(place)), place.setdefault(v, len(place))) for u, v in links]
    nodes: list[Any] = list(place)
    numbers = as_int64([word.encode("utf-8", "surrogatepass") for word in nodes])
    return graph_of_ends(nodes if numbers is None else numbers.tolist(), ends, name, is_directed, kept)
