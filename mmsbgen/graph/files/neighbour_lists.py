"""Graphs from lists of neighbours, and from DIMACS files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from mmsbgen.base.errors import InputError
from mmsbgen.graph.files.file_bytes import text_lines
from mmsbgen.graph.files.words import graph_of_words, is_number
from mmsbgen.graph.graph import MAX_VERTICES, Graph
from mmsbgen.graph.library_graphs import graph_of_ends
from mmsbgen.graph.reading_options import ReadingOptions, kept_of_some, need_weights

MAX_LINKS = 2**63 - 1
_BLANKS = re.compile(r"[ \t\r\v\f]+")


def from_adjacency_list(file: Path, raw: bytes, reading: ReadingOptions) -> Graph:
    """The graph of lines with a vertex and its neighbours, separated by blanks; ``#`` begins a comment."""
    need_weights(reading, str(file))
    alone, ends = [], []
    lines = list(_lines(file, raw, "#"))
    if _may_be_metis([words for _, words in lines]):
        first = lines[0][1]
        raise InputError(
            f"{file}: it is not clear whether the first line, {' '.join(first)!r}, is a vertex and its neighbours, or "
            "the numbers of vertices and links as in METIS files. For these give --format metis; else move the line"
        )
    for _, words in lines:
        odd = next((word for word in words if word[0] in ",;:{" or word[-1] in ",;:}"), None)
        if odd is not None:
            raise InputError(f"{file}: {odd!r} has a separator at its end; separate ids by blanks or tabs")
        alone.append(words[0])
        ends += [(words[0], word) for word in words[1:]]
    return graph_of_words(alone, ends, str(file))


def _may_be_metis(rows: list[list[str]]) -> bool:
    """Whether the first row may be the numbers of vertices and links, and the others the neighbours of vertices."""
    first = rows[0] if rows else []
    if len(first) != 2 or first[0] != str(len(rows) - 1) or not is_number(first[1], 0, MAX_LINKS):
        return False
    return sum(map(len, rows[1:])) == 2 * int(first[1])


def from_metis(file: Path, raw: bytes, reading: ReadingOptions) -> Graph:
    """The graph of a METIS file: numbers of vertices and links, then the neighbours of vertices 1, 2, ...

    Raises:
        InputError: If the lines do not fit the numbers in the first.
    """
    lines = text_lines(file, raw).decode().removesuffix("\n").split("\n")
    rows = [(number, _numbers(file, number, line)) for number, line in enumerate(lines, 1) if not line.startswith("%")]
    while rows and not rows[0][1]:
        del rows[0]
    head = rows[0][1] if rows else []
    if not 2 <= len(head) <= 4 or not all(is_number(word, 0, MAX_LINKS) for word in head):
        raise InputError(f"{file}: a METIS file begins with the numbers of vertices and links; this does not")
    (n, m), form = map(int, head[:2]), f"{int(head[2]) if len(head) > 2 else 0:03d}"
    while len(rows) > n + 1 and not rows[-1][1]:
        del rows[-1]
    if len(rows) != n + 1:
        raise InputError(f"{file} says that it has {n} vertices, and has lines for {len(rows) - 1}; fetch it again")
    has_size, has_weights, has_links_weights = (digit != "0" for digit in form[-3:])
    before = has_size + (int(head[3]) if len(head) > 3 else int(has_weights))
    ends, weights = [], []
    for vertex, (number, words) in enumerate(rows[1:]):
        words = words[before:]
        step = 2 if has_links_weights else 1
        if len(words) % step:
            raise InputError(f"{file}, line {number}: a neighbour has no weight; mend the line")
        for word in words[::step]:
            if not is_number(word, 1, n):
                raise InputError(f"{file}, line {number}: {word[:60]!r} is no vertex from 1 to {n}; mend the line")
            ends.append((vertex, int(word) - 1))
        weights += words[1::2] if has_links_weights else []
    if len(ends) != 2 * m:
        raise InputError(f"{file} says that it has {m} links, and lists {len(ends)} neighbours, not {2 * m}")
    kept = kept_of_some(weights, reading, str(file))
    return graph_of_ends(list(range(1, n + 1)), ends, str(file), False, kept)


def from_dimacs(file: Path, raw: bytes, reading: ReadingOptions) -> Graph:
    """The graph of a DIMACS file: ``p edge N M``, and lines ``e U V`` or ``a U V WEIGHT``; ids are 1 to N."""
    n: int | None = None
    ends, weights = [], []
    for number, words in _lines(file, raw, ""):
        if words[0] == "p" and len(words) == 4 and is_number(words[2], 0, MAX_VERTICES) and n is None:
            n = int(words[2])
            m = words[3]
        elif words[0] in ("e", "a") and len(words) in (3, 4) and n is not None:
            if not all(is_number(word, 1, n) for word in words[1:3]):
                raise InputError(f"{file}, line {number}: {' '.join(words)[:60]!r} has no two vertices from 1 to {n}")
            ends.append((int(words[1]) - 1, int(words[2]) - 1))
            weights += words[3:]
        elif words[0] not in ("c", "n", "d", "v", "x"):
            raise InputError(f"{file}, line {number}: {' '.join(words)[:60]!r} is no line of DIMACS; mend it")
    if n is None:
        raise InputError(f"{file} has no line 'p edge N M', with which a DIMACS file begins")
    if not is_number(m, 0, MAX_LINKS) or len(ends) not in (int(m), 2 * int(m)):
        raise InputError(f"{file} says that it has {m[:60]} links, and has {len(ends)}; fetch it again")
    if weights and len(weights) != len(ends):
        raise InputError(f"{file}: some links have a weight, and others none; mend them")
    kept = kept_of_some(weights, reading, str(file))
    return graph_of_ends(list(range(1, n + 1)), ends, str(file), False, kept)


def _lines(file: Path, raw: bytes, comment: str) -> Iterator[tuple[int, list[str]]]:
    """Number and words of each line that is neither blank nor a comment."""
    for number, line in enumerate(text_lines(file, raw).decode().split("\n"), 1):
        words = [word for word in _BLANKS.split(line) if word]
        if comment:
            at = next((at for at, word in enumerate(words) if word.startswith(comment)), len(words))
            words = words[:at]
        if words:
            yield number, words


def _numbers(file: Path, number: int, line: str) -> list[str]:
    words = [word for word in _BLANKS.split(line) if word]
    odd = next((word for word in words if not re.fullmatch(r"[0-9.]+", word)), None)
    if odd is not None:
        raise InputError(f"{file}, line {number}: {odd[:60]!r} is no number, as METIS files have; mend the line")
    return words
