"""Reader for edge lists.

A file with commas, semicolons, bars, or tabs around blanks is a table (:mod:`mmsbgen.graph.files.text_tables`).  All
others are SNAP-style edge lists: one link per line, two ids separated by spaces or tabs.  A field that begins with
``#`` starts a comment, and so does ``%`` at the start of a line.  Blank lines, Windows line ends and a byte-order mark
are accepted.

Ids are integers if every id of the file is a 64-bit signed integer in its shortest form; vertices are then numbered by
ascending id.  Otherwise all ids are strings, unchanged (``007`` is not ``7``), in code-point order.

Isolated vertices are listed in a comment, ids separated by blanks or commas::

    # isolated nodes (no edge line): 3 28 30
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.errors import InputError, warn_user
from mmsbgen.base.processes import side_by_side
from mmsbgen.base.progress import Stage, stage
from mmsbgen.graph.files.file_bytes import (
    foreign_format,
    need_fields,
    read_graph_bytes,
    record_path,
    short_name,
    text_lines,
)
from mmsbgen.graph.files.text_tables import find_delimiter, read_ends
from mmsbgen.graph.files.tokens import Fields, parse_integers, split_fields
from mmsbgen.graph.files.words import INTEGER, as_int64
from mmsbgen.graph.graph import Graph, GraphWarning, Int64Array, build_graph, number_integers
from mmsbgen.graph.ids import string_ids
from mmsbgen.graph.reading_options import USUAL_COLUMNS, ReadingOptions, need_weights

#: Bytes of a block; in smaller ones threads mostly wait for each other.
_BLOCK_BYTES = 1 << 21
#: The begin of a file from which the kind of its columns is found.
_SAMPLE_BYTES = 1 << 16
#: The first line of KONECT's files: the third column is a weight, the fourth a time.
_KONECT = re.compile(rb"%\s*(sym|asym|bip)[ \t]+[a-z]+[ \t]*(?=\r?\n)")
# Without the first letter, whose case varies: search with a fixed prefix is fast in a large file.
_ISOLATED = re.compile(rb"solated (?:nodes|vertices)[^:\n]*:([^\n]*)")
#: Comments and blank lines before the first link.
_COMMENTS = re.compile(rb"(?:[ \t]*(?:[#%][^\n]*)?\r?\n)*")
_LINE = re.compile(rb"[^\n]+")
_NEIGHBOURS = (
    "If each line is a vertex and its neighbours, give --format adjlist; if the file is METIS's, --format metis "
    "(format='...' in Python)"
)
Result = TypeVar("Result")


def load_edge_list(
    path: str | os.PathLike[str], columns: Sequence[Any] | None = None, weights: str | None = None
) -> Graph:
    """Read an edge list (module docstring) or a table of links into a :class:`~mmsbgen.graph.Graph`.

    ``columns`` and ``weights`` are as in :class:`~mmsbgen.graph.reading_options.ReadingOptions`.

    Self-loops and repeated links are dropped and counted in ``Graph.report``.  If every link is listed in both
    directions, one duplicate per link is counted.  If only some are, the file may be directed: direction is
    dropped with a :class:`~mmsbgen.graph.GraphWarning`.

    Raises:
        InputError: If the file cannot be read, is damaged, has no link, or can be read in more than
            one way (:mod:`mmsbgen.graph.files.text_tables`).  The message gives file, value and remedy.
    """
    file = Path(path)
    with stage(f"reading {file.name}", unit="B") as told:
        return graph_of_text(file, read_graph_bytes(file), ReadingOptions(columns=columns, weights=weights), told)


def graph_of_text(file: Path, raw: bytes, reading: ReadingOptions, told: Stage) -> Graph:
    """The graph of the content ``raw`` of ``file``, an edge list or a table; raises as :func:`load_edge_list`."""
    if kind := foreign_format(file, raw):
        raise InputError(f"{file} has the format {kind}, and is no edge list or table; give one of these")
    need_fields(file, raw, "integers")
    text = text_lines(file, raw)
    isolated = _isolated_ids(text)
    name, whole = short_name(file), record_path(file)
    if (table := _table(file, text, reading)) is not None:
        words, kept = table
        return _graph_of_words(words, isolated, name, whole, kept)
    need_weights(reading, str(file))
    numbers = _integer_pairs(file, text, told)
    if numbers is not None and reading.format == "auto":
        _refuse_counts(file, numbers)
    extra = as_int64(isolated)
    if numbers is not None and extra is not None:
        ids, places = number_integers(np.concatenate([numbers, extra]) if extra.size else numbers)
        places = places[: numbers.size]
        return build_graph(places[0::2], places[1::2], ids, name=name, file=whole)

    need_fields(file, raw, "text")
    words = [word for _, part in _checked_blocks(file, text, told, Fields.words) for word in part]
    return _graph_of_words(_without_header(file, words, text), isolated, name, whole)


def _table(file: Path, text: bytes, reading: ReadingOptions) -> tuple[list[bytes], NDArray[np.bool_] | None] | None:
    """The ids of all rows of a table in order, ``[2 L]``, and which are links; None for a plain edge list."""
    comments = _COMMENTS.match(text)
    start = comments.end() if comments else 0
    begin = text[start : text.find(b"\n", start + _SAMPLE_BYTES) + 1 or len(text)]
    konect = _KONECT.match(text)
    if konect and konect[1] == b"bip":
        raise InputError(
            f"{file} has two kinds of vertices, whose numbers overlap ({_show(konect[0])}); give links of one kind, or "
            "ids that differ"
        )
    try:
        if konect and reading.columns is None:
            width = len(begin.partition(b"\n")[0].split())
            if width <= 2:
                return None
            delimiter, reading = None, replace(reading, columns=(1, 2, 3))
        else:
            is_csv = ".csv" in file.name.lower()
            delimiter = find_delimiter(begin.decode("utf-8"), is_csv=is_csv)
        if delimiter is None and reading.columns is None:
            return None
        need_fields(file, text, "text")
        *ends, kept = read_ends(text.decode("utf-8"), delimiter, reading)
    except csv.Error as error:
        raise InputError(f"{file}: {error}; mend the line") from None
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    return [word.encode() for pair in zip(*ends, strict=True) for word in pair], kept


def _refuse_counts(file: Path, numbers: Int64Array) -> None:
    """Raise InputError if the first line of an edge list ``[2 L]`` may be the numbers of vertices and links.

    So begin files of METIS, whose other lines are neighbours, and lists with a line of counts.
    """
    if numbers.size < 4:
        return
    n, m, rest = int(numbers[0]), int(numbers[1]), numbers[2:]
    n_lines = rest.size // 2
    if n < 2 or rest.min() < 0 or rest.max() > n:
        return
    if m == n_lines or (n == m and n == n_lines):
        raise InputError(
            f"{file}: it is not clear whether the first line, {_show(b'%d %d' % (n, m))}, is a link, or the numbers of "
            f"vertices and links. If it is a link, give --format text; if the file is METIS's, --format metis; else "
            "put # before the line"
        )


def _graph_of_words(
    words: list[bytes], isolated: list[bytes], name: str, whole: str | None, kept: NDArray[np.bool_] | None = None
) -> Graph:
    """The graph of the ids ``[2 L]`` of all rows in order, of which those ``kept`` are links; integers if all are."""
    numbers = as_int64([*words, *isolated])
    ids: NDArray[Any]
    if numbers is not None:
        ids, places = number_integers(numbers)
    else:
        distinct = sorted({*words, *isolated})
        known = set(distinct)
        twin = next((word for word in distinct if word.endswith(b".0") and word[:-2] in known), None)
        if twin is not None:
            both = f"{_show(twin[:-2])} and {_show(twin)}"
            raise InputError(f"{whole or name} has the ids {both}; write them alike, without '.0'")
        index = {word: place for place, word in enumerate(distinct)}
        places = np.fromiter(map(index.__getitem__, words), dtype=np.int64, count=len(words))
        ids = string_ids([word.decode() for word in distinct])
    pairs = places[: len(words)].reshape(-1, 2)
    if kept is not None:
        pairs = pairs[kept]
    return build_graph(pairs[:, 0], pairs[:, 1], ids, name=name, file=whole)


def _integer_pairs(file: Path, text: bytes, told: Stage) -> Int64Array | None:
    """All ids of the file in order, int64 ``[2 L]``; None if any is not an integer."""
    parts = []
    for _, part in _checked_blocks(file, text, told, parse_integers):
        if part is None:
            return None
        parts.append(part)
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _checked_blocks(
    file: Path, text: bytes, told: Stage, of: Callable[[Fields], Result]
) -> Iterator[tuple[Fields, Result]]:
    """Yield the file in blocks of whole lines, after checking that every line has two fields or none.

    Blocks are split in threads, which also compute what ``of`` gives for each.
    """

    def parsed(begin: int, end: int) -> tuple[Fields, int | None, Result | None]:
        block = split_fields(text[begin:end])
        bad = block.first_line_without_two()
        return block, bad, of(block) if bad is None else None

    done, lines_before = 0, 0
    for block, bad, result in side_by_side(lambda ends: parsed(*ends), _block_ends(text)):
        if bad is not None:
            line, counts = block.text.split(b"\n")[bad], np.bincount(block.lines)
            raise _wrong_line(file, lines_before + bad + 1, block.line(bad), line, counts[counts > 0])
        yield block, cast(Result, result)
        done, lines_before = done + len(block.text), lines_before + block.n_lines
        told.tell(done, len(text))


def _block_ends(text: bytes) -> Iterator[tuple[int, int]]:
    begin = 0
    while begin < len(text):
        end = text.find(b"\n", begin + _BLOCK_BYTES) + 1 or len(text)
        yield begin, end
        begin = end


def _wrong_line(file: Path, number: int, fields: list[bytes], line: bytes, counts: Int64Array) -> InputError:
    """The error of a line with ``fields``, among lines with ``counts`` ``[L]`` of fields."""
    where, widths = f"{file}, line {number}: {_show(line.strip())}", np.unique(counts)
    pairs = int((counts == 2).sum())
    if len(widths) > 2 and 2 * pairs < len(counts) and not all(map(INTEGER.fullmatch, fields)):
        return InputError(
            f"{file} is no edge list: of its first {len(counts)} lines {pairs} are two ids, and line {number} is "
            f"{_show(line.strip())}. {_NEIGHBOURS}"
        )
    if len(fields) == 1:
        return InputError(f"{where} has one field; a link is two ids separated by a tab or spaces: mend the line")
    found = f"{where} has {len(fields)} fields, and a link has two; the third, {_show(fields[2])},"
    if len(widths) > 1:
        return InputError(f"{found} is on this line and not on all: mend the line. {_NEIGHBOURS}")
    return InputError(
        f"{found} may be a weight. Say which columns are the two ends: --columns A,B with numbers from 1 on, or A,B,W "
        "with that of the weights (columns=(A, B) in Python)"
    )


def _without_header(file: Path, words: list[bytes], text: bytes) -> list[bytes]:
    """``words`` ``[2 L]`` without the first two if they are a header: usual names, or words over integers.

    Raises InputError for stray separators, and for a line without a tab in a file that is separated by tabs.
    """
    if not words:
        return words
    if tabbed := b"\t" in next(_link_lines(text)):
        bad = next((line for line in _link_lines(text) if b"\t" not in line), None)
        if bad is not None:
            raise InputError(f"{file}: {_show(bad)} has no tab between two ids, and the first link has: mend the line")
    for word in words:
        if word[0] in b",;" or word[-1] in b",;":
            raise InputError(f"{file}: {_show(word)} has a separator at its end, and others have none: mend the line")
    top, below = words[:2], words[2:]
    usual = tuple(word.decode().lower() for word in top) in USUAL_COLUMNS and not set(top) & set(below)
    over_integers = not any(map(INTEGER.fullmatch, top)) and all(map(INTEGER.fullmatch, below))
    if below and tabbed and not usual and not over_integers and not set(top) & set(below):
        shown = _show(b" ".join(top))
        warn_user(
            f"{file}: the first row, {shown}, is read as a link; if it is a header, put # before it", GraphWarning
        )
    return below if below and (usual or over_integers) else words


def _link_lines(text: bytes) -> Iterator[bytes]:
    """The lines that are neither blank nor a comment, stripped, one at a time."""
    for match in _LINE.finditer(text):
        line = match[0].strip()
        if line and line[:1] not in b"#%":
            yield line


def _isolated_ids(text: bytes) -> list[bytes]:
    found: list[bytes] = []
    for match in _ISOLATED.finditer(text):
        line_start = text.rfind(b"\n", 0, match.start()) + 1
        lead = text[line_start : match.start()].lstrip()
        if lead[:1] in (b"#", b"%") and lead.strip(b" \t#%") in (b"i", b"I"):
            found += match.group(1).replace(b",", b" ").split()
    return found


def _show(field: bytes) -> str:
    text = field.decode("utf-8", "replace")
    return repr(text if len(text) <= 60 else text[:57] + "...")
