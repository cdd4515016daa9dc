"""Ids as files have them: integers if all are, else strings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.errors import InputError, warn_user
from mmsbgen.base.processes import in_parts, run_side_by_side
from mmsbgen.base.user_files import need_memory
from mmsbgen.graph.files.tokens import Words, parse_integers
from mmsbgen.graph.graph import Graph, GraphWarning, Int64Array
from mmsbgen.graph.ids import MOST_CHARACTERS, object_ids, renumber, string_ids
from mmsbgen.graph.library_graphs import graph_of_ends

_MOST_SIGNS = 20  # of a 64-bit integer; Python converts no numbers of thousands of digits
INTEGER = re.compile(rb"0|-?[1-9][0-9]*")
#: Words, in lower case, that other programs write for a value that is missing.
_MISSING = frozenset({b"na", b"n/a", b"nan", b"nil", b"none", b"null"})
_LONGEST = max(map(len, _MISSING))
#: Rows of fewer links may have no id in common by chance.
FEW_ROWS = 10
#: Words that a thread compares at a time.
_AT_A_TIME = 1 << 16
#: Its powers are the factors of a hash of words; tables that take them by it.
_FACTOR, _TABLES = 0x9E3779B97F4A7C15, 32


def as_int64(words: Words) -> Int64Array | None:
    """The words as int64 ``[T]``; None if any is no 64-bit integer in its shortest form."""
    if not all(map(INTEGER.fullmatch, words.part(slice(64)).words())):
        return None

    def parsed(part: slice) -> tuple[Int64Array]:
        if (found := parse_integers(words.cut(part))) is None:
            raise ValueError("not integers")
        return (found,)

    try:
        (found,) = in_parts(parsed, len(words))
    except ValueError:
        return None
    return found  # type: ignore[no-any-return]


def integers_or_words(words: Words) -> Int64Array | Words:
    """As :func:`as_int64`, and ``words`` themselves if any is no integer."""
    numbers = as_int64(words)
    return words if numbers is None else numbers


def first_other(words: Words) -> int | None:
    """The place of the first of some words that is no integer; None if all are."""
    for begin in range(0, len(words), _AT_A_TIME):
        part = words.cut(slice(begin, begin + _AT_A_TIME))
        if parse_integers(part) is None:
            for place, word in enumerate(part.words(), begin):
                if not INTEGER.fullmatch(word):
                    return place
    return None


def word_ids(file: Path, distinct: Words) -> NDArray[Any]:
    """The ``distinct`` words of ``file`` as ids ``[N]``, as :func:`ids_of_words`.

    Raises InputError if they take more than the memory left, or are integers but for words that stand for a missing
    value.
    """
    sizes = distinct.ends - distinct.starts
    widest = int(sizes.max(initial=1))
    need_memory(file, len(distinct) * (100 + 5 * widest) if widest <= MOST_CHARACTERS else 200 * len(distinct))
    short = distinct.part(sizes <= _LONGEST).words()
    missing = {word for word in short if word.lower() in _MISSING}
    if 0 < len(missing) < len(distinct) and all(
        word in missing or INTEGER.fullmatch(word) for word in distinct.words()
    ):
        raise InputError(
            f"{file}: the id {min(missing).decode()!r} is beside integers, as if a value were missing; delete such "
            "rows, or give the vertex another name"
        )
    return ids_of_words(distinct)


def refuse_twins(name: str, distinct: Words) -> None:
    """Raise InputError if ``distinct`` words have one with and without ``.0``; ``name`` is the file's."""
    pointed = [word for word in distinct.part(distinct.ends_in(b"0")[1]).words() if word.endswith(b".0")]
    known = set(distinct.words() if pointed else ())
    twin = next((word for word in pointed if word[:-2] in known), None)
    if twin is not None:
        raise InputError(f"{name} has the ids {shown(twin[:-2])} and {shown(twin)}; write them alike, without '.0'")


def shown(field: bytes) -> str:
    """A field in a message."""
    text = field.decode("utf-8", "replace")
    return repr(text if len(text) <= 60 else text[:57] + "...")


def number_words(words: Words) -> tuple[Words, NDArray[Any]]:
    """Return the distinct ``words`` ``[N]``, ascending by their bytes, and the index of every word, uint32 ``[T]``.

    The indices are int64 for more than 2^32 words.
    """
    equal, is_found = _equal_words(words), np.zeros(len(words), np.bool_)
    is_found[equal] = True
    distinct = np.flatnonzero(is_found)
    distinct = distinct[np.argsort(_spelled(words.part(distinct)))]
    renumber(equal, distinct, len(words))
    return words.part(distinct), equal


def _equal_words(words: Words) -> NDArray[Any]:
    """The place ``[T]`` of a word that is equal to each: the same place for all that are equal.

    All write their places into a table where their hash says.  Those that then find an equal word there are done, and
    the others write into another table.
    """
    size = len(words)
    kind = np.uint32 if size < 1 << 32 else np.int64
    left, equal, hashes = np.arange(size, dtype=kind), np.empty(size, kind), np.zeros(size, np.uint64)

    def add_hashes(begin: int) -> None:
        part, factor = slice(begin, begin + _AT_A_TIME), _FACTOR
        for longer, numbers in words.part(part).eights():
            hashes[part][longer] += numbers * np.uint64(factor)
            factor = factor * _FACTOR % 2**64

    def put(begin: int) -> None:
        part = slice(begin, begin + _AT_A_TIME)
        slots[part] = hashes[left[part]] * factor >> np.uint64(64 - bits)
        table[slots[part]] = left[part]  # threads may write to one place, whoever is last

    def compare(begin: int) -> None:
        part = slice(begin, begin + _AT_A_TIME)
        own, there = left[part], table[slots[part]]
        one, other = words.part(own), words.part(there)
        same = one.ends - one.starts == other.ends - other.starts
        some = np.flatnonzero(same & (own != there))
        for (longer, numbers), (_, others) in zip(one.part(some).eights(), other.part(some).eights(), strict=True):
            same[some[longer]] &= numbers == others
        equal[own[same]] = there[same]
        is_left[part] = ~same

    run_side_by_side(add_hashes, range(0, size, _AT_A_TIME))
    for turn in range(_TABLES):
        bits, factor = left.size.bit_length(), np.uint64(_FACTOR * (2 * turn + 1) % 2**64)
        table, slots, is_left = np.empty(1 << bits, kind), np.empty(left.size, kind), np.empty(left.size, np.bool_)
        run_side_by_side(put, range(0, left.size, _AT_A_TIME))
        run_side_by_side(compare, range(0, left.size, _AT_A_TIME))
        left = left[is_left]
    first: dict[bytes, int] = {}  # of many with one hash, as only an attacker writes them
    for place, word in zip(map(int, left), words.part(left).words(), strict=True):
        equal[place] = first.setdefault(word, place)
    return equal


def _spelled(words: Words) -> NDArray[Any]:
    """The words as an array ``[T]`` of bytes: dtype ``S`` or, if one is long, object."""
    longest = int((words.ends - words.starts).max(initial=1))
    if longest > MOST_CHARACTERS:
        return object_ids(words.words())
    eights = np.zeros((len(words), -(-longest // 8)), "<u8")
    for column, (longer, numbers) in enumerate(words.eights()):
        eights[longer, column] = numbers
    return eights.view(f"S{eights.itemsize * eights.shape[1]}").reshape(-1)


def ids_of_words(words: Words) -> NDArray[Any]:
    """The words as ids ``[T]``; as :func:`string_ids`, of words that do not end with NUL."""
    spelled = _spelled(words)
    if spelled.dtype.kind == "S":
        with suppress(UnicodeDecodeError):  # NumPy converts ASCII only
            return spelled.astype(f"U{(words.ends - words.starts).max(initial=1)}")
    return string_ids([word.decode() for word in spelled.tolist()])


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
    return word.isascii() and word.isdigit() and len(word) <= _MOST_SIGNS and least <= int(word) <= most


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
    numbers = as_int64(Words.of([word.encode("utf-8", "surrogatepass") for word in nodes]))
    return graph_of_ends(nodes if numbers is None else numbers.tolist(), ends, name, is_directed, kept)
